#include "run/feed.h"

#include "base/file.h"
#include "base/log.h"
#include "ckpt/model_files.h"
#include "data/prefetch.h"
#include "data/split_spec.h"
#include "data/templates.h"

#include <string.h>

typedef struct dataset {
    mt_dataset_entry entry; /* borrowed from the registry or the settings */
    mt_records_options records;
    mt_hub_dataset fetched; /* its files, if they came from the hub */
    mt_sampler *sampler;
    bool plain;                  /* plain text or tokens, not conversations */
    bool detect;                 /* neither the settings nor a registry give its layout */
    char found[MT_LAYOUT_WORDS]; /* the layout found, in words */
} dataset;

struct mt_feed {
    mt_source base;       /* once it is a source, as is */
    mt_source *steps;     /* its pipeline, prepared ahead */
    const mt_settings *s; /* borrowed; outlives the feed */
    const struct tm *now; /* likewise; NULL: today */
    mt_registry *registry;
    mt_tokenizer *tok;
    mt_specials *specials;
    dataset *sets; /* [n_train + n_eval] */
    size_t n_train, n_eval;
    mt_pipeline *pipeline; /* NULL once steps has taken it over */
    mt_findings findings;
    bool packs;
    bool only_checks; /* it will be opened again to be used */
};

/* -- datasets by name ------------------------------------------------------------------------------ */

/* ORG/NAME that is in no registry: a dataset of the hub, read like one of the user's files. */
static bool is_hub_name(const mt_registry *r, const char *name)
{
    return strchr(name, '/') && mt_hub_is_name(name) && !(r && mt_registry_has(r, name));
}

/* MegaTrain's columns, or the user's. */
static mt_record_layout direct_layout(const mt_dataset_settings *d)
{
    mt_record_layout l =
        mt_record_layout_direct(*d->query_field ? d->query_field : "query", *d->response_field ? d->response_field : "response");
    l.named = *d->query_field || *d->response_field;
    return l;
}

/* A local folder of that name has priority. */
static void hub_entry(mt_dataset_entry *out, const mt_settings *s, const char *name)
{
    *out = (mt_dataset_entry){
        .name = name, .path = mt_dir_exists(name) ? name : NULL, .hub = name, .layout = direct_layout(&s->dataset)
    };
}

/* A path of dataset.path: a file or folder, otherwise a dataset of the hub, as in MegaTrain.  A mistyped file name such as
 * data/train.jsonl looks like ORG/NAME, too, but the hub is not asked for it. */
static mt_rc find_direct(const mt_settings *s, const char *path, const char *setting, mt_dataset_entry *out, mt_err *err)
{
    bool here = mt_file_exists(path) || mt_dir_exists(path);
    if (here || !is_hub_name(NULL, path) || mt_dataset_is_file_name(path)) {
        mt_rc rc = mt_dataset_direct(out, path, direct_layout(&s->dataset), err);
        return rc ? mt_note(err, "%s", setting) : MT_OK;
    }
    hub_entry(out, s, path);
    return MT_OK;
}

/* Files of one name in several folders go by their paths. */
static void part_names(dataset *sets, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && sets[i].entry.path; k++)
            if (k != i && strcmp(sets[i].entry.name, mt_path_base(sets[k].entry.path ? sets[k].entry.path : "")) == 0)
                sets[i].entry.name = sets[i].entry.path;
}

static mt_rc find_entry(mt_feed *f, const mt_settings *s, const mt_feed_options *o, const char *name, mt_dataset_entry *out,
                        mt_err *err)
{
    if (!f->registry) {
        mt_registry_places places = { s->dataset.dataset_dir, s->config_path, o->installed, s->dataset.allow_outside_files };
        mt_rc rc = mt_registry_open(&f->registry, &places, err);
        if (rc && !(rc == MT_ENOENT && is_hub_name(NULL, name))) return rc;
    }
    if (is_hub_name(f->registry, name)) {
        hub_entry(out, s, name);
        return MT_OK;
    }
    mt_rc rc = mt_registry_find(f->registry, name, out, err);
    if (rc || !f->only_checks) mt_registry_warn_of_typos(f->registry, name); /* once, and before the error that a typo leads to */
    return rc;
}

