package otel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/internal/ports"
	"github.com/redlock-go/redlock/otel"
	"github.com/redlock-go/redlock/redlocktest"
)

// server is a Prometheus that scrapes one program, with the rules of alerts.yaml.
type server struct {
	t   *testing.T
	url string
}

// startPrometheus starts a Prometheus, which ends with the test. A missing one fails the test, as a missing redis-server
// does: else what dashboards and alerts ask for would be tested by nobody.
func startPrometheus(t *testing.T, target string) *server {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	require.NoError(t, err, "no prometheus in PATH: install it (apt-get install prometheus, brew install prometheus)")
	rules, err := filepath.Abs("alerts.yaml")
	require.NoError(t, err)
	dir := t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 100ms}
rule_files: [%q]
scrape_configs:
  - job_name: program
    static_configs: [{targets: [%q]}]
`, rules, target)
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	port, err := ports.Reserve()
	require.NoError(t, err)
	t.Cleanup(port.Close)
	var log bytes.Buffer
	cmd := exec.Command(binary, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+port.Addr)
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus has said:\n%s", &log)
		}
	})
	p := &server{t, "http://" + port.Addr}
	require.Eventually(t, func() bool {
		answer, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, 30*time.Second, 50*time.Millisecond, "Prometheus is not ready")
	return p
}

// get asks the API, and decodes what it answers.
func (p *server) get(path string, data any) {
	p.t.Helper()
	answer, err := http.Get(p.url + "/api/v1/" + path)
	require.NoError(p.t, err)
	defer answer.Body.Close()
	body := struct {
		Status, Error string
		Data          any
	}{Data: data}
	require.NoError(p.t, json.NewDecoder(answer.Body).Decode(&body))
	require.Equal(p.t, "success", body.Status, "%s: %s", path, body.Error)
}

// query evaluates an expression, and returns the numbers that it yields, by their labels.
func (p *server) query(expr string) map[string]float64 {
	p.t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	p.get("query?query="+url.QueryEscape(expr), &data)
	values := make(map[string]float64)
	for _, r := range data.Result {
		v, err := strconv.ParseFloat(r.Value[1].(string), 64)
		require.NoError(p.t, err)
		if !math.IsNaN(v) { // a quantile of nothing
			values[fmt.Sprint(r.Metric)] = v
		}
	}
	return values
}

// alerts returns the names of the alerts that are pending or firing.
func (p *server) alerts() map[string]bool {
	p.t.Helper()
	var data struct {
		Alerts []struct{ Labels map[string]string }
	}
	p.get("alerts", &data)
	names := make(map[string]bool)
	for _, a := range data.Alerts {
		names[a.Labels["alertname"]] = true
	}
	return names
}

// rules returns the names of the alerts there are, and requires that all can be evaluated.
func (p *server) rules() (names []string) {
	p.t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.get("rules", &data)
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			require.Equal(p.t, "ok", r.Health, "%s: %s", r.Name, r.LastError)
			names = append(names, r.Name)
		}
	}
	return names
}

// panel is one of the dashboard's, with its expressions as Grafana sends them.
type panel struct {
	title string
	exprs []string
}

func panels(t *testing.T) (list []panel) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, p := range dashboard.Panels {
		one := panel{title: p.Title}
		for _, target := range p.Targets {
			one.exprs = append(one.exprs, strings.ReplaceAll(target.Expr, "$__rate_interval", "10s"))
		}
		list = append(list, one)
	}
	return list
}

// A program with healthy locks, and then with all that can go wrong, as a real Prometheus sees it: each panel of the dashboard
// shows something, no alert comes about while all is well, and each does when what it is for has happened.
func TestPrometheusSeesItAll(t *testing.T) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	require.NoError(t, err)
	observer, err := otel.NewObserver(otel.Option{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	require.NoError(t, err)
	metrics := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer metrics.Close()
	p := startPrometheus(t, metrics.Listener.Addr().String())

	cluster := redlocktest.NewCluster(t, 3)
	option := cluster.Option()
	option.RestartQuarantine = -1
	other, err := redlock.NewLocker(option)
	require.NoError(t, err)
	defer other.Close()
	option.Observer = observer
	locker, err := redlock.NewLocker(option)
	require.NoError(t, err)
	defer locker.Close()
	stop, err := observer.Watch(locker)
	require.NoError(t, err)
	defer stop()

	ctx, cancel := context.WithCancel(context.Background())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	for i := range 10 {
		_, err := locker.Acquire(ctx, "held:"+strconv.Itoa(i))
		require.NoError(t, err)
	}
	busy.Go(func() { // short locks, of which every other one is refused, or waited for
		for ctx.Err() == nil {
			g, err := other.TryAcquire(ctx, "short")
			if err == nil {
				locker.TryAcquire(ctx, "short")
				time.AfterFunc(10*time.Millisecond, func() { g.Release(context.Background()) })
			}
			if g, err := locker.Acquire(ctx, "short"); err == nil {
				g.Release(ctx)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})

	// All is well.
	const unanswered = "Steps that nodes did not answer, per second"
	var missing []string
	yields := func(except string) bool {
		missing = nil
		for _, one := range panels(t) {
			for _, expr := range one.exprs {
				if one.title != except && len(p.query(expr)) == 0 {
					missing = append(missing, one.title+": "+expr)
				}
			}
		}
		return len(missing) == 0
	}
	if !within(30*time.Second, func() bool { return yields(unanswered) }) {
		require.Empty(t, missing, "no data although locks are held, waited for and released")
	}
	well := map[string]float64{
		"min(redlock_node_spare)": 1, "sum(redlock_lock_held) >= bool 10": 1, "sum(redlock_node_may_vote)": 3,
		"sum(redlock_lock_at_risk)": 0, "sum(redlock_lock_losses_total)": 0, "count(redlock_lock_losses_total)": 3,
		`sum(redlock_node_request_duration_seconds_count{error_type!=""}) or vector(0)`: 0,
	}
	var unwell []string
	if !within(30*time.Second, func() bool { // a lock that is granted a moment before its last vote is at risk for as long
		unwell = nil
		for name := range p.alerts() {
			unwell = append(unwell, name)
		}
		for expr, want := range well {
			if values := slices.Collect(maps.Values(p.query(expr))); !slices.Equal(values, []float64{want}) {
				unwell = append(unwell, fmt.Sprintf("%s is %v, not %v", expr, values, want))
			}
		}
		return len(unwell) == 0
	}) {
		require.Empty(t, unwell, "all is well")
	}

	// It is not any more.
	seen := make(map[string]bool)
	expect := func(names ...string) {
		t.Helper()
		require.True(t, within(30*time.Second, func() bool {
			for name := range p.alerts() {
				seen[name] = true
			}
			for _, name := range names {
				if !seen[name] {
					return false
				}
			}
			return true
		}), "of %v there were %v", names, seen)
	}
	lost, err := locker.Acquire(ctx, "lost")
	require.NoError(t, err)
	_, err = other.ForceAcquire(ctx, "lost")
	require.NoError(t, err)
	require.ErrorIs(t, lost.Err(), redlock.ErrTakenOver)
	long, err := locker.Acquire(ctx, "long", redlock.AtMost(50*time.Millisecond))
	require.NoError(t, err)
	<-long.Done()
	for range 15 {
		busy.Go(func() { locker.Acquire(ctx, "held:0") })
	}
	expect("RedlockLockLost", "RedlockHeldTooLong", "RedlockCallsPileUp")
	require.NotContains(t, seen, "RedlockNodeOut")

	cluster.Node(0).StepClock(200 * time.Millisecond)
	expect("RedlockClockOff")

	cluster.Node(0).Delay(150*time.Millisecond, 150*time.Millisecond)
	expect("RedlockNodeSlow")
	cluster.Node(0).Delay(0, 0)
	for range 2 { // what fails for the first time is no rate
		cluster.Node(0).Silence()
		time.Sleep(1500 * time.Millisecond)
		cluster.Node(0).Heal()
		require.True(t, within(30*time.Second, func() bool { return locker.Status().MayVote == 3 }))
	}
	expect("RedlockNodeFails")
	for i := range 2 {
		cluster.Node(i).Silence()
	}
	time.Sleep(5 * time.Second) // renewals are due within 3.3 s, and the validity is 8.5 s
	for i := range 2 {
		cluster.Node(i).Heal()
	}
	expect("RedlockExtensionsLate")
	require.Equal(t, map[string]bool{"lost": false, "taken_over": true}, losses(p), "renewed late, and not lost")

	cluster.Node(2).Silence()
	expect("RedlockNodeOut", "RedlockNoNodeToSpare", "RedlockAtRisk")
	if !within(30*time.Second, func() bool { return yields("") }) {
		require.Empty(t, missing, "no data although a node does not answer")
	}
	cluster.Node(1).Stop()
	expect("RedlockNoQuorum")
	for _, name := range p.rules() {
		require.Contains(t, seen, name, "it never came about")
	}
	require.True(t, within(30*time.Second, func() bool { return losses(p)["lost"] }), "no quorum renews any more")
}

// losses returns of what causes locks have been lost.
func losses(p *server) map[string]bool {
	found := make(map[string]bool)
	for _, cause := range []string{"lost", "taken_over"} {
		found[cause] = len(p.query(fmt.Sprintf("sum(redlock_lock_losses_total{redlock_cause=%q}) > 0", cause))) > 0
	}
	return found
}

// within reports whether something comes about in time.
func within(d time.Duration, done func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

// The rules are what Prometheus' own tool takes for good ones, and docs/observability.md says of each what to do.
func TestAlertsAreInOrder(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if !errors.Is(err, exec.ErrNotFound) {
		require.NoError(t, err)
		out, err := exec.Command(tool, "check", "rules", "--lint-fatal", "alerts.yaml").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	rules, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	doc, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	names := 0
	for line := range strings.Lines(string(rules)) {
		if _, name, found := strings.Cut(strings.TrimSpace(line), "- alert: "); found {
			names++
			require.Contains(t, string(doc), "| `"+name+"` |")
		}
	}
	require.Equal(t, names, strings.Count(string(doc), "| `Redlock"))
}
