/* Which files of a dataset repository make a split: as the datasets library chooses them (tests/golden/hub/make_splits.py). */
#include "test.h"

#include "base/json.h"
#include "hub/internal.h"

#include <stdlib.h>

static bool contains(const mt_value *list, const char *path)
{
    for (size_t i = 0; i < mt_value_items(list); i++)
        if (strcmp(mt_json_string(mt_value_at(list, i)), path) == 0) return true;
    return false;
}

static mt_rc choose(mt__files *f, const mt_value *row, const char *config, const char *split, mt_err *err)
{
    const mt_value *names = mt_value_get(row, "files");
    const char *readme = mt_json_string(mt_value_get(row, "readme"));
    *f = (mt__files){ 0 };
    for (size_t i = 0; i < mt_value_items(names); i++)
        assert_int_equal(mt__files_add(f, mt_json_string(mt_value_at(names, i)), 1, "", err), MT_OK);
    return mt__choose_data(f, &(mt__repo){ .name = "a/b", .dataset = true }, readme, readme ? strlen(readme) : 0, config, split,
                           "", err);
}

static void check_split(const mt_value *row, const char *config, const char *split, const mt_value *expected)
{
    mt_err err = { 0 };
    mt__files f;
    mt_str text = { 0 };
    mt_value_write_json(&text, mt_value_get(row, "files"));
    if (choose(&f, row, config, split, &err)) fail_msg("%s, %s: %s", text.s, split, err.msg);
    for (size_t i = 0; i < f.n; i++)
        if (f.items[i].wanted != contains(expected, f.items[i].path))
            fail_msg("%s: %s is %s the split %s", text.s, f.items[i].path, f.items[i].wanted ? "not part of" : "missing from",
                     split);
    mt_str_free(&text);
    mt__files_free(&f);
}

static void splits_are_made_of_the_files_the_datasets_library_takes(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *rows;
    int n = 0;
    assert_ok(mt_json_read(&rows, MT_TESTS_DIR "/golden/hub/splits.json", &err));
    for (size_t i = 0; i < mt_value_items(rows); i++) {
        const mt_value *row = mt_value_at(rows, i);
        const mt_value *configs = mt_value_get(row, "splits");
        for (size_t c = 0; c < mt_value_pairs(configs); c++) {
            const char *config = configs->map.pairs[c].key;
            const mt_value *splits = &configs->map.pairs[c].value;
            for (size_t s = 0; s < mt_value_pairs(splits); s++, n++)
                check_split(row, config, splits->map.pairs[s].key, &splits->map.pairs[s].value);
            mt__files f;
            assert_int_equal(choose(&f, row, config, "nosuch", &err), MT_ENOENT);
            assert_says("has no split \"nosuch\"");
            mt__files_free(&f);
        }
    }
    assert_true(n >= 35);
    mt_json_free(rows);
}

MT_TEST_MAIN(cmocka_unit_test(splits_are_made_of_the_files_the_datasets_library_takes))
