/* reference.c - docs/configuration.md from the table.  A test compares the committed page with this. */
#include "settings/table.h"

#include <string.h>

static const char head[] = "# Configuration\n"
                           "\n"
                           "A configuration is a YAML file with sections:\n"
                           "\n"
                           "```yaml\n"
                           "model:    { name: Qwen/Qwen2.5-7B-Instruct }\n"
                           "dataset:  { path: chat.jsonl, max_seq_len: 2048 }\n"
                           "training: { epochs: 2, batch_size: 32, lr_scheduler: cosine, warmup_ratio: 0.03 }\n"
                           "eval:     { val_size: 0.02 }\n"
                           "save:     { output_dir: runs/first }\n"
                           "```\n"
                           "\n"
                           "These are the settings that people change:\n"
                           "\n"
                           "| setting | default | when to change it |\n"
                           "| --- | --- | --- |\n";

/* The settings that people change, and why. */
static const struct {
    const char *section, *key, *when;
} common[] = {
    { "model", "name", "Always: the model to start from." },
    { "dataset", "path", "Always, unless `dataset.name` names a registered dataset: your files." },
    { "dataset", "max_seq_len",
      "Your samples are longer: `megatrain data` shows their lengths and how many are cut. Longer ones need more GPU memory." },
    { "training", "batch_size", "You have fewer than some thousand samples: 8 to 32. `auto` takes what is nearly the fastest." },
    { "training", "epochs", "Set it to 1 to 3 for a fine-tuning. Without it a run takes 100 steps, however much data there is." },
    { "training", "learning_rate",
      "Models below 1B learn faster with 2e-5 to 1e-4. If the loss jumps, divide it by three or more." },
    { "training", "lr_scheduler", "`cosine` or `linear` for more than a trial." },
    { "training", "warmup_ratio", "0.03 with such a schedule, and more if the first steps make the loss worse." },
    { "eval", "val_size", "0.02 or 200 hold samples out and report their loss. For a file of them use `eval.dataset`." },
    { "save", "save_steps", "Steps are slow, and 500 of them are more than you can lose." },
};

static const char rules[] =
    "\n"
    "`num_steps` overrides `epochs`, but a flag overrides the file, and both as flags are an error.\n"
    "\n"
    "This page is generated from the table in `src/settings/table.c`; change it there, then run\n"
    "`MT_UPDATE_DOCS=1 ctest --test-dir build -R unit.settings_output` to write it again.\n"
    "\n"
    "`megatrain train FILE.yaml` (or `--config FILE`) reads such a file.\n"
    "Every key also has a flag, and `--set section.key=value` sets any of them; the command line wins over the file, the file "
    "over the default.\n"
    "Files of the original MegaTrain are read as they are, except those for images, GRPO or several GPUs\n"
    "([example-files.md](example-files.md)).\n"
    "`train --dry-run` shows every value that is not a default and its origin, `--dry-run --verbose` every setting.\n"
    "\n"
    "- `1e-5` is a number; `true`, `yes` and `on` are the same; `null`, or nothing at all, means the default.\n"
    "- A path that begins with `~/` begins in the home directory.\n"
    "- Sizes take units: `64M`, `1.5G` (10^9 bytes) or `80Gi` (2^30 bytes).\n"
    "- A list is `[a, b]`; on the command line `a,b` will do, except for `sample_prompts`, which may have commas in them.\n"
    "- A setting may be given once on the command line; a list, several times, and each adds to it.\n"
    "- An unknown key, a key given twice, a wrong type and a value out of range stop the run with file and line.\n"
    "- Anchors, aliases and merge keys (`<<: *name`) work; top-level keys that begin with `x-` are a place to keep them.\n"
    "- On `--resume`, settings of class *data*, *model* and *state* must be as they were, *arithmetic* may change and then the "
    "bits do,\n"
    "  *place* may change if the same model and data are there, *free* may change.\n"
    "\n"
    "Defaults are the original's where it has the key, except: `model.name` has none; `model.device`, `attn_implementation` and\n"
    "`num_workers` are `auto`; `trust_remote_code` is off and without effect.\n"
    "Two things the original did without a key: it decayed norms and biases too (`decay_norms_and_biases`) and read the data in "
    "file\n"
    "order (`shuffle`).\n";

/* '|' would end a table cell. */
static void put_cell(mt_str *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|' || *text == '*') mt_str_putc(out, '\\');
        mt_str_putc(out, *text);
    }
}

static void put_default(mt_str *out, const mt_setting *row)
{
    if (row->shown_default)
        put_cell(out, row->shown_default);
    else if (*row->fallback)
        mt_str_printf(out, "`%s`", row->fallback);
    else
        mt_str_puts(out, "none");
}

static void put_row(mt_str *out, const mt_setting *row)
{
    mt_str accepts = { 0 };
    mt__setting_expected(&accepts, row);
    if (row->flag_only)
        mt_str_printf(out, "| - | `%s` | ", mt__setting_flag(row).s);
    else
        mt_str_printf(out, "| `%s` | `%s` | ", row->key, mt__setting_flag(row).s);
    put_cell(out, accepts.s ? accepts.s : "");
    mt_str_puts(out, " | ");
    put_default(out, row);
    mt_str_printf(out, " | %s | ", mt_setting_class_name(row->cls));
    put_cell(out, row->help);
    mt_str_puts(out, " |\n");
    if (accepts.failed) out->failed = true;
    mt_str_free(&accepts);
}

void mt_settings_reference(mt_str *out)
{
    mt_str_puts(out, head);
    for (size_t i = 0; i < MT_COUNT(common); i++) {
        mt_str_printf(out, "| `%s.%s` | ", common[i].section, common[i].key);
        put_default(out, mt__setting_find(common[i].section, common[i].key));
        mt_str_printf(out, " | %s |\n", common[i].when);
    }
    mt_str_puts(out, rules);
    for (size_t i = 0; i < mt__n_sections; i++) {
        const mt_section *section = &mt__sections[i];
        mt_str_printf(out, "\n## %s\n\n%s\n\n", section->name, section->help);
        mt_str_puts(out, "| key | flag | accepts | default | on resume | |\n| --- | --- | --- | --- | --- | --- |\n");
        for (size_t j = 0; j < mt__n_settings; j++)
            if (strcmp(mt__settings[j].section, section->name) == 0) put_row(out, &mt__settings[j]);
    }
}
