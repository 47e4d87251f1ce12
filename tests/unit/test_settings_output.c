/* Settings out: help, the reference page, the dry run's table, the stored YAML, and what changed since. */
#include "test.h"

#include "base/fault.h"
#include "base/file.h"
#include "settings/settings.h"
#include "settings/table.h"

#include <stdlib.h>

static mt_settings read_settings(const char *path)
{
    mt_settings s;
    mt_err err = { 0 };
    assert_ok(mt_settings_init(&s, &err));
    if (path) assert_ok(mt_settings_read(&s, path, &err));
    return s;
}

static void help_fits_80_columns(void **state)
{
    (void)state;
    mt_str s = { 0 };
    mt_settings_help(&s, true);
    assert_true(mt_str_ok(&s));
    for (const char *line = s.s; *line;) {
        size_t n = strcspn(line, "\n");
        if (n > 80 || (n && line[n - 1] == ' ')) fail_msg("%zu columns or a space at the end: %.*s", n, (int)n, line);
        line += n + 1;
    }
    static const char *const flags[] = { "--config FILE",        "--model-name NAME", "--dataset-name NAME,...",
                                         "--dataset-path PATH",  "--batch-size N",    "--max-seq-len N",
                                         "--num-steps N",        "--devices N,...",   "--set SECTION.",
                                         "--[no-]deterministic", "--resume [DIR]",    "--dashboard [PORT]" };
    for (size_t i = 0; i < MT_COUNT(flags); i++)
        if (!strstr(s.s, flags[i])) fail_msg("--help does not mention %s", flags[i]);
    mt_str_free(&s);
}

/* MT_UPDATE_DOCS=1 in the environment writes the page instead of comparing it. */
static void the_reference_page_is_up_to_date(void **state)
{
    (void)state;
    const char *path = MT_TESTS_DIR "/../docs/configuration.md";
    mt_str page = { 0 };
    mt_err err = { 0 };
    char *committed;
    mt_settings_reference(&page);
    assert_true(mt_str_ok(&page));
    if (getenv("MT_UPDATE_DOCS")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(page.s, 1, page.n, f), page.n);
        assert_int_equal(fclose(f), 0);
    }
    assert_ok(mt_file_read(&committed, NULL, path, 1 << 20, &err));
    if (strcmp(committed, page.s) != 0)
        fail_msg("docs/configuration.md is not what the table says; run this test with MT_UPDATE_DOCS=1");
    mt_free(committed);
    mt_str_free(&page);
}

static void the_reference_begins_with_a_file_that_reads(void **state)
{
    (void)state;
    mt_str page = { 0 };
    mt_settings s;
    mt_err err = { 0 };
    mt_settings_reference(&page);
    assert_true(mt_str_ok(&page));
    const char *from = strstr(page.s, "```yaml\n"), *to = from ? strstr(from + 8, "```\n") : NULL;
    assert_non_null(to);
    assert_ok(mt_settings_init(&s, &err));
    assert_ok(mt_settings_parse(&s, from + 8, (size_t)(to - from - 8), "first.yaml", &err));
    assert_ok(mt_settings_check(&s, MT_NEED_MODEL | MT_NEED_DATA, &err));
    assert_true(s.training.epochs == 2 && s.training.num_steps == 0);
    mt_settings_deinit(&s);
    mt_str_free(&page);
}

static void no_flag_is_taken_twice(void **state)
{
    (void)state;
    mt_str help = { 0 };
    mt_settings_help(&help, true);
    char *seen[256];
    size_t n = 0;
    for (char *line = strtok(help.s, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "  --", 4) != 0) continue;
        char *flag = strncmp(line, "  --[no-]", 9) == 0 ? line + 9 : line + 4;
        flag[strcspn(flag, " ")] = '\0';
        for (size_t i = 0; i < n; i++) assert_string_not_equal(seen[i], flag);
        seen[n++] = flag;
    }
    assert_true(n > 80);
    mt_str_free(&help);
}

