/* fuzz_card.c - a dataset repository: names of files, a line each, then its README after a line "---".  Which files make a split
 * is found in bounded time; only data files of the repository are wanted, and a choice of none is an error with a message. */
#include "hub/internal.h"
#include "hub/names.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
    if (!holds) abort();
}

static size_t count_wanted(const mt__files *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) n += f->items[i].wanted;
    return n;
}

static void choose(const mt__files *f, const char *readme, const char *subset, const char *split, const char *folder)
{
    mt_err err = { 0 };
    bool found;
    for (size_t i = 0; i < f->n; i++) f->items[i].wanted = false;
    mt__files copy = *f;
    mt_rc rc = mt__choose_data(&copy, &(mt__repo){ .name = "a/b", .dataset = true }, readme, strlen(readme), subset, split,
                               folder, &err);
    expect(rc ? *err.msg != '\0' : count_wanted(f) > 0);
    for (size_t i = 0; i < f->n; i++) f->items[i].wanted = false;
    expect(mt__choose_converted(&copy, subset, split, &found, &err) == MT_OK);
    expect(!found || count_wanted(f) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1 << 16) return 0;
    char *text = malloc(size + 1);
    expect(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    char *readme = strstr(text, "\n---\n");
    mt__files files = { 0 };
    if (readme) *readme++ = '\0';
    for (char *line = strtok(text, "\n"); line && files.n < 200; line = strtok(NULL, "\n"))
        if (mt__hub_safe_path(line)) expect(mt__files_add(&files, line, 1, "", NULL) == MT_OK);
    choose(&files, readme ? readme : "", "", "train", "");
    choose(&files, readme ? readme : "", "default", "test", "");
    choose(&files, readme ? readme : "", "", "train", "data");
    mt__files_free(&files);
    free(text);
    return 0;
}
