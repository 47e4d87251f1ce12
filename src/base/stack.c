#define _GNU_SOURCE /* pthread_getattr_np */
#include "base/stack.h"

#include "base/units.h"

#include <pthread.h>
#include <sys/resource.h>

/* Room for leaf calls: error messages are formatted on the stack, by us and by the C library. */
enum { RESERVED_BYTES = 40 << 10 };

static uintptr_t lowest_address(void)
{
#ifdef __linux__
    pthread_attr_t attr;
    void *low = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attr)) return 0;
    if (pthread_attr_getstack(&attr, &low, &bytes)) low = NULL;
    pthread_attr_destroy(&attr);
    return (uintptr_t)low;
#else
    return 0;
#endif
}

mt_rc mt_stack_raise(mt_err *err)
{
    enum { USUAL = 8 << 20 };
    struct rlimit l;
    if (getrlimit(RLIMIT_STACK, &l) || l.rlim_cur >= MT_STACK_LEAST) return MT_OK;
    const rlim_t was = l.rlim_cur;
    l.rlim_cur = l.rlim_max < USUAL ? l.rlim_max : USUAL;
    if (l.rlim_cur >= MT_STACK_LEAST && setrlimit(RLIMIT_STACK, &l) == 0) return MT_OK;
    return mt_fail(err, MT_ENOMEM, "the stack is limited to %s (ulimit -s), and at least %s are needed: raise that limit",
                   mt_bytes_text(was).s, mt_bytes_text(MT_STACK_LEAST).s);
}

uintptr_t mt_stack_floor(void)
{
    static _Thread_local uintptr_t floor; /* on the main thread the C library reads /proc to find out */
    if (!floor) {
        uintptr_t low = lowest_address();
        floor = low ? low + RESERVED_BYTES : 1;
    }
    return floor;
}
