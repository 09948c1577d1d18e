package redlock_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/node"
	"github.com/redlock-go/redlock/redlocktest"
)

// The explorer's model of a node answers and stores what the scripts do on a simulated node, which one suite compares with
// redis-server (redlocktest/conformance_test.go), in random steps of three owners:
// A just asks, B tries with a ticket, C waits.
func TestExplorersNodeDoesWhatTheScriptsDo(t *testing.T) {
	texts := node.SourcesFor("", true)
	sources := map[string]string{"acquire": texts[node.ScriptAcquire], "extend": texts[node.ScriptExtend], "release": texts[node.ScriptRelease]}
	const leaseMillis = 100
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 1))
			server := redlocktest.NewCluster(t, 1).Node(0)
			model := &redlock.ModelNode{}
			server.Set("m", "marker", 0)
			const never = "9007199254740991"
			for range 40 {
				time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
				now := time.Duration(server.Now().UnixMicro()) * time.Microsecond
				script := []string{"acquire", "acquire", "extend", "release"}[r.IntN(4)]
				owner := string(rune('A' + r.IntN(3)))
				token := uint64(1 + r.IntN(5))
				ticket := map[string]uint64{"B": 5, "C": 7}[owner]
				claim, waiter := owner, ""
				if ticket != 0 {
					claim += "#" + fmt.Sprint(ticket)
				}
				flags := map[string]bool{"waits": owner == "C", "takeOver": r.IntN(3) == 0, "mayWin": r.IntN(2) == 0, "ended": r.IntN(2) == 0}
				if owner == "C" {
					waiter = "C"
					flags["stay"] = r.IntN(2) == 0
					flags["leave"] = !flags["stay"]
				}
				if flags["takeOver"] { // takers do not wait
					claim, ticket, waiter = owner, 0, ""
					flags["waits"], flags["stay"], flags["leave"] = false, false, false
				}
				flag := func(name string) string { return map[bool]string{true: "1", false: "0"}[flags[name]] }
				args := []string{"EVAL", sources[script]}
				switch script {
				case "acquire":
					args = append(args, "3", "l", "m", "w:"+waiter, claim, strconv.Itoa(leaseMillis), fmt.Sprint(token), never, "f", "marker", "0", "0",
						strconv.Itoa(leaseMillis), "1000000", "q", "w:", flag("takeOver"), waiter, "100000")
				case "extend":
					args = append(args, "2", "l", "m", claim, strconv.Itoa(leaseMillis), fmt.Sprint(token), never, "f", "marker", "0", flag("mayWin"))
				default:
					stays := ""
					if flags["stay"] {
						stays = fmt.Sprint(ticket)
					}
					args = append(args, "2", "l", "w:"+waiter, claim, "q", "w:", flag("ended"), "0", waiter, stays, "100000")
				}
				reply := server.Do(args...).([]any)
				if reply[0] == int64(-100) { // the token that was proposed
					reply = []any{int64(1), reply[1], fmt.Sprint(token)}
				}
				var number int64
				var text string
				if script != "release" && len(reply) > 2 {
					n, err := strconv.ParseInt(fmt.Sprint(reply[2]), 10, 64)
					require.NoError(t, err)
					number = n
				}
				if script == "release" {
					text = reply[1].(string)
				} else if len(reply) > 3 {
					text = reply[3].(string)
				}
				wantCode, wantNumber, wantText, wantFirst := model.Execute(script, owner, token, ticket, leaseMillis*time.Millisecond, now, flags)
				story := fmt.Sprintf("seed %d, %v: %s by %s, %v: %v", seed, now, script, owner, flags, reply)
				require.Equal(t, reply[0], wantCode, story)
				require.Equal(t, number, wantNumber, story)
				require.Equal(t, text, wantText, story)
				if reply[0] == int64(0) && len(reply) > 4 {
					require.Equal(t, reply[4] == "1", wantFirst, story)
				}
				value, left, fence := model.Stored(now)
				stored, _ := server.Get("l")
				require.Equal(t, stored, value, story)
				if value != "" {
					lasts, _ := server.PTTL("l")
					require.Equal(t, lasts, left, story)
				}
				if f, known := server.Get("f"); known {
					require.Equal(t, f, fmt.Sprint(fence), story)
				}
			}
		}
	})
}
