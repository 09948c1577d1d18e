package containers

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// waitReady returns when the server at addr answers a PING. Any answer counts but "loading": one that asks for a
// password is ready as well.
func waitReady(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := pingNode(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer within %v: %w", addr, readyTimeout, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// readyTimeout is generous: a server starts in some 10 ms, but five containers start together, maybe beside other test
// suites.
const readyTimeout = 30 * time.Second

func pingNode(ctx context.Context, addr string) error {
	// A dial that meets a half-made network waits a second for its first retransmission; a new one is quicker.
	dialer := net.Dialer{Timeout: 250 * time.Millisecond}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(answer, "-LOADING") {
		return fmt.Errorf("%s", strings.TrimSpace(answer))
	}
	return nil
}
