/* flat_rules.c - keys of LLaMA-Factory's files that need more than a row: another unit, another default, or a second key. */
#include "settings/flat_internal.h"

#include <string.h>

mt_rc mt__flat_read_stage(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    (void)r;
    if (mt__flat_is_text(it, "pt") || mt__flat_is_text(it, "sft")) return MT_OK;
    return mt__flat_refuse(f, it, "stages sft and pt are trained here; preference and reward training are not", err);
}

mt_rc mt__flat_read_do_train(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    (void)r;
    if (mt__flat_is_on(it)) return MT_OK;
    return mt__flat_refuse(f, it, "this file trains nothing; write do_train: true, or use megatrain generate to look at a model",
                           err);
}

/* max_steps: -1 means that epochs decide. */
mt_rc mt__flat_read_max_steps(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    double d;
    if (it->value->kind == MT_YAML_SCALAR && mt_yaml_number(it->value->text, &d) && d <= 0) return MT_OK;
    if (!mt__flat_find(f, "num_train_epochs")) MT_TRY(mt__setting_default(f->s, mt__flat_setting("training.epochs"), err));
    return mt__flat_put(f, r->to, it, it->value, err);
}

/* The batch is of each device.  Only the run knows how many devices there are. */
mt_rc mt__flat_read_batch(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    MT_TRY(mt__flat_put(f, r->to, it, it->value, err));
    f->s->batch_per_device = true;
    return MT_OK;
}

/* A number below 1 is a fraction of all steps. */
mt_rc mt__flat_read_warmup(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    double d;
    bool share = it->value->kind == MT_YAML_SCALAR && mt_yaml_number(it->value->text, &d) && d > 0 && d < 1;
    return mt__flat_put(f, share ? "training.warmup_ratio" : r->to, it, it->value, err);
}

mt_rc mt__flat_read_scheduler_kwargs(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    static const struct {
        const char *key, *to;
    } keys[] = {
        { "min_lr", "training.min_lr" },
        { "min_lr_rate", "training.min_lr_ratio" },
        { "min_lr_ratio", "training.min_lr_ratio" },
        { "lr_end", "training.min_lr" },
        { "num_cycles", "training.num_cycles" },
        { "power", "training.power" },
        { "timescale", "training.timescale" },
        { "num_decay_steps", "training.num_decay_steps" },
        { "num_stable_steps", "training.num_stable_steps" },
        { "warmup_type", "training.warmup_type" },
        { "decay_type", "training.decay_type" },
        { "warmup_lr_rate", "training.warmup_lr_rate" },
    };
    (void)r;
    if (it->value->kind != MT_YAML_MAP) return mt__flat_refuse(f, it, "a map was expected, such as {min_lr: 1e-6}", err);
    for (const mt_yaml_item *k = it->value->items; k; k = k->next) {
        const char *to = NULL;
        for (size_t i = 0; i < MT_COUNT(keys); i++)
            if (strcmp(keys[i].key, k->key->text) == 0) to = keys[i].to;
        if (!to)
            return mt_fail(err, MT_EINVAL, "%s:%d: lr_scheduler_kwargs has \"%.60s\", which no schedule here reads", f->name,
                           k->key->line, k->key->text);
        if (!mt_yaml_is_null(k->value)) MT_TRY(mt__flat_put(f, to, k, k->value, err));
    }
    return MT_OK;
}

mt_rc mt__flat_read_optim(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    (void)r;
    const char *name = it->value->kind == MT_YAML_SCALAR ? it->value->text : "";
    bool paged = strncmp(name, "paged_", 6) == 0, small = strstr(name, "8bit") || strstr(name, "4bit");
    const char *plain = paged ? name + 6 : name;
    bool adamw = strncmp(plain, "adamw", 5) == 0, lion = strncmp(plain, "lion_", 5) == 0;
    if (!adamw && !lion) return mt__flat_refuse(f, it, "the optimizers here are AdamW and Lion; write optim: adamw_torch", err);
    if (lion) MT_TRY(mt__flat_put_text(f, "optimizer.type", it, "lion", err));
    if (lion && !mt__flat_find(f, "adam_beta2")) /* transformers takes Adam's default */
        MT_TRY(mt__flat_put_text(f, "optimizer.beta2", it, "0.999", err));
    if (lion) return small || paged ? mt__flat_notice(f, it, "Lion with fp32 state, which lives in host memory", err) : MT_OK;
    if (small || strstr(name, "32bit") || paged)
        return mt__flat_notice(f, it, "AdamW with fp32 state, which lives in host memory", err);
    return MT_OK;
}

mt_rc mt__flat_read_flash_attn(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    static const struct {
        const char *word, *ours;
    } words[] = { { "auto", "auto" },
                  { "disabled", "eager" },
                  { "sdpa", "sdpa" },
                  { "fa2", "flash_attention_2" },
                  { "fa3", "flash_attention_2" } };
    for (size_t i = 0; i < MT_COUNT(words); i++) {
        if (!mt__flat_is_text(it, words[i].word)) continue;
        MT_TRY(mt__flat_put_text(f, r->to, it, words[i].ours, err));
        return strcmp(words[i].ours, "auto") == 0 ? MT_OK : mt__flat_notice(f, it, r->text, err);
    }
    return mt__flat_refuse(f, it, "expected auto, disabled, sdpa, fa2 or fa3", err);
}

