/* err.h - how anything that can fail says so.
 *
 * A function that can fail returns mt_rc (0 is success) and takes `mt_err *` last.  The code that detects the
 * failure writes the message with mt_fail(); callers add context with mt_note(), which prepends; only
 * cli/ prints.  A good message names the thing, what was expected, what was found, and the next step.
 *
 *     if (n > limit) return mt_fail(err, MT_ERANGE, "%s: %d heads, at most %d", path, n, limit);
 *     MT_TRY(open_shards(dir, err));                 // returns early; nothing to undo
 *     if (rc) { free(w); return mt_note(err, "loading weights from %s", dir); } */
#ifndef MT_BASE_ERR_H
#define MT_BASE_ERR_H

#include <stddef.h>

/* name, what it means to a caller */
#define MT_RC_LIST(X)                                                                                                            \
    X(OK, "success")                                                                                                             \
    X(EINVAL, "the caller or the user requested something that makes no sense")                                                  \
    X(ERANGE, "a number is out of range")                                                                                        \
    X(ENOMEM, "no memory, on the host or on the device")                                                                         \
    X(EIO, "the operating system refused a file operation")                                                                      \
    X(ENOENT, "a file, tensor or name that must exist does not")                                                                 \
    X(EFORMAT, "a file is not what it claims to be")                                                                             \
    X(EUNSUPPORTED, "understood, and not supported")                                                                             \
    X(EDEVICE, "the device failed")                                                                                              \
    X(ENUMERIC, "a number that must be finite is not")                                                                           \
    X(ESTOPPED, "stopped on request")                                                                                            \
    X(EBUSY, "in use by another process")                                                                                        \
    X(EINTERNAL, "a bug of ours, noticed in time")

typedef enum mt_rc {
#define MT_RC_ENUM(name, text) MT_##name,
    MT_RC_LIST(MT_RC_ENUM)
#undef MT_RC_ENUM
} mt_rc;

enum { MT_ERR_MSG_BYTES = 2048 };

typedef struct mt_err {
    mt_rc rc;
    char msg[MT_ERR_MSG_BYTES];
} mt_err;

/* mt_fail(err, rc, "format", ...): set the message; the value is rc.  err may be NULL.  A macro, so that the compiler sees
 * that it is not success. */
#define mt_fail(err, rc, ...) mt__failed(mt__fail((err), (rc), __VA_ARGS__))
/* Like mt_fail, with ": strerror(errno)" appended. */
#define mt_fail_errno(err, rc, ...) mt__failed(mt__fail_errno((err), (rc), __VA_ARGS__))

mt_rc mt__fail(mt_err *err, mt_rc rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
mt_rc mt__fail_errno(mt_err *err, mt_rc rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static inline mt_rc mt__failed(mt_rc rc)
{
    if (rc == MT_OK) __builtin_unreachable();
    return rc;
}

/* Prepend "context: " to the message; return err->rc. */
mt_rc mt_note(mt_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "MT_ENOMEM" for MT_ENOMEM. */
const char *mt_rc_name(mt_rc rc);

#define MT_TRY(call)                                                                                                             \
    do {                                                                                                                         \
        mt_rc mt_try_rc_ = (call);                                                                                               \
        if (mt_try_rc_) return mt_try_rc_;                                                                                       \
    } while (0)

#endif
