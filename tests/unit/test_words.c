/* One voice in everything a person reads: words and constructions that stay out of docs, messages and comments, and one sentence
 * per line in the docs.  The table says what to write instead, and why.  It is a short list of the habits that made earlier
 * texts hard to read, not a style guide. */
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "test.h"

#include <ctype.h>
#include <dirent.h>

static const struct {
    const char *words;         /* "goes on"; a final * is the rest of a word: "normalis*"; a final $: no word follows */
    const char *after, *next;  /* fine after these words, before those: "|there|"; NULL: never */
    const char *instead, *why; /* for the message */
} banned[] = {
    { "behind", NULL, NULL, "after", "a copy is not behind another one; it comes after it" },
    { "nobody", NULL, NULL, "no thread, nothing, unknown", "code is not a person" },
    { "somebody", NULL, NULL, "another process, the user", "name the actor" },
    { "whoever", NULL, NULL, "the reader, the caller", "name the actor" },
    { "of its own$", NULL, NULL, "its own, private, separate", "a noun phrase turned around is read twice" },
    { "of their own$", NULL, NULL, "their own, private, separate", "a noun phrase turned around is read twice" },
    { "is no", "|there|", "|longer|more|less|larger|smaller|later|earlier|faster|slower|worse|", "is not a", "plain negation" },
    { "are no", "|there|", "|longer|more|less|larger|smaller|later|earlier|faster|slower|worse|", "are not", "plain negation" },
    { "go on", NULL, NULL, "continue", "one word for one thing" },
    { "goes on", NULL, NULL, "continues", "one word for one thing" },
    { "going on", NULL, NULL, "resuming, continuing", "one word for one thing" },
    { "went on", NULL, NULL, "continued", "one word for one thing" },
    { "so many", NULL, NULL, "N, this many", "a number has a name" },
    { "lies", NULL, NULL, "is, is stored", "bytes do not lie" },
    { "lie", NULL, NULL, "are, are stored", "bytes do not lie" },
    { "told", NULL, NULL, "recognized, reported, given", "programs do not talk" },
    { "tells of", NULL, NULL, "identifies", "programs do not talk" },
    { "heed*", NULL, NULL, "respect, use", "an everyday word exists" },
    { "lest", NULL, NULL, "so that ... not", "an everyday word exists" },
    { "ought", NULL, NULL, "should", "an everyday word exists" },
    { "redo", NULL, NULL, "recompute", "the word of the field" },
    { "redone", NULL, NULL, "recomputed", "the word of the field" },
    { "redoes", NULL, NULL, "recomputes", "the word of the field" },
    { "updated through", NULL, NULL, "staged", "places have six words: home, resident, update site, slot, write-back, lock" },
    { "lives there", NULL, NULL, "has its home there", "places have six words" },
    { "live there", NULL, NULL, "have their home there", "places have six words" },
    { "lives on the device", NULL, NULL, "has its home on the device", "places have six words" },
    { "colour*", NULL, NULL, "color", "American English" },
    { "behaviour*", NULL, NULL, "behavior", "American English" },
    { "normalis*", NULL, NULL, "normalize", "American English" },
    { "initialis*", NULL, NULL, "initialize", "American English" },
    { "quantis*", NULL, NULL, "quantize", "American English" },
    { "neighbour*", NULL, NULL, "neighbor", "American English" },
    { "honour*", NULL, NULL, "respect", "American English" },
};

/* -- matching -------------------------------------------------------------------------------------- */

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '\''; }

/* "|word|" is in list, the word being text[from, to). */
static bool listed(const char *list, const char *text, size_t from, size_t to)
{
    char key[64];
    if (!list || to - from + 3 > sizeof key) return false;
    snprintf(key, sizeof key, "|%.*s|", (int)(to - from), text + from);
    return strstr(list, key);
}

static bool excused(size_t entry, const char *text, size_t at, size_t end)
{
    size_t from = at, to = end;
    while (from && !is_word(text[from - 1])) from--;
    size_t first = from;
    while (first && is_word(text[first - 1])) first--;
    while (text[to] && !is_word(text[to])) to++;
    size_t last = to;
    while (is_word(text[last])) last++;
    return listed(banned[entry].after, text, first, from) || listed(banned[entry].next, text, to, last);
}

/* Where an entry is in lower-case text whose white space is single blanks; NULL: nowhere. */
static const char *find_entry(size_t entry, const char *text)
{
    const char *words = banned[entry].words;
    size_t n = strlen(words);
    const char end = words[n - 1] == '*' || words[n - 1] == '$' ? words[n - 1] : 0;
    size_t whole = end ? n - 1 : n;
    for (const char *at = text; (at = strchr(at, words[0])); at++) {
        if (strncmp(at, words, whole) != 0 || (at > text && is_word(at[-1]))) continue;
        if (end != '*' && is_word(at[whole])) continue;
        if (end == '$' && at[whole] == ' ' && is_word(at[whole + 1])) continue;
        if (!excused(entry, text, (size_t)(at - text), (size_t)(at - text) + whole)) return at;
    }
    return NULL;
}

