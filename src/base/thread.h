/* thread.h - threads of the library, and the locale they work in.
 *
 * A program may choose a locale that writes 0.5 as "0,5" (setlocale).  strtod, printf and strftime follow it, files must not: so
 * every thread of ours works in the C locale, and so does a caller's thread while it is inside the library (api/). */
#ifndef MT_BASE_THREAD_H
#define MT_BASE_THREAD_H

#include <locale.h>
#include <pthread.h>
#include <stdbool.h>

/* Start run(arg) on a new thread, with a stack of at least MT_STACK_LEAST.  False: the system refused it, or a test did (MT_FAULT_THREAD). */
bool mt_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

/* Switch the calling thread to the C locale; returns the locale to give back to mt_locale_leave. */
locale_t mt_locale_enter(void);
void mt_locale_leave(locale_t before);

#endif
