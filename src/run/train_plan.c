/* train_plan.c - the plan of a run: chosen before a weight is read, refused if it does not fit, compared with the measured
 * result. */
#include "base/log.h"
#include "base/pool.h"
#include "base/units.h"
#include "optim/clip.h"
#include "plan/advise.h"
#include "plan/measure.h"
#include "run/ranks.h"
#include "run/train_internal.h"

#include <stdio.h>
#include <sys/resource.h>

void mt_train_types(const mt_settings *s, mt_arithmetic *out)
{
    out->compute = s->model.dtype == MT_DTYPE_F32 ? MT_DTYPE_F32 : MT_DTYPE_BF16;
    out->grad = s->training.grad_dtype;
    out->reduce_bf16 = s->training.reduce_dtype == MT_DTYPE_BF16;
    out->optimizer = mt_settings_optimizer(s);
    out->moments = s->memory.adam_state;
    if (s->training.shares) out->shares = s->training.shares;
    if (!out->shares && s->model.devices.n > 1) out->shares = (int64_t)s->model.devices.n;
    if (s->training.bundles) out->bundles = s->training.bundles;
}

/* The settings' part of the arithmetic; a resumed run uses it too, because differences were checked and reported. */
static void apply_settings(const mt_trainer *t, mt_arithmetic *a, size_t device_bytes)
{
    const bool open = !a->shares && !t->s->training.shares;
    mt_train_types(t->s, a);
    if (open && t->exec.devices.n > 0) a->shares = t->exec.devices.n; /* this rank's number of devices is known now */
    if (!a->bundles && t->comm->n_ranks > 1) a->bundles = t->comm->n_ranks;
    a->attention = mt_attention_use_of(t->exec.dev, t->s->training.deterministic,
                                       t->s->model.attn_implementation == MT_SET_ATTENTION_EAGER, device_bytes);
}

/* A resumed run keeps its attention if this machine has the same kernels. */
static void keep_attention(mt_attention_use *now, const mt_attention_use *was)
{
    char before[64], after[64];
    if (now->ways == was->ways && now->cudnn_head == was->cudnn_head) {
        *now = *was;
        return;
    }
    mt_attention_use_text(was, before, sizeof before);
    mt_attention_use_text(now, after, sizeof after);
    if (was->ways)
        mt_warn("attention used %s and now uses %s: the run continues, but its results will not be bit-identical", before, after);
}

mt_limits mt_train_limits(const mt_settings *s)
{
    static const mt_whether offload[] = { [MT_TRI_AUTO] = MT_MAY, [MT_TRI_TRUE] = MT_MUST, [MT_TRI_FALSE] = MT_MUST_NOT };
    const mt_memory_settings *m = &s->memory;
    return (mt_limits){ .interval = (int)m->checkpoint_interval,
                        .exact = m->strict_checkpointing,
                        .n_slabs = (int)m->num_grad_slabs,
                        .offload = offload[m->offload_inputs] };
}

/* A resumed run keeps its own sizes. */
static mt_arithmetic arithmetic_of(const mt_trainer *t, const saved_state *saved, const mt_machine *machine)
{
    mt_arithmetic a = saved ? saved->arithmetic : (mt_arithmetic){ 0 };
    const mt_arithmetic was = a;
    apply_settings(t, &a, machine->device_bytes * (size_t)machine->crowd);
    if (saved) keep_attention(&a.attention, &was.attention);
    const char *other = "the run continues, but its results will not be bit-identical";
    if (saved && mt_arithmetic_bundles(&a) != mt_arithmetic_bundles(&was))
        mt_warn("a step had %d bundles and now has %d: %s", mt_arithmetic_bundles(&was), mt_arithmetic_bundles(&a), other);
    if (saved && mt_arithmetic_shares(&a) != mt_arithmetic_shares(&was))
        mt_warn("a step had %d shares and now has %d: %s", mt_arithmetic_shares(&was), mt_arithmetic_shares(&a), other);
    return a;
}

/* A micro-batch holds at least the longest document.  A resumed run may evaluate on longer ones than before. */
static void hold_longest(mt_arithmetic *a, const mt_job *job)
{
    if (a->micro_tokens >= job->longest) return;
    mt_warn("micro-batches had %lld tokens, and the longest sample to evaluate on has %lld: they have as many now; the run "
            "continues, but its results will not be bit-identical",
            (long long)a->micro_tokens, (long long)job->longest);
    a->micro_tokens = job->longest;
}

