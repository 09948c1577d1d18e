package examples_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/redlocktest"
)

// objectStore keeps one object with an entity tag and user metadata, and honours If-Match as S3, GCS and Azure do
// (RFC 9110, 13.1.1). It knows nothing of fencing: a conditional put is enough.
type objectStore struct {
	mu          sync.Mutex
	body, fence string
	version     int
}

func (s *objectStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tag := strconv.Quote(strconv.Itoa(s.version))
	if r.Method == http.MethodPut {
		if r.Header.Get("If-Match") != tag {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.body, s.fence, s.version = string(body), r.Header.Get("X-Meta-Fence"), s.version+1
		return
	}
	w.Header().Set("ETag", tag)
	w.Header().Set("X-Meta-Fence", s.fence)
	io.WriteString(w, s.body)
}

// put writes as the holder with this token: it reads the object's tag and the token of its last writer, refuses if that
// is larger, and puts only if the tag is still the same. A writer in between changes the tag, and the comparison is made
// anew.
func put(ctx context.Context, url, body string, token uint64) error {
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		current, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		current.Body.Close()
		last, _ := strconv.ParseUint(current.Header.Get("X-Meta-Fence"), 10, 64)
		if last > token {
			return errStale
		}

		request, err = http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("If-Match", current.Header.Get("ETag"))
		request.Header.Set("X-Meta-Fence", strconv.FormatUint(token, 10))
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusOK:
			return nil
		case http.StatusPreconditionFailed: // somebody wrote meanwhile: look again who
		default:
			return fmt.Errorf("put: %s", answer.Status)
		}
	}
	return ctx.Err()
}

func Example_objectStore() {
	cluster := redlocktest.Start(3) // real Redis nodes in production
	defer cluster.Close()
	locker, err := redlock.NewLocker(cluster.Option())
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	store := httptest.NewServer(&objectStore{})
	defer store.Close()
	defer http.DefaultClient.CloseIdleConnections()

	ctx := context.Background()
	slow, err := locker.Acquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	fast, err := locker.ForceAcquireNow(ctx, "report") // while the first holder sleeps
	if err != nil {
		log.Fatal(err)
	}
	defer fast.Release(ctx)

	fmt.Println("new holder:", put(ctx, store.URL, "new report", fast.FencingToken()))
	fmt.Println("old holder:", put(ctx, store.URL, "old report", slow.FencingToken()))
	// Output:
	// new holder: <nil>
	// old holder: a newer holder has written
}
