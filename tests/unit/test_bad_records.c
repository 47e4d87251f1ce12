/* Bad and odd records, each kind once, from a file to the counts: a file of good records with one of them among, read, sampled
 * and stored as a run does it.  What is checked: the message with file and line (or row), the count under its reason, what
 * on_bad_record and max_bad_share make of it. */
#include "tempdir.h"

#include "base/file.h"
#include "data/report.h"
#include "data/store_build.h"

#define GOOD             "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}\n"
#define CHAT(turns)      "{\"messages\": [" turns "]}\n"
#define SAYS(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"

typedef struct kind {
    const char *record;
    mt_reason reason;
    const char *says; /* besides file and line */
} kind;

static const kind bad[] = {
    { CHAT(SAYS("assistant", "A")), MT_REASON_FIRST_NOT_USER, "the first turn is the assistant's, it should be the user's" },
    { CHAT(SAYS("user", "Q") "," SAYS("user", "R") "," SAYS("assistant", "A")), MT_REASON_REPEATED_SIDE,
      "turns 1 and 2 are both the user's (merge_turns: true joins them)" },
    { CHAT(SAYS("user", "Q") "," SAYS("assistant", "A") "," SAYS("assistant", "B")), MT_REASON_REPEATED_SIDE,
      "turns 2 and 3 are both the assistant's" },
    { CHAT(SAYS("user", "Q") "," SAYS("narrator", "A")), MT_REASON_UNKNOWN_ROLE,
      "message 2 has the role \"narrator\"; known are user, " },
    { CHAT(SAYS("user", "Q") ","
                             "{\"role\": \"assistant\", \"content\": null}"),
      MT_REASON_BAD_ANSWER, "the answer should be text and is null" },
    { CHAT(SAYS("user", "Q") ","
                             "{\"role\": \"assistant\", \"content\": 7}"),
      MT_REASON_BAD_ANSWER, "the answer should be text and is an integer" },
    { "{\"messages\": [\n", MT_REASON_NOT_JSON, "not valid JSON at line 2, column 15: the text ends where a value was expected" },
    { "[1]\n", MT_REASON_NOT_JSON, "" },
    { CHAT(SAYS("user", "Q") ","
                             "{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"arguments\": {}}}]}"),
      MT_REASON_BAD_CALL, "a tool call has no \"name\"" },
    { CHAT(SAYS("user", "Q") ","
                             "{\"role\": \"assistant\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": \"{x\"}]}"),
      MT_REASON_BAD_CALL, "arguments of a tool call" },
    { "{\"text\": \"T\", \"messages\": null}\n", MT_REASON_MISSING_COLUMN,
      "\"messages\" should be a list of messages and is null" },
    { "{\"other\": []}\n", MT_REASON_MISSING_COLUMN, "no column \"messages\" (it has: other)" },
    { CHAT(SAYS("user", "Q\xff") "," SAYS("assistant", "A")), MT_REASON_NOT_JSON, "UTF-8" },
    { CHAT(SAYS("user", "Q")), MT_REASON_NO_ANSWER, "it has no answer" },
};

typedef struct rig {
    const char *dir;
    mt_tokenizer *tok;
    mt_sampler *sampler;
    mt_store *store;
    char *data, *path;
    mt_store_job job;
} rig;

