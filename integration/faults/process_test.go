package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/integration/check"
	"github.com/redlock-go/redlock/internal/redisproc"
)

// envHolder makes the test binary a holder: a client in a process of its own, that can be stopped and killed. Its
// value is a holderJob.
const envHolder = "REDLOCK_FAULTS_HOLDER"

type holderJob struct {
	Nodes    []string
	Register string // where it offers its writes
	Name     string
	StopSelf bool // between looking at Err and the write that this allows
}

// event is what a holder says, one JSON line each.
type event struct {
	Kind     string // got, alive, dead, wrote
	From, To time.Time
	Token    uint64
	Accepted bool
	Cause    string
}

// beHolder takes a lock and writes to the register as long as Err is nil, and looks at Err for a while after that.
func beHolder() {
	var job holderJob
	if err := json.Unmarshal([]byte(os.Getenv(envHolder)), &job); err != nil {
		panic(err)
	}
	option := redlock.LockerOption{KeyValidity: lease}
	for _, addr := range job.Nodes {
		option.Nodes = append(option.Nodes, rueidis.ClientOption{InitAddress: []string{addr}})
	}
	l, err := redlock.NewLocker(option)
	if err != nil {
		panic(err)
	}
	say := json.NewEncoder(os.Stdout).Encode
	invoked := time.Now()
	g, err := l.Acquire(context.Background(), job.Name)
	if err != nil {
		panic(err)
	}
	say(event{Kind: "got", From: invoked, To: time.Now(), Token: g.FencingToken()})
	register, err := net.Dial("tcp", job.Register)
	if err != nil {
		panic(err)
	}
	answers := bufio.NewScanner(register)
	// It spins on the one processor it is given, so that it is running when it is stopped, and looks at once when it
	// goes on, before any timer can fire.
	spin := func() {
		for start := time.Now(); time.Since(start) < 2*time.Millisecond; {
		}
	}
	for dead := 0; dead < 200; spin() {
		from := time.Now()
		err := g.Err()
		to := time.Now()
		if err != nil {
			if dead++; dead == 1 {
				say(event{Kind: "dead", From: from, To: to, Cause: err.Error()})
			}
			continue
		}
		say(event{Kind: "alive", From: from, To: to})
		if job.StopSelf {
			last := time.Now()
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			for ; ; time.Sleep(time.Millisecond) { // it may take effect a moment later than the call returns
				now := time.Now()
				if now.Sub(last) > lease/2 {
					break
				}
				last = now
			}
		}
		fmt.Fprintln(register, g.FencingToken())
		if !answers.Scan() {
			panic("register is gone")
		}
		say(event{Kind: "wrote", From: to, To: time.Now(), Accepted: answers.Text() == "ok"})
		if job.StopSelf {
			job.StopSelf = false
		}
	}
}

// serveRegister lets other processes write to a register.
func serveRegister(t *testing.T, register *check.Register) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				var token uint64
				for {
					if _, err := fmt.Fscanln(conn, &token); err != nil {
						return
					}
					answer := "stale"
					if register.Write(token) {
						answer = "ok"
					}
					fmt.Fprintln(conn, answer)
				}
			}()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String()
}

// holder is a client process as the test sees it.
type holder struct {
	t      *testing.T
	cmd    *exec.Cmd
	events chan event
}

func startHolder(t *testing.T, job holderJob) *holder {
	t.Helper()
	text, err := json.Marshal(job)
	require.NoError(t, err)
	binary, err := os.Executable()
	require.NoError(t, err)
	h := &holder{t: t, cmd: exec.Command(binary), events: make(chan event, 1<<16)}
	h.cmd.Env = append(os.Environ(), envHolder+"="+string(text), "GOMAXPROCS=1")
	h.cmd.Stderr = os.Stderr
	out, err := h.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, h.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(h.events)
		for d := json.NewDecoder(out); ; {
			var e event
			if err := d.Decode(&e); err != nil {
				if err != io.EOF {
					t.Errorf("holder said something else: %v", err)
				}
				return
			}
			h.events <- e
		}
	}()
	t.Cleanup(func() {
		h.cmd.Process.Kill()
		<-read
		h.cmd.Wait()
	})
	return h
}

// next waits for an event of a kind and returns all up to it.
func (h *holder) next(kind string, within time.Duration) []event {
	h.t.Helper()
	var events []event
	for timeout := time.After(within); ; {
		select {
		case e, ok := <-h.events:
			require.True(h.t, ok, "holder ended without %q", kind)
			events = append(events, e)
			if e.Kind == kind {
				return events
			}
		case <-timeout:
			require.Fail(h.t, "holder is silent", "no %q within %v", kind, within)
		}
	}
}

