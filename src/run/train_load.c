/* train_load.c - creates a run's engine, and loads its weights or the state of its checkpoint, with progress. */
#include "base/pool.h"
#include "engine/load.h"
#include "run/train_internal.h"

/* -- progress --------------------------------------------------------------------------------------- */

typedef struct counting {
    const mt_train_hooks *hooks;
    pthread_t thread; /* the thread that opens the run: it calls the hooks, and loads like the others */
    size_t total;
    atomic_size_t done;
} counting;

static void train_load_count(void *user, size_t bytes)
{
    counting *c = user;
    size_t done = atomic_fetch_add(&c->done, bytes) + bytes;
    if (pthread_equal(c->thread, pthread_self())) c->hooks->loading(c->hooks->user, done, c->total);
}

/* Bytes of hi and lo of all weights; for a checkpoint also the optimizer's arrays of trained weights. */
static size_t bytes_to_load(const mt_trainer *t)
{
    size_t sum = 0, arrays = t->resume.from ? mt_state_arrays_bytes(t->exec.io.form) : 0;
    for (mt_walk at = mt_walk_model(t->net.model); mt_walk_next(&at);) sum += (size_t)at.w->n * (4 + (at.w->frozen ? 0 : arrays));
    return sum;
}

/* -- loading --------------------------------------------------------------------------------------- */

static mt_rc write_state(void *user, mt_state_range r, const void *src, mt_err *err)
{
    return mt_engine_write(user, r, src, err);
}

static bool is_stored(void *user, mt_state_range r) { return mt_engine_stores(user, r); }

/* From a checkpoint, from the model's files, or at random. */
static mt_rc load_weights(mt_trainer *t, mt_err *err)
{
    if (t->resume.from && t->net.shards) MT_TRY(mt_engine_load_packed(t->exec.engine, t->net.model, t->net.shards, err));
    if (t->resume.from) return mt_ckpt_load(t->resume.from, t->net.model, &t->exec.io, err);
    if (t->net.shards) return mt_engine_load(t->exec.engine, t->net.model, t->net.shards, err);
    return mt_engine_init(t->exec.engine, t->net.model, (uint64_t)t->s->training.seed, err);
}

mt_rc mt__train_load(mt_trainer *t, mt_err *err)
{
    enum { MOST_WRITERS = 8 };
    counting c = { .hooks = &t->hooks, .thread = pthread_self(), .total = bytes_to_load(t) };
    MT_TRY(mt_engine_create(&t->exec.engine, t->exec.dev, t->exec.plan,
                            &(mt_engine_options){ .more = t->exec.devices.more,
                                                  .numbers = t->exec.devices.numbers,
                                                  .comm = t->comm->n_ranks > 1 ? t->comm : NULL,
                                                  .n_workers = (int)t->s->memory.optimizer_threads },
                            err));
    t->exec.io = (mt_state_io){ .user = t->exec.engine,
                                .form = t->exec.io.form,
                                .write = write_state,
                                .wants = t->comm->n_ranks > 1 ? is_stored : NULL,
                                .n_writers = (int)mt_min_i64(mt_cpu_count(), MOST_WRITERS) };
    mt_state_set_updates(mt_engine_state(t->exec.engine), t->at.updates);
    if (!t->hooks.loading) return load_weights(t, err);
    mt_engine_watch_writes(t->exec.engine, train_load_count, &c);
    mt_rc rc = load_weights(t, err);
    mt_engine_watch_writes(t->exec.engine, NULL, NULL);
    t->hooks.loading(t->hooks.user, rc ? c.done : c.total, c.total);
    return rc;
}
