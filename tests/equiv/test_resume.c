/* Resuming from a checkpoint is the run that never stopped: weights, lo, m, v, metrics and the next batch, bit for bit; with half
 * the device memory too.  Evaluation changes nothing.  What is not finite is skipped, counted, and never saved. */
#include "rig.h"
#include "workspace.h"

#include "base/log.h"
#include "ckpt/checkpoint.h"
#include "ckpt/safetensors.h"
#include "data/source_tokens.h"
#include "run/train.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct setup {
    mt_settings s;
    int64_t stop_at;                       /* stop after this step; 0: never */
    int64_t stop_on;                       /* stop when asked for this time; 0: never */
    int64_t step, asked;                   /* so far */
    int64_t kill_at;                       /* SIGKILL after this step; 0: never */
    void (*meddle)(const struct setup *u); /* after step 6, when checkpoint-4 is there; NULL: nothing happens */
    test_path out;
    pthread_t opener;
    size_t loaded, to_load;
    int64_t unit_experts; /* 0: as the model says */
    mt_train_step reported[11];
} setup;

/* A checkpoint is written beside the steps that follow: until it is there, or half a minute is over. */
static void await_checkpoint(const setup *u, int64_t step)
{
    test_path at = workspace_path("%s/checkpoint-%lld", u->out.s, (long long)step);
    for (int i = 0; i < 3000 && access(at.s, F_OK) != 0; i++) usleep(10000);
}

static void after_step(void *user, const mt_train_step *step)
{
    setup *u = user;
    u->step = step->step;
    if (step->step <= (int64_t)MT_COUNT(u->reported)) u->reported[step->step - 1] = *step;
    if (u->meddle && step->step == 6) {
        await_checkpoint(u, 4);
        u->meddle(u);
    }
    if (u->kill_at != step->step) return;
    await_checkpoint(u, 4);
    raise(SIGKILL);
}

/* Only ever more, never too much, and in the end all. */
static void while_loading(void *user, size_t done, size_t total)
{
    setup *u = user;
    assert_true(pthread_equal(pthread_self(), u->opener));
    assert_true(done >= u->loaded && done <= total);
    u->loaded = done;
    u->to_load = total;
}

static int stop(void *user)
{
    setup *u = user;
    u->asked++;
    return (u->stop_at && u->step >= u->stop_at) || (u->stop_on && u->asked >= u->stop_on);
}

static void set(setup *u, const char *key, const char *value)
{
    mt_err err = { 0 };
    assert_ok(mt_settings_set(&u->s, key, value, "test", &err));
}

static void set_up(setup *u, const char *root, const char *out)
{
    mt_err err = { 0 };
    *u = (setup){ .out = workspace_path("%s/%s", root, out) };
    assert_ok(mt_settings_init(&u->s, &err));
    set(u, "model.name", workspace_path("%s/model", root).s);
    set(u, "model.device", rig_device());
    set(u, "dataset.path", workspace_path("%s/rows.json", root).s);
    set(u, "training.from_scratch", "true");
    set(u, "training.num_steps", "11");
    set(u, "training.batch_size", "8");
    set(u, "training.learning_rate", "3e-3");
    set(u, "training.lr_scheduler", "linear");
    set(u, "eval.val_size", "0.2");
    set(u, "save.save_steps", "4");
    set(u, "save.output_dir", u->out.s);
    set(u, "logging.enable_timing", "false");
}

typedef struct outcome {
    uint64_t checksum;
    int32_t next_ids[8];
    mt_train_result result;
    size_t device_bytes;
    uint64_t checkpoint_bytes;
    bool resumed;
    int64_t unit_experts;
} outcome;

static mt_rc run(setup *u, outcome *out, mt_err *err)
{
    mt_trainer *t = NULL;
    mt_train_info info;
    mt_batch next = { 0 };
    mt_train_hooks hooks = {
        .user = u, .loading = while_loading, .step = after_step, .stop = stop, .unit_experts = u->unit_experts
    };
    u->opener = pthread_self();
    mt_rc rc = mt_settings_check(&u->s, MT_NEED_MODEL | MT_NEED_DATA, err);
    if (!rc) rc = mt_trainer_open(&t, &u->s, &hooks, err);
    if (!rc) {
        assert_true(u->loaded && u->loaded == u->to_load);
        mt_trainer_info(t, &info);
        out->device_bytes = info.plan->device_bytes;
        out->checkpoint_bytes = info.checkpoint_bytes;
        out->resumed = *info.resumed_from;
        out->unit_experts = info.plan->arithmetic.unit_experts;
        rc = mt_trainer_run(t, &out->result, err);
    }
    if (!rc) rc = mt_engine_checksum(mt_trainer_engine(t), &out->checksum, err);
    if (!rc) rc = mt_trainer_batch(t, out->result.step, &next, err);
    for (size_t i = 0; !rc && i < MT_COUNT(out->next_ids); i++) out->next_ids[i] = next.ids[i];
    mt_batch_free(&next);
    mt_trainer_close(t);
    mt_settings_deinit(&u->s);
    return rc;
}

