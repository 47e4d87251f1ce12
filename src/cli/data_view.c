#include "cli/data_view.h"

#include "base/units.h"
#include "cli/plot.h"
#include "cli/terminal.h"
#include "data/batch.h"
#include "data/report.h"

#include <stdio.h>
#include <string.h>

/* -- samples --------------------------------------------------------------------------------------- */

/* Data is not trusted: control characters must not reach the terminal. */
static void put_safely(mt_str *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool c1 = c == 0xc2 && i + 1 < n && (unsigned char)text[i + 1] < 0xa0; /* U+0080 to U+009F */
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            mt_str_printf(out, "\\x%02x", c);
        else if (c1)
            mt_str_printf(out, "\\x%02x", (unsigned char)text[++i]);
        else
            mt_str_putc(out, text[i]);
    }
}

static mt_rc put_run(mt_str *out, const mt_tokenizer *tok, const int32_t *ids, int64_t n, bool trained, bool color, mt_err *err)
{
    mt_str text = { 0 }, safe = { 0 };
    mt_rc rc = mt_tokenizer_decode(tok, ids, (size_t)n, false, &text, err);
    if (!rc) {
        if (trained && !color) mt_str_puts(&safe, "[[");
        put_safely(&safe, text.n ? text.s : "", text.n);
        if (trained && !color) mt_str_puts(&safe, "]]");
        mt_style_put(out, safe.s ? safe.s : "", trained ? MT_STYLE_GREEN : MT_STYLE_PLAIN, color);
        if (!mt_str_ok(&safe)) out->failed = true;
    }
    mt_str_free(&text);
    mt_str_free(&safe);
    return rc;
}

mt_rc mt_data_view_sample(mt_str *out, const mt_tokenizer *tok, const int32_t *ids, const int32_t *labels, int64_t n, bool color,
                          mt_err *err)
{
    for (int64_t i = 0, end; i < n; i = end) {
        bool trained = labels[i] != MT_IGNORE;
        for (end = i + 1; end < n && (labels[end] != MT_IGNORE) == trained;) end++;
        MT_TRY(put_run(out, tok, ids + i, end - i, trained, color, err));
    }
    return MT_OK;
}

static void put_ids(mt_str *out, const int32_t *ids, const int32_t *labels, int64_t n, bool color)
{
    mt_str_puts(out, "ids");
    for (int64_t i = 0; i < n; i++) {
        char text[24];
        bool trained = labels[i] != MT_IGNORE;
        snprintf(text, sizeof text, trained && !color ? "[%d]" : "%d", ids[i]);
        mt_str_putc(out, ' ');
        mt_style_put(out, text, trained ? MT_STYLE_GREEN : MT_STYLE_PLAIN, color);
    }
    mt_str_putc(out, '\n');
}

static mt_rc put_sample(mt_str *out, const mt_feed *f, int64_t i, int32_t *ids, int32_t *labels, bool with_ids, bool color,
                        mt_err *err)
{
    const mt_pipeline *p = mt_feed_pipeline(f);
    size_t d;
    int64_t sample, n_trained = 0;
    char title[256];
    mt_pipeline_at(p, i, &d, &sample);
    const mt_store *store = mt_pipeline_store(p, d);
    int64_t n = mt_store_length(store, sample);
    MT_TRY(mt_store_read(store, sample, ids, labels, err));
    for (int64_t k = 1; k < n; k++) n_trained += labels[k] != MT_IGNORE;
    snprintf(title, sizeof title, "--- sample %lld of %s: %lld tokens, %lld trained", (long long)sample + 1,
             mt_pipeline_name(p, d), (long long)n, (long long)n_trained);
    mt_style_put(out, title, MT_STYLE_BOLD, color);
    mt_str_putc(out, '\n');
    MT_TRY(mt_data_view_sample(out, mt_feed_tokenizer(f), ids, labels, n, color, err));
    if (out->n && out->s[out->n - 1] != '\n') mt_str_putc(out, '\n');
    if (with_ids) put_ids(out, ids, labels, n, color);
    return MT_OK;
}

static int64_t longest_of(const mt_pipeline *p)
{
    int64_t longest = 0;
    for (size_t i = 0; i < mt_pipeline_stores(p); i++)
        longest = mt_max_i64(longest, mt_store_counted(mt_pipeline_store(p, i))->longest);
    return longest;
}

