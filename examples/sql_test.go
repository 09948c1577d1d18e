package examples_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "modernc.org/sqlite"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

var errStale = errors.New("a newer holder has written")

// setBalance writes as the holder with this token. The comparison and the write are one statement, so nothing can come
// between them: that is what makes it safe, whatever has become of the lock meanwhile.
func setBalance(ctx context.Context, db *sql.DB, account string, balance int, token uint64) error {
	r, err := db.ExecContext(ctx,
		`UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?`, balance, token, account, token)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errStale)
	}
	return nil
}

func Example_sql() {
	cluster := redlocktest.Start(3) // real Redis nodes in production
	defer cluster.Close()
	locker, err := redlock.NewLocker(cluster.Option())
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // one in-memory database, not one per connection
	if _, err := db.Exec(`CREATE TABLE account (id TEXT PRIMARY KEY, balance INTEGER, fence INTEGER);
		INSERT INTO account VALUES ('alice', 100, 0)`); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	slow, err := locker.Acquire(ctx, "account:alice")
	if err != nil {
		log.Fatal(err)
	}
	// The first holder sleeps here, past its lease, and does not know. Somebody takes the lock over.
	fast, err := locker.ForceAcquireNow(ctx, "account:alice")
	if err != nil {
		log.Fatal(err)
	}
	defer fast.Release(ctx)

	fmt.Println("new holder:", setBalance(ctx, db, "alice", 70, fast.FencingToken()))
	fmt.Println("old holder:", setBalance(ctx, db, "alice", 150, slow.FencingToken()))
	var balance int
	if err := db.QueryRow(`SELECT balance FROM account WHERE id = 'alice'`).Scan(&balance); err != nil {
		log.Fatal(err)
	}
	fmt.Println("balance:", balance)
	// Output:
	// new holder: <nil>
	// old holder: a newer holder has written
	// balance: 70
}
