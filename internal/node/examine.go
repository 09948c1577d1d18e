package node

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/roster"
)

// Exam is what a server says of its fitness to be a node. An examination changes nothing, so it may be made of a server
// that programs use, and of one that none has adopted yet.
type Exam struct {
	Info                    map[string]string // the fields of INFO
	RunID, Version, Product string
	Unsupported             error // why it cannot be a node, nil if it can
	PushesLoop              bool  // it pushes our own writes back, and is used without pushes
	NoTracking              error // what CLIENT TRACKING was answered, nil if it is allowed
	NoRights                error // commands that our user may not run, nil if there are none
	Refuses                 error // why it grants nobody anything at the moment: memory, persistence, replicas; nil if it would
	Marker                  Marker
}

// Marker is what a node's own record of itself says.
type Marker struct {
	Raw        string // as stored; empty if no program has used this node
	Valid      bool   // it is one of ours
	Adopted    bool   // it is of the process that runs now: nothing was forgotten since
	Until      time.Duration
	Longest    time.Duration // the longest lease that the set allows
	Nodes      int           // how many members it has
	Set        string
	Quarantine bool         // whether programs use the quarantine
	Roster     roster.State // what it remembers of the set's members; zero for nothing
}

// Examine examines a server through a client that has client tracking off.
func Examine(ctx context.Context, client rueidis.Client, prefix string) (Exam, error) {
	b := client.B()
	results := client.DoMulti(ctx, b.Info().Build(), b.Get().Key(MarkerKey(prefix)).Build())
	text, err := results[0].ToString()
	if err != nil {
		return Exam{}, seenFromOutside(err)
	}
	info := parseInfo(text)
	e := Exam{Info: infoFields(text), RunID: info.runID, Version: info.version, Product: info.product,
		Unsupported: info.fault(), PushesLoop: info.loopsScripts()}
	if e.Unsupported != nil {
		return e, nil
	}
	raw, err := results[1].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return e, seenFromOutside(err)
	}
	e.Marker = markerOf(raw, info.runID)

	refused, err := trial(ctx, client, prefix, true)
	switch {
	case errors.Is(err, errRights):
		e.NoRights = err
	case err != nil:
		return e, err
	}
	e.Refuses = refused[ScriptAcquire]
	e.NoTracking = tryTracking(ctx, client)
	return e, nil
}

// ReadMarker reads a server's marker alone. It does not tell whether the process that runs now has written it.
func ReadMarker(ctx context.Context, client rueidis.Client, prefix string) (Marker, error) {
	raw, err := client.Do(ctx, client.B().Get().Key(MarkerKey(prefix)).Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return Marker{}, seenFromOutside(err)
	}
	return markerOf(raw, ""), nil
}

// tryTracking switches client tracking on, as a Locker's connection does, and off again.
func tryTracking(ctx context.Context, client rueidis.Client) error {
	b := client.B()
	on := client.Do(ctx, b.Arbitrary("CLIENT", "TRACKING", "ON", "OPTOUT", "NOLOOP").Build()).Error()
	if on == nil {
		return client.Do(ctx, b.Arbitrary("CLIENT", "TRACKING", "OFF").Build()).Error()
	}
	return on
}

func markerOf(raw, runID string) Marker {
	m, ok := parseMarker(raw)
	if r := m.roster.Active; r != nil {
		m.nodes = len(r.Members) // it is 0 for a node that may give no vote
	}
	return Marker{Raw: raw, Valid: ok, Adopted: ok && m.runID == runID, Until: time.Duration(m.until) * time.Microsecond,
		Longest: m.longest, Nodes: m.nodes, Set: m.set, Quarantine: m.quarantined, Roster: m.roster}
}

// infoFields reads the lines of INFO.
func infoFields(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(name, "#") {
			fields[name] = value
		}
	}
	return fields
}

// AskTime asks a server for its clock, and returns what is known of it by that.
func AskTime(ctx context.Context, client rueidis.Client, clock Clock) (Offset, error) {
	sentAt := clock.Now()
	reply, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
	at := clock.Now()
	switch {
	case err != nil:
		return Offset{}, seenFromOutside(err)
	case len(reply) != 2:
		return Offset{}, errors.New("TIME answered another thing than two numbers")
	}
	return OffsetOf(time.Duration(reply[0])*time.Second+time.Duration(reply[1])*time.Microsecond, sentAt, at), nil
}
