/* flat_internal.h - LLaMA-Factory's files, in three parts.  Only settings/flat*.c include it.
 *
 *     flat_rows.c    the table: one row a key
 *     flat_rules.c   the rules of keys that need more than a row
 *     flat.c         reads a file by them, and has the helpers of the rules */
#ifndef MT_SETTINGS_FLAT_INTERNAL_H
#define MT_SETTINGS_FLAT_INTERNAL_H

#include "settings/flat.h"

/* A file that is being read. */
typedef struct flat {
    mt_settings *s;      /* borrowed; being filled */
    const mt_yaml *root; /* borrowed */
    const char *name;    /* of the file */
} flat;

typedef struct flat_row flat_row;
typedef mt_rc flat_rule(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err);

struct flat_row {
    const char *key;    /* ending in *: all keys with this beginning, unless an earlier row matches */
    const char *to;     /* "section.key" it sets; NULL: none */
    const char *text;   /* what replaces it, or why it is refused and what to do */
    flat_rule *special; /* its own rule; the other fields are for it to use */
    bool refused;
};

extern const flat_row mt__flat_rows[];
extern const size_t mt__flat_n_rows;

/* -- helpers of the rules -- */

/* The item of a key whose value is not null; NULL: there is none. */
const mt_yaml_item *mt__flat_find(const flat *f, const char *key);
const mt_yaml_item *mt__flat_eval_strategy(const flat *f);
bool mt__flat_is_off(const mt_yaml *v);
bool mt__flat_is_on(const mt_yaml_item *it);
bool mt__flat_is_text(const mt_yaml_item *it, const char *text);

/* The row of a setting, by "section.key". */
const mt_setting *mt__flat_setting(const char *to);
/* Sets one from a node, or from text; messages begin with the file's own key. */
mt_rc mt__flat_put(flat *f, const char *to, const mt_yaml_item *it, const mt_yaml *value, mt_err *err);
mt_rc mt__flat_put_text(flat *f, const char *to, const mt_yaml_item *it, const char *text, mt_err *err);
/* Adds a line to the banner. */
mt_rc mt__flat_notice(flat *f, const mt_yaml_item *it, const char *text, mt_err *err);
/* Fails because a key has this value. */
mt_rc mt__flat_refuse(const flat *f, const mt_yaml_item *it, const char *text, mt_err *err);

/* -- rules -- */

flat_rule mt__flat_read_stage, mt__flat_read_do_train, mt__flat_read_max_steps;
flat_rule mt__flat_read_batch, mt__flat_read_warmup, mt__flat_read_scheduler_kwargs;
flat_rule mt__flat_read_optim, mt__flat_read_flash_attn, mt__flat_read_switch;
flat_rule mt__flat_read_bf16, mt__flat_read_thinking, mt__flat_read_report_to, mt__flat_read_objective;
flat_rule mt__flat_read_strategy, mt__flat_read_eval_steps, mt__flat_read_save_steps;
flat_rule mt__flat_read_logging_steps, mt__flat_read_logging_strategy, mt__flat_read_packing;

#endif
