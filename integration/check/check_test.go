package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock/integration/check"
)

// at is an instant of a made-up history.
func at(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }

// life is a guard that was got at from and let go at to.
func life(token uint64, from, to int) check.Hold {
	return check.Hold{
		Lock: "a", Client: "c", Token: token, Invoked: at(from - 2), Returned: at(from), First: at(from), Last: at(to),
		Checks: []check.Check{{From: at(from), To: at(from)}, {From: at(to), To: at(to)}}, Ended: at(to + 1),
	}
}

// A checker that finds nothing is worth as much as the proof that it finds what there is.
func TestJudge(t *testing.T) {
	revived := life(1, 10, 20)
	revived.Revived = at(30)
	other := life(7, 12, 30)
	other.Lock = "b"
	endless := life(1, 10, 20)
	endless.Ended = time.Time{}
	now := life(2, 15, 30)
	now.MayOverlap = true
	asked := life(3, 30, 40)
	asked.Invoked = at(5)

	for _, row := range []struct {
		name  string
		holds []check.Hold
		want  []string
	}{
		{"one after the other", []check.Hold{life(1, 10, 20), life(2, 30, 40), life(3, 50, 60)}, nil},
		{"another lock", []check.Hold{life(1, 10, 20), other}, nil},
		{"killed, then another", []check.Hold{endless, life(2, 30, 40)}, nil},
		{"asked for early, got late", []check.Hold{life(4, 10, 20), asked}, []string{"not that of a lock"}},
		{"forced at once", []check.Hold{life(1, 10, 20), now}, nil},
		{"overlap", []check.Hold{life(1, 10, 20), life(2, 15, 30)}, []string{"exclusion", "not that of a lock"}},
		{"one inside the other", []check.Hold{life(1, 10, 90), life(2, 15, 16), life(3, 95, 99)}, []string{"exclusion", "not that of a lock"}},
		{"revived", []check.Hold{revived}, []string{"finality"}},
		{"token falls", []check.Hold{life(2, 10, 20), life(1, 30, 40)}, []string{"token fell", "not that of a lock"}},
		{"token twice", []check.Hold{life(1, 10, 20), life(1, 30, 40)}, []string{"one token twice", "not that of a lock"}},
		{"no token", []check.Hold{life(0, 10, 20)}, []string{"out of range", "not that of a lock"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			violations := check.Judge(row.holds)
			require.Len(t, violations, len(row.want), "%q", violations)
			for i, part := range row.want {
				require.Contains(t, violations[i], part)
			}
		})
	}
}

func TestRegister(t *testing.T) {
	var r check.Register
	require.True(t, r.Write(1))
	require.True(t, r.Write(1))
	require.True(t, r.Write(3))
	require.False(t, r.Write(2))
	require.False(t, r.Write(1))
	require.True(t, r.Write(3))
	require.Equal(t, 4, r.Accepted())
	require.Equal(t, 2, r.Refused())
	require.Empty(t, r.Violations())
}
