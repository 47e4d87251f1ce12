#include "run/devices.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool mt_devices_differ(const mt_device_kernels *a, const mt_device_kernels *b, char *why, size_t n)
{
    const bool same_attention = a->attention.ways == b->attention.ways && a->attention.cudnn_head == b->attention.cudnn_head;
    if (mt_device_same_kind(&a->info, &b->info) && same_attention) return false;
    if (strcmp(a->info.name, b->info.name) != 0)
        snprintf(why, n, "%s and %s", a->info.name, b->info.name);
    else if (a->info.n_processors != b->info.n_processors)
        snprintf(why, n, "%s with %d and with %d multiprocessors", a->info.name, a->info.n_processors, b->info.n_processors);
    else
        snprintf(why, n, "%s, but cuDNN does not behave the same on them", a->info.name);
    return true;
}

static mt_device_kernels kernels_of(mt_device *dev)
{
    mt_device_kernels k = { .attention = { 0 } };
    dev->api->info(dev, &k.info);
    mt_ops_of(dev)->attention_use(dev, &k.attention);
    return k;
}

mt_rc mt_devices_check_kind(mt_device *first, int first_number, mt_device *other, int number, bool deterministic, mt_err *err)
{
    char how[320];
    const mt_device_kernels a = kernels_of(first), b = kernels_of(other);
    if (!mt_devices_differ(&a, &b, how, sizeof how)) return MT_OK;
    if (deterministic)
        return mt_fail(err, MT_EINVAL,
                       "model.devices: GPUs %d and %d are %s; different GPUs compute different bits.  Use GPUs of one kind, or "
                       "set training.deterministic: false",
                       first_number, number, how);
    mt_warn("GPUs %d and %d are %s: results may not be repeatable bit for bit", first_number, number, how);
    return MT_OK;
}

static mt_rc open_next(mt_devices *d, const mt_devices_wanted *w, int number, mt_err *err)
{
    const bool cpu = d->first->api->kind == MT_DEVICE_CPU;
    mt_device_options o = w->options;
    char word[32];
    snprintf(word, sizeof word, cpu ? "cpu" : "cuda:%d", number);
    o.like = d->first;
    MT_TRY(mt_device_open(&d->more[d->n - 1], word, &o, err));
    d->numbers[d->n++] = number;
    return mt_devices_check_kind(d->first, d->numbers[0], d->more[d->n - 2], number, w->deterministic, err);
}

/* Opens every GPU: EINVAL means that there are no more. */
static mt_rc open_all(mt_devices *d, const mt_devices_wanted *w, mt_err *err)
{
    mt_rc rc = MT_OK;
    for (int i = d->numbers[0] + w->n_local; !rc && i < MT_MOST_DEVICES; i += w->n_local) rc = open_next(d, w, i, err);
    if (rc != MT_EINVAL || d->more[d->n - 1]) return rc; /* GPUs of different kinds give EINVAL too */
    *err = (mt_err){ 0 };
    return MT_OK;
}

static int lanes_of_a_device(const mt_devices *d)
{
    int most = 1;
    for (int i = 0; i < d->n; i++) {
        int n = 0;
        for (int k = 0; k < d->n; k++) n += d->numbers[k] == d->numbers[i];
        if (n > most) most = n;
    }
    return most;
}

/* True if the launcher gives each rank its own GPUs, numbered from 0. */
static bool gpus_are_given_out(void) { return getenv("SLURM_GPUS_PER_TASK") || getenv("SLURM_TRES_PER_TASK"); }

/* With several ranks on a machine, each takes one in n_local of the listed GPUs.  If fewer are listed than there are ranks,
 * several share one.  Returns the number that share. */
static int deal_listed(mt_devices_wanted *w, int64_t mine[MT_MOST_DEVICES])
{
    const size_t n = (size_t)w->n_local, listed = w->n;
    w->n = 0;
    for (size_t i = (size_t)w->local_rank % listed; i < listed; i += n) mine[w->n++] = w->numbers[i];
    w->numbers = mine;
    return (int)((n + listed - 1) / listed);
}

/* Without a list: GPUs are counted from the local rank on. */
static mt_rc open_own(mt_devices *d, const mt_devices_wanted *w, mt_err *err)
{
    char word[32];
    if (d->first->api->kind == MT_DEVICE_CPU || w->local_rank == 0) return MT_OK;
    d->numbers[0] += w->local_rank;
    mt_device_close(d->first);
    d->first = NULL;
    snprintf(word, sizeof word, "cuda:%d", d->numbers[0]);
    if (!mt_device_open(&d->first, word, &w->options, err)) return MT_OK;
    return mt_note(err, "rank %d of %d on this machine (--devices 0,1 lets them share two GPUs)", w->local_rank, w->n_local);
}

