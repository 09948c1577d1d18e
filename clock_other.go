//go:build !linux

package redlock

import "time"

// suspendClock knows no clock that counts suspend on this platform, so it takes every forward step of the wall
// clock for a suspend: a guard may end early, never late.
type suspendClock struct{ total time.Duration }

func newSuspendClock() *suspendClock { return &suspendClock{} }

func (s *suspendClock) asleep(_, stepped time.Duration) time.Duration {
	s.total += max(0, stepped)
	return s.total
}
