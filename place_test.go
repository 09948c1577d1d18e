package redlock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A try keeps its name to itself from its first attempt to its last, also while it rests between two of them: another of the same Locker
// would only be in its way. So it is whether or not somebody has come to the place meanwhile.
func TestTryKeepsItsPlaceBetweenAttempts(t *testing.T) {
	for name, meet := range map[string]bool{"alone": false, "somebody else has tried": true} {
		t.Run(name, func(t *testing.T) {
			l, _ := parkedLocker(t)
			try := func() (*Guard, error) {
				g := l.newGuard(context.Background(), "y", hold{})
				return g, l.enterAlone(g, nil)
			}
			first, err := try()
			require.NoError(t, err)
			first.ask()
			if meet {
				_, err = try()
				require.ErrorContains(t, err, "is asking for it")
			}
			for range 2 { // questions, then releases
				for i := range l.nodes {
					answers(first, i, codeHeld, l.clock.Now())
				}
			}
			require.Empty(t, l.guardsOf(first.subject()), "it has given back what it had")
			_, err = try()
			require.ErrorIs(t, err, ErrNotLocked)

			l.tried(first)
			second, err := try()
			require.NoError(t, err)
			l.tried(second)
			_, err = try()
			require.ErrorContains(t, err, "is asking for it", "an attempt, or a lock, that is not over")
		})
	}
}
