package main

import (
	"context"
	"flag"
	"fmt"
)

var initCommand = &command{
	name:    "init",
	args:    "[flags]",
	summary: "end the first wait of a brand-new set of nodes",
	nodes:   true,
	about: `New nodes grant nothing for one lease, since they look like nodes that lost their memory. Init ends that at
once, where all nodes answer, none is past its first wait and none holds a lock. Call it once, where a set of nodes
is made: not at every start of a program, and never on nodes that were flushed while locks may be held.

` + aboutLease + `
Exit code: 0 if the nodes grant locks now, also where they did before; 1 and the nodes in the way otherwise.

Example:

  redlock init --nodes a:6379,b:6379,c:6379
`,
	prepare: func(f *flag.FlagSet, nodes *connection) action {
		nodes.defineLease(f)
		return func(ctx context.Context, c *call) error {
			if err := c.wantArgs(0, 0); err != nil {
				return err
			}
			locker, err := c.locker(ctx)
			if err != nil {
				return err
			}
			defer locker.Close()
			stop := c.waiting.during(ctx, func(context.Context) string { return "waiting for all nodes to answer" })
			err = locker.Init(ctx)
			stop()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.out, "the nodes are past their first wait: they grant locks")
			return err
		}
	},
}
