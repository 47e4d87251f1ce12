#include "cli/flags.h"

#include "base/mem.h"
#include "base/nearest.h"
#include "base/units.h"
#include "settings/settings.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options of every command. */
static const char common[] = "  --quiet                  only results, warnings and errors\n"
                             "  --verbose                more details\n"
                             "  --help                   this text\n";

static void print_help(const mt_usage *u, bool all)
{
    printf("usage: megatrain %s %s\n\n%s\n", u->command, u->synopsis, u->text);
    printf("\noptions:\n");
    for (size_t i = 0; i < u->n_flags; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", u->flags[i].name, u->flags[i].value ? u->flags[i].value : "");
        printf("  %-24s %s\n", left, u->flags[i].help);
    }
    fputs(common, stdout);
    if (!u->more) return;
    if (all)
        u->more();
    else
        printf("  --help-all               and every setting of `train`\n");
}

static const mt_flag *flags_find(const mt_usage *u, const char *name, size_t n)
{
    for (size_t i = 0; i < u->n_flags; i++)
        if (strlen(u->flags[i].name) == n && memcmp(u->flags[i].name, name, n) == 0) return &u->flags[i];
    return NULL;
}

static mt_rc unknown(const mt_usage *u, const char *word, mt_err *err)
{
    mt_nearest near = { .word = word };
    for (size_t i = 0; i < u->n_flags; i++) mt_nearest_offer(&near, u->flags[i].name);
    if (near.best[0]) return mt_fail(err, MT_EINVAL, "%s: no option %s; did you mean %s?", u->command, word, near.best);
    return mt_fail(err, MT_EINVAL, "%s: no option %s; see megatrain %s --help", u->command, word, u->command);
}

static mt_rc add_str(const mt_flag *f, const char *text, mt_err *err)
{
    mt_flag_strs *list = f->to;
    if (list->n == MT_FLAG_STRS_MAX) return mt_fail(err, MT_ERANGE, "%s was given more than %d times", f->name, MT_FLAG_STRS_MAX);
    list->items[list->n++] = text;
    return MT_OK;
}

/* A limit at which sums and products of a few values still fit. */
#define MOST_INT (1LL << 53)
enum { MOST_CORES = 4096 };

static mt_rc store_int(const mt_usage *u, const mt_flag *f, const char *text, long long least, long long most, mt_err *err)
{
    char *end;
    long long x = strtoll(text, &end, 10); /* an out-of-range number is returned as the nearest valid one */
    if (end == text || *end)
        return mt_fail(err, MT_EINVAL, "%s: %s expects a whole number, not \"%s\"", u->command, f->name, text);
    if (x > most) return mt_fail(err, MT_EINVAL, "%s: %s %s is out of range: at most %lld", u->command, f->name, text, most);
    if (x < least) return mt_fail(err, MT_EINVAL, "%s: %s %s is out of range: at least %lld", u->command, f->name, text, least);
    *(int64_t *)f->to = x;
    return MT_OK;
}

static mt_rc store(const mt_usage *u, const mt_flag *f, const char *text, mt_err *err)
{
    char *end;
    switch (f->type) {
    case MT_FLAG_BOOL: *(bool *)f->to = true; return MT_OK;
    case MT_FLAG_STR: *(const char **)f->to = text; return MT_OK;
    case MT_FLAG_STRS: return add_str(f, text, err);
    case MT_FLAG_FLOAT:
        *(double *)f->to = strtod(text, &end);
        if (end == text || *end) return mt_fail(err, MT_EINVAL, "%s: %s expects a number, not \"%s\"", u->command, f->name, text);
        return MT_OK;
    case MT_FLAG_BYTES: return mt_bytes_parse(text, f->to, err) ? mt_note(err, "%s", f->name) : MT_OK;
    case MT_FLAG_MEMORY: return mt_memory_parse(text, f->to, err) ? mt_note(err, "%s", f->name) : MT_OK;
    case MT_FLAG_INT: return store_int(u, f, text, -MOST_INT, MOST_INT, err);
    case MT_FLAG_CORES: return store_int(u, f, text, 1, MOST_CORES, err);
    }
    return MT_OK;
}

