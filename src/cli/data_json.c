#include "cli/data_json.h"

#include "base/json_write.h"
#include "data/batch.h"

static void put_dataset(mt_json_out *j, const mt_pipeline *p, size_t i)
{
    const mt_store *s = mt_pipeline_store(p, i);
    const mt_store_counts *c = mt_store_counted(s);
    const char *bad;
    mt_json_map(j, NULL, MT_JSON_FLAT);
    mt_json_put_str(j, "name", mt_pipeline_name(p, i));
    mt_json_put_int(j, "records", c->n_records);
    mt_json_put_int(j, "samples", c->n_samples);
    mt_json_put_int(j, "tokens", c->n_tokens);
    mt_json_put_int(j, "trained_tokens", c->n_trained);
    mt_json_put_int(j, "left_out", c->n_records - c->by_reason[MT_REASON_NONE] - c->n_empty);
    mt_json_map(j, "reasons", MT_JSON_FLAT);
    for (int r = MT_REASON_NONE + 1; r < MT_REASONS; r++)
        if (c->by_reason[r]) mt_json_put_int(j, mt_reason_text((mt_reason)r), c->by_reason[r]);
    mt_json_end(j);
    mt_json_list(j, "first_bad", MT_JSON_FLAT);
    for (int k = 0; (bad = mt_store_bad_text(s, k)); k++) mt_json_put_str(j, NULL, bad);
    mt_json_end(j);
    mt_json_put_int(j, "truncated", c->odd.truncated);
    mt_json_put_int(j, "longest", c->longest);
    mt_json_end(j);
}

static void put_findings(mt_json_out *j, const mt_findings *f)
{
    static const char *const words[] = { [MT_LINT_NOTE] = "note", [MT_LINT_WARN] = "warning", [MT_LINT_STOP] = "stop" };
    mt_json_list(j, "findings", MT_JSON_FLAT);
    for (size_t i = 0; i < f->n; i++) {
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_str(j, "severity", words[f->items[i].severity]);
        mt_json_put_str(j, "text", f->items[i].text);
        mt_json_end(j);
    }
    mt_json_end(j);
}

/* The text as runs of trained and untrained tokens. */
static mt_rc put_runs(mt_json_out *j, const mt_tokenizer *tok, const int32_t *ids, const int32_t *labels, int64_t n, mt_err *err)
{
    mt_rc rc = MT_OK;
    mt_str text = { 0 };
    mt_json_list(j, "parts", MT_JSON_FLAT);
    for (int64_t i = 0, end; i < n && !rc; i = end) {
        bool trained = labels[i] != MT_IGNORE;
        for (end = i + 1; end < n && (labels[end] != MT_IGNORE) == trained;) end++;
        mt_str_clear(&text);
        rc = mt_tokenizer_decode(tok, ids + i, (size_t)(end - i), false, &text, err);
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_put_bool(j, "trained", trained);
        mt_json_put_bytes(j, "text", text.s ? text.s : "", text.n);
        mt_json_end(j);
    }
    mt_json_end(j);
    mt_str_free(&text);
    return rc;
}

static mt_rc put_sample(mt_json_out *j, const mt_feed *f, int64_t i, mt_err *err)
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
        mt_json_map(j, NULL, MT_JSON_FLAT);
        mt_json_list(j, "input_ids", MT_JSON_FLAT);
        for (int64_t k = 0; k < n; k++) mt_json_put_int(j, NULL, ids[k]);
        mt_json_end(j);
        mt_json_list(j, "labels", MT_JSON_FLAT);
        for (int64_t k = 0; k < n; k++) mt_json_put_int(j, NULL, labels[k] == MT_IGNORE ? -100 : labels[k]);
        mt_json_end(j);
        rc = put_runs(j, mt_feed_tokenizer(f), ids, labels, n, err);
        mt_json_end(j);
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
    mt_json_out j = { .to = out };
    mt_pipeline_facts_of(p, &facts);
    mt_sampler_template(mt_feed_sampler(f), &template);
    mt_json_map(&j, NULL, MT_JSON_LINES);
    mt_json_put_int(&j, "version", 1);
    mt_json_put_int(&j, "train_samples", facts.n_train);
    mt_json_put_int(&j, "eval_samples", facts.n_eval);
    mt_json_put_int(&j, "train_tokens", facts.train_tokens);
    mt_json_put_int(&j, "max_seq_len", s->dataset.max_seq_len);
    mt_json_put_int(&j, "packed_rows", facts.n_rows);
    mt_json_put_str(&j, "template", template);
    mt_json_list(&j, "datasets", MT_JSON_LINES);
    for (size_t i = 0; i < mt_pipeline_stores(p); i++) put_dataset(&j, p, i);
    mt_json_end(&j);
    put_findings(&j, mt_feed_findings(f));
    mt_json_list(&j, "samples", MT_JSON_LINES);
    for (int64_t i = 0; i < mt_min_i64(n, facts.n_train); i++) MT_TRY(put_sample(&j, f, i, err));
    mt_json_end(&j);
    mt_json_end(&j);
    mt_str_putc(out, '\n');
    return mt_json_done(&j, "the output", err);
}
