/* train_ranks.c - a run on several machines: what its trainers compare before the first step and exchange at every step.  All
 * ranks make the same steps in the same order and decide everything from the same numbers. */
#include "base/file.h"
#include "base/rng.h"
#include "plan/network.h"
#include "run/ranks.h"
#include "run/train_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* -- before the first step ------------------------------------------------------------------------- */

static void put_fact(mt_rank_fact *f, const char *what, const char *is)
{
    snprintf(f->what, sizeof f->what, "%s", what);
    snprintf(f->is, sizeof f->is, "%s", is);
}

static void put_hash(mt_rank_fact *f, const char *what, uint64_t hash)
{
    snprintf(f->what, sizeof f->what, "%s", what);
    snprintf(f->is, sizeof f->is, "%016" PRIx64, hash);
}

/* Kernels, and so bits, are equal only on devices of one kind.  A CPU's name includes its number of threads. */
static void put_device(const mt_trainer *t, mt_rank_fact *f)
{
    mt_device_info d;
    t->exec.dev->api->info(t->exec.dev, &d);
    const bool cpu = t->exec.dev->api->kind == MT_DEVICE_CPU, any = !t->s->training.deterministic;
    put_fact(f, "the device (training.deterministic: false allows different ones)", any ? "any" : cpu ? "a CPU" : d.name);
}

mt_rc mt__train_compare_ranks(mt_trainer *t, mt_err *err)
{
    mt_rank_fact facts[5] = { 0 };
    if (t->comm->n_ranks == 1) return MT_OK;
    put_fact(&facts[0], "the checkpoint to continue from", t->resume.from ? mt_path_base(t->resume.from) : "none");
    put_hash(&facts[1], "the fingerprint of the model (config.json)", t->net.fingerprint);
    put_hash(&facts[2], "the fingerprint of the data", t->data.info.fingerprint);
    put_device(t, &facts[3]);
    put_hash(&facts[4], "the arithmetic's hash", mt_arithmetic_hash(&t->exec.plan->arithmetic));
    return mt_ranks_compare(t->comm, facts, MT_COUNT(facts), err);
}

/* The plan is for one machine: waiting for others comes on top. */
mt_rc mt__train_network(mt_trainer *t, mt_err *err)
{
    if (t->comm->n_ranks == 1) return MT_OK;
    MT_TRY(mt_ranks_network(t->comm, &t->ranks.network, err));
    const mt_network_job job = mt_network_job_of(t->exec.plan, t->ranks.network);
    const mt_network_cost c = mt_network_step(t->exec.plan->predicted_seconds, &job);
    t->ranks.network_wait = c.waits;
    t->exec.plan->predicted_seconds = c.step;
    return MT_OK;
}

/* -- records --------------------------------------------------------------------------------------- */

mt_rc mt__train_tell(mt_trainer *t, const void *mine, size_t n, void *all, const char *what, mt_err *err)
{
    if (t->exec.engine) return mt_engine_tell(t->exec.engine, mine, n, all, what, err); /* its thread owns the comm */
    return t->comm->api->tell(t->comm, mine, n, all, what, err);
}

/* How late another rank may be while steps are taken.  While a checkpoint is written, ranks wait for the one that writes. */
void mt__train_be_patient(mt_trainer *t, bool patient)
{
    patient |= t->saver.running;
    const double step_s = t->exec.plan ? t->exec.plan->predicted_seconds : 0, least = t->s->run.comm_timeout;
    if (t->comm->n_ranks > 1) t->comm->patience_s = patient ? 0 : fmax(2 * step_s, least);
}

static uint64_t hash_batch(const mt_batch *b)
{
    uint64_t h = mt_hash(b->ids, (size_t)b->n_tokens * sizeof *b->ids, (uint64_t)b->n_docs);
    h = mt_hash(b->targets, (size_t)b->n_tokens * sizeof *b->targets, h);
    for (mt_column c = 0; c < MT_COLUMNS; c++) {
        const int64_t n = mt_columns[c].per_row ? b->n_tokens : b->n_docs;
        if (b->columns[c]) h = mt_hash(b->columns[c], (size_t)n * sizeof *b->columns[c], h);
    }
    return mt_hash(b->doc_start, (size_t)(b->n_docs + 1) * sizeof *b->doc_start, h);
}

/* At the start of a step: all ranks make the same step, from the same data, after the same results. */
typedef struct step_record {
    int64_t step;
    uint64_t batch, before; /* before: hash of loss and norm of the previous step */
} step_record;

static mt_rc compare_steps(const mt_trainer *t, const step_record *all, mt_err *err)
{
    for (int r = 1; r < t->comm->n_ranks; r++) {
        const char *what = NULL;
        if (all[r].before != all[0].before) what = "has different results for the previous step";
        if (all[r].batch != all[0].batch) what = "has different data";
        if (all[r].step != all[0].step) what = "is at another step";
        if (what)
            return mt_fail(err, MT_EINTERNAL, "step %" PRId64 ": rank %d (%s) %s than rank 0 (%s)", all[0].step + 1, r,
                           t->comm->hosts[r], what, t->comm->hosts[0]);
    }
    return MT_OK;
}

mt_rc mt__train_same_step(mt_trainer *t, mt_err *err)
{
    const step_record mine = { t->at.step, hash_batch(&t->data.batch), t->ranks.result };
    if (t->comm->n_ranks == 1) return MT_OK;
    MT_TRY(mt__train_tell(t, &mine, sizeof mine, t->ranks.all, "the beginning of a step", err));
    return compare_steps(t, t->ranks.all, err);
}

void mt__train_note_result(mt_trainer *t, const mt_step_result *r)
{
    const double numbers[] = { r->loss, r->grad_norm, (double)r->n_trained, (double)r->skipped, (double)r->empty };
    t->ranks.result = mt_hash(numbers, sizeof numbers, (uint64_t)t->at.step);
}

/* A signal on any rank counts for all. */
typedef struct wish_record {
    int32_t stop, save;
} wish_record;

static int stop_wish(const mt_trainer *t) { return t->hooks.stop ? t->hooks.stop(t->hooks.user) : 0; }

mt_rc mt__train_ask(mt_trainer *t, mt_err *err)
{
    const mt_train_hooks *h = &t->hooks;
    wish_record mine = { .stop = t->ranks.stop ? t->ranks.stop : stop_wish(t), .save = h->save && h->save(h->user) };
    if (t->comm->n_ranks > 1) {
        int32_t stop = 0; /* of the first rank that wants one, on all ranks */
        MT_TRY(mt__train_tell(t, &mine, sizeof mine, t->ranks.all, "the end of a step", err));
        for (int r = 0; r < t->comm->n_ranks; r++) {
            const wish_record *other = (const wish_record *)t->ranks.all + r;
            if (!stop) stop = other->stop;
            mine.save |= other->save;
        }
        mine.stop = stop;
    }
    t->ranks.stop = mine.stop;
    t->ranks.save |= mine.save;
    return MT_OK;
}

mt_rc mt__train_open_ranks(mt_trainer *t, mt_err *err)
{
    t->ranks.all = mt_calloc((size_t)t->comm->n_ranks, sizeof(step_record));
    return t->ranks.all ? MT_OK : mt_no_memory(err, "records of ranks");
}
