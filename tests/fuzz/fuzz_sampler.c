/* Records, messages, masks: any template over any record gives samples that keep their promises, or a reason.
 *
 * Four bytes of settings, a chat template up to a NUL byte (empty: a built-in one), then records as JSON, one after the other. */
#include "harness.h"

#include "data/messages.h"
#include "data/sampler.h"
#include "data/slice.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_SETTINGS = 4, MOST_TEMPLATE = 1 << 12, MOST_RECORDS = 8 };

static const char *const built_in[] = { "chatml", "llama2", "llama3", "mistral", "gemma", "phi3",    "phi4",
                                        "glm4",   "alpaca", "vicuna", "zephyr",  "empty", "default", "deepseekr1" };

static mt_record_layout layout_of(uint8_t x)
{
    mt_record_layout text = mt_record_layout_default(MT_FORMATTING_ALPACA);
    text.text_only = true;
    if (x >= 250) { /* tokens */
        mt_record_layout ids = mt_record_layout_default(MT_FORMATTING_ALPACA);
        ids.ids = "i";
        ids.labels = x & 1 ? "l" : NULL;
        return ids;
    }
    if (x % 5 == 3) return mt_record_layout_direct("q", "a");
    return x % 5 == 4 ? text : mt_record_layout_default((mt_formatting)(x % 5));
}

/* What holds of every sample, whatever the template. */
static void check_sample(const mt_sampler_config *c, const mt_tokenizer *tok, const mt_sample *s, bool as_given)
{
    int64_t n_trained = 0, vocab = (int64_t)mt_tokenizer_vocab_size(tok);
    if (s->n < 1 || (c->max_seq_len && s->n > c->max_seq_len) || (s->n_uncut && s->n_uncut <= s->n)) abort();
    for (int64_t i = 0; i < s->n; i++) {
        if (s->ids[i] < 0 || (s->ids[i] >= vocab && !as_given) || (s->labels[i] != -100 && s->labels[i] != s->ids[i])) abort();
        n_trained += i > 0 && s->labels[i] != -100;
    }
    if (!n_trained && !c->as_is) abort();
}

/* Trained tokens, decoded, of all samples. */
static void decode_trained(const mt_tokenizer *tok, const mt_sample *samples, size_t n, mt_str *out)
{
    mt_err err = { 0 };
    for (size_t i = 0; i < n; i++)
        for (int64_t a = 0, b; a < samples[i].n; a = b) {
            for (b = a; b < samples[i].n && samples[i].labels[b] == -100;) b++;
            for (a = b; b < samples[i].n && samples[i].labels[b] != -100;) b++;
            if (mt_tokenizer_decode(tok, samples[i].ids + a, (size_t)(b - a), false, out, &err)) abort();
        }
}

/* With a built-in template and no limit, every answer that is to be learned is. */
static void check_answers(const mt_record_layout *layout, const mt_sampler_config *c, const mt_tokenizer *tok,
                          const mt_value *record, const mt_sample *samples, size_t n)
{
    mt_err err = { 0 };
    mt_arena arena = { 0 };
    mt_chat chat;
    mt_reason reason;
    mt_str said = { 0 };
    mt_chat_rules rules = { .merge_turns = c->merge_turns, .mask_history = c->mask_history };
    if (mt_chat_read(&chat, &arena, layout, &rules, record, &reason, &err) || reason != MT_REASON_NONE) abort();
    decode_trained(tok, samples, n, &said);
    for (size_t k = 0; k < chat.n; k++) {
        const mt_message *m = &chat.items[k];
        mt_slice answer = mt_slice_trim_end(mt_slice_skip_space((mt_slice){ m->content.str.s, m->content.str.n }));
        if (!m->trained || m->calls.type == MT_VALUE_LIST || (c->history == MT_HISTORY_LAST && k + 1 < chat.n)) continue;
        if (mt_slice_has(answer, (mt_slice){ "<think>", 7 })) continue; /* a prompt may have opened it */
        if (!mt_slice_has(mt_slice_of(&said), answer)) abort();
    }
    mt_str_free(&said);
    mt_arena_free(&arena);
}

