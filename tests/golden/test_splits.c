/* Which files of a dataset repository make a split: as the datasets library chooses them (tests/golden/hub/make_splits.py). */
#include "test.h"

#include "base/json.h"
#include "hub/internal.h"

#include <stdlib.h>

static bool contains(const json_t *list, const char *path)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), path) == 0) return true;
    return false;
}

static mt_rc choose(mt__files *f, const json_t *row, const char *config, const char *split, mt_err *err)
{
    const json_t *names = json_object_get(row, "files");
    const char *readme = json_string_value(json_object_get(row, "readme"));
    *f = (mt__files){ 0 };
    for (size_t i = 0; i < json_array_size(names); i++)
        assert_int_equal(mt__files_add(f, json_string_value(json_array_get(names, i)), 1, "", err), MT_OK);
    return mt__choose_data(f, &(mt__repo){ .name = "a/b", .dataset = true }, readme, readme ? strlen(readme) : 0, config, split,
                           "", err);
}

static void check_split(const json_t *row, const char *config, const char *split, const json_t *expected)
{
    mt_err err = { 0 };
    mt__files f;
    char *text = json_dumps(json_object_get(row, "files"), 0);
    if (choose(&f, row, config, split, &err)) fail_msg("%s, %s: %s", text, split, err.msg);
    for (size_t i = 0; i < f.n; i++)
        if (f.items[i].wanted != contains(expected, f.items[i].path))
            fail_msg("%s: %s is %s the split %s", text, f.items[i].path, f.items[i].wanted ? "no part of" : "missing from",
                     split);
    free(text);
    mt__files_free(&f);
}

static void splits_are_made_of_the_files_the_datasets_library_takes(void **state)
{
    (void)state;
    mt_err err = { 0 };
    json_t *rows, *splits, *files;
    const char *config, *split;
    int n = 0;
    assert_ok(mt_json_read(&rows, MT_TESTS_DIR "/golden/hub/splits.json", &err));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        json_object_foreach(json_object_get(row, "splits"), config, splits)
        {
            json_object_foreach(splits, split, files) check_split(row, config, split, files), n++;
            mt__files f;
            assert_int_equal(choose(&f, row, config, "nosuch", &err), MT_ENOENT);
            assert_says("has no split \"nosuch\"");
            mt__files_free(&f);
        }
    }
    assert_true(n >= 35);
    json_decref(rows);
}

MT_TEST_MAIN(cmocka_unit_test(splits_are_made_of_the_files_the_datasets_library_takes))
