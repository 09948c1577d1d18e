package node

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// What spell does not know would be a comment to Lua, or a call of nothing on a path that hardly anybody takes.
func TestScriptsAreSpelled(t *testing.T) {
	left := regexp.MustCompile(`--[A-Z]+--|\banswer\(`)
	for _, volatile := range []bool{false, true} {
		sources := SourcesFor("run", volatile)
		resent := resendFor(sources, volatile)
		for _, source := range append(sources[:], resent[:]...) {
			require.NotRegexp(t, left, source)
		}
	}
}