/* Data to evaluate on by its path needs no registry. */
static mt_rc find_eval(mt_feed *f, const mt_settings *s, const mt_feed_options *o, const char *name, mt_dataset_entry *out,
                       mt_err *err)
{
    const bool folder = strchr(name, '/') && mt_dir_exists(name), pattern = strpbrk(name, "*?[");
    if (mt_file_exists(name) || folder || pattern) return find_direct(s, name, "eval.dataset", out, err);
    mt_rc rc = find_entry(f, s, o, name, out, err);
    return rc == MT_ENOENT && mt_dataset_is_file_name(name) ? find_direct(s, name, "eval.dataset", out, err) : rc;
}

/* A dataset of the hub that is not downloaded yet. */
static mt_rc feed_fetch(dataset *d, const mt_feed_options *o, mt_err *err)
{
    mt_dataset_entry *e = &d->entry;
    if (e->path) return MT_OK;
    if (!o->fetch)
        return mt_fail(err, MT_ENOENT,
                       "dataset \"%s\" is %s on the hub and is not downloaded yet; run `megatrain get %s --dataset`", e->name,
                       e->hub, e->hub);
    mt_split_spec split; /* the reader decides which rows are read */
    MT_TRY(mt_split_spec_parse(&split, d->records.split, err));
    mt_hub_query q = { .name = e->hub, .subset = d->records.subset, .split = split.name, .folder = e->folder };
    MT_TRY(o->fetch(&q, &d->fetched, err));
    e->path = d->fetched.dir;
    d->records.files = d->fetched.files;
    return MT_OK;
}

static char delimiter_of(const mt_dataset_settings *d) { return strcmp(d->delimiter, "tab") == 0 ? '\t' : d->delimiter[0]; }

/* The settings' split and subset apply to the training data. */
static mt_records_options records_options(const mt_settings *s, const mt_dataset_entry *e, bool train)
{
    return (mt_records_options){ .split = train && s->dataset.split[0] ? s->dataset.split : e->split,
                                 .subset = train && s->dataset.subset[0] ? s->dataset.subset : e->subset,
                                 .field = s->dataset.field[0] ? s->dataset.field : NULL,
                                 .delimiter = delimiter_of(&s->dataset),
                                 .outside = s->dataset.allow_outside_files,
                                 .sample_by = s->dataset.sample_by };
}

/* A registry may give a file a "subset", which has no effect; but a user who sets it expects an effect. */
static mt_rc check_subset(const mt_settings *s, const mt_dataset_entry *e, mt_err *err)
{
    if (!s->dataset.subset[0] || !e->path || mt_dir_exists(e->path)) return MT_OK;
    return mt_fail(err, MT_EINVAL,
                   "dataset.subset chooses a folder of a dataset, and %s is %s %s: leave it out, or name the file you mean",
                   e->name, mt_file_exists(e->path) ? "the single file" : "the files", e->path);
}

static mt_rc find_entries(mt_feed *f, const mt_settings *s, const mt_feed_options *o, mt_err *err)
{
    const mt_strs *train = &s->dataset.name, *eval = &s->eval.dataset;
    const mt_strs *paths = &s->dataset.path;
    f->n_train = train->n ? train->n : paths->n;
    f->n_eval = eval->n;
    f->sets = mt_calloc(f->n_train + f->n_eval, sizeof *f->sets);
    if (!f->sets) return mt_no_memory(err, "the data of a run");
    for (size_t i = 0; !train->n && i < paths->n; i++)
        MT_TRY(find_direct(s, paths->items[i], "dataset.path", &f->sets[i].entry, err));
    if (!train->n) part_names(f->sets, f->n_train);
    for (size_t i = 0; i < train->n; i++) MT_TRY(find_entry(f, s, o, train->items[i], &f->sets[i].entry, err));
    for (size_t i = 0; i < eval->n; i++) MT_TRY(find_eval(f, s, o, eval->items[i], &f->sets[f->n_train + i].entry, err));
    for (size_t i = 0; i < f->n_train + f->n_eval; i++) {
        f->sets[i].records = records_options(s, &f->sets[i].entry, i < f->n_train);
        f->sets[i].detect = f->sets[i].entry.layout.direct && !f->sets[i].entry.layout.named;
        if (i < f->n_train) MT_TRY(check_subset(s, &f->sets[i].entry, err));
    }
    return MT_OK;
}

