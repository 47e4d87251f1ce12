#include "base/thread.h"

#include "base/fault.h"
#include "base/stack.h"

#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t plain; /* never freed: threads may use it until the process ends */

static void make_plain(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

locale_t mt_locale_enter(void)
{
    pthread_once(&once, make_plain);
    return uselocale(plain); /* without memory for it: changes nothing */
}

void mt_locale_leave(locale_t before) { uselocale(before); }

typedef struct beginning {
    void *(*run)(void *arg);
    void *arg;
} beginning;

static void *begin(void *arg)
{
    beginning b = *(beginning *)arg;
    free(arg);
    mt_locale_enter();
    return b.run(b.arg);
}

bool mt_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    if (mt_fault(MT_FAULT_THREAD)) return false;
    beginning *b = malloc(sizeof *b); /* not mt_malloc: to callers this is a thread that did not start */
    if (!b) return false;
    *b = (beginning){ run, arg };
    pthread_attr_t attr;
    bool started = pthread_attr_init(&attr) == 0;
    if (started) {
        size_t bytes = 0; /* the default, which follows ulimit -s */
        if (pthread_attr_getstacksize(&attr, &bytes) == 0 && bytes < MT_STACK_LEAST)
            (void)pthread_attr_setstacksize(&attr, MT_STACK_LEAST);
        started = pthread_create(out, &attr, begin, b) == 0;
        pthread_attr_destroy(&attr);
    }
    if (!started) free(b);
    return started;
}
