package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redlock-go/redlock"
)

var benchCommand = &command{
	name:    "bench",
	args:    "[flags]",
	summary: "measure how fast locks are taken and released on these nodes",
	nodes:   true,
	about: `Takes and releases locks of its own (redlock:bench:0, 1, 2, ...), each caller one after the other, and shows
the rate and how long each took. It loads the nodes: mind what else they serve.

  --for D               how long; default 5s
  --callers N           how many at once, each on a name of its own; default 1
  --contended           all on one name: a release hands the lock to the next
` + aboutLease + `
Examples:

  redlock bench --nodes a:6379,b:6379,c:6379
  redlock bench --callers 64 --for 10s
`,
	prepare: func(f *flag.FlagSet, nodes *connection) action {
		nodes.defineLease(f)
		d := f.Duration("for", 5*time.Second, "")
		callers := f.Int("callers", 1, "")
		contended := f.Bool("contended", false, "")
		return func(ctx context.Context, c *call) error { return c.bench(ctx, *d, *callers, *contended) }
	},
}

func (c *call) bench(ctx context.Context, d time.Duration, callers int, contended bool) error {
	switch err := c.wantArgs(0, 0); {
	case err != nil:
		return err
	case d < 100*time.Millisecond || d > time.Hour:
		return wrongUsage("--for %v must be from 100ms to 1h", d)
	case callers < 1 || callers > 10_000:
		return wrongUsage("--callers %d must be from 1 to 10000", callers)
	}
	locker, err := c.locker(ctx)
	if err != nil {
		return err
	}
	defer locker.Close()
	stop := c.waiting.during(ctx, func(context.Context) string { return "waiting for the first lock" })
	first, err := locker.Acquire(ctx, "redlock:bench:0")
	stop()
	if err != nil {
		return err
	}
	if err := first.Release(ctx); err != nil {
		return err
	}

	start := time.Now()
	stop = c.waiting.during(ctx, func(context.Context) string {
		left := (d - time.Since(start)).Round(time.Second)
		if left <= 0 {
			return ""
		}
		return fmt.Sprintf("measuring for %v more", left)
	})
	acquired := make([][]time.Duration, callers)
	released := make([][]time.Duration, callers)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		name := "redlock:bench:0"
		if !contended {
			name = "redlock:bench:" + strconv.Itoa(i)
		}
		wg.Go(func() {
			acquired[i], released[i], errs[i] = pairs(ctx, locker, name, start.Add(d))
		})
	}
	wg.Wait()
	took := time.Since(start)
	stop()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	takes, gives := slices.Concat(acquired...), slices.Concat(released...)
	fmt.Fprintf(c.out, "%d locks in %v: %.0f a second\n\n", len(takes), short(took), float64(len(takes))/took.Seconds())
	table := newTable(c.out)
	fmt.Fprintln(table, "\tMEDIAN\t99 %\tLONGEST")
	for _, row := range []struct {
		what  string
		times []time.Duration
	}{{"acquire", takes}, {"release", gives}} {
		slices.Sort(row.times)
		n := len(row.times)
		fmt.Fprintf(table, "%s\t%v\t%v\t%v\n", row.what, short(row.times[n/2]), short(row.times[n*99/100]), short(row.times[n-1]))
	}
	return table.Flush()
}

// pairs takes and releases a lock again and again until end, at least once.
func pairs(ctx context.Context, locker *redlock.Locker, name string, end time.Time) (acquired, released []time.Duration, err error) {
	for len(acquired) == 0 || time.Now().Before(end) {
		start := time.Now()
		guard, err := locker.Acquire(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		took := time.Now()
		if err := guard.Release(ctx); err != nil {
			return nil, nil, err
		}
		acquired, released = append(acquired, took.Sub(start)), append(released, time.Since(took))
	}
	return acquired, released, nil
}
