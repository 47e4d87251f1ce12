#include "run/spent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The layers' product of this shape, or of one expert; NULL: no layer has one. */
static const mt_work_item *product_of(const mt_model *m, bool expert, long long n, long long k)
{
    for (int i = 0; i < m->n_kinds; i++)
        for (int j = 0; j < m->kinds[i].n_work; j++) {
            const mt_work_item *w = &m->kinds[i].work[j];
            double columns = w->T ? w->n / w->T : w->n;
            if ((w->T > 0) != expert || w->kind != MT_WORK_PRODUCT || !w->name) continue;
            if ((long long)columns == n && (long long)w->k == k) return w;
        }
    return NULL;
}

/* Names a product of a unit's experts by its purpose.  Returns its FLOPs.  Only the device knows how many rows these experts had, but over
 * the units of a layer they add up to T for each token: each of the E experts counts as an equal share of them. */
static double name_experts(char *out, const mt_trace_span *span, const mt_model *m)
{
    char way[8];
    long long n, k, rows, experts;
    if (sscanf(span->name, "experts_%7s %lldx%lld, %lld to %lld", way, &n, &k, &rows, &experts) != 5) return 0;
    const mt_work_item *w = product_of(m, true, n, k);
    if (!w || experts <= 0) return 0;
    snprintf(out, MT_TRACE_NAME, "%s %s", w->name, way);
    double c = (double)experts, tokens = (double)rows / (c < w->T ? c : w->T);
    return 2.0 * tokens * w->T * c / w->E * (double)n * (double)k;
}

/* Names a product by its purpose instead of its shape.  Returns the span's FLOPs. */
static double name_of(char *out, const mt_trace_span *span, const mt_model *m)
{
    char way[8];
    long long n, k;
    snprintf(out, MT_TRACE_NAME, "%s", strcmp(span->track, "updater") == 0 ? "update on the host" : span->name);
    if (strncmp(out, "experts_", 8) == 0) return name_experts(out, span, m);
    if (sscanf(out, "linear_%7s %lldx%lld", way, &n, &k) != 3) return span->flops;
    const mt_work_item *w = product_of(m, false, n, k);
    const char *name = w ? w->name : NULL;
    if (!name && n == m->config->V && k == m->config->D) name = "head";
    if (name) snprintf(out, MT_TRACE_NAME, "%s %s", name, way);
    return span->flops;
}

static mt_spent_row *row_for(mt_spent *s, const mt_trace_span *span, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->rows[i].name, name) == 0 && strcmp(s->rows[i].track, span->track) == 0) return &s->rows[i];
    if (s->n == MT_SPENT_ROWS) return &s->rows[MT_SPENT_ROWS - 1];
    mt_spent_row *r = &s->rows[s->n++];
    *r = (mt_spent_row){ .track = span->track, .kind = span->kind };
    snprintf(r->name, sizeof r->name, "%s", name);
    return r;
}

static int track_rank(const char *track)
{
    static const char *const order[] = { "compute", "copy-in",    "copy-out", "write-back", "piece-in",
                                         "piece",   "piece-back", "engine",   "updater" };
    size_t i = 0;
    while (i < MT_COUNT(order) && strcmp(order[i], track) != 0) i++;
    return (int)i;
}

static int by_track_and_time(const void *a, const void *b)
{
    const mt_spent_row *x = a, *y = b;
    int d = track_rank(x->track) - track_rank(y->track);
    return d ? d : (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

void mt_spent_of(mt_spent *out, const mt_trace *trace, const mt_model *m)
{
    int n;
    int64_t window;
    double busy = 0;
    *out = (mt_spent){ 0 };
    const mt_trace_span *spans = mt_trace_spans(trace, &n, &window, &out->lost);
    out->seconds = 1e-9 * (double)window;
    for (int i = 0; i < n; i++) {
        char name[MT_TRACE_NAME];
        double flops = name_of(name, &spans[i], m);
        mt_spent_row *r = row_for(out, &spans[i], name);
        double seconds = 1e-9 * (double)(mt_min_i64(spans[i].to, window) - mt_max_i64(spans[i].from, 0));
        if (seconds < 0) seconds = 0; /* queued in the window, done after it */
        r->n++;
        r->seconds += seconds;
        r->flops += flops;
        r->bytes += (double)spans[i].bytes;
        if (track_rank(spans[i].track) == 0) busy += seconds;
    }
    const mt_trace_span idle = { .kind = MT_TRACE_WAIT, .track = "compute" };
    mt_spent_row *r = row_for(out, &idle, "idle");
    r->seconds = out->seconds - busy;
    qsort(out->rows, (size_t)out->n, sizeof out->rows[0], by_track_and_time);
}

void mt_spent_text(mt_str *out, const mt_spent *s, double product_rate)
{
    const char *track = "";
    for (int i = 0; i < s->n; i++) {
        const mt_spent_row *r = &s->rows[i];
        if (r->seconds < 0.0005 * s->seconds) continue;
        if (strcmp(track, r->track) != 0) mt_str_printf(out, "  %s\n", track = r->track);
        mt_str_printf(out, "    %-24s %8.1f ms %5.1f%% %7d x", r->name, 1e3 * r->seconds, 100 * r->seconds / s->seconds, r->n);
        if (r->flops > 0) mt_str_printf(out, "  %.3g TFLOP/s", 1e-12 * r->flops / r->seconds);
        if (r->flops > 0 && product_rate > 0)
            mt_str_printf(out, " (%.0f%% of a large product's)", 100 * r->flops / r->seconds / product_rate);
        if (r->bytes > 0) mt_str_printf(out, "  %.1f GB, %.1f GB/s", 1e-9 * r->bytes, 1e-9 * r->bytes / r->seconds);
        mt_str_puts(out, "\n");
    }
    if (s->lost) mt_str_printf(out, "    (%d pieces of work found no room in the trace)\n", s->lost);
}

void mt_spent_json(mt_json_out *j, const char *key, const mt_spent *s)
{
    mt_json_list(j, key, MT_JSON_FLAT);
    for (int i = 0; i < s->n; i++) {
        const mt_spent_row *r = &s->rows[i];
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_str(j, "track", r->track);
        mt_json_put_str(j, "name", r->name);
        mt_json_put_num(j, "seconds", "%.6f", r->seconds);
        mt_json_put_int(j, "count", r->n);
        mt_json_put_num(j, "flops", "%.6g", r->flops);
        mt_json_put_num(j, "bytes", "%.6g", r->bytes);
        mt_json_end(j);
    }
    mt_json_end(j);
}