static void rows_are_whole_and_fields_are_their_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < mt__n_settings; i++) {
        const mt_setting *a = &mt__settings[i];
        assert_int_equal(a->help[strlen(a->help) - 1], '.');
        assert_int_equal(a->choices != NULL, a->type == MT_SETTING_ENUM || a->type == MT_SETTING_DTYPE);
        assert_ptr_equal(mt__setting_find(a->section, a->key), a);
        for (size_t j = 0; j < i; j++) assert_int_not_equal(mt__settings[j].offset, a->offset);
    }
}

static void the_dry_run_says_where_each_value_came_from(void **state)
{
    (void)state;
    mt_settings s;
    mt_err err = { 0 };
    mt_str out = { 0 };
    const char *yaml = "model: {name: toy}\ntraining:\n  batch_size: 8\n";
    assert_ok(mt_settings_init(&s, &err));
    assert_ok(mt_settings_parse(&s, yaml, strlen(yaml), "c.yaml", &err));
    assert_ok(mt_settings_set(&s, "training.seed", "1", "--seed", &err));
    assert_ok(mt_settings_set(&s, "logging.dashboard", "no", "--set", &err));
    assert_ok(mt_settings_set(&s, "dataset.system_prompt",
                              "\xc3\xa4\xc3\xa4\xc3\xa4 a long text that would push the rest of the line off the screen", "--set",
                              &err));
    assert_ok(mt_settings_check(&s, MT_NEED_MODEL, &err));
    mt_settings_print(&s, true, &out);
    static const char *const lines[] = {
        "model.name                            toy                                   c.yaml:1\n",
        "training.batch_size                   8                                     c.yaml:3\n",
        "training.num_steps                    100                                   default\n",
        "training.seed                         1                                     --seed\n",
        "save.output_dir                       runs/c                                default\n",
        "training.learning_rate                1.0e-05                               default\n",
        "logging.dashboard                     off                                   --set\n",
        "\"\xc3\xa4\xc3\xa4\xc3\xa4 a long text that would push the rest of the line off th...  --set\n",
        "\n\ndataset.name ",
    };
    for (size_t i = 0; i < MT_COUNT(lines); i++)
        if (!strstr(out.s, lines[i])) fail_msg("not printed: %s in\n%s", lines[i], out.s);
    assert_null(strstr(out.s, "save.resume"));
    mt_str_free(&out);
    mt_settings_deinit(&s);
}

static void assert_same(const mt_settings *a, const mt_settings *b)
{
    mt_setting_changes changes;
    mt_err err = { 0 };
    assert_ok(mt_settings_diff(&changes, a, b, &err));
    if (changes.n) fail_msg("%s: %s became %s", changes.items[0].key, changes.items[0].was, changes.items[0].now);
    mt_setting_changes_free(&changes);
}

static void round_trip(mt_settings *s)
{
    mt_settings again;
    mt_err err = { 0 };
    mt_str first = { 0 }, second = { 0 };
    mt_settings_write_yaml(s, &first);
    assert_ok(mt_settings_init(&again, &err));
    assert_ok(mt_settings_parse(&again, first.s, first.n, "written.yaml", &err));
    assert_ok(mt_settings_check(&again, 0, &err));
    assert_same(s, &again);
    mt_settings_write_yaml(&again, &second);
    assert_string_equal(first.s, second.s);
    mt_str_free(&first);
    mt_str_free(&second);
    mt_settings_deinit(&again);
}

static void what_is_written_reads_back_equal(void **state)
{
    (void)state;
    static const char *const files[] = { NULL, MT_FIXTURE("settings/original.yaml"), MT_FIXTURE("settings/everything.yaml"),
                                         MT_FIXTURE("settings/anchors.yaml") };
    for (size_t i = 0; i < MT_COUNT(files); i++) {
        mt_err err = { 0 };
        mt_settings s = read_settings(files[i]);
        assert_ok(mt_settings_check(&s, 0, &err));
        round_trip(&s);
        mt_settings_deinit(&s);
    }
}

