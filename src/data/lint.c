#include "data/lint.h"

#include "data/batch.h"

#include <stdarg.h>
#include <stdio.h>

static const double cut_warns = 0.01, cut_keeps = 0.95;

__attribute__((format(printf, 4, 5))) static mt_rc found(mt_findings *f, mt_severity severity, mt_err *err, const char *fmt, ...)
{
    MT_TRY(mt_grow(&f->items, &f->cap, f->n + 1, sizeof *f->items, err));
    mt_finding *x = &f->items[f->n++];
    x->severity = severity;
    va_list args;
    va_start(args, fmt);
    vsnprintf(x->text, sizeof x->text, fmt, args);
    va_end(args);
    return MT_OK;
}

static double percent(int64_t part, int64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

mt_rc mt_lint_positions(mt_findings *f, int64_t max_seq_len, int64_t max_positions, mt_err *err)
{
    if (!max_positions || max_seq_len <= max_positions) return MT_OK;
    return found(f, MT_LINT_STOP, err, "max_seq_len is %lld and the model knows %lld positions; set max_seq_len to %lld or less",
                 (long long)max_seq_len, (long long)max_positions, (long long)max_positions);
}

static mt_rc lint_untrained(mt_findings *f, const mt_lint_input *in, mt_err *err)
{
    const mt_store_counts *c = mt_store_counted(in->store);
    if (c->n_untrained == 0) return MT_OK;
    bool all = c->n_untrained == c->n_samples;
    return found(f, all ? MT_LINT_STOP : MT_LINT_WARN, err, "%s: %lld of %lld samples (%.3g%%) train nothing%s", in->name,
                 (long long)c->n_untrained, (long long)c->n_samples, percent(c->n_untrained, c->n_samples),
                 all ? "; see what megatrain data --show prints" : "");
}

/* What to do about cut answers: never a length that the model cannot read. */
static void advise_cut(char *out, size_t room, const mt_lint_input *in, mt_severity severity)
{
    const char *length = in->flat ? "cutoff_len" : "max_seq_len", *over = in->flat ? "--overlong " : "overlong: ";
    int64_t keeps = mt_store_keeps(in->store, cut_keeps), most = in->max_positions ? in->max_positions : INT64_MAX;
    char longer[128] = "";
    if (keeps > in->max_seq_len && keeps <= most)
        snprintf(longer, sizeof longer, "; %s %lld would keep 95%% of the samples whole", length, (long long)keeps);
    else if (in->max_seq_len < most && most != INT64_MAX)
        snprintf(longer, sizeof longer, "; the model reads up to %s %lld", length, (long long)most);
    else if (in->max_seq_len < most)
        snprintf(longer, sizeof longer, "; raise %s", length);
    int n = snprintf(out, room, "%s; %sskip leaves such samples out", longer, over);
    if (severity == MT_LINT_STOP)
        snprintf(out + n, room - (size_t)n, "; %struncate trains on the rest of them, and %s allows a larger share", over,
                 in->flat ? "--max-cut-share" : "max_cut_share");
}

/* Answers that lost their end, and records of which no answer was left. */
static mt_rc lint_cut(mt_findings *f, const mt_lint_input *in, mt_err *err)
{
    const mt_store_counts *c = mt_store_counted(in->store);
    int64_t lost = c->by_reason[MT_REASON_NO_ROOM], n_cut = c->odd.answers_cut + lost, n = c->n_samples + lost;
    double share = n ? (double)n_cut / (double)n : 0;
    bool stops = !in->truncates && in->max_cut_share < 1 && share >= in->max_cut_share;
    if (n_cut == 0) return MT_OK;
    mt_severity severity = share >= cut_warns ? MT_LINT_WARN : MT_LINT_NOTE;
    if (stops) severity = MT_LINT_STOP;
    char advice[384] = "";
    if (severity != MT_LINT_NOTE) advise_cut(advice, sizeof advice, in, severity);
    return found(f, severity, err, "%s: %lld of %lld answers (%.3g%%) are cut at max_seq_len %lld%s", in->name, (long long)n_cut,
                 (long long)n, 100 * share, (long long)in->max_seq_len, advice);
}

/* True as soon as one sample trains the token: usually the first. */
static mt_rc trains(const mt_store *s, int32_t id, bool *out, mt_err *err)
{
    size_t longest = (size_t)mt_store_counted(s)->longest;
    int32_t *ids = mt_calloc(longest + 1, sizeof *ids), *labels = mt_calloc(longest + 1, sizeof *labels);
    mt_rc rc = ids && labels ? MT_OK : mt_no_memory(err, "looking at the samples");
    *out = false;
    for (int64_t i = 0; !rc && !*out && i < mt_store_samples(s); i++) {
        rc = mt_store_read(s, i, ids, labels, err);
        for (int64_t k = 1; !rc && k < mt_store_length(s, i) && !*out; k++) *out = labels[k] == id;
    }
    mt_free(ids);
    mt_free(labels);
    return rc;
}

static mt_rc lint_end(mt_findings *f, const mt_lint_input *in, mt_err *err)
{
    bool trained;
    if (in->end_id < 0) return MT_OK;
    MT_TRY(trains(in->store, in->end_id, &trained, err));
    if (trained) return MT_OK;
    const mt_store_counts *c = mt_store_counted(in->store);
    bool all_cut = c->odd.answers_cut >= c->n_samples; /* has its own finding */
    bool stops = !in->lets_end_untrained && !in->truncates && !all_cut;
    return found(f, stops ? MT_LINT_STOP : MT_LINT_WARN, err,
                 "%s: token %d, which ends an answer, is never trained: the model would not learn to stop%s", in->name,
                 in->end_id,
                 stops ? "; megatrain data --show shows where answers end, and allow_untrained_end trains them so" : "");
}

static mt_rc lint_spelled(mt_findings *f, const mt_lint_input *in, mt_err *err)
{
    const mt_store_counts *c = mt_store_counted(in->store);
    if (c->n_spelled == 0) return MT_OK;
    return found(f, MT_LINT_WARN, err, "%s: %lld of %lld records spell special tokens in their text; they become the real tokens",
                 in->name, (long long)c->n_spelled, (long long)c->n_records);
}

/* A model that is trained so never stops thinking. */
static mt_rc lint_thoughts(mt_findings *f, const mt_lint_input *in, mt_err *err)
{
    const mt_oddities *odd = &mt_store_counted(in->store)->odd;
    if (!odd->thoughts_open) return MT_OK;
    return found(
        f, MT_LINT_WARN, err,
        "%s: %lld of %lld answers never close the thought that is open when they begin; empty_thought: trained closes it for "
        "answers that have none, and an answer that opens one has to close it",
        in->name, (long long)odd->thoughts_open, (long long)odd->thoughts_begun);
}

static mt_rc lint_lost_thoughts(mt_findings *f, const mt_lint_input *in, mt_err *err)
{
    const mt_oddities *odd = &mt_store_counted(in->store)->odd;
    if (!odd->thoughts_lost) return MT_OK;
    return found(f, MT_LINT_WARN, err,
                 "%s: the chat template shows no thoughts: those of %lld answers (reasoning_content, thinking or reasoning) are "
                 "left out; to train them, write them into the answers (<think> ... </think>)",
                 in->name, (long long)odd->thoughts_lost);
}

/* The thought would be a second one: at inference the model answers after a closed one. */
static mt_rc lint_closed_thoughts(mt_findings *f, const mt_lint_input *in, mt_err *err)
{
    const mt_oddities *odd = &mt_store_counted(in->store)->odd;
    if (!odd->thoughts_closed) return MT_OK;
    return found(
        f, MT_LINT_WARN, err,
        "%s: the chat template's generation prompt closes the thought before the answer: the thoughts of %lld answers are "
        "left out; to train them, set template_kwargs as the model is to be asked ({enable_thinking: true}, for DeepSeek "
        "{thinking: true})",
        in->name, (long long)odd->thoughts_closed);
}

static mt_rc lint_tools(mt_findings *f, const mt_lint_input *in, mt_err *err)
{
    const mt_store_counts *c = mt_store_counted(in->store);
    if (!c->odd.tools_as_text) return MT_OK;
    return found(
        f, MT_LINT_NOTE, err,
        "%s: the chat template has no place for tools: those of %lld records are written as text, in LLaMA-Factory's default "
        "tool format (Action: ..., Action Input: ...); the model's own template has the model's format, if it shows tools "
        "(dataset.template auto)",
        in->name, (long long)c->odd.tools_as_text);
}

mt_rc mt_lint(mt_findings *out, const mt_lint_input *in, mt_err *err)
{
    MT_TRY(lint_untrained(out, in, err));
    MT_TRY(lint_cut(out, in, err));
    MT_TRY(lint_end(out, in, err));
    MT_TRY(lint_thoughts(out, in, err));
    MT_TRY(lint_lost_thoughts(out, in, err));
    MT_TRY(lint_closed_thoughts(out, in, err));
    MT_TRY(lint_tools(out, in, err));
    return lint_spelled(out, in, err);
}

mt_rc mt_lint_verdict(const mt_findings *f, mt_err *err)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->items[i].severity == MT_LINT_STOP) return mt_fail(err, MT_ERANGE, "%s", f->items[i].text);
    return MT_OK;
}

void mt_findings_free(mt_findings *f)
{
    mt_free(f->items);
    *f = (mt_findings){ 0 };
}