/* One option at argv[*i]; its value may follow an = or be the next word.  given[flag]: its value so far, NULL: none. */
static mt_rc take_option(const mt_usage *u, int argc, char **argv, int *i, const char **given, mt_err *err)
{
    const char *word = argv[*i], *eq = strchr(word, '='), *value = NULL;
    const mt_flag *f = flags_find(u, word, eq ? (size_t)(eq - word) : strlen(word));
    if (!f) return unknown(u, word, err);
    if (f->type != MT_FLAG_BOOL) {
        if (eq)
            value = eq + 1;
        else if (*i + 1 < argc)
            value = argv[++*i];
        if (!value) return mt_fail(err, MT_EINVAL, "%s: %s needs a value (%s)", u->command, f->name, f->value);
    } else if (eq)
        return mt_fail(err, MT_EINVAL, "%s: %s takes no value", u->command, f->name);
    const char **before = &given[f - u->flags];
    if (value && f->type != MT_FLAG_STRS && *before && strcmp(*before, value) != 0)
        return mt_fail(err, MT_EINVAL, "%s: %s is given twice, as %s and as %s; give it once", u->command, f->name, *before,
                       value);
    *before = value;
    return store(u, f, value, err);
}

static mt_rc check_required(const mt_usage *u, int argc, char **argv, mt_err *err)
{
    for (size_t i = 0; i < u->n_flags; i++) {
        bool given = !u->flags[i].required;
        for (int k = 1; k < argc && !given; k++) given = strncmp(argv[k], u->flags[i].name, strlen(u->flags[i].name)) == 0;
        if (!given)
            return mt_fail(err, MT_EINVAL, "%s: %s %s is needed; see megatrain %s --help", u->command, u->flags[i].name,
                           u->flags[i].value, u->command);
    }
    return MT_OK;
}

/* A copy of the i-th name; "" past the last. */
static mt_short_text positional_name(const mt_usage *u, int i)
{
    mt_short_text t = { "" };
    const char *at = u->positional ? u->positional : "";
    for (; i > 0 && at; i--) at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL;
    if (at) snprintf(t.s, sizeof t.s, "%.*s", (int)strcspn(at, " "), at);
    return t;
}

void mt_print_settings(void)
{
    mt_str s = { 0 };
    mt_settings_help(&s, true);
    printf("\n%s", s.s ? s.s : "");
    mt_str_free(&s);
}

mt_rc mt_misused(mt_rc rc, mt_err *err)
{
    if (rc && rc != MT_ENOMEM) rc = err->rc = MT_EINVAL;
    return rc;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "--help-all") == 0;
}

static mt_rc extra_word(const mt_usage *u, const char *word, mt_err *err)
{
    if (u->more == mt_print_settings) /* it takes what `train` takes: a configuration file was taken already */
        return mt_fail(
            err, MT_EINVAL,
            "%s: \"%s\" is not a .yaml or .yml file; write megatrain %s FILE.yaml, or give the model as --model-name and "
            "the data as --dataset-path (several files with a comma between them)",
            u->command, word, u->command);
    return mt_fail(err, MT_EINVAL, "%s: \"%s\" is an extra argument; see megatrain %s --help", u->command, word, u->command);
}

static mt_rc flags_parse(const mt_usage *u, int argc, char **argv, const char **positional, bool *help, mt_err *err)
{
    enum { MOST_FLAGS = 64 };
    const char *given[MOST_FLAGS] = { 0 };
    int found = 0;
    *help = false;
    assert(u->n_flags <= MOST_FLAGS);
    for (int i = 1; i < argc; i++) {
        if (asks_for_help(argv[i])) {
            print_help(u, strcmp(argv[i], "--help-all") == 0);
            *help = true;
            return MT_OK;
        }
        if (argv[i][0] == '-' && argv[i][1])
            MT_TRY(take_option(u, argc, argv, &i, given, err));
        else if (!positional_name(u, found).s[0] && flags_find(u, "...", 3))
            MT_TRY(add_str(flags_find(u, "...", 3), argv[i], err));
        else if (!positional_name(u, found).s[0])
            return extra_word(u, argv[i], err);
        else
            positional[found++] = argv[i];
    }
    mt_short_text missing = positional_name(u, found);
    if (missing.s[0])
        return mt_fail(err, MT_EINVAL, "%s: %s is missing; see megatrain %s --help", u->command, missing.s, u->command);
    return check_required(u, argc, argv, err);
}

mt_rc mt_flags_parse(const mt_usage *u, int argc, char **argv, const char **positional, bool *help, mt_err *err)
{
    return mt_misused(flags_parse(u, argc, argv, positional, help, err), err);
}
