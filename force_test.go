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
	for _, row := range []struct {
		reason, value string
		want          map[string]time.Duration
	}{
		{"an ordinary value displaced nobody", "ABC", nil},
		{"one, in node time", "ABC;DEF@5000000", map[string]time.Duration{"DEF": 5 * time.Second}},
		{"two", "ABC;DEF@5000000;GHI@7000000", map[string]time.Duration{"DEF": 5 * time.Second, "GHI": 7 * time.Second}},
		{"a list alone, as a yes carries it", ";DEF@5000000", map[string]time.Duration{"DEF": 5 * time.Second}},
		{"the owner itself is not displaced", "ABC@5000000", nil},
		{"what is no entry is skipped", "ABC;;DEF;@;x@y;GHI@7000000;", map[string]time.Duration{"GHI": 7 * time.Second}},
	} {
		require.Equal(t, row.want, displacedIn(row.value), row.reason)
	}
}

func FuzzDisplacedIn(f *testing.F) {
	f.Add("")
	f.Add("ABC;DEF@17;GHI@18")
	f.Add("~;@;;x@-1;x@99999999999999999999")
	f.Fuzz(func(t *testing.T, value string) {
		owner := ownerOf(value)
		require.True(t, strings.HasPrefix(value, owner))
		require.NotContains(t, owner, ";")
		for listed := range displacedIn(value) {
			require.NotContains(t, listed, ";")
			require.NotContains(t, listed, "@")
			require.Contains(t, value, ";"+listed+"@")
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
		}, displacedIn(value))
	})
}
