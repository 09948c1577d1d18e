// Package logtest records what is logged, for tests that look at it while it is written.
package logtest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// Log is a slog.Handler that keeps every line. The zero value is an empty log. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines []Line
}

// Line is one line as it was logged.
type Line struct {
	Level   slog.Level
	Message string
	Keys    []string // in their order
	Attrs   map[string]slog.Value
	Text    string // as a slog.TextHandler writes it
}

// Logger returns a logger that writes into the log.
func (l *Log) Logger() *slog.Logger { return slog.New(l) }

// String returns all lines as text.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines returns the lines so far that contain all of texts.
func (l *Log) Lines(texts ...string) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Line
next:
	for _, line := range l.lines {
		for _, text := range texts {
			if !strings.Contains(line.Text, text) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// Count returns how many lines so far contain all of texts.
func (l *Log) Count(texts ...string) int { return len(l.Lines(texts...)) }

// Enabled, Handle, WithAttrs and WithGroup make it a slog.Handler. Whoever logs here uses neither attributes in common
// nor groups.
func (l *Log) Enabled(context.Context, slog.Level) bool { return true }

func (l *Log) Handle(ctx context.Context, r slog.Record) error {
	line := Line{Level: r.Level, Message: r.Message, Attrs: make(map[string]slog.Value)}
	r.Attrs(func(a slog.Attr) bool {
		line.Keys = append(line.Keys, a.Key)
		line.Attrs[a.Key] = a.Value
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.text.Len()
	err := slog.NewTextHandler(&l.text, nil).Handle(ctx, r)
	line.Text = string(l.text.Bytes()[from:])
	l.lines = append(l.lines, line)
	return err
}

func (l *Log) WithAttrs([]slog.Attr) slog.Handler { panic("logtest: attributes in common") }
func (l *Log) WithGroup(string) slog.Handler      { panic("logtest: a group") }
