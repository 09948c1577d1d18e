package roster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatesAreReadAsTheyAreWritten(t *testing.T) {
	first := New(Record{Version: 1, ID: "S", Members: []string{"b:1", "a:1", "m@s:1,s:2/&%"}, Longest: 10 * time.Second, Wait: 12 * time.Second})
	second := New(Record{Version: 2, ID: "T", Base: "S", Members: []string{"a:1", "d:1"}, Off: []string{"b:1"}, Longest: time.Minute})
	for _, s := range []State{
		Activate("a:1", first),
		{Name: "m@s:1,s:2/&%", Active: first, Founding: true},
		{Name: "a:1", Active: first, Promised: Ballot{3, "x"}, Accepted: Ballot{2, "y"}, Value: second},
	} {
		text := s.String()
		require.NotContains(t, text, ":", "it stands in a field of a marker")
		read, ok := ParseState(text)
		require.True(t, ok, text)
		require.Equal(t, s, read)
	}
	for _, text := range []string{"", "a", "a,,,,,", "a,,1/S//10000/0//,,,", "a,,1/S//10000/0/b&a/,,,", "a,,1/S//-1/0/a/,,,", "a,,0/S//10000/0/a/,,,", "a,,1/S//10000/0/a/,x,,", "a,no,1/S//10000/0/a/,,,"} {
		_, ok := ParseState(text)
		require.False(t, ok, text)
	}
}

func FuzzParseState(f *testing.F) {
	f.Add(Activate("a:1", New(Record{Version: 1, ID: "S", Members: []string{"a:1"}, Longest: time.Second})).String())
	f.Fuzz(func(t *testing.T, text string) {
		if s, ok := ParseState(text); ok {
			require.Equal(t, text, s.String())
		}
	})
}

func TestWhoStaysVotesOn(t *testing.T) {
	base := New(Record{Version: 1, ID: "S", Members: []string{"A", "B", "C"}, Longest: time.Second})
	five := New(Record{Version: 2, ID: "T", Base: "S", Members: []string{"A", "B", "C", "D", "E"}, Longest: time.Second})
	three := New(Record{Version: 3, ID: "U", Base: "T", Members: []string{"A", "B", "C"}, Longest: time.Second})
	two := New(Record{Version: 2, ID: "V", Base: "S", Members: []string{"A"}, Longest: time.Second})
	require.True(t, five.Stays("A", base))
	require.False(t, five.Stays("D", base), "it joins")
	require.False(t, five.Stays("D", nil), "and knows of nothing")
	require.False(t, three.Stays("A", five), "of five, three and two need not meet")
	require.False(t, two.Stays("A", base))
	require.False(t, three.Stays("A", base), "it has missed a version")
}

// A member that is back holds what others have accepted by the largest ballot, of the record that it is back at, and has promised nothing.
func TestWhoReturnsHoldsWhatOthersHave(t *testing.T) {
	record := func(id string) *Record {
		return New(Record{Version: 2, ID: id, Members: []string{"a", "b"}, Longest: time.Second})
	}
	base, x, y := record("base"), record("x"), record("y")
	others := []State{
		{Name: "b", Active: base},
		{Name: "c", Active: base, Promised: Ballot{4, "p"}, Accepted: Ballot{2, "p"}, Value: x},
		{Name: "d", Active: base, Promised: Ballot{3, "q"}, Accepted: Ballot{3, "q"}, Value: y},
		{Name: "e", Active: x, Promised: Ballot{9, "q"}, Accepted: Ballot{9, "q"}, Value: x},
	}
	require.Equal(t, State{Name: "a", Active: base, Accepted: Ballot{3, "q"}, Value: y}, Return("a", base, others))
	require.Equal(t, Activate("a", base), Return("a", base, others[:1]))
}
