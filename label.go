package redlock

import (
	"fmt"
	"os"
	"path/filepath"
)

// Label says who holds the lock, for people: nodes store it with the lock, and [HeldError], [Locker.Inspect], logs and
// [Guard.String] show it. Any bytes will do, at most 128. Without this option it is the program's name, process id and host,
// cron[4711]@web-3, or nothing where LockerOption.NoLabel says so; an empty one is none.
func Label(text string) HoldOption {
	return func(h *hold) {
		switch {
		case len(text) > maxLabel:
			h.refuse("the Label has %d bytes: it must have at most %d", len(text), maxLabel)
		case h.labeled && h.label != text:
			h.refuse("Label(%q) contradicts Label(%q): one lock has one of them", text, h.label)
		}
		h.label, h.labeled = text, true
	}
}

const maxLabel = 128

// ID returns the random id of the lock's holder: what HeldError and Inspect show of it, and nodes store.
func (g *Guard) ID() string { return g.life.owner }

// programLabel returns the label of the locks of this program.
func programLabel() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	const most = (maxLabel - len("[]@") - 20) / 2 // of a name: a process id has at most 20 digits
	program := filepath.Base(os.Args[0])
	return fmt.Sprintf("%s[%d]@%s", program[:min(len(program), most)], os.Getpid(), host[:min(len(host), most)])
}

// named returns an owner with its label.
func named(owner, label string) string {
	if label == "" {
		return owner
	}
	return fmt.Sprintf("%s (%s)", owner, printable(label))
}

// printable returns a label as one can read it in a line of text.
func printable(label string) string {
	for _, c := range label {
		if c < ' ' || c == 0x7f || c == '\ufffd' {
			return fmt.Sprintf("%q", label)
		}
	}
	return label
}
