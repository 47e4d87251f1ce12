#include "cli/run_data.h"

#include "base/disk.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/data_view.h"
#include "cli/hub_bar.h"
#include "cli/installed.h"
#include "cli/stop.h"
#include "data/source_tokens.h"
#include "run/feed.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { AUTO_BATCH = 32 };

/* A feed and its source, closed together; it knows which token ends an answer. */
typedef struct fed_source {
    mt_source base;
    mt_feed *feed;
    mt_source *inner;
} fed_source;

static void fed_info(mt_source *s, mt_source_info *out)
{
    fed_source *f = (fed_source *)s;
    f->inner->api->info(f->inner, out);
    out->shows_date = mt_feed_shows_date(f->feed);
    out->chat_template = mt_feed_new_template(f->feed);
    int32_t end = mt_feed_end_id(f->feed);
    size_t n;
    if (end < 0) return;
    out->end_of_turn_text = mt_tokenizer_token(mt_feed_tokenizer(f->feed), end, &n);
    out->end_of_turn = end;
}

static mt_rc fed_step(mt_source *s, int64_t step, mt_batch *out, mt_err *err)
{
    mt_source *inner = ((fed_source *)s)->inner;
    return inner->api->step(inner, step, out, err);
}

static mt_rc fed_eval(mt_source *s, int64_t index, mt_batch *out, mt_err *err)
{
    mt_source *inner = ((fed_source *)s)->inner;
    return inner->api->eval(inner, index, out, err);
}

static mt_rc fed_prompt(mt_source *s, const char *text, mt_tokens *out, mt_err *err)
{
    return mt_feed_prompt(((fed_source *)s)->feed, text, out, err);
}

static mt_rc fed_text(mt_source *s, const int32_t *ids, size_t n, mt_str *out, mt_err *err)
{
    return mt_tokenizer_decode(mt_feed_tokenizer(((fed_source *)s)->feed), ids, n, true, out, err);
}

static void fed_close(mt_source *s)
{
    fed_source *f = (fed_source *)s;
    if (!f) return;
    mt_source_close(f->inner);
    mt_feed_close(f->feed);
    mt_free(f);
}

static const mt_source_api fed_api = { .info = fed_info, .step = fed_step, .eval = fed_eval, .prompt = fed_prompt,
                                       .text = fed_text, .close = fed_close };

/* What a run does without, by reason, and the first three of them. */
static void say_left_out(const mt_feed *f)
{
    const mt_pipeline *p = mt_feed_pipeline(f);
    mt_str text = { 0 };
    for (size_t i = 0; i < mt_pipeline_stores(p); i++) {
        const mt_store *s = mt_pipeline_store(p, i);
        int64_t n_cut = mt_store_counted(s)->odd.trailing_user_cut;
        mt_str_clear(&text);
        mt_data_view_left_out(&text, mt_pipeline_name(p, i), s);
        if (text.n) mt_warn("%s", text.s);
        if (n_cut)
            mt_info("dataset %s: %lld conversations end with a question, which was cut off", mt_pipeline_name(p, i),
                    (long long)n_cut);
    }
    mt_str_free(&text);
}

static void say_findings(const mt_feed *f)
{
    const mt_findings *list = mt_feed_findings(f);
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].severity != MT_LINT_STOP)
            mt_log(list->items[i].severity == MT_LINT_WARN ? MT_LOG_WARN : MT_LOG_INFO, "%s", list->items[i].text);
}

/* Leave out the middle of a long text, between characters. */
static void shorten(mt_str *t)
{
    enum { HEAD = 600, TAIL = 400 };
    static const char between[] = "\n[...]\n";
    if (t->n <= HEAD + TAIL + sizeof between) return;
    size_t head = HEAD, tail = t->n - TAIL;
    while (((unsigned char)t->s[head] & 0xc0) == 0x80) head--;
    while (((unsigned char)t->s[tail] & 0xc0) == 0x80) tail++;
    memcpy(t->s + head, between, sizeof between - 1);
    memmove(t->s + head + sizeof between - 1, t->s + tail, t->n - tail + 1);
    t->n = head + sizeof between - 1 + t->n - tail;
}

