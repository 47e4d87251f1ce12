/* lint.h - probable mistakes in the data, reported before a run spends hours on it. */
#ifndef MT_DATA_LINT_H
#define MT_DATA_LINT_H

#include "data/store.h"

typedef enum mt_severity { MT_LINT_NOTE, MT_LINT_WARN, MT_LINT_STOP } mt_severity;

typedef struct mt_finding {
    mt_severity severity;
    char text[1024];
} mt_finding;

/* Zero-initialize, fill, free. */
typedef struct mt_findings {
    mt_finding *items;
    size_t n, cap;
} mt_findings;

typedef struct mt_lint_input {
    const char *name; /* of the dataset, for the messages */
    const mt_store *store;
    int64_t max_seq_len;
    int64_t max_positions;   /* of the model; 0: not known */
    int32_t end_id;          /* the token that ends an answer; -1: there is none */
    double max_cut_share;    /* from this share of cut answers on the run stops; 1: it never does */
    bool flat;               /* the settings are in LLaMA-Factory's form, which has other names or only flags for them */
    bool truncates;          /* the user requested cut samples: they never stop the run */
    bool lets_end_untrained; /* the same for answers of which none trains its end */
} mt_lint_input;

/* max_seq_len against the positions the model knows (0: not known), once for all datasets. */
mt_rc mt_lint_positions(mt_findings *out, int64_t max_seq_len, int64_t max_positions, mt_err *err);
/* Append the findings of one dataset. */
mt_rc mt_lint(mt_findings *out, const mt_lint_input *in, mt_err *err);
/* The first finding that stops a run, as an error; MT_OK without one. */
mt_rc mt_lint_verdict(const mt_findings *f, mt_err *err);
void mt_findings_free(mt_findings *f);

#endif
