package node

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const someRunID = "0123456789abcdef0123456789abcdef01234567"

// stored is how mark.lua puts a marker together.
func stored(m marker) string {
	return m.runID + ":" + strconv.FormatInt(m.until, 10) + ":" + strconv.FormatInt(m.floor, 10) + ":" + m.rest()
}

func TestMarkerSurvivesStoring(t *testing.T) {
	for _, m := range []marker{
		{runID: someRunID, until: 1_700_000_000_000_001, floor: 1_700_000_010_000_000, longest: 10 * time.Second, proven: time.Second, nodes: 5, set: "K3Y", first: true, quarantined: true},
		{runID: someRunID, until: 0, floor: 0, longest: time.Millisecond, proven: time.Millisecond, nodes: 1, set: "", first: false, quarantined: false},
		{runID: someRunID, until: 1, floor: 2, longest: MaxDuration, proven: MaxDuration, nodes: 7, set: "X", first: true, quarantined: false},
		{runID: someRunID, until: 1, floor: 2, longest: time.Second, proven: time.Second, nodes: 7, set: "X", first: false, quarantined: true},
	} {
		m.raw = stored(m)
		got, ok := parseMarker(m.raw)
		require.True(t, ok, m.raw)
		require.Equal(t, m, got)
	}
}

func TestMarkerThatIsNotOneOfOurs(t *testing.T) {
	for _, row := range []struct{ reason, raw string }{
		{"none", ""},
		{"a word", "hello"},
		{"no run id", ":1:2:3:4:set:first:on"},
		{"run id too short", someRunID[1:] + ":1:2:3:4:set:first:on"},
		{"run id too long", someRunID + "0:1:2:3:4:set:first:on"},
		{"a field too few", someRunID + ":1:2:3:4:set:first"},
		{"a field too many", someRunID + ":1:2:3:4:set:first:on:more"},
		{"until is no number", someRunID + ":x:2:3:4:set:first:on"},
		{"until is a double", someRunID + ":1.7e+15:2:3:4:set:first:on"},
		{"floor is no number", someRunID + ":1::3:4:set:first:on"},
		{"no lease", someRunID + ":1:2:0:4:set:first:on"},
		{"a negative lease", someRunID + ":1:2:-3:4:set:first:on"},
		{"a lease longer than any", someRunID + ":1:2:9223372036854775807:4:set:first:on"},
		{"quarantined before the epoch", someRunID + ":-1:2:3:4:set:first:on"},
		{"quarantined for longer than Lua can count", someRunID + ":9007199254740992:2:3:4:set:first:on"},
		{"a floor below any token", someRunID + ":1:-2:3:4:set:first:on"},
		{"a floor above any token", someRunID + ":1:9007199254740992:3:4:set:first:on"},
		{"nodes is no number", someRunID + ":1:2:3:many:set:first:on"},
		{"binary", "\x00\xff:\n::::::"},
	} {
		m, ok := parseMarker(row.raw)
		require.False(t, ok, row.reason)
		require.Equal(t, row.raw, m.raw, "what is stored is kept, to be replaced and nothing else: %s", row.reason)
	}
}

func FuzzParseMarker(f *testing.F) {
	f.Add("")
	f.Add(someRunID + ":1:2:3:4:set:first:on")
	f.Add(someRunID + ":-1:-2:3:4::again:off")
	f.Add(someRunID + ":1:2:9223372036854775807:4:set:first:on")
	f.Add(strings.Repeat(":", 7))
	f.Fuzz(func(t *testing.T, raw string) {
		m, ok := parseMarker(raw)
		require.Equal(t, raw, m.raw)
		if !ok {
			return
		}
		require.Positive(t, m.longest)
		require.Len(t, m.runID, runIDLen)
		again, ok := parseMarker(stored(m))
		require.True(t, ok)
		m.raw, again.raw = "", ""
		require.Equal(t, m, again)
	})
}