static outcome run_ok(setup *u)
{
    mt_err err = { 0 };
    outcome out = { 0 };
    assert_ok(run(u, &out, &err));
    return out;
}

/* As a child: dies three steps past the checkpoint, so that they are done again. */
static int be_killed(const char *root)
{
    setup u;
    mt_err err = { 0 };
    outcome ignored = { 0 };
    set_up(&u, root, "killed");
    u.kill_at = 7;
    return run(&u, &ignored, &err) ? 1 : 0;
}

/* This program again, not a fork of it: that could not use a GPU which its parent has opened. */
static void run_killed(const char *root)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "test", root, (char *)NULL);
        _exit(100);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void assert_same_files(const setup *a, const setup *b)
{
    static const char *const files[] = { "metrics.jsonl", "final/model.safetensors", "checkpoint-11/model.safetensors" };
    for (size_t i = 0; i < MT_COUNT(files); i++)
        if (!workspace_same_file(workspace_path("%s/%s", a->out.s, files[i]).s, workspace_path("%s/%s", b->out.s, files[i]).s))
            fail_msg("%s differs", files[i]);
    const char *name = "%s/checkpoint-11/resume/unit-%03d.safetensors";
    int u = 0;
    for (; mt_file_exists(workspace_path(name, a->out.s, u).s); u++)
        if (!workspace_same_file(workspace_path(name, a->out.s, u).s, workspace_path(name, b->out.s, u).s))
            fail_msg("unit %d differs", u);
    assert_true(u >= WORKSPACE_LAYERS + 2); /* all of them were compared */
}

static void assert_same(const outcome *a, const outcome *b)
{
    assert_true(a->checksum == b->checksum);
    assert_memory_equal(a->next_ids, b->next_ids, sizeof a->next_ids);
    assert_int_equal(a->result.step, b->result.step);
}

/* -- claims ---------------------------------------------------------------------------------------- */

static void stopped_and_resumed_is_uninterrupted(void **state)
{
    setup a, b;
    set_up(&a, *state, "whole");
    outcome whole = run_ok(&a);
    set_up(&b, *state, "parts");
    b.stop_at = 5; /* not a step at which it saves anyway */
    outcome first = run_ok(&b);
    assert_true(first.result.stopped);
    assert_int_equal(first.result.step, 5);
    assert_true(first.checksum != whole.checksum);
    set_up(&b, *state, "parts");
    set(&b, "save.resume", "latest");
    outcome rest = run_ok(&b);
    assert_true(rest.resumed);
    assert_same(&whole, &rest);
    assert_same_files(&a, &b);
}

/* Shares are the run's: a resumed one keeps them, unless another number is set. */
static void shares_are_kept(void **state)
{
    setup a, b;
    set_up(&a, *state, "plain");
    outcome plain = run_ok(&a);
    set_up(&a, *state, "whole");
    set(&a, "training.shares", "3");
    outcome whole = run_ok(&a);
    assert_true(whole.checksum != plain.checksum);
    set_up(&b, *state, "parts");
    set(&b, "training.shares", "3");
    b.stop_at = 5;
    run_ok(&b);
    set_up(&b, *state, "parts");
    set(&b, "save.resume", "latest"); /* shares: auto */
    outcome rest = run_ok(&b);
    assert_true(rest.resumed);
    assert_same(&whole, &rest);
    set_up(&b, *state, "other");
    set(&b, "training.shares", "3");
    b.stop_at = 5;
    run_ok(&b);
    set_up(&b, *state, "other");
    set(&b, "training.shares", "2");
    set(&b, "save.resume", "latest");
    rest = run_ok(&b);
    assert_true(rest.resumed && rest.checksum != whole.checksum);
}