static void run_record(const mt_sampler *s, mt_sampler_scratch *w, const mt_record_layout *layout, const mt_sampler_config *c,
                       const mt_tokenizer *tok, const mt_value *record)
{
    mt_err err = { 0 };
    mt_oddities odd = { 0 };
    mt_reason reason = MT_REASON_NONE;
    const mt_sample *samples;
    size_t n, n_before = 0;
    int64_t tokens_before = 0;
    mt_record_layout found;
    char words[MT_LAYOUT_WORDS];
    if (!mt_record_layout_detect(&found, words, record, &err) && !*words) abort();
    for (int round = 0; round < 2; round++) { /* the second time with memory that has been used */
        err.msg[0] = '\0';
        mt_rc rc = mt_sampler_run(s, w, record, &samples, &n, &reason, &odd, &err);
        if ((rc || reason != MT_REASON_NONE) && (n || !err.msg[0])) abort();
        if (rc || reason != MT_REASON_NONE) return;
        int64_t tokens = 0;
        for (size_t i = 0; i < n; i++) {
            check_sample(c, tok, &samples[i], layout->ids);
            tokens += samples[i].n;
        }
        if (round && (n != n_before || tokens != tokens_before)) abort();
        n_before = n;
        tokens_before = tokens;
    }
    if (*c->template && !c->max_seq_len && !c->as_is && !c->train_on_prompt && !layout->ids &&
        !mt_record_layout_is_text(layout, record))
        check_answers(layout, c, tok, record, samples, n);
    mt_sampler_prompt(s, w, record, &samples, &reason, &err);
}

static void run_records(const mt_sampler *s, const mt_record_layout *layout, const mt_sampler_config *c, const mt_tokenizer *tok,
                        const char *json, size_t n)
{
    mt_err err = { 0 };
    mt_sampler_scratch *w = NULL;
    mt_arena arena = { 0 };
    mt_value record;
    size_t used;
    if (mt_sampler_scratch_create(&w, s, &err)) return;
    for (int i = 0; i < MOST_RECORDS && n; i++) {
        mt_arena_reset(&arena);
        if (mt_value_parse_json(&record, &arena, json, n, &used, "fuzz", &err)) break;
        run_record(s, w, layout, c, tok, &record);
        json += used;
        n -= used;
    }
    mt_arena_free(&arena);
    mt_sampler_scratch_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mt_tokenizer *tok; /* opened once: the same for all inputs */
    static const struct tm now = { .tm_year = 124, .tm_mday = 1 };
    mt_err err = { 0 };
    mt_sampler *s;
    if (size <= N_SETTINGS) return 0;
    const char *elsewhere = getenv("MT_FUZZ_TOKENIZER"); /* where a fuzzer was copied to another machine */
    if (!tok && mt_tokenizer_open(&tok, elsewhere ? elsewhere : MT_TESTS_DIR "/golden/samples/tokenizer", &err)) abort();
    const char *text = (const char *)data + N_SETTINGS, *nul = memchr(text, '\0', size - N_SETTINGS);
    size_t n_text = nul ? (size_t)(nul - text) : 0;
    if (!nul || n_text > MOST_TEMPLATE) return 0;
    char *template = strndup(text, n_text);
    mt_record_layout layout = layout_of(data[0]);
    mt_sampler_config c = { .max_seq_len = data[1] == 1 ? 2 : data[1],
                            .template = n_text ? "" : built_in[data[2] % MT_COUNT(built_in)],
                            .template_text = template,
                            .train_on_prompt = data[3] & 1,
                            .mask_history = data[3] >> 1 & 1,
                            .merge_turns = data[3] >> 2 & 1,
                            .history = data[3] >> 3 & 1 ? MT_HISTORY_LAST : MT_HISTORY_UNROLL,
                            .overlong = (mt_overlong)(data[3] >> 4 & 3),
                            .as_is = data[3] >> 6 & 1,
                            .keep_text = data[3] >> 7 & 1,
                            .now = &now,
                            .max_steps = fuzz_production ? 0 : 20000 };
    if (template && !mt_sampler_open(&s, tok, &layout, &c, &err)) {
        run_records(s, &layout, &c, tok, nul + 1, size - N_SETTINGS - n_text - 1);
        mt_sampler_close(s);
    }
    free(template);
    return 0;
}
