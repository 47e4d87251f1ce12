/* Samplers: the choice of a template, plain text, refusals, counts.  Masks are compared with transformers in
 * golden/test_samples.c. */
#include "sampler_rig.h"

#include "base/fault.h"
#include "data/templates.h"

static mt_record_layout alpaca(void) { return mt_record_layout_default(MT_FORMATTING_ALPACA); }

/* ---- templates ---- */

static void a_model_without_a_template_gets_the_plain_form_and_a_notice(void **state)
{
    (void)state;
    rig r;
    const char *name;
    rig_open(&r, TOKENIZER, alpaca(), (mt_sampler_config){ .keep_text = true });
    assert_non_null(strstr(mt_sampler_notice(r.s), "no chat template"));
    assert_non_null(mt_sampler_template(r.s, &name));
    assert_string_equal(name, "default");
    assert_string_equal(mt_sampler_end(r.s), "</s>");
    assert_int_equal(rig_run(&r, "{\"instruction\":\"Hi\",\"output\":\"Ho\",\"system\":\"S\"}"), MT_OK);
    assert_int_equal(r.n, 1);
    assert_string_equal(r.samples[0].text, "S\n\nHuman: Hi\n\nAssistant:\nHo</s>\n\n");
    rig_close(&r);
}

static void unknown_templates_suggest_the_nearest(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_tokenizer *tok;
    mt_sampler *s;
    mt_record_layout l = alpaca();
    assert_ok(mt_tokenizer_open(&tok, TOKENIZER, &err));
    assert_int_equal(mt_sampler_open(&s, tok, &l, &(mt_sampler_config){ .template = "lama3" }, &err), MT_EINVAL);
    assert_says("did you mean \"llama3\"?  Without dataset.template the model's own is used");
    mt_value kwargs;
    mt_arena arena = { 0 };
    assert_ok(mt_value_parse_json(&kwargs, &arena, "{\"messages\": 1}", 15, NULL, "kwargs", &err));
    assert_int_equal(mt_sampler_open(&s, tok, &l, &(mt_sampler_config){ .template_kwargs = &kwargs }, &err), MT_EINVAL);
    assert_says("template_kwargs: \"messages\"");
    mt_arena_free(&arena);
    mt_tokenizer_close(tok);
}

/* Every built-in template that this vocabulary has tokens for trains what was said and the end, in two turns. */
static void built_in_templates_train_answer_and_end(void **state)
{
    (void)state;
    static const char *const names[] = { "chatml", "llama2",    "llama3", "mistral",  "mistral_nemo", "gemma",      "phi3",
                                         "phi4",   "phi4_mini", "glm4",   "deepseek", "deepseek3",    "deepseekr1", "vicuna",
                                         "alpaca", "zephyr",    "olmo",   "falcon",   "empty",        "default",    "internlm2" };
    mt_record_layout l = alpaca();
    l.history = "history";
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        rig r;
        mt_str text = { 0 };
        const char *used;
        rig_open(&r, TOKENIZER, l, (mt_sampler_config){ .template = names[i] });
        mt_sampler_template(r.s, &used);
        assert_string_equal(used, names[i]);
        assert_int_equal(
            rig_run(&r, "{\"instruction\":\"Q\",\"output\":\"Blue sky.\",\"system\":\"S\",\"history\":[[\"a\",\"b\"]]}"), MT_OK);
        if (r.reason) fail_msg("%s: %s", names[i], r.err.msg);
        const mt_sample *x = &r.samples[r.n - 1];
        for (int64_t t = 0; t < x->n; t++)
            if (x->labels[t] >= 0) assert_int_equal(mt_tokenizer_decode(r.tok, &x->labels[t], 1, false, &text, &r.err), MT_OK);
        char want[64];
        snprintf(want, sizeof want, "Blue sky.%s", mt_sampler_end(r.s));
        if (!strstr(text.s, want) || strstr(text.s, "Q")) fail_msg("%s: trained is \"%s\"", names[i], text.s);
        mt_str_free(&text);
        rig_close(&r);
    }
    assert_null(mt_template_find("nothing"));
}

/* Expected texts are LLaMA-Factory's templates of these names (0.9.5), or the model's own where that differs: SmolLM2's has no
 * full stop, Vicuna's has spaces where the turns meet. */