/* The same with sizes still to be chosen. */
static mt_arithmetic open_sizes(const mt_arithmetic *a)
{
    mt_arithmetic form = *a;
    form.micro_tokens = form.mlp_rows = form.head_rows = form.moe_tokens = 0;
    return form;
}

/* True if a run fits; a resumed one with its sizes or with others. */
static bool some_plan_fits(mt_plan_inputs in, bool saved)
{
    const mt_arithmetic form = saved ? open_sizes(in.arithmetic) : *in.arithmetic;
    if (saved && mt_plan_fits(in)) return true;
    in.arithmetic = &form;
    return mt_plan_auto_fits(in);
}

/* On a machine that is too small for its sizes, it continues with others. */
static mt_rc search_kept(mt_trainer *t, const mt_job *job, const mt_arithmetic *a, const mt_machine *machine, mt_err *err)
{
    mt_rc rc = mt_plan_search(&t->exec.plan, (mt_plan_inputs){ t->net.model, job, a, machine }, err);
    if (rc != MT_ENOMEM || mt_plan_fits((mt_plan_inputs){ t->net.model, job, a, machine })) return rc;
    const mt_arithmetic form = open_sizes(a);
    MT_TRY(mt_plan_auto(&t->exec.plan, (mt_plan_inputs){ t->net.model, job, &form, machine }, err));
    mt_warn("micro-batches had %lld tokens, which do not fit in the memory here, and have %lld now: the run continues, but "
            "its results will not be bit-identical",
            (long long)a->micro_tokens, (long long)t->exec.plan->arithmetic.micro_tokens);
    return MT_OK;
}

/* The arithmetic of a fresh run is chosen for its training alone, so that other samples to evaluate on give the same bits.  Only a
 * sample that no micro-batch holds makes them larger, or an evaluation that would not fit. */
static mt_rc choose_fresh(mt_trainer *t, const mt_job *job, const mt_arithmetic *a, const mt_machine *machine, mt_err *err)
{
    const mt_source_info *data = &t->data.info;
    const mt_plan_inputs all = { t->net.model, job, a, machine };
    mt_job train = *job;
    mt_plan *plan;
    train.step_tokens = data->train_tokens;
    train.step_docs = data->train_docs;
    train.longest = data->train_longest;
    if (train.step_tokens == job->step_tokens && train.step_docs == job->step_docs && train.longest == job->longest)
        return mt_plan_auto(&t->exec.plan, all, err);
    mt_rc rc = mt_plan_auto(&plan, (mt_plan_inputs){ t->net.model, &train, a, machine }, err);
    if (rc) return rc;
    mt_arithmetic chosen = plan->arithmetic;
    mt_plan_free(plan);
    if (chosen.micro_tokens < job->longest && chosen.micro_tokens < train.step_tokens)
        mt_info(
            "micro-batches have %lld instead of %lld tokens, because a sample to evaluate on has as many: the results are not "
            "bit-identical to those without it",
            (long long)job->longest, (long long)chosen.micro_tokens);
    chosen.micro_tokens = mt_max_i64(chosen.micro_tokens, job->longest);
    rc = mt_plan_search(&t->exec.plan, (mt_plan_inputs){ t->net.model, job, &chosen, machine }, err);
    if (rc != MT_ENOMEM) return rc;
    MT_TRY(mt_plan_auto(&t->exec.plan, all, err));
    if (t->exec.plan->arithmetic.micro_tokens != chosen.micro_tokens)
        mt_info(
            "micro-batches have %lld instead of %lld tokens, because an evaluation would not fit with those: the results are not "
            "bit-identical to those without it",
            (long long)t->exec.plan->arithmetic.micro_tokens, (long long)chosen.micro_tokens);
    return MT_OK;
}

static mt_rc choose(mt_trainer *t, const mt_job *job, const mt_arithmetic *a, bool saved, const mt_machine *machine, mt_err *err)
{
    MT_TRY(saved ? search_kept(t, job, a, machine, err) : choose_fresh(t, job, a, machine, err));
    return mt__train_samples_plan(t, machine, err);
}

