package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/redlock-go/redlock/internal/node"
)

// text is a snapshot for people: of all there are, or of what was named.
func (s *snapshot) text(named bool) string {
	var b strings.Builder
	if named {
		if s.Locks[0].Votes > 0 || s.Locks[0].Waiters > 0 || len(s.Semaphores)+len(s.RWLocks) == 0 {
			s.Locks[0].detail(&b, s.Quorum)
		}
		apart := func() {
			if b.Len() > 0 {
				b.WriteString("\n")
			}
		}
		for _, semaphore := range s.Semaphores {
			apart()
			semaphore.detail(&b, s)
		}
		for _, rw := range s.RWLocks {
			apart()
			rw.detail(&b, s.Quorum)
		}
		return b.String()
	}
	s.errors(&b)
	if len(s.Locks)+len(s.Semaphores)+len(s.RWLocks) == 0 {
		fmt.Fprintf(&b, "no locks on %d of %d nodes\n", s.answered(), len(s.Nodes))
		return b.String()
	}
	table := newTable(&b)
	begun := false
	begin := func(header string) {
		if begun {
			fmt.Fprintln(table)
		}
		fmt.Fprintln(table, header)
		begun = true
	}
	if len(s.Locks) > 0 {
		begin("NAME\tHOLDER\tLABEL\tTOKEN\tLEFT\tVOTES\tWAITING")
		for _, l := range s.Locks {
			fmt.Fprintf(table, "%s\t%s\t%d\n", shownName(l.Name), l.row(), l.Waiters)
		}
	}
	if len(s.Semaphores) > 0 {
		begin("SEMAPHORE\tSLOT\tHOLDER\tLABEL\tTOKEN\tLEFT\tVOTES\tWAITING")
	}
	for _, semaphore := range s.Semaphores {
		for _, slot := range semaphore.Slots {
			fmt.Fprintf(table, "%s\t%d of %s\t%s\t%d\n", shownName(semaphore.Name), slot.Slot, semaphore.shownK(), slot.row(), semaphore.Waiters)
		}
	}
	if len(s.RWLocks) > 0 {
		begin("READER-WRITER\tSIDE\tHOLDER\tLABEL\tTOKEN\tLEFT\tVOTES\tWAITING")
	}
	for _, rw := range s.RWLocks {
		there := rw.there()
		for _, l := range there {
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\n", shownName(rw.Name), l.Side, l.row(), rw.Waiters)
		}
		if len(there) == 0 {
			fmt.Fprintf(table, "%s\t-\t%s\t%d\n", shownName(rw.Name), rw.Writer.row(), rw.Waiters)
		}
	}
	table.Flush()
	return b.String()
}

// errors lists the nodes that did not answer.
func (s *snapshot) errors(b *strings.Builder) {
	for _, n := range s.Nodes {
		if n.Error != "" {
			fmt.Fprintf(b, "%s: %s\n", n.Node, n.Error)
		}
	}
}