static void share_cores(mt_devices_wanted *w)
{
    const int64_t lanes = mt_max_i64(1, (int64_t)w->n) * w->n_local;
    if (lanes > 1) w->options.n_threads = (int)mt_max_i64(1, mt_cpu_count() / lanes);
}

mt_rc mt_devices_open(mt_devices *d, const mt_devices_wanted *wanted, mt_err *err)
{
    mt_devices_wanted w = *wanted;
    const bool all = w.n == 1 && w.numbers[0] < 0, cpu = strcmp(w.word, "cpu") == 0;
    int64_t dealt[MT_MOST_DEVICES];
    int ranks_on_one = 1;
    char word[32];
    *d = (mt_devices){ 0 };
    if (w.n > MT_MOST_DEVICES) return mt_fail(err, MT_EINVAL, "%zu devices; at most %d train together", w.n, MT_MOST_DEVICES);
    if (w.n_local < 1) w.n_local = 1;
    if (cpu) share_cores(&w);
    if (cpu || gpus_are_given_out()) w.n_local = 1;
    const bool listed = w.n && !all;
    if (listed && w.n_local > 1) {
        ranks_on_one = deal_listed(&w, dealt);
        snprintf(word, sizeof word, "cuda:%d", (int)w.numbers[0]);
        w.word = word;
    }
    MT_TRY(mt_device_open(&d->first, w.word, &w.options, err));
    d->numbers[0] = listed ? (int)w.numbers[0] : w.first;
    d->n = 1;
    if (!listed && w.n_local > 1) MT_TRY(open_own(d, &w, err));
    for (size_t i = 1; i < w.n; i++) MT_TRY(open_next(d, &w, (int)w.numbers[i], err));
    if (all) MT_TRY(open_all(d, &w, err));
    d->per_device = lanes_of_a_device(d) * ranks_on_one;
    return MT_OK;
}

/* The first lane's device closes last: the others use its choices. */
void mt_devices_close(mt_devices *d)
{
    for (int i = 0; i < MT_MOST_DEVICES; i++) mt_device_close(d->more[i]);
    mt_device_close(d->first);
    *d = (mt_devices){ 0 };
}

/* -- between devices -- */

static bool all_reach(const mt_devices *d)
{
    for (int i = -1; i + 1 < d->n; i++)
        for (int k = i + 1; k + 1 < d->n; k++) {
            mt_device *one = i < 0 ? d->first : d->more[i], *other = d->more[k];
            if (!one->api->reaches(one, other)) return false;
        }
    return true;
}

typedef struct peer_lab {
    mt_device *from, *to;
    mt_stream *stream;
    mt_event *done;
    void *src, *dst;
} peer_lab;

enum { LAB_BYTES = 64 << 20, LAB_COPIES = 4 };

static mt_rc open_lab(peer_lab *l, mt_err *err)
{
    MT_TRY(l->from->api->alloc(l->from, &l->src, LAB_BYTES, "a measurement", err));
    MT_TRY(l->to->api->alloc(l->to, &l->dst, LAB_BYTES, "a measurement", err));
    MT_TRY(l->from->api->stream_create(l->from, &l->stream, "a measurement", err));
    return mt_event_create(l->from, &l->done, "a measurement", err);
}

static void close_lab(peer_lab *l)
{
    if (l->stream) l->from->api->stream_free(l->stream);
    l->from->api->event_free(l->done);
    l->from->api->free(l->from, l->src);
    l->to->api->free(l->to, l->dst);
}

static mt_rc copy_often(peer_lab *l, int times, mt_err *err)
{
    for (int i = 0; i < times; i++) MT_TRY(mt_copy_peer(l->stream, l->dst, l->to, l->src, l->from, LAB_BYTES, err));
    MT_TRY(mt_record(l->stream, l->done, err));
    return mt_sync(l->done, err);
}

/* The first copy includes one-time setup. */
mt_rc mt_devices_peer_rate(const mt_devices *d, double *rate, mt_err *err)
{
    *rate = 0;
    if (d->n < 2 || d->first->api->kind == MT_DEVICE_CPU || !all_reach(d)) return MT_OK;
    peer_lab l = { .from = d->first, .to = d->more[0] };
    mt_rc rc = open_lab(&l, err);
    if (!rc) rc = copy_often(&l, 1, err);
    const int64_t start = mt_now_ns();
    if (!rc) rc = copy_often(&l, LAB_COPIES, err);
    if (!rc) *rate = (double)LAB_COPIES * LAB_BYTES / (1e-9 * (double)(mt_now_ns() - start));
    close_lab(&l);
    return rc;
}

size_t mt_devices_memory(const mt_devices *d, size_t first)
{
    size_t least = first;
    for (int i = 0; i + 1 < d->n; i++) {
        mt_device_info info;
        d->more[i]->api->info(d->more[i], &info);
        if (info.memory_limit < least) least = info.memory_limit;
    }
    return least / (size_t)d->per_device;
}
