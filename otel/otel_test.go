package otel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/otel"
	"github.com/redlock-go/redlock/redlocktest"
)

// patience is long enough to get into a line.
const patience = time.Second

// scene is a program that has done a bit of everything, as Prometheus and a tracer see it.
type scene struct {
	scrape string
	spans  tracetest.SpanStubs
	nodes  []string // as labels
}

func play(t *testing.T) scene {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	require.NoError(t, err)
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	spans := tracetest.NewInMemoryExporter()
	tracers := trace.NewTracerProvider(trace.WithSyncer(spans))
	observer, err := otel.NewObserver(otel.Option{MeterProvider: meters, TracerProvider: tracers, LockNames: true})
	require.NoError(t, err)

	cluster := redlocktest.Start(3)
	t.Cleanup(cluster.Close)
	option := cluster.Option()
	option.KeyValidity, option.RestartQuarantine, option.Observer = 2*time.Second, -1, observer
	locker, err := redlock.NewLocker(option)
	require.NoError(t, err)
	defer locker.Close()
	stop, err := observer.Watch(locker)
	require.NoError(t, err)
	option.Observer = nil
	other, err := redlock.NewLocker(option)
	require.NoError(t, err)
	defer other.Close()

	ctx, parent := tracers.Tracer("test").Start(context.Background(), "job")
	released, err := locker.Acquire(ctx, "cron:purge")
	require.NoError(t, err)
	require.NoError(t, released.Release(ctx))
	held, err := locker.Acquire(ctx, "billing")
	require.NoError(t, err)
	taken, err := other.Acquire(ctx, "taken")
	require.NoError(t, err)
	_, err = locker.TryAcquire(ctx, "taken")
	require.ErrorIs(t, err, redlock.ErrNotLocked)
	impatient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = locker.Acquire(impatient, "taken")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, taken.Release(ctx))
	lost, err := locker.Acquire(ctx, "lost")
	require.NoError(t, err)
	rival, err := other.ForceAcquire(ctx, "lost")
	require.NoError(t, err)
	require.Error(t, lost.Err())
	require.NoError(t, rival.Release(ctx))
	cluster.Node(2).Silence()
	parent.End()

	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	s := scene{}
	for i := range 3 {
		host, port, err := net.SplitHostPort(cluster.Node(i).Addr())
		require.NoError(t, err)
		s.nodes = append(s.nodes, fmt.Sprintf(`server_address="%s",server_port="%s"`, host, port))
	}
	late := []*regexp.Regexp{ // what is observed is told from goroutines, and a silent node takes its time
		regexp.MustCompile(`error_type="[a-z_]+"[^}]*` + s.nodes[2]),
		regexp.MustCompile(`redlock_cause="taken_over"`),
		regexp.MustCompile(`redlock_node_spare\{`),
		regexp.MustCompile(`redlock_extend_lag_seconds_count\{[^}]*redlock_lock="billing"\} [1-9]`),
	}
	require.Eventually(t, func() bool {
		answer, err := server.Client().Get(server.URL)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		s.scrape = string(text)
		return !slices.ContainsFunc(late, func(r *regexp.Regexp) bool { return !r.MatchString(s.scrape) })
	}, 20*time.Second, 20*time.Millisecond)
	require.NoError(t, held.Err())
	require.NoError(t, stop())
	s.spans = spans.GetSpans()
	return s
}

