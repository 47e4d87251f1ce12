/* cmd_inspect.c - megatrain inspect MODEL: shows what a model directory contains; megatrain families: lists the known
 * families. */
#include "base/file.h"
#include "base/units.h"
#include "ckpt/model_files.h"
#include "ckpt/weights.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/hub_bar.h"
#include "device/blas.h"
#include "device/device.h"
#include "model/flops.h"
#include "model/part.h"

#include <stdio.h>
#include <string.h>

typedef struct found {
    mt_config *config;
    mt_shards *shards; /* NULL: config alone */
    mt_model *model;
    char tying[256];
    size_t n_unused;
    bool known; /* the family is not a guess */
} found;

/* A directory with config.json and no weights at all can be inspected too; one that lacks a shard is broken. */
static bool has_index(const char *dir)
{
    static const char *const names[] = { "model.safetensors.index.json", "pytorch_model.bin.index.json" };
    bool yes = false;
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        char *index = mt_path_join(dir, names[i]);
        yes = yes || (index && mt_file_exists(index));
        mt_free(index);
    }
    return yes;
}

static mt_rc cmd_inspect_find(found *f, const char *dir, const char *assume, mt_err *err)
{
    MT_TRY(mt_model_files_config(&f->config, dir, err));
    MT_TRY(mt_config_assume(&f->config, assume, err));
    f->known = !f->config->document;
    mt_rc rc = mt_model_files_exist(dir) ? mt_shards_open(&f->shards, dir, err) : MT_ENOENT;
    if (rc && (rc != MT_ENOENT || has_index(dir))) return rc;
    MT_TRY(mt_weights_model(&f->model, &f->config, f->shards, NULL, f->tying, err));
    return f->shards ? mt_weights_check(f->model, f->shards, &f->n_unused, err) : MT_OK;
}

static void print_rope(const mt_rope_spec *r)
{
    static const char *const types[] = {
        [MT_ROPE_DEFAULT] = "no scaling", [MT_ROPE_LINEAR] = "linear", [MT_ROPE_DYNAMIC] = "dynamic",
        [MT_ROPE_LLAMA3] = "llama3",      [MT_ROPE_YARN] = "yarn",     [MT_ROPE_LONG] = "longrope"
    };
    printf("rotary %s, %lld of each head, theta %g, %s", r->style == MT_ROPE_PAIR ? "pairs" : "halves", (long long)r->dr,
           r->theta, types[r->type]);
    if (r->factor != 1) printf(" by %g", r->factor);
}

static void print_positions(const mt_config *c)
{
    int64_t n_none = 0;
    for (int64_t i = 0; i < c->L; i++) n_none += c->layers[i].rope == MT_LAYER_NOPE;
    printf("positions    ");
    if (c->learned_positions) printf("learned, %lld rows", (long long)c->position_rows);
    if (c->alibi != 0) printf("ALiBi");
    if (c->rope.dr) print_rope(&c->rope);
    if (c->has_rope_local) printf("; on sliding layers "), print_rope(&c->rope_local);
    if (c->rope.dr && n_none) printf("; none on %lld of %lld layers", (long long)n_none, (long long)c->L);
    printf("\n");
}

static void print_windows(const mt_config *c)
{
    int64_t n = 0, width = 0;
    for (int64_t i = 0; i < c->L; i++)
        if (c->layers[i].window) n++, width = c->layers[i].window;
    if (n) printf("window       %lld tokens on %lld of %lld layers\n", (long long)width, (long long)n, (long long)c->L);
    n = 0;
    for (int64_t i = 0; i < c->L; i++)
        if (c->layers[i].chunk) n++, width = c->layers[i].chunk;
    if (n) printf("chunks       of %lld tokens on %lld of %lld layers\n", (long long)width, (long long)n, (long long)c->L);
}

static void print_delta(const mt_config *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->L; i++) n += c->layers[i].mixer == &mt_mixer_delta;
    if (!n) return;
    printf(
        "delta nets   on %lld of %lld layers: %lld value heads of %lld, %lld key heads of %lld, a convolution over %lld rows\n",
        (long long)n, (long long)c->L, (long long)c->delta.H, (long long)c->delta.Dv, (long long)c->delta.K,
        (long long)c->delta.Dk, (long long)c->delta.width);
}

static void print_experts(const mt_config *c)
{
    const mt_layer_spec *s = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < c->L; i++)
        if (c->layers[i].E) n++, s = &c->layers[i];
    if (!s) return;
    printf("experts      %lld experts on %lld of %lld layers, %lld for each row, %lld wide", (long long)s->E, (long long)n,
           (long long)c->L, (long long)s->T, (long long)s->I);
    if (s->Is) printf("; a shared one, %lld wide", (long long)s->Is);
    printf("\n");
}

