package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A batch is told one lease and one "not after" for the steps that they do for: none is done after its own, and none long before.
func TestStepsPassForEachOther(t *testing.T) {
	const sentAt, lease = 100 * time.Second, 10 * time.Second
	usual := &Delivery{Step: Step{Gist: Gist{Script: ScriptExtend, NotAfter: sentAt + 700*time.Millisecond}, Keep: lease}}
	for _, row := range []struct {
		notAfter, keep time.Duration
		passes         bool
	}{
		{700 * time.Millisecond, lease, true},
		{800 * time.Millisecond, lease, true},                  // an eighth of what it has left
		{801 * time.Millisecond, lease, false},                 // it would be late before its time
		{700*time.Millisecond - time.Nanosecond, lease, false}, // it would be done too late
		{700 * time.Millisecond, lease + time.Millisecond, false},
		{700 * time.Millisecond, lease + time.Microsecond, true}, // the nodes are told whole ms
	} {
		s := &Delivery{Step: Step{Gist: Gist{Script: ScriptAcquire, NotAfter: sentAt + row.notAfter}, Keep: row.keep}}
		require.Equal(t, row.passes, s.passesFor(usual, sentAt), "%+v", row)
	}
	release := Delivery{Step: Step{Gist: Gist{Script: ScriptRelease}}}
	require.Equal(t, usual, usualOf([]Delivery{release, *usual, {Step: Step{Gist: Gist{Script: ScriptAcquire}}}}))
}

// A lone acquire alone is answered as usual; anything else that is answered so is by no script of ours.
func TestALoneReplyAsUsualIsOfAnAcquire(t *testing.T) {
	for script, want := range map[Script]Answer{ScriptAcquire: {Code: CodeOK, Number: 5}, ScriptExtend: {Code: asUsual}} {
		lock := &Lock{Name: "x", Rarity: Usual}
		var a Answer
		n := someNode(t)
		n.readValues(&a, &Delivery{Lock: lock, Step: Step{Gist: Gist{Script: script}, Token: 5}}, messages(t, "-100\n1763000000000000"))
		require.Equal(t, want.Code, a.Code)
		require.Equal(t, want.Number, a.Number)
	}
}