/* The first sample, if a layout was found in the data: the user sees what came of it. */
static mt_rc show_found(const mt_feed *f, mt_err *err)
{
    mt_str text = { 0 };
    bool any = false;
    for (size_t i = 0; i < mt_pipeline_stores(mt_feed_pipeline(f)); i++) any |= *mt_feed_found(f, i) != '\0';
    mt_rc rc = any ? mt_data_view_samples(&text, f, 1, false, false, err) : MT_OK;
    while (text.n && text.s[text.n - 1] == '\n') text.s[--text.n] = '\0';
    if (!rc && text.n) {
        shorten(&text);
        mt_info("the first sample, what is trained in [[brackets]]:\n%s", text.s);
    }
    mt_str_free(&text);
    return rc;
}

static mt_rc open_fed(mt_source **out, const mt_settings *s, const mt_config *c, const struct tm *now, mt_err *err)
{
    fed_source *f = mt_calloc(1, sizeof *f);
    if (!f) return mt_no_memory(err, "the run's data");
    f->base.api = &fed_api;
    char installed[1024];
    mt_feed_options o = { .vocab = c->V,
                          .max_positions = c->max_positions,
                          .batch_size = AUTO_BATCH,
                          .now = now,
                          .installed = mt_installed(installed, sizeof installed, "data"),
                          .fetch = mt_hub_bar_dataset,
                          .stop = mt_stop_flag() };
    mt_rc rc = mt_feed_open(&f->feed, s, &o, err);
    if (!rc) {
        say_left_out(f->feed);
        say_findings(f->feed);
        rc = show_found(f->feed, err);
        if (!rc) rc = mt_feed_source(f->feed, &f->inner, err);
    }
    if (rc)
        fed_close(&f->base);
    else
        *out = &f->base;
    return rc;
}

/* All rows of tokens in one object announce themselves: {"input_ids": [[...  (A row in each record is a dataset like others.) */
static bool holds_token_rows(const char *path)
{
    char head[256] = "";
    int fd;
    if (!*path || mt_disk_open(&fd, path, O_RDONLY, NULL)) return false;
    ssize_t n = mt_disk_read(fd, head, sizeof head - 1, 0);
    close(fd);
    head[n > 0 ? n : 0] = '\0';
    const char *p = head + strspn(head, " \t\r\n{");
    if (p == head || strncmp(p, "\"input_ids\"", 11) != 0) return false;
    p += 11 + strspn(p + 11, " \t\r\n:");
    return *p == '[' && p[1 + strspn(p + 1, " \t\r\n")] == '[';
}

static mt_rc open_rows(mt_source **out, const mt_settings *s, const mt_config *c, mt_err *err)
{
    int64_t per_batch = s->training.batch_size ? s->training.batch_size : AUTO_BATCH;
    return mt_source_tokens_open(
        out,
        &(mt_source_tokens_options){ .path = s->dataset.path,
                                     .vocab = c->V,
                                     .samples_per_step = per_batch * s->training.gradient_accumulation_steps,
                                     .max_seq_len = s->dataset.max_seq_len,
                                     .max_samples = s->dataset.max_samples,
                                     .shuffle = s->dataset.shuffle,
                                     .seed = (uint64_t)s->training.seed,
                                     .val_seed = (uint64_t)(s->eval.val_seed >= 0 ? s->eval.val_seed : s->training.seed),
                                     .val_size = s->eval.val_size,
                                     .max_eval_samples = s->eval.max_samples },
        err);
}

/* A step takes no sample twice. */
static void say_small(mt_source *source, const mt_settings *s)
{
    mt_source_info info;
    int64_t step = (s->training.batch_size ? s->training.batch_size : AUTO_BATCH) * s->training.gradient_accumulation_steps;
    source->api->info(source, &info);
    if (info.steps_per_epoch != 1 || step <= info.n_samples) return;
    mt_warn(
        "a step of %lld samples (training.batch_size x gradient_accumulation_steps) is more than the %lld there are: every step "
        "is all of them, and one epoch",
        (long long)step, (long long)info.n_samples);
}

mt_rc mt_run_data_check(const mt_settings *s, mt_err *err)
{
    char installed[1024];
    if (holds_token_rows(s->dataset.path)) return MT_OK;
    return mt_feed_check(s, &(mt_feed_options){ .installed = mt_installed(installed, sizeof installed, "data") }, err);
}

mt_rc mt_run_data_open(mt_source **out, const mt_settings *s, const mt_config *c, const struct tm *now, mt_err *err)
{
    *out = NULL;
    if (!s->training.batch_size) mt_info("training.batch_size auto: %d samples", AUTO_BATCH);
    MT_TRY((holds_token_rows(s->dataset.path) ? open_rows(out, s, c, err) : open_fed(out, s, c, now, err)));
    say_small(*out, s);
    return MT_OK;
}
