#include "data/report.h"

void mt_report_reasons(mt_str *out, const mt_store_counts *c)
{
    const char *between = "";
    for (int r = MT_REASON_NONE + 1; r < MT_REASONS; r++) {
        if (c->by_reason[r] == 0) continue;
        mt_str_printf(out, "%s%s (%lld)", between, mt_reason_text((mt_reason)r), (long long)c->by_reason[r]);
        between = ", ";
    }
}

/* Counts, reasons, and the first three, one per line. */
static void describe(mt_str *out, const mt_store *s)
{
    const mt_store_counts *c = mt_store_counted(s);
    int64_t n_bad = mt_store_bad(c);
    mt_str_printf(out, "%lld of %lld records %s bad (%.3g%%): ", (long long)n_bad, (long long)c->n_records,
                  n_bad == 1 ? "is" : "are", 100.0 * (double)n_bad / (double)c->n_records);
    mt_report_reasons(out, c);
    const char *text;
    for (int k = 0; (text = mt_store_bad_text(s, k)); k++) mt_str_printf(out, "\n  %.400s", text);
}

mt_rc mt_report_check(const mt_store *s, const char *name, bool stop_on_bad, double max_bad_share, mt_err *err)
{
    const mt_store_counts *c = mt_store_counted(s);
    int64_t n_bad = mt_store_bad(c);
    bool too_many = (double)n_bad > max_bad_share * (double)c->n_records;
    if (c->n_samples > 0 && !(n_bad && (stop_on_bad || too_many))) return MT_OK;
    mt_str text = { 0 };
    if (c->n_records == 0)
        mt_str_puts(&text, "it has no records");
    else if (n_bad)
        describe(&text, s);
    else if (c->n_samples == 0) {
        mt_str_printf(&text, "none of its %lld records gives a sample: ", (long long)c->n_records);
        mt_report_reasons(&text, c);
        if (c->by_reason[MT_REASON_NO_ROOM] + c->by_reason[MT_REASON_TOO_LONG])
            mt_str_puts(&text, ".  Raise max_seq_len, or shorten the records");
    }
    if (n_bad && stop_on_bad)
        mt_str_puts(&text, "\n  on_bad_record: skip would leave them out");
    else if (n_bad && too_many)
        mt_str_printf(&text, "\n  More than max_bad_share (%.3g%%): mend the data or the columns it is read by, or raise it",
                      100 * max_bad_share);
    mt_rc rc =
        mt_fail(err, mt_str_ok(&text) ? MT_EFORMAT : MT_ENOMEM, "dataset %s: %s", name, text.s ? text.s : "no host memory");
    mt_str_free(&text);
    return rc;
}
