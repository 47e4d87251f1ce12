/* How a file of the user's own is laid out, found in its records: what is recognized, what is said, what comes of it. */
#include "sampler_rig.h"

#include "base/log.h"
#include "data/layout.h"
#include "run/feed.h"

static mt_rc detect(mt_record_layout *l, char words[MT_LAYOUT_WORDS], mt_arena *arena, const char *json, mt_err *err)
{
    mt_value record;
    mt_err ignored = { 0 };
    assert_int_equal(mt_value_parse_json(&record, arena, json, strlen(json), NULL, "record", &ignored), MT_OK);
    return mt_record_layout_detect(l, words, &record, err);
}

#define TURN(key, role, text_key) "{\"" key "\": \"" role "\", \"" text_key "\": \"x\"}"

/* Each record is recognized, described, and read by what was found: it trains "x" and the end. */
static void layouts_are_recognized(void **state)
{
    static const struct {
        const char *json, *words;
    } cases[] = {
        { "{\"messages\": [" TURN("role", "user", "content") ", " TURN("role", "assistant", "content") "]}",
          "conversations in \"messages\", with \"role\" (user, assistant) and \"content\"" },
        { "{\"id\": 1, \"conversations\": [" TURN("from", "human", "value") ", " TURN("from", "gpt", "value") "]}",
          "conversations in \"conversations\", with \"from\" (human, gpt) and \"value\"" },
        { "{\"conversations\": [" TURN("role", "user", "content") ", " TURN("role", "assistant", "content") "]}",
          "conversations in \"conversations\", with \"role\" (user, assistant) and \"content\"" },
        { "{\"conversation\": [" TURN("from", "user", "value") ", " TURN("from", "assistant", "value") "]}",
          "conversations in \"conversation\", with \"from\" (user, assistant) and \"value\"" },
        { "{\"instruction\": \"q\", \"input\": \"\", \"output\": \"x\"}",
          "\"instruction\" with \"input\" asks, \"output\" answers" },
        { "{\"instruction\": \"q\", \"output\": \"x\", \"history\": [[\"a\", \"x\"]]}",
          "\"instruction\" asks, \"output\" answers" },
        { "{\"prompt\": \"q\", \"completion\": \"x\"}", "\"prompt\" asks, \"completion\" answers" },
        { "{\"query\": \"q\", \"response\": \"x\", \"source\": \"s\"}", "\"query\" asks, \"response\" answers" },
        { "{\"question\": \"q\", \"answer\": \"x\"}", "\"question\" asks, \"answer\" answers" },
        { "{\"text\": \"x x x\"}", "plain text in \"text\", all of it trained" },
        { "{\"input_ids\": [5, 6, 7]}", "tokens in \"input_ids\", all of them trained unless a record has \"labels\"" },
        { "{\"labels\": [-100, 6, 7], \"attention_mask\": [1, 1, 1], \"input_ids\": [5, 6, 7]}",
          "tokens in \"input_ids\", those that \"labels\" has are trained" },
    };
    (void)state;
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_arena arena = { 0 };
        mt_record_layout l;
        char words[MT_LAYOUT_WORDS];
        rig r;
        assert_ok(detect(&l, words, &arena, cases[i].json, &err));
        assert_string_equal(words, cases[i].words);
        rig_open(&r, TOKENIZER, l, (mt_sampler_config){ .template = "chatml" });
        assert_int_equal(rig_run(&r, cases[i].json), MT_OK);
        if (r.reason || r.n != 1) fail_msg("%s: %s", cases[i].json, r.err.msg);
        mt_str trained = rig_trained(&r, 0);
        if (!l.ids && !strchr(trained.s, 'x')) fail_msg("%s trains \"%s\"", cases[i].json, trained.s);
        mt_str_free(&trained);
        rig_close(&r);
        mt_arena_free(&arena);
    }
}

