/* Tells valgrind of the stacks of Ruby's fibers (bin/memory --valgrind). Ruby does so itself only if it was built beside valgrind's
 * headers. Otherwise a switch to another fiber looks like one large frame on the same stack, and valgrind takes the memory in
 * between for freed or for never written.
 *
 * Ruby maps the memory of several stacks at once, and then protects the first page of each, its guard. So a stack begins after a
 * guard and ends at the next one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <valgrind/valgrind.h>

/* Mappings for stacks, and stacks in them. */
enum { MAPPINGS = 1024, STACKS = 1 << 17 };

struct stack {
  char *start, *end;
  unsigned id;
};

static struct { char *start, *end; } mappings[MAPPINGS];
static struct stack stacks[STACKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void map(char *start, size_t length) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAPPINGS; i++) {
    if (mappings[i].start) continue;
    mappings[i].start = start;
    mappings[i].end = start + length;
    break;
  }
  pthread_mutex_unlock(&lock);
}

/* The stack in which the guard lies ends at it. */
static void shorten(char *guard) {
  for (int i = 0; i < STACKS; i++) {
    struct stack *stack = &stacks[i];
    if (guard < stack->start || guard >= stack->end) continue;
    stack->end = guard;
    VALGRIND_STACK_CHANGE(stack->id, stack->start, guard - 1);
  }
}

static void begin(char *start, char *end) {
  for (int i = 0; i < STACKS; i++) {
    if (stacks[i].start) continue;
    stacks[i] = (struct stack){start, end, VALGRIND_STACK_REGISTER(start, end - 1)};
    return;
  }
}

static void protect(char *guard, size_t length) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAPPINGS; i++) {
    if (guard < mappings[i].start || guard >= mappings[i].end) continue;
    shorten(guard);
    begin(guard + length, mappings[i].end);
    break;
  }
  pthread_mutex_unlock(&lock);
}

static void unmap(char *start, size_t length) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAPPINGS; i++) {
    if (mappings[i].start >= start && mappings[i].end <= start + length) mappings[i].start = mappings[i].end = NULL;
  }
  for (int i = 0; i < STACKS; i++) {
    if (!stacks[i].start || stacks[i].start < start || stacks[i].end > start + length) continue;
    VALGRIND_STACK_DEREGISTER(stacks[i].id);
    stacks[i].start = stacks[i].end = NULL;
  }
  pthread_mutex_unlock(&lock);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
  void *start = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
  if (start != MAP_FAILED && flags & MAP_STACK) map(start, length);
  return start;
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

int mprotect(void *address, size_t length, int protection) {
  int result = syscall(SYS_mprotect, address, length, protection);
  if (result == 0 && protection == PROT_NONE) protect(address, length);
  return result;
}

int munmap(void *address, size_t length) {
  unmap(address, length);
  return syscall(SYS_munmap, address, length);
}
