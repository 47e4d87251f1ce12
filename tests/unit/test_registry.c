/* dataset_info.json: what its entries mean, and what they are refused for. */
#include "tempdir.h"

#include "base/log.h"
#include "data/registry.h"

#include <sys/stat.h>

static mt_registry *parse(const char *text, const char *dir)
{
    mt_err err = { 0 };
    mt_registry *r;
    assert_ok(mt_registry_parse(&r, text, strlen(text), dir, &err));
    return r;
}

/* The entry "x" of a registry with this object, found or refused with `says`. */
static void expect_refusal(const char *dir, const char *object, mt_rc rc, const char *says)
{
    char text[512];
    mt_err err = { 0 };
    mt_dataset_entry e;
    snprintf(text, sizeof text, "{\"x\": %s}", object);
    mt_registry *r = parse(text, dir);
    assert_int_equal(mt_registry_find(r, "x", &e, &err), rc);
    assert_says(says);
    mt_registry_close(r);
}

static void columns_not_named_are_unset_and_tags_keep_their_defaults(void **state)
{
    const char *dir = *state;
    mt_err err = { 0 };
    mt_dataset_entry e;
    tempdir_write(dir, "a.json", "[]");
    mt_registry *r =
        parse("{\"plain\": {\"file_name\": \"a.json\"},"
              " \"named\": {\"file_name\": \"a.json\", \"columns\": {\"prompt\": \"q\", \"response\": \"a\"}, \"num_samples\": "
              "5, \"split\": \"test\", \"subset\": \"en\"},"
              " \"chat\": {\"file_name\": \"*.json\", \"formatting\": \"sharegpt\", \"tags\": {\"user_tag\": \"user\"}},"
              " \"open\": {\"file_name\": \"a.json\", \"formatting\": \"openai\"},"
              " \"text\": {\"file_name\": \"a.json\", \"columns\": {\"prompt\": \"body\"}}}",
              dir);
    assert_ok(mt_registry_find(r, "plain", &e, &err));
    assert_string_equal(e.layout.prompt, "instruction");
    assert_string_equal(e.layout.query, "input");
    assert_string_equal(e.layout.system, "system");
    assert_null(e.layout.tools);
    assert_ok(mt_registry_find(r, "named", &e, &err));
    assert_string_equal(e.layout.prompt, "q");
    assert_null(e.layout.query);
    assert_null(e.layout.system);
    assert_int_equal(e.num_samples, 5);
    assert_string_equal(e.split, "test");
    assert_string_equal(e.subset, "en");
    assert_ok(mt_registry_find(r, "chat", &e, &err));
    assert_string_equal(e.layout.messages, "conversations");
    assert_string_equal(e.layout.role_tag, "from");
    assert_string_equal(e.layout.user_tag, "user");
    assert_string_equal(e.layout.assistant_tag, "gpt");
    assert_ok(mt_registry_find(r, "open", &e, &err));
    assert_string_equal(e.layout.role_tag, "role");
    assert_string_equal(e.layout.observation_tag, "tool");
    assert_ok(mt_registry_find(r, "text", &e, &err));
    assert_true(e.layout.text_only);
    assert_string_equal(e.layout.text, "body");
    assert_int_equal(mt_registry_count(r), 5);
    assert_string_equal(mt_registry_name(r, 2), "chat");
    mt_registry_close(r);
}

static void what_cannot_be_trained_on_is_refused_with_the_reason(void **state)
{
    const char *dir = *state;
    expect_refusal(dir, "{\"file_name\": \"a.json\", \"ranking\": true}", MT_EUNSUPPORTED, "preference pairs");
    expect_refusal(dir, "{\"file_name\": \"a.json\", \"columns\": {\"prompt\": \"q\", \"images\": \"images\"}}", MT_EUNSUPPORTED,
                   "images are not trained on yet");
    expect_refusal(dir, "{\"file_name\": \"a.json\", \"columns\": {\"prompt\": \"q\", \"kto_tag\": \"k\"}}", MT_EUNSUPPORTED,
                   "preference labels");
    expect_refusal(dir, "{\"cloud_file_name\": \"s3://x\"}", MT_EUNSUPPORTED, "copy it here");
    expect_refusal(dir, "{\"script_url\": \"x\"}", MT_EUNSUPPORTED, "no code from a dataset ever runs");
}

