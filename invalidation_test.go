package redlock

import (
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/internal/node"
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
		{"a line", "redlock:queue:{a}", "", false},
		{"a slot", "redlock:slot:{a}3", "a", true},
		{"of a name that ends like one", "redlock:slot:{a}3}12", "a}3", true},
		{"a semaphore", "redlock:slot:{a}", "", false},
		{"its line", "redlock:slot:{a}queue", "", false},
		{"no slot", "redlock:slot:{a}0", "", false},
		{"a slot spelled otherwise", "redlock:slot:{a}03", "", false},
		{"a slot of nothing", "redlock:slot:{}3", "", false},
		{"a writer", "redlock:rw:{a}", "a", true},
		{"a reader", "redlock:rw:{a}rABCDEFGHIJKLMNOPQRSTUVWXY", "a", true},
		{"a reader of a name that ends like one", "redlock:rw:{a}r}rABCDEFGHIJKLMNOPQRSTUVWXY", "a}r", true},
		{"a reader with the owner of a writer", "redlock:rw:{a}ABCDEFGHIJKLMNOPQRSTUVWXYZ", "", false},
		{"half a reader", "redlock:rw:{a}rABC", "", false},
		{"the index of readers", "redlock:rw:{a}readers", "", false},
		{"the line of readers and writers", "redlock:rw:{a}queue", "", false},
		{"a writer of nothing", "redlock:rw:{}", "", false},
		{"a lock called like a slot", "redlock:{slot:{a}3}", "slot:{a}3", true},
	} {
		name, _, ok := node.ParseLock("redlock", row.key)
		require.Equal(t, row.ok, ok, row.reason)
		require.Equal(t, row.name, name, row.reason)
	}
}

func TestOtherKeysCanBeTakenForNoLock(t *testing.T) {
	for _, prefix := range []string{"redlock", "x", ":", "a:b", "ü\x00"} {
		for _, name := range []string{"a", "marker", "fence:1", "{a}", "}"} {
			for _, other := range []string{node.MarkerKey(prefix), node.FenceKey(prefix, name), node.QueueKey(prefix, name),
				node.SizeKey(prefix, name), node.SlotQueueKey(prefix, name), node.ReadersKey(prefix, name), node.WaitersKey(prefix, name)} {
				require.True(t, strings.HasPrefix(other, prefix+":"))
				_, _, ok := node.ParseLock(prefix, other)
				require.False(t, ok, other)
			}
		}
	}
}

func FuzzPushedKey(f *testing.F) {
	for _, key := range []string{"", "redlock", "redlock:{", "redlock:{}", "redlock:{a}", "redlock:9:a", "redlock:marker", "\x00\xff\n", "redlock:{\x80}", "redlock:slot:{a}gate", "redlock:rw:{a}", "redlock:rw:{a}rABCDEFGHIJKLMNOPQRSTUVWXY"} {
		f.Add(key, strings.TrimSuffix(strings.TrimPrefix(key, "redlock:{"), "}"))
	}
	f.Fuzz(func(t *testing.T, key, name string) {
		l := idleLocker(t, "redlock")
		pushed, slot, ok := node.ParseLock("redlock", key)
		switch {
		case ok && slot == 0:
			require.Equal(t, key, "redlock:{"+pushed+"}")
		case ok && slot == node.Gate:
			require.Equal(t, key, node.GateKey("redlock", pushed))
		case ok && slot == node.Writer:
			require.Equal(t, key, node.WriterKey("redlock", pushed))
		case ok && slot == node.Reader:
			require.Equal(t, key, node.ReaderKey("redlock", pushed, key[len(key)-26:]))
		case ok:
			require.Equal(t, key, node.SlotKey("redlock", pushed, slot))
		}
		for i := range l.nodes {
			l.keyPushed(i, key) // nobody there: it must do nothing, whatever the bytes
		}
		if name == "" {
			return
		}
		got, none, isLock := node.ParseLock("redlock", "redlock:{"+name+"}")
		require.True(t, isLock)
		require.Equal(t, name, got)
		require.Zero(t, none)
		got, seven, isLock := node.ParseLock("redlock", node.SlotKey("redlock", name, 7))
		require.True(t, isLock)
		require.Equal(t, name, got)
		require.Equal(t, 7, seven)

		g := l.newGuard(t.Context(), name, hold{})
		require.NoError(t, l.enter(g))
		l.keyPushed(1, key)
		require.Equal(t, ok && slot == 0 && pushed == name, g.life.ballot[1].pushes == 1, "the guard is told of its own key and of no other")
		require.Zero(t, g.life.ballot[0].pushes, "of another node")
	})
}