static void odd_texts_survive_the_round_trip(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "null",
        "~",
        "true",
        "No",
        "1e-5",
        "0x1f",
        "- a",
        "a: b",
        "a #b",
        "#a",
        "'",
        "\"",
        "\\n",
        "\n",
        "a\n",
        "\t",
        "a\r\n",
        "[a]",
        "{a",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "|",
        ">",
        "y",
        "\x01\x1f\x7f",
        "\xc2\x85\xc2\xa0",
        "\xe2\x80\xa8\xe2\x80\xa9",
        "\xef\xbb\xbf",
        "\xf0\x9f\x98\x80 \xe4\xbd\xa0",
        "<<",
        "---",
        "...",
        "a,b",
        "?",
        "::",
        "-",
        "\xef\xbf\xbe",
        "1:30",
        "2024-01-01",
        "=",
        "yes ",
        "Null",
    };
    for (size_t i = 0; i < MT_COUNT(texts); i++) {
        mt_err err = { 0 };
        mt_settings s = read_settings(NULL);
        const char *items[] = { "x", texts[i], texts[i] };
        assert_ok(mt_settings_set(&s, "dataset.system_prompt", texts[i], "--system-prompt", &err));
        s.logging.sample_prompts = (mt_strs){ items, 3 };
        mt_pair pair = { .key = texts[i],
                         .key_n = strlen(texts[i]),
                         .value = mt_value_str(&s.arena, texts[i], strlen(texts[i])) };
        s.dataset.template_kwargs = (mt_value){ .type = MT_VALUE_MAP, .map = { &pair, 1 } };
        assert_ok(mt_settings_check(&s, 0, &err));
        round_trip(&s);
        mt_settings_deinit(&s);
    }
}

static void numbers_survive_the_round_trip(void **state)
{
    (void)state;
    static const char *const numbers[] = { "0",       "1e-300", "0.1",    "0.30000000000000004",
                                           "123.456", "1e-5",   "5e-324", "999.9999999999999" };
    for (size_t i = 0; i < MT_COUNT(numbers); i++) {
        mt_err err = { 0 };
        mt_settings s = read_settings(NULL);
        assert_ok(mt_settings_set(&s, "training.learning_rate", numbers[i], "--learning-rate", &err));
        assert_true(s.training.learning_rate == strtod(numbers[i], NULL));
        assert_ok(mt_settings_check(&s, 0, &err));
        round_trip(&s);
        mt_settings_deinit(&s);
    }
    static const char *const sizes[] = { "1B",   "999B", "250K", "12.345K", "1048576",   "64M",
                                         "1.5G", "80Gi", "2T",   "1Ti",     "3000000001" };
    for (size_t i = 0; i < MT_COUNT(sizes); i++) {
        mt_err err = { 0 };
        mt_settings s = read_settings(NULL);
        assert_ok(mt_settings_set(&s, "memory.device_memory", sizes[i], "--device-memory", &err));
        assert_ok(mt_settings_check(&s, 0, &err));
        round_trip(&s);
        mt_settings_deinit(&s);
    }
}