static void what_is_not_recognized_is_said_with_what_to_do(void **state)
{
    static const struct {
        const char *json;
        mt_rc rc;
        const char *says;
    } cases[] = {
        { "{\"chosen\": \"a\", \"rejected\": \"b\", \"prompt\": \"c\"}", MT_EUNSUPPORTED, "response_field to chosen" },
        { "{\"chosen\": [{\"role\": \"user\", \"content\": \"q\"}], \"rejected\": []}", MT_EUNSUPPORTED,
          "\"columns\": {\"messages\": \"chosen\"}" },
        { "{\"chosen\": {\"from\": \"gpt\"}, \"rejected\": {}}", MT_EUNSUPPORTED, "which are not trained on yet" },
        { "{\"frage\": \"a\", \"antwort\": \"b\"}", MT_EFORMAT, "their columns (frage, antwort)" },
        { "{\"frage\": \"a\", \"antwort\": \"b\"}", MT_EFORMAT, "Name yours with query_field and response_field" },
        { "{\"messages\": \"[{}]\"}", MT_EFORMAT, "its column \"messages\" is text, and a list of turns was expected" },
        { "{\"messages\": \"a\"}", MT_EFORMAT, "messages or conversations (a list of turns)" },
        { "{\"prompt\": [{\"role\": \"user\"}], \"completion\": [{\"role\": \"assistant\"}]}", MT_EFORMAT,
          "its column \"prompt\" is a list, and text was expected.  Write a conversation as one list of messages" },
        { "{\"question\": 7, \"answer\": \"a\"}", MT_EFORMAT, "its column \"question\" is an integer, and text was expected" },
        { "{\"dialog\": [{\"speaker\": \"a\", \"utterance\": \"b\"}]}", MT_EFORMAT,
          "the turns in its column \"dialog\" have the keys speaker, utterance" },
        { "{\"turns\": [" TURN("role", "user", "content") "]}", MT_EFORMAT, "\"columns\": {\"messages\": \"turns\"}" },
        { "{\"question\": \"a\", \"passages\": [{\"title\": \"b\"}]}", MT_EFORMAT, "their columns (question, passages)" },
        { "{\"frage;antwort\": \"a;b\"}", MT_EFORMAT, "set dataset.delimiter: \";\"" },
        { "{\"frage\\tantwort\": \"a\"}", MT_EFORMAT, "set dataset.delimiter: \"tab\"" },
        { "{\"data\": [{\"frage\": \"a\"}], \"version\": 2}", MT_EFORMAT,
          "If the records are the list \"data\", set dataset.field to its name" },
        { "{}", MT_EFORMAT, "their columns (none)" },
        { "[1]", MT_EFORMAT, "not clear" },
    };
    (void)state;
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_arena arena = { 0 };
        mt_record_layout l;
        char words[MT_LAYOUT_WORDS];
        assert_int_equal(detect(&l, words, &arena, cases[i].json, &err), cases[i].rc);
        assert_says(cases[i].says);
        mt_arena_free(&arena);
    }
}

/* The samples of a record by the layout that is found in `first`: ids, and labels as text. */
static void samples_by(mt_str *out, const char *first, const char *record)
{
    mt_err err = { 0 };
    mt_arena arena = { 0 };
    mt_record_layout l;
    char words[MT_LAYOUT_WORDS];
    rig r;
    assert_ok(detect(&l, words, &arena, first, &err));
    rig_open(&r, TOKENIZER, l, (mt_sampler_config){ .template = "chatml" });
    assert_int_equal(rig_run(&r, record), MT_OK);
    if (r.reason || !r.n) fail_msg("%s read as %s: %s", record, words, r.err.msg);
    for (size_t i = 0; i < r.n; i++)
        for (int64_t t = 0; t < r.samples[i].n; t++) mt_str_printf(out, "%d/%d ", r.samples[i].ids[t], r.samples[i].labels[t]);
    rig_close(&r);
    mt_arena_free(&arena);
}

