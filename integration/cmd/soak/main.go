package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlock-go/redlock/internal/netproxy"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// Exit codes.
const (
	exitOK       = 0
	exitViolated = 1
	exitUnable   = 2
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		os.Exit(beWorker(os.Args[2:]))
	}
	signal.Ignore(syscall.SIGPIPE) // "soak | head" must not kill it before it has cleaned up
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options is the command line.
type options struct {
	duration  time.Duration
	seed      uint64
	lease     time.Duration
	processes int
	workers   int
	broken    string
	verbose   bool
}

// run is the whole command, with its exit code. When it returns everything it started has ended.
func run(ctx context.Context, args []string, out, complaints io.Writer) int {
	var o options
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(complaints)
	flags.DurationVar(&o.duration, "duration", time.Minute, "how long faults are injected")
	flags.Uint64Var(&o.seed, "seed", 0, "what faults, and what the workers do; 0: a random one")
	flags.DurationVar(&o.lease, "lease", 1500*time.Millisecond, "KeyValidity")
	flags.IntVar(&o.processes, "processes", 4, "worker processes")
	flags.IntVar(&o.workers, "workers", 4, "workers in each")
	flags.StringVar(&o.broken, "break", "", "fence or lock: a run that must fail")
	flags.BoolVar(&o.verbose, "v", false, "tell each fault, and what the Lockers log")
	if err := flags.Parse(args); err != nil {
		return exitUnable
	}
	if flags.NArg() > 0 || o.broken != "" && o.broken != "fence" && o.broken != "lock" || o.processes < 1 || o.workers < 1 {
		fmt.Fprintln(complaints, "soak: this command line is not understood; see soak -help")
		return exitUnable
	}
	for o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000)
	}
	fmt.Fprintf(out, "soak -duration %v -seed %d -lease %v -processes %d -workers %d\n", o.duration, o.seed, o.lease, o.processes, o.workers)

	s := &soak{options: o, rec: newRecorder(), out: &syncWriter{w: out}, complaints: &syncWriter{w: complaints}}
	s.rec.broken = o.broken == "fence"
	err := s.run(ctx)
	if err != nil {
		fmt.Fprintf(complaints, "soak: %v\n", err)
		return exitUnable
	}
	v := judge(s.rec, o.lease)
	v.print(out)
	if o.verbose {
		v.places(out)
	}
	switch {
	case len(v.violations) > 0:
		fmt.Fprintf(out, "FAILED with seed %d\n", o.seed)
		return exitViolated
	case ctx.Err() != nil:
		fmt.Fprintln(out, "interrupted; no violation until then")
		return exitUnable
	}
	fmt.Fprintln(out, "ok")
	return exitOK
}

const nodeCount = 5

// soak is one run.
type soak struct {
	options
	rec        *recorder
	out        io.Writer
	complaints io.Writer
}

// run starts nodes, network and workers, breaks them for a while, and stops all of it.
func (s *soak) run(ctx context.Context) error {
	nodes, err := redisproc.StartSet(nodeCount, redisproc.Options{})
	if err != nil {
		return err
	}
	defer func() {
		for _, n := range nodes {
			n.Close()
		}
	}()
	var proxies []*netproxy.Proxy
	for _, n := range nodes {
		p := netproxy.New(n.Network(), n.Addr())
		defer p.Close()
		proxies = append(proxies, p)
	}
	operator, err := newOperator(nodes, s.prefix(0), s.lease)
	if err != nil {
		return err
	}
	defer operator.locker.Close()
	if err := operator.init(ctx); err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "register")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.rec.serve(conn) })
		}
	})
	defer serving.Wait()
	defer listener.Close()

	var processes []*process
	defer func() {
		for _, p := range processes {
			p.kill()
		}
	}()
	for i := range s.processes {
		p := &process{name: fmt.Sprintf("p%d", i)}
		for _, proxy := range proxies {
			link, err := proxy.Listen()
			if err != nil {
				return err
			}
			p.links = append(p.links, link)
		}
		p.start = func(p *process) *exec.Cmd { return s.command(p, i, socket) }
		if err := p.spawn(s.rec.died); err != nil {
			return err
		}
		processes = append(processes, p)
	}

	injecting, cancel := context.WithTimeout(ctx, s.duration)
	defer cancel()
	newBreaker(s.seed, s.lease, nodes, processes, operator, s.rec, s.say).run(injecting)
	s.say("faults are over")
	if ctx.Err() == nil {
		s.recover(ctx)
	}
	s.rec.stop()
	for _, p := range processes {
		// A worker may be in a call with a context of six leases, then in a release.
		if !p.finish(6*s.lease + 2*slack) {
			s.rec.died(fmt.Sprintf("hang: worker process %s does not finish", p.name))
		}
	}
	return nil
}

// prefix is the KeyPrefix of a worker process: the same for all, unless the lock is to be broken.
func (s *soak) prefix(process int) string {
	if s.broken == "lock" {
		return fmt.Sprintf("soak%d", process)
	}
	return "soak"
}

// command is the command line of a worker process's next life.
func (s *soak) command(p *process, index int, socket string) *exec.Cmd {
	var addrs []string
	for _, l := range p.links {
		addrs = append(addrs, l.Addr())
	}
	o := workerOptions{
		socket: socket, id: p.id(), prefix: s.prefix(index), nodes: strings.Join(addrs, ","), workers: s.workers,
		seed: s.seed + uint64(index)<<32 + uint64(p.lives)<<48, lease: s.lease, verbose: s.verbose,
	}
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.Command(self, o.args()...)
	cmd.Stdout, cmd.Stderr = s.complaints, s.complaints
	return cmd
}

func (s *soak) say(format string, args ...any) {
	if s.verbose {
		fmt.Fprintf(s.out, "%12.6f %s\n", time.Duration(now()).Seconds(), fmt.Sprintf(format, args...))
	}
}

// recover sees to it that all locks are served again now that everything is whole.
func (s *soak) recover(ctx context.Context) {
	whole := now()
	for {
		waiting := s.rec.unserved(whole)
		if len(waiting) == 0 {
			return
		}
		if now().sub(whole) > 8*s.lease+slack {
			s.rec.died(fmt.Sprintf("availability: everything is whole since %v, and nobody has got %v", now().sub(whole), waiting))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// readers stands for all who read.
const readers = shelf + ", to read"

// unserved returns the locks that nobody has got since then though somebody waits.
func (r *recorder) unserved(since instant) (waiting []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	served := make(map[string]bool)
	for i := len(r.order) - 1; i >= 0 && i >= len(r.order)-1000; i-- {
		if g := r.order[i]; g.held && g.returned > since {
			served[g.lock] = true
			served[pool] = served[pool] || g.slot > 0
			served[readers] = served[readers] || g.way.reads()
		}
	}
	locks := []string{nowLock, pool, shelf, readers}
	for i := range safeLocks {
		locks = append(locks, fmt.Sprintf("lock-%d", i))
	}
	for _, lock := range locks {
		if !served[lock] {
			waiting = append(waiting, lock)
		}
	}
	return waiting
}

// dialUnix dials a node's socket.
func dialUnix(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
	return dialer.DialContext(ctx, "unix", addr)
}