static mt_rc fetch_all(mt_feed *f, const mt_feed_options *o, mt_err *err)
{
    for (size_t i = 0; i < f->n_train + f->n_eval; i++) {
        mt_rc rc = feed_fetch(&f->sets[i], o, err);
        if (rc) return mt_note(err, "dataset %s", f->sets[i].entry.name);
    }
    return MT_OK;
}

mt_rc mt_feed_check(const mt_settings *s, const mt_feed_options *o, mt_err *err)
{
    mt_feed *f = mt_calloc(1, sizeof *f);
    if (!f) return mt_no_memory(err, "the data of a run");
    f->only_checks = true;
    mt_rc rc = find_entries(f, s, o, err);
    mt_feed_close(f);
    return rc;
}

/* Finds the layout in a record, unless it is known. */
static mt_rc look_at(dataset *d, const mt_value *record, mt_err *err)
{
    if (d->detect && !*d->found) MT_TRY(mt_record_layout_detect(&d->entry.layout, d->found, record, err));
    d->plain = d->entry.layout.ids || mt_record_layout_is_text(&d->entry.layout, record);
    return MT_OK;
}

/* The first record that can be read decides, or one of the next few if its layout is not clear.  Bad ones are passed over as
 * far as on_bad_record allows, but not to the end of a file that has nothing else. */
static mt_rc look(const mt_feed *f, dataset *d, bool lenient, mt_err *err)
{
    enum { TRIES = 10, BAD = 1000 };
    const int most_bad = f->s->dataset.on_bad_record == MT_SET_BAD_RECORD_STOP && !lenient ? 1 : BAD;
    mt_records *r;
    mt_arena arena = { 0 };
    mt_value record;
    mt_record_place where = { .state = MT_RECORD_BAD };
    mt_err first = { 0 }, first_bad = { 0 };
    int n_bad = 0;
    d->plain = d->entry.layout.ids || d->entry.layout.text_only;
    MT_TRY(mt_records_open(&r, d->entry.path, &d->records, err));
    mt_rc rc = MT_OK, seen = MT_EFORMAT;
    for (int tries = 0; !rc && seen == MT_EFORMAT && tries < TRIES && n_bad < most_bad;) {
        mt_arena_reset(&arena);
        rc = mt_records_next(r, &arena, &record, &where, err);
        if (rc || where.state == MT_RECORD_END) break;
        if (where.state == MT_RECORD_BAD && !n_bad++) first_bad = *err;
        if (where.state == MT_RECORD_OK) seen = look_at(d, &record, tries++ ? &(mt_err){ 0 } : &first);
    }
    if (!rc && seen && first.rc)
        rc = mt_fail(err, first.rc, "%s", first.msg);
    else if (!rc && seen && d->detect && n_bad == most_bad)
        rc = mt_fail(err, MT_EFORMAT, "%s %s%s",
                     n_bad == 1 ? "its first record is bad:" : "its first 1000 records are bad:", first_bad.msg,
                     n_bad == 1 ? "\n  on_bad_record: skip would leave it out" : "");
    mt_arena_free(&arena);
    mt_records_close(r);
    return rc;
}