static void mistakes_in_an_entry_are_named(void **state)
{
    const char *dir = *state;
    expect_refusal(dir, "{\"file_name\": \"none.json\"}", MT_ENOENT, "none.json");
    expect_refusal(dir, "{}", MT_EINVAL, "neither \"file_name\" nor \"hf_hub_url\"");
    expect_refusal(dir, "{\"file_name\": 3}", MT_EFORMAT, "\"file_name\" of dataset \"x\" should be text");
    expect_refusal(dir, "{\"file_name\": \"a\", \"formatting\": \"chatml\"}", MT_EINVAL, "alpaca, sharegpt and openai are known");
    expect_refusal(dir, "{\"file_name\": \"a\", \"columns\": {\"promt\": \"q\"}}", MT_EINVAL, "did you mean \"prompt\"?");
    expect_refusal(dir, "{\"file_name\": \"a\", \"tags\": {\"user\": \"q\"}}", MT_EINVAL, "unknown entry \"user\" in \"tags\"");
    expect_refusal(dir, "{\"file_name\": \"a\", \"num_samples\": 0}", MT_EINVAL, "num_samples");
    expect_refusal(dir, "{\"file_name\": \"a\", \"formatting\": \"sharegpt\", \"columns\": {\"system\": \"s\"}}", MT_EINVAL,
                   "\"messages\"");
    mt_err err = { 0 };
    mt_registry *r;
    assert_int_equal(mt_registry_parse(&r, "{\"x\": 1}", 8, dir, &err), MT_EFORMAT);
    assert_says("\"x\" should be an object");
}