static void print_block(const mt_config *c)
{
    static const char *const norms[] = {
        [MT_NORMS_PRE] = "before", [MT_NORMS_SANDWICH] = "before and after", [MT_NORMS_POST] = "after"
    };
    static const char *const forms[] = { [MT_BLOCK_SERIAL] = "attention, then mlp",
                                         [MT_BLOCK_PARALLEL] = "attention and mlp side by side",
                                         [MT_BLOCK_ONE_NORM] = "attention and mlp side by side after one norm" };
    static const char *const acts[] = {
        [MT_ACT_SILU] = "silu",           [MT_ACT_GELU_TANH] = "gelu (tanh)", [MT_ACT_GELU_ERF] = "gelu",
        [MT_ACT_RELU] = "relu",           [MT_ACT_RELU2] = "relu squared",    [MT_ACT_XIELU] = "xIELU",
        [MT_ACT_CLAMPED] = "clamped silu"
    };
    printf("block        %s %s each branch%s; %s; %s mlp, %s\n", c->layer_norm ? "LayerNorm" : "RMS norm", norms[c->norms],
           c->norm_one_plus ? ", weights stored as w - 1" : "", forms[c->form], c->plain_mlp ? "plain" : "gated", acts[c->act]);
    if (c->act == MT_ACT_CLAMPED) printf("             gates and ups clamped at %g\n", c->act_limit);
    if (c->sinks) printf("             attention sinks\n");
    if (c->o_gate) printf("             attention's output is gated\n");
    if (c->attention_softcap != 0) printf("             scores capped at %g\n", c->attention_softcap);
    if (c->logit_softcap != 0) printf("             logits capped at %g\n", c->logit_softcap);
    if (c->embed_scale != 1 || c->residual_scale != 1 || c->logit_scale != 1)
        printf("             times %g the embedding, %g each branch, %g the logits\n", c->embed_scale, c->residual_scale,
               c->logit_scale);
    if (c->norm_head) printf("             the head's rows are normalized\n");
}

static void print_shape(const mt_model *m)
{
    const mt_config *c = m->config;
    printf("family       %s, from %s (model_type \"%s\"%s%s)\n", c->family->name, c->decided_by, c->model_type,
           c->architecture[0] ? ", " : "", c->architecture);
    printf("shape        %lld layers, hidden %lld, mlp %lld, %lld heads of %lld (%lld key/value), vocabulary %lld\n",
           (long long)c->L, (long long)c->D, (long long)c->F, (long long)c->H, (long long)c->Dh, (long long)c->K,
           (long long)c->V);
    print_positions(c);
    print_windows(c);
    print_delta(c);
    print_experts(c);
    print_block(c);
    printf("traits       %s head, qkv bias %s, o bias %s, mlp bias %s, head norm %s, eps %g, %lld positions\n",
           m->tied ? "tied" : "untied", c->qkv_bias ? "yes" : "no", c->o_bias ? "yes" : "no", c->mlp_bias ? "yes" : "no",
           c->qk_norm ? "yes" : "no", c->eps, (long long)c->max_positions);
}

static void print_units(const mt_model *m)
{
    int64_t active = mt_flops_weights(m);
    printf("parameters   %s (%lld)", mt_count_text((uint64_t)m->n_params).s, (long long)m->n_params);
    if (active < m->n_params / 2) printf("; a token is multiplied with %s", mt_count_text((uint64_t)active).s);
    printf("\n");
    for (int g = 0; g < m->n_groups; g++) {
        int n = 0, first = -1;
        char name[MT_NAME_BYTES];
        for (int u = 0; u < m->n_units; u++)
            if (m->units[u].group == g && n++ == 0) first = u;
        mt_unit_name(m, first, name);
        if (m->units[first].kind == MT_UNIT_LAYER) snprintf(name, sizeof name, "layer");
        if (m->units[first].kind == MT_UNIT_EXPERTS) snprintf(name, sizeof name, "%d experts", m->units[first].n_experts);
        printf("group %-2d     %3d x %-18s %10s in bf16, %d tensors each\n", g, n, name,
               mt_bytes_text((uint64_t)m->layouts[g].n_elems * 2).s, m->layouts[g].n_weights);
    }
    printf("host memory  %s to train with clipping (14 bytes a parameter), %s without\n",
           mt_bytes_text((uint64_t)m->n_params * 14).s, mt_bytes_text((uint64_t)m->n_params * 12).s);
}