/* A column that records may lack is read in each that has it, also if the first one lacks it. */
static void any_record_may_have_the_optional_columns(void **state)
{
#define ASKED "{\"messages\": [" TURN("role", "user", "content") ", " TURN("role", "assistant", "content") "]"
    static const struct {
        const char *without, *with;
    } cases[] = {
        { "{\"instruction\": \"q\", \"output\": \"x\"}",
          "{\"instruction\": \"q\", \"output\": \"x\", \"history\": [[\"a\", \"b\"]]}" },
        { "{\"instruction\": \"q\", \"output\": \"x\", \"history\": null}",
          "{\"instruction\": \"q\", \"output\": \"x\", \"history\": [[\"a\", \"b\"], [\"c\", \"d\"]]}" },
        { "{\"prompt\": \"q\", \"completion\": \"x\", \"history\": \"\"}",
          "{\"prompt\": \"q\", \"completion\": \"x\", \"history\": [[\"a\", \"b\"]]}" },
        { "{\"instruction\": \"q\", \"output\": \"x\"}",
          "{\"instruction\": \"q\", \"output\": \"x\", \"input\": \"i\", \"system\": \"s\"}" },
        { ASKED "}", ASKED ", \"system\": \"s\"}" },
        { ASKED "}", ASKED ", \"tools\": [{\"name\": \"f\"}]}" },
        { "{\"input_ids\": [5, 6, 7]}", "{\"input_ids\": [5, 6, 7], \"labels\": [-100, -100, 7]}" },
        { "{\"input_ids\": [5, 6, 7], \"labels\": null}", "{\"input_ids\": [5, 6, 7], \"labels\": [-100, -100, 7]}" },
    };
    (void)state;
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        const char *const both[] = { cases[i].without, cases[i].with };
        mt_str plain = { 0 }, full = { 0 };
        for (size_t k = 0; k < 2; k++) {
            mt_str a = { 0 }, b = { 0 };
            samples_by(&a, both[0], both[k]);
            samples_by(&b, both[1], both[k]);
            if (strcmp(a.s, b.s) != 0) fail_msg("%s: %s or, after %s, %s", both[k], b.s, both[0], a.s);
            mt_str_puts(k ? &full : &plain, a.s);
            mt_str_free(&a);
            mt_str_free(&b);
        }
        assert_string_not_equal(plain.s, full.s); /* the column counts */
        mt_str_free(&plain);
        mt_str_free(&full);
    }
}

/* Turns of one conversation may be called this in one record and that in another. */
static void any_record_may_have_the_usual_roles(void **state)
{
    (void)state;
    static const char *const records[] = {
        ASKED "}",
        "{\"messages\": [" TURN("role", "human", "content") ", " TURN("role", "gpt", "content") "]}",
        "{\"messages\": [" TURN("role", "user", "content") ", " TURN("role", "model", "content") "]}",
        "{\"messages\": [" TURN("role", "user", "content") ", {\"role\": \"assistant\", \"tool_calls\": [{\"name\": "
                                                           "\"f\"}]}, " TURN("role", "observation", "content") ", " TURN(
                                                               "role", "assistant", "content") "]}",
    };
    for (size_t k = 0; k < MT_COUNT(records); k++) {
        mt_str by_first = { 0 }, by_itself = { 0 };
        samples_by(&by_first, records[0], records[k]);
        samples_by(&by_itself, records[k], records[k]);
        assert_string_equal(by_first.s, by_itself.s);
        mt_str_free(&by_first);
        mt_str_free(&by_itself);
    }
}

