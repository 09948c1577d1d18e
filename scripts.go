package redlock

import (
	_ "embed"
	"strings"
)

// script is one Lua script, run on a node by digest. Digests come from the server (SCRIPT LOAD): nothing here
// computes SHA-1, which FIPS builds refuse.
type script uint8

const (
	scriptAcquire script = iota
	scriptExtend
	scriptRelease
	scriptCount
)

var (
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/extend.lua
	luaExtend string
	//go:embed lua/release.lua
	luaRelease string
	//go:embed lua/mark.lua
	luaMark string

	sources = [scriptCount]string{luaAcquire, luaExtend, luaRelease}
)

// sourcesFor returns the scripts for the process with this run id. A grant must come from the process that the marker
// was checked for, whatever proxy, Sentinel or reconnection lies between.
//
// Since Redis 7.0 a server keeps scripts in its memory alone: not in dumps, not on replicas. So the scripts carry the
// run id in their text, they are loaded into that process only, and a server that knows their digest is that process;
// any other answers NOSCRIPT. Before 7.0 a script has to ask INFO, which costs 4 µs of server time a grant.
func sourcesFor(runID string, volatile bool) [scriptCount]string {
	identity := "if not string.find(redis.call('INFO', 'server'), 'run_id:' .. string.sub(ARGV[6], 1, 40), 1, true) then return {-2, now} end"
	head := ""
	if volatile {
		identity, head = "", "-- for the process with run_id "+runID+"\n"
	}
	var s [scriptCount]string
	for i, source := range sources {
		s[i] = head + strings.Replace(source, "--IDENTITY--", identity, 1)
	}
	s[scriptRelease] = luaRelease // may run anywhere: it only ever takes away what is ours
	return s
}

// resendFor returns what is sent by source where a server has forgotten a script, "" for nothing: an acquire may run in
// the one process alone, and must not make its digest known to another. Release and renewal only touch what is ours, so
// they may run anywhere; a renewal that is sent like this wins nothing back.
func resendFor(sources [scriptCount]string, volatile bool) [scriptCount]string {
	if !volatile {
		return sources // these ask for the run id themselves
	}
	return [scriptCount]string{
		scriptExtend:  strings.Replace(luaExtend, "--IDENTITY--", "do return {-2, now} end", 1),
		scriptRelease: luaRelease,
	}
}

// Codes that the scripts answer with, first element of the reply.
const (
	codeWonBack     = 2
	codeOK          = 1
	codeHeld        = 0
	codeQuarantined = -1
	codeOtherMarker = -2
	codeLate        = -3
	codeAbsent      = -4
	codeInLine      = -5
)