static void conversations_without_a_system_message_get_the_one_of_the_template(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
    } cases[] = {
        { "chatml", "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { "qwen3", "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { "qwen",
          "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
          "Q<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { "smollm2",
          "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\n"
          "Q<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { "llama2", "<s>[INST] Q [/INST] A </s>" },
        { "llama2_zh", "<s>[INST] <<SYS>>\nYou are a helpful assistant. 你是一个乐于助人的助手。\n<</SYS>>\n\nQ [/INST] A </s>" },
        { "vicuna", "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
                    "detailed, and polite answers "
                    "to the user's questions. USER: Q ASSISTANT: A</s>" },
        { "alpaca",
          "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
          "### Instruction:\nQ\n\n### Response:\nA</s>\n\n" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig r;
        rig_open(&r, TOKENIZER, alpaca(), (mt_sampler_config){ .template = cases[i].name, .keep_text = true });
        assert_int_equal(rig_run(&r, "{\"instruction\":\"Q\",\"output\":\"A\"}"), MT_OK);
        assert_int_equal(r.n, 1);
        assert_string_equal(r.samples[0].text, cases[i].text);
        assert_int_equal(rig_run(&r, "{\"instruction\":\"Q\",\"output\":\"A\",\"system\":\"Mine.\"}"), MT_OK);
        assert_non_null(strstr(r.samples[0].text, "Mine."));
        assert_null(strstr(r.samples[0].text, "You are"));
        assert_null(strstr(r.samples[0].text, "Below"));
        assert_null(strstr(r.samples[0].text, "curious"));
        rig_close(&r);
    }
}

/* GLM-4 is asked with the bare header: the line break after it is the model's to write. */
static void a_line_break_behind_the_header_is_learned_where_the_model_writes_it(void **state)
{
    (void)state;
    rig r;
    mt_str text = { 0 };
    rig_open(&r, TOKENIZER, alpaca(), (mt_sampler_config){ .template = "glm4" });
    assert_int_equal(rig_run(&r, "{\"instruction\":\"Q\",\"output\":\"A\"}"), MT_OK);
    for (int64_t t = 0; t < r.samples[0].n; t++)
        if (r.samples[0].labels[t] >= 0)
            assert_int_equal(mt_tokenizer_decode(r.tok, &r.samples[0].labels[t], 1, false, &text, &r.err), MT_OK);
    assert_string_equal(text.s, "\nA<|user|>");
    mt_str_free(&text);
    rig_close(&r);
}

/* What a template puts before answers though it ignores add_generation_prompt belongs to prompts, in samples and when asked. */
static void a_template_without_a_generation_prompt_opens_answers_all_the_same(void **state)
{
    (void)state;
    static const char chatml[] =
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}";
    static const struct {
        const char *template, *prompt, *sample, *trained;
    } cases[] = {
        { chatml, "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n",
          "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n", "A<|im_end|>" },
        { "{% for m in messages %}{{ m.role + ': ' + m.content + '</s>' }}{% endfor %}",
          "user: Q</s>assistant:", "user: Q</s>assistant: A</s>", " A</s>" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig r;
        mt_str text = { 0 };
        mt_value record;
        const mt_sample *prompt;
        static const char asked[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}]}";
        rig_open(&r, TOKENIZER, mt_record_layout_default(MT_FORMATTING_OPENAI),
                 (mt_sampler_config){ .template_text = cases[i].template, .keep_text = true });
        assert_non_null(strstr(mt_sampler_notice(r.s), "ignores add_generation_prompt"));
        assert_int_equal(rig_run(&r, "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"},"
                                     "{\"role\": \"assistant\", \"content\": \"A\"}]}"),
                         MT_OK);
        assert_int_equal(r.n, 1);
        assert_string_equal(r.samples[0].text, cases[i].sample);
        for (int64_t t = 0; t < r.samples[0].n; t++)
            if (r.samples[0].labels[t] >= 0)
                assert_int_equal(mt_tokenizer_decode(r.tok, &r.samples[0].labels[t], 1, false, &text, &r.err), MT_OK);
        assert_string_equal(text.s, cases[i].trained);
        assert_int_equal(mt_value_parse_json(&record, &r.arena, asked, strlen(asked), NULL, "record", &r.err), MT_OK);
        assert_int_equal(mt_sampler_prompt(r.s, r.w, &record, &prompt, &r.reason, &r.err), MT_OK);
        assert_string_equal(prompt->text, cases[i].prompt);
        mt_str_free(&text);
        rig_close(&r);
    }
}