static void print_files(const found *f)
{
    if (!f->shards) {
        printf("weights      none, only config.json (enough to plan, and to train from scratch)\n");
        return;
    }
    const mt_st_tensor *first = mt_shards_count(f->shards) ? mt_shards_at(f->shards, 0) : NULL;
    printf("weights      %zu file%s, %s, %zu tensors, %s\n", mt_shards_file_count(f->shards),
           mt_shards_file_count(f->shards) == 1 ? "" : "s", mt_bytes_text(mt_shards_bytes(f->shards)).s,
           mt_shards_count(f->shards), first ? mt_st_stored_as(first) : "empty");
    if (f->n_unused) printf("unused       %zu tensors of the files are not part of this model\n", f->n_unused);
}

static void print_tensors(const found *f)
{
    for (mt_walk at = mt_walk_model(f->model); mt_walk_next(&at);) {
        char name[MT_NAME_BYTES];
        mt_weight_name(at.u, at.w, name);
        /* Several weights may share a tensor; show it once. */
        if (mt_weight_leads(at.u, at.w)) printf("  %-56s %s\n", name, mt_st_shape_text(at.w->slice.n_dims, at.w->slice.shape).s);
    }
}

static void print_found(const found *f, const char *dir, bool tensors)
{
    char blas[64];
    mt_blas_name(blas, sizeof blas);
    printf("model        %s\n", dir);
    print_shape(f->model);
    print_units(f->model);
    print_files(f);
    for (size_t i = 0; i < f->config->n_assumptions; i++) printf("assumed      %s\n", f->config->assumptions[i]);
    if (f->tying[0]) printf("assumed      %s\n", f->tying);
    if (!f->known)
        printf("training     refused while the family is a guess: model.family: %s (--assume %s) confirms it\n",
               f->config->family->name, f->config->family->name);
    if (f->config->dropout_key)
        printf("dropout      %s %g in config.json; training never applies dropout\n", f->config->dropout_key, f->config->dropout);
    if (f->config->notice) printf("notice       %s\n", f->config->notice);
    printf("this CPU     %s, %.0f GFLOP/s on one core\n", blas, mt_blas_gflops());
    if (tensors) print_tensors(f);
}

/* -- for scripts ----------------------------------------------------------------------------------- */

static void put_shape(mt_json_out *j, const found *f)
{
    const mt_config *c = f->config;
    mt_json_put_str(j, "family", c->family->name);
    mt_json_put_str(j, "decided_by", c->decided_by);
    mt_json_put_bool(j, "known", f->known);
    mt_json_put_str(j, "model_type", c->model_type);
    mt_json_put_str(j, "architecture", c->architecture);
    mt_json_put_int(j, "layers", c->L);
    mt_json_put_int(j, "hidden_size", c->D);
    mt_json_put_int(j, "intermediate_size", c->F);
    mt_json_put_int(j, "heads", c->H);
    mt_json_put_int(j, "key_value_heads", c->K);
    mt_json_put_int(j, "head_dim", c->Dh);
    mt_json_put_int(j, "vocabulary", c->V);
    mt_json_put_int(j, "positions", c->max_positions);
    mt_json_put_bool(j, "tied", c->tied);
}

static void put_weights(mt_json_out *j, const found *f)
{
    mt_json_put_int(j, "parameters", f->model->n_params);
    mt_json_put_int(j, "host_bytes", f->model->n_params * 14);
    mt_json_put_int(j, "host_bytes_unclipped", f->model->n_params * 12);
    if (!f->shards) {
        mt_json_put_null(j, "weights");
        return;
    }
    mt_json_map(j, "weights", MT_JSON_FLAT);
    mt_json_put_size(j, "files", mt_shards_file_count(f->shards));
    mt_json_put_size(j, "bytes", mt_shards_bytes(f->shards));
    mt_json_put_size(j, "tensors", mt_shards_count(f->shards));
    mt_json_put_size(j, "unused", f->n_unused);
    mt_json_end(j);
}

/* Several weights may share a tensor; list it once. */
static void put_tensors(mt_json_out *j, const mt_model *m)
{
    mt_json_list(j, "tensors", MT_JSON_LINES);
    for (mt_walk at = mt_walk_model(m); mt_walk_next(&at);) {
        char name[MT_NAME_BYTES];
        if (!mt_weight_leads(at.u, at.w)) continue;
        mt_weight_name(at.u, at.w, name);
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_str(j, "name", name);
        mt_json_list(j, "shape", MT_JSON_FLAT);
        for (int d = 0; d < at.w->slice.n_dims; d++) mt_json_put_int(j, NULL, at.w->slice.shape[d]);
        mt_json_end(j);
        mt_json_end(j);
    }
    mt_json_end(j);
}