static mt_sampler_config sampler_config(const mt_feed *f)
{
    const mt_dataset_settings *d = &f->s->dataset;
    return (mt_sampler_config){ .max_seq_len = d->max_seq_len,
                                .system_prompt = d->system_prompt,
                                .default_system = d->default_system,
                                .template = d->template,
                                .template_kwargs = &d->template_kwargs,
                                .train_on_prompt = d->train_on_prompt,
                                .mask_history = d->mask_history,
                                .merge_turns = d->merge_turns,
                                .history = d->history,
                                .overlong = d->overlong,
                                .empty_thought = d->empty_thought,
                                .now = f->now };
}

static mt_rc open_samplers(mt_feed *f, const mt_settings *s, const mt_feed_options *o, mt_err *err)
{
    mt_sampler_config config = sampler_config(f);
    bool all_text = true, remarked = false;
    for (size_t i = 0; i < f->n_train + f->n_eval; i++) {
        dataset *d = &f->sets[i];
        mt_rc rc = look(f, d, o->lenient, err);
        if (!rc && *d->found) mt_info("dataset %s: %s", d->entry.name, d->found);
        mt_sampler_config its = config;
        if (d->plain) its.template = ""; /* it needs none */
        if (!rc) rc = mt_sampler_open(&d->sampler, f->tok, &d->entry.layout, &its, err);
        if (rc) return mt_note(err, "dataset %s", d->entry.name);
        if (!remarked && *mt_sampler_remark(d->sampler)) mt_info("%s", mt_sampler_remark(d->sampler));
        remarked |= *mt_sampler_remark(d->sampler) != 0;
        if (i < f->n_train) all_text &= d->plain && !d->entry.layout.ids;
    }
    f->packs = s->dataset.packing == MT_TRI_TRUE || (s->dataset.packing == MT_TRI_AUTO && all_text);
    return MT_OK;
}

/* -- the pipeline ---------------------------------------------------------------------------------- */

static mt_rc check_probs(const mt_feed *f, const mt_settings *s, mt_err *err)
{
    size_t n = s->dataset.interleave_probs.n;
    if (n == 0 || n == f->n_train) return MT_OK;
    return mt_fail(err, MT_EINVAL, "dataset.interleave_probs has %zu numbers for %zu datasets; one for each is needed", n,
                   f->n_train);
}

static mt_rc open_pipeline(mt_feed *f, const mt_settings *s, const mt_feed_options *o, mt_err *err)
{
    const mt_dataset_settings *d = &s->dataset;
    MT_TRY(check_probs(f, s, err));
    mt_pipeline_part *parts = mt_calloc(f->n_train + f->n_eval, sizeof *parts);
    if (!parts) return mt_no_memory(err, "the data of a run");
    for (size_t i = 0; i < f->n_train + f->n_eval; i++) {
        const dataset *x = &f->sets[i];
        parts[i] = (mt_pipeline_part){ .name = x->entry.name,
                                       .path = x->entry.path,
                                       .records = x->records,
                                       .maker = mt_sample_maker_of(x->sampler),
                                       .num_samples = x->entry.num_samples };
    }
    int64_t batch = mt_max_i64(s->training.batch_size, 1); /* auto: only reported */
    mt_pipeline_options po = { .train = parts,
                               .n_train = f->n_train,
                               .eval = parts + f->n_train,
                               .n_eval = f->n_eval,
                               .vocab = o->vocab ? o->vocab : (int64_t)mt_tokenizer_vocab_size(f->tok),
                               .max_seq_len = d->max_seq_len,
                               .samples_per_step = batch * s->training.gradient_accumulation_steps,
                               .max_samples = d->max_samples,
                               .packing = f->packs,
                               .shuffle = d->shuffle,
                               .seed = (uint64_t)s->training.seed,
                               .val_seed = (uint64_t)(s->eval.val_seed >= 0 ? s->eval.val_seed : s->training.seed),
                               .val_size = s->eval.val_size,
                               .max_eval_samples = s->eval.max_samples,
                               .mix = d->mix_strategy,
                               .probs = d->interleave_probs.n ? d->interleave_probs.items : NULL,
                               .stop_on_bad = d->on_bad_record == MT_SET_BAD_RECORD_STOP && !o->lenient,
                               .max_bad_share = o->lenient ? 1 : d->max_bad_share,
                               .cache_dir = d->cache_dir,
                               .cache_bytes = d->cache_size,
                               .n_workers = (int)d->num_workers,
                               .specials = f->specials,
                               .progress = o->progress,
                               .user = o->user,
                               .stop = o->stop };
    mt_rc rc = mt_pipeline_open(&f->pipeline, &po, err);
    mt_free(parts);
    return rc;
}

