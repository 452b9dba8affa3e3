/* The reactor for C: a readiness-event loop that caches what the kernel has reported. Unix.
 *
 * Link with libreactor_c.a or libreactor_c.so, built by: cargo build --release -p reactor-c
 *
 * Rules. A reactor is used by one thread at a time and by one process. Other threads use a handle. Each wait that has begun is
 * ended once by reactor_end, answered or not. Call reactor_deregister before close(2). Readiness may be reported although the
 * next system call would block. Functions that return int return -errno on failure.
 *
 * Stability. Within one major version functions and constants are only added, and struct reactor_event does not change.
 */
#ifndef REACTOR_H
#define REACTOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reactor;
struct reactor_handle;

/* Directions of a wait. */
#define REACTOR_READABLE 1u
#define REACTOR_PRIORITY 2u /* Linux only: -EOPNOTSUPP elsewhere. */
#define REACTOR_WRITABLE 4u
/* Further reasons for an event. A hang-up and an error answer waits for any direction. */
#define REACTOR_READ_CLOSED 8u
#define REACTOR_HANGUP 16u
#define REACTOR_ERROR 32u
#define REACTOR_ELAPSED 64u   /* a timer */
#define REACTOR_NOTIFIED 128u /* reactor_notify */

struct reactor_event {
  uintptr_t token; /* the token that the wait or the timer was started with */
  uint32_t ready;
};

/* Opens a reactor on the backend of this name; NULL: on the platform's own. Returns NULL and sets errno on failure: EINVAL for
 * an unknown name, EOPNOTSUPP for a backend that is not available, EMFILE, ENFILE, ENOMEM. */
struct reactor *reactor_open(const char *backend);

/* Closes a reactor and ends its registrations. Its handles stay valid; their notifications are not reported. NULL is
 * allowed. */
void reactor_close(struct reactor *reactor);

/* The backend's name, a static string. */
const char *reactor_backend(const struct reactor *reactor);

/* The driver's own descriptor, readable while reactor_turn would find an event of the kernel; -1 if it has none. The reactor
 * owns it. */
int reactor_descriptor(const struct reactor *reactor);

/* Starts to wait until descriptor is ready for at least one direction of interest. The event will carry token. owner is the
 * number of the object that owns the descriptor; no other object may have it. With 0 nothing is cached.
 * Returns 0: *wait is the number of the wait. 1: no wait was begun, the descriptor is always ready (a file). Otherwise -errno. */
int reactor_wait(struct reactor *reactor, int descriptor, uint64_t owner, uint32_t interest, uintptr_t token,
                 uint64_t *wait);

/* Ends a wait and returns its answer; 0 if there was none, or if the wait has ended before. */
uint32_t reactor_end(struct reactor *reactor, uint64_t wait);

/* Reports that a call of the caller has just failed with EAGAIN. The next wait then makes no system call. */
void reactor_drained(struct reactor *reactor, int descriptor, uint64_t owner, uint32_t interest);

/* Ends the registration of a descriptor that is about to be closed. Its waits are answered with REACTOR_ERROR. */
void reactor_deregister(struct reactor *reactor, int descriptor);

/* Starts a timer: after this number of nanoseconds token is reported with REACTOR_ELAPSED. Returns its number. */
uint64_t reactor_timer(struct reactor *reactor, uint64_t nanoseconds, uintptr_t token);

/* Stops a timer. Returns 1; 0 if it has elapsed or was stopped already. */
int reactor_cancel(struct reactor *reactor, uint64_t timer);

/* One turn: waits for an event for at most this number of nanoseconds (negative: without limit), and stores up to capacity
 * events. Further events are stored by the next turn. Returns the number of events, possibly 0, or -errno. */
int reactor_turn(struct reactor *reactor, struct reactor_event *events, size_t capacity, int64_t nanoseconds);

/* A handle for other threads. Free it with reactor_handle_free. */
struct reactor_handle *reactor_handle(const struct reactor *reactor);
void reactor_handle_free(struct reactor_handle *handle);

/* Has the next turn report token with REACTOR_NOTIFIED. Any thread may call it, signal handlers may not. Returns 0 or
 * -errno. */
int reactor_notify(const struct reactor_handle *handle, uintptr_t token);

/* Ends the current turn or the next one. Any thread and any signal handler may call it. Returns 0 or -errno. */
int reactor_wake(const struct reactor_handle *handle);

#ifdef __cplusplus
}
#endif

#endif
