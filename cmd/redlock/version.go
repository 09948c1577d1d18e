package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
)

var versionCommand = &command{
	name:    "version",
	summary: "show which version this is",
	about:   "Shows the version of redlock, of Go, and of rueidis.",
	prepare: func(*flag.FlagSet, *connection) action {
		return func(_ context.Context, c *call) error {
			if err := c.wantArgs(0, 0); err != nil {
				return err
			}
			_, err := fmt.Fprint(c.out, versionText())
			return err
		}
	},
}

func versionText() string {
	own, rueidis, commit := "(devel)", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		own = cmp.Or(info.Main.Version, own)
		for _, dep := range info.Deps {
			if dep.Path == "github.com/redis/rueidis" {
				rueidis = ", rueidis " + dep.Version
			}
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = " (" + s.Value + ")"
			}
		}
	}
	return fmt.Sprintf("redlock %s%s, %s %s/%s%s\n", own, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, rueidis)
}
