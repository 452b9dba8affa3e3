/* The reactor for C: a readiness-event loop with a memory. Unix.
 *
 * Link with libreactor_c.a or libreactor_c.so, built by: cargo build --release -p reactor-c
 *
 * Rules. A reactor belongs to one thread at a time, and to one process; what other threads hold is a handle. A wait that was
 * begun is ended once by reactor_end, whether it was answered or not. reactor_deregister comes before close(2). Readiness may be
 * reported without reason: the system call decides. Functions that return int answer -errno on failure.
 *
 * Stable: what is here is only added to within one major version; struct reactor_event does not change.
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

/* What is waited for. */
#define REACTOR_READABLE 1u
#define REACTOR_PRIORITY 2u /* Linux only: -EOPNOTSUPP elsewhere. */
#define REACTOR_WRITABLE 4u
/* What else comes. A hang-up and an error answer every direction. */
#define REACTOR_READ_CLOSED 8u
#define REACTOR_HANGUP 16u
#define REACTOR_ERROR 32u
#define REACTOR_ELAPSED 64u   /* a timer */
#define REACTOR_NOTIFIED 128u /* reactor_notify */

struct reactor_event {
  uintptr_t token; /* the caller's */
  uint32_t ready;
};

/* Opens a reactor on the backend of this name, or on the best there is (NULL). NULL, and errno: EINVAL for an unknown name,
 * EOPNOTSUPP for one that cannot be had here, EMFILE, ENFILE, ENOMEM. */
struct reactor *reactor_open(const char *backend);

/* Closes it; its registrations end, its handles stay valid and reach nobody. NULL is allowed. */
void reactor_close(struct reactor *reactor);

/* The backend's name, a string that lives for ever. */
const char *reactor_backend(const struct reactor *reactor);

/* The driver's own descriptor, readable when reactor_turn would find something of the kernel's; -1 if it has none. It stays
 * the reactor's. */
int reactor_descriptor(const struct reactor *reactor);

/* Waits until descriptor is ready for some of interest; the event will carry token. owner numbers the object that owns
 * the descriptor and is never used again for another one; 0: nobody in particular, nothing is remembered.
 * 0: *wait is the number of the wait. 1: no wait was begun, the descriptor is always ready (a file). Otherwise -errno. */
int reactor_wait(struct reactor *reactor, int descriptor, uint64_t owner, uint32_t interest, uintptr_t token,
                 uint64_t *wait);

/* Ends a wait and returns its answer; 0 if there was none, or if it had ended. */
uint32_t reactor_end(struct reactor *reactor, uint64_t wait);

/* A call of the caller's own has just failed with EAGAIN: the next wait need not ask the kernel. */
void reactor_drained(struct reactor *reactor, int descriptor, uint64_t owner, uint32_t interest);

/* The descriptor is about to be closed: whoever waits for it is answered with REACTOR_ERROR. */
void reactor_deregister(struct reactor *reactor, int descriptor);

/* Reports token with REACTOR_ELAPSED after so many nanoseconds. */
uint64_t reactor_timer(struct reactor *reactor, uint64_t nanoseconds, uintptr_t token);

/* Stops a timer: 1, or 0 if it has elapsed or was stopped already. */
int reactor_cancel(struct reactor *reactor, uint64_t timer);

/* One turn: waits until there is something, at most so many nanoseconds (negative: for ever), and stores up to capacity
 * events; what does not fit comes with the next turn. How many there are, possibly none, or -errno. */
int reactor_turn(struct reactor *reactor, struct reactor_event *events, size_t capacity, int64_t nanoseconds);

/* What other threads hold; to be freed by them. */
struct reactor_handle *reactor_handle(const struct reactor *reactor);
void reactor_handle_free(struct reactor_handle *handle);

/* Reports token with REACTOR_NOTIFIED, from any thread. 0 or -errno. */
int reactor_notify(const struct reactor_handle *handle, uintptr_t token);

/* Ends the current turn, or the next one; from any thread, and from signal handlers. 0 or -errno. */
int reactor_wake(const struct reactor_handle *handle);

#ifdef __cplusplus
}
#endif

#endif
