package redlocktest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/redlock-go/redlock/redlocktest"
)

// A goroutine left behind by any test, bubble or not, fails the package.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// link is a link as a server, for the helpers of the conformance suite.
func link(l *redlocktest.Link) server { return server{option: l.Option()} }

// inBubble runs test under virtual time with a cluster of n.
func inBubble(t *testing.T, n int, test func(t *testing.T, cluster *redlocktest.Cluster), options ...redlocktest.ClusterOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, redlocktest.NewCluster(t, n, options...)) })
}

// took returns how long do lasts.
func took(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}

// within is do with a deadline.
func (c *connection) within(d time.Duration, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return show(c.Do(ctx, c.B().Arbitrary(args...).Build()).ToMessage())
}

// later runs a command and hands over its reply.
func (c *connection) later(args ...string) <-chan string {
	reply := make(chan string, 1)
	go func() { reply <- c.do(args...) }()
	return reply
}

const deadlineExceeded = "(failed) context deadline exceeded"

// commandsOf leaves out what rueidis sends by itself.
func commandsOf(counts map[string]int) map[string]int {
	for _, name := range []string{"HELLO", "PING", "CLIENT SETINFO", "CLIENT TRACKING"} {
		delete(counts, name)
	}
	return counts
}
