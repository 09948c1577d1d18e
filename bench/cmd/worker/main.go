// Command worker locks with one peer, as it is told over RPC on its standard input and output. bench starts it, once for
// each peer and each commit that is measured.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/redlock-go/redlock/bench/client"
)

func main() {
	conn := struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout}
	if err := client.Serve(conn); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}