/* Several ranks on one machine share its cores; more threads than cores are no faster.  0: all of them. */
static int cores_of(const mt_trainer *t)
{
    const int given = (int)mt_min_i64(t->s->memory.optimizer_threads, mt_cpu_count()), n = t->comm->n_local;
    return given || n == 1 ? given : (int)mt_max_i64(1, mt_cpu_count() / n);
}

/* The machine, within the settings' limits. */
static mt_rc find_machine(const mt_trainer *t, mt_machine *out, mt_err *err)
{
    const mt_memory_settings *m = &t->s->memory;
    MT_TRY(mt_machine_here(out, t->exec.dev, &(mt_machine_given){ .ram_most = (size_t)m->host_memory, .cores = cores_of(t) },
                           true, err));
    out->home_host = m->home == MT_SET_HOME_HOST;
    out->limits = mt_train_limits(t->s);
    out->crowd = t->exec.devices.per_device;
    out->device_bytes = mt_devices_memory(&t->exec.devices, out->device_bytes);
    if (!m->host_memory) out->host_bytes /= (size_t)t->comm->n_local;
    if (t->exec.devices.n > 1 && !t->exec.engine) MT_TRY(mt_devices_peer_rate(&t->exec.devices, &out->peer, err));
    return MT_OK;
}

/* -- batch_size: auto ------------------------------------------------------------------------------ */

static mt_rc saved_batch(const mt_trainer *t, int64_t *out, mt_err *err)
{
    mt_settings was;
    MT_TRY(mt__train_saved_settings(t, &was, err));
    *out = was.training.batch_size;
    mt_settings_deinit(&was);
    return MT_OK;
}

static mt_rc best_batch(const mt_trainer *t, int64_t *out, mt_err *err)
{
    mt_question q = { .model = t->net.model, .clip = mt_clip_needs_norm(t->s->training.max_grad_norm), .batch = 1 };
    mt_batch_advice advice;
    q.seq_len = mt_min_i64(t->s->dataset.max_seq_len, t->net.config->max_positions);
    MT_TRY(find_machine(t, &q.machine, err));
    apply_settings(t, &q.form, q.machine.device_bytes * (size_t)q.machine.crowd);
    q.machines = t->comm->n_ranks;
    q.rank = t->comm->rank;
    if (t->exec.devices.n > 1) mt_question_set_lanes(&q, t->exec.devices.n);
    MT_TRY(mt_advise_batch(&advice, &q, err));
    const int64_t parts = t->s->training.gradient_accumulation_steps;
    *out = mt_advise_auto(&advice, parts) / parts;
    mt_info("training.batch_size auto: %lld samples of up to %lld tokens", (long long)*out, (long long)q.seq_len);
    return MT_OK;
}

static mt_rc settle_batch(mt_trainer *t, mt_err *err)
{
    const int devices = t->s->batch_per_device ? t->exec.devices.n * t->comm->n_ranks : 1;
    if (t->s->training.batch_size && devices == 1) return MT_OK;
    t->settled = *t->s; /* its strings stay the caller's */
    t->s = &t->settled;
    if (t->settled.training.batch_size) {
        t->settled.training.batch_size *= devices;
        mt_info("per_device_train_batch_size on %d devices: a step has %lld samples, times gradient_accumulation_steps", devices,
                (long long)t->settled.training.batch_size);
        return MT_OK;
    }
    return t->resume.from ? saved_batch(t, &t->settled.training.batch_size, err)
                          : best_batch(t, &t->settled.training.batch_size, err);
}

mt_rc mt__train_batch(mt_trainer *t, mt_err *err)
{
    MT_TRY(settle_batch(t, err));
    if (t->s != &t->settled) return MT_OK;
    return mt_ranks_take_first(t->comm, &t->settled.training.batch_size, sizeof t->settled.training.batch_size, "the batch size",
                               err);
}

/* -- the plan -------------------------------------------------------------------------------------- */

/* Device memory that is host memory. */
static size_t device_in_ram(const mt_trainer *t)
{
    const mt_plan *p = t->exec.plan;
    return t->exec.dev->api->kind == MT_DEVICE_CPU ? p->device_bytes * (size_t)mt_plan_lanes(p) : 0;
}