// rest waits for the end of the process.
func (h *holder) rest() []event {
	h.t.Helper()
	var events []event
	for timeout := time.After(soon); ; {
		select {
		case e, ok := <-h.events:
			if !ok {
				return events
			}
			events = append(events, e)
		case <-timeout:
			require.Fail(h.t, "holder does not end")
		}
	}
}

func (h *holder) signal(s os.Signal) {
	h.t.Helper()
	require.NoError(h.t, h.cmd.Process.Signal(s))
}

// life turns what a holder said into what the history judges.
func life(name string, events []event) check.Hold {
	hold := check.Hold{Lock: name, Client: "process"}
	for _, e := range events {
		switch e.Kind {
		case "got":
			hold.Token, hold.Invoked, hold.Returned = e.Token, e.From, e.To
		case "alive":
			if hold.First.IsZero() {
				hold.First = e.To
			}
			if !hold.Ended.IsZero() {
				hold.Revived = e.From
			}
			hold.Last = e.From
			hold.Checks = append(hold.Checks, check.Check{From: e.From, To: e.To})
		case "dead":
			hold.Ended = e.To
		}
	}
	return hold
}

func (r *rig) addrs() (addrs []string) {
	for _, n := range r.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Row 8: the holder's process is stopped past its lease. When it goes on, the first look at Err says so; the fence
// keeps out what it may have sent without looking.
func TestRow08StoppedHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{TCP: true})
	var register check.Register
	h := startHolder(t, holderJob{Nodes: r.addrs(), Register: serveRegister(t, &register), Name: "held"})
	events := h.next("got", soon)
	events = append(events, h.next("wrote", soon)...)
	time.Sleep(lease / 2)
	h.signal(syscall.SIGSTOP)

	b := r.client("b")
	g := b.wait("held", lease+soon)
	require.True(t, register.Write(g.FencingToken()))
	resumed := time.Now()
	h.signal(syscall.SIGCONT)
	events = append(events, h.rest()...)
	for _, e := range events {
		switch e.Kind {
		case "alive":
			require.True(t, e.From.Before(resumed), "it was alive at its first look after it had been stopped")
		case "wrote":
			require.True(t, !e.Accepted || e.From.Before(resumed), "a stale write was accepted")
		}
	}
	require.Equal(t, "dead", events[len(events)-1].Kind)
	r.history.Add(life("held", events))
	require.True(t, register.Write(g.FencingToken()))
	require.Empty(t, register.Violations())
	r.release(g)
	r.settle("held")
}

// Row 8, killed for good: the successor waits for the lease and no longer.
func TestRow08KilledHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{TCP: true})
	var register check.Register
	h := startHolder(t, holderJob{Nodes: r.addrs(), Register: serveRegister(t, &register), Name: "held"})
	events := h.next("wrote", soon)
	h.signal(syscall.SIGKILL)
	events = append(events, h.rest()...)
	killed := time.Now()
	g := r.client("b").wait("held", lease+soon)
	t.Logf("served %v after the holder was killed, lease %v", time.Since(killed), lease)
	require.True(t, register.Write(g.FencingToken()))
	r.history.Add(life("held", events))
	require.Empty(t, register.Violations())
	r.release(g)
	r.settle("held")
}

// Row 9: the holder is stopped between a look at Err that was nil and the write that it allows. No lock can help
// there: the token does, and it alone.
func TestRow09StoppedBetweenCheckAndWrite(t *testing.T) {
	t.Parallel()
	r := newRig(t, 5, redisproc.Options{TCP: true})
	var register check.Register
	h := startHolder(t, holderJob{Nodes: r.addrs(), Register: serveRegister(t, &register), Name: "held", StopSelf: true})
	events := h.next("alive", soon)

	g := r.client("b").wait("held", lease+soon)
	require.True(t, register.Write(g.FencingToken()))
	h.signal(syscall.SIGCONT)
	events = append(events, h.rest()...)
	wrote := 0
	for _, e := range events {
		if e.Kind == "wrote" {
			wrote++
			require.False(t, e.Accepted, "a stale write was accepted")
		}
	}
	require.Equal(t, 1, wrote)
	require.Equal(t, 1, register.Refused())
	require.Empty(t, register.Violations())
	r.history.Add(life("held", events))
	r.release(g)
	r.settle("held")
}
