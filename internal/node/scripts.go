package node

import (
	_ "embed"
	"regexp"
	"strings"
	"sync"
)

// Script is one kind of step on a node. A lone step is one Lua script, several at once are another, which does them one
// after the other (lua/batch.lua); both hold the same text of a step. They are run by digest. Digests come from the
// server (SCRIPT LOAD): nothing here computes SHA-1, which FIPS builds refuse.
type Script uint8

const (
	ScriptAcquire Script = iota
	ScriptExtend
	ScriptRelease
	scriptCount

	ScriptBatch   = scriptCount     // no step: steps together
	ScriptSeveral = scriptCount + 1 // any step, of a lock of several names
)

var (
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/acquire_alone.lua
	luaAcquireAlone string
	//go:embed lua/extend.lua
	luaExtend string
	//go:embed lua/extend_alone.lua
	luaExtendAlone string
	//go:embed lua/release.lua
	luaRelease string
	//go:embed lua/release_alone.lua
	luaReleaseAlone string
	//go:embed lua/contended.lua
	luaContended string
	//go:embed lua/prolong.lua
	luaProlong string
	//go:embed lua/stand.lua
	luaStand string
	//go:embed lua/vacant.lua
	luaVacant string
	//go:embed lua/rw.lua
	luaRW string
	//go:embed lua/batch.lua
	luaBatch string
	//go:embed lua/several.lua
	luaSeveral string
	//go:embed lua/mark.lua
	luaMark string
	//go:embed lua/trial.lua
	luaTrial string
)

// Sources is one text for each script.
type Sources [scriptCount + 2]string

// SourcesFor returns the scripts for the process with this run id. A grant must come from the process that the marker
// was checked for, whatever proxy, Sentinel or reconnection lies between.
//
// Since Redis 7.0 a server keeps scripts in its memory alone: not in dumps, not on replicas. So the scripts carry the
// run id in their text, they are loaded into that process only, and a server that knows their digest is that process;
// any other answers NOSCRIPT. Before 7.0 a script has to ask INFO, which costs 4 µs of server time a grant.
func SourcesFor(runID string, volatile bool) Sources {
	s := spelled[volatile]()
	if volatile {
		for _, i := range []Script{ScriptAcquire, ScriptExtend, ScriptBatch, ScriptSeveral} {
			s[i] = "-- for the process with run_id " + runID + "\n" + s[i]
		}
	}
	return s
}

// The texts are put together once, not for each connection: that takes a millisecond or two.
var (
	spelled = map[bool]func() Sources{
		false: sync.OnceValue(func() Sources { return spellAll(false) }),
		true:  sync.OnceValue(func() Sources { return spellAll(true) }),
	}
	resent = sync.OnceValue(func() Sources {
		return Sources{
			ScriptExtend:  spell(luaExtendAlone, "do return answer(-2) end", true),
			ScriptRelease: spell(luaReleaseAlone, "", true),
			ScriptSeveral: spell(luaSeveral, "do return answer(-2) end", true),
		}
	})
)

// spellAll returns the scripts for a server that keeps them in its memory alone, or for an older one.
func spellAll(volatile bool) Sources {
	process := ""
	if !volatile {
		process = "if not string.find(redis.call('INFO', 'server'), 'run_id:' .. string.sub(ARGV[6], 1, 40), 1, true) then return answer(-2) end"
	}
	return Sources{
		ScriptAcquire: spell(luaAcquireAlone, process, volatile),
		ScriptExtend:  spell(luaExtendAlone, process, volatile),
		ScriptRelease: spell(luaReleaseAlone, "", volatile), // may run anywhere: it only ever takes away what is ours
		ScriptBatch:   spell(luaBatch, "if not same then return answer(-2) end", volatile),
		ScriptSeveral: spell(luaSeveral, "if not same then return answer(-2) end", volatile),
	}
}

// returned is how the text of a step says what has come of it: a code, what goes with it, and what follows on that line.
var returned = regexp.MustCompile(`(?m)return answer\(([^,\n]*?)(, .*)?\)( end)?$`)

// spell puts the text of the steps into a script. process is what a step does where another process than the one that the
// marker was read from may have no say. In a batch a step is a function. A lone acquire or release is the script itself, and
// ends with its answer: a function, and what it shares with the script, would be made anew in each run. A lone extend is one all
// the same, since nobody waits for it.
func spell(script, process string, volatile bool) string {
	longer, asked := "", "same = same and string.find(redis.call('INFO', 'server'), 'run_id:' .. string.sub(ARGV[1], 1, 40), 1, true)"
	index := "local left = redis.call('PTTL', index) if left >= 0 and left < tonumber(ms) then redis.call('PEXPIRE', index, ms) end"
	if volatile { // as old as GT
		longer, asked = "if redis.call('PEXPIRE', key, lease, 'GT') == 1 then return end", ""
		index = "redis.call('PEXPIRE', index, ms, 'GT')"
	}
	contended, line := luaContended, "if not stand then\n--STAND--\n--VACANT--\nend"
	if strings.Contains(script, "--PROLONG--") { // it has all that before the steps
		contended = ""
	}
	if strings.Contains(script, "--STAND--") {
		line = ""
	}
	genuine, answer := "read(key) local genuine = same", "return $1$2$3"
	switch script {
	case luaAcquireAlone:
		genuine = "local genuine = redis.call('MGET', key, KEYS[2])[2] == ARGV[6] -- and the last read"
		answer = "return {$1, now$2}$3"
	case luaReleaseAlone:
		answer = "return {$1$2}$3"
	}
	for _, part := range []struct{ mark, text string }{
		{"--ACQUIRE--", luaAcquire}, {"--EXTEND--", luaExtend}, {"--RELEASE--", luaRelease}, {"--RW--", luaRW},
		{"--CONTENDED--", contended}, {"--LINE--", line}, {"--PROLONG--", luaProlong}, {"--STAND--", luaStand}, {"--VACANT--", luaVacant},
		{"--GENUINE--", genuine}, {"--IDENTITY--", process}, {"--PROCESS--", asked}, {"--GT--", longer}, {"--LONGER--", index},
	} {
		script = strings.ReplaceAll(script, part.mark, part.text)
	}
	return returned.ReplaceAllString(script, answer)
}

// resendFor returns what is sent by source where a server has forgotten a script, "" for nothing: an acquire may run in
// the one process alone, and must not make its digest known to another. Release and renewal only touch what is ours, so
// they may run anywhere; a renewal that is sent like this wins nothing back. Each is sent by itself.
func resendFor(s Sources, volatile bool) Sources {
	if volatile {
		s = resent()
	}
	s[ScriptBatch] = ""
	return s
}

// Codes that the scripts answer with, first element of the reply.
const (
	CodeWonBack     = 2
	CodeOK          = 1
	CodeHeld        = 0
	CodeQuarantined = -1
	CodeOtherMarker = -2
	CodeLate        = -3
	CodeAbsent      = -4
	CodeInLine      = -5
	CodeOtherSize   = -6
)
