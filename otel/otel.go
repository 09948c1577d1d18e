// Package otel tells OpenTelemetry what becomes of the locks of package redlock: metrics, and spans of the calls that want
// a lock, of the holds, and of the releases.
//
//	observer, err := otel.NewObserver(otel.Option{})
//	...
//	locker, err := redlock.NewLocker(redlock.LockerOption{Nodes: nodes, Observer: observer})
//	...
//	stop, err := observer.Watch(locker)
//	defer stop()
//
// docs/observability.md lists the metrics and says what to alert on; dashboard.json is a Grafana dashboard of them, and
// alerts.yaml has rules for Prometheus.
package otel

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlock-go/redlock"
)

const scope = "github.com/redlock-go/redlock/otel"

// Option configures an Observer. The zero value uses the global providers.
type Option struct {
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// LockNames adds the lock's name to the metrics as redlock.lock. Leave it off where names are made of what users send,
	// or of ticks: each is a time series of its own. Spans have it always.
	LockNames bool
}

// Observer is a redlock.Observer. It is safe for concurrent use, and for several Lockers.
type Observer struct {
	lockNames bool
	meter     metric.Meter
	tracer    trace.Tracer
	acquire   metric.Float64Histogram
	waits     metric.Int64Counter
	splits    metric.Int64Counter
	hold      metric.Float64Histogram
	lost      metric.Int64Counter
	atRisk    metric.Int64UpDownCounter
	lag       metric.Float64Histogram
	release   metric.Float64Histogram
	request   metric.Float64Histogram
}

var _ redlock.Observer = (*Observer)(nil)

