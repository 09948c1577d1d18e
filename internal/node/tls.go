package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// Redis and TLS do not notice each other. A server without TLS takes a handshake for the begin of a command and waits for
// its end; one with TLS hangs up on a command without a word. So where a first exchange comes to nothing, a second
// connection finds out what the server speaks: "connection reset" tells nobody what to change.

// errTLS says that TLS does not come about as it is configured.
var errTLS = errors.New("TLS")

var (
	errSpeaksPlain = fmt.Errorf("%w: the server does not speak it on this port, and TLSConfig is set", errTLS)
	errSpeaksTLS   = fmt.Errorf("%w: the server speaks it on this port, and TLSConfig is not set", errTLS)
)

// wrongTLS reports whether a handshake failed for what somebody has to change: TLS on one side only, a certificate that
// is not trusted, expired or of another name, on either side.
func wrongTLS(err error) bool {
	var untrusted *tls.CertificateVerificationError
	return errors.As(err, &untrusted) || errors.Is(err, errTLS) || isAlert(err)
}

// isAlert reports whether the other side ended TLS for a reason.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" // the type of an alert is not exported
}

// dialTLS dials as rueidis does. A server that has not answered the handshake after patience is asked without TLS.
func dialTLS(ctx context.Context, dst string, d *net.Dialer, c *tls.Config, patience time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	asked := make(chan struct{})
	ask := time.AfterFunc(patience, func() {
		defer close(asked)
		if speaksPlain(ctx, dst, d) {
			cancel(errSpeaksPlain)
		}
	})
	conn, err := (&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, "tcp", dst)
	if context.Cause(ctx) == errSpeaksPlain && err != nil {
		err = errSpeaksPlain
	}
	cancel(nil)
	if !ask.Stop() {
		<-asked
	}
	var other tls.RecordHeaderError
	if errors.As(err, &other) {
		err = fmt.Errorf("%w: %w", errSpeaksPlain, err)
	}
	return conn, err
}

// speaksPlain reports whether a server answers a command that is sent without TLS, be it with an error.
func speaksPlain(ctx context.Context, dst string, d *net.Dialer) bool {
	conn, err := d.DialContext(ctx, "tcp", dst)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	var first [1]byte
	_, err = conn.Read(first[:])
	return err == nil && (first[0] == '+' || first[0] == '-')
}

// hungUpOn reports whether a server took a connection, or had one, and ended it without an answer.
func hungUpOn(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		err != nil && strings.HasSuffix(err.Error(), "unknown message type: 21") // rueidis of an alert
}

// wantsTLS reports whether a node that hung up on a connection without TLS speaks it. One that was looked at before has
// answered without; what a dialer of the user's does is not known.
func (n *Node) wantsTLS(ctx context.Context) bool {
	o := n.option
	n.mu.Lock()
	answered := n.watched
	n.mu.Unlock()
	if answered || o.TLSConfig != nil || o.DialFn != nil || o.DialCtxFn != nil || o.Sentinel.MasterSet != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, n.set.option.Clock.Wait(n.set.option.NodeTimeout))
	defer cancel()
	return speaksTLS(ctx, o.InitAddress[0], &o.Dialer)
}

// speaksTLS reports whether a server answers a handshake. Nothing is sent to it, so its certificate does not matter.
func speaksTLS(ctx context.Context, dst string, d *net.Dialer) bool {
	conn, err := d.DialContext(ctx, "tcp", dst)
	if err != nil {
		return false
	}
	defer conn.Close()
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	return err == nil || isAlert(err)
}
