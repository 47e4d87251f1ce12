#include "data/chunk.h"

#include "data/batch.h"

#include <stdio.h>
#include <string.h>

/* -- reading --------------------------------------------------------------------------------------- */

/* Bytes of text in a record: what a worker will have to do. */
static size_t text_bytes(const mt_value *v)
{
    size_t n = 0;
    if (v->type == MT_VALUE_STR) return v->str.n;
    if (v->type == MT_VALUE_LIST)
        for (size_t i = 0; i < v->list.n; i++) n += text_bytes(&v->list.items[i]);
    if (v->type == MT_VALUE_MAP)
        for (size_t i = 0; i < v->map.n; i++) n += text_bytes(&v->map.pairs[i].value);
    return n;
}

static void clear(mt__chunk *c)
{
    mt_arena_reset(&c->arena);
    c->n_records = c->n_words = c->n_samples = 0;
    c->last = false;
    c->counts = (mt_store_counts){ 0 };
    c->n_bad_shown = 0;
    c->error = (mt_err){ 0 };
}

/* True, with the error set, if a stop was requested. */
static bool stopped(mt__chunk *c, const mt_store_job *job)
{
    if (!mt_store_job_stopped(job)) return false;
    mt_fail(&c->error, MT_ESTOPPED, "tokenizing was stopped on request; the same command begins it again");
    return true;
}

/* One record; false: that was the last. */
static bool read_one(mt__chunk *c, mt_records *records, mt_err *err)
{
    mt__record *r = &c->records[c->n_records];
    if (mt_records_next(records, &c->arena, &r->value, &r->where, err)) {
        c->error = *err;
        return false;
    }
    if (r->where.state == MT_RECORD_END) return false;
    r->bad = NULL;
    if (r->where.state == MT_RECORD_BAD && !(r->bad = mt_arena_strndup(&c->arena, err->msg, strlen(err->msg)))) {
        mt_no_memory(&c->error, "a record of %s", r->where.file);
        return false;
    }
    c->n_records++;
    return true;
}

void mt__chunk_read(mt__chunk *c, mt_records *records, int64_t *left, const mt_store_job *job)
{
    mt_err err = { 0 };
    size_t bytes = 0;
    clear(c);
    while (!c->last && c->n_records < MT__CHUNK_RECORDS && bytes < MT__CHUNK_BYTES) {
        if (*left == 0 || stopped(c, job) || !read_one(c, records, &err)) {
            c->last = true;
            break;
        }
        bytes += text_bytes(&c->records[c->n_records - 1].value);
        if (*left > 0) --*left;
    }
    c->share = mt_records_share(records);
}

/* -- making ---------------------------------------------------------------------------------------- */

static void count_bad(mt__chunk *c, mt_reason reason, const mt__record *r, const char *why)
{
    c->counts.by_reason[reason]++;
    if (mt_store_fine((int)reason) || c->n_bad_shown == MT_STORE_SHOWN) return;
    char *out = c->bad[c->n_bad_shown++];
    memset(out, 0, MT_STORE_TEXT); /* it becomes part of the file: no stray bytes */
    char place[MT_STORE_TEXT / 2] = "";
    if (!r->bad) mt_record_place_text(place, sizeof place, &r->where); /* the reader's messages name the place */
    snprintf(out, MT_STORE_TEXT, "%s%s%s", place, *place ? ": " : "", why);
}

/* A tokenizer may know more tokens than the model has rows (gemma-3-1b's has one for images): that is an error only where
 * one of them is met. */
static mt_rc beyond_vocabulary(const mt_store_job *job, int32_t id, mt_err *err)
{
    size_t n = 0;
    const char *text = job->maker.spell ? job->maker.spell(job->maker.ctx, id, &n) : NULL;
    return mt_fail(
        err, MT_ERANGE,
        "the token \"%.*s\" has the id %d, and the model's embedding ends at id %lld (vocab_size in config.json): take "
        "the tokenizer files that were published with the model, or, if the token was added to them, remove it from "
        "the tokenizer, the chat template and the data (the vocabulary is not grown)",
        text ? (int)mt_min_i64((int64_t)n, 64) : 1, text ? text : "?", id, (long long)job->vocab - 1);
}

static mt_rc check_sample(const mt_sample *s, const mt_store_job *job, mt_err *err)
{
    if (s->n < 1) return mt_fail(err, MT_EINTERNAL, "a sample without tokens");
    for (int64_t i = 0; i < s->n; i++) {
        if (s->ids[i] < 0 || s->ids[i] >= job->vocab) return beyond_vocabulary(job, s->ids[i], err);
        if (s->labels[i] != s->ids[i] && s->labels[i] != MT_IGNORE)
            return mt_fail(err, MT_EINTERNAL, "label %d of token %d is neither the token nor %d", s->labels[i], s->ids[i],
                           MT_IGNORE);
    }
    return MT_OK;
}

