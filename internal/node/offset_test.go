package node

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGoneAfterIsLeftPlusDriftPlusBound(t *testing.T) {
	require.Equal(t, 11500*time.Millisecond+1, GoneAfter(10*time.Second, 0.1, 500*time.Millisecond))
	require.Equal(t, 500*time.Millisecond+1, GoneAfter(0, 0.1, 500*time.Millisecond), "what has run out by the node's word is waited for by the bound")
	require.Equal(t, 2500*time.Millisecond+1, GoneAfter(2*time.Second, 0.25, 0))
}

func TestOffsetOfIsBetweenReceivedAndSent(t *testing.T) {
	o := OffsetOf(1000, 300, 340)
	require.Equal(t, Offset{Lo: 660, Hi: 700, At: 340}, o)
	require.Equal(t, time.Duration(680), o.Mid())
	require.LessOrEqual(t, OffsetOf(5, 10, 30).Hi, time.Duration(0), "a node behind us has a negative offset")
}

func TestOffsetGap(t *testing.T) {
	o := func(lo, hi time.Duration) Offset { return Offset{Lo: lo, Hi: hi} }
	for _, row := range []struct {
		reason string
		a, b   Offset
		want   time.Duration
	}{
		{"the same", o(1, 3), o(1, 3), 0},
		{"overlapping", o(1, 5), o(4, 9), 0},
		{"one inside the other", o(1, 9), o(4, 5), 0},
		{"touching", o(1, 4), o(4, 9), 0},
		{"apart", o(1, 4), o(9, 12), 5},
		{"apart on both sides of zero", o(-7, -4), o(2, 3), 6},
	} {
		require.Equal(t, row.want, row.a.Gap(row.b), row.reason)
		require.Equal(t, row.want, row.b.Gap(row.a), "%s, the other way round", row.reason)
	}
}

func TestOffsetAgedWidensByTheDrift(t *testing.T) {
	o := Offset{Lo: 100, Hi: 200, At: time.Second}.Aged(11*time.Second, 0.1)
	require.Equal(t, 100-time.Second-1, o.Lo)
	require.Equal(t, 200+time.Second+1, o.Hi)
	require.Equal(t, 11*time.Second, o.At)

	at := Offset{Lo: 100, Hi: 200, At: time.Second}.Aged(time.Second, 0.1)
	require.Equal(t, Offset{Lo: 99, Hi: 201, At: time.Second}, at, "at once, it is widened by the rounding alone")
}

func TestMedian(t *testing.T) {
	for _, row := range []struct {
		reason string
		values []time.Duration
		want   time.Duration
	}{
		{"one", []time.Duration{7}, 7},
		{"two: the lower", []time.Duration{9, 7}, 7},
		{"three", []time.Duration{9, 1, 7}, 7},
		{"four: the lower of the middle two", []time.Duration{9, 1, 7, 3}, 3},
		{"five, one of them mad", []time.Duration{5, 4, 6, 5, 1 << 60}, 5},
	} {
		require.Equal(t, row.want, Median(slices.Clone(row.values)), row.reason)
		var offsets []Offset
		for _, v := range row.values {
			offsets = append(offsets, Offset{Lo: v - 1, Hi: v + 1})
		}
		require.Equal(t, row.want, MedianOffset(offsets).Mid(), row.reason)
	}
}