/* What is not trained on is refused in any record, by the layout of another one. */
static void what_is_not_trained_is_refused_in_any_record(void **state)
{
#define PLAIN "{\"prompt\": \"q\", \"completion\": \"x\""
#define SEEN  "{\"messages\": [" TURN("role", "user", "content") ", {\"role\": \"assistant\", \"content\": \"<image> x\"}]"
    static const struct {
        const char *first, *record, *says; /* NULL: it is trained */
    } cases[] = {
        { PLAIN "}", PLAIN ", \"label\": false}", "column \"label\" says whether an answer is wanted (KTO)" },
        { PLAIN "}", PLAIN ", \"label\": true}", "Remove the records with unwanted answers" },
        { PLAIN "}", PLAIN ", \"label\": \"False\"}", "name the columns to read with query_field" },
        { ASKED "}", ASKED ", \"label\": true}", "(KTO)" },
        { ASKED "}", ASKED ", \"kto_tag\": false}", "column \"kto_tag\"" },
        { PLAIN "}", PLAIN ", \"label\": \"sports\"}", NULL },
        { PLAIN "}", PLAIN ", \"label\": 3}", NULL },
        { "{\"text\": \"x x x\"}", "{\"text\": \"x x x\", \"label\": false}", NULL },
        { PLAIN "}", PLAIN ", \"chosen\": \"a\", \"rejected\": \"b\"}", "preference pairs" },
        { ASKED "}", SEEN ", \"images\": [\"a.png\"]}", "its column \"images\": images are not trained on yet.  Remove such" },
        { ASKED "}", ASKED ", \"image\": {\"bytes\": null, \"path\": \"a.png\"}}", "its column \"image\"" },
        { ASKED "}", ASKED ", \"videos\": [\"a.mp4\"]}", "videos are not trained on yet" },
        { PLAIN "}", PLAIN ", \"audios\": [\"a.wav\"]}", "sound is not trained on yet" },
        { "{\"text\": \"x x x\"}", "{\"text\": \"x x x\", \"image\": \"a.png\"}", "its column \"image\"" },
        { ASKED "}", ASKED ", \"images\": [], \"image\": null, \"video\": \"\", \"audio\": {\"path\": null}}", NULL },
        { ASKED "}", ASKED ", \"images\": [{\"path\": \"\"}], \"image\": false, \"video\": 0}", NULL },
        { ASKED "}", SEEN "}", NULL }, /* only a word */
    };
    (void)state;
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_arena arena = { 0 };
        mt_record_layout l;
        char words[MT_LAYOUT_WORDS];
        rig r;
        assert_ok(detect(&l, words, &arena, cases[i].first, &err));
        rig_open(&r, TOKENIZER, l, (mt_sampler_config){ .template = "chatml" });
        mt_rc rc = rig_run(&r, cases[i].record);
        if (rc != (cases[i].says ? MT_EUNSUPPORTED : MT_OK) || r.reason) fail_msg("%s: %s", cases[i].record, r.err.msg);
        if (cases[i].says && !strstr(r.err.msg, cases[i].says)) fail_msg("expected \"%s\" in: %s", cases[i].says, r.err.msg);
        rig_close(&r);
        mt_arena_free(&arena);
    }
}

/* Who names the columns wants those and no others; but a mark for a picture is not text. */
static void named_columns_are_trained_whatever_others_hold(void **state)
{
    (void)state;
    rig r;
    mt_record_layout l = mt_record_layout_direct("prompt", "completion");
    l.named = true;
    rig_open(&r, TOKENIZER, l, (mt_sampler_config){ .template = "chatml" });
    assert_int_equal(rig_run(&r, PLAIN ", \"label\": false, \"images\": [\"a.png\"], \"rejected\": \"b\", \"chosen\": \"c\"}"),
                     MT_OK);
    assert_int_equal(r.n, 1);
    assert_int_equal(rig_run(&r, "{\"prompt\": \"<image>q\", \"completion\": \"x\", \"images\": [\"a.png\"]}"), MT_EUNSUPPORTED);
    assert_non_null(strstr(r.err.msg, "a mark for what is in its column \"images\""));
    rig_close(&r);
}

/* ---- tokens ---- */

