// Loaded before a program (LD_PRELOAD): it stalls threads before calls whose order with other events a test could depend on, as a
// busy machine does. See bin/check stalls.
//
//   REACTOR_STALLS     of a thousand calls so many are stalled
//   REACTOR_STALL_US   each for up to so many microseconds
//
// A process is stalled at most MOST times, so that a program of many calls ends.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 3000 };

static atomic_int stalled;

static long number(const char *name) {
  const char *text = getenv(name);
  return text ? atol(text) : 0;
}

// A system call without the C library, whose functions are stalled.
static long system_call(long name, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "0"(name), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}

// Xorshift, for each thread from the place of its state and the processor's counter.
static uint64_t random_number(void) {
  static __thread uint64_t state;
  if (!state) state = (__builtin_ia32_rdtsc() ^ (uintptr_t)&state) | 1;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static void stall(void) {
  static long share = -1, longest;
  if (share < 0) {
    longest = number("REACTOR_STALL_US");
    share = number("REACTOR_STALLS");
  }
  uint64_t random = random_number();
  if ((long)(random % 1000) >= share || longest < 1 || atomic_fetch_add(&stalled, 1) >= MOST) return;
  long microseconds = (long)(random / 1000 % (uint64_t)longest);
  struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
  while (system_call(SYS_nanosleep, (long)&left, (long)&left, 0, 0, 0, 0) == -EINTR) continue;
}

#define STALLED(type, name, parameters, arguments) \
  type name parameters { \
    static type(*next) parameters; \
    if (!next) next = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
    stall(); \
    return next arguments; \
  }

STALLED(int, clock_gettime, (clockid_t clock, struct timespec *time), (clock, time))
STALLED(int, epoll_ctl, (int queue, int operation, int file, struct epoll_event *event), (queue, operation, file, event))
STALLED(int, epoll_wait, (int queue, struct epoll_event *events, int room, int timeout), (queue, events, room, timeout))
STALLED(int, poll, (struct pollfd *files, nfds_t count, int timeout), (files, count, timeout))
STALLED(int, ppoll, (struct pollfd *files, nfds_t count, const struct timespec *timeout, const sigset_t *mask), (files, count, timeout, mask))
STALLED(ssize_t, read, (int file, void *bytes, size_t length), (file, bytes, length))
STALLED(ssize_t, write, (int file, const void *bytes, size_t length), (file, bytes, length))

// io_uring has no wrapper in the C library.
long syscall(long name, ...) {
  va_list list;
  va_start(list, name);
  long given[6];
  for (int i = 0; i < 6; i++) given[i] = va_arg(list, long);
  va_end(list);
  if (name == SYS_io_uring_enter) stall();
  long result = system_call(name, given[0], given[1], given[2], given[3], given[4], given[5]);
  if (result >= 0 || result < -4095) return result;
  errno = (int)-result;
  return -1;
}