/* -- what is read ---------------------------------------------------------------------------------- */

static void put(mt_str *s, char c)
{
    if (isspace((unsigned char)c)) c = ' ';
    if (c == ' ' && s->n && s->s[s->n - 1] == ' ') return;
    mt_str_add(s, (char[]){ (char)tolower((unsigned char)c) }, 1);
}

/* The prose of a source: its comments and, unless they are a test's data, its strings. */
static const char *put_source(mt_str *s, const char *at, bool strings)
{
    if (at[0] == '/' && at[1] == '*') {
        for (at += 2; at[0] && !(at[0] == '*' && at[1] == '/'); at++)
            if (!(at[0] == '*' && at[-1] != '*' && isspace((unsigned char)at[-1]))) put(s, *at);
        put(s, '.'); /* the next text is another sentence */
        return *at ? at + 2 : at;
    }
    if (at[0] == '/' && at[1] == '/') {
        for (; *at && *at != '\n'; at++) put(s, *at);
        return at;
    }
    if (at[0] == '"') {
        for (at++; *at && *at != '"' && *at != '\n'; at++) {
            if (*at == '\\' && at[1]) at++;
            if (strings) put(s, *at == 'n' && at[-1] == '\\' ? ' ' : *at);
        }
        return *at ? at + 1 : at;
    }
    if (at[0] == '\'' && at[1] == '"') return at + 2;
    if (at[0] == '\'' && at[1] == '\\' && at[2]) return at + 3;
    if (*at == ';' || *at == '{') put(s, '.');
    return at + 1;
}

/* The prose of a page: without code in backquotes and fences, and without indented code. */
static void put_page(mt_str *s, const char *at)
{
    bool fenced = false;
    while (*at) {
        size_t n = strcspn(at, "\n");
        bool fence = strncmp(at, "```", 3) == 0, code = fenced || fence || strncmp(at, "    ", 4) == 0;
        fenced ^= fence;
        for (size_t i = 0; i < n && !code; i++) {
            if (at[i] == '`')
                for (i++; i < n && at[i] != '`';) i++;
            else
                put(s, at[i]);
        }
        put(s, ' ');
        at += n + (at[n] == '\n');
    }
}

static char *prose_of(const char *path)
{
    mt_err err = { 0 };
    mt_str s = { 0 };
    char *text;
    size_t n;
    assert_ok(mt_file_read(&text, &n, path, 1 << 24, &err));
    if (strstr(path, ".md"))
        put_page(&s, text);
    else
        for (const char *at = text; *at;) at = put_source(&s, at, !strstr(path, "/../tests/"));
    mt_free(text);
    mt_str_puts(&s, "");
    assert_true(mt_str_ok(&s));
    return s.s;
}

static int check_words(const char *path)
{
    int bad = 0;
    char *text = prose_of(path);
    for (size_t i = 0; text && i < MT_COUNT(banned); i++)
        for (const char *at = text; (at = find_entry(i, at)); at++, bad++)
            print_error("%s: \"%.50s\": write %s (%s)\n", path + strlen(MT_TESTS_DIR "/../"), at, banned[i].instead,
                        banned[i].why);
    mt_free(text);
    return bad;
}

/* -- one sentence per line ------------------------------------------------------------------------- */

/* Where a second sentence begins in a line of a page; NULL: nowhere.  Abbreviations are not followed by capitals here. */
static const char *second_sentence(const char *line, size_t n)
{
    bool quoted = false;
    for (size_t i = 0; i + 3 < n; i++) {
        quoted ^= line[i] == '`';
        bool ends =
            (line[i] == '.' || line[i] == '?') && i && (islower((unsigned char)line[i - 1]) || strchr(")`\"", line[i - 1]));
        if (!quoted && ends && line[i + 1] == ' ' && isupper((unsigned char)line[i + 2])) return line + i + 2;
    }
    return NULL;
}

static int check_sentences(const char *path)
{
    mt_err err = { 0 };
    int bad = 0, number = 0;
    char *text;
    size_t size;
    if (!strstr(path, ".md")) return 0;
    assert_ok(mt_file_read(&text, &size, path, 1 << 24, &err));
    bool fenced = false;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        number++;
        bool fence = strncmp(at, "```", 3) == 0;
        fenced ^= fence;
        bool prose = !fenced && !fence && *at != '|' && *at != '#' && strncmp(at, "    ", 4) != 0;
        if (prose && second_sentence(at, n)) {
            print_error("%s:%d: a second sentence begins at \"%.40s\"\n", path + strlen(MT_TESTS_DIR "/../"), number,
                        second_sentence(at, n));
            bad++;
        }
        at += n + (at[n] == '\n');
    }
    mt_free(text);
    return bad;
}