/* A run of three shares ends the same whichever lanes begin and end it; a fourth lane would idle, and says so. */
static void any_number_of_lanes_continues_a_run(void **state)
{
    static const char *const lanes[] = { "", "0,0", "0,0,0", "0,0,0,0" };
    setup a, b;
    set_up(&a, *state, "whole");
    set(&a, "training.shares", "3");
    outcome whole = run_ok(&a);
    for (size_t from = 0; from < MT_COUNT(lanes); from++) {
        const char *to = lanes[(from + 1) % MT_COUNT(lanes)];
        test_path out = workspace_path("lanes-%d", (int)from);
        set_up(&b, *state, out.s);
        set(&b, "training.shares", "3");
        if (*lanes[from]) set(&b, "model.devices", lanes[from]);
        b.stop_at = 5;
        run_ok(&b);
        set_up(&b, *state, out.s);
        if (*to) set(&b, "model.devices", to);
        set(&b, "save.resume", "latest");
        outcome rest = run_ok(&b);
        assert_true(rest.resumed);
        assert_same(&whole, &rest);
    }
}

/* The model of the workspace with this frozen: stopped and resumed, and in one go. */
static void resume_with_frozen(void *dir, const char *freeze)
{
    setup a, b;
    set_up(&a, dir, "whole");
    set(&a, "training.freeze", freeze);
    outcome whole = run_ok(&a);
    set_up(&b, dir, "parts");
    set(&b, "training.freeze", freeze);
    b.stop_at = 5;
    run_ok(&b);
    set_up(&b, dir, "parts");
    set(&b, "training.freeze", freeze);
    set(&b, "save.resume", "latest");
    outcome rest = run_ok(&b);
    assert_true(rest.resumed);
    assert_same(&whole, &rest);
    assert_same_files(&a, &b);
}

/* Layers of two kinds, with numbers that stay fp32, one of them frozen. */
static void so_it_is_for_a_model_with_gated_delta_nets(void **state)
{
    workspace_write(
        *state, "model/config.json",
        "{\"model_type\": \"qwen3_5_text\", \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 6, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 16, \"vocab_size\": 61, "
        "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 8, "
        "\"linear_value_head_dim\": 8, \"torch_dtype\": \"bfloat16\", \"eos_token_id\": 2}\n");
    resume_with_frozen(*state, "model.layers.1.linear_attn.A_log,*.in_proj_z.weight");
}

/* Tensors that hold two roles, a frozen one among them, and a correction bias that stays as it is. */
static void so_it_is_for_a_model_with_latent_attention(void **state)
{
    workspace_write(
        *state, "model/config.json",
        "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 6, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"vocab_size\": 61, \"q_lora_rank\": 24, \"kv_lora_rank\": 16, "
        "\"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 8, \"v_head_dim\": 12, \"n_routed_experts\": 4, "
        "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 16, \"n_group\": 2, \"topk_group\": 1, "
        "\"first_k_dense_replace\": 5, \"torch_dtype\": \"bfloat16\", \"eos_token_id\": 2}\n");
    resume_with_frozen(*state, "model.layers.1.self_attn.kv_b_proj.weight,*.q_a_layernorm.weight");
}

static const char experts_config[] =
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 32, \"intermediate_size\": 48, \"moe_intermediate_size\": 16, "
    "\"num_hidden_layers\": 6, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 16, "
    "\"vocab_size\": 61, \"num_experts\": 4, \"num_experts_per_tok\": 2, \"mlp_only_layers\": [1], "
    "\"torch_dtype\": \"bfloat16\", \"eos_token_id\": 2}\n";

/* Whole, and in two parts, with experts in units of two and some of the weights frozen. */
static void resume_with_experts(const char *root, const char *config, const char *freeze)
{
    workspace_write(root, "model/config.json", config);
    setup a, b;
    set_up(&a, root, "whole");
    set(&a, "training.freeze", freeze);
    a.unit_experts = 2;
    outcome whole = run_ok(&a);
    for (int part = 0; part < 2; part++) {
        set_up(&b, root, "parts");
        set(&b, "training.freeze", freeze);
        b.unit_experts = 2;
        if (part == 0)
            b.stop_at = 5;
        else
            set(&b, "save.resume", "latest");
        outcome rest = run_ok(&b);
        assert_int_equal(rest.resumed, part);
        if (part) assert_same(&whole, &rest);
    }
    assert_same_files(&a, &b);
}

/* Eleven steps in units of two experts; or five, and the rest in units of `then`. */
static outcome in_units(const char *root, const char *out, int64_t then, const char *max_grad_norm, const char *adam_state)
{
    setup u;
    outcome o = { 0 };
    for (int part = then ? 0 : 1; part < 2; part++) {
        set_up(&u, root, out);
        set(&u, "training.max_grad_norm", max_grad_norm);
        set(&u, "memory.adam_state", adam_state);
        u.unit_experts = part && then ? then : 2;
        if (then && part) set(&u, "save.resume", "latest");
        if (then && !part) u.stop_at = 5;
        o = run_ok(&u);
    }
    return o;
}

