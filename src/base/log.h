/* log.h - notices from the library to people.
 *
 * The library never prints.  It hands each notice to one process-wide sink, which the program sets at start (and tests set to
 * check notices); without a sink, notices are dropped.  Errors do not come this way: they are returned (err.h). */
#ifndef MT_BASE_LOG_H
#define MT_BASE_LOG_H

typedef enum mt_log_level { MT_LOG_DEBUG, MT_LOG_INFO, MT_LOG_WARN } mt_log_level;

typedef void (*mt_log_sink)(void *user, mt_log_level level, const char *text);

/* Any thread may log; the sink is called under a lock, one notice at a time. */
void mt_log_set_sink(mt_log_sink sink, void *user);
void mt_log(mt_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define mt_debug(...) mt_log(MT_LOG_DEBUG, __VA_ARGS__)
#define mt_info(...)  mt_log(MT_LOG_INFO, __VA_ARGS__)
#define mt_warn(...)  mt_log(MT_LOG_WARN, __VA_ARGS__)

#endif
