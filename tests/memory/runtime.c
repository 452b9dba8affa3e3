/* What AddressSanitizer's runtime must know of Ruby's machine stacks, linked into one library with it (bin/check memory).
 *
 * Instrumented code marks the gaps between the variables of its frame as poisoned, and takes the marks away when it returns.
 * On three ways out of a frame the marks stay, and would be reported as errors of the next frame at this place:
 *
 * - a longjmp of Ruby's, which is inlined and so unknown to the runtime. It ends in rb_protect;
 * - a function that does not return. The runtime unpoisons the stack of the thread, but a fiber has another one;
 * - a fiber that is collected while it waits. Ruby gives its stack back with madvise(2), and uses it again.
 *
 * Memory below the stack pointer belongs to no frame, so to unpoison it hides no error.
 *
 * The stack of an allocation is read by its frame pointers, within the bounds of the thread's stack. On a fiber that leaves the
 * runtime's own frame, and with it no caller by which LeakSanitizer's reports could be judged. There the frames above are read
 * here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The runtime's, from <sanitizer/asan_interface.h>, which not every compiler has. */
void __asan_unpoison_memory_region(void const volatile *start, size_t size);

/* Bytes of a stack that are unpoisoned at once: more than the frames of the extension in one call of a hook. */
enum { SPAN = 256 * 1024, RED_ZONE = 128 };

void __asan_handle_no_return(void) {
  __asan_unpoison_memory_region(__builtin_frame_address(0), SPAN);
}

uintptr_t rb_protect(uintptr_t (*function)(uintptr_t), uintptr_t argument, int *state) {
  static uintptr_t (*rubys)(uintptr_t (*)(uintptr_t), uintptr_t, int *);
  int jumped = 0;
  if (!rubys) rubys = dlsym(RTLD_NEXT, "rb_protect");
  uintptr_t result = rubys(function, argument, &jumped);
  if (jumped) __asan_unpoison_memory_region((char *)__builtin_frame_address(0) - SPAN, SPAN - RED_ZONE);
  if (state) *state = jumped;
  return result;
}

int madvise(void *start, size_t length, int advice) {
  int result = syscall(SYS_madvise, start, length, advice);
  if (result == 0) __asan_unpoison_memory_region(start, length);
  return result;
}

/* The runtime's BufferedStackTrace. */
struct trace {
  uintptr_t const *frames;
  uint32_t size, tag;
  uintptr_t buffer[255];
};

/* Frames that are read of a fiber's stack, and bytes from one to the next: the VM's own code may have something else in the
 * register of the frame pointer. */
enum { FRAMES = 8, FRAME = 16 * 1024 };

#define UNWIND(prefix) prefix##_ZN11__sanitizer18BufferedStackTrace10UnwindImplEmmPvbj
void UNWIND(__real_)(struct trace *, uintptr_t, uintptr_t *, void *, _Bool, uint32_t);

void UNWIND(__wrap_)(struct trace *trace, uintptr_t place, uintptr_t *frame, void *context, _Bool fast, uint32_t depth) {
  UNWIND(__real_)(trace, place, frame, context, fast, depth);
  if (!fast || trace->size != 1 || trace->frames != trace->buffer) return;
  while (trace->size < depth && trace->size < FRAMES) {
    uintptr_t *next = (uintptr_t *)frame[0];
    trace->buffer[trace->size++] = frame[1];
    if (next <= frame || next > frame + FRAME / sizeof *frame || (uintptr_t)next % sizeof *next != 0) break;
    frame = next;
  }
}
