package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHolderIn(t *testing.T) {
	for value, want := range map[string]holding{
		"":                             {},
		"OWNER":                        {id: "OWNER"},
		"OWNER#17":                     {id: "OWNER", label: ""},
		"OWNER#17!60000=cron[1]@web":   {id: "OWNER", label: "cron[1]@web"},
		"OWNER=a%3Bb=c;OLD@1;?ASKER@2": {id: "OWNER", label: "a;b=c"},
		"OWNER=100%":                   {id: "OWNER", label: "100%"},
		"~;OLD@1":                      {},
		"~!60000=cron[1]@web":          {kept: true, label: "cron[1]@web"},
	} {
		require.Equal(t, want, holderIn(value), value)
	}
}

// Whatever stands in a node's key, a holder's id ends where the library ends it, and a terminal obeys nothing of what is shown.
func FuzzHolderIn(f *testing.F) {
	f.Add("OWNER#17!60000=cron%5B1%5D;OLD@1")
	f.Add("~!1=\x1b[2J")
	f.Fuzz(func(t *testing.T, value string) {
		h := holderIn(value)
		require.False(t, strings.ContainsAny(h.id, ";#!="))
		require.NotContains(t, shownName(h.label)+shownHolder(h.id, h.kept), "\x1b")
	})
}