/* The finished models of two runs, tensor by tensor: their order in the files follows units. */
static bool same_tensors(const char *a, const char *b)
{
    mt_err err = { 0 };
    mt_safetensors *x, *y;
    assert_ok(mt_safetensors_open(&x, workspace_path("%s/final/model.safetensors", a).s, &err));
    assert_ok(mt_safetensors_open(&y, workspace_path("%s/final/model.safetensors", b).s, &err));
    bool same = mt_safetensors_count(x) == mt_safetensors_count(y);
    for (size_t i = 0; same && i < mt_safetensors_count(x); i++) {
        const mt_st_tensor *t = mt_safetensors_at(x, i), *u = mt_safetensors_find(y, t->name);
        same = u && u->n == t->n && memcmp(u->data, t->data, t->n * mt_dtype_bytes(t->dtype)) == 0;
    }
    mt_safetensors_close(x);
    mt_safetensors_close(y);
    return same;
}

/* Any units continue a run bit for bit that neither clips nor rounds its moments; others keep their own. */
static void units_of_other_experts_change_no_bit(void **state)
{
    static const struct {
        const char *max_grad_norm, *adam_state;
        int64_t then, kept; /* kept: what the resumed run has */
    } cases[] = {
        { "0", "float32", 4, 4 }, { "0", "float32", 1, 1 }, { "1.0", "float32", 4, 2 },
        { "0", "8bit", 4, 2 },    { "0", "bf16", 1, 2 },
    };
    workspace_write(*state, "model/config.json", experts_config);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        test_path whole = workspace_case(*state, "whole"), parts = workspace_case(*state, "parts");
        in_units(*state, "whole", 0, cases[i].max_grad_norm, cases[i].adam_state);
        outcome rest = in_units(*state, "parts", cases[i].then, cases[i].max_grad_norm, cases[i].adam_state);
        assert_true(rest.resumed);
        assert_int_equal(rest.unit_experts, cases[i].kept);
        if (!same_tensors(whole.s, parts.s))
            fail_msg("case %zu: resumed in units of %d experts, other bits", i, (int)cases[i].then);
    }
}

/* One layer is dense; the experts of another are frozen. */
static void so_it_is_for_a_model_with_experts(void **state)
{
    resume_with_experts(*state, experts_config, "model.layers.2.mlp.experts.*");
}

/* Three value heads for a key head, a shared expert, and frozen: the decays of one layer, the experts of another, all z. */
static void so_it_is_for_a_model_with_gated_delta_nets_and_experts(void **state)
{
    resume_with_experts(
        *state,
        "{\"model_type\": \"qwen3_5_moe_text\", \"hidden_size\": 32, \"moe_intermediate_size\": 16, "
        "\"shared_expert_intermediate_size\": 16, \"num_hidden_layers\": 6, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 1, \"head_dim\": 16, \"vocab_size\": 61, \"num_experts\": 4, \"num_experts_per_tok\": 2, "
        "\"linear_num_key_heads\": 1, \"linear_num_value_heads\": 3, \"linear_key_head_dim\": 8, "
        "\"linear_value_head_dim\": 8, \"torch_dtype\": \"bfloat16\", \"eos_token_id\": 2}\n",
        "model.layers.1.linear_attn.A_log,model.layers.2.mlp.experts.*,*.in_proj_z.weight");
}

static void killed_and_resumed_is_uninterrupted(void **state)
{
    setup a, b;
    set_up(&a, *state, "whole");
    run_killed(*state);
    outcome whole = run_ok(&a);
    set_up(&b, *state, "killed");
    set(&b, "save.resume", "latest");
    outcome rest = run_ok(&b);
    assert_true(rest.resumed);
    assert_same(&whole, &rest);
    assert_same_files(&a, &b);
}

static void half_the_device_memory_changes_no_bit(void **state)
{
    setup a, b;
    char bytes[32];
    set_up(&a, *state, "whole");
    outcome whole = run_ok(&a);
    set_up(&b, *state, "halved");
    b.stop_at = 6;
    outcome first = run_ok(&b);
    set_up(&b, *state, "halved");
    snprintf(bytes, sizeof bytes, "%zuB", first.device_bytes / 2);
    set(&b, "memory.device_memory", bytes);
    set(&b, "save.resume", "latest");
    outcome rest = run_ok(&b);
    assert_true(rest.resumed && rest.device_bytes <= first.device_bytes / 2);
    assert_same(&whole, &rest);
    assert_same_files(&a, &b);
}

