/*
 * clockshim: a wall clock that a test controls, for one process and its children.
 *
 * Preloaded, it answers every question for the wall clock, and no other clock, with
 *
 *     shown + (host - base) * (1 + ppm / 1e6)
 *
 * where base, shown and ppm come from the file named by REDLOCK_CLOCKSHIM, mapped
 * into memory: a change is seen by the very next question, without a system call.
 *
 * The file holds a turn byte, padding up to 8, and two slots; the low bit of the turn
 * names the slot in force. The writer fills the other slot, then changes the turn. A
 * reader whose turn has changed meanwhile looks again. One byte cannot be seen half
 * written, and a writer that dies on the way leaves the old slot in force.
 *
 * Nothing here allocates or takes a lock: allocators ask for the time while they set
 * themselves up. For the same reason the host's clock is read by a plain system call
 * and not through the function we replace.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct slot {
	int64_t base_ns;  /* host time at which the clock showed ... */
	int64_t shown_ns; /* ... this */
	int64_t ppm;      /* how much faster than the host it goes; -1000000 stands still */
};

struct control {
	uint8_t turn;
	uint8_t padding[7];
	struct slot slots[2];
};

static const volatile struct control *control; /* NULL until set_up has run */

static void refuse(const char *why) {
	static const char name[] = "clockshim: ";
	ssize_t ignored = write(2, name, sizeof name - 1);
	ignored = write(2, why, strlen(why));
	(void)ignored;
	_exit(120);
}

/* A server that silently ran on the host's clock would make its test worthless. */
__attribute__((constructor)) static void set_up(void) {
	const char *path = getenv("REDLOCK_CLOCKSHIM");
	if (path == NULL)
		refuse("REDLOCK_CLOCKSHIM is not set\n");
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		refuse("the file named by REDLOCK_CLOCKSHIM cannot be opened\n");
	void *mapped = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED)
		refuse("the file named by REDLOCK_CLOCKSHIM cannot be mapped\n");
	close(fd);
	__atomic_store_n(&control, mapped, __ATOMIC_RELEASE);
}

static struct slot in_force(const volatile struct control *c) {
	for (;;) {
		uint8_t turn = __atomic_load_n(&c->turn, __ATOMIC_ACQUIRE);
		const volatile struct slot *from = &c->slots[turn & 1];
		struct slot s = {from->base_ns, from->shown_ns, from->ppm};
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&c->turn, __ATOMIC_RELAXED) == turn)
			return s;
	}
}

static int64_t shown(int64_t host_ns) {
	const volatile struct control *c = __atomic_load_n(&control, __ATOMIC_ACQUIRE);
	if (c == NULL)
		return host_ns;
	struct slot s = in_force(c);
	int64_t passed = host_ns - s.base_ns;
	/* In two parts: passed * ppm overflows after some hours. */
	int64_t extra = passed / 1000000 * s.ppm + passed % 1000000 * s.ppm / 1000000;
	return s.shown_ns + passed + extra;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int failed = (int)syscall(SYS_clock_gettime, id, ts);
	if (failed || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
		return failed;
	const int64_t second = 1000000000;
	int64_t ns = shown(ts->tv_sec * second + ts->tv_nsec);
	ts->tv_sec = ns / second;
	ts->tv_nsec = ns % second;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	/* Redis asks for the zone alone. volatile, because the header promises the
	 * compiler that tv is never NULL, and it would drop the check. */
	struct timeval *volatile out = tv;
	if (tz != NULL && syscall(SYS_gettimeofday, NULL, tz) != 0)
		return -1;
	if (out == NULL)
		return 0;
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	out->tv_sec = ts.tv_sec;
	out->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out) {
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return (time_t)-1;
	if (out != NULL)
		*out = ts.tv_sec;
	return ts.tv_sec;
}