/* Total memory of the process while no checkpoint is saved. */
static size_t planned_host(const mt_trainer *t)
{
    const mt_plan *p = t->exec.plan;
    return p->host_bytes + p->base_host + device_in_ram(t);
}

size_t mt__train_planned_host(const mt_trainer *t) { return planned_host(t) + t->saver.planned_room; }

int64_t mt_train_saves(const mt_save_settings *s, int64_t done, int64_t n_steps, int64_t steps_per_epoch)
{
    int64_t every = s->save_steps == MT_EVERY_EPOCH ? steps_per_epoch : s->save_steps;
    return every > 0 ? mt_max_i64((n_steps - 1) / every - done / every, 0) : 0;
}

static int64_t saves_on_the_way(const mt_trainer *t)
{
    return mt_train_saves(&t->s->save, t->at.step, t->course.n_steps, t->data.info.steps_per_epoch);
}

/* A checkpoint may be copied into half of the memory that the run leaves free.  This is optional, and nothing fails without it.
 * The last checkpoint is not copied: no step runs meanwhile. */
static void plan_room(mt_trainer *t, const mt_machine *m)
{
    size_t planned = planned_host(t), left = m->host_bytes > planned ? (m->host_bytes - planned) / 2 : 0;
    const mt_snapshot_options how = mt__train_aside(t, left);
    t->saver.planned_room = saves_on_the_way(t) == 0 ? 0 : mt_snapshot_would_take(t->net.model, &how);
}

/* helps: more host memory would help. */
static mt_rc not_started(const mt_trainer *t, bool helps, mt_err *err)
{
    return mt_note(err, "the run is not started (megatrain plan shows more%s%s)",
                   helps && t->s->memory.host_memory ? ", host_memory: auto allows all free memory" : "",
                   helps ? ", --force starts it anyway" : "");
}

/* A device without a share would be idle.  With several machines, each takes bundles one after the other. */
static int most_lanes(const mt_trainer *t, const mt_arithmetic *a)
{
    return t->comm->n_ranks > 1 ? mt_arithmetic_shares(a) : mt_arithmetic_parts(a);
}

static int lanes_for(const mt_trainer *t, const mt_arithmetic *a)
{
    const int n = t->exec.devices.n, parts = most_lanes(t, a);
    return n < parts ? n : parts;
}

mt_rc mt__train_could_fit(const mt_trainer *t, mt_err *err)
{
    mt_job job = { .train = true,
                   .clip = mt_clip_needs_norm(t->s->training.max_grad_norm),
                   .machines = t->comm->n_ranks,
                   .machine = t->comm->rank,
                   .step_tokens = 2,
                   .step_docs = 1,
                   .longest = 2 }; /* the least that any data needs */
    mt_machine here;
    mt_arithmetic a = { 0 };
    mt_plan *plan = NULL;
    if (t->resume.from || t->s->memory.force) return MT_OK; /* a resumed run has its own arithmetic, which did fit */
    MT_TRY(find_machine(t, &here, err));
    apply_settings(t, &a, here.device_bytes * (size_t)here.crowd);
    job.lanes = lanes_for(t, &a); /* several need less memory each than one that adds all shares */
    if (mt_plan_auto_fits((mt_plan_inputs){ t->net.model, &job, &a, &here })) return MT_OK;
    mt_rc rc = mt_plan_auto(&plan, (mt_plan_inputs){ t->net.model, &job, &a, &here }, err);
    mt_plan_free(plan);
    if (rc != MT_ENOMEM) return rc;
    here.host_bytes = SIZE_MAX;
    return not_started(t, mt_plan_auto_fits((mt_plan_inputs){ t->net.model, &job, &a, &here }), err);
}

/* A machine without a bundle stores its slice of the state and computes nothing. */
static void check_bundles(const mt_trainer *t, const mt_arithmetic *a)
{
    const int n = t->comm->n_ranks, bundles = mt_arithmetic_bundles(a);
    if (n > bundles)
        mt_warn("this run sums a step in %d bundle%s, so %d of %d machines compute%s; all of them share the state.  --bundles %d "
                "would use all of them; its results would not be bit-identical to those of the run so far",
                bundles, bundles == 1 ? "" : "s", bundles, n, bundles == 1 ? "s" : "", n);
}