static void tokens_are_taken_as_they_are(void **state)
{
    static const struct {
        const char *json;
        mt_reason reason;
        int trained; /* labels in place */
    } cases[] = {
        { "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, -100, 7, 8]}", MT_REASON_NONE, 2 },
        { "{\"input_ids\": [5, 6, 7, 8], \"labels\": [5, -100, 7, -100]}", MT_REASON_NONE, 2 },
        { "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, -100, -100, -100]}", MT_REASON_NO_ANSWER, 0 },
        { "{\"input_ids\": [5, 6], \"labels\": [-100, 6, 7]}", MT_REASON_BAD_ANSWER, 0 },
        { "{\"input_ids\": [5, 6], \"labels\": [-100, 9]}", MT_REASON_BAD_ANSWER, 0 },
        { "{\"input_ids\": [5, -6], \"labels\": [-100, 6]}", MT_REASON_BAD_ANSWER, 0 },
        { "{\"input_ids\": [5, 6.5], \"labels\": [-100, 6]}", MT_REASON_BAD_ANSWER, 0 },
        { "{\"input_ids\": [5, 99999999999], \"labels\": [-100, 6]}", MT_REASON_BAD_ANSWER, 0 },
        { "{\"input_ids\": \"5\", \"labels\": [6]}", MT_REASON_MISSING_COLUMN, 0 },
        { "{\"labels\": [6]}", MT_REASON_MISSING_COLUMN, 0 },
        { "{\"input_ids\": [], \"labels\": []}", MT_REASON_NO_ANSWER, 0 },
        { "{\"input_ids\": [5, 6, 7, 8, 9, 10], \"labels\": [-100, -100, 7, 8, 9, 10]}", MT_REASON_NONE, 2 }, /* cut to four */
        { "{\"input_ids\": [5, 6, 7, 8, 9, 10], \"labels\": [-100, -100, -100, -100, 9, 10]}", MT_REASON_TOO_LONG, 0 },
    };
    (void)state;
    mt_record_layout l = mt_record_layout_default(MT_FORMATTING_ALPACA);
    l.ids = "input_ids";
    l.labels = "labels";
    rig r;
    rig_open(&r, TOKENIZER, l, (mt_sampler_config){ .max_seq_len = 4 });
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        int n = 0;
        assert_int_equal(rig_run(&r, cases[i].json), MT_OK);
        if (r.reason != cases[i].reason) fail_msg("%s: %s: %s", cases[i].json, mt_reason_text(r.reason), r.err.msg);
        for (int64_t t = 0; r.n && t < r.samples[0].n; t++) n += r.samples[0].labels[t] >= 0;
        assert_int_equal(n, cases[i].trained);
        if (r.n) assert_int_equal(r.samples[0].n, 4);
    }
    assert_int_equal(r.odd.truncated, 1);
    rig_close(&r);
}

/* ---- files ---- */

static void collect(void *user, mt_log_level level, const char *text)
{
    (void)level;
    mt_str_printf(user, "%s\n", text);
}

static void set(mt_settings *s, const char *key, const char *value)
{
    mt_err err = { 0 };
    assert_ok(mt_settings_set(s, key, value, "test", &err));
}

static mt_rc open_file(mt_feed **f, mt_settings *s, const char *dir, const char *text, mt_err *err)
{
    char *path = mt_path_join(dir, "own.jsonl");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(mt_settings_init(s, err), MT_OK);
    set(s, "model.name", TOKENIZER);
    set(s, "dataset.path", path);
    set(s, "dataset.cache_dir", dir);
    set(s, "dataset.template", "llama4"); /* which this tokenizer cannot write: what has no turns must not care */
    mt_free(path);
    return mt_feed_open(f, s, &(mt_feed_options){ 0 }, err);
}

static void a_file_of_tokens_needs_no_template_and_is_not_packed(void **state)
{
    mt_err err = { 0 };
    mt_settings s;
    mt_feed *f;
    mt_str said = { 0 }, unread = { 0 };
    mt_pipeline_facts facts;
    mt_log_set_sink(collect, &said);
    assert_ok(open_file(&f, &s, *state,
                        "{\"input_ids\": [5, 6, 2], \"labels\": [-100, 6, 2], \"x\": 1}\n{\"input_ids\": [7, 2], \"labels\": [7, "
                        "2], \"y\": 1, \"x\": 2}\n",
                        &err));
    mt_log_set_sink(NULL, NULL);
    mt_pipeline_facts_of(mt_feed_pipeline(f), &facts);
    assert_int_equal(facts.n_train, 2);
    assert_int_equal(facts.train_tokens, 5);
    assert_false(mt_feed_packs(f));
    assert_null(mt_feed_new_template(f));
    assert_null(strstr(said.s, "no chat template"));
    assert_non_null(strstr(said.s, "dataset own.jsonl: tokens in \"input_ids\", those that \"labels\" has are trained"));
    assert_ok(mt_feed_unmapped(f, 0, &unread, &err));
    assert_string_equal(unread.s, "x, y"); /* of any record */
    mt_feed_close(f);
    mt_settings_deinit(&s);
    mt_str_free(&said);
    mt_str_free(&unread);
}