static void hub_datasets_are_looked_for_here_first(void **state)
{
    const char *dir = *state;
    mt_err err = { 0 };
    mt_dataset_entry e;
    char path[512];
    expect_refusal(dir, "{\"ms_hub_url\": \"org/things\"}", MT_EUNSUPPORTED, "on a hub that is not asked here");
    mt_registry *r = parse("{\"x\": {\"hf_hub_url\": \"org/things\", \"folder\": \"en\"}}", dir);
    assert_ok(mt_registry_find(r, "x", &e, &err)); /* not here: the fetcher brings it */
    assert_null(e.path);
    assert_string_equal(e.hub, "org/things");
    assert_string_equal(e.folder, "en");
    snprintf(path, sizeof path, "%s/things", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/things/en", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_ok(mt_registry_find(r, "x", &e, &err));
    assert_string_equal(e.path, path);
    mt_registry_close(r);
    rmdir(path);
    snprintf(path, sizeof path, "%s/things", dir);
    rmdir(path);
}

static void the_nearest_name_is_suggested(void **state)
{
    mt_err err = { 0 };
    mt_dataset_entry e;
    mt_registry *r = parse("{\"alpaca_en\": {}, \"metamath\": {}}", *state);
    assert_int_equal(mt_registry_find(r, "alpaca_em", &e, &err), MT_ENOENT);
    assert_says("did you mean \"alpaca_en\"?");
    assert_int_equal(mt_registry_find(r, "zzz", &e, &err), MT_ENOENT);
    assert_says("which has 2: alpaca_en, metamath");
    assert_true(mt_registry_has(r, "metamath"));
    assert_false(mt_registry_has(r, "org/alpaca"));
    mt_registry_close(r);
}

static void the_folder_is_looked_for_in_three_places(void **state)
{
    const char *dir = *state;
    mt_err err = { 0 };
    mt_registry *r;
    char config[512];
    tempdir_write(dir, "dataset_info.json", "{}");
    snprintf(config, sizeof config, "%s/run.yaml", dir);
    assert_ok(mt_registry_open(&r, &(mt_registry_places){ .dataset_dir = dir }, &err));
    mt_registry_close(r);
    assert_ok(mt_registry_open(&r, &(mt_registry_places){ .dataset_dir = ".", .config_path = config }, &err));
    mt_registry_close(r);
    assert_ok(
        mt_registry_open(&r, &(mt_registry_places){ .dataset_dir = "nowhere", .config_path = "x.yaml", .installed = dir }, &err));
    assert_string_equal(mt_registry_dir(r), dir);
    mt_registry_close(r);
    assert_int_equal(mt_registry_open(&r, &(mt_registry_places){ .dataset_dir = "ONLINE" }, &err), MT_EUNSUPPORTED);
    assert_says("name the dataset as the hub does (owner/name)");
    assert_int_equal(mt_registry_open(&r, &(mt_registry_places){ .dataset_dir = "REMOTE:a/b" }, &err), MT_EUNSUPPORTED);
    assert_says("download the dataset");
    assert_int_equal(mt_registry_open(&r, &(mt_registry_places){ .dataset_dir = "nowhere" }, &err), MT_ENOENT);
    assert_says("set dataset.dataset_dir");
}

static void the_registry_that_is_installed_is_sound(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_registry *r;
    mt_dataset_entry e;
    static const char *const original[] = { "alpaca_en_demo", "metamath",     "alpaca_gpt4_en", "open_platypus",
                                            "mathinstruct",   "codealpaca",   "sharegpt4",      "ultrachat_200k",
                                            "open_thoughts",  "open_r1_math", "gsm8k",          "gsm8k_test" };
    assert_ok(
        mt_registry_open(&r, &(mt_registry_places){ .dataset_dir = "nowhere", .installed = MT_TESTS_DIR "/../data" }, &err));
    assert_ok(mt_registry_find(r, "demo", &e, &err));
    for (size_t i = 0; i < MT_COUNT(original); i++)
        if (mt_registry_find(r, original[i], &e, &err)) assert_says("on the hub and was not found here");
    for (size_t i = 0; i < mt_registry_count(r); i++)
        if (mt_registry_find(r, mt_registry_name(r, i), &e, &err)) assert_says("megatrain get");
    mt_registry_close(r);
}

static void a_missing_path_suggests_the_registry(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_dataset_entry e;
    assert_int_equal(mt_dataset_direct(&e, "alpaca_en", mt_record_layout_direct("q", "a"), &err), MT_ENOENT);
    assert_says("give it as dataset.name");
    assert_ok(mt_dataset_direct(&e, MT_TESTS_DIR, mt_record_layout_direct("q", "a"), &err));
    assert_string_equal(e.layout.prompt, "q");
}

static void a_mistyped_path_suggests_its_neighbor(void **state)
{
    mt_err err = { 0 };
    mt_dataset_entry e;
    char path[512];
    tempdir_write(*state, "train.jsonl", "");
    snprintf(path, sizeof path, "%s/trian.jsonl", (const char *)*state);
    assert_int_equal(mt_dataset_direct(&e, path, mt_record_layout_direct("q", "a"), &err), MT_ENOENT);
    assert_says("/train.jsonl?");
    snprintf(path, sizeof path, "%s/heldout.jsonl", (const char *)*state); /* only the extension is the same */
    assert_int_equal(mt_dataset_direct(&e, path, mt_record_layout_direct("q", "a"), &err), MT_ENOENT);
    assert_null(strstr(err.msg, "did you mean"));
    snprintf(path, sizeof path, "%s/link.jsonl", (const char *)*state); /* it is not its own neighbor */
    assert_int_equal(symlink("gone.jsonl", path), 0);
    assert_int_equal(mt_dataset_direct(&e, path, mt_record_layout_direct("q", "a"), &err), MT_ENOENT);
    assert_null(strstr(err.msg, "did you mean"));
}

static void keep_text(void *user, mt_log_level level, const char *text)
{
    (void)level;
    snprintf(user, 512, "%s", text);
}

static void a_mistyped_key_of_an_entry_is_a_warning(void **state)
{
    mt_err err = { 0 };
    mt_dataset_entry e;
    char text[512] = "";
    tempdir_write(*state, "a.json", "[]");
    mt_registry *r = parse("{\"x\": {\"file_name\": \"a.json\", \"formating\": \"openai\"},"
                           " \"y\": {\"file_name\": \"a.json\", \"description\": \"mine\"}}",
                           *state);
    assert_ok(mt_registry_find(r, "x", &e, &err));
    mt_log_set_sink(keep_text, text);
    mt_registry_warn_of_typos(r, "y");
    mt_registry_warn_of_typos(r, "not there");
    assert_string_equal(text, "");
    mt_registry_warn_of_typos(r, "x");
    mt_log_set_sink(NULL, NULL);
    assert_non_null(strstr(text, "\"formating\", which is not read; did you mean \"formatting\"?"));
    mt_registry_close(r);
    expect_refusal(*state, "{\"file_name\": \"b.json\"}", MT_ENOENT, "/a.json?");
}

static void a_folder_with_a_trailing_slash_has_a_name(void **state)
{
    mt_err err = { 0 };
    mt_dataset_entry e;
    char path[512];
    snprintf(path, sizeof path, "%s/", (const char *)*state);
    assert_ok(mt_dataset_direct(&e, path, mt_record_layout_direct("q", "a"), &err));
    assert_string_equal(e.name, path);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)

MT_TEST_MAIN(IN_DIR(columns_not_named_are_unset_and_tags_keep_their_defaults),
             IN_DIR(what_cannot_be_trained_on_is_refused_with_the_reason), IN_DIR(mistakes_in_an_entry_are_named),
             IN_DIR(hub_datasets_are_looked_for_here_first), IN_DIR(the_nearest_name_is_suggested),
             IN_DIR(a_mistyped_path_suggests_its_neighbor), IN_DIR(a_folder_with_a_trailing_slash_has_a_name),
             IN_DIR(a_mistyped_key_of_an_entry_is_a_warning), IN_DIR(the_folder_is_looked_for_in_three_places),
             cmocka_unit_test(the_registry_that_is_installed_is_sound), cmocka_unit_test(a_missing_path_suggests_the_registry))