/* A switch that, when it is on, gives one of ours the value in `text`. */
mt_rc mt__flat_read_switch(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    if (!mt__flat_is_on(it)) return MT_OK;
    MT_TRY(mt__flat_put_text(f, r->to, it, r->text, err));
    return strcmp(it->key->text, "pure_bf16") == 0 ? mt__flat_notice(f, it, "the master weights are fp32 all the same", err)
                                                   : MT_OK;
}

/* With both switches on, LLaMA-Factory takes DFT; and DFT and EAFT leave label smoothing out. */
mt_rc mt__flat_read_objective(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    if (!mt__flat_is_on(it)) return MT_OK;
    if (strcmp(r->text, "eaft") == 0 && mt__flat_is_on(mt__flat_find(f, "use_dft_loss")))
        return mt__flat_notice(f, it, "use_dft_loss counts", err);
    return mt__flat_put_text(f, r->to, it, r->text, err);
}

/* bf16: false requests float32, also for gradients, unless another key requests a 16-bit type. */
mt_rc mt__flat_read_bf16(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    bool other = mt__flat_is_on(mt__flat_find(f, "fp16")) || mt__flat_is_on(mt__flat_find(f, "pure_bf16"));
    if (!mt__flat_is_off(it->value) || other) return mt__flat_read_switch(f, r, it, err);
    MT_TRY(mt__flat_put_text(f, "training.grad_dtype", it, "float32", err));
    return mt__flat_put_text(f, r->to, it, "float32", err);
}

mt_rc mt__flat_read_thinking(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    mt_yaml key = *it->key;
    mt_yaml_item item = { .key = &key, .value = it->value };
    mt_yaml map = { .kind = MT_YAML_MAP, .line = it->value->line, .items = &item };
    return mt__flat_put(f, r->to, it, &map, err);
}

mt_rc mt__flat_read_report_to(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    const mt_yaml_item one = { .key = it->key, .value = it->value };
    bool board = false, other = false;
    for (const mt_yaml_item *k = it->value->kind == MT_YAML_LIST ? it->value->items : &one; k; k = k->next) {
        bool is_board = mt__flat_is_text(k, "tensorboard") || mt__flat_is_text(k, "all");
        board = board || is_board;
        other = other || (!is_board && !mt__flat_is_off(k->value));
    }
    if (board) MT_TRY(mt__flat_put_text(f, r->to, it, "true", err));
    return other ? mt__flat_notice(f, it, r->text, err) : MT_OK;
}

/* Reads `no`, `steps` or `epoch`; the row's `to` is the number of steps between.  `best` is refused: it is not an interval. */
mt_rc mt__flat_read_strategy(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    bool b;
    bool no = mt__flat_is_text(it, "no") ||
              (it->value->kind == MT_YAML_SCALAR && mt_yaml_bool(it->value->text, &b) && !b); /* YAML reads no as false */
    if (no) return mt__flat_put_text(f, r->to, it, "0", err);
    if (mt__flat_is_text(it, "epoch")) return mt__flat_put_text(f, r->to, it, "epoch", err);
    return mt__flat_is_text(it, "steps") ? MT_OK : mt__flat_refuse(f, it, r->text, err);
}

/* In transformers a number below 1 is a fraction of the run, whose length is not known here yet. */
static mt_rc put_steps(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    double d;
    if (it->value->kind == MT_YAML_SCALAR && mt_yaml_number(it->value->text, &d) && d > 0 && d < 1)
        return mt__flat_refuse(f, it, "a share of the run is not read here; write a number of steps, or the strategy epoch", err);
    return mt__flat_put(f, r->to, it, it->value, err);
}

/* Has an effect only with eval_strategy: steps. */
mt_rc mt__flat_read_eval_steps(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    if (mt__flat_is_text(mt__flat_eval_strategy(f), "steps")) return put_steps(f, r, it, err);
    return mt__flat_notice(f, it, "has no effect without eval_strategy: steps", err);
}

mt_rc mt__flat_read_save_steps(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    const mt_yaml_item *strategy = mt__flat_find(f, "save_strategy");
    return strategy && !mt__flat_is_text(strategy, "steps") ? MT_OK : put_steps(f, r, it, err);
}

mt_rc mt__flat_read_logging_steps(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    return mt__flat_is_text(mt__flat_find(f, "logging_strategy"), "epoch") ? MT_OK : put_steps(f, r, it, err);
}

/* There is always a metrics file, so `no` has nothing to turn off. */
mt_rc mt__flat_read_logging_strategy(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    if (mt__flat_is_text(it, "epoch")) return mt__flat_put_text(f, r->to, it, "epoch", err);
    return mt__flat_is_text(it, "steps") ? MT_OK : mt__flat_notice(f, it, r->text, err);
}

mt_rc mt__flat_read_packing(flat *f, const flat_row *r, const mt_yaml_item *it, mt_err *err)
{
    if (!mt__flat_is_on(it)) { /* packing: false counts; neat_packing: false says nothing about packing */
        const bool packing = strcmp(it->key->text, "packing") == 0;
        return packing ? mt__flat_put(f, r->to, it, it->value, err) : MT_OK;
    }
    MT_TRY(mt__flat_put_text(f, r->to, it, "true", err));
    if (mt__flat_is_on(mt__flat_find(f, "neat_packing"))) return MT_OK;
    return mt__flat_notice(f, it, "packed samples do not see each other here (LLaMA-Factory's neat_packing)", err);
}
