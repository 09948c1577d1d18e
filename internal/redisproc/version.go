package redisproc

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// since7 are directives of Redis 7.0, with one value each, that older servers can do without: DEBUG is open there. They
// would end at once on what they do not know.
var since7 = []string{"--enable-debug-command", "--loading-process-events-interval-bytes"}

// known leaves out of args what the node's server need not and must not be told.
func (n *Node) known(args []string) []string {
	later := func(arg string) bool { return slices.Contains(since7, arg) }
	if !slices.ContainsFunc(args, later) || n.AtLeast(7, 0) {
		return args
	}
	var known []string
	for i := 0; i < len(args); i++ {
		if later(args[i]) {
			i++
			continue
		}
		known = append(known, args[i])
	}
	return known
}

// AtLeast reports whether the server calls itself that version or a later one, of whatever product it is: Valkey 8.0 is
// at least 7.0. One that does not tell counts as new.
func (n *Node) AtLeast(major, minor int) bool {
	// "Redis server v=6.2.16 sha=00000000:0 malloc=libc bits=64 build=…"
	out, err := exec.Command(n.server, "--version").Output()
	_, version, found := strings.Cut(string(out), " v=")
	if err != nil || !found {
		return true
	}
	var isMajor, isMinor int
	_, err = fmt.Sscanf(version, "%d.%d", &isMajor, &isMinor)
	return err != nil || isMajor > major || isMajor == major && isMinor >= minor
}
