package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlock-go/redlock/internal/node"
)

const aboutNodes = `Nodes, user and TLS:
  --nodes LIST          host:port, a unix socket's path, or a URL (redis://, rediss://, unix://; with
                        ?master_set=NAME for Sentinel) of each node, with commas; default $REDLOCK_NODES
  --nodes-file FILE     the same from a file, one in a line; # begins a comment
  --user NAME           ACL user of all nodes
  --password-file FILE  the password, on the first line; default $REDISCLI_AUTH. A URL in a file or
                        in $REDLOCK_NODES may hold one, too; a command line may not: ps shows it.
  --askpass             ask for the password
  --tls                 with TLS; --cacert FILE, --cert FILE, --key FILE, --sni NAME, --insecure
  --prefix PREFIX       key prefix of the locks; default $REDLOCK_PREFIX, or "redlock"
  --node-timeout D      longest wait for a node's answer, less than half the lease; default 1s, or a
                        quarter of the lease where that is less
  --verbose             write the library's log to stderr
`

const aboutLease = `  --lease D             the lease: a holder that dies costs the others so much; default 10s, or the longest
                        that the set of nodes allows where that is less. A longer one is refused
                        (redlock nodes set - --longest-lease D).
  --no-quarantine       the programs that use these nodes have the restart quarantine off
`

// connection is the flags that name nodes, and the way to them.
type connection struct {
	list, file         string
	user, passwordFile string
	askpass            bool
	answer             string // what it was answered
	tls, insecure      bool
	ca, cert, key, sni string
	prefix             string
	timeout            time.Duration
	verbose            bool
	locks              bool // the command takes locks, and has these:
	lease              time.Duration
	noQuarantine       bool
	given              given
}

func defineNodes(f *flag.FlagSet) *connection {
	c := new(connection)
	f.StringVar(&c.list, "nodes", "", "")
	f.StringVar(&c.file, "nodes-file", "", "")
	f.StringVar(&c.user, "user", "", "")
	f.StringVar(&c.passwordFile, "password-file", "", "")
	f.BoolVar(&c.askpass, "askpass", false, "")
	f.BoolVar(&c.tls, "tls", false, "")
	f.BoolVar(&c.insecure, "insecure", false, "")
	f.StringVar(&c.ca, "cacert", "", "")
	f.StringVar(&c.cert, "cert", "", "")
	f.StringVar(&c.key, "key", "", "")
	f.StringVar(&c.sni, "sni", "", "")
	f.StringVar(&c.prefix, "prefix", cmp.Or(os.Getenv("REDLOCK_PREFIX"), "redlock"), "")
	f.DurationVar(&c.timeout, "node-timeout", time.Second, "")
	f.BoolVar(&c.verbose, "verbose", false, "")
	return c
}

// defineLease defines the flags of commands that take a lock, and not of those that only look.
func (c *connection) defineLease(f *flag.FlagSet) {
	c.locks = true
	f.DurationVar(&c.lease, "lease", 10*time.Second, "")
	f.BoolVar(&c.noQuarantine, "no-quarantine", false, "")
}

// options returns how to reach each node.
func (c *connection) options() ([]rueidis.ClientOption, error) {
	if err := c.check(); err != nil {
		return nil, usageError{err}
	}
	nodes, err := c.listed()
	if err != nil {
		return nil, usageError{err}
	}
	return c.reach(nodes)
}

// reach adds to nodes what the flags say of all of them.
func (c *connection) reach(nodes []rueidis.ClientOption) ([]rueidis.ClientOption, error) {
	password, err := c.password()
	if err != nil {
		return nil, usageError{err}
	}
	secure, err := c.tlsConfig()
	if err != nil {
		return nil, usageError{err}
	}
	seen := make(map[string]bool)
	for i := range nodes {
		n := &nodes[i]
		if n.Password == "" {
			n.Password = password
			n.Username = cmp.Or(n.Username, c.user)
		}
		if secure != nil && n.DialCtxFn == nil {
			config := secure.Clone()
			if n.TLSConfig != nil {
				config.ServerName = cmp.Or(config.ServerName, n.TLSConfig.ServerName)
			}
			n.TLSConfig = config
		}
		n.Dialer.Timeout = c.timeout
		if name := nodeName(*n); seen[name] {
			return nil, wrongUsage("node %s is listed twice", name)
		} else {
			seen[name] = true
		}
	}
	return nodes, nil
}