/* The first record that shows a layout decides; ten that do not are an error with the first one's columns. */
static void a_few_odd_records_do_not_hide_the_layout(void **state)
{
    mt_err err = { 0 };
    mt_settings s;
    mt_feed *f = NULL;
    assert_int_equal(open_file(&f, &s, *state, "{\"a\": 1}\nnonsense\n{\"b\": 1}\n{\"text\": \"Some words.\"}\n", &err),
                     MT_EFORMAT);
    assert_says("3 of 4 records are bad"); /* found, and then too many are bad */
    assert_says("line 1: no column \"text\"");
    mt_settings_deinit(&s);
    err = (mt_err){ 0 };
    assert_int_equal(open_file(&f, &s, *state, "{\"a\": 1}\n{\"b\": 1}\n", &err), MT_EFORMAT);
    assert_says("dataset own.jsonl: how its records are laid out is not clear from their columns (a)");
    mt_settings_deinit(&s);
    err = (mt_err){ 0 };
    assert_int_equal(open_file(&f, &s, *state, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n", &err),
                     MT_EUNSUPPORTED);
    assert_says("preference pairs");
    mt_settings_deinit(&s);
    err = (mt_err){ 0 };
    assert_int_equal(
        open_file(&f, &s, *state, "{\"text\": \"Some words.\"}\n{\"text\": \"More of them.\", \"images\": [\"a.png\"]}\n", &err),
        MT_EUNSUPPORTED);
    assert_says("own.jsonl, line 2: it has something in its column \"images\"");
    mt_settings_deinit(&s);
}

static void write_in(const char *dir, const char *name, const char *line, int n)
{
    char *path = mt_path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    while (n--) fputs(line, f);
    assert_int_equal(fclose(f), 0);
    mt_free(path);
}

static mt_rc open_folder(const char *dir, const char *on_bad_record, mt_err *err)
{
    mt_settings s;
    mt_feed *f = NULL;
    assert_int_equal(mt_settings_init(&s, err), MT_OK);
    set(&s, "model.name", TOKENIZER);
    set(&s, "dataset.path", dir);
    set(&s, "dataset.cache_dir", dir);
    set(&s, "dataset.on_bad_record", on_bad_record);
    mt_rc rc = mt_feed_open(&f, &s, &(mt_feed_options){ 0 }, err);
    mt_feed_close(f);
    mt_settings_deinit(&s);
    return rc;
}

/* The second file cannot be read, so reaching it is another error. */
static void bad_records_are_not_read_to_the_end_for_a_layout(void **state)
{
    mt_err err = { 0 };
    write_in(*state, "b.parquet", "PAR1 is not all", 1);
    write_in(*state, "a.jsonl", "nonsense\n", 2);
    assert_int_equal(open_folder(*state, "stop", &err), MT_EFORMAT);
    assert_says("its first record is bad:");
    assert_says("a.jsonl: not valid JSON at line 1");
    assert_says("on_bad_record: skip would leave it out");
    err = (mt_err){ 0 };
    assert_int_not_equal(open_folder(*state, "skip", &err), MT_OK);
    assert_says("b.parquet");
    err = (mt_err){ 0 };
    write_in(*state, "a.jsonl", "{\"text\": }\n", 3000);
    assert_int_equal(open_folder(*state, "skip", &err), MT_EFORMAT);
    assert_says("its first 1000 records are bad:");
    assert_says("a.jsonl: not valid JSON at line 1");
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(cmocka_unit_test(layouts_are_recognized), cmocka_unit_test(what_is_not_recognized_is_said_with_what_to_do),
             cmocka_unit_test(any_record_may_have_the_optional_columns), cmocka_unit_test(any_record_may_have_the_usual_roles),
             cmocka_unit_test(what_is_not_trained_is_refused_in_any_record),
             cmocka_unit_test(named_columns_are_trained_whatever_others_hold), cmocka_unit_test(tokens_are_taken_as_they_are),
             IN_TEMPDIR(a_file_of_tokens_needs_no_template_and_is_not_packed),
             IN_TEMPDIR(a_few_odd_records_do_not_hide_the_layout), IN_TEMPDIR(bad_records_are_not_read_to_the_end_for_a_layout))
