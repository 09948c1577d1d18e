package redisproc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ReplyError is an error that the server answered with, such as "LOADING Redis is loading the dataset in memory".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// commandTimeout bounds one Do, dial included.
const commandTimeout = 10 * time.Second

// Do runs one command on a connection of its own and returns the answer as text: an integer in decimal, nil as "". It
// is for looking at a node and for breaking it (FLUSHALL, CONFIG SET, CLIENT KILL), not for speed, and knows no nested
// answers. An error of the server is a [ReplyError]; a silent server is an error after 10 s.
func (n *Node) Do(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	return n.do(ctx, args...)
}

func (n *Node) do(ctx context.Context, args ...string) (string, error) {
	conn, err := n.Dial(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
		if err != nil {
			return "", err
		}
	}
	return roundTrip(conn, args)
}

func roundTrip(conn net.Conn, args []string) (string, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err := io.WriteString(conn, request.String())
	if err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", fmt.Errorf("redisproc: empty line for an answer")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", ReplyError(rest)
	case '$', '*':
		size, err := strconv.Atoi(rest)
		switch {
		case err != nil:
			return "", fmt.Errorf("redisproc: answer %q: %w", line, err)
		case size < 0:
			return "", nil
		case kind == '*':
			return readLines(r, size)
		}
		body := make([]byte, size+len("\r\n"))
		_, err = io.ReadFull(r, body)
		return string(body[:max(0, len(body)-2)]), err
	}
	return "", fmt.Errorf("redisproc: answer of an unknown kind %q", line)
}

// readLines joins the elements of a flat array with newlines.
func readLines(r *bufio.Reader, size int) (string, error) {
	lines := make([]string, size)
	for i := range lines {
		var err error
		lines[i], err = readReply(r)
		if err != nil {
			return "", err
		}
	}
	return strings.Join(lines, "\n"), nil
}
