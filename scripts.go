package redlock

import _ "embed"

// script is one Lua script, run on a node by digest. Digests come from the server (SCRIPT LOAD): nothing here
// computes SHA-1, which FIPS builds refuse.
type script uint8

const (
	scriptAcquire script = iota
	scriptExtend
	scriptRelease
	scriptMark
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

	sources = [scriptCount]string{luaAcquire, luaExtend, luaRelease, luaMark}
)

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
