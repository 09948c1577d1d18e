package engines

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseAddrs(t *testing.T) {
	for _, row := range []struct {
		name, list string
		want       []string
		err        string
	}{
		{"not set", "", nil, ""},
		{"one", "a:1", []string{"a:1"}, ""},
		{"spaces and an end comma", " a:1 , [::1]:2,", []string{"a:1", "[::1]:2"}, ""},
		{"no port", "a:1,b", nil, "missing port"},
		{"the same twice", "a:1,b:1, a:1", nil, "names a:1 twice"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := parseAddrs(row.list)
			if row.err != "" {
				require.ErrorContains(t, err, row.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, row.want, got)
		})
	}
}