mt_rc mt_data_view_samples(mt_str *out, const mt_feed *f, int64_t n, bool ids, bool color, mt_err *err)
{
    const mt_pipeline *p = mt_feed_pipeline(f);
    mt_pipeline_facts facts;
    mt_pipeline_facts_of(p, &facts);
    size_t room = (size_t)longest_of(p) + 1;
    int32_t *a = mt_calloc(room, sizeof *a), *b = mt_calloc(room, sizeof *b);
    mt_rc rc = a && b ? MT_OK : mt_no_memory(err, "a sample");
    for (int64_t i = 0; !rc && i < mt_min_i64(n, facts.n_train); i++) rc = put_sample(out, f, i, a, b, ids, color, err);
    if (!rc && n > 0) mt_str_putc(out, '\n');
    mt_free(a);
    mt_free(b);
    return rc;
}

/* -- the summary ----------------------------------------------------------------------------------- */

enum { BARS = 16 };

/* The narrowest of 1, 2, 4, 8, ... that needs at most BARS buckets. */
static int64_t bucket_width(int64_t longest)
{
    int64_t width = 1;
    while (longest > width * BARS) width *= 2;
    return width;
}

static void put_lengths(mt_str *out, const mt_pipeline *p, int columns, bool utf8)
{
    int64_t longest = longest_of(p), width = bucket_width(longest), counts[BARS] = { 0 };
    mt_bar bars[BARS];
    char labels[BARS][48], texts[BARS][48];
    for (size_t d = 0; d < mt_pipeline_stores(p); d++)
        for (int64_t i = 0; i < mt_store_samples(mt_pipeline_store(p, d)); i++)
            counts[(mt_store_length(mt_pipeline_store(p, d), i) - 1) / width]++;
    size_t n = (size_t)((longest + width - 1) / width), first = 0;
    while (first + 1 < n && counts[first] == 0) first++;
    for (size_t b = first; b < n; b++) {
        int64_t from = (int64_t)b * width + 1, to = mt_min_i64(((int64_t)b + 1) * width, longest);
        if (from == to)
            snprintf(labels[b], sizeof labels[b], "%lld", (long long)to);
        else
            snprintf(labels[b], sizeof labels[b], "%lld to %lld", (long long)from, (long long)to);
        snprintf(texts[b], sizeof texts[b], "%lld", (long long)counts[b]);
        bars[b] = (mt_bar){ labels[b], texts[b], (double)counts[b] };
    }
    mt_str_puts(out, "lengths      samples by tokens\n");
    mt_plot_bars(out, bars + first, n - first, columns, utf8);
}

