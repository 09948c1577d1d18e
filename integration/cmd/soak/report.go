package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// row is one line of the table.
type row struct{ what, value string }

// rows is the verdict as a table.
func (v *verdict) rows() []row {
	n := func(i int) string { return fmt.Sprint(i) }
	rows := []row{
		{"acquisitions", n(v.acquired)},
		{"takeovers (ForceAcquire)", n(v.takeovers)},
		{"takeovers at once (ForceAcquireNow)", n(v.takeoversNow)},
	}
	total := 0
	for _, i := range v.faults {
		total += i
	}
	rows = append(rows, row{"faults injected", n(total)})
	rows = append(rows, sorted("  ", v.faults)...)
	rows = append(rows, row{"calls that got no lock", n(sum(v.failures))})
	rows = append(rows, sorted("  ", v.failures)...)
	rows = append(rows, row{"guards released while alive", n(v.released)}, row{"guards whose process was killed", n(v.processesKilled)})
	rows = append(rows, row{"lost guards", n(sum(v.lost))})
	rows = append(rows, sorted("  ", v.lost)...)
	return append(rows,
		row{"writes to the register", n(v.writes)},
		row{"stale writes refused by the fence", n(v.refused)},
		row{"  whose writer had seen Err()==nil just before", n(v.refusedLooked)},
		row{"stale writes accepted", n(v.staleAccepted)},
		row{"overlaps seen", n(v.overlaps)},
		row{"tokens out of order", n(v.tokensOut)},
		row{"slots of the semaphore taken", n(v.slotsTaken)},
		row{"most slots held at once", fmt.Sprintf("%d of %d", v.slotsAtOnce, poolSlots)},
		row{"guards that read", n(v.reads)},
		row{"most that read at once", n(v.readsAtOnce)},
		row{"worst time from loss to context end, by the clock", v.byClock.String()},
		row{"worst time from call of a takeover to context end", v.byTakeover.String()},
		row{"worst unavailability beyond one lease, a majority up", v.unavailable.String()},
		row{"worst unavailability beyond one lease, after a majority was away", v.afterOut.String()},
		row{"worst return of a call, beyond its context's end", v.longestCall.String()},
		row{"violations", n(len(v.violations))},
	)
}

func sum(m map[string]int) (n int) {
	for _, i := range m {
		n += i
	}
	return n
}

func sorted(indent string, m map[string]int) (rows []row) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		rows = append(rows, row{indent + k, fmt.Sprint(m[k])})
	}
	return rows
}

// places tells where the worst was.
func (v *verdict) places(out io.Writer) {
	for _, w := range []struct {
		what string
		*worst
	}{{"by the clock", &v.byClock}, {"takeover", &v.byTakeover}, {"unavailability", &v.unavailable}, {"after a majority was away", &v.afterOut}} {
		fmt.Fprintf(out, "worst %s: %v, %s\n", w.what, w.worst, w.where)
	}
}

// shown is how many violations are told; one that is real brings many.
const shown = 20

func (v *verdict) print(out io.Writer) {
	rows := v.rows()
	width := 0
	for _, r := range rows {
		width = max(width, len(r.what))
	}
	for _, r := range rows {
		fmt.Fprintf(out, "| %-*s | %22s |\n", width, r.what, r.value)
	}
	for i, violation := range v.violations {
		if i == shown {
			fmt.Fprintf(out, "and %d more\n", len(v.violations)-shown)
			break
		}
		fmt.Fprintf(out, "VIOLATION %s\n", violation)
	}
}
