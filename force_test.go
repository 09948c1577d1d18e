package redlock

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOwnerOf(t *testing.T) {
	for _, row := range []struct{ reason, value, want string }{
		{"an ordinary value", "ABC", "ABC"},
		{"a forced one", "ABC;DEF@17", "ABC"},
		{"a tombstone", "~;DEF@17", tombstone},
		{"nothing", "", ""},
		{"a list without an owner", ";DEF@17", ""},
		{"somebody else's bytes", "\x00\xff", "\x00\xff"},
	} {
		require.Equal(t, row.want, ownerOf(row.value), row.reason)
	}
}

func TestDisplacedIn(t *testing.T) {
	clock := offset{lo: 2 * time.Second, hi: 3 * time.Second}
	for _, row := range []struct {
		reason, value string
		want          map[string]time.Duration
	}{
		{"an ordinary value displaced nobody", "ABC", nil},
		{"one, by the earliest the node's clock can be, which is the latest of ours", "ABC;DEF@5000000", map[string]time.Duration{"DEF": 3 * time.Second}},
		{"two", "ABC;DEF@5000000;GHI@7000000", map[string]time.Duration{"DEF": 3 * time.Second, "GHI": 5 * time.Second}},
		{"a list alone, as a yes carries it", ";DEF@5000000", map[string]time.Duration{"DEF": 3 * time.Second}},
		{"the owner itself is not displaced", "ABC@5000000", nil},
		{"what is no entry is skipped", "ABC;;DEF;@;x@y;GHI@7000000;", map[string]time.Duration{"GHI": 5 * time.Second}},
	} {
		require.Equal(t, row.want, displacedIn(row.value, clock), row.reason)
	}
}

func FuzzDisplacedIn(f *testing.F) {
	f.Add("", int64(0))
	f.Add("ABC;DEF@17;GHI@18", int64(1))
	f.Add("~;@;;x@-1;x@99999999999999999999", int64(-5))
	f.Fuzz(func(t *testing.T, value string, lo int64) {
		owner := ownerOf(value)
		require.True(t, strings.HasPrefix(value, owner))
		require.NotContains(t, owner, ";")
		for listed, until := range displacedIn(value, offset{lo: time.Duration(lo)}) {
			require.NotContains(t, listed, ";")
			require.NotContains(t, listed, "@")
			require.Contains(t, value, ";"+listed+"@")
			_ = until
		}
	})
}

// What one taker lists, the next reads back.
func FuzzDisplacedRoundTrip(f *testing.F) {
	f.Add("ABC", "DEF", int64(17), "GHI", int64(18))
	f.Fuzz(func(t *testing.T, owner, a string, aUntil int64, b string, bUntil int64) {
		if strings.ContainsAny(owner+a+b, ";@") || a == b || bUntil < 0 || aUntil < 0 || aUntil > 1<<53 || bUntil > 1<<53 {
			t.Skip()
		}
		value := owner + ";" + a + "@" + strconv.FormatInt(aUntil, 10) + ";" + b + "@" + strconv.FormatInt(bUntil, 10)
		require.Equal(t, owner, ownerOf(value))
		require.Equal(t, map[string]time.Duration{
			a: time.Duration(aUntil) * time.Microsecond,
			b: time.Duration(bUntil) * time.Microsecond,
		}, displacedIn(value, offset{}))
	})
}
