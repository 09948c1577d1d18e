package redlock_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/logtest"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/redlock-go/redlock/redlocktest"
)

// What NewLocker does about nodes that cannot vote until somebody changes something.

// requireUnable asserts that NewLocker fails for want of a quorum, and names so many nodes.
func requireUnable(t *testing.T, o redlock.LockerOption, faults int, says ...string) {
	t.Helper()
	var qe *redlock.QuorumError
	var err error
	for range 10 { // what a node says later than a moment after two others is not waited for
		var l *redlock.Locker
		if l, err = redlock.NewLocker(o); l != nil {
			l.Close()
		}
		require.True(t, l == nil, "it was made")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotErrorIs(t, err, redlock.ErrNotLocked)
		require.ErrorAs(t, err, &qe)
		if len(qe.Errs) >= faults {
			break
		}
	}
	require.Len(t, qe.Errs, faults, err)
	require.Equal(t, len(o.Nodes)-faults, qe.Votes)
	for _, s := range says {
		require.ErrorContains(t, err, s)
	}
}

func TestPermanentFaultsAtStart(t *testing.T) {
	type fault struct{ field, value, says string }
	old := fault{"redis_version", "5.0.0", "5.0.0 is below 6.2"}
	replica := fault{"role", "slave", "replica"}
	cluster := fault{"redis_mode", "cluster", "cluster mode"}
	for _, f := range []fault{old, replica, cluster} {
		simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
			c.Node(1).SetInfo(f.field, f.value)
			var log logtest.Log
			l := open("a", logTo(&log)) // a minority: it works
			release(t, tryAcquire(t, l, "x"))
			require.Contains(t, log.String(), f.says)
			require.Contains(t, log.String(), c.Node(1).Addr())
			c.Node(2).Stop()
			time.Sleep(50 * time.Millisecond)
			_, err := l.TryAcquire(context.Background(), "x")
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorIs(t, err, redlock.ErrUnsupportedNode)
			require.ErrorContains(t, err, c.Node(1).Addr()+": ")
			require.ErrorContains(t, err, f.says)
			c.Node(2).Start()
			c.Node(1).SetInfo(f.field, map[string]string{"redis_version": "7.0.15", "role": "master", "redis_mode": "standalone"}[f.field])
			time.Sleep(2 * time.Second)
			c.Node(2).Stop()
			time.Sleep(50 * time.Millisecond)
			release(t, tryAcquire(t, l, "x")) // it joins by itself when it is mended
		})
	}
	for _, second := range []fault{old, replica, cluster} {
		simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, _ opener) {
			c.Node(0).SetInfo(old.field, old.value)
			c.Node(2).SetInfo(second.field, second.value)
			requireUnable(t, c.Option(), 2, c.Node(0).Addr(), old.says, c.Node(2).Addr(), second.says, "1 of 3 nodes are left", "quorum is 2")
		})
	}
	simulated(t, 1, func(t *testing.T, c *redlocktest.Cluster, _ opener) {
		c.Node(0).SetInfo(old.field, old.value)
		requireUnable(t, c.Option(), 1, old.says)
	})
}

// Nodes that are merely down may come: they do not keep a Locker from starting, be it beside one that cannot vote.
func TestDownIsNoPermanentFault(t *testing.T) {
	simulated(t, 3, func(t *testing.T, c *redlocktest.Cluster, open opener) {
		c.Node(0).SetInfo("role", "slave")
		c.Node(1).Stop()
		c.Node(2).Stop()
		l := open("a")
		_, err := l.TryAcquire(context.Background(), "x")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, err, redlock.ErrUnsupportedNode)
		require.ErrorIs(t, err, redlock.ErrNodeDown)
		c.Node(1).Start()
		c.Node(2).Start()
		time.Sleep(2 * time.Second)
		release(t, tryAcquire(t, l, "x"))
	})
}

