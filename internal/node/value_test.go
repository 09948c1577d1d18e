package node

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
		{"a tombstone", "~;DEF@17", Tombstone},
		{"nothing", "", ""},
		{"a list without an owner", ";DEF@17", ""},
		{"somebody else's bytes", "\x00\xff", "\x00\xff"},
	} {
		require.Equal(t, row.want, OwnerOf(row.value), row.reason)
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
		require.Equal(t, row.want, DisplacedIn(row.value), row.reason)
	}
}

func FuzzDisplacedIn(f *testing.F) {
	f.Add("")
	f.Add("ABC;DEF@17;GHI@18")
	f.Add("~;@;;x@-1;x@99999999999999999999")
	f.Fuzz(func(t *testing.T, value string) {
		owner := OwnerOf(value)
		require.True(t, strings.HasPrefix(value, owner))
		require.NotContains(t, owner, ";")
		for listed := range DisplacedIn(value) {
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
		require.Equal(t, owner, OwnerOf(value))
		require.Equal(t, map[string]time.Duration{
			a: time.Duration(aUntil) * time.Microsecond,
			b: time.Duration(bUntil) * time.Microsecond,
		}, DisplacedIn(value))
	})
}

func TestAskersIn(t *testing.T) {
	for _, row := range []struct {
		reason, value string
		askers        map[string]time.Duration
		displaced     map[string]time.Duration
	}{
		{"an ordinary value", "ABC#5!7=a?b", nil, nil},
		{"one who asks", "ABC#5=label;?DEF@5000000", map[string]time.Duration{"DEF": 5 * time.Second}, nil},
		{"behind a displaced one", "ABC;GHI@7000000;?DEF@5000000", map[string]time.Duration{"DEF": 5 * time.Second}, map[string]time.Duration{"GHI": 7 * time.Second}},
		{"two, and one displaced between", ";?A@1000000;B@2000000;?C@3000000", map[string]time.Duration{"A": time.Second, "C": 3 * time.Second}, map[string]time.Duration{"B": 2 * time.Second}},
		{"what is no entry is skipped", "ABC;?DEF;?@x;??@y", nil, nil},
	} {
		require.Equal(t, row.askers, AskersIn(row.value), row.reason)
		require.Equal(t, row.displaced, DisplacedIn(row.value), row.reason)
		require.True(t, strings.HasPrefix(row.value, OwnerOf(row.value)))
	}
}