/* All state at home in host memory, updated there and on its way through the device; a checkpoint of every step beside the next; then less device memory. */
static void state_in_host_memory_changes_no_bit(void **state)
{
    setup a, b;
    char bytes[32];
    set_up(&a, *state, "whole");
    outcome whole = run_ok(&a);
    set_up(&b, *state, "hosted");
    set(&b, "memory.home", "host");
    set(&b, "save.save_steps", "1");
    b.stop_at = 5;
    outcome first = run_ok(&b);
    set_up(&b, *state, "hosted");
    set(&b, "memory.home", "host");
    snprintf(bytes, sizeof bytes, "%zuB", first.device_bytes / 4 * 3);
    set(&b, "memory.device_memory", bytes);
    set(&b, "save.resume", "latest");
    outcome rest = run_ok(&b);
    assert_true(rest.resumed && rest.device_bytes <= first.device_bytes / 4 * 3);
    assert_same(&whole, &rest);
    assert_same_files(&a, &b);
}

static void evaluation_changes_no_bit(void **state)
{
    setup a, b;
    set_up(&a, *state, "often");
    set(&a, "eval.eval_steps", "1");
    outcome often = run_ok(&a);
    set_up(&b, *state, "never");
    set(&b, "eval.at_start", "false");
    set(&b, "training.num_steps", "11");
    outcome rarely = run_ok(&b);
    assert_same(&often, &rarely);
}

/* Stopped whenever it asks, in the middle of evaluations too (of three batches each), the first and the last among them: they are
 * made again when the run resumes, and nothing shows. */
static void a_stop_does_not_wait_for_an_evaluation(void **state)
{
    setup a, b;
    bool stopped = true, at_start = false, at_end = false;
    set_up(&a, *state, "whole");
    set(&a, "eval.val_size", "20");
    set(&a, "eval.eval_steps", "4");
    outcome whole = run_ok(&a);
    for (int64_t when = 1; stopped; when += 2) {
        char name[32];
        snprintf(name, sizeof name, "stopped-%lld", (long long)when);
        for (int resume = 0; resume < 2 && stopped; resume++) {
            set_up(&b, *state, name);
            set(&b, "eval.val_size", "20");
            set(&b, "eval.eval_steps", "4");
            set(&b, "save.resume", resume ? "latest" : "");
            b.stop_on = resume ? 0 : when;
            outcome o = run_ok(&b);
            if (resume) {
                assert_same(&whole, &o);
                assert_same_files(&a, &b);
                continue;
            }
            stopped = o.result.stopped;
            at_start |= stopped && o.result.step == 0;
            at_end |= stopped && o.result.step == 11;
        }
    }
    assert_true(at_start && at_end);
}

/* The comparisons above can fail. */
static void another_seed_is_another_run(void **state)
{
    setup a, b;
    set_up(&a, *state, "one");
    outcome one = run_ok(&a);
    set_up(&b, *state, "two");
    set(&b, "training.seed", "43");
    outcome two = run_ok(&b);
    assert_true(one.checksum != two.checksum);
}

static void a_frozen_tensor_is_saved_and_resumed(void **state)
{
    setup a, b;
    set_up(&a, *state, "whole");
    set(&a, "training.freeze", "model.layers.2.*,model.embed_tokens.weight");
    outcome whole = run_ok(&a);
    set_up(&b, *state, "parts");
    set(&b, "training.freeze", "model.layers.2.*,model.embed_tokens.weight");
    b.stop_at = 5;
    run_ok(&b);
    set_up(&b, *state, "parts");
    set(&b, "training.freeze", "model.layers.2.*,model.embed_tokens.weight");
    set(&b, "save.resume", "latest");
    outcome rest = run_ok(&b);
    assert_same(&whole, &rest);
}

static const char *const small_states[] = { "bf16", "8bit" };

static void set_up_state(setup *u, const char *root, const char *out, const char *form)
{
    set_up(u, root, out);
    set(u, "memory.adam_state", form);
    set(u, "save.overwrite", "true");
}

/* Moments in a smaller form, their random bits included: stopped, resumed with half the device memory, and nothing shows.  Something is frozen,
 * so that blocks of moments and tensors end at different places. */
static void smaller_moments_are_resumed_bit_for_bit(void **state)
{
    outcome f32 = { 0 };
    setup a, b;
    set_up_state(&a, *state, "float32", "float32");
    f32 = run_ok(&a);
    for (size_t i = 0; i < MT_COUNT(small_states); i++) {
        char bytes[32];
        set_up_state(&a, *state, "whole", small_states[i]);
        set(&a, "training.freeze", "model.layers.1.self_attn.k_proj.*");
        outcome whole = run_ok(&a);
        set_up_state(&b, *state, "parts", small_states[i]);
        set(&b, "training.freeze", "model.layers.1.self_attn.k_proj.*");
        b.stop_at = 5;
        outcome first = run_ok(&b);
        set_up_state(&b, *state, "parts", small_states[i]);
        set(&b, "training.freeze", "model.layers.1.self_attn.k_proj.*");
        set(&b, "save.overwrite", "false");
        set(&b, "save.resume", "latest");
        snprintf(bytes, sizeof bytes, "%zuB", first.device_bytes / 2);
        set(&b, "memory.device_memory", bytes);
        outcome rest = run_ok(&b);
        assert_true(rest.resumed);
        assert_same(&whole, &rest);
        assert_same_files(&a, &b);
        assert_true(whole.checksum != f32.checksum);
        assert_true(whole.checkpoint_bytes < f32.checkpoint_bytes);
    }
}