// listed returns the nodes as they are listed in the one place that lists them.
func (c *connection) listed() ([]rueidis.ClientOption, error) {
	environment := os.Getenv("REDLOCK_NODES")
	switch {
	case c.list != "" && c.file != "":
		return nil, errors.New("--nodes and --nodes-file contradict each other")
	case c.list != "":
		nodes, err := parseNodeList(c.list)
		if err != nil {
			return nil, fmt.Errorf("--nodes: %w", err)
		}
		if holdsPassword(nodes) {
			err = errors.New("--nodes holds a password, which ps shows to everybody: use $REDISCLI_AUTH, --password-file, --nodes-file or $REDLOCK_NODES")
		}
		return nodes, err
	case c.file != "":
		f, err := os.Open(c.file)
		if err != nil {
			return nil, fmt.Errorf("--nodes-file: %w", err)
		}
		defer f.Close()
		nodes, err := readNodeFile(f)
		if err != nil {
			err = fmt.Errorf("--nodes-file %s: %w", c.file, err)
		}
		return nodes, err
	case strings.TrimSpace(environment) != "":
		nodes, err := parseNodeList(environment)
		if err != nil {
			err = fmt.Errorf("$REDLOCK_NODES: %w", err)
		}
		return nodes, err
	}
	return nil, errors.New("no nodes: name them by --nodes host:port,host:port,host:port, --nodes-file or $REDLOCK_NODES")
}

// password returns the password of nodes whose URL holds none.
func (c *connection) password() (string, error) {
	switch {
	case c.askpass && c.passwordFile != "":
		return "", errors.New("--askpass and --password-file contradict each other")
	case c.askpass && c.answer != "":
		return c.answer, nil
	case c.askpass:
		answer, err := askPassword()
		c.answer = answer
		return answer, err
	case c.passwordFile != "":
		text, err := os.ReadFile(c.passwordFile)
		if err != nil {
			return "", fmt.Errorf("--password-file: %w", err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		line = strings.TrimSuffix(line, "\r")
		if line == "" {
			return "", fmt.Errorf("--password-file %s: its first line is empty, and should be the password", c.passwordFile)
		}
		return line, nil
	}
	return os.Getenv("REDISCLI_AUTH"), nil
}

// tlsConfig returns what the TLS flags ask for, nil for none.
func (c *connection) tlsConfig() (*tls.Config, error) {
	if !c.tls {
		if c.ca != "" || c.cert != "" || c.key != "" || c.sni != "" || c.insecure {
			return nil, errors.New("--cacert, --cert, --key, --sni and --insecure need --tls")
		}
		return nil, nil
	}
	config := &tls.Config{ServerName: c.sni, InsecureSkipVerify: c.insecure, MinVersion: tls.VersionTLS12}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--cacert %s holds no certificate", c.ca)
		}
	}
	if (c.cert != "") != (c.key != "") {
		return nil, errors.New("--cert and --key need each other")
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, fmt.Errorf("--cert, --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// nodeName is how a node is called in all that is printed, as in the library's errors.
func nodeName(n rueidis.ClientOption) string {
	name := strings.Join(n.InitAddress, ",")
	if n.Sentinel.MasterSet != "" {
		name = n.Sentinel.MasterSet + "@" + name
	}
	return name
}

// client connects to one node without the library, for commands that only look: they need no marker, and write none.
func (c *connection) client(option rueidis.ClientOption) (rueidis.Client, error) {
	option.ForceSingleClient = true
	option.DisableCache = true
	option.DisableRetry = true
	option.PipelineMultiplex = -1
	option.ConnWriteTimeout = c.timeout
	return rueidis.NewClient(option)
}

// looker is a node that is looked at from outside.
type looker struct {
	name   string
	client rueidis.Client
	err    error // why there is no client
}

// lookers connects to all nodes at once.
func (c *call) lookers() (lookers []*looker, hangUp func(), err error) {
	nodes, err := c.nodes.options()
	if err != nil {
		return nil, nil, err
	}
	for _, n := range nodes {
		lookers = append(lookers, &looker{name: nodeName(n)})
	}
	eachOf(lookers, func(i int, l *looker) {
		l.client, l.err = c.nodes.client(nodes[i])
		if l.err != nil {
			l.err = node.ConnectionFault(l.err)
		}
	})
	hangUp = func() {
		eachOf(lookers, func(_ int, l *looker) {
			if l.client != nil {
				l.client.Close()
			}
		})
	}
	return lookers, hangUp, nil
}

// eachOf does something for each element at once, and returns when all are done.
func eachOf[T any](list []T, do func(int, T)) {
	var wg sync.WaitGroup
	for i, e := range list {
		wg.Go(func() { do(i, e) })
	}
	wg.Wait()
}