static void check_lanes(const mt_trainer *t, const mt_arithmetic *a)
{
    const int n = t->exec.devices.n, parts = most_lanes(t, a);
    if (n > parts)
        mt_warn(
            "this run sums a step in %d share%s, so %d of %d devices compute%s.  --shares %d would use all of them; its results "
            "would not be bit-identical to those of the run so far",
            parts, parts == 1 ? "" : "s", parts, n, parts == 1 ? "s" : "", n);
}

static mt_rc choose_for(mt_trainer *t, const saved_state *saved, const mt_machine *here, mt_err *err)
{
    mt_arithmetic a = arithmetic_of(t, saved, here);
    const mt_job job = { .train = true,
                         .lanes = lanes_for(t, &a),
                         .machines = t->comm->n_ranks,
                         .machine = t->comm->rank,
                         .clip = mt_clip_needs_norm(t->s->training.max_grad_norm),
                         .step_tokens = t->data.info.max_tokens,
                         .step_docs = t->data.info.max_docs,
                         .longest = t->data.info.longest,
                         .router_loss = t->net.router_loss,
                         .objective = mt_train_objective(t->s, t->data.info.columns) };
    mt_machine roomy = *here;
    check_bundles(t, &a);
    check_lanes(t, &a);
    if (saved) hold_longest(&a, &job);
    mt_rc rc = choose(t, &job, &a, saved, here, err);
    if (rc != MT_ENOMEM) return rc;
    roomy.host_bytes = SIZE_MAX; /* more than is free, which the system may provide; device memory is fixed */
    bool helps = some_plan_fits((mt_plan_inputs){ t->net.model, &job, &a, &roomy }, saved);
    if (!helps || !t->s->memory.force) return not_started(t, helps, err);
    mt_warn("%s; started anyway (--force)", err->msg);
    t->exec.forced = true;
    return choose(t, &job, &a, saved, &roomy, err);
}

/* With several ranks, the first chooses the arithmetic of a fresh run, and the others plan with it. */
static mt_rc choose_in_turn(mt_trainer *t, const saved_state *saved, const mt_machine *machine, mt_err *err)
{
    saved_state chosen = { 0 };
    const bool follows = t->comm->rank && !saved;
    if (!follows) MT_TRY(choose_for(t, saved, machine, err));
    if (!follows) chosen.arithmetic = t->exec.plan->arithmetic;
    MT_TRY(mt_ranks_take_first(t->comm, &chosen.arithmetic, sizeof chosen.arithmetic, "the plan", err));
    return follows ? choose_for(t, &chosen, machine, err) : MT_OK;
}

mt_rc mt__train_plan(mt_trainer *t, const saved_state *saved, mt_err *err)
{
    mt_machine machine;
    MT_TRY(find_machine(t, &machine, err));
    MT_TRY(choose_in_turn(t, saved, &machine, err));
    plan_room(t, &machine);
    return MT_OK;
}

/* -- disk ------------------------------------------------------------------------------------------ */

static mt_rc count_there(const mt_trainer *t, int64_t *n, mt_err *err)
{
    mt_ckpt_list there;
    *n = 0;
    if (!t->resume.here) return MT_OK;
    MT_TRY(mt_ckpt_list_open(&there, t->dir.path, err));
    *n = (int64_t)there.n;
    mt_ckpt_list_free(&there);
    return MT_OK;
}

/* Or a number larger than any disk. */
static uint64_t times(int64_t n, uint64_t bytes)
{
    return bytes && (uint64_t)n > UINT64_MAX / 4 / bytes ? UINT64_MAX / 4 : (uint64_t)n * bytes;
}

/* A new checkpoint is complete before an old one is removed (C4), and old ones are removed before the finished model is
 * written. */
void mt_train_count_writes(mt_train_writes *w, const mt_save_settings *s, int64_t there, int64_t to_come)
{
    int64_t all = there + to_come, most = s->keep_last ? s->keep_last : INT64_MAX - 1;
    w->n = mt_max_i64(mt_min_i64(all, most + 1) - there, to_come > 0); /* there may already be more than are kept */
    uint64_t saving = times(w->n, w->checkpoint),
             ending = times(mt_max_i64(mt_min_i64(all, most) - there, 0), w->checkpoint) + w->model;
    w->bytes = saving > ending ? saving : ending;
}

