package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/node"
)

// locker makes a Locker, whose log tells the progress shown while something is waited for. Where no --lease was given, and that
// of the default is longer than the set allows, it is the longest that it does.
func (c *call) locker(ctx context.Context) (*redlock.Locker, error) {
	locker, refused := c.tryLocker()
	disagrees := func(n redlock.NodeStatus) bool { return errors.Is(n.Err, redlock.ErrDisagreement) }
	// Where a majority is down there is a Locker, which would be refused when they are back.
	if c.given["lease"] || !errors.Is(refused, redlock.ErrDisagreement) && !slices.ContainsFunc(locker.Status().Nodes, disagrees) {
		return locker, refused
	}
	rules, err := c.rulesOfSet(ctx)
	if err != nil || rules.longest == 0 || rules.longest >= c.nodes.lease {
		return locker, refused
	}
	locker.Close()
	c.nodes.lease = rules.longest
	return c.tryLocker()
}

func (c *call) tryLocker() (*redlock.Locker, error) {
	nodes, err := c.nodes.options()
	if err != nil {
		return nil, err
	}
	option := redlock.LockerOption{Nodes: nodes, KeyPrefix: c.nodes.prefix, KeyValidity: c.nodes.lease, Logger: slog.New(c.waiting)}
	if c.given["node-timeout"] {
		option.NodeTimeout = c.nodes.timeout
	}
	if c.nodes.noQuarantine {
		option.RestartQuarantine = -1
	}
	if c.nodes.verbose {
		option.Logger = slog.New(slog.NewTextHandler(c.complaints, nil))
	}
	return redlock.NewLocker(option)
}

// rules are what a Locker must agree on with the set.
type rules struct {
	longest    time.Duration // lease; 0 where no node says that it is of a set
	quarantine bool
}

// rulesOfSet finds out the rules by the nodes' markers, and so without changing anything. Nodes that do not answer say nothing.
func (c *call) rulesOfSet(ctx context.Context) (set rules, err error) {
	lookers, hangUp, err := c.lookers()
	if err != nil {
		return set, err
	}
	defer hangUp()
	markers := make([]node.Marker, len(lookers))
	eachOf(lookers, func(i int, l *looker) {
		if l.err == nil {
			asking, cancel := context.WithTimeout(ctx, c.nodes.timeout)
			defer cancel()
			markers[i], _ = node.ReadMarker(asking, l.client, c.nodes.prefix)
		}
	})
	for _, m := range markers {
		if m.Valid && (set.longest == 0 || m.Longest < set.longest) {
			set = rules{m.Longest, m.Quarantine}
		}
	}
	return set, ctx.Err()
}
