package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock"
)

var nodesCommand = &command{
	name:    "nodes",
	args:    "[replace OLD NEW | set LIST | recover GONE...] [flags]",
	summary: "show or change who the nodes of a set are, and its longest lease",
	nodes:   true,
	about: `Without more it shows the members of the set, by their own record, and how those that are listed stand.

  replace OLD NEW       NEW takes the place of OLD, both named as --nodes does
  set LIST              the members from now on are those of LIST, old and new; - for those of --nodes
  recover GONE...       what is left of the set goes on without those that are gone for good
  --longest-lease D     with set: the longest lease of any program
  --off NAME,NAME       with replace and set: members that are off for good, or lost their memory for good.
                        Every other member has to be told. Two can hold one lock if it is not true.
  --yes                 do not ask you
  --json                show it as JSON

Programs run on meanwhile, with the old list or the new one. --nodes lists the members as they are now. Nothing is
changed where a member cannot be told, or a new node cannot be reached or is of another set.

Exit code: 0 if it is so now, also where it was before; 1 if not; 122 if too few nodes could be asked.

Examples:

  redlock nodes
  redlock nodes replace c:6379 d:6379
  redlock nodes set a:6379,b:6379,c:6379,d:6379,e:6379
  redlock nodes set - --longest-lease 1m
`,
	prepare: func(f *flag.FlagSet, nodes *connection) action {
		var n nodesCall
		f.DurationVar(&n.longest, "longest-lease", 0, "")
		f.StringVar(&n.off, "off", "", "")
		f.BoolVar(&n.yes, "yes", false, "")
		f.BoolVar(&n.json, "json", false, "")
		return func(ctx context.Context, c *call) error {
			n.call = c
			return n.do(ctx)
		}
	},
}

type nodesCall struct {
	*call
	longest   time.Duration
	off       string
	yes, json bool
}

func (n *nodesCall) do(ctx context.Context) error {
	set, question, err := n.wanted()
	if err != nil {
		return err
	}
	if err := n.knowSet(ctx); err != nil {
		return err
	}
	if set != nil && !n.yes {
		if err := confirm(n.call, question); err != nil {
			return err
		}
	}
	if set != nil && set.LongestLease != 0 {
		n.nodes.lease = min(n.nodes.lease, set.LongestLease)
	}
	locker, err := n.locker(ctx)
	if err != nil {
		return err
	}
	defer locker.Close()
	if set != nil {
		stop := n.waiting.during(ctx, func(context.Context) string {
			return "telling the nodes; a longest lease that is lowered is waited out"
		})
		err = locker.SetNodes(ctx, *set)
		stop()
		if err != nil {
			return err
		}
	}
	return n.show(n.settled(ctx, locker, set != nil))
}

// settled returns how the nodes stand when all have been looked at, or the time of an answer is over: a Locker waits for a quorum
// alone. After a change one that voted may have been told, and not be seen to have no vote any more.
func (n *nodesCall) settled(ctx context.Context, locker *redlock.Locker, changed bool) redlock.Status {
	for until := time.Now().Add(n.nodes.timeout); ; time.Sleep(time.Millisecond) {
		s := locker.Status()
		open := func(v redlock.NodeStatus) bool {
			return !v.Up || changed && v.MayVote && !slices.Contains(s.Members, v.Addr)
		}
		if !slices.ContainsFunc(s.Nodes, open) || time.Now().After(until) || ctx.Err() != nil {
			return s
		}
	}
}