static void pack_words(mt__chunk *c, const mt_sample *s, uint32_t word_bytes)
{
    if (word_bytes == 4) {
        uint32_t *w = c->words + c->n_words;
        for (int64_t i = 0; i < s->n; i++) w[i] = (uint32_t)s->ids[i] | (s->labels[i] == MT_IGNORE ? 0 : UINT32_C(1) << 31);
    } else {
        uint16_t *w = (uint16_t *)c->words + c->n_words;
        for (int64_t i = 0; i < s->n; i++) w[i] = (uint16_t)(s->ids[i] | (s->labels[i] == MT_IGNORE ? 0 : 0x8000));
    }
    c->n_words += (size_t)s->n;
}

static mt_rc add_sample(mt__chunk *c, const mt_sample *s, bool first, const mt_store_job *job, uint32_t word_bytes, mt_err *err)
{
    int64_t n_trained = 0;
    MT_TRY(check_sample(s, job, err));
    MT_TRY(mt_grow(&c->words, &c->cap_words, c->n_words + (size_t)s->n, sizeof *c->words, err));
    MT_TRY(mt_grow(&c->samples, &c->cap_samples, c->n_samples + 1, sizeof *c->samples, err));
    c->samples[c->n_samples++] = (mt__chunk_sample){ s->n, s->n_uncut, first };
    pack_words(c, s, word_bytes);
    for (int64_t i = 1; i < s->n; i++) n_trained += s->labels[i] != MT_IGNORE;
    c->counts.n_trained += n_trained;
    c->counts.n_untrained += n_trained == 0;
    return MT_OK;
}

static mt_rc make_one(mt__chunk *c, const mt__record *r, const mt_store_job *job, void *scratch, uint32_t word_bytes, mt_err *err)
{
    const mt_sample *samples = NULL;
    size_t n = 0;
    mt_reason reason = MT_REASON_NONE;
    c->counts.n_records++;
    if (r->bad) return count_bad(c, MT_REASON_NOT_JSON, r, r->bad), MT_OK;
    MT_TRY(job->maker.run(job->maker.ctx, scratch, &r->value, &samples, &n, &reason, &c->counts.odd, err));
    if (reason != MT_REASON_NONE) return count_bad(c, reason, r, err->msg), MT_OK;
    if (job->specials && mt_specials_found(job->specials, &r->value)) c->counts.n_spelled++;
    for (size_t i = 0; i < n; i++) MT_TRY(add_sample(c, &samples[i], i == 0, job, word_bytes, err));
    c->counts.by_reason[MT_REASON_NONE] += n > 0;
    c->counts.n_empty += n == 0;
    return MT_OK;
}

void mt__chunk_make(mt__chunk *c, const mt_store_job *job, void *scratch, uint32_t word_bytes)
{
    mt_err err = { 0 };
    for (size_t i = 0; i < c->n_records; i++) {
        if (stopped(c, job)) return;
        if (!make_one(c, &c->records[i], job, scratch, word_bytes, &err)) continue;
        if (err.rc == MT_ESTOPPED && stopped(c, job)) return;
        char place[500];
        mt_record_place_text(place, sizeof place, &c->records[i].where);
        mt_note(&err, "%s", place);
        c->error = err;
        return;
    }
}

/* -- writing --------------------------------------------------------------------------------------- */

static void add_counts(mt_store_counts *to, const mt_store_counts *c)
{
    to->n_records += c->n_records;
    for (int r = 0; r < MT_REASONS; r++) to->by_reason[r] += c->by_reason[r];
    to->n_empty += c->n_empty;
    to->n_trained += c->n_trained;
    to->n_untrained += c->n_untrained;
    to->n_spelled += c->n_spelled;
    to->odd.trailing_user_cut += c->odd.trailing_user_cut;
    to->odd.truncated += c->odd.truncated;
    to->odd.answers_cut += c->odd.answers_cut;
    to->odd.unrolled += c->odd.unrolled;
    to->odd.turns_without_room += c->odd.turns_without_room;
    to->odd.tools_as_text += c->odd.tools_as_text;
    to->odd.thoughts_begun += c->odd.thoughts_begun;
    to->odd.thoughts_open += c->odd.thoughts_open;
    to->odd.thoughts_lost += c->odd.thoughts_lost;
    to->odd.thoughts_closed += c->odd.thoughts_closed;
}

mt_rc mt__chunk_write(const mt__chunk *c, mt__store_writer *w, mt_err *err)
{
    mt__store_header *h = &w->header;
    MT_TRY(mt__store_append(w, c->words, c->n_words, err));
    for (size_t i = 0; i < c->n_samples; i++) {
        const mt__chunk_sample *s = &c->samples[i];
        MT_TRY(mt__store_append_index(w, s->n, s->n_uncut, s->first, err));
    }
    int shown = 0;
    while (shown < MT_STORE_SHOWN && h->bad[shown][0]) shown++;
    for (int k = 0; k < c->n_bad_shown && shown < MT_STORE_SHOWN; k++) memcpy(h->bad[shown++], c->bad[k], MT_STORE_TEXT);
    add_counts(&h->counts, &c->counts);
    return MT_OK;
}

void mt__chunk_free(mt__chunk *c)
{
    mt_arena_free(&c->arena);
    mt_free(c->words);
    mt_free(c->samples);
}