static mt_rc print_json(const found *f, const char *dir, bool tensors, mt_err *err)
{
    mt_str out = { 0 };
    mt_json_out j = { .to = &out };
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_put_int(&j, "version", 1);
    mt_json_put_str(&j, "model", dir);
    put_shape(&j, f);
    put_weights(&j, f);
    if (tensors) put_tensors(&j, f->model);
    mt_json_list(&j, "assumptions", MT_JSON_FLAT);
    for (size_t i = 0; i < f->config->n_assumptions; i++) mt_json_put_str(&j, NULL, f->config->assumptions[i]);
    mt_json_end(&j);
    mt_json_end(&j);
    return mt_cli_print_json(&j, err);
}

int mt_cmd_inspect(int argc, char **argv)
{
    mt_err err = { 0 };
    found f = { 0 };
    const char *dir, *assume = NULL;
    bool tensors = false, json = false, help;
    const mt_flag flags[] = { { "--tensors", MT_FLAG_BOOL, &tensors, NULL, "list every tensor with its shape", false },
                              { "--json", MT_FLAG_BOOL, &json, NULL, "print JSON for scripts (docs/scripting.md)", false },
                              { "--assume", MT_FLAG_STR, &assume, "FAMILY", "the family of an unknown model_type, such as llama",
                                false } };
    const mt_usage usage = {
        "inspect",
        "MODEL [options]",
        "Show what a model (a directory, a config.json, or a name on the hub) holds, and what had to be assumed.",
        "MODEL",
        flags,
        MT_COUNT(flags),
        NULL,
    };
    mt_rc rc = mt_flags_parse(&usage, argc, argv, &dir, &help, &err);
    char *at = NULL;
    if (!rc && !help) {
        rc = mt_hub_bar_model(dir, "", MT_HUB_CONFIG, &at, &err);
        if (!rc) rc = cmd_inspect_find(&f, at, assume, &err);
        if (!rc && json) rc = print_json(&f, at, tensors, &err);
        if (!rc && !json) print_found(&f, at, tensors);
    }
    mt_free(at);
    mt_model_free(f.model);
    mt_shards_close(f.shards);
    mt_config_close(f.config);
    return rc ? mt_cli_failed(&err) : 0;
}

static void put_names(mt_json_out *j, const char *key, const char *const *names)
{
    mt_json_list(j, key, MT_JSON_FLAT);
    for (size_t i = 0; names[i]; i++) mt_json_put_str(j, NULL, names[i]);
    mt_json_end(j);
}

static mt_rc print_families_json(mt_err *err)
{
    mt_str out = { 0 };
    mt_json_out j = { .to = &out };
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_put_int(&j, "version", 1);
    mt_json_list(&j, "families", MT_JSON_LINES);
    for (const mt_family *const *f = mt_families; *f; f++) {
        mt_json_map(&j, NULL, MT_JSON_FLAT);
        mt_json_put_str(&j, "name", (*f)->name);
        mt_json_put_str(&j, "covers", (*f)->covers);
        put_names(&j, "model_types", (*f)->model_types);
        put_names(&j, "architectures", (*f)->architectures);
        mt_json_end(&j);
    }
    mt_json_end(&j);
    mt_json_end(&j);
    return mt_cli_print_json(&j, err);
}

int mt_cmd_families(int argc, char **argv)
{
    mt_err err = { 0 };
    bool help, json = false;
    const mt_flag flags[] = { { "--json", MT_FLAG_BOOL, &json, NULL, "print JSON for scripts (docs/scripting.md)", false } };
    const mt_usage usage = {
        "families",      "[--json]", "List the known model families, with the published models they cover.", NULL, flags,
        MT_COUNT(flags), NULL,
    };
    if (mt_flags_parse(&usage, argc, argv, NULL, &help, &err)) return mt_cli_failed(&err);
    if (help) return 0;
    if (json) return print_families_json(&err) ? mt_cli_failed(&err) : 0;
    int widest = 0;
    for (const mt_family *const *f = mt_families; *f; f++) widest = (int)mt_max_i64(widest, (int64_t)strlen((*f)->name));
    for (const mt_family *const *f = mt_families; *f; f++) printf("%-*s  %s\n", widest, (*f)->name, (*f)->covers);
    return 0;
}
