#include "cli/data_json.h"

#include "data/batch.h"

#include <string.h>

static void put_text(mt_str *out, const char *key, const char *text, size_t n)
{
    mt_str_printf(out, "\"%s\": ", key);
    mt_str_json(out, text, n);
}

static void put_dataset(mt_str *out, const mt_pipeline *p, size_t i)
{
    const mt_store_counts *c = mt_store_counted(mt_pipeline_store(p, i));
    const char *name = mt_pipeline_name(p, i);
    mt_str_puts(out, i ? ",\n    {" : "\n    {");
    put_text(out, "name", name, strlen(name));
    mt_str_printf(out, ", \"records\": %lld, \"samples\": %lld, \"tokens\": %lld, \"trained_tokens\": %lld, ",
                  (long long)c->n_records, (long long)c->n_samples, (long long)c->n_tokens, (long long)c->n_trained);
    mt_str_printf(out, "\"left_out\": %lld, \"truncated\": %lld, \"longest\": %lld}",
                  (long long)(c->n_records - c->by_reason[MT_REASON_NONE] - c->n_empty), (long long)c->odd.truncated,
                  (long long)c->longest);
}

static void put_findings(mt_str *out, const mt_findings *f)
{
    static const char *const words[] = { [MT_LINT_NOTE] = "note", [MT_LINT_WARN] = "warning", [MT_LINT_STOP] = "stop" };
    mt_str_puts(out, "  \"findings\": [");
    for (size_t i = 0; i < f->n; i++) {
        mt_str_printf(out, "%s{\"severity\": \"%s\", ", i ? ", " : "", words[f->items[i].severity]);
        put_text(out, "text", f->items[i].text, strlen(f->items[i].text));
        mt_str_puts(out, "}");
    }
    mt_str_puts(out, "],\n");
}

/* The text in runs of tokens that are trained on or not. */
static mt_rc put_runs(mt_str *out, const mt_tokenizer *tok, const int32_t *ids, const int32_t *labels, int64_t n, mt_err *err)
{
    mt_rc rc = MT_OK;
    mt_str text = { 0 };
    for (int64_t i = 0, end; i < n && !rc; i = end) {
        bool trained = labels[i] != MT_IGNORE;
        for (end = i + 1; end < n && (labels[end] != MT_IGNORE) == trained;) end++;
        mt_str_clear(&text);
        rc = mt_tokenizer_decode(tok, ids + i, (size_t)(end - i), false, &text, err);
        mt_str_printf(out, "%s{\"trained\": %s, ", i ? ", " : "", trained ? "true" : "false");
        put_text(out, "text", text.s ? text.s : "", text.n);
        mt_str_puts(out, "}");
    }
    mt_str_free(&text);
    return rc;
}

static mt_rc put_sample(mt_str *out, const mt_feed *f, int64_t i, mt_err *err)
{
    const mt_pipeline *p = mt_feed_pipeline(f);
    size_t d;
    int64_t sample;
    mt_pipeline_at(p, i, &d, &sample);
    const mt_store *store = mt_pipeline_store(p, d);
    int64_t n = mt_store_length(store, sample);
    int32_t *ids = mt_calloc((size_t)n + 1, sizeof *ids), *labels = mt_calloc((size_t)n + 1, sizeof *labels);
    mt_rc rc = ids && labels ? MT_OK : mt_no_memory(err, "a sample");
    if (!rc) rc = mt_store_read(store, sample, ids, labels, err);
    if (!rc) {
        mt_str_puts(out, i ? ",\n    {\"input_ids\": [" : "\n    {\"input_ids\": [");
        for (int64_t k = 0; k < n; k++) mt_str_printf(out, "%s%d", k ? ", " : "", ids[k]);
        mt_str_puts(out, "], \"labels\": [");
        for (int64_t k = 0; k < n; k++) mt_str_printf(out, "%s%d", k ? ", " : "", labels[k] == MT_IGNORE ? -100 : labels[k]);
        mt_str_puts(out, "], \"parts\": [");
        rc = put_runs(out, mt_feed_tokenizer(f), ids, labels, n, err);
        mt_str_puts(out, "]}");
    }
    mt_free(ids);
    mt_free(labels);
    return rc;
}

mt_rc mt_data_json(mt_str *out, const mt_feed *f, const mt_settings *s, int64_t n, mt_err *err)
{
    const mt_pipeline *p = mt_feed_pipeline(f);
    mt_pipeline_facts facts;
    const char *template;
    mt_pipeline_facts_of(p, &facts);
    mt_sampler_template(mt_feed_sampler(f), &template);
    mt_str_printf(out, "{\n  \"version\": 1,\n  \"train_samples\": %lld,\n  \"eval_samples\": %lld,\n  \"train_tokens\": %lld,\n",
                  (long long)facts.n_train, (long long)facts.n_eval, (long long)facts.train_tokens);
    mt_str_printf(out, "  \"max_seq_len\": %lld,\n  \"packed_rows\": %lld,\n  ", (long long)s->dataset.max_seq_len,
                  (long long)facts.n_rows);
    put_text(out, "template", template, strlen(template));
    mt_str_puts(out, ",\n  \"datasets\": [");
    for (size_t i = 0; i < mt_pipeline_stores(p); i++) put_dataset(out, p, i);
    mt_str_puts(out, "\n  ],\n");
    put_findings(out, mt_feed_findings(f));
    mt_str_puts(out, "  \"samples\": [");
    for (int64_t i = 0; i < mt_min_i64(n, facts.n_train); i++) MT_TRY(put_sample(out, f, i, err));
    mt_str_puts(out, "\n  ]\n}\n");
    return MT_OK;
}
