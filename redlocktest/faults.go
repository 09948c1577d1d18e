package redlocktest

import "time"

// faults is what a node's network, or one client's link to it, does to messages. Both apply to each message.
type faults struct {
	requestDelay, replyDelay   func() time.Duration // nil: none
	requestSilent, replySilent bool
}

// fixed is a delay that does not change.
func fixed(d time.Duration) func() time.Duration {
	if d == 0 {
		return nil
	}
	return func() time.Duration { return d }
}

func draw(f func() time.Duration) time.Duration {
	if f == nil {
		return 0
	}
	return max(f(), 0)
}