/* The same with an optimizer that has one array. */
static void lion_is_resumed_bit_for_bit(void **state)
{
    for (int form = 0; form < MT_MOMENTS_FORMS; form++) {
        setup a, b;
        const char *name = mt_moments_name((mt_moments)form);
        set_up_state(&a, *state, "whole", name);
        const outcome adamw = run_ok(&a);
        set_up_state(&a, *state, "whole", name);
        set(&a, "optimizer.type", "lion");
        const outcome whole = run_ok(&a);
        set_up_state(&b, *state, "parts", name);
        set(&b, "optimizer.type", "lion");
        b.stop_at = 5;
        const outcome first = run_ok(&b);
        char bytes[32];
        set_up_state(&b, *state, "parts", name);
        set(&b, "optimizer.type", "lion");
        set(&b, "save.overwrite", "false");
        set(&b, "save.resume", "latest");
        snprintf(bytes, sizeof bytes, "%zuB", first.device_bytes / 2);
        set(&b, "memory.device_memory", bytes);
        const outcome rest = run_ok(&b);
        assert_true(rest.resumed);
        assert_same(&whole, &rest);
        assert_same_files(&a, &b);
        assert_true(whole.checksum != adamw.checksum);
        assert_true(whole.checkpoint_bytes < adamw.checkpoint_bytes);
    }
}

static void another_optimizer_is_refused(void **state)
{
    static const char *const names[] = { "adamw", "lion" };
    for (int was = 0; was < 2; was++) {
        setup a;
        outcome out = { 0 };
        mt_err err = { 0 };
        set_up_state(&a, *state, "changed", "float32");
        set(&a, "optimizer.type", names[was]);
        a.stop_at = 1;
        run_ok(&a);
        set_up_state(&a, *state, "changed", "float32");
        set(&a, "optimizer.type", names[!was]);
        set(&a, "save.overwrite", "false");
        set(&a, "save.resume", "latest");
        assert_int_equal(run(&a, &out, &err), MT_EINVAL);
        assert_says("set optimizer.type back to");
        assert_says(names[was]);
    }
}

/* What the checkpoint holds decides; the difference is named, whichever way it goes. */
static void another_form_of_moments_is_refused(void **state)
{
    static const char *const forms[] = { "float32", "bf16", "8bit" };
    for (size_t was = 0; was < MT_COUNT(forms); was++)
        for (size_t now = 0; now < MT_COUNT(forms); now++) {
            setup a;
            outcome out = { 0 };
            mt_err err = { 0 };
            if (was == now) continue;
            set_up_state(&a, *state, "changed", forms[was]);
            a.stop_at = 1;
            run_ok(&a);
            set_up_state(&a, *state, "changed", forms[now]);
            set(&a, "save.overwrite", "false");
            set(&a, "save.resume", "latest");
            assert_int_equal(run(&a, &out, &err), MT_EINVAL);
            assert_says("memory.adam_state was");
            assert_says(forms[was]);
            assert_says(forms[now]);
        }
}

/* Kept inputs in host memory, or not: the same bits. */
static void offloaded_inputs_change_no_bit(void **state)
{
    setup a;
    set_up(&a, *state, "kept");
    set(&a, "memory.offload_inputs", "false");
    outcome kept = run_ok(&a);
    set_up(&a, *state, "offloaded");
    set(&a, "memory.offload_inputs", "true");
    outcome offloaded = run_ok(&a);
    assert_same(&kept, &offloaded);
}

static void assert_all_finite(const char *path)
{
    mt_err err = { 0 };
    mt_safetensors *st;
    assert_ok(mt_safetensors_open(&st, path, &err));
    for (size_t i = 0; i < mt_safetensors_count(st); i++) {
        const mt_st_tensor *t = mt_safetensors_at(st, i);
        for (size_t k = 0; k < t->n; k++) {
            float x;
            mt_to_f32(&x, t->data + k * mt_dtype_bytes(t->dtype), t->dtype, 1);
            assert_true(isfinite(x));
        }
    }
    mt_safetensors_close(st);
}

