// Package bench measures redlock beside other libraries, in one run, on redis-server processes of its own: figures of
// two runs, or of two machines, say nothing about each other. Each peer locks in a process of its own (cmd/worker), so
// that neither its garbage nor its goroutines weigh on another. The peers take turns, round after round; what is shown is
// the median of the rounds, and how far apart the quartiles are. Ratios are taken within a round: another process's burst
// then spoils one round and not the ratio.
//
//	go run ./cmd/compare                  # everything, as docs/benchmarks.md has it
//	go run ./cmd/compare -list            # the names of all conditions
//	go run ./cmd/compare -run 'pairs/unix/nodes=5/callers=(16|64)$' -peers '^redlock$|redsync/rueidis|fan-out$'
//	go run ./cmd/compare -run 'hold/.*locks=100000'
//
// The first peer is redlock as it is in the working tree; the column "redlock ×" says how often its rate is that of the
// row. Another commit of it is one more peer, in the same interleaved run:
//
//	go run ./cmd/compare -run 'pairs/.*callers=(1|16|64)$' -peers '^redlock' -against HEAD~1
//
// For whoever works on one thing: -rounds and -each make a run longer or shorter, -profile DIR leaves a CPU profile of each
// worker there. -out DIR keeps medians and quartiles, tables and plots, and -from FILE,FILE shows what was kept instead of
// measuring. What docs/ has is written by
//
//	go run ./cmd/compare -out ../docs/benchmarks
package bench