// NewObserver returns an Observer for LockerOption.Observer.
func NewObserver(option Option) (*Observer, error) {
	if option.MeterProvider == nil {
		option.MeterProvider = otel.GetMeterProvider()
	}
	if option.TracerProvider == nil {
		option.TracerProvider = otel.GetTracerProvider()
	}
	o := &Observer{lockNames: option.LockNames, meter: option.MeterProvider.Meter(scope), tracer: option.TracerProvider.Tracer(scope)}
	// From a round trip on one machine to a wait of minutes; holds last longer.
	short := metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
	long := metric.WithExplicitBucketBoundaries(0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
	var errs [9]error
	o.acquire, errs[0] = o.meter.Float64Histogram("redlock.acquire.duration", metric.WithUnit("s"), short,
		metric.WithDescription("How long calls that want a lock took, by outcome."))
	o.waits, errs[1] = o.meter.Int64Counter("redlock.acquire.waits", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that did not get their lock at once, and waited."))
	o.splits, errs[2] = o.meter.Int64Counter("redlock.acquire.splits", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts that failed because several had split the nodes' votes, and nobody had the lock."))
	o.hold, errs[3] = o.meter.Float64Histogram("redlock.hold.duration", metric.WithUnit("s"), long,
		metric.WithDescription("How long locks were held, by what ended them."))
	o.lost, errs[4] = o.meter.Int64Counter("redlock.lock.losses", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that ended while their holders were at work, by cause."))
	o.atRisk, errs[5] = o.meter.Int64UpDownCounter("redlock.lock.at_risk", metric.WithUnit("{lock}"),
		metric.WithDescription("Held locks that are at risk now."))
	o.lag, errs[6] = o.meter.Float64Histogram("redlock.extend.lag", metric.WithUnit("s"), short,
		metric.WithDescription("How much later than due a quorum had renewed a held lock."))
	o.release, errs[7] = o.meter.Float64Histogram("redlock.release.duration", metric.WithUnit("s"), short,
		metric.WithDescription("How long releases took, by outcome."))
	o.request, errs[8] = o.meter.Float64Histogram("redlock.node.request.duration", metric.WithUnit("s"), short,
		metric.WithDescription("How long nodes took to answer a step of a lock."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if !o.lockNames {
		o.begin(context.Background(), nil)
	}
	return o, nil
}

// begin has the counters that alerts look at begin at 0: a rate sees nothing of a counter that begins at 1.
func (o *Observer) begin(ctx context.Context, attrs []attribute.KeyValue) {
	for _, cause := range losses {
		o.lost.Add(ctx, 0, metric.WithAttributes(append(attrs[:len(attrs):len(attrs)], attribute.String("redlock.cause", cause))...))
	}
	o.waits.Add(ctx, 0, metric.WithAttributes(attrs...))
	o.splits.Add(ctx, 0, metric.WithAttributes(attrs...))
	o.atRisk.Add(ctx, 0, metric.WithAttributes(attrs...))
}

// Observe records an event.
func (o *Observer) Observe(ctx context.Context, e redlock.Event) {
	attrs := make([]attribute.KeyValue, 0, 5)
	if o.lockNames {
		attrs = append(attrs, attribute.String("redlock.lock", e.Name))
	}
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributes(append(attrs, more...)...)
	}
	switch e.Kind {
	case redlock.EventGranted, redlock.EventRefused:
		if o.lockNames {
			o.begin(ctx, attrs)
		}
		word := outcome(e.Err)
		o.acquire.Record(ctx, e.Took.Seconds(), with(attribute.String("redlock.outcome", word)))
		failed := e.Err != nil && !errors.Is(e.Err, redlock.ErrNotLocked) // that somebody else has it is no error
		o.span(ctx, "redlock acquire", trace.SpanKindClient, e, attribute.String("redlock.outcome", word), failed)
	case redlock.EventWaiting:
		o.waits.Add(ctx, 1, with())
	case redlock.EventSplit:
		o.splits.Add(ctx, 1, with())
	case redlock.EventEnded:
		word := cause(e.Err)
		ended := attribute.String("redlock.cause", word)
		o.hold.Record(ctx, e.Took.Seconds(), with(ended))
		lost := slices.Contains(losses, word)
		if lost {
			o.lost.Add(ctx, 1, with(ended))
		}
		o.span(ctx, "redlock hold", trace.SpanKindInternal, e, ended, lost)
	case redlock.EventReleased:
		word := "released"
		switch {
		case errors.Is(e.Err, redlock.ErrLost): // before it was released, and nobody had been told
			word = "lost"
			o.lost.Add(ctx, 1, with(attribute.String("redlock.cause", cause(e.Err))))
		case e.Err != nil:
			word = "not_confirmed"
		}
		o.release.Record(ctx, e.Took.Seconds(), with(attribute.String("redlock.outcome", word)))
		o.span(ctx, "redlock release", trace.SpanKindClient, e, attribute.String("redlock.outcome", word), e.Err != nil)
	case redlock.EventExtended:
		o.lag.Record(ctx, e.Took.Seconds(), with())
	case redlock.EventAtRisk:
		o.atRisk.Add(ctx, 1, with())
	case redlock.EventRiskOver:
		o.atRisk.Add(ctx, -1, with())
	case redlock.EventAnswered:
		attrs = append(attrs, attribute.String("redlock.step", e.Step))
		if e.Err != nil {
			attrs = append(attrs, attribute.String("error.type", fault(e.Err)))
		}
		o.request.Record(ctx, e.Took.Seconds(), with(server(e.Node)...))
	}
}

// span makes a span of what has ended just now.
func (o *Observer) span(ctx context.Context, name string, kind trace.SpanKind, e redlock.Event, came attribute.KeyValue, failed bool) {
	end := time.Now()
	_, span := o.tracer.Start(ctx, name, trace.WithTimestamp(end.Add(-e.Took)), trace.WithSpanKind(kind),
		trace.WithAttributes(attribute.String("redlock.lock", e.Name), came))
	if e.Token != 0 {
		span.SetAttributes(attribute.Int64("redlock.fencing_token", int64(e.Token)))
	}
	if failed {
		span.SetAttributes(attribute.String("error.type", came.Value.AsString()))
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(end))
}

// server names a node as OpenTelemetry does: its port by itself, where it has one.
func server(node string) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(node)
	number, notNumber := strconv.Atoi(port)
	if err != nil || notNumber != nil {
		return []attribute.KeyValue{attribute.String("server.address", node)}
	}
	return []attribute.KeyValue{attribute.String("server.address", host), attribute.Int("server.port", number)}
}

// Watch has a Locker's state measured whenever metrics are collected, until stop. It asks no node.
func (o *Observer) Watch(l *redlock.Locker) (stop func() error, err error) {
	held, err1 := o.meter.Int64ObservableUpDownCounter("redlock.lock.held", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held now."))
	waiting, err2 := o.meter.Int64ObservableUpDownCounter("redlock.call.waiting", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that wait for a lock now."))
	spare, err3 := o.meter.Int64ObservableGauge("redlock.node.spare", metric.WithUnit("{node}"),
		metric.WithDescription("How many nodes may still fail: below 0 nobody gets a lock."))
	mayVote, err4 := o.meter.Int64ObservableGauge("redlock.node.may_vote", metric.WithUnit("{node}"),
		metric.WithDescription("1 while a node may vote, 0 while it may not."))
	offset, err5 := o.meter.Float64ObservableGauge("redlock.node.clock.offset", metric.WithUnit("s"),
		metric.WithDescription("How far a node's clock is ahead of the median of the nodes'."))
	members, err6 := o.meter.Int64ObservableGauge("redlock.roster.version", metric.WithUnit("{version}"),
		metric.WithDescription("Version of the record of the set's members: it rises with each change of them."))
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, err
	}
	registered, err := o.meter.RegisterCallback(func(_ context.Context, m metric.Observer) error {
		s := l.Status()
		m.ObserveInt64(held, int64(s.Held))
		m.ObserveInt64(waiting, int64(s.Waiting))
		if len(s.Nodes) == 0 {
			return nil // it was closed
		}
		m.ObserveInt64(spare, int64(s.MayVote-s.Quorum))
		m.ObserveInt64(members, int64(s.Roster))
		for _, n := range s.Nodes {
			address := metric.WithAttributes(server(n.Addr)...)
			vote := int64(0)
			if n.MayVote {
				vote = 1
			}
			m.ObserveInt64(mayVote, vote, address)
			m.ObserveFloat64(offset, n.ClockOffset.Seconds(), address)
		}
		return nil
	}, held, waiting, spare, mayVote, offset, members)
	if err != nil {
		return nil, err
	}
	return registered.Unregister, nil
}

// outcome says in a word what a call came to.
func outcome(err error) string {
	switch {
	case err == nil:
		return "granted"
	case errors.Is(err, redlock.ErrNotLocked):
		return "not_locked"
	case errors.Is(err, redlock.ErrNoQuorum):
		return "no_quorum"
	case errors.Is(err, redlock.ErrLockerClosed):
		return "closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "error"
}

// losses are what ends a lock while its holder is at work.
var losses = []string{"lost", "taken_over", "held_too_long"}

// cause says in a word what ended a lock.
func cause(err error) string {
	switch {
	case errors.Is(err, redlock.ErrTakenOver):
		return "taken_over"
	case errors.Is(err, redlock.ErrHeldTooLong):
		return "held_too_long"
	case errors.Is(err, redlock.ErrLost):
		return "lost"
	case errors.Is(err, redlock.ErrReleased):
		return "released"
	case errors.Is(err, redlock.ErrExported):
		return "exported"
	case errors.Is(err, redlock.ErrLockerClosed):
		return "closed"
	}
	return "parent_ended" // of rueidislock's methods
}

// fault says in a word why a node has not answered.
func fault(err error) string {
	for _, row := range []struct {
		err  error
		word string
	}{
		{redlock.ErrNodeTimeout, "timeout"}, {redlock.ErrNodeDown, "not_connected"}, {redlock.ErrQuarantined, "quarantined"},
		{redlock.ErrClockOff, "clock_off"}, {redlock.ErrDisagreement, "disagreement"}, {redlock.ErrUnsupportedNode, "unsupported"},
	} {
		if errors.Is(err, row.err) {
			return row.word
		}
	}
	return "refused"
}
