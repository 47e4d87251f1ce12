#include "run/data.h"

#include "base/disk.h"
#include "base/log.h"
#include "data/source_tokens.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* A file with all rows of tokens in one object begins with {"input_ids": [[... (A file with one row per record is an ordinary
 * dataset.) */
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

/* Datasets by name have priority over a path. */
static bool reads_token_rows(const mt_settings *s)
{
    return !s->dataset.name.n && s->dataset.path.n == 1 && holds_token_rows(s->dataset.path.items[0]);
}

static mt_rc check_rows(const mt_settings *s, mt_err *err)
{
    if (!s->eval.dataset.n) return MT_OK;
    return mt_fail(
        err, MT_EINVAL,
        "eval.dataset: %s holds all rows of tokens in one object, and no other dataset is read beside it: hold some rows "
        "out with eval.val_size, or write one record a line, {\"input_ids\": [...]}",
        s->dataset.path.items[0]);
}

static int64_t samples_per_step(const mt_settings *s) { return s->training.batch_size * s->training.gradient_accumulation_steps; }

static mt_rc open_rows(mt_source **out, const mt_settings *s, const mt_config *c, mt_err *err)
{
    MT_TRY(check_rows(s, err));
    return mt_source_tokens_open(
        out,
        &(mt_source_tokens_options){ .path = s->dataset.path.items[0],
                                     .vocab = c->V,
                                     .samples_per_step = samples_per_step(s),
                                     .max_seq_len = s->dataset.max_seq_len,
                                     .max_samples = s->dataset.max_samples,
                                     .shuffle = s->dataset.shuffle,
                                     .seed = (uint64_t)s->training.seed,
                                     .val_seed = (uint64_t)(s->eval.val_seed >= 0 ? s->eval.val_seed : s->training.seed),
                                     .val_size = s->eval.val_size,
                                     .max_eval_samples = s->eval.max_samples },
        err);
}

static mt_rc open_feed(mt_source **out, const mt_settings *s, const mt_feed_options *o, const mt_data_hooks *hooks, mt_err *err)
{
    mt_feed *f;
    MT_TRY(mt_feed_open(&f, s, o, err));
    mt_rc rc = hooks->read ? hooks->read(f, err) : MT_OK;
    if (!rc) rc = mt_feed_source(f, out, err);
    if (rc) mt_feed_close(f);
    return rc;
}

/* A step uses no sample twice. */
static void warn_small(mt_source *source, const mt_settings *s)
{
    mt_source_info info;
    int64_t step = samples_per_step(s);
    source->api->info(source, &info);
    if (info.steps_per_epoch != 1 || step <= info.n_samples) return;
    mt_warn("a step of %lld samples (training.batch_size x gradient_accumulation_steps) is more than the %lld samples in the "
            "data: every step "
            "is all of them, and one epoch",
            (long long)step, (long long)info.n_samples);
}

mt_rc mt_data_check(const mt_settings *s, const mt_data_hooks *hooks, mt_err *err)
{
    if (reads_token_rows(s)) return check_rows(s, err);
    return mt_feed_check(s, &(mt_feed_options){ .installed = hooks->installed }, err);
}

mt_rc mt_data_open(mt_source **out, const mt_settings *s, const mt_config *c, const struct tm *now, const mt_data_hooks *hooks,
                   mt_err *err)
{
    const mt_feed_options o = { .vocab = c->V,
                                .max_positions = c->max_positions,
                                .now = now,
                                .installed = hooks->installed,
                                .fetch = hooks->fetch,
                                .stop = hooks->stop };
    *out = NULL;
    if (reads_token_rows(s))
        MT_TRY(open_rows(out, s, c, err));
    else
        MT_TRY(open_feed(out, s, &o, hooks, err));
    warn_small(*out, s);
    return MT_OK;
}
