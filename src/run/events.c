#include "run/events.h"

#include "base/disk.h"
#include "base/file.h"
#include "ckpt/outdir.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Fields of the messages Event, Summary.Value and SessionLog. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

#define FILE_HEAD "events.out.tfevents."

uint32_t mt_crc32c(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* A plain checksum of data that contains checksums would be weak, so the format rotates and shifts it. */
static uint32_t masked_crc(const void *data, size_t n)
{
    uint32_t crc = mt_crc32c(data, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/* -- protobuf -------------------------------------------------------------------------------------- */

static void put_varint(mt_str *s, uint64_t v)
{
    for (; v >= 128; v >>= 7) mt_str_putc(s, (char)((v & 127) | 128));
    mt_str_putc(s, (char)v);
}

static void put_key(mt_str *s, int field, int wire) { put_varint(s, (uint64_t)(field << 3 | wire)); }

static void put_little(mt_str *s, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) mt_str_putc(s, (char)((v >> 8 * i) & 255));
}

static void put_double(mt_str *s, int field, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(s, field, WIRE_64);
    put_little(s, bits, 8);
}

static void put_float(mt_str *s, int field, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(s, field, WIRE_32);
    put_little(s, bits, 4);
}

static void put_int(mt_str *s, int field, int64_t v)
{
    put_key(s, field, WIRE_VARINT);
    put_varint(s, (uint64_t)v);
}

static void put_bytes(mt_str *s, int field, const char *bytes, size_t n)
{
    put_key(s, field, WIRE_BYTES);
    put_varint(s, n);
    mt_str_add(s, bytes, n);
}

/* -- records --------------------------------------------------------------------------------------- */

static mt_rc write_all(const mt_events *e, const mt_str *s, mt_err *err)
{
    return mt_disk_append(e->fd, s->s, s->n) ? mt_fail_errno(err, MT_EIO, "writing %s", e->path) : MT_OK;
}

/* One event: when, at which step, and a field with its bytes. */
static mt_rc write_event(mt_events *e, int field, const char *bytes, size_t n, mt_err *err)
{
    struct timespec now;
    mt_str event = { 0 };
    clock_gettime(CLOCK_REALTIME, &now);
    put_double(&event, EVENT_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    put_int(&event, EVENT_STEP, e->step);
    put_bytes(&event, field, bytes, n);
    mt_str_clear(&e->record);
    put_little(&e->record, event.n, 8);
    if (mt_str_ok(&e->record)) put_little(&e->record, masked_crc(e->record.s, 8), 4);
    if (mt_str_ok(&event)) {
        mt_str_add(&e->record, event.s, event.n);
        put_little(&e->record, masked_crc(event.s, event.n), 4);
    }
    mt_rc rc =
        mt_str_ok(&event) && mt_str_ok(&e->record) ? write_all(e, &e->record, err) : mt_no_memory(err, "a TensorBoard event");
    mt_str_free(&event);
    return rc;
}

/* -- the file -------------------------------------------------------------------------------------- */

static mt_rc events_begin(mt_events *e, int64_t done_steps, mt_err *err)
{
    static const char version[] = "brain.Event:2";
    mt_str session = { 0 };
    MT_TRY(write_event(e, EVENT_VERSION, version, sizeof version - 1, err));
    put_int(&session, SESSION_STATUS, SESSION_START);
    e->step = done_steps + 1;
    mt_rc rc =
        mt_str_ok(&session) ? write_event(e, EVENT_SESSION, session.s, session.n, err) : mt_no_memory(err, "a TensorBoard event");
    mt_str_free(&session);
    return rc;
}

/* TensorBoard reads files in the order of their names, so this file's time must be later than that of every existing one,
 * whatever the clock shows. */
static mt_rc choose_time(long long *out, const char *dir, mt_err *err)
{
    mt_dir_names names;
    long long there;
    *out = (long long)time(NULL);
    MT_TRY(mt_dir_list(&names, dir, err));
    for (size_t i = 0; i < names.n; i++)
        if (sscanf(names.items[i], FILE_HEAD "%18lld.", &there) == 1 && there >= *out) *out = there + 1;
    mt_dir_names_free(&names);
    return MT_OK;
}

mt_rc mt_events_new_path(char **out, const char *dir, mt_err *err)
{
    char host[256] = "localhost";
    long long when;
    *out = NULL;
    MT_TRY(mt_dir_make(dir, err));
    MT_TRY(choose_time(&when, dir, err));
    gethostname(host, sizeof host - 1);
    *out = mt_asprintf("%s/" FILE_HEAD "%lld.%s.%ld.0", dir, when, host, (long)getpid());
    return *out ? MT_OK : mt_no_memory(err, "a name");
}

mt_rc mt_events_open(mt_events *e, const char *path, int64_t done_steps, mt_err *err)
{
    *e = (mt_events){ .path = mt_strdup(path) };
    if (!e->path) return mt_no_memory(err, "a name");
    mt_rc rc = mt_disk_open(&e->fd, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, err);
    e->opened = !rc;
    if (!rc) rc = events_begin(e, done_steps, err);
    if (rc) mt_events_close(e);
    return rc;
}

void mt_events_close(mt_events *e)
{
    if (e->opened) close(e->fd);
    mt_str_free(&e->values);
    mt_str_free(&e->record);
    mt_free(e->path);
    *e = (mt_events){ 0 };
}

void mt_events_step(mt_events *e, int64_t step) { e->step = step; }

void mt_events_value(mt_events *e, const char *metric, double value)
{
    char tag[128];
    mt_str one = { 0 };
    if (!e->opened || !isfinite(value)) return;
    bool eval = strncmp(metric, "eval_", 5) == 0;
    snprintf(tag, sizeof tag, "%s/%s", eval ? "eval" : "train", eval ? metric + 5 : metric);
    put_bytes(&one, VALUE_TAG, tag, strlen(tag));
    put_float(&one, VALUE_SIMPLE, (float)value);
    if (mt_str_ok(&one))
        put_bytes(&e->values, SUMMARY_VALUE, one.s, one.n);
    else
        e->values.failed = true;
    mt_str_free(&one);
}

mt_rc mt_events_end(mt_events *e, mt_err *err)
{
    if (!e->opened || (!e->values.n && mt_str_ok(&e->values))) return MT_OK;
    mt_rc rc = mt_str_ok(&e->values) ? write_event(e, EVENT_SUMMARY, e->values.s, e->values.n, err)
                                     : mt_no_memory(err, "a TensorBoard event");
    mt_str_clear(&e->values);
    return rc;
}
