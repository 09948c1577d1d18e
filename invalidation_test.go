package redlock

import (
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// idleLocker returns a Locker that has not connected to anything and runs nothing.
func idleLocker(t testing.TB, prefix string) *Locker {
	option, err := LockerOption{
		Nodes:     []rueidis.ClientOption{{InitAddress: []string{"a:1"}}, {InitAddress: []string{"b:1"}}, {InitAddress: []string{"c:1"}}},
		KeyPrefix: prefix,
	}.resolve()
	require.NoError(t, err)
	return newLocker(option)
}

func TestNameOf(t *testing.T) {
	l := idleLocker(t, "redlock")
	for _, row := range []struct {
		reason, key, name string
		ok                bool
	}{
		{"a lock", "redlock:{a}", "a", true},
		{"braces in the name", "redlock:{{a}}", "{a}", true},
		{"a name that ends like a key", "redlock:{a}:{b}", "a}:{b", true},
		{"any bytes", "redlock:{\x00\xff\n}", "\x00\xff\n", true},
		{"no name", "redlock:{}", "", false},
		{"not closed", "redlock:{a", "", false},
		{"half of it", "redlock:{", "", false},
		{"the prefix alone", "redlock", "", false},
		{"the prefix and a colon", "redlock:", "", false},
		{"as rueidislock names its keys", "redlock:9:a", "", false},
		{"a negative one of those", "redlock:-1:a", "", false},
		{"the marker", "redlock:marker", "", false},
		{"a fence", "redlock:fence:17", "", false},
		{"another prefix", "other:{a}", "", false},
		{"a longer prefix", "xredlock:{a}", "", false},
		{"nothing", "", "", false},
	} {
		name, ok := l.nameOf(row.key)
		require.Equal(t, row.ok, ok, row.reason)
		require.Equal(t, row.name, name, row.reason)
	}
}

func TestOtherKeysCanBeTakenForNoLock(t *testing.T) {
	for _, prefix := range []string{"redlock", "x", ":", "a:b", "ü\x00"} {
		l := idleLocker(t, prefix)
		for _, name := range []string{"a", "marker", "fence:1", "{a}", "}"} {
			for _, other := range []string{l.markerKey, fenceKey(prefix, name)} {
				require.True(t, strings.HasPrefix(other, prefix+":"))
				_, ok := l.nameOf(other)
				require.False(t, ok, other)
			}
		}
	}
}

func FuzzPushedKey(f *testing.F) {
	for _, key := range []string{"", "redlock", "redlock:{", "redlock:{}", "redlock:{a}", "redlock:9:a", "redlock:marker", "\x00\xff\n", "redlock:{\x80}"} {
		f.Add(key, strings.TrimSuffix(strings.TrimPrefix(key, "redlock:{"), "}"))
	}
	f.Fuzz(func(t *testing.T, key, name string) {
		l := idleLocker(t, "redlock")
		pushed, ok := l.nameOf(key)
		if ok {
			require.Equal(t, key, "redlock:{"+pushed+"}")
		}
		for _, n := range l.nodes {
			l.keyPushed(n, key) // nobody there: it must do nothing, whatever the bytes
		}
		if name == "" {
			return
		}
		got, isLock := l.nameOf("redlock:{" + name + "}")
		require.True(t, isLock)
		require.Equal(t, name, got)

		g := l.newGuard(t.Context(), name, hold{})
		require.NoError(t, l.enter(g))
		l.keyPushed(l.nodes[1], key)
		require.Equal(t, ok && pushed == name, g.claims[1].pushes == 1, "the guard is told of its own key and of no other")
		require.Zero(t, g.claims[0].pushes, "of another node")
	})
}

func TestPushOfNothingSaysThatTheNodeWasFlushed(t *testing.T) {
	l := idleLocker(t, "redlock")
	l.invalidated(l.nodes[0], nil)
	require.Len(t, l.nodes[0].recheck, 1, "the keeper looks at the marker")
}
