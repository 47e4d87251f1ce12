#include "base/log.h"

#include "base/utf8.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mt_log_sink the_sink;
static void *the_user;

void mt_log_set_sink(mt_log_sink sink, void *user)
{
    pthread_mutex_lock(&lock);
    the_sink = sink;
    the_user = user;
    pthread_mutex_unlock(&lock);
}

void mt_log(mt_log_level level, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mt_utf8_tame(text);
    pthread_mutex_lock(&lock);
    if (the_sink) the_sink(the_user, level, text);
    pthread_mutex_unlock(&lock);
}