static mt_rc count_writes(const mt_trainer *t, mt_train_writes *w, mt_err *err)
{
    mt_ckpt_save c = mt__train_ckpt(t);
    int64_t there;
    *w = (mt_train_writes){ .checkpoint = mt_ckpt_bytes(&c), .model = mt_export_bytes(&t->net.export) };
    MT_TRY(count_there(t, &there, err));
    mt_train_count_writes(w, &t->s->save, there,
                          saves_on_the_way(t) + (!t->s->save.save_only_model && t->at.step < t->course.n_steps));
    return MT_OK;
}

mt_rc mt__train_disk(mt_trainer *t, mt_err *err)
{
    mt_train_writes w;
    char what[320] = "the finished model";
    if (t->comm->rank) return MT_OK; /* the first looks for all */
    MT_TRY(count_writes(t, &w, err));
    if (w.n)
        snprintf(what, sizeof what,
                 "what the run writes (%lld checkpoint%s of %s, then the model of %s; less with%s a larger save.save_steps or a "
                 "smaller save.keep_last)",
                 (long long)w.n, w.n > 1 ? "s" : "", mt_bytes_text(w.checkpoint).s, mt_bytes_text(w.model).s,
                 t->s->save.save_only_model ? "" : " save.save_only_model,");
    mt_rc rc = mt_output_dir_need(&t->dir, w.bytes, what, err);
    if (!rc || !t->s->memory.force) return rc;
    mt_warn("%s; started anyway (--force)", err->msg);
    *err = (mt_err){ 0 };
    return MT_OK;
}

/* -- while it runs --------------------------------------------------------------------------------- */

mt_rc mt__train_memory_left(const mt_trainer *t, mt_err *err)
{
    mt_host h;
    size_t need = t->exec.plan->host_bytes + device_in_ram(t);
    MT_TRY(mt_host_read(&h, "", err));
    if (!t->exec.forced && need > h.ram_free)
        mt_warn("another process has taken host memory: the plan needs %s more, and by %s only %s is left; the run may be killed",
                mt_bytes_text(need).s, h.limited_by, mt_bytes_text(h.ram_free).s);
    return MT_OK;
}

/* Warns once, when so little memory is left that the system may kill a process.  A check costs a quarter of a millisecond, so it
 * runs once a second. */
void mt__train_watch_memory(mt_trainer *t)
{
    mt_err ignored = { 0 };
    mt_host h;
    if (t->timing.memory_warned || t->timing.clock < t->timing.memory_looked + 1) return;
    t->timing.memory_looked = t->timing.clock;
    if (mt_host_read(&h, "", &ignored) || !mt_host_nearly_full(&h)) return;
    t->timing.memory_warned = true;
    mt_warn("host memory is nearly used up: %s left (%s).  If that is another process, end it before the system ends this one",
            mt_bytes_text(h.ram_free).s, h.limited_by);
}

size_t mt__train_spare_memory(const mt_trainer *t)
{
    mt_err ignored = { 0 };
    mt_host h;
    return mt_host_read(&h, "", &ignored) ? 0 : (size_t)mt_min_i64((int64_t)(h.ram_free / 2), (int64_t)t->saver.planned_room);
}

/* -- afterwards ------------------------------------------------------------------------------------ */

void mt__train_compare(const mt_trainer *t, mt_train_compared *out)
{
    const mt_plan *p = t->exec.plan;
    mt_device_info d;
    struct rusage use;
    t->exec.dev->api->info(t->exec.dev, &d);
    *out =
        (mt_train_compared){ .planned_tokens_s = p->predicted_seconds > 0 ? (double)p->job.step_tokens / p->predicted_seconds : 0,
                             .tokens_s = t->timing.seconds > 0 ? (double)t->timing.tokens / t->timing.seconds : 0,
                             .planned_host = mt__train_planned_host(t),
                             .aside = t->saver.aside,
                             .planned_device = p->device_bytes,
                             .device = d.memory_peak };
    if (getrusage(RUSAGE_SELF, &use) == 0) out->host = (size_t)use.ru_maxrss * 1024;
}