static double share(int64_t part, int64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

static void put_odd(mt_str *out, const mt_store_counts *c)
{
    const mt_oddities *o = &c->odd;
    const struct {
        int64_t n;
        const char *text;
    } odds[] = { { o->truncated, "samples cut to max_seq_len" },
                 { o->answers_cut, "answers cut off by that" },
                 { o->trailing_user_cut, "last user turns without an answer, cut off" },
                 { o->unrolled, "conversations split into one sample per turn" },
                 { o->turns_without_room, "answers of those that were dropped as too long" },
                 { o->tools_as_text, "records whose tools are written as text" },
                 { o->thoughts_open, "answers with an unclosed thought" },
                 { o->thoughts_closed, "answers without their thought, which the generation prompt has closed" },
                 { o->thoughts_lost, "answers without their thought, which the template does not show" },
                 { c->n_empty, "records without a sample (empty lines)" },
                 { c->n_untrained, "samples with nothing to train" } };
    for (size_t i = 0; i < MT_COUNT(odds); i++)
        if (odds[i].n) mt_str_printf(out, "%13s%s: %lld\n", "", odds[i].text, (long long)odds[i].n);
}

static mt_rc put_dataset(mt_str *out, const mt_feed *f, size_t i, mt_err *err)
{
    const mt_pipeline *p = mt_feed_pipeline(f);
    const mt_store *s = mt_pipeline_store(p, i);
    const mt_store_counts *c = mt_store_counted(s);
    mt_str unmapped = { 0 };
    mt_str_printf(out, "dataset      %s: %lld record%s, %lld sample%s, %s tokens, %.1f%% trained\n", mt_pipeline_name(p, i),
                  (long long)c->n_records, c->n_records == 1 ? "" : "s", (long long)c->n_samples, c->n_samples == 1 ? "" : "s",
                  mt_count_text((uint64_t)c->n_tokens).s, share(c->n_trained, c->n_tokens));
    if (*mt_feed_found(f, i)) mt_str_printf(out, "%13slaid out as %s\n", "", mt_feed_found(f, i));
    put_odd(out, c);
    int64_t left_out = c->n_records - c->by_reason[MT_REASON_NONE] - c->n_empty;
    if (left_out) {
        mt_str_printf(out, "skipped      %lld record%s: ", (long long)left_out, left_out == 1 ? "" : "s");
        mt_report_reasons(out, c);
        mt_str_putc(out, '\n');
    }
    const char *text;
    for (int k = 0; (text = mt_store_bad_text(s, k)); k++) {
        mt_str_puts(out, "             ");
        put_safely(out, text, strlen(text));
        mt_str_putc(out, '\n');
    }
    mt_rc rc = mt_feed_unmapped(f, i, &unmapped, err);
    if (!rc && unmapped.n) {
        mt_str_puts(out, "not read     columns ");
        put_safely(out, unmapped.s, unmapped.n);
        mt_str_putc(out, '\n');
    }
    mt_str_free(&unmapped);
    return rc;
}

void mt_data_view_left_out(mt_str *out, const char *name, const mt_store *s)
{
    const mt_store_counts *c = mt_store_counted(s);
    int64_t left_out = c->n_records - c->by_reason[MT_REASON_NONE] - c->n_empty;
    const char *text;
    if (!left_out) return;
    mt_str_printf(out, "dataset %s: %lld of %lld records are skipped: ", name, (long long)left_out, (long long)c->n_records);
    mt_report_reasons(out, c);
    for (int k = 0; (text = mt_store_bad_text(s, k)); k++) {
        mt_str_puts(out, "\n  ");
        put_safely(out, text, strlen(text));
    }
}

mt_rc mt_data_view_summary(mt_str *out, const mt_feed *f, const mt_settings *s, int columns, bool utf8, mt_err *err)
{
    const mt_pipeline *p = mt_feed_pipeline(f);
    mt_pipeline_facts facts;
    const char *template;
    mt_pipeline_facts_of(p, &facts);
    mt_sampler_template(mt_feed_sampler(f), &template);
    mt_str_printf(out, "samples      %lld to train on, %lld to evaluate on\n", (long long)facts.n_train, (long long)facts.n_eval);
    mt_str_printf(out, "tokens       %s an epoch, %.0f a sample; max_seq_len %lld\n",
                  mt_count_text((uint64_t)facts.train_tokens).s,
                  facts.n_train ? (double)facts.train_tokens / (double)facts.n_train : 0, (long long)s->dataset.max_seq_len);
    mt_str_printf(out, "template     %s\n", template);
    if (facts.n_rows)
        mt_str_printf(out, "packing      %lld row%s of %lld tokens, %.1f%% full\n", (long long)facts.n_rows,
                      facts.n_rows == 1 ? "" : "s", (long long)s->dataset.max_seq_len, 100 * facts.efficiency);
    else
        mt_str_puts(out, "packing      off: each sample is a separate row, without padding\n");
    for (size_t i = 0; i < mt_pipeline_stores(p); i++) MT_TRY(put_dataset(out, f, i, err));
    put_lengths(out, p, columns, utf8);
    return MT_OK;
}

/* -- what was found -------------------------------------------------------------------------------- */

void mt_data_view_findings(mt_str *out, const mt_findings *f, bool color)
{
    static const struct {
        const char *word;
        mt_style style;
    } kinds[] = { [MT_LINT_NOTE] = { "note", MT_STYLE_CYAN },
                  [MT_LINT_WARN] = { "warning", MT_STYLE_YELLOW },
                  [MT_LINT_STOP] = { "stop", MT_STYLE_RED } };
    for (size_t i = 0; i < f->n; i++) {
        mt_style_put(out, kinds[f->items[i].severity].word, kinds[f->items[i].severity].style, color);
        mt_str_printf(out, "%*s%s\n", 13 - (int)strlen(kinds[f->items[i].severity].word), "", f->items[i].text);
    }
}

mt_rc mt_data_view_verdict(const mt_feed *f, const mt_settings *s, mt_err *err)
{
    const mt_pipeline *p = mt_feed_pipeline(f);
    bool stop = s->dataset.on_bad_record == MT_SET_BAD_RECORD_STOP;
    for (size_t i = 0; i < mt_pipeline_stores(p); i++)
        MT_TRY(mt_report_check(mt_pipeline_store(p, i), mt_pipeline_name(p, i), stop, s->dataset.max_bad_share, err));
    return mt_lint_verdict(mt_feed_findings(f), err);
}