/* A learning rate that no weight survives: steps are skipped, then the run ends; the checkpoints it leaves are whole and finite. */
static void steps_that_are_not_finite_end_the_run_and_are_never_saved(void **state)
{
    setup a;
    outcome out = { 0 };
    mt_err err = { 0 };
    set_up(&a, *state, "broken");
    set(&a, "training.learning_rate", "1e3");
    set(&a, "training.lr_scheduler", "constant");
    set(&a, "training.num_steps", "2000");
    set(&a, "training.max_bad_steps", "3");
    set(&a, "training.max_grad_norm", ".inf");
    set(&a, "training.weight_decay", "100");
    assert_int_equal(run(&a, &out, &err), MT_ENUMERIC);
    assert_says("finite");
    assert_says("checkpoint");
    mt_ckpt_list left;
    assert_ok(mt_ckpt_list_open(&left, a.out.s, &err));
    for (size_t i = 0; i < left.n; i++) {
        test_path path = workspace_path("%s/checkpoint-%lld", a.out.s, (long long)left.steps[i]);
        assert_ok(mt_ckpt_verify(path.s, &err));
        assert_all_finite(workspace_path("%s/model.safetensors", path.s).s);
    }
    mt_ckpt_list_free(&left);
}

/* Steps 1, 3 and 5 train 4 of 5 tokens; the others none of 40, which take no time. */
static void steps_without_trained_tokens_are_no_speed(void **state)
{
    setup a;
    mt_str s = { 0 };
    for (int labels = 0; labels < 2; labels++) {
        mt_str_puts(&s, labels ? "]], \"labels\": [[" : "{\"input_ids\": [[");
        for (int row = 0; row < 11; row++) {
            const bool trained = row < 5 && row % 2 == 0;
            mt_str_puts(&s, row ? "], [" : "");
            for (int i = 0; i < (trained ? 5 : 40); i++) mt_str_printf(&s, "%s%d", i ? ", " : "", labels && !trained ? -100 : i);
        }
    }
    mt_str_puts(&s, "]]}");
    workspace_write(*state, "rows.json", s.s);
    mt_str_free(&s);
    set_up(&a, *state, "sparse");
    set(&a, "training.batch_size", "1");
    set(&a, "dataset.shuffle", "false");
    set(&a, "eval.val_size", "0");
    set(&a, "logging.log_interval", "2");
    outcome out = run_ok(&a);
    for (int i = 0; i < 11; i++) {
        const mt_train_step *r = &a.reported[i];
        assert_int_equal(r->empty, i > 4 || i % 2);
        if (i > 5) assert_true(r->tokens_s == 0 && r->trained_s == 0 && r->flops_s == 0 && r->seconds == 0);
        if (i <= 5) assert_float_equal(r->trained_s / r->tokens_s, 0.8, 1e-9);
    }
    assert_int_equal(out.result.n_skipped, 8);
    char *plan;
    mt_err err = { 0 };
    assert_ok(mt_file_read(&plan, NULL, workspace_path("%s/plan.json", a.out.s).s, 1 << 20, &err));
    assert_non_null(strstr(plan, "\"predicted_seconds\": "));
    assert_null(strstr(plan, "\"step_seconds\"")); /* a name of measured steps alone */
    mt_free(plan);
    assert_true(out.result.compared.tokens_s < 10 / a.reported[4].seconds);
}

static void count_diverging(void *user, mt_log_level level, const char *text)
{
    if (level == MT_LOG_WARN && strstr(text, "more than 100 times that of step 1 (")) ++*(int *)user;
}

/* A learning rate of 50 makes the loss thousands, without a number that is not finite; one line says so. */
static void a_loss_that_explodes_is_warned_of_once(void **state)
{
    static const char *const rates[] = { "3e-3", "50" };
    for (int i = 0; i < 2; i++) {
        setup a;
        int n = 0;
        set_up(&a, *state, rates[i]);
        set(&a, "training.learning_rate", rates[i]);
        set(&a, "training.lr_scheduler", "constant");
        mt_log_set_sink(count_diverging, &n);
        const outcome out = run_ok(&a);
        mt_log_set_sink(NULL, NULL);
        assert_int_equal(out.result.n_skipped, 0);
        assert_int_equal(n, i);
    }
}

static test_path elsewhere(const setup *u) { return workspace_path("%s-moved", u->out.s); }

static void move_away(const setup *u) { assert_int_equal(rename(u->out.s, elsewhere(u).s), 0); }

static void remove_all(const setup *u)
{
    mt_err err = { 0 };
    assert_ok(mt_dir_remove(u->out.s, &err));
}