/* The token that ends an answer of this dataset: its last token, or eos after a document. */
static int32_t end_of(const mt_feed *f, const dataset *d)
{
    if (d->plain) return mt_tokenizer_role_id(f->tok, MT_TOK_EOS);
    const char *end = mt_sampler_end(d->sampler);
    while (*end == ' ' || *end == '\n' || *end == '\t' || *end == '\r') end++;
    int32_t id = *end ? mt_tokenizer_token_id(f->tok, end, strlen(end)) : -1;
    for (; id < 0 && *end; end++) { /* the last of several */
        int32_t last = mt_tokenizer_token_id(f->tok, end, strlen(end));
        if (last >= 0 && mt_tokenizer_is_special(f->tok, last)) id = last;
    }
    return id;
}

static mt_rc lint(mt_feed *f, const mt_settings *s, const mt_feed_options *o, mt_err *err)
{
    MT_TRY(mt_lint_positions(&f->findings, s->dataset.max_seq_len, o->max_positions, err));
    for (size_t i = 0; i < f->n_train + f->n_eval; i++) {
        mt_lint_input in = { .name = f->sets[i].entry.name,
                             .store = mt_pipeline_store(f->pipeline, i),
                             .max_seq_len = s->dataset.max_seq_len,
                             .max_positions = o->max_positions,
                             .end_id = end_of(f, &f->sets[i]),
                             .max_cut_share = s->dataset.max_cut_share,
                             .flat = s->flat,
                             .truncates = s->dataset.overlong == MT_OVERLONG_TRUNCATE,
                             .lets_end_untrained =
                                 s->dataset.allow_untrained_end || f->sets[i].plain || f->sets[i].entry.layout.ids };
        MT_TRY(mt_lint(&f->findings, &in, err));
    }
    return MT_OK;
}

mt_rc mt_feed_open(mt_feed **out, const mt_settings *s, const mt_feed_options *o, mt_err *err)
{
    *out = NULL;
    mt_feed *f = mt_calloc(1, sizeof *f);
    if (!f) return mt_no_memory(err, "the data of a run");
    f->s = s;
    f->now = o->now;
    mt_rc rc = find_entries(f, s, o, err);
    if (!rc) rc = fetch_all(f, o, err);
    if (!rc) rc = mt_model_files_tokenizer(&f->tok, mt_settings_model_dir(s), err);
    if (!rc) rc = mt_template_adopt(s->dataset.template, f->tok, err);
    if (!rc) rc = mt_specials_create(&f->specials, f->tok, err);
    if (!rc) rc = open_samplers(f, s, o, err);
    if (!rc) rc = open_pipeline(f, s, o, err);
    if (!rc) rc = lint(f, s, o, err);
    if (rc)
        mt_feed_close(f);
    else
        *out = f;
    return rc;
}

void mt_feed_close(mt_feed *f)
{
    if (!f) return;
    mt_source_close(f->steps);
    if (f->pipeline) mt_source_close(mt_pipeline_source(f->pipeline));
    for (size_t i = 0; f->sets && i < f->n_train + f->n_eval; i++)
        mt_sampler_close(f->sets[i].sampler), mt_hub_dataset_close(&f->sets[i].fetched);
    mt_free(f->sets);
    mt_findings_free(&f->findings);
    mt_specials_free(f->specials);
    mt_tokenizer_close(f->tok);
    mt_registry_close(f->registry);
    mt_free(f);
}

/* -- looking --------------------------------------------------------------------------------------- */

