package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/rueidis"
)

// maxNodes bounds a list: no set of nodes is as large, and a file that is none at all is told from one.
const maxNodes = 64

// parseNodeList reads nodes that are separated by commas or white space, as in --nodes and $REDLOCK_NODES.
func parseNodeList(text string) ([]rueidis.ClientOption, error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' })
	if len(words) > maxNodes {
		return nil, fmt.Errorf("%d nodes are listed, at most %d can be", len(words), maxNodes)
	}
	var nodes []rueidis.ClientOption
	for i, word := range words {
		node, err := parseNode(word)
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", i+1, err)
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// readNodeFile reads a file of nodes: one in a line, or several; what follows # is a comment.
func readNodeFile(r io.Reader) ([]rueidis.ClientOption, error) {
	var list strings.Builder
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		list.WriteString(line + "\n")
		if list.Len() > 1<<20 {
			return nil, errors.New("it has more than 1 MiB: that is no list of nodes")
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	nodes, err := parseNodeList(list.String())
	if err == nil && len(nodes) == 0 {
		err = errors.New("it lists no node")
	}
	return nodes, err
}

// parseNode reads one node: host, host:port, the path of a unix socket, or a URL. What it says of a bad one does not hold
// the whole of it: a URL may hold a password.
func parseNode(word string) (rueidis.ClientOption, error) {
	if strings.HasPrefix(word, "/") {
		word = "unix://" + word
	}
	if scheme, _, isURL := strings.Cut(word, "://"); isURL {
		switch scheme {
		case "redis", "rediss", "valkey", "valkeys", "unix":
		default:
			return rueidis.ClientOption{}, fmt.Errorf("a URL begins with redis://, rediss:// or unix://, not with %.20q", scheme+"://")
		}
		option, err := rueidis.ParseURL(word)
		if err != nil {
			return rueidis.ClientOption{}, errors.New("the URL cannot be read (it is not shown: it may hold a password)")
		}
		return option, nil
	}
	if strings.Contains(word, "@") {
		return rueidis.ClientOption{}, errors.New("only a URL can name a user: redis://user:password@host:port (it is not shown: it may hold a password)")
	}
	address := word
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(word, "[]"), "6379")
	}
	return rueidis.ClientOption{InitAddress: []string{address}}, nil
}

// holdsPassword reports whether a list of nodes has one that the process list would show.
func holdsPassword(nodes []rueidis.ClientOption) bool {
	for _, n := range nodes {
		if n.Password != "" {
			return true
		}
	}
	return false
}
