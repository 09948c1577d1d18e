// Package bench measures redlock beside other libraries, in one run, on redis-server
// processes of its own: figures of two runs, or of two machines, say nothing about each
// other.
//
// The benchmarks of the test binary are for whoever works on one peer:
//
//	go test -run '^$' -bench 'AcquireRelease/nodes=3/callers=16' -benchmem .
//
// The command prints the comparison of docs/benchmarks.md:
//
//	go run ./cmd/compare
package bench