const mt_findings *mt_feed_findings(const mt_feed *f) { return &f->findings; }
const mt_tokenizer *mt_feed_tokenizer(const mt_feed *f) { return f->tok; }
const mt_sampler *mt_feed_sampler(const mt_feed *f) { return f->sets[0].sampler; }
const char *mt_feed_new_template(const mt_feed *f)
{
    for (size_t i = 0; i < f->n_train; i++)
        if (!f->sets[i].plain) return mt_sampler_new_template(f->sets[i].sampler);
    return NULL;
}

/* -- prompts --------------------------------------------------------------------------------------- */

static mt_rc encode(const mt_feed *f, const char *text, mt_tokens *out, mt_err *err)
{
    mt_tok_scratch *scratch;
    MT_TRY(mt_tok_scratch_create(&scratch, f->tok, err));
    mt_rc rc = mt_tokenizer_encode(f->tok, scratch, text, strlen(text), MT_ENCODE_SPECIAL, out, err);
    mt_tok_scratch_free(scratch);
    return rc;
}

static mt_value text_value(const char *s) { return (mt_value){ .type = MT_VALUE_STR, .str = { s, strlen(s) } }; }

static mt_rc render(const mt_sampler *asker, const char *text, mt_tokens *out, mt_err *err)
{
    const mt_pair turn[] = { { "role", 4, text_value("user") }, { "content", 7, text_value(text) } };
    const mt_value user = { .type = MT_VALUE_MAP, .map = { turn, 2 } };
    const mt_pair messages = { "messages", 8, { .type = MT_VALUE_LIST, .list = { &user, 1 } } };
    const mt_value record = { .type = MT_VALUE_MAP, .map = { &messages, 1 } };
    mt_sampler_scratch *scratch;
    const mt_sample *sample;
    mt_reason reason;
    MT_TRY(mt_sampler_scratch_create(&scratch, asker, err));
    mt_rc rc = mt_sampler_prompt(asker, scratch, &record, &sample, &reason, err);
    if (!rc && reason != MT_REASON_NONE) rc = mt_fail(err, MT_EINVAL, "%s", mt_reason_text(reason));
    if (!rc) rc = mt_grow(&out->ids, &out->cap_ids, out->n + (size_t)sample->n, sizeof *out->ids, err);
    if (!rc) {
        memcpy(out->ids + out->n, sample->ids, (size_t)sample->n * sizeof *out->ids);
        out->n += (size_t)sample->n;
    }
    mt_sampler_scratch_free(scratch);
    return rc;
}

int32_t mt_feed_end_id(const mt_feed *f) { return end_of(f, &f->sets[0]); }

const char *mt_feed_found(const mt_feed *f, size_t i) { return f->sets[i].found; }
bool mt_feed_packs(const mt_feed *f) { return f->packs; }
const mt_pipeline *mt_feed_pipeline(const mt_feed *f) { return f->pipeline; }

static bool is_read(const dataset *d, const char *column)
{
    const mt_record_layout *l = &d->entry.layout;
    const char *const chat[] = {
        l->prompt, l->query, l->response, l->history, l->messages, l->messages_too, l->system, l->tools
    };
    if (l->ids) return strcmp(column, l->ids) == 0 || (l->labels && strcmp(column, l->labels) == 0);
    if (d->plain) return l->text && strcmp(column, l->text) == 0;
    for (size_t i = 0; i < MT_COUNT(chat); i++)
        if (chat[i] && strcmp(column, chat[i]) == 0) return true;
    return false;
}

/* Adds a column that is not read, once. */
static mt_rc note_unread(const dataset *d, const mt_pair *column, mt_str *seen, mt_str *out, mt_err *err)
{
    char *name = mt_strndup(column->key, column->key_n);
    if (!name) return mt_no_memory(err, "the columns of a dataset");
    const size_t n = strlen(name) + 1; /* `seen` has names with their NUL, one after the other */
    bool known = is_read(d, name);
    for (size_t at = 0; !known && at < seen->n; at += strlen(seen->s + at) + 1) known = strcmp(seen->s + at, name) == 0;
    if (!known) {
        mt_str_printf(out, "%s%s", seen->n ? ", " : "", name);
        mt_str_add(seen, name, n);
    }
    mt_free(name);
    return MT_OK;
}

