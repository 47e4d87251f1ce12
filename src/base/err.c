#include "base/err.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mt_rc mt__fail(mt_err *err, mt_rc rc, const char *fmt, ...)
{
    if (!err) return rc;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    mt_utf8_tame(err->msg);
    err->rc = rc;
    return rc;
}

mt_rc mt__fail_errno(mt_err *err, mt_rc rc, const char *fmt, ...)
{
    if (!err) return rc;
    int saved = errno;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    size_t n = strlen(err->msg);
    snprintf(err->msg + n, sizeof err->msg - n, ": %s", strerror(saved));
    mt_utf8_tame(err->msg);
    err->rc = rc;
    return rc;
}

mt_rc mt_note(mt_err *err, const char *fmt, ...)
{
    if (!err) return MT_EINTERNAL;
    char context[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    mt_utf8_tame(context);
    char old[MT_ERR_MSG_BYTES];
    memcpy(old, err->msg, sizeof old);
    /* A message too long to hold loses its tail, never its head: the newest context is what locates it. */
    int n = snprintf(err->msg, sizeof err->msg, "%s: ", context);
    if (n > 0 && (size_t)n < sizeof err->msg) snprintf(err->msg + n, sizeof err->msg - (size_t)n, "%s", old);
    return err->rc;
}

const char *mt_rc_name(mt_rc rc)
{
    static const char *const names[] = {
#define MT_RC_NAME(name, text) "MT_" #name,
        MT_RC_LIST(MT_RC_NAME)
#undef MT_RC_NAME
    };
    size_t i = (size_t)rc;
    return i < sizeof names / sizeof names[0] ? names[i] : "MT_?";
}
