package redlock

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspendClock reads CLOCK_BOOTTIME, which runs on while the machine is suspended.
type suspendClock struct{ base time.Duration }

func newSuspendClock() suspendClock { return suspendClock{base: bootTime()} }

// asleep returns the time spent in suspend since the clock was made, awake being the monotonic time since then.
func (s suspendClock) asleep(awake, _ time.Duration) time.Duration {
	return bootTime() - s.base - awake
}

func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("redlock: clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // Linux has it since 2.6.39; Go needs 3.2
	}
	return time.Duration(ts.Nano())
}