func TestMetricsAndSpans(t *testing.T) {
	s := play(t)
	for _, want := range []string{
		`redlock_acquire_duration_seconds_count\{[^}]*redlock_lock="cron:purge",redlock_outcome="granted"\} 1\n`,
		`redlock_acquire_duration_seconds_count\{[^}]*redlock_lock="taken",redlock_outcome="not_locked"\} 1\n`,
		`redlock_acquire_duration_seconds_count\{[^}]*redlock_lock="taken",redlock_outcome="deadline_exceeded"\} 1\n`,
		`redlock_hold_duration_seconds_count\{[^}]*redlock_cause="released",redlock_lock="cron:purge"\} 1\n`,
		`redlock_hold_duration_seconds_count\{[^}]*redlock_cause="taken_over",redlock_lock="lost"\} 1\n`,
		`redlock_lock_losses_total\{[^}]*redlock_cause="taken_over",redlock_lock="lost"\} 1\n`,
		`redlock_lock_losses_total\{[^}]*redlock_cause="lost",redlock_lock="lost"\} 0\n`,
		`redlock_acquire_waits_total\{[^}]*redlock_lock="taken"\} 1\n`,
		`redlock_acquire_splits_total\{[^}]*redlock_lock="taken"\} 0\n`,
		`redlock_release_duration_seconds_count\{[^}]*redlock_lock="cron:purge",redlock_outcome="released"\} 1\n`,
		`redlock_extend_lag_seconds_count\{[^}]*redlock_lock="billing"\} [1-9]\d*\n`,
		`redlock_lock_at_risk\{[^}]*redlock_lock="billing"\} [01]\n`,
		`redlock_node_request_duration_seconds_count\{[^}]*redlock_step="acquire",` + s.nodes[0] + `\} \d+\n`,
		`redlock_node_request_duration_seconds_count\{error_type="[a-z_]+"[^}]*` + s.nodes[2] + `\} \d+\n`,
		`redlock_lock_held(_lock)?\{[^}]*\} 1\n`,
		`redlock_call_waiting\{[^}]*\} 0\n`,
		`redlock_node_may_vote\{[^}]*` + s.nodes[0] + `\} 1\n`,
		`redlock_node_clock_offset_seconds\{[^}]*` + s.nodes[0] + `\} `,
	} {
		require.Regexp(t, want, s.scrape)
	}

	byOutcome, byCause, releases := make(map[string]tracetest.SpanStub), make(map[string]tracetest.SpanStub), 0
	for _, span := range s.spans {
		for _, a := range span.Attributes {
			switch {
			case a.Key == "redlock.outcome" && span.Name == "redlock release":
				releases++
				require.Equal(t, "released", a.Value.AsString())
				require.Equal(t, codes.Unset, span.Status.Code)
				require.True(t, span.Parent.IsValid())
			case a.Key == "redlock.outcome":
				byOutcome[a.Value.AsString()] = span
			case a.Key == "redlock.cause":
				require.Equal(t, "redlock hold", span.Name)
				byCause[a.Value.AsString()] = span
			}
		}
	}
	require.Equal(t, 1, releases)
	require.Equal(t, codes.Unset, byCause["released"].Status.Code)
	require.Equal(t, codes.Error, byCause["taken_over"].Status.Code)
	require.True(t, byCause["taken_over"].Parent.IsValid(), "it belongs to the trace of the call that took the lock")
	require.Len(t, byOutcome, 3)
	granted, refused, impatient := byOutcome["granted"], byOutcome["not_locked"], byOutcome["deadline_exceeded"]
	require.Equal(t, "redlock acquire", granted.Name)
	require.True(t, granted.Parent.IsValid(), "it belongs to the caller's trace")
	require.True(t, slices.ContainsFunc(granted.Attributes, func(a attribute.KeyValue) bool { return a.Key == "redlock.fencing_token" }))
	require.Equal(t, codes.Unset, refused.Status.Code, "that somebody else has it is no error")
	require.Equal(t, codes.Error, impatient.Status.Code)
	require.GreaterOrEqual(t, impatient.EndTime.Sub(impatient.StartTime), patience)
}

// Each panel of the dashboard asks for metrics and labels that a scrape has, and docs/observability.md names each metric.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	s := play(t)
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.GreaterOrEqual(t, len(dashboard.Panels), 8)
	words := regexp.MustCompile(`\b(redlock_[a-z_]+|server_address|server_port|error_type)\b`)
	scraped := make(map[string]bool)
	for _, word := range words.FindAllString(s.scrape, -1) {
		scraped[word] = true
	}
	asked := make(map[string]bool)
	for _, p := range dashboard.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			found := words.FindAllString(target.Expr, -1)
			require.NotEmpty(t, found, p.Title)
			for _, word := range found {
				require.True(t, scraped[word], "panel %q asks for %s, which no scrape has", p.Title, word)
				asked[word] = true
			}
		}
	}
	doc, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (redlock_\w+)`).FindAllStringSubmatch(s.scrape, -1) {
		require.Contains(t, string(doc), "`"+line[1]+"`", "docs/observability.md")
		shown := asked[line[1]] || asked[line[1]+"_bucket"] || asked[line[1]+"_count"]
		require.True(t, shown, "no panel shows %s", line[1])
	}
}