// wanted returns what the nodes are to be, nil to show them, and what is asked before that.
func (n *nodesCall) wanted() (set *redlock.NodeSet, question string, err error) {
	what := ""
	if len(n.args) > 0 {
		what, n.args = n.args[0], n.args[1:]
	}
	switch {
	case n.longest != 0 && (n.longest < leastLease || n.longest > mostLease):
		return nil, "", wrongUsage("--longest-lease %v must be from %v to %v", n.longest, leastLease, mostLease)
	case what != "set" && n.longest != 0:
		return nil, "", wrongUsage("--longest-lease is for set")
	case what != "set" && what != "replace" && n.off != "":
		return nil, "", wrongUsage("--off is for set and replace")
	}
	set = &redlock.NodeSet{LongestLease: n.longest, Off: strings.FieldsFunc(n.off, func(r rune) bool { return r == ',' || r == ' ' })}
	listed := func() ([]rueidis.ClientOption, error) { return n.nodes.options() }
	switch what {
	case "":
		return nil, "", nil
	case "replace":
		if len(n.args) != 2 {
			return nil, "", wrongUsage("replace needs OLD and NEW")
		}
		if set.Nodes, err = listed(); err != nil {
			return nil, "", err
		}
		i := slices.IndexFunc(set.Nodes, func(o rueidis.ClientOption) bool { return nodeName(o) == n.args[0] })
		if i < 0 {
			return nil, "", wrongUsage("replace: %s is not among the nodes that are listed", n.args[0])
		}
		one, err := n.more(n.args[1])
		if err != nil {
			return nil, "", err
		}
		if len(one) != 1 {
			return nil, "", wrongUsage("replace: %q is not one node", n.args[1])
		}
		set.Nodes[i] = one[0]
		return set, fmt.Sprintf("Replace %s by %s?", n.args[0], n.args[1]), nil
	case "set":
		switch {
		case len(n.args) != 1:
			return nil, "", wrongUsage("set needs LIST, or - for the nodes that are listed")
		case n.args[0] != "-":
			set.Nodes, err = n.more(n.args[0])
		case n.longest == 0:
			set.Nodes, err = listed()
		}
		return set, "Change the set?", err
	case "recover":
		if len(n.args) == 0 {
			return nil, "", wrongUsage("recover needs the names of those that are gone")
		}
		if set.Nodes, err = listed(); err != nil {
			return nil, "", err
		}
		set.Off = n.args
		set.Nodes = slices.DeleteFunc(set.Nodes, func(o rueidis.ClientOption) bool { return slices.Contains(set.Off, nodeName(o)) })
		return set, fmt.Sprintf("Two programs can hold one lock if any of these comes back with what it remembers: %s. Go on without them?", strings.Join(set.Off, ", ")), nil
	}
	return nil, "", wrongUsage("unexpected argument %q: replace, set or recover", what)
}

// more returns how to reach nodes beside those that are listed.
func (n *nodesCall) more(list string) ([]rueidis.ClientOption, error) {
	nodes, err := parseNodeList(list)
	switch {
	case err != nil:
		return nil, usageError{err}
	case len(nodes) == 0:
		return nil, wrongUsage("%q lists no node", list)
	case holdsPassword(nodes):
		return nil, wrongUsage("a URL on a command line may hold no password, which ps shows to everybody: the new nodes take that of --password-file or $REDISCLI_AUTH")
	}
	return n.nodes.reach(nodes)
}

// knowSet has the Locker for these nodes agree with them.
func (n *nodesCall) knowSet(ctx context.Context) error {
	set, err := n.rulesOfSet(ctx)
	if err == nil && set.longest == 0 {
		err = errors.New("none of these nodes says that it is of a set: it cannot be reached, or no program has used it (redlock init, redlock doctor)")
	}
	n.nodes.lease, n.nodes.noQuarantine = min(10*time.Second, set.longest), !set.quarantine
	return err
}

// membership is what nodes shows.
type membership struct {
	Roster  int      `json:"roster"`
	Members []string `json:"members"`
	Quorum  int      `json:"quorum"`
	Nodes   []member `json:"nodes"` // those that are listed
}

type member struct {
	Node    string `json:"node"`
	Up      bool   `json:"up"`
	MayVote bool   `json:"may_vote"`
	Why     string `json:"why,omitempty"`
}

func (n *nodesCall) show(s redlock.Status) error {
	m := membership{Roster: s.Roster, Members: s.Members, Quorum: s.Quorum}
	for _, v := range s.Nodes {
		m.Nodes = append(m.Nodes, member{v.Addr, v.Up, v.MayVote, inFlags(errorText(v.Err))})
	}
	if n.json {
		return n.showJSON(m)
	}
	members := "no record of its members yet: a program that reaches all of them writes it"
	if m.Roster > 0 {
		members = fmt.Sprintf("roster %d: %s; quorum is %d", m.Roster, strings.Join(m.Members, ", "), m.Quorum)
	}
	w := tabwriter.NewWriter(n.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, members)
	for _, v := range m.Nodes {
		fmt.Fprintf(w, "%s\t%s\n", v.Node, cmp.Or(v.Why, "votes"))
	}
	return w.Flush()
}
