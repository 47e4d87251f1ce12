#include "run/metrics.h"

#include "base/disk.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Length of the whole lines in the first n bytes. */
static int64_t whole_lines(int fd, int64_t n)
{
    char c = '\n';
    while (n > 0 && mt_disk_read(fd, &c, 1, (uint64_t)n - 1) == 1 && c != '\n') n--;
    return n;
}

mt_rc mt_metrics_open(mt_metrics *m, const char *path, int64_t keep, mt_err *err)
{
    *m = (mt_metrics){ .path = mt_strdup(path) };
    if (!m->path) return mt_no_memory(err, "opening %s", path);
    mt_rc rc = mt_disk_open(&m->fd, path, O_RDWR | O_CREAT | O_NOFOLLOW, err);
    m->opened = !rc;
    if (rc) {
        mt_metrics_close(m);
        return mt_note(err, "opening the metrics file");
    }
    off_t there = lseek(m->fd, 0, SEEK_END);
    if (there >= 0 && there < keep) {
        mt_warn("%s is shorter than at the checkpoint (%lld of %lld bytes): some lines are lost", path, (long long)there,
                (long long)keep);
        keep = whole_lines(m->fd, there);
    }
    if (there < 0 || mt_disk_truncate(m->fd, (uint64_t)keep)) {
        rc = mt_fail_errno(err, MT_EIO, "opening the metrics file %s", path);
        mt_metrics_close(m);
        return rc;
    }
    m->bytes = keep;
    return MT_OK;
}

mt_rc mt_metrics_sync(const mt_metrics *m, mt_err *err)
{
    if (!m->opened) return MT_OK;
    if (mt_disk_sync(m->fd) && errno != EINVAL) return mt_fail_errno(err, MT_EIO, "syncing %s", m->path);
    return MT_OK;
}

void mt_metrics_close(mt_metrics *m)
{
    if (m->opened) close(m->fd);
    mt_free(m->path);
    mt_str_free(&m->line);
    mt_events_close(&m->events);
    *m = (mt_metrics){ 0 };
}

mt_json_out *mt_metrics_json(mt_metrics *m)
{
    if (m->line.n) return &m->json;
    m->json = (mt_json_out){ .to = &m->line };
    mt_json_map(&m->json, NULL, MT_JSON_FLAT);
    return &m->json;
}

void mt_metrics_int(mt_metrics *m, const char *name, int64_t value)
{
    mt_json_put_int(mt_metrics_json(m), name, value);
    if (strcmp(name, "step") == 0)
        mt_events_step(&m->events, value);
    else
        mt_events_value(&m->events, name, (double)value);
}

void mt_metrics_bool(mt_metrics *m, const char *name, bool value) { mt_json_put_bool(mt_metrics_json(m), name, value); }

/* The shortest form that reads back equal. */
void mt_metrics_float(mt_metrics *m, const char *name, double value)
{
    char text[40];
    int digits = 6;
    while (snprintf(text, sizeof text, "%.*g", digits, value), digits < 17 && strtod(text, NULL) != value) digits++;
    mt_json_put_num(mt_metrics_json(m), name, "%.*g", digits, value);
    mt_events_value(&m->events, name, value);
}

void mt_metrics_list(mt_metrics *m, const char *name, const double *values, size_t n)
{
    double most = -INFINITY;
    mt_json_out *j = mt_metrics_json(m);
    mt_json_list(j, name, MT_JSON_FLAT);
    for (size_t i = 0; i < n; i++) {
        mt_json_put_num(j, NULL, "%.4g", values[i]);
        if (values[i] > most) most = values[i];
    }
    mt_json_end(j);
    if (n) mt_events_value(&m->events, name, most);
}

mt_rc mt_metrics_end(mt_metrics *m, mt_err *err)
{
    mt_json_end(mt_metrics_json(m));
    mt_str_putc(&m->line, '\n');
    MT_TRY(mt_json_done(&m->json, "a line of metrics", err));
    if (!m->opened) return mt_str_clear(&m->line), MT_OK;
    if (mt_disk_write(m->fd, m->line.s, m->line.n, (uint64_t)m->bytes)) return mt_fail_errno(err, MT_EIO, "writing %s", m->path);
    m->bytes += (int64_t)m->line.n;
    mt_str_clear(&m->line);
    return mt_events_end(&m->events, err);
}