/* What stands between prompt and answer is the model's to write, unless it is an empty thought. */
static void a_header_after_the_prompt_is_learned(void **state)
{
    rig r;
    (void)state;
    rig_open(&r, TOKENIZER, alpaca(),
             (mt_sampler_config){ .template_text =
                                      "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + "
                                      "'<|im_end|>' }}{% endfor %}{{ '<|im_start|>assistant' if add_generation_prompt }}" });
    assert_int_equal(rig_run(&r, "{\"instruction\":\"Q\",\"output\":\"A\"}"), MT_OK);
    assert_int_equal(r.n, 1);
    mt_str trained = rig_trained(&r, 0);
    assert_string_equal(trained.s, "<|im_sep|>A<|im_end|>");
    mt_str_free(&trained);
    rig_close(&r);
}

static void a_template_that_changes_answers_stops_the_run(void **state)
{
    const char *dir = *state;
    rig r;
    template_model_write(dir,
                         "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | upper }}<|im_end|>\n{% endfor %}{% if "
                         "add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    rig_open(&r, dir, alpaca(), (mt_sampler_config){ 0 });
    assert_int_equal(rig_run(&r, "{\"instruction\":\"Hi\",\"output\":\"Ho ho\"}"), MT_EFORMAT);
    assert_non_null(strstr(r.err.msg, "changes the text of an answer"));
    assert_non_null(strstr(r.err.msg, "Ho ho"));
    assert_non_null(strstr(r.err.msg, "HO HO"));
    rig_close(&r);
}

static void a_template_that_loses_answers_stops_the_run(void **state)
{
    const char *dir = *state;
    rig r;
    template_model_write(dir, "{% for m in messages %}{{ m.content[:4] }}<|im_end|>{% endfor %}");
    rig_open(&r, dir, alpaca(), (mt_sampler_config){ 0 });
    assert_int_equal(rig_run(&r, "{\"instruction\":\"Hi\",\"output\":\"Hello there\"}"), MT_EFORMAT);
    rig_close(&r);
}

static void a_refusal_by_the_template_is_a_bad_record(void **state)
{
    const char *dir = *state;
    rig r;
    template_model_write(dir,
                         "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}{{ "
                         "m.content }}<|im_end|>{% endfor %}");
    rig_open(&r, dir, alpaca(), (mt_sampler_config){ 0 });
    assert_int_equal(rig_run(&r, "{\"instruction\":\"Hi\",\"output\":\"Ho\",\"system\":\"S\"}"), MT_OK);
    assert_int_equal(r.reason, MT_REASON_TEMPLATE);
    assert_non_null(strstr(r.err.msg, "no system here"));
    assert_int_equal(r.n, 0);
    assert_int_equal(rig_run(&r, "{\"instruction\":\"Hi\",\"output\":\"Ho\"}"), MT_OK);
    assert_int_equal(r.n, 1);
    rig_close(&r);
}

/* DeepSeek V3's template joins arguments to text; others want a map. */
static void arguments_take_the_form_the_template_wants(void **state)
{
    const char *dir = *state;
    rig r;
    template_model_write(
        dir, "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.tool_calls %}{{ m.tool_calls[0].function.name + '(' + "
             "m.tool_calls[0].function.arguments + ')' }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if "
             "add_generation_prompt "
             "%}<|im_start|>assistant\n{% endif %}");
    rig_open(&r, dir, mt_record_layout_default(MT_FORMATTING_OPENAI), (mt_sampler_config){ .keep_text = true });
    assert_int_equal(rig_run(&r, "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"tool_calls\":[{"
                                 "\"name\":\"f\",\"arguments\":{\"x\":1}}]}]}"),
                     MT_OK);
    assert_int_equal(r.n, 1);
    assert_non_null(strstr(r.samples[0].text, "f({\"x\": 1})<|im_end|>"));
    rig_close(&r);
}

static void a_template_that_shows_no_calls_stops_the_run(void **state)
{
    const char *dir = *state;
    rig r;
    template_model_write(dir, "{{ 'tools' if tools }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}");
    rig_open(&r, dir, mt_record_layout_default(MT_FORMATTING_OPENAI), (mt_sampler_config){ 0 });
    assert_int_equal(rig_run(&r, "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"tool_calls\":[{"
                                 "\"name\":\"find\",\"arguments\":{}}]}]}"),
                     MT_EFORMAT);
    assert_non_null(strstr(r.err.msg, "does not show tool calls"));
    rig_close(&r);
}

/* GLM-4.5 prints the content beside calls, and Qwen3 looks for text in it. */
static void calls_without_text_have_an_empty_one(void **state)
{
    static const char *const templates[] = {
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function|tojson "
        "}}]{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] if '</think>' in m.content else "
        "m.content }}{% for c in m.tool_calls or [] %}[{{ c.function|tojson }}]{% endfor %}<|im_end|>\n{% endfor %}{% if "
        "add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        /* the first templates of DeepSeek V3 and R1 show calls only beside null */
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is none %}{% for c in m.tool_calls %}[{{ "
        "c.function|tojson }}]{% endfor %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if "
        "add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    };
    static const char *const said[] = { "", "\"content\":null,", "\"content\":\"\"," };
    for (size_t t = 0; t < MT_COUNT(templates); t++) {
        rig r;
        template_model_write(*state, templates[t]);
        rig_open(&r, *state, mt_record_layout_default(MT_FORMATTING_OPENAI), (mt_sampler_config){ .keep_text = true });
        for (size_t i = 0; i < MT_COUNT(said); i++) {
            char record[256];
            snprintf(record, sizeof record,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",%s"
                     "\"tool_calls\":[{\"name\":\"find\",\"arguments\":{}}]}]}",
                     said[i]);
            assert_int_equal(rig_run(&r, record), MT_OK);
            assert_int_equal(r.n, 1);
            assert_non_null(strstr(r.samples[0].text, "assistant\n[{\"name\": \"find\", \"arguments\": {}}]<|im_end|>"));
        }
        rig_close(&r);
    }
}

/* A template that prints every key it is given shows what a missing value becomes. */
static void what_a_record_leaves_out_is_never_a_word(void **state)
{
    static const char *const layouts[] = { "openai", "sharegpt", "alpaca" };
    static const char *const records[][6] = {
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\",\"name\":null},{\"role\":\"assistant\",\"content\":\"A\","
          "\"tool_calls\":null,\"reasoning_content\":null,\"weight\":null}],\"tools\":null,\"system\":null}",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{"
          "\"id\":null,\"name\":\"f\",\"arguments\":null}]},{\"role\":\"tool\",\"name\":null,\"tool_call_id\":null,"
          "\"content\":\"R\"},{\"role\":\"assistant\",\"content\":\"A\",\"tool_calls\":[]}]}",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"thinking\":\"\",\"tool_calls\":[{"
          "\"name\":\"f\"}]}]}" },
        { "{\"conversations\":[{\"from\":\"human\",\"value\":\"Q\"},{\"from\":\"function_call\",\"value\":\"{\\\"name\\\":"
          "\\\"f\\\"}\"},{\"from\":\"observation\",\"value\":\"R\"},{\"from\":\"gpt\",\"value\":\"A\"}],\"system\":null}" },
        { "{\"instruction\":\"Q\",\"input\":null,\"output\":\"A\",\"history\":null,\"system\":null}",
          "{\"instruction\":\"Q\",\"output\":\"\"}" },
    };
    template_model_write(
        *state,
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for k in m %}{% if k not in ['role', 'content', "
        "'tool_calls'] %}{{ m[k] }}{% endif %}{% endfor %}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name "
        "}}{{ c.function.arguments|tojson }}{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
        "%}<|im_start|>assistant\n{% endif %}");
    for (size_t l = 0; l < MT_COUNT(layouts); l++) {
        rig r;
        mt_formatting formatting = l == 0 ? MT_FORMATTING_OPENAI : l == 1 ? MT_FORMATTING_SHAREGPT : MT_FORMATTING_ALPACA;
        rig_open(&r, *state, mt_record_layout_default(formatting), (mt_sampler_config){ .keep_text = true });
        for (size_t i = 0; records[l][i]; i++) {
            assert_int_equal(rig_run(&r, records[l][i]), MT_OK);
            if (r.reason != MT_REASON_NONE) fail_msg("%s: %s", layouts[l], r.err.msg);
            for (size_t k = 0; k < r.n; k++)
                if (strstr(r.samples[k].text, "None") || strstr(r.samples[k].text, "null"))
                    fail_msg("%s record %zu trains \"%s\"", layouts[l], i + 1, r.samples[k].text);
        }
        rig_close(&r);
    }
}

static const char TRIMS_TEXT_BESIDE_CALLS[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ (m.content or '')|trim }}{% for c in m.tool_calls or [] %}[{{ "
    "c.function|tojson }}]{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static void text_beside_calls_may_be_trimmed(void **state)
{
    const char *dir = *state;
    rig r;
    template_model_write(dir, TRIMS_TEXT_BESIDE_CALLS);
    rig_open(&r, dir, mt_record_layout_default(MT_FORMATTING_OPENAI), (mt_sampler_config){ .keep_text = true });
    static const char *const texts[] = { "I look.\\n\\n", " I look.", "I look." };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char record[256];
        snprintf(record, sizeof record,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"%s\","
                 "\"tool_calls\":[{\"name\":\"find\",\"arguments\":{}}]}]}",
                 texts[i]);
        assert_int_equal(rig_run(&r, record), MT_OK);
        assert_int_equal(r.n, 1);
        assert_non_null(strstr(r.samples[0].text, "assistant\nI look.[{\"name\": \"find\", \"arguments\": {}}]<|im_end|>"));
    }
    rig_close(&r);
}

static void templates_may_trim_any_white_space_of_python(void **state)
{
    const char *dir = *state;
    rig r;
    template_model_write(dir, TRIMS_TEXT_BESIDE_CALLS);
    rig_open(&r, dir, mt_record_layout_default(MT_FORMATTING_OPENAI), (mt_sampler_config){ .keep_text = true });
    static const char *const texts[] = { "Blue.\\u00a0", "Blue.\\u3000\\n", "\\u2003Blue.", "Blue.\\f", "\\u00a0" };
    static const char *const kept[] = { "Blue.\xc2\xa0<", "Blue.\xe3\x80\x80\n<",
                                        "\xe2\x80\x83"
                                        "Blue.<",
                                        "Blue.\f<", "\xc2\xa0<" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char record[256];
        snprintf(record, sizeof record,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"%s\"}]}", texts[i]);
        assert_int_equal(rig_run(&r, record), MT_OK);
        assert_int_equal(r.n, 1);
        assert_non_null(strstr(r.samples[0].text, kept[i])); /* the answer as the record has it */
    }
    rig_close(&r);
}

static void a_template_that_drops_text_beside_calls_says_so(void **state)
{
    const char *dir = *state;
    rig r;
    template_model_write(
        dir, "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.tool_calls %}{{ m.tool_calls[0].function|tojson }}"
             "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
             "%}<|im_start|>assistant\n{% endif %}");
    rig_open(&r, dir, mt_record_layout_default(MT_FORMATTING_OPENAI), (mt_sampler_config){ 0 });
    assert_int_equal(rig_run(&r, "{\"messages\":[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"I "
                                 "look.\",\"tool_calls\":[{\"name\":\"find\",\"arguments\":{}}]}]}"),
                     MT_EFORMAT);
    assert_non_null(strstr(r.err.msg, "leaves out the text that an answer has beside its tool calls"));
    assert_non_null(strstr(r.err.msg, "I look."));
    rig_close(&r);
}

static void calls_follow_a_prompt_that_moves_the_system_text(void **state)
{
    const char *dir = *state;
    rig r;
    template_model_write(
        dir,
        "{% set sys = messages[0].content if messages[0].role == 'system' else '' %}{% for m in messages if m.role != 'system' %}"
        "{% if m.role == 'user' %}[Q]{{ sys if loop.last }}{{ m.content }}[A]{% elif m.tool_calls %}"
        "{{ m.tool_calls[0].function|tojson }}<|im_end|>{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}");
    rig_open(&r, dir, mt_record_layout_default(MT_FORMATTING_OPENAI), (mt_sampler_config){ .keep_text = true });
    assert_int_equal(rig_run(&r, "{\"messages\":[{\"role\":\"system\",\"content\":\"S.\"},{\"role\":\"user\",\"content\":\"Q\"},{"
                                 "\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"find\",\"arguments\":{\"x\":1}}]},{\"role\":"
                                 "\"tool\",\"content\":\"7\"},{\"role\":\"assistant\",\"content\":\"It is 7.\"}]}"),
                     MT_OK);
    assert_int_equal(r.n, 2);
    static const char called[] = "[Q]S.Q[A]{\"name\": \"find\", \"arguments\": {\"x\": 1}}<|im_end|>";
    assert_int_equal(r.samples[0].n_text, sizeof called - 1);
    assert_memory_equal(r.samples[0].text, called, sizeof called - 1);
    rig_close(&r);
}

/* ---- plain text ---- */

static void documents_are_learned_whole_and_end_in_eos(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, TOKENIZER, alpaca(), (mt_sampler_config){ 0 });
    assert_int_equal(rig_run(&r, "{\"text\":\"Why is the sky blue?\"}"), MT_OK);
    assert_int_equal(r.n, 1);
    const mt_sample *x = &r.samples[0];
    assert_int_equal(x->ids[x->n - 1], mt_tokenizer_role_id(r.tok, MT_TOK_EOS));
    assert_memory_equal(x->ids, x->labels, (size_t)x->n * sizeof *x->ids);
    assert_int_equal(rig_run(&r, "{\"text\":\"\"}"), MT_OK); /* a blank line of a text file: nothing, and nothing bad */
    assert_int_equal(r.reason, MT_REASON_NONE);
    assert_int_equal(r.n, 0);
    assert_int_equal(rig_run(&r, "{\"text\":null}"), MT_OK);
    assert_int_equal(r.reason, MT_REASON_BAD_ANSWER);
    rig_close(&r);
}

static void documents_alone_need_no_chat_template(void **state)
{
    (void)state;
    rig r;
    mt_record_layout l = alpaca();
    l.text_only = true;
    rig_open(&r, TOKENIZER, l, (mt_sampler_config){ 0 });
    assert_string_equal(mt_sampler_notice(r.s), "");
    assert_int_equal(rig_run(&r, "{\"text\":\"Why?\",\"instruction\":\"unread\"}"), MT_OK);
    assert_int_equal(r.n, 1);
    rig_close(&r);
}

static void long_documents_are_split(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, TOKENIZER, alpaca(), (mt_sampler_config){ .max_seq_len = 4 });
    assert_int_equal(rig_run(&r, "{\"text\":\"Why is the sky blue? Air scatters short waves more than long ones.\"}"), MT_OK);
    assert_true(r.n > 2);
    for (size_t i = 0; i < r.n; i++) assert_true(r.samples[i].n == 4 || i + 1 == r.n);
    assert_int_equal(r.odd.truncated, 0);
    rig_close(&r);
    rig_open(&r, TOKENIZER, alpaca(), (mt_sampler_config){ .max_seq_len = 4, .overlong = MT_OVERLONG_SKIP });
    assert_int_equal(rig_run(&r, "{\"text\":\"Why is the sky blue? Air scatters short waves more than long ones.\"}"), MT_OK);
    assert_int_equal(r.reason, MT_REASON_TOO_LONG);
    rig_close(&r);
}

/* ---- counts ---- */

static void odd_records_are_counted(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, TOKENIZER, mt_record_layout_default(MT_FORMATTING_SHAREGPT), (mt_sampler_config){ .template = "deepseekr1" });
    const char *cut = "{\"conversations\":[{\"from\":\"human\",\"value\":\"Q\"},{\"from\":\"gpt\",\"value\":\"A\"},{\"from\":"
                      "\"human\",\"value\":\"R\"}]}";
    assert_int_equal(rig_run(&r, cut), MT_OK);
    assert_int_equal(rig_run(&r, cut), MT_OK);
    assert_int_equal(r.odd.trailing_user_cut, 2);
    assert_int_equal(r.odd.unrolled, 0);
    assert_int_equal(rig_run(&r, "{\"conversations\":[{\"from\":\"human\",\"value\":\"Q\"},{\"from\":\"gpt\",\"value\":\"A\"},{"
                                 "\"from\":\"human\",\"value\":\"R\"},{\"from\":\"gpt\",\"value\":\"B\"}]}"),
                     MT_OK);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.odd.unrolled, 1);
    rig_close(&r);
}

static void a_bad_record_has_a_reason_and_no_samples(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, TOKENIZER, alpaca(), (mt_sampler_config){ .template = "chatml" });
    assert_int_equal(rig_run(&r, "{\"instruction\":\"Q\",\"output\":null}"), MT_OK);
    assert_int_equal(r.reason, MT_REASON_BAD_ANSWER);
    assert_int_equal(r.n, 0);
    assert_int_equal(rig_run(&r, "{\"instruction\":\"Q\",\"output\":\"A\"}"), MT_OK);
    assert_int_equal(r.reason, MT_REASON_NONE);
    assert_int_equal(r.n, 1);
    for (int i = 0; i < MT_REASONS; i++) assert_true(strlen(mt_reason_text((mt_reason)i)) > 3);
    rig_close(&r);
}

static void the_fingerprint_follows_what_decides_samples(void **state)
{
    (void)state;
    const mt_sampler_config configs[] = { { 0 },
                                          { .max_seq_len = 7 },
                                          { .system_prompt = "S" },
                                          { .default_system = "S" },
                                          { .template = "chatml" },
                                          { .train_on_prompt = true },
                                          { .mask_history = true },
                                          { .history = MT_HISTORY_LAST },
                                          { .overlong = MT_OVERLONG_SKIP } };
    uint64_t seen[MT_COUNT(configs) + 1];
    for (size_t i = 0; i < MT_COUNT(configs); i++) {
        rig r;
        rig_open(&r, TOKENIZER, alpaca(), configs[i]);
        seen[i] = mt_sampler_fingerprint(r.s);
        rig_close(&r);
        for (size_t k = 0; k < i; k++) assert_true(seen[k] != seen[i]);
        rig_open(&r, TOKENIZER, alpaca(), configs[i]);
        assert_true(seen[i] == mt_sampler_fingerprint(r.s));
        rig_close(&r);
    }
}

/* ---- no memory ---- */

static mt_rc whole(const mt_tokenizer *tok, const mt_value *record, mt_err *err)
{
    mt_record_layout l = mt_record_layout_default(MT_FORMATTING_OPENAI);
    mt_sampler *s;
    mt_sampler_scratch *w = NULL;
    const mt_sample *samples;
    size_t n;
    mt_reason reason = MT_REASON_NONE;
    mt_oddities odd = { 0 };
    MT_TRY(mt_sampler_open(&s, tok, &l, &(mt_sampler_config){ .template = "deepseekr1", .keep_text = true }, err));
    mt_rc rc = mt_sampler_scratch_create(&w, s, err);
    if (!rc) rc = mt_sampler_run(s, w, record, &samples, &n, &reason, &odd, err);
    if (!rc) assert_int_equal(reason, MT_REASON_NONE);
    mt_sampler_scratch_free(w);
    mt_sampler_close(s);
    return rc;
}

static void running_out_of_memory_is_said_and_nothing_is_lost(void **state)
{
    (void)state;
    static const char json[] = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"Q\"}]},{\"role\":\"assistant\","
                               "\"content\":\"<think>\\nhm\\n</think>\\n\\nA\"},"
                               "{\"role\":\"user\",\"content\":\"R\"},{\"role\":\"assistant\",\"content\":\"B\"}]}";
    mt_err err = { 0 };
    mt_tokenizer *tok;
    mt_arena arena = { 0 };
    mt_value record;
    assert_ok(mt_tokenizer_open(&tok, TOKENIZER, &err));
    assert_ok(mt_value_parse_json(&record, &arena, json, sizeof json - 1, NULL, "record", &err));
    for (int n = 0;; n++) {
        mt_fault_arm(MT_FAULT_ALLOC, n);
        mt_rc rc = whole(tok, &record, &err);
        if (!mt_fault_disarm()) {
            assert_int_equal(rc, MT_OK);
            assert_true(n > 20);
            break;
        }
        if (rc != MT_ENOMEM) fail_msg("allocation %d: %s: %s", n, mt_rc_name(rc), err.msg);
    }
    mt_arena_free(&arena);
    mt_tokenizer_close(tok);
}

/* Every answer needs a rendering of all turns before it.  Those after max_seq_len are not asked for: this template refuses to be
 * rendered with a number of turns that only they have. */
static void turns_behind_max_seq_len_are_not_rendered(void **state)
{
    enum { TURNS = 1000 };
    static const char *const headers[] = {
        "<|im_start|>{{ m.role }}\n", /* one sample */
        "<|im_start|>{{ m.role }}{% if loop.last %} now{% endif %}\n"
    }; /* one for each answer */
    const char *dir = *state;
    mt_str json = { 0 };
    mt_str_puts(&json, "{\"messages\": [");
    for (int i = 0; i < TURNS; i++)
        mt_str_printf(&json, "%s{\"role\": \"%s\", \"content\": \"word %d\"}", i ? ", " : "", i % 2 ? "assistant" : "user", i);
    mt_str_puts(&json, "]}");
    for (size_t i = 0; i < MT_COUNT(headers); i++) {
        rig r;
        char text[1024];
        snprintf(
            text, sizeof text,
            "{%% if messages|length > 200 and messages|length < %d %%}{{ raise_exception('rendered for nothing') }}{%% endif %%}"
            "{%% for m in messages %%}%s{{ m.content }}<|im_end|>{%% endfor %%}"
            "{%% if add_generation_prompt %%}<|im_start|>assistant%s\n{%% endif %%}",
            TURNS, headers[i], i ? " now" : "");
        template_model_write(dir, text);
        rig_open(&r, dir, mt_record_layout_default(MT_FORMATTING_OPENAI), (mt_sampler_config){ .max_seq_len = 120 });
        assert_int_equal(rig_run(&r, json.s), MT_OK);
        if (r.reason != MT_REASON_NONE) fail_msg("%s", r.err.msg);
        assert_true(i == 0 ? r.n == 1 : r.n > 3);
        assert_int_equal(r.odd.unrolled, i);
        if (i) assert_int_equal(r.odd.turns_without_room, TURNS / 2 - (int64_t)r.n);
        if (!i) assert_int_equal(r.odd.answers_cut, 1);
        rig_close(&r);
    }
    mt_str_free(&json);
}

MT_TEST_MAIN(cmocka_unit_test_setup_teardown(turns_behind_max_seq_len_are_not_rendered, tempdir_make, tempdir_remove),
             cmocka_unit_test(a_model_without_a_template_gets_the_plain_form_and_a_notice),
             cmocka_unit_test(unknown_templates_suggest_the_nearest), cmocka_unit_test(built_in_templates_train_answer_and_end),
             cmocka_unit_test(conversations_without_a_system_message_get_the_one_of_the_template),
             cmocka_unit_test(a_line_break_behind_the_header_is_learned_where_the_model_writes_it),
             cmocka_unit_test(a_template_without_a_generation_prompt_opens_answers_all_the_same),
             cmocka_unit_test(a_header_after_the_prompt_is_learned),
             cmocka_unit_test_setup_teardown(a_template_that_changes_answers_stops_the_run, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(a_template_that_loses_answers_stops_the_run, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(a_refusal_by_the_template_is_a_bad_record, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(arguments_take_the_form_the_template_wants, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(calls_without_text_have_an_empty_one, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(what_a_record_leaves_out_is_never_a_word, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(a_template_that_shows_no_calls_stops_the_run, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(calls_follow_a_prompt_that_moves_the_system_text, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(text_beside_calls_may_be_trimmed, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(templates_may_trim_any_white_space_of_python, tempdir_make, tempdir_remove),
             cmocka_unit_test_setup_teardown(a_template_that_drops_text_beside_calls_says_so, tempdir_make, tempdir_remove),
             cmocka_unit_test(running_out_of_memory_is_said_and_nothing_is_lost),
             cmocka_unit_test(documents_are_learned_whole_and_end_in_eos),
             cmocka_unit_test(documents_alone_need_no_chat_template), cmocka_unit_test(long_documents_are_split),
             cmocka_unit_test(odd_records_are_counted), cmocka_unit_test(a_bad_record_has_a_reason_and_no_samples),
             cmocka_unit_test(the_fingerprint_follows_what_decides_samples))