static void changes_are_named_with_their_class(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        mt_setting_class cls;
        const char *was, *now;
    } cases[] = {
        { "training.seed", "8", MT_CLASS_DATA, "7", "8" },
        { "model.name", "other", MT_CLASS_PLACE, "Qwen/Qwen2.5-7B-Instruct", "other" },
        { "training.learning_rate", "1e-4", MT_CLASS_FREE, "2.0e-05", "0.0001" },
        { "training.num_steps", "2000", MT_CLASS_FREE, "1000", "2000" },
        { "model.dtype", "float32", MT_CLASS_ARITHMETIC, "bfloat16", "float32" },
        { "memory.device_memory", "1Gi", MT_CLASS_FREE, "auto", "1Gi" },
        { "dataset.name", "aa,bb", MT_CLASS_DATA, "[alpaca_en_demo]", "[aa, bb]" },
    };
    mt_settings was = read_settings(MT_FIXTURE("settings/original.yaml"));
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_setting_changes changes;
        mt_settings now = read_settings(MT_FIXTURE("settings/original.yaml"));
        assert_ok(mt_settings_set(&now, cases[i].key, cases[i].value, "--set", &err));
        assert_ok(mt_settings_diff(&changes, &was, &now, &err));
        assert_int_equal(changes.n, 1);
        assert_string_equal(changes.items[0].key, cases[i].key);
        assert_string_equal(mt_setting_class_name(changes.items[0].cls), mt_setting_class_name(cases[i].cls));
        assert_string_equal(changes.items[0].was, cases[i].was);
        assert_string_equal(changes.items[0].now, cases[i].now);
        mt_setting_changes_free(&changes);
        mt_settings_deinit(&now);
    }
    mt_settings_deinit(&was);
}

/* A checkpoint of an earlier version has its default: it means what the default means now, but not what a user says. */
static void a_default_that_changed_is_not_a_change(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_setting_changes changes;
    mt_settings was, now;
    assert_ok(mt_settings_init(&was, &err));
    assert_ok(mt_settings_init(&now, &err));
    assert_ok(mt_settings_set(&was, "dataset.query_field", "query", "--set", &err));
    assert_ok(mt_settings_set(&was, "dataset.response_field", "response", "--set", &err));
    assert_same(&was, &now);
    assert_ok(mt_settings_set(&now, "dataset.query_field", "question", "--set", &err));
    assert_ok(mt_settings_diff(&changes, &was, &now, &err));
    assert_int_equal(changes.n, 1);
    assert_string_equal(changes.items[0].key, "dataset.query_field");
    mt_setting_changes_free(&changes);
    mt_settings_deinit(&was);
    mt_settings_deinit(&now);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_settings a = read_settings(MT_FIXTURE("settings/original.yaml")),
                b = read_settings(MT_FIXTURE("settings/everything.yaml"));
    for (int part = 0; part < 5; part++)
        for (int n = 0;; n++) {
            mt_setting_changes changes = { 0 };
            mt_str s = { 0 };
            mt_rc rc = MT_OK;
            mt_fault_arm(MT_FAULT_ALLOC, n);
            if (part == 0) rc = mt_settings_diff(&changes, &a, &b, &err);
            if (part == 1) mt_settings_print(&b, true, &s);
            if (part == 2) mt_settings_write_yaml(&b, &s);
            if (part == 3) mt_settings_help(&s, true);
            if (part == 4) mt_settings_reference(&s);
            bool hit = mt_fault_disarm(), failed = rc == MT_ENOMEM || !mt_str_ok(&s);
            mt_setting_changes_free(&changes);
            mt_str_free(&s);
            assert_int_equal(hit, failed);
            if (!hit) break;
        }
    mt_settings_deinit(&a);
    mt_settings_deinit(&b);
}

MT_TEST_MAIN(cmocka_unit_test(help_fits_80_columns), cmocka_unit_test(the_reference_page_is_up_to_date),
             cmocka_unit_test(the_reference_begins_with_a_file_that_reads), cmocka_unit_test(no_flag_is_taken_twice),
             cmocka_unit_test(rows_are_whole_and_fields_are_their_own),
             cmocka_unit_test(the_dry_run_says_where_each_value_came_from), cmocka_unit_test(what_is_written_reads_back_equal),
             cmocka_unit_test(odd_texts_survive_the_round_trip), cmocka_unit_test(numbers_survive_the_round_trip),
             cmocka_unit_test(changes_are_named_with_their_class), cmocka_unit_test(a_default_that_changed_is_not_a_change),
             cmocka_unit_test(every_allocation_may_fail))