mt_rc mt_feed_unmapped(const mt_feed *f, size_t i, mt_str *out, mt_err *err)
{
    enum { RECORDS = 1000, NAMES = 4096 }; /* records, and bytes of names */
    mt_records *r;
    mt_arena arena = { 0 };
    mt_value record;
    mt_record_place where = { 0 };
    mt_str seen = { 0 };
    MT_TRY(mt_records_open(&r, f->sets[i].entry.path, &f->sets[i].records, err));
    mt_rc rc = MT_OK;
    for (int k = 0; !rc && k < RECORDS && seen.n < NAMES; k++) {
        mt_arena_reset(&arena);
        rc = mt_records_next(r, &arena, &record, &where, err);
        if (rc || where.state == MT_RECORD_END) break;
        if (where.state != MT_RECORD_OK) continue;
        for (size_t c = 0; !rc && c < record.map.n; c++) rc = note_unread(&f->sets[i], &record.map.pairs[c], &seen, out, err);
    }
    mt_str_free(&seen);
    mt_arena_free(&arena);
    mt_records_close(r);
    return rc;
}

/* -- as a source ----------------------------------------------------------------------------------- */

static void feed_info(mt_source *s, mt_source_info *out)
{
    const mt_feed *f = (mt_feed *)s;
    int32_t end = mt_feed_end_id(f);
    size_t n;
    f->steps->api->info(f->steps, out);
    for (size_t i = 0; i < f->n_train + f->n_eval; i++) out->shows_date |= mt_sampler_shows_date(f->sets[i].sampler);
    out->chat_template = mt_feed_new_template(f);
    out->tokenizer = f->tok;
    if (end < 0) return;
    out->end_of_turn_text = mt_tokenizer_token(f->tok, end, &n);
    out->end_of_turn = end;
}

static mt_rc feed_step(mt_source *s, int64_t step, mt_batch *out, mt_err *err)
{
    mt_source *steps = ((mt_feed *)s)->steps;
    return steps->api->step(steps, step, out, err);
}

static mt_rc feed_eval(mt_source *s, int64_t index, mt_batch *out, mt_err *err)
{
    mt_source *steps = ((mt_feed *)s)->steps;
    return steps->api->eval(steps, index, out, err);
}

/* For conversations: as the user's turn, followed by the start of the answer.  For plain text: as it is. */
static mt_rc feed_prompt(mt_source *s, const char *text, mt_tokens *out, mt_err *err)
{
    const mt_feed *f = (mt_feed *)s;
    if (f->sets[0].plain) return encode(f, text, out, err);
    mt_sampler *asker;
    mt_record_layout layout = mt_record_layout_default(MT_FORMATTING_OPENAI);
    mt_sampler_config config = sampler_config(f);
    config.as_is = true;
    MT_TRY(mt_sampler_open(&asker, f->tok, &layout, &config, err));
    mt_rc rc = render(asker, text, out, err);
    mt_sampler_close(asker);
    return rc;
}

static mt_rc feed_text(mt_source *s, const int32_t *ids, size_t n, mt_str *out, mt_err *err)
{
    return mt_tokenizer_decode(((mt_feed *)s)->tok, ids, n, true, out, err);
}

static void feed_close(mt_source *s) { mt_feed_close((mt_feed *)s); }

static const mt_source_api feed_api = {
    .info = feed_info, .step = feed_step, .eval = feed_eval, .prompt = feed_prompt, .text = feed_text, .close = feed_close
};

mt_rc mt_feed_source(mt_feed *f, mt_source **out, mt_err *err)
{
    *out = NULL;
    MT_TRY(mt_lint_verdict(&f->findings, err));
    MT_TRY(mt_prefetch_open(&f->steps, mt_pipeline_source(f->pipeline), err));
    f->pipeline = NULL;
    f->base.api = &feed_api;
    *out = &f->base;
    return MT_OK;
}
