/* The documents: every relative link leads to a file that is there, and every #anchor to a heading of it; the life of a step
 * names functions that exist. */
#include "test.h"

#include "base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>

#define ROOT MT_TESTS_DIR "/.."

/* A heading as GitHub names it: lower case, blanks to -, no punctuation but - and _. */
static void slug(char *out, const char *heading, size_t n)
{
    for (; n && isspace((unsigned char)heading[n - 1]); n--) {
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)heading[i];
        if (c == ' ')
            *out++ = '-';
        else if (isalnum(c) || c == '-' || c == '_' || c >= 0x80)
            *out++ = (char)tolower(c);
    }
    *out = '\0';
}

static bool has_heading(const char *text, const char *anchor)
{
    char name[512];
    bool code = false;
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        size_t level = strspn(line, "#"), n = strcspn(line, "\n");
        if (strncmp(line, "```", 3) == 0) code = !code;
        if (code || !level || line[level] != ' ' || n > 500) continue;
        slug(name, line + level + 1, n - level - 1);
        if (strcmp(name, anchor) == 0) return true;
    }
    return false;
}

/* "path#anchor" as it stands in `file` of `dir`. */
static void leads_somewhere(const char *dir, const char *file, const char *link)
{
    mt_err err = { 0 };
    char path[1024], anchor[256] = "", *text;
    size_t n = strcspn(link, "#");
    if (strstr(link, "://") || strncmp(link, "mailto:", 7) == 0) return;
    if (link[n]) snprintf(anchor, sizeof anchor, "%s", link + n + 1);
    snprintf(path, sizeof path, "%s/%.*s", dir, (int)n, link);
    if (!n) snprintf(path, sizeof path, "%s/%s", dir, file); /* in itself */
    if (!mt_file_exists(path) && !mt_dir_exists(path)) fail_msg("%s: %s leads nowhere", file, link);
    if (!*anchor) return;
    assert_ok(mt_file_read(&text, NULL, path, 1 << 22, &err));
    if (!has_heading(text, anchor)) fail_msg("%s: %s has no heading that is called so", file, link);
    mt_free(text);
}

/* What stands in `](...)` and `src="..."`, outside of code. */
static int check_links(const char *dir, const char *file)
{
    mt_err err = { 0 };
    char path[1024], link[512], *text;
    bool block = false, word = false;
    int n_links = 0;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    assert_ok(mt_file_read(&text, NULL, path, 1 << 22, &err));
    for (const char *p = text; *p; p++) {
        if (strncmp(p, "```", 3) == 0)
            block = !block, p += 2;
        else if (*p == '`' && !block)
            word = !word;
        bool to = strncmp(p, "](", 2) == 0, of = strncmp(p, "src=\"", 5) == 0;
        if (block || word || (!to && !of)) continue;
        const char *from = p + (to ? 2 : 5);
        size_t n = strcspn(from, to ? ")\n" : "\"\n");
        assert_true(from[n] == (to ? ')' : '"') && n < sizeof link);
        snprintf(link, sizeof link, "%.*s", (int)n, from);
        leads_somewhere(dir, file, link);
        n_links++;
    }
    assert_false(block);
    mt_free(text);
    return n_links;
}

static int check_folder(const char *dir)
{
    int n_links = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n > 3 && strcmp(e->d_name + n - 3, ".md") == 0) n_links += check_links(dir, e->d_name);
    }
    closedir(d);
    return n_links;
}

static void every_link_leads_somewhere(void **state)
{
    (void)state;
    assert_true(check_folder(ROOT) > 15);
    assert_true(check_folder(ROOT "/docs") > 15);
    assert_true(check_folder(ROOT "/docs/notebook") > 5);
}

static void headings_are_named_as_on_github(void **state)
{
    (void)state;
    static const char text[] = "# One\n```\n# code\n```\n## What it's `for`, in 2 words\n";
    assert_true(has_heading(text, "one"));
    assert_true(has_heading(text, "what-its-for-in-2-words"));
    assert_false(has_heading(text, "code"));
    assert_false(has_heading(text, "two"));
}

/* A page of `dir` that its README.md does not link to is a page that readers do not find. */
static void check_index(const char *dir)
{
    mt_err err = { 0 };
    char path[1024], *index;
    snprintf(path, sizeof path, "%s/README.md", dir);
    assert_ok(mt_file_read(&index, NULL, path, 1 << 22, &err));
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        bool found = strcmp(e->d_name, "README.md") == 0;
        if (n < 4 || strcmp(e->d_name + n - 3, ".md") != 0) continue;
        for (const char *p = index; !found && (p = strstr(p, e->d_name)); p++) found = p[-1] == '(' && p[n] == ')';
        if (!found) fail_msg("%s does not link to %s", path, e->d_name);
    }
    closedir(d);
    mt_free(index);
}

static void every_page_is_in_the_index(void **state)
{
    (void)state;
    check_index(ROOT "/docs");
    check_index(ROOT "/docs/notebook");
}

#define LIFE ROOT "/docs/life-of-a-step.md"

static void has_function(const char *path, const char *name)
{
    mt_err err = { 0 };
    char at[1024], sought[80], *source;
    snprintf(at, sizeof at, ROOT "/%s", path);
    snprintf(sought, sizeof sought, " %s(", name);
    assert_ok(mt_file_read(&source, NULL, at, 1 << 22, &err));
    if (!strstr(source, sought)) fail_msg(LIFE ": %s is not in %s", name, path);
    mt_free(source);
}

/* "| 3 | `mt_engine_step` | [engine/step.c](../src/engine/step.c) | ...": the file has the function. */
static void the_life_of_a_step_lists_functions_that_are_there(void **state)
{
    (void)state;
    mt_err err = { 0 };
    char *page, name[64], path[256];
    int n_rows = 0, number;
    assert_ok(mt_file_read(&page, NULL, LIFE, 1 << 22, &err));
    for (const char *line = page; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        if (sscanf(line, "| %d | `%63[a-z_0-9]` | [%*[^]]](../%255[^)])", &number, name, path) != 3) continue;
        assert_int_equal(number, ++n_rows);
        has_function(path, name);
    }
    mt_free(page);
    assert_true(n_rows >= 10);
}

/* "[mt_layer_forward](../src/model/frame.c)" and "`layer_forward` in tiny.c". */
static void the_life_of_a_step_links_functions_that_are_there(void **state)
{
    (void)state;
    mt_err err = { 0 };
    char *page, name[64], path[256];
    int n_links = 0, n_tiny = 0, end;
    assert_ok(mt_file_read(&page, NULL, LIFE, 1 << 22, &err));
    for (const char *p = page; *p; p++) {
        if (sscanf(p, "[%63[a-z_0-9]](../%255[^)])", name, path) == 2) has_function(path, name), n_links++;
        end = 0;
        if (sscanf(p, "`%63[a-z_0-9]` in tiny.c%n", name, &end) == 1 && end)
            has_function("docs/reference/tiny.c", name), n_tiny++;
    }
    mt_free(page);
    assert_true(n_links >= 8 && n_tiny >= 5);
}

MT_TEST_MAIN(cmocka_unit_test(every_link_leads_somewhere), cmocka_unit_test(headings_are_named_as_on_github),
             cmocka_unit_test(every_page_is_in_the_index), cmocka_unit_test(the_life_of_a_step_lists_functions_that_are_there),
             cmocka_unit_test(the_life_of_a_step_links_functions_that_are_there))