// row is what stands in a table of a lock, or a slot: holder, label, token, time left and votes.
func (l *lockStatus) row() string {
	token, left := "-", "-"
	if l.Held || l.Kept {
		token, left = strconv.FormatUint(l.FencingToken, 10), shownLeft(l.LeftMillis)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d/%d", shownHolder(l.Holder, l.Kept), cmp.Or(shownName(l.Label), "-"), token, left, l.Votes, len(l.Nodes))
}

// shownHolder is who has a lock, in a table.
func shownHolder(id string, kept bool) string {
	if kept {
		return "nobody, kept"
	}
	return cmp.Or(shownName(id), "-")
}

// detail is one lock for people.
func (l *lockStatus) detail(b *strings.Builder, quorum int) {
	facts := func(left string) {
		if l.Label != "" {
			fmt.Fprintf(b, "  label          %s\n", shownName(l.Label))
		}
		fmt.Fprintf(b, "  fencing token  %d\n  %s%s\n", l.FencingToken, left, shownLeft(l.LeftMillis))
	}
	name := shownName(l.Name)
	if l.Slot > 0 {
		name = fmt.Sprintf("slot %d of %s", l.Slot, name)
	}
	switch {
	case l.Held:
		fmt.Fprintf(b, "%s is held by %s\n", name, shownName(l.Holder))
		facts("lease left     ")
	case l.Kept:
		fmt.Fprintf(b, "%s is held by nobody any more, and kept from others\n", name)
		facts("free in        ")
	case l.Votes > 0:
		fmt.Fprintf(b, "%s is held by nobody: %s has too few votes\n", name, cmp.Or(shownName(l.Holder), "who kept it"))
	default:
		fmt.Fprintf(b, "%s is free\n", name)
	}
	fmt.Fprintf(b, "  votes          %d of %d, quorum is %d\n  waiting        %d\n\n", l.Votes, len(l.Nodes), quorum, l.Waiters)
	table := newTable(b)
	fmt.Fprintln(table, "NODE\tHOLDER\tLEFT\tWAITING")
	for _, n := range l.Nodes {
		if n.Error != "" {
			fmt.Fprintf(table, "%s\t%s\n", n.Node, n.Error)
			continue
		}
		left := "-"
		if n.Holder != "" || n.Kept {
			left = shownLeft(n.LeftMillis)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\n", n.Node, shownHolder(n.Holder, n.Kept), left, n.Waiters)
	}
	table.Flush()
}

// detail is one semaphore for people.
func (s *semaphoreStatus) detail(b *strings.Builder, of *snapshot) {
	fmt.Fprintf(b, "%s is a semaphore: %d of %s slots are held\n  waiting        %d\n", shownName(s.Name), s.Held, s.shownK(), s.Waiters)
	for i, k := range s.KByNode {
		if k != 0 && k != s.K {
			fmt.Fprintf(b, "  %s says that it has %d slots: it is being resized, or was while that node was away\n", of.Nodes[i].Node, k)
		}
	}
	of.errors(b)
	b.WriteString("\n")
	table := newTable(b)
	fmt.Fprintln(table, "SLOT\tHOLDER\tLABEL\tTOKEN\tLEFT\tVOTES")
	for _, slot := range s.Slots {
		fmt.Fprintf(table, "%d\t%s\n", slot.Slot, slot.row())
	}
	table.Flush()
}

func (s *semaphoreStatus) shownK() string {
	if s.K == 0 {
		return "?"
	}
	return strconv.Itoa(s.K)
}

// there is who has it by any node: the writer first, then readers.
func (rw *rwStatus) there() (there []lockStatus) {
	if rw.Writer.Votes > 0 {
		there = append(there, rw.Writer)
	}
	return append(there, rw.Readers...)
}

// detail is one reader-writer lock for people.
func (rw *rwStatus) detail(b *strings.Builder, quorum int) {
	there := rw.there()
	count := map[string]int{}
	for _, l := range there {
		if l.Held {
			count[l.Side]++
		}
	}
	fmt.Fprintf(b, "%s is a reader-writer lock: %s, %s\n  quorum         %d of %d\n  waiting        %d\n\n", shownName(rw.Name),
		shownCount(count[writerSide], writerSide), shownCount(count[readerSide], readerSide), quorum, len(rw.Writer.Nodes), rw.Waiters)
	if len(there) > 0 {
		table := newTable(b)
		fmt.Fprintln(table, "SIDE\tHOLDER\tLABEL\tTOKEN\tLEFT\tVOTES")
		for _, l := range there {
			fmt.Fprintf(table, "%s\t%s\n", l.Side, l.row())
		}
		table.Flush()
		b.WriteString("\n")
	}
	table := newTable(b)
	fmt.Fprintln(table, "NODE\tSIDE\tHOLDER\tLEFT\tWAITING")
	for i, n := range rw.Writer.Nodes {
		if n.Error != "" {
			fmt.Fprintf(table, "%s\t%s\n", n.Node, n.Error)
			continue
		}
		nobody := true
		for _, l := range there {
			if at := l.Nodes[i]; at.Holder != "" || at.Kept {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\n", n.Node, l.Side, shownHolder(at.Holder, at.Kept), shownLeft(at.LeftMillis), n.Waiters)
				nobody = false
			}
		}
		if nobody {
			fmt.Fprintf(table, "%s\t-\t-\t-\t%d\n", n.Node, n.Waiters)
		}
	}
	table.Flush()
}

func shownCount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func shownLeft(millis int64) string {
	if millis < 0 {
		return "no end"
	}
	return node.Rounded(time.Duration(millis) * time.Millisecond).String()
}

// shownName is a lock's name as text: it may hold any bytes, and a terminal obeys some of them.
func shownName(name string) string {
	for _, r := range name {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return strconv.Quote(name)
		}
	}
	return name
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
