package readyz_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/redisproc"
	"github.com/redlock-go/redlock/internal/redisproc/redistest"
	"github.com/redlock-go/redlock/readyz"
)

// probe asks as Kubernetes does.
func probe(t *testing.T, server *httptest.Server) (code int, a readyz.Answer) {
	t.Helper()
	answer, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&a))
	require.Equal(t, "application/json", answer.Header.Get("Content-Type"))
	require.Equal(t, a.Ready, answer.StatusCode == http.StatusOK)
	return answer.StatusCode, a
}

// One of three servers goes, then a second one; then they are back.
func TestHandler(t *testing.T) {
	nodes := redistest.StartSet(t, 3, redisproc.Options{})
	locker, err := redlock.NewLocker(redlock.LockerOption{Nodes: redistest.Options(nodes), KeyValidity: 3 * time.Second, RestartQuarantine: -1})
	require.NoError(t, err)
	defer locker.Close()
	server := httptest.NewServer(readyz.Handler(locker))
	defer server.Close()
	becomes := func(want int, mayVote int) (a readyz.Answer) {
		t.Helper()
		var code int
		require.Eventually(t, func() bool {
			code, a = probe(t, server)
			return code == want && a.MayVote == mayVote
		}, 20*time.Second, 5*time.Millisecond, "it does not become %d with %d votes", want, mayVote)
		require.Len(t, a.Nodes, 3)
		require.Equal(t, 2, a.Quorum)
		return a
	}

	a := becomes(http.StatusOK, 3)
	for i, n := range a.Nodes {
		require.Equal(t, nodes[i].Addr(), n.Addr)
		require.True(t, n.Up && n.MayVote && n.Error == "")
	}
	guard, err := locker.Acquire(context.Background(), "x")
	require.NoError(t, err)
	_, a = probe(t, server)
	require.Equal(t, 1, a.Held)
	require.NoError(t, guard.Release(context.Background()))

	require.NoError(t, nodes[2].Kill())
	a = becomes(http.StatusOK, 2)
	require.False(t, a.Nodes[2].Up)
	require.NotEmpty(t, a.Nodes[2].Error)
	require.Empty(t, a.Error)

	require.NoError(t, nodes[1].Kill())
	a = becomes(http.StatusServiceUnavailable, 1)
	require.Contains(t, a.Error, "1 of 3 nodes may vote, quorum is 2")

	require.NoError(t, nodes[1].CrashEmpty()) // with the quarantine off it votes at once
	require.NoError(t, nodes[2].CrashEmpty())
	becomes(http.StatusOK, 3)

	locker.Close()
	code, a := probe(t, server)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.NotEmpty(t, a.Error)
}