static void move_and_make_anew(const setup *u)
{
    move_away(u);
    assert_int_equal(mkdir(u->out.s, 0777), 0);
}

/* A link to an empty directory in its place. */
static void move_and_link_astray(const setup *u)
{
    test_path other = workspace_path("%s-other", u->out.s);
    move_away(u);
    assert_int_equal(mkdir(other.s, 0777), 0);
    assert_int_equal(symlink(other.s, u->out.s), 0);
}

static void move_and_link_there(const setup *u)
{
    move_away(u);
    assert_int_equal(symlink(elsewhere(u).s, u->out.s), 0);
}

static bool is_empty(const char *dir) { return rmdir(dir) == 0; /* which refuses any other */ }

/* C13: the run ends, says where its directory is, and writes nothing under the old name. */
static void a_directory_that_is_moved_or_removed_ends_the_run(void **state)
{
    static const struct {
        const char *name;
        void (*meddle)(const setup *u);
        const char *says;
    } cases[] = { { "mv", move_away, "was moved while the run wrote there: it is now " },
                  { "rm", remove_all, "was removed while the run wrote there: " },
                  { "anew", move_and_make_anew, "was moved while the run wrote there, and something else has its name: " },
                  { "link", move_and_link_astray, "was moved while the run wrote there, and something else has its name: " } };
    setup a, b;
    set_up(&a, *state, "whole");
    const outcome whole = run_ok(&a);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        outcome out = { 0 };
        set_up(&b, *state, cases[i].name);
        b.meddle = cases[i].meddle;
        assert_int_equal(run(&b, &out, &err), MT_ENOENT);
        assert_says(cases[i].says);
        const test_path moved = elsewhere(&b), link = workspace_path("%s-other", b.out.s);
        if (b.meddle == move_and_link_astray) assert_true(is_empty(link.s));
        if (b.meddle == move_and_make_anew)
            assert_true(is_empty(b.out.s));
        else if (b.meddle != move_and_link_astray)
            assert_int_not_equal(access(b.out.s, F_OK), 0);
        if (b.meddle == remove_all) continue;
        assert_says(moved.s);
        assert_null(strstr(err.msg, "last complete checkpoint is"));
        set_up(&b, *state, workspace_path("%s-moved", cases[i].name).s);
        set(&b, "save.resume", "latest");
        const outcome rest = run_ok(&b);
        assert_true(rest.resumed);
        assert_same(&whole, &rest);
        assert_same_files(&a, &b);
    }
}

static void a_link_to_a_moved_directory_is_as_good(void **state)
{
    setup a, b;
    set_up(&a, *state, "whole");
    const outcome whole = run_ok(&a);
    set_up(&b, *state, "parts");
    b.meddle = move_and_link_there;
    const outcome linked = run_ok(&b);
    assert_same(&whole, &linked);
    assert_same_files(&a, &b);
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        RUNS(killed_and_resumed_is_uninterrupted),
        RUNS(stopped_and_resumed_is_uninterrupted),
        RUNS(shares_are_kept),
        RUNS(any_number_of_lanes_continues_a_run),
        RUNS(so_it_is_for_a_model_with_gated_delta_nets),
        RUNS(so_it_is_for_a_model_with_latent_attention),
        RUNS(so_it_is_for_a_model_with_experts),
        RUNS(so_it_is_for_a_model_with_gated_delta_nets_and_experts),
        RUNS(units_of_other_experts_change_no_bit),
        RUNS(half_the_device_memory_changes_no_bit),
        RUNS(state_in_host_memory_changes_no_bit),
        RUNS(evaluation_changes_no_bit),
        RUNS(a_stop_does_not_wait_for_an_evaluation),
        RUNS(another_seed_is_another_run),
        RUNS(smaller_moments_are_resumed_bit_for_bit),
        RUNS(another_form_of_moments_is_refused),
        RUNS(lion_is_resumed_bit_for_bit),
        RUNS(another_optimizer_is_refused),
        RUNS(offloaded_inputs_change_no_bit),
        RUNS(a_frozen_tensor_is_saved_and_resumed),
        RUNS(a_loss_that_explodes_is_warned_of_once),
        RUNS(a_directory_that_is_moved_or_removed_ends_the_run),
        RUNS(a_link_to_a_moved_directory_is_as_good),
        RUNS(steps_without_trained_tokens_are_no_speed),
        RUNS(steps_that_are_not_finite_end_the_run_and_are_never_saved),
    };
    if (argc > 1) return be_killed(argv[1]);
    return rig_can_run() ? cmocka_run_group_tests(tests, NULL, NULL) : RIG_SKIPPED;
}
