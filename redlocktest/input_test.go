package redlocktest_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/redlocktest"
)

// fatal is a testing.TB that keeps what Fatalf said.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Helper() {}

func (f *fatal) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestBadInput(t *testing.T) {
	for want, bad := range map[string]func(c *redlocktest.Cluster){
		"node 3 of a cluster of 3":                      func(c *redlocktest.Cluster) { c.Node(3) },
		"node -1 of a cluster of 3":                     func(c *redlocktest.Cluster) { c.Node(-1) },
		"link to node 7 of a cluster of 3":              func(c *redlocktest.Cluster) { c.Client("a").Link(7) },
		"a client without a name":                       func(c *redlocktest.Cluster) { c.Client("") },
		"Node.Delay: negative delay -1ns":               func(c *redlocktest.Cluster) { c.Node(0).Delay(0, -1) },
		"Link.Delay: negative delay -2s":                func(c *redlocktest.Cluster) { c.Client("a").Link(0).Delay(-2*time.Second, 0) },
		"clock rate -0.5: want 0 or more":               func(c *redlocktest.Cluster) { c.Node(0).SetClockRate(-0.5) },
		"clock rate NaN: want 0 or more":                func(c *redlocktest.Cluster) { c.Node(0).SetClockRate(math.NaN()) },
		"clock rate +Inf: want 0 or more":               func(c *redlocktest.Cluster) { c.Node(0).SetClockRate(math.Inf(1)) },
		`Fail("", "x"): want a command and a message`:   func(c *redlocktest.Cluster) { c.Node(0).Fail("", "x") },
		`Fail("GET", ""): want a command and a message`: func(c *redlocktest.Cluster) { c.Node(0).Fail("GET", "") },
		"Do without a command":                          func(c *redlocktest.Cluster) { c.Node(0).Do() },
		`Set("k"): lease -1ns: want 0 or at least 1ms`:  func(c *redlocktest.Cluster) { c.Node(0).Set("k", "v", -1) },
	} {
		tb := &fatal{TB: t}
		cluster := redlocktest.NewCluster(tb, 3)
		done := make(chan struct{})
		go func() {
			defer close(done)
			bad(cluster)
		}()
		<-done
		require.Equal(t, "redlocktest: "+want, tb.said)

		outside := redlocktest.Start(3)
		require.PanicsWithValue(t, "redlocktest: "+want, func() { bad(outside) })
		outside.Node(0).Do("PING") // no lock was left behind
		outside.Close()
	}
	require.PanicsWithValue(t, "redlocktest: cluster of 0 nodes: want at least 1", func() { redlocktest.Start(0) })
	require.PanicsWithValue(t, "redlocktest: Jitter(2ns, 1ns): want 0 <= low <= high", func() { redlocktest.Start(1, redlocktest.Jitter(2, 1)) })
}
