/* stack.h - the depth that a recursion may reach on the current thread's stack.
 *
 * Readers of untrusted files bound their depth by a number.  On a stack of the usual size that number decides.  On a small stack
 * (256 KB, the default of some C libraries) the recursion also compares its frame with the end of the stack:
 *     uintptr_t floor = mt_stack_floor();                 // once, before the recursion
 *     if (mt_stack_low(floor)) return mt_fail(...);       // at each level */
#ifndef MT_BASE_STACK_H
#define MT_BASE_STACK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Bytes that the program needs of a stack; threads of ours get no less (thread.h). */
enum { MT_STACK_LEAST = 256 << 10 };

/* For main(): raises a lower limit on its stack (ulimit -s); fails if the system does not allow that. */
mt_rc mt_stack_raise(mt_err *err);

/* The lowest address that a recursion of this thread may reach.  Leaf calls have room below it.  1: the stack is unknown. */
uintptr_t mt_stack_floor(void);

static inline bool mt_stack_low(uintptr_t floor) { return (uintptr_t)__builtin_frame_address(0) < floor; }

#endif
