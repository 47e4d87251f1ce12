/* The example files of MegaTrain and LLaMA-Factory, by their keys and values (tests/golden/settings/examples.txt): what becomes
 * of each is docs/example-files.md, word for word.  MT_UPDATE_DOCS=1 writes that page anew. */
#include "test.h"

#include "base/file.h"
#include "base/str.h"
#include "model/config.h"
#include "model/family.h"
#include "settings/settings.h"

#include <stdlib.h>

#define EXAMPLES MT_TESTS_DIR "/golden/settings/examples.txt"
#define PAGE     MT_TESTS_DIR "/../docs/example-files.md"

static const char intro[] =
    "# Example files of MegaTrain and LLaMA-Factory\n"
    "<!-- Made by unit.example_files from tests/golden/settings/examples.txt: MT_UPDATE_DOCS=1 writes it. -->\n"
    "\n"
    "The result of `megatrain train FILE.yaml` for the example files of both projects.\n"
    "*Settings*: the resolved settings that differ from megatrain's defaults, or the refusal, word for word (without file and "
    "line).\n"
    "*Model*: the family that `config.json` names, or its refusal.\n"
    "A run needs both, and a dataset without images or preferences.\n";

typedef struct example {
    const char *project, *file, *config;
    char *yaml; /* the rest of its lines */
} example;

/* The line at *at, ended; moves on. */
static char *take_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (end) *end = '\0';
    *at = end ? end + 1 : line + strlen(line);
    return line;
}

/* "=== PROJECT: FILE", "config.json: {...}", lines of YAML; *at is at the next one's. */
static bool take(char **at, example *e)
{
    if (!**at) return false;
    char *name = take_line(at), *config = take_line(at), *colon = strchr(name, ':');
    assert_true(strncmp(name, "=== ", 4) == 0 && colon && strncmp(config, "config.json: ", 13) == 0);
    *colon = '\0';
    *e = (example){ .project = name + 4, .file = colon + 2, .config = config + 13, .yaml = *at };
    char *next = strstr(*at, "\n=== ");
    if (next) *next = '\0';
    *at = next ? next + 1 : *at + strlen(*at);
    return true;
}

/* -- a row ----------------------------------------------------------------------------------------- */

/* Without "FILE:12: ", and a row is a line. */
static void put_message(mt_str *out, const char *message, const char *file)
{
    size_t n = strlen(file);
    for (const char *p = message; *p; p++) {
        size_t digits = strncmp(p, file, n) == 0 && p[n] == ':' ? strspn(p + n + 1, "0123456789") : 0;
        if (digits && p[n + 1 + digits] == ':') {
            p += n + 2 + digits; /* to the blank after it */
        } else if (strncmp(p, file, n) == 0 && strncmp(p + n, ": ", 2) == 0) {
            p += n + 1;
        } else if (*p == '\n') {
            mt_str_puts(out, "<br>");
            while (p[1] == ' ') p++;
        } else if (*p == '|') {
            mt_str_puts(out, "\\|");
        } else {
            mt_str_putc(out, *p);
        }
    }
}

/* "key    value    source" in columns two blanks apart becomes "`key` value". */
static void put_settings(mt_str *out, const mt_settings *s)
{
    mt_str all = { 0 };
    mt_settings_print(s, false, &all);
    size_t n = 0;
    for (char *at = all.s; at && *at;) {
        char *line = take_line(&at);
        if (!*line) continue;
        size_t key = strcspn(line, " ");
        char *value = line + key + strspn(line + key, " "), *end = strstr(value, "  ");
        if (end) *end = '\0';
        mt_str_printf(out, "%s`%.*s` %s", n++ ? ", " : "", (int)key, line, value);
    }
    mt_str_free(&all);
}

static bool put_row_settings(mt_str *out, const example *e)
{
    mt_err err = { 0 };
    mt_settings s;
    const char *file = mt_path_base(e->file);
    assert_ok(mt_settings_init(&s, &err));
    mt_rc rc = mt_settings_parse(&s, e->yaml, strlen(e->yaml), file, &err);
    if (!rc) rc = mt_settings_check(&s, MT_NEED_MODEL | MT_NEED_DATA, &err);
    mt_str_puts(out, rc ? "**refused**: " : "");
    if (rc)
        put_message(out, err.msg, file);
    else
        put_settings(out, &s);
    mt_settings_deinit(&s);
    return !rc;
}

/* A config.json of nothing but a type is one of a family we know, and so is one that reads; all others are refused. */
static bool put_row_model(mt_str *out, const example *e)
{
    mt_err err = { 0 };
    mt_config *c;
    char type[64] = "";
    sscanf(e->config, "{\"model_type\": \"%63[^\"]\"", type);
    const mt_family *family = mt_family_by_model_type(type);
    if (family && (family->experts || !strchr(e->config, ','))) {
        mt_str_puts(out, family->name);
        return true;
    }
    mt_rc rc = mt_config_parse(&c, e->config, strlen(e->config), "config.json", &err);
    if (!rc) {
        mt_str_puts(out, c->family->name);
        mt_config_close(c);
        return true;
    }
    assert_int_equal(rc, MT_EUNSUPPORTED);
    mt_str_puts(out, "**refused**: ");
    put_message(out, err.msg, "config.json");
    return false;
}

static void put_page(mt_str *out, char *examples)
{
    const char *project = "";
    int n = 0, n_settings = 0, n_both = 0;
    mt_str rows = { 0 };
    mt_str_puts(out, intro);
    example e;
    for (bool more = take(&examples, &e); more;) {
        if (strcmp(project, e.project) != 0) {
            project = e.project;
            n = n_settings = n_both = 0;
        }
        mt_str_printf(&rows, "| `%s` | ", e.file);
        bool settings = put_row_settings(&rows, &e);
        mt_str_puts(&rows, " | ");
        bool model = put_row_model(&rows, &e);
        mt_str_puts(&rows, " |\n");
        n++, n_settings += settings, n_both += settings && model;
        more = take(&examples, &e);
        if (more && strcmp(project, e.project) == 0) continue;
        mt_str_printf(out, "\n## %s\nOf %d files the settings of %d are read; %d of those name a model that is trained here.\n\n",
                      project, n, n_settings, n_both);
        mt_str_printf(out, "| file | settings | model |\n| --- | --- | --- |\n%s", rows.s);
        mt_str_clear(&rows);
    }
    mt_str_free(&rows);
}

static void the_page_says_what_becomes_of_each(void **state)
{
    (void)state;
    mt_err err = { 0 };
    char *examples, *page = NULL;
    mt_str made = { 0 };
    assert_ok(mt_file_read(&examples, NULL, EXAMPLES, 1 << 20, &err));
    put_page(&made, examples);
    assert_true(mt_str_ok(&made));
    const char *update = getenv("MT_UPDATE_DOCS");
    if (update && strcmp(update, "1") == 0) {
        FILE *f = fopen(PAGE, "w");
        assert_non_null(f);
        fputs(made.s, f);
        assert_int_equal(fclose(f), 0);
    }
    assert_ok(mt_file_read(&page, NULL, PAGE, 1 << 20, &err));
    if (strcmp(page, made.s) != 0) {
        size_t i = 0;
        while (page[i] && page[i] == made.s[i]) i++;
        fail_msg("docs/example-files.md is not what the files resolve to; run this test with MT_UPDATE_DOCS=1.  It has %.120s "
                 "and not %.120s",
                 page + i, made.s + i);
    }
    mt_free(page);
    mt_free(examples);
    mt_str_free(&made);
}

MT_TEST_MAIN(cmocka_unit_test(the_page_says_what_becomes_of_each))
