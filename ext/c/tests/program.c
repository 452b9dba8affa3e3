/* A C program on the reactor: a descriptor, a timer, a thread, a loop of poll(2) around it, and invalid arguments. */

#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reactor.h"

enum { READER = 1, TIMER, THREAD, FILE_TOKEN };

static void *notify(void *handle) {
  assert(reactor_notify(handle, THREAD) == 0);
  reactor_handle_free(handle);
  return NULL;
}

/* Turns until token is reported, and returns the reasons. One event at a time: further ones are kept for later turns. */
static uint32_t until(struct reactor *reactor, uintptr_t token) {
  struct reactor_event event;
  for (;;) {
    int count = reactor_turn(reactor, &event, 1, -1);
    assert(count >= 0 && count <= 1);
    if (count == 1 && event.token == token) return event.ready;
  }
}

static void conversation(struct reactor *reactor) {
  int ends[2];
  char buffer[8];
  assert(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  assert(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
  for (int round = 0; round < 3; round++) {
    uint64_t wait;
    assert(reactor_wait(reactor, ends[0], 7, REACTOR_READABLE, READER, &wait) == 0);
    assert(write(ends[1], "hello", 5) == 5);
    assert(until(reactor, READER) & REACTOR_READABLE);
    assert(reactor_end(reactor, wait) & REACTOR_READABLE);
    assert(reactor_end(reactor, wait) == 0);
    assert(read(ends[0], buffer, sizeof buffer) == 5);
    assert(read(ends[0], buffer, sizeof buffer) == -1 && errno == EAGAIN);
    reactor_drained(reactor, ends[0], 7, REACTOR_READABLE);
  }
  uint64_t wait;
  assert(reactor_wait(reactor, ends[0], 7, REACTOR_READABLE, READER, &wait) == 0);
  reactor_deregister(reactor, ends[0]);
  assert(until(reactor, READER) == REACTOR_ERROR);
  assert(reactor_end(reactor, wait) == REACTOR_ERROR);
  close(ends[0]);
  close(ends[1]);
}

static void threads_and_timers(struct reactor *reactor) {
  pthread_t thread;
  assert(pthread_create(&thread, NULL, notify, reactor_handle(reactor)) == 0);
  uint64_t never = reactor_timer(reactor, UINT64_MAX, TIMER);
  assert(until(reactor, THREAD) == REACTOR_NOTIFIED);
  assert(reactor_cancel(reactor, never) == 1);
  assert(reactor_cancel(reactor, never) == 0);
  reactor_timer(reactor, 1000000, TIMER);
  assert(until(reactor, TIMER) == REACTOR_ELAPSED);
  assert(pthread_join(thread, NULL) == 0);

  struct reactor_handle *handle = reactor_handle(reactor);
  assert(reactor_wake(handle) == 0);
  struct reactor_event events[4];
  assert(reactor_turn(reactor, events, 4, -1) == 0);
  reactor_handle_free(handle);
}

/* A loop that polls the reactor's descriptor. */
static void inside_another_loop(struct reactor *reactor) {
  int ends[2];
  assert(pipe(ends) == 0);
  uint64_t wait;
  assert(reactor_wait(reactor, ends[0], 8, REACTOR_READABLE, READER, &wait) == 0);
  struct pollfd entry = {reactor_descriptor(reactor), POLLIN, 0};
  if (entry.fd >= 0) {
    assert(write(ends[1], "x", 1) == 1);
    assert(poll(&entry, 1, 20000) == 1);
    struct reactor_event events[4];
    int count = reactor_turn(reactor, events, 4, 0);
    assert(count == 1 && events[0].token == READER);
  }
  reactor_end(reactor, wait);
  reactor_deregister(reactor, ends[0]);
  close(ends[0]);
  close(ends[1]);
}

static void invalid_arguments(struct reactor *reactor) {
  uint64_t wait = 42;
  assert(reactor_wait(reactor, -1, 9, REACTOR_READABLE, 0, &wait) == -EBADF);
  assert(reactor_wait(reactor, 0, 9, 0, 0, &wait) == -EINVAL);
  assert(reactor_wait(reactor, 0, 9, 1000, 0, &wait) == -EINVAL);
  assert(reactor_end(reactor, UINT64_MAX) == 0);
  assert(reactor_cancel(reactor, UINT64_MAX) == 0);
  int file = open("/", O_RDONLY);
  assert(reactor_wait(reactor, file, 9, REACTOR_READABLE, FILE_TOKEN, &wait) == 1 && wait == 42);
  close(file);
  assert(reactor_open("select") == NULL && errno == EINVAL);
  assert(reactor_open("iocp") == NULL && errno == EOPNOTSUPP);
  reactor_close(NULL);
}

int main(void) {
  struct reactor *reactor = reactor_open(NULL);
  assert(reactor != NULL && strlen(reactor_backend(reactor)) > 0);
  conversation(reactor);
  threads_and_timers(reactor);
  inside_another_loop(reactor);
  invalid_arguments(reactor);
  printf("%s: fine\n", reactor_backend(reactor));
  struct reactor_handle *late = reactor_handle(reactor);
  reactor_close(reactor);
  assert(reactor_notify(late, 1) == 0);
  reactor_handle_free(late);
  return 0;
}
