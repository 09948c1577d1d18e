package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// progress says on stderr what is being waited for, where that takes longer than a second: on a terminal in one line that
// is written anew, elsewhere in a line for each change, and not more often than every ten seconds. It is a slog.Handler
// too: what the library logs of nodes is often the reason for the wait.
type progress struct {
	w        io.Writer
	terminal bool

	mu      sync.Mutex
	shown   string    // what stands on the terminal's line, or was written last
	shownAt time.Time // when it was written, elsewhere
	nodes   map[string]trouble
}

// trouble is what keeps a node from voting.
type trouble struct {
	what  string
	until time.Time // of a quarantine
}

const (
	progressAfter = time.Second
	progressEvery = 10 * time.Second // in a pipe
)

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: isTerminal(w), nodes: make(map[string]trouble)}
}

// during calls say each second after the first, and shows what it returns, if that is not empty, until stop.
func (p *progress) during(ctx context.Context, say func(context.Context) string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(progressAfter)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if text := say(ctx); text != "" && ctx.Err() == nil {
					p.show(text)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		p.clear()
	}
}

func (p *progress) show(text string) {
	if faults := p.faults(); faults != "" {
		text += "; " + faults
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		p.shown = text
	case text != p.shown && time.Since(p.shownAt) >= progressEvery:
		fmt.Fprintln(p.w, "redlock:", text)
		p.shown, p.shownAt = text, time.Now()
	}
}

// clear takes the line off the terminal.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.shown != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.shown, p.shownAt = "", time.Time{}
}

// faults says what keeps nodes from voting.
func (p *progress) faults() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	byReason := make(map[string]int)
	var quarantined time.Time
	for _, t := range p.nodes {
		byReason[t.what]++
		if t.until.After(quarantined) {
			quarantined = t.until
		}
	}
	var list []string
	for _, reason := range []string{"down", "cannot vote", "quarantined"} {
		if n := byReason[reason]; n == 1 {
			list = append(list, "1 node is "+reason)
		} else if n > 1 {
			list = append(list, fmt.Sprintf("%d nodes are %s", n, reason))
		}
	}
	text := strings.ReplaceAll(strings.ReplaceAll(strings.Join(list, ", "), "is cannot", "cannot"), "are cannot", "cannot")
	if left := time.Until(quarantined); left > 0 { // it is the last of the reasons
		text += fmt.Sprintf(" for %v more", (left + time.Second).Truncate(time.Second))
	}
	return text
}

// Enabled, Handle, WithAttrs and WithGroup make it a slog.Handler that keeps what the last line said of each node.
func (p *progress) Enabled(context.Context, slog.Level) bool { return true }

func (p *progress) Handle(_ context.Context, r slog.Record) error {
	var name string
	var left time.Duration
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "node":
			name = a.Value.String()
		case "left":
			left, _ = time.ParseDuration(a.Value.String()) // the library's own
		}
		return true
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Message {
	case "redlock: node is down":
		p.nodes[name] = trouble{what: "down"}
	case "redlock: node cannot vote":
		p.nodes[name] = trouble{what: "cannot vote"}
	case "redlock: node is quarantined: it grants nothing yet":
		p.nodes[name] = trouble{"quarantined", time.Now().Add(left)}
	case "redlock: node is up", "redlock: node's quarantine is over":
		if p.nodes[name].what != "quarantined" || strings.HasSuffix(r.Message, "over") {
			delete(p.nodes, name)
		}
	}
	return nil
}

func (p *progress) WithAttrs([]slog.Attr) slog.Handler { return p }
func (p *progress) WithGroup(string) slog.Handler      { return p }