// A password that is rotated on one node after the other must not keep programs from starting.
func TestWrongPasswordOfAMinority(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartSet(t, 3, redisproc.Options{Args: []string{"--requirepass", "secret"}})
	options := redistest.Options(nodes)
	for i := range options {
		options[i].Password = "secret"
	}
	options[1].Password = "old"
	var log logtest.Log
	l := newLocker(t, options, logTo(&log))
	release(t, acquire(t, l, "a"))
	require.Eventually(t, func() bool { return log.Count("node cannot vote", "WRONGPASS", nodes[1].Addr()) == 1 }, soon, tick)
	require.NoError(t, nodes[2].Kill())
	var err error
	require.Eventually(t, func() bool {
		_, err = l.TryAcquire(context.Background(), "a")
		return err != nil
	}, soon, tick)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorContains(t, err, nodes[1].Addr()+": ")
	require.ErrorContains(t, err, "WRONGPASS")

	options[0].Password = "old"
	requireUnable(t, lockerOption(options), 2, nodes[0].Addr(), nodes[1].Addr(), "WRONGPASS")
}

// tlsNodes starts servers that listen with TLS, and returns where, and a certificate that clients are to trust.
func tlsNodes(t *testing.T, n int, args ...string) (plain []*redisproc.Node, options []rueidis.ClientOption, trust *x509.CertPool) {
	t.Helper()
	plain, addresses, certFile := redistest.StartTLS(t, n, args...)
	for _, address := range addresses {
		options = append(options, rueidis.ClientOption{InitAddress: []string{address}})
	}
	cert, err := os.ReadFile(certFile)
	require.NoError(t, err)
	trust = x509.NewCertPool()
	require.True(t, trust.AppendCertsFromPEM(cert))
	return plain, options, trust
}

func withTLS(options []rueidis.ClientOption, c *tls.Config) []rueidis.ClientOption {
	var with []rueidis.ClientOption
	for _, o := range options {
		o.TLSConfig = c
		with = append(with, o)
	}
	return with
}

func TestTLSThatDoesNotComeAbout(t *testing.T) {
	t.Parallel()
	plain, options, trust := tlsNodes(t, 3)
	good := &tls.Config{RootCAs: trust}
	release(t, acquire(t, newLocker(t, withTLS(options, good)), "a"))

	patient := nodeTimeout(2 * time.Second)
	for _, row := range []struct {
		reason  string
		options []rueidis.ClientOption
		says    string
	}{
		{"unknown CA", withTLS(options, &tls.Config{}), "unknown authority"},
		{"another name", withTLS(options, &tls.Config{RootCAs: trust, ServerName: "other"}), "wanted to match other"},
		{"no TLS to a port with it", options, "the server speaks it on this port, and TLSConfig is not set"},
		{"TLS to a port without", withTLS(redistest.Options(plain), good), "the server does not speak it on this port, and TLSConfig is set"},
	} {
		requireUnable(t, lockerOption(row.options, patient), 3, row.says)
		one := append(row.options[:1:1], withTLS(options[1:], good)...)
		var log logtest.Log
		l := newLocker(t, one, patient, logTo(&log))
		release(t, acquire(t, l, "a"))
		require.Eventually(t, func() bool { return log.Count("node cannot vote", row.says, one[0].InitAddress[0]) == 1 }, soon, tick, row.reason)
		l.Close()
	}
}

// The server's word that it wants a certificate may be lost in the end of the connection, so it is there soon, if not at
// the first look.
func TestTLSWithoutTheClientsCertificate(t *testing.T) {
	t.Parallel()
	_, options, trust := tlsNodes(t, 1, "--tls-auth-clients", "yes")
	require.Eventually(t, func() bool {
		l, err := redlock.NewLocker(lockerOption(withTLS(options, &tls.Config{RootCAs: trust})))
		if err == nil {
			l.Close()
		}
		return err != nil && strings.Contains(err.Error(), "certificate required") && errors.Is(err, redlock.ErrNoQuorum)
	}, soon, tick)
}

// A server with TLS that hangs is not taken for one without.
func TestHungServerWithTLSIsNotTakenForOneWithout(t *testing.T) {
	t.Parallel()
	plain, options, trust := tlsNodes(t, 1)
	require.NoError(t, plain[0].Freeze())
	l := newLocker(t, withTLS(options, &tls.Config{RootCAs: trust}))
	_, err := l.TryAcquire(t.Context(), "a")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NotContains(t, err.Error(), "TLS")
	require.NoError(t, plain[0].Thaw())
	release(t, acquire(t, l, "a"))
}