static void write_bytes(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void rig_open(rig *r, const char *dir, const char *text, mt_record_layout layout, mt_sampler_config config)
{
    mt_err err = { 0 };
    *r = (rig){ .dir = dir, .data = mt_path_join(dir, "data.jsonl"), .path = mt_path_join(dir, "store") };
    write_bytes(r->data, text);
    config.template = "chatml";
    assert_ok(mt_tokenizer_open(&r->tok, MT_TESTS_DIR "/golden/samples/tokenizer", &err));
    assert_ok(mt_sampler_open(&r->sampler, r->tok, &layout, &config, &err));
    r->job = (mt_store_job){
        .what = "data", .path = r->data, .maker = mt_sample_maker_of(r->sampler), .vocab = 1 << 15, .n_workers = 1
    };
    assert_ok(mt_store_build(r->path, 1, &r->job, &err));
    assert_ok(mt_store_map(&r->store, r->path, 1, &err));
}

static void rig_close(rig *r)
{
    mt_store_close(r->store);
    mt_sampler_close(r->sampler);
    mt_tokenizer_close(r->tok);
    mt_free(r->data);
    mt_free(r->path);
}

static mt_record_layout openai(void) { return mt_record_layout_default(MT_FORMATTING_OPENAI); }

/* One bad record among ten. */
static void expect_bad(const char *dir, const kind *k)
{
    rig r;
    mt_err err = { 0 };
    mt_str text = { 0 }, says = { 0 };
    mt_str_printf(&text, "%s%s", GOOD, k->record);
    for (int i = 0; i < 8; i++) mt_str_puts(&text, GOOD);
    rig_open(&r, dir, text.s, openai(), (mt_sampler_config){ 0 });
    const mt_store_counts *c = mt_store_counted(r.store);
    assert_int_equal(c->n_records, 10);
    assert_int_equal(c->by_reason[MT_REASON_NONE], 9);
    assert_int_equal(c->n_samples, 9);
    if (c->by_reason[k->reason] != 1) fail_msg("%s is not counted under \"%s\"", k->record, mt_reason_text(k->reason));
    assert_int_equal(mt_store_bad(c), 1);
    const char *shown = mt_store_bad_text(r.store, 0);
    if (!strstr(shown, "/data.jsonl") || !strstr(shown, "line 2") || !strstr(shown, k->says))
        fail_msg("\"%s\" does not say \"%s\"", shown, k->says);
    assert_null(mt_store_bad_text(r.store, 1));

    /* a tenth is more than the default allows, and less than a fifth */
    assert_ok(mt_report_check(r.store, "data", false, 0.2, &err));
    assert_int_equal(mt_report_check(r.store, "data", false, 0.05, &err), MT_EFORMAT);
    mt_str_printf(&says, "1 of 10 records is bad (10%%): %s (1)", mt_reason_text(k->reason));
    assert_says(says.s);
    assert_says(shown);
    assert_says("More than max_bad_share (5%)");
    r.job.stop_on_bad = true;
    assert_int_equal(mt_store_build(r.path, 1, &r.job, &err), MT_EFORMAT);
    assert_says(shown);
    rig_close(&r);
    mt_str_free(&text);
    mt_str_free(&says);
}

static void every_kind_of_bad_record_is_named_and_counted(void **state)
{
    for (size_t i = 0; i < MT_COUNT(bad); i++) expect_bad(*state, &bad[i]);
}

static void three_are_shown_and_all_are_counted(void **state)
{
    rig r;
    mt_err err = { 0 };
    mt_str text = { 0 };
    for (size_t i = 0; i < MT_COUNT(bad); i++)
        if (bad[i].reason != MT_REASON_NOT_JSON) mt_str_puts(&text, bad[i].record);
    mt_str_puts(&text, GOOD);
    rig_open(&r, *state, text.s, openai(), (mt_sampler_config){ 0 });
    assert_non_null(mt_store_bad_text(r.store, 2));
    assert_null(mt_store_bad_text(r.store, 3));
    assert_int_equal(mt_report_check(r.store, "data", false, 0.05, &err), MT_EFORMAT);
    assert_says(
        "11 of 12 records are bad (91.7%): a column is missing (2), the first turn is not the user's (1), two turns of one "
        "side in a row (2), unknown role (1), the answer is null or not text (2), malformed tool call or tools (2), no "
        "answer to train on (1)");
    assert_says("data.jsonl, line 1: the first turn is the assistant's");
    assert_says("data.jsonl, line 3: turns 2 and 3");
    assert_null(strstr(err.msg, "line 4"));
    rig_close(&r);
    mt_str_free(&text);
}

static void formats_without_lines_name_the_row(void **state)
{
    rig r;
    mt_err err = { 0 };
    rig_open(&r, *state, GOOD, openai(), (mt_sampler_config){ 0 });
    r.job.path = MT_TESTS_DIR "/golden/formats/files/repo/data/test-00000-of-00001.parquet";
    r.job.stop_on_bad = true;
    assert_int_equal(mt_store_build(r.path, 1, &r.job, &err), MT_EFORMAT);
    assert_says("test-00000-of-00001.parquet, row 1: no column \"messages\"");
    rig_close(&r);
}

/* ---- odd, and used all the same ---- */

/* The one sample of a record: its trained part, decoded. */
static void expect_learned(const char *dir, const char *record, mt_record_layout layout, mt_sampler_config config,
                           const char *want, mt_oddities odd)
{
    rig r;
    mt_err err = { 0 };
    int32_t ids[512], labels[512];
    mt_str learned = { 0 };
    rig_open(&r, dir, record, layout, config);
    const mt_store_counts *c = mt_store_counted(r.store);
    if (c->n_samples != 1) fail_msg("%s: %lld samples", record, (long long)c->n_samples);
    assert_int_equal(mt_store_bad(c), 0);
    int64_t n = mt_store_length(r.store, 0), n_learned = 0;
    assert_int_equal(mt_store_read(r.store, 0, ids, labels, NULL), MT_OK);
    for (int64_t i = 0; i < n; i++)
        if (labels[i] != -100) labels[n_learned++] = labels[i];
    assert_ok(mt_tokenizer_decode(r.tok, labels, (size_t)n_learned, false, &learned, &err));
    assert_string_equal(learned.s, want);
    assert_int_equal(c->odd.trailing_user_cut, odd.trailing_user_cut);
    assert_int_equal(c->odd.truncated, odd.truncated);
    assert_int_equal(c->odd.answers_cut, odd.answers_cut);
    mt_str_free(&learned);
    rig_close(&r);
}

static void records_of_one_line_are_told_apart_by_their_number(void **state)
{
    rig r;
    mt_err err = { 0 };
    rig_open(&r, *state,
             "[{\"messages\": [" SAYS("user", "Q") "," SAYS("assistant", "A") "]}, {\"other\": []}, "
                                                                              "{\"messages\": [" SAYS("assistant", "A") "]}]",
             openai(), (mt_sampler_config){ 0 });
    assert_non_null(strstr(mt_store_bad_text(r.store, 0), "data.jsonl, line 1, record 2: no column \"messages\""));
    assert_non_null(strstr(mt_store_bad_text(r.store, 1), "data.jsonl, line 1, record 3: the first turn"));
    assert_int_equal(mt_report_check(r.store, "data", true, 1, &err), MT_EFORMAT);
    assert_says("data.jsonl, line 1, record 2: ");
    rig_close(&r);
}

static void odd_records_are_used_and_counted(void **state)
{
    const mt_sampler_config plain = { 0 }, merge = { .merge_turns = true };
    expect_learned(*state, CHAT(SAYS("user", "Q") "," SAYS("assistant", "A") "," SAYS("user", "left over")), openai(), plain,
                   "A<|im_end|>", (mt_oddities){ .trailing_user_cut = 1 });
    expect_learned(*state, CHAT(SAYS("user", "Q") "," SAYS("assistant", "")), openai(), plain, "<|im_end|>", (mt_oddities){ 0 });
    expect_learned(
        *state,
        CHAT(SAYS("user", "Q") ","
                               "{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"in \"}, \"parts\"]}"),
        openai(), plain, "in parts<|im_end|>", (mt_oddities){ 0 });
    expect_learned(*state, CHAT(SAYS("user", "Q") "," SAYS("user", "R") "," SAYS("assistant", "A") "," SAYS("assistant", "B")),
                   openai(), merge, "A\n\nB<|im_end|>", (mt_oddities){ 0 });
}

/* The text a model is asked, as the tokens of the one sample say it. */
static void expect_text(const char *dir, const char *record, const char *want)
{
    rig r;
    mt_err err = { 0 };
    int32_t ids[512], labels[512];
    mt_str text = { 0 };
    rig_open(&r, dir, record, mt_record_layout_default(MT_FORMATTING_ALPACA), (mt_sampler_config){ 0 });
    assert_int_equal(mt_store_read(r.store, 0, ids, labels, NULL), MT_OK);
    assert_ok(mt_tokenizer_decode(r.tok, ids, (size_t)mt_store_length(r.store, 0), false, &text, &err));
    assert_string_equal(text.s, want);
    mt_str_free(&text);
    rig_close(&r);
}

static void an_empty_input_adds_no_line(void **state)
{
#define ASKED(q) "<|im_start|>user\n" q "<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
    expect_text(*state, "{\"instruction\": \"Q\", \"input\": \"\", \"output\": \"A\"}\n", ASKED("Q"));
    expect_text(*state, "{\"instruction\": \"Q\", \"input\": null, \"output\": \"A\"}\n", ASKED("Q"));
    expect_text(*state, "{\"instruction\": \"Q\", \"output\": \"A\"}\n", ASKED("Q"));
    expect_text(*state, "{\"instruction\": \"Q\", \"input\": \"I\", \"output\": \"A\"}\n", ASKED("Q\nI"));
}

/* ---- length ---- */

static void what_is_too_long_is_cut_or_left_out_and_counted(void **state)
{
    static const char record[] =
        CHAT(SAYS("user", "Q") "," SAYS("assistant", "one two three four five six seven eight nine ten"));
    rig r;
    mt_err err = { 0 };
    rig_open(&r, *state, record, openai(), (mt_sampler_config){ .max_seq_len = 12 });
    const mt_store_counts *c = mt_store_counted(r.store);
    assert_int_equal(c->odd.truncated, 1);
    assert_int_equal(c->odd.answers_cut, 1);
    assert_int_equal(mt_store_length(r.store, 0), 12);
    int32_t ids[12], labels[12];
    assert_int_equal(mt_store_read(r.store, 0, ids, labels, NULL), MT_OK);
    assert_int_equal(labels[11], ids[11]); /* no end token: the answer continues */
    assert_int_not_equal(ids[11], mt_tokenizer_token_id(r.tok, "<|im_end|>", 10));
    rig_close(&r);
    rig_open(&r, *state, record, openai(), (mt_sampler_config){ .max_seq_len = 4 });
    assert_int_equal(mt_store_counted(r.store)->by_reason[MT_REASON_NO_ROOM], 1);
    assert_int_equal(mt_report_check(r.store, "data", false, 0.05, &err), MT_EFORMAT);
    assert_says("none of its 1 records gives a sample: no answer token left within max_seq_len (1).  Raise max_seq_len");
    rig_close(&r);
    rig_open(&r, *state, record, openai(), (mt_sampler_config){ .max_seq_len = 12, .overlong = MT_OVERLONG_SKIP });
    assert_int_equal(mt_store_counted(r.store)->by_reason[MT_REASON_TOO_LONG], 1);
    assert_int_equal(mt_store_bad(mt_store_counted(r.store)), 0);
    rig_close(&r);
    rig_open(&r, *state, record, openai(), (mt_sampler_config){ .max_seq_len = 12, .overlong = MT_OVERLONG_SPLIT });
    assert_true(mt_store_counted(r.store)->n_samples > 1);
    assert_int_equal(mt_store_counted(r.store)->odd.truncated, 0);
    rig_close(&r);
}

/* "a*b|a" takes quadratic work on a's: the one text that is too long for it is bad, and the others are used. */
static void a_text_past_a_bound_of_the_tokenizer_is_bad(void **state)
{
    static const char json[] =
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"a*b|a\"}},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    enum { N = 200000 };
    rig r = { .data = mt_path_join(*state, "data.jsonl"), .path = mt_path_join(*state, "store") };
    mt_err err = { 0 };
    mt_str text = { 0 };
    mt_record_layout layout = mt_record_layout_default(MT_FORMATTING_ALPACA);
    layout.text = "text";
    layout.text_only = true;
    mt_str_puts(&text, "{\"text\": \"aaa\"}\n{\"text\": \"");
    for (int i = 0; i < N; i++) mt_str_putc(&text, 'a');
    mt_str_puts(&text, "\"}\n{\"text\": \"aa\"}\n");
    write_bytes(r.data, text.s);
    assert_ok(mt_tokenizer_open_json(&r.tok, json, sizeof json - 1, "hostile.json", &err));
    assert_ok(mt_sampler_open(&r.sampler, r.tok, &layout, &(mt_sampler_config){ 0 }, &err));
    r.job = (mt_store_job){ .what = "data", .path = r.data, .maker = mt_sample_maker_of(r.sampler), .vocab = 8, .n_workers = 1 };
    assert_ok(mt_store_build(r.path, 1, &r.job, &err));
    assert_ok(mt_store_map(&r.store, r.path, 1, &err));
    const mt_store_counts *c = mt_store_counted(r.store);
    assert_int_equal(c->n_samples, 2);
    assert_int_equal(c->by_reason[MT_REASON_TOKENIZER], 1);
    assert_int_equal(mt_store_bad(c), 1);
    assert_non_null(strstr(mt_store_bad_text(r.store, 0), "line 2"));
    assert_non_null(strstr(mt_store_bad_text(r.store, 0), "takes too many steps on a text of 200000 bytes"));
    rig_close(&r);
    mt_str_free(&text);
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(IN_TEMPDIR(every_kind_of_bad_record_is_named_and_counted), IN_TEMPDIR(three_are_shown_and_all_are_counted),
             IN_TEMPDIR(formats_without_lines_name_the_row), IN_TEMPDIR(records_of_one_line_are_told_apart_by_their_number),
             IN_TEMPDIR(odd_records_are_used_and_counted), IN_TEMPDIR(an_empty_input_adds_no_line),
             IN_TEMPDIR(what_is_too_long_is_cut_or_left_out_and_counted), IN_TEMPDIR(a_text_past_a_bound_of_the_tokenizer_is_bad))