/* -- all of it ------------------------------------------------------------------------------------- */

static const char *const folders[] = { "",
                                       "docs",
                                       "docs/notebook",
                                       "docs/reference",
                                       "include",
                                       "examples",
                                       "bench",
                                       "src/api",
                                       "src/base",
                                       "src/ckpt",
                                       "src/cli",
                                       "src/comm",
                                       "src/data",
                                       "src/device",
                                       "src/engine",
                                       "src/hub",
                                       "src/jinja",
                                       "src/model",
                                       "src/ops",
                                       "src/optim",
                                       "src/page",
                                       "src/plan",
                                       "src/run",
                                       "src/settings",
                                       "src/tokenizer",
                                       "tests/cli",
                                       "tests/cost",
                                       "tests/cudnn",
                                       "tests/equiv",
                                       "tests/fuzz",
                                       "tests/golden",
                                       "tests/ops",
                                       "tests/support",
                                       "tests/unit" };

static int check_all(int (*check)(const char *path), int *n_files)
{
    int bad = 0;
    *n_files = 0;
    for (size_t i = 0; i < MT_COUNT(folders); i++) {
        char path[1024];
        snprintf(path, sizeof path, MT_TESTS_DIR "/../%s", folders[i]);
        DIR *d = opendir(path);
        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));) {
            const char *dot = strrchr(e->d_name, '.');
            if (!dot || !strstr(".md.c.h.cu.cuh.", dot) || strcmp(dot, ".") == 0 || strcmp(e->d_name, "test_words.c") == 0)
                continue;
            snprintf(path, sizeof path, MT_TESTS_DIR "/../%s%s%s", folders[i], *folders[i] ? "/" : "", e->d_name);
            bad += check(path);
            ++*n_files;
        }
        closedir(d);
    }
    return bad;
}

static void docs_messages_and_comments_avoid_the_list(void **state)
{
    (void)state;
    int n_files, bad = check_all(check_words, &n_files);
    assert_true(n_files > 300);
    assert_int_equal(bad, 0);
}

static void the_docs_have_one_sentence_per_line(void **state)
{
    (void)state;
    int n_files;
    assert_int_equal(check_all(check_sentences, &n_files), 0);
}

/* -- the check itself ------------------------------------------------------------------------------ */

static bool finds(const char *words, const char *text)
{
    for (size_t i = 0; i < MT_COUNT(banned); i++)
        if (strcmp(banned[i].words, words) == 0) return find_entry(i, text);
    fail_msg("%s is not in the list", words);
    return false;
}

static void the_check_finds_words_and_excuses_the_rest(void **state)
{
    (void)state;
    for (size_t i = 0; i < MT_COUNT(banned); i++) {
        char text[128];
        snprintf(text, sizeof text, "it %s.", banned[i].words);
        text[strcspn(text, "*$")] = '.';
        assert_true(find_entry(i, text));
        snprintf(text, sizeof text, "itx%s", banned[i].words);
        text[strcspn(text, "*$")] = '.';
        assert_false(find_entry(i, text));
    }
    assert_true(finds("is no", "that is no date"));
    assert_false(finds("is no", "there is no date"));
    assert_false(finds("is no", "it is no longer so"));
    assert_true(finds("normalis*", "normalised rows"));
    assert_false(finds("of its own$", "a task of its own queue"));
    assert_false(finds("lie", "we believe it"));
    mt_str s = { 0 };
    for (const char *at = "int behind = 1; /* so\n * many of\n * them */ puts(\"goes\"\n\"on \\\"x\");"; *at;)
        at = put_source(&s, at, true);
    mt_str_puts(&s, "");
    assert_false(finds("behind", s.s));
    assert_true(finds("so many", s.s));
    mt_str_free(&s);
    put_page(&s, "a `lie` here\n```\nbehind\n```\n    heed\nis no\nthing\n");
    assert_false(finds("lie", s.s) || finds("behind", s.s) || finds("heed*", s.s));
    assert_true(finds("is no", s.s));
    mt_str_free(&s);
    assert_non_null(second_sentence("One is here. Two is not.", 24));
    assert_null(second_sentence("One is `here. Two` and 1.2.", 27));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(docs_messages_and_comments_avoid_the_list),
                                        cmocka_unit_test(the_docs_have_one_sentence_per_line),
                                        cmocka_unit_test(the_check_finds_words_and_excuses_the_rest) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
