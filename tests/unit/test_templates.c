/* Chat templates by name: which template a name means on which model, what LLaMA-Factory's names write, thoughts, and tools where
 * a template has no place for them. */
#include "archives.h"
#include "sampler_rig.h"

#include "data/templates.h"

static mt_record_layout alpaca(void) { return mt_record_layout_default(MT_FORMATTING_ALPACA); }
static mt_record_layout openai(void) { return mt_record_layout_default(MT_FORMATTING_OPENAI); }

/* A chat template of tests/golden/jinja/templates; the caller frees it. */
static char *template_text(const char *name)
{
    mt_err err = { 0 };
    char path[512], *text;
    snprintf(path, sizeof path, MT_TESTS_DIR "/golden/jinja/templates/%s.jinja", name);
    assert_ok(mt_file_read(&text, NULL, path, 1 << 20, &err));
    return text;
}

static void write_golden_template(const char *dir, const char *name)
{
    char *text = template_text(name);
    template_model_write(dir, text);
    mt_free(text);
}

/* ---- a vocabulary that has every special token of the table: bytes, and these ---- */

static const char *const specials[] = { "<s>",
                                        "</s>",
                                        "<|im_start|>",
                                        "<|im_end|>",
                                        "<|begin_of_sentence|>",
                                        "<|end_of_sentence|>",
                                        "[|system|]",
                                        "[|user|]",
                                        "[|assistant|]",
                                        "[|endofturn|]",
                                        "<|EOT|>",
                                        "<|startoftext|>",
                                        "<|extra_0|>",
                                        "<|extra_4|>",
                                        "<|eos|>",
                                        "<|start|>",
                                        "<|message|>",
                                        "<|channel|>",
                                        "<|end|>",
                                        "<|return|>",
                                        "<|im_system|>",
                                        "<|im_user|>",
                                        "<|im_assistant|>",
                                        "<|im_middle|>",
                                        "]~!b[",
                                        "]~b]",
                                        "[e~[",
                                        "<｜hy_begin▁of▁sentence｜>",
                                        "<｜hy_User｜>",
                                        "<｜hy_place▁holder▁no▁8｜>",
                                        "<｜hy_place▁holder▁no▁2｜>",
                                        "<｜hy_place▁holder▁no▁3｜>",
                                        "<|start_header_id|>",
                                        "<|end_header_id|>",
                                        "<|eot_id|>",
                                        "<|system|>",
                                        "<|user|>",
                                        "<|assistant|>",
                                        "[gMASK]",
                                        "<sop>",
                                        "<reserved_102>",
                                        "<reserved_103>" };

static void write_tokenizer(const char *dir)
{
    mt_str s = { 0 };
    char path[512];
    mt_str_puts(&s, "{\"added_tokens\": [");
    for (size_t i = 0; i < MT_COUNT(specials); i++)
        mt_str_printf(&s, "%s{\"id\": %zu, \"content\": \"%s\", \"special\": true}", i ? ", " : "", i, specials[i]);
    mt_str_puts(
        &s,
        "], \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"decoder\": {\"type\": \"ByteLevel\"}, "
        "\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    for (size_t i = 0; i < MT_COUNT(specials); i++) mt_str_printf(&s, "\"%s\": %zu, ", specials[i], i);
    for (int c = '!'; c <= '~'; c++) mt_str_printf(&s, "\"%s%c\": %d, ", c == '"' || c == '\\' ? "\\" : "", c, 100 + c);
    mt_str_puts(&s, "\"\xc4\xa0\": 300, \"\xc4\x8a\": 301}}}"); /* space and line break, as byte-level vocabularies spell them */
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(s.s, f);
    fclose(f);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}", f);
    fclose(f);
    mt_str_free(&s);
}

#define CODER(model, maker)                                                                                                      \
    "You are an AI programming assistant, utilizing the " model " model, developed by " maker                                    \
    ", and you only answer questions related to computer science. For politically sensitive questions, security and privacy "    \
    "issues, and other non-computer science questions, you will refuse to answer.\n"
#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"

/* Two turns as LLaMA-Factory writes them under these names, or as the model's own template does where docs/llama-factory.md says
 * so (an eos after every answer, the space before it). */
static void names_of_llama_factory_write_turns_as_there(void **state)
{
    static const struct {
        const char *name, *text;
    } cases[] = {
        { "chatml_de", "<|im_start|>system\nDu bist ein freundlicher und hilfsbereiter "
                       "KI-Assistent.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
                       "<|im_start|>assistant\nA<|im_end|>\n" },
        { "qwen3", "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { "qwen3_nothink", "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { "yi", "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { "mimo", "<|im_start|>system\nYou are a helpful "
                  "assistant.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { "opencoder",
          "<|im_start|>system\nYou are OpenCoder, created by OpenCoder Team.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
          "<|im_start|>assistant\nA<|im_end|>\n" },
        { "sailor",
          "<|im_start|>system\nYou are an AI assistant named Sailor created by Sea AI Lab. Your answer should be friendly, "
          "unbiased, "
          "faithful, informative and detailed.<|im_end|>\n<|im_start|>question\nQ<|im_end|>\n<|im_start|>answer\nA<|im_end|>\n" },
        { "ernie", "<|im_start|>system\n<global_setting>\nthink_mode=True\n</"
                   "global_setting><|im_end|>\n\n<|im_start|>user\nQ<|im_end|>\n\n"
                   "<|im_start|>assistant\nA<|im_end|>\n\n" },
        { "ernie_nothink", "<|begin_of_sentence|>User: Q\nAssistant: A<|end_of_sentence|>" },
        { "exaone", "[|user|]Q\n[|assistant|]A</s>\n" },
        { "seed_oss", "<s>user\nQ</s><s>assistant\nA</s>" },
        { "seed_coder", "<s>system\n" CODER("Seed-Coder", "ByteDance Seed") "\n</s><s>user\nQ</s><s>assistant\nA</s>" },
        { "glmz1", "[gMASK]<sop><|user|>\nQ<|assistant|>\nA<|user|>" },
        { "glm4_7", "[gMASK]<sop><|user|>\nQ<|assistant|>\nA<|user|>" },
        { "aeva",
          "[gMASK]<sop><|system|>\nYou are an AI assistant named Aeva created by Zongzhi Lou. Your answer should be friendly, "
          "unbiased, faithful, informative and detailed.<|user|>\nQ<|assistant|>\nA<|user|>" },
        { "qwen3_5", "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { "qwen3_5_nothink", "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { "moonlight", "<|im_system|>system<|im_middle|>You are a helpful assistant provided by Moonshot-AI.<|im_end|>"
                       "<|im_user|>user<|im_middle|>Q<|im_end|><|im_assistant|>assistant<|im_middle|>A<|im_end|>" },
        { "minimax2", "]~!b[]~b]system\nYou are a helpful assistant. Your name is MiniMax-M2.1 and is built by MiniMax.[e~[\n"
                      "]~b]user\nQ[e~[\n]~b]ai\nA[e~[\n" },
        { "hunyuan_small", "<｜hy_begin▁of▁sentence｜><｜hy_User｜>Q<｜hy_place▁holder▁no▁8｜>A<｜hy_place▁holder▁no▁2｜>" },
        { "deepseekcoder", "<s>" CODER("DeepSeek Coder", "DeepSeek Company") "### Instruction:\nQ\n### Response:\nA\n<|EOT|>\n" },
        { "openchat", "<s>GPT4 Correct User: Q</s>GPT4 Correct Assistant: A</s>" },
        { "openchat-3.6", "<s>" HEADER("GPT4 Correct User") "Q<|eot_id|>" HEADER("GPT4 Correct Assistant") "A<|eot_id|>" },
        { "solar", "### User:\nQ\n\n### Assistant:\nA</s>\n\n" },
        { "hunyuan", "<|startoftext|>Q<|extra_0|>A<|eos|>" },
        { "gpt_oss", "<|start|>system<|message|>You are ChatGPT, a large language model trained by "
                     "OpenAI.<|end|><|start|>user<|message|>Q<|end|>"
                     "<|start|>assistant<|channel|>final<|message|>A<|return|>" },
        { "baichuan", "<reserved_102>Q<reserved_103>A</s>" },
        { "breeze", "<s>[INST] Q [/INST] A</s>" },
        { "atom", "<s>Human: Q\n</s><s>Assistant:A\n</s>" },
        { "ziya", "<human>:Q\n<bot>:A</s>\n" },
        { "starchat", "<|user|>\nQ<|end|>\n<|assistant|>A<|end|>\n" },
        { "fewshot", "QA</s>\n\n" },
    };
    write_tokenizer(*state);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig r;
        const char *used;
        rig_open(&r, *state, alpaca(), (mt_sampler_config){ .template = cases[i].name, .keep_text = true });
        mt_sampler_template(r.s, &used);
        assert_string_equal(used, cases[i].name);
        assert_int_equal(rig_run(&r, "{\"instruction\": \"Q\", \"output\": \"A\"}"), MT_OK);
        if (r.n != 1 || strcmp(r.samples[0].text, cases[i].text) != 0)
            fail_msg("%s: %s%s", cases[i].name, r.n ? r.samples[0].text : "", r.reason ? r.err.msg : "");
        mt_str trained = rig_trained(&r, 0);
        if (!strstr(trained.s, "A") || strstr(trained.s, "Q")) fail_msg("%s trains \"%s\"", cases[i].name, trained.s);
        if (!strstr(trained.s, mt_sampler_end(r.s))) fail_msg("%s: the end is not trained: \"%s\"", cases[i].name, trained.s);
        mt_str_free(&trained);
        assert_int_equal(rig_run(&r, "{\"instruction\": \"Q\", \"output\": \"A\", \"system\": \"Be kind.\"}"), MT_OK);
        if (r.n != 1 || !strstr(r.samples[0].text, "Be kind.") || strstr(r.samples[0].text, "You are"))
            fail_msg("%s with a system message: %s", cases[i].name, r.n ? r.samples[0].text : r.err.msg);
        rig_close(&r);
    }
}

/* A name in the page, not a part of a longer one. */
static bool page_has(const char *page, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = page; (p = strstr(p, name)); p++)
        if (strchr(" (|", p[-1]) && strchr(" ,;)|.\n", p[n])) return true;
    return false;
}

/* Each of LLaMA-Factory's names is a template here, or its models are known not to be trained here. */
static void names_of_llama_factory_are_known_or_refused_as_what_they_are(void **state)
{
    mt_err err = { 0 };
    char *text, *rest, near[64];
    size_t n_here = 0, n_foreign = 0;
    (void)state;
    assert_ok(mt_file_read(&text, NULL, MT_TESTS_DIR "/unit/llama_factory_templates.txt", 1 << 20, &err));
    for (char *name = strtok_r(text, "\n", &rest); name; name = strtok_r(NULL, "\n", &rest)) {
        if (*name == '#') continue;
        bool here = mt_template_find(name) != NULL, foreign = mt_template_foreign(name) != NULL;
        if (here == foreign) fail_msg("LLaMA-Factory's template %s is %s", name, here ? "known twice" : "unknown");
        n_here += here;
        n_foreign += foreign;
    }
    assert_int_equal(n_here + n_foreign, 121);
    assert_int_equal(n_here, 67);
    mt_free(text);
    static const char *const cases[][2] = { { "lama3", "llama3" }, { "qwen2_5", "qwen2.5" }, { "qwen4", "" },
                                            { "gemma5", "" },      { "glm4_8", "" },         { "qwen3_7", "" },
                                            { "phi5", "" },        { "chatlm", "chatml" },   { "gpt-oss", "gpt_oss" } };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_template_nearest(cases[i][0], near);
        if (strcmp(near, cases[i][1]) != 0) fail_msg("for %s, \"%s\" is suggested", cases[i][0], near);
    }
}

/* A name of LLaMA-Factory whose text is another here says so, with the way to get that. */
static void a_text_that_is_not_llama_factorys_is_remarked(void **state)
{
    static const struct {
        const char *golden, *name, *says;
    } cases[] = {
        { NULL, "chatml", "" },
        { NULL, "llama3", "" },
        { NULL, "gemma2", "dataset.template gemma2: <end_of_turn> alone ends an answer" },
        { NULL, "glm4",
          "dataset.template glm4: <|user|> ends an answer, as GLM-4 stops, unlike in LLaMA-Factory; for another text" },
        { NULL, "default", "eos ends an answer, unlike in LLaMA-Factory" },
        { "qwen25", "qwen", "dataset.template qwen: the model's own template is of that family and is used" },
        { "qwen25", "auto", "" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig r;
        if (cases[i].golden) write_golden_template(*state, cases[i].golden);
        rig_open(&r, cases[i].golden ? *state : TOKENIZER, alpaca(), (mt_sampler_config){ .template = cases[i].name });
        const char *says = mt_sampler_remark(r.s);
        if (*cases[i].says ? !strstr(says, cases[i].says) : *says) fail_msg("%s: \"%s\"", cases[i].name, says);
        rig_close(&r);
    }
}

static void the_documentation_lists_every_name(void **state)
{
    mt_err err = { 0 };
    char *page;
    const mt_template *t;
    (void)state;
    assert_ok(mt_file_read(&page, NULL, MT_TESTS_DIR "/../docs/training-samples.md", 1 << 20, &err));
    for (size_t i = 0; (t = mt_template_at(i)); i++)
        if (!page_has(page, t->name)) fail_msg("docs/training-samples.md does not list the template %s", t->name);
    assert_null(mt_template_find("no such template"));
    mt_free(page);
}

/* ---- which template a name means ---- */

static mt_rc try_template(const char *dir, const char *name, mt_err *err)
{
    mt_err ignored = { 0 };
    mt_tokenizer *tok;
    mt_sampler *s = NULL;
    mt_record_layout l = alpaca();
    assert_int_equal(mt_tokenizer_open(&tok, dir, &ignored), MT_OK);
    mt_rc rc = mt_sampler_open(&s, tok, &l, &(mt_sampler_config){ .template = name }, err);
    mt_sampler_close(s);
    mt_tokenizer_close(tok);
    return rc;
}

static void a_template_that_does_not_fit_stops_the_run(void **state)
{
    mt_err err = { 0 };
    assert_int_equal(try_template(TOKENIZER, "granite3", &err), MT_EINVAL);
    assert_says("the chat template \"granite3\" does not fit this tokenizer: it needs <|start_of_role|>");
    assert_says("The model has no template; alpaca, vicuna and default");
    write_golden_template(*state, "chatml");
    assert_int_equal(try_template(*state, "granite3", &err), MT_EINVAL);
    assert_says("Leave dataset.template out, or write auto, to use the model's own");
    assert_ok(try_template(*state, "auto", &err));
}

static const char *template_used(const char *dir, const char *name, char *out, size_t room)
{
    rig r;
    const char *used;
    rig_open(&r, dir, openai(), (mt_sampler_config){ .template = name });
    mt_sampler_template(r.s, &used);
    assert_true((mt_sampler_new_template(r.s) == NULL) == (strcmp(used, "the model's own") == 0)); /* saved with the model */
    snprintf(out, room, "%s", used);
    rig_close(&r);
    return out;
}

static void the_name_of_a_family_means_the_models_own_template(void **state)
{
    static const struct {
        const char *golden, *name, *used;
    } cases[] = {
        { "qwen25", "", "the model's own" },
        { "qwen25", "auto", "the model's own" },
        { "qwen25", "qwen", "the model's own" },
        { "qwen25", "qwen3", "the model's own" },
        { "qwen25", "chatml", "chatml" },
        { "qwen25", "alpaca", "alpaca" },
        { "qwen25", "llama3", "llama3" },
        { "qwen25", "mistral", "mistral" },
        { "qwen3_thinking", "qwen3", "the model's own" },
        { "qwen3_thinking", "qwen3_nothink", "the model's own" },
        { "llama3", "llama3", "the model's own" },
        { "llama2", "llama2", "the model's own" },
        { "llama2", "mistral", "mistral" },
        { "gemma", "gemma", "the model's own" },
        { "glm4", "glm4", "the model's own" },
        { "phi4", "phi4", "the model's own" },
        { "zephyr", "zephyr", "the model's own" },
        { "deepseek_r1", "deepseekr1", "the model's own" },
        { "vicuna", "vicuna", "vicuna" },
    };
    char used[64];
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        write_golden_template(*state, cases[i].golden);
        if (strcmp(template_used(*state, cases[i].name, used, sizeof used), cases[i].used) != 0)
            fail_msg("\"%s\" on a model with %s: %s", cases[i].name, cases[i].golden, used);
    }
}

/* Who names a template gets one, however broken the model's own is. */
static void a_broken_template_of_the_model_gives_way_to_a_named_one(void **state)
{
    static const char *const broken[] = { "{% for m in messages %}", "{% include 'x' %}", "{{ raise_exception('no') }}" };
    char used[64];
    for (size_t i = 0; i < MT_COUNT(broken); i++) {
        template_model_write(*state, broken[i]);
        assert_string_equal(template_used(*state, "qwen", used, sizeof used), "qwen");
    }
}

#define WEATHER                                                                                                                  \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"description\": \"Weather of a city\", "        \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"description\": \"its name\"}, "  \
    "\"days\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}}, \"unit\": {\"type\": \"string\", \"enum\": [\"C\", "   \
    "\"F\"]}}, \"required\": [\"city\"]}}}]"
#define WITH_TOOLS                                                                                                               \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Rain?\"}, {\"role\": \"assistant\", \"tool_calls\": [{\"name\": "       \
    "\"weather\", \"arguments\": {\"city\": \"Rome\"}}]}, {\"role\": \"tool\", \"content\": \"dry\"}, {\"role\": "               \
    "\"assistant\", "                                                                                                            \
    "\"content\": \"No.\"}], " WEATHER "}"

static void tool_data_works_under_the_name_of_the_family(void **state)
{
    rig r;
    write_golden_template(*state, "qwen25");
    rig_open(&r, *state, openai(), (mt_sampler_config){ .template = "qwen", .keep_text = true });
    assert_int_equal(rig_run(&r, WITH_TOOLS), MT_OK);
    if (r.reason) fail_msg("%s", r.err.msg);
    assert_non_null(strstr(r.samples[0].text, "<tool_call>\n{\"name\": \"weather\""));
    assert_int_equal(r.odd.tools_as_text, 0);
    rig_close(&r);
}

/* Gemma's own template refuses system turns; LLaMA-Factory puts their text before the first question. */
static void a_family_whose_template_refuses_system_turns_gets_them_in_the_question(void **state)
{
    static const char record[] = "{\"instruction\": \"Q\", \"output\": \"A\", \"system\": \"Be kind.\"}";
    rig r;
    template_model_write(
        *state,
        "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content + "
        "'<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}");
    rig_open(&r, *state, alpaca(), (mt_sampler_config){ .template = "gemma2", .keep_text = true });
    assert_null(mt_sampler_new_template(r.s));
    assert_int_equal(rig_run(&r, record), MT_OK);
    assert_int_equal(r.n, 1);
    assert_string_equal(r.samples[0].text,
                        "<s><start_of_turn>user\nBe kind.\n\nQ<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n");
    rig_close(&r);
    rig_open(&r, *state, alpaca(), (mt_sampler_config){ 0 });
    assert_int_equal(rig_run(&r, record), MT_OK);
    assert_int_equal(r.reason, MT_REASON_TEMPLATE); /* no family is named: the template's word holds */
    rig_close(&r);
}

/* ---- tools where the template has no place for them ---- */

#define DESCRIBED                                                                                                                \
    "You have access to the following tools:\n> Tool Name: weather\nTool Description: Weather of a city\nTool Args:\n"           \
    "  - city (string, required): its name\n  - days (array): , where each item should be integer\n"                             \
    "  - unit (string): , should be one of [C, F]\n\nUse the following format if using a tool:\n```\nAction: tool name (one of " \
    "[weather])\nAction Input: the input to the tool, in a JSON format representing the kwargs (e.g. ```{\"input\": \"hello "    \
    "world\", \"num_beams\": 5}```)\n```\n"

static void tools_are_text_where_a_template_has_no_place_for_them(void **state)
{
    rig r;
    (void)state;
    rig_open(&r, TOKENIZER, openai(), (mt_sampler_config){ .template = "chatml", .keep_text = true });
    assert_int_equal(rig_run(&r, WITH_TOOLS), MT_OK);
    if (r.reason) fail_msg("%s", r.err.msg);
    assert_int_equal(r.n, 1);
    assert_string_equal(r.samples[0].text,
                        "<|im_start|>system\n" DESCRIBED "<|im_end|>\n<|im_start|>user\nRain?<|im_end|>\n"
                        "<|im_start|>assistant\nAction: weather\nAction Input: {\"city\": \"Rome\"}<|im_end|>\n"
                        "<|im_start|>user\ndry<|im_end|>\n<|im_start|>assistant\nNo.<|im_end|>\n");
    mt_str trained = rig_trained(&r, 0);
    assert_string_equal(trained.s, "Action: weather\nAction Input: {\"city\": \"Rome\"}<|im_end|>No.<|im_end|>");
    assert_int_equal(r.odd.tools_as_text, 1);
    mt_str_free(&trained);
    rig_close(&r);
}

static void several_calls_and_results_share_their_turns(void **state)
{
    rig r;
    (void)state;
    rig_open(&r, TOKENIZER, openai(), (mt_sampler_config){ .template = "chatml", .keep_text = true });
    assert_int_equal(
        rig_run(
            &r,
            "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\\n\"}, {\"role\": \"user\", \"content\": \"Q\"}, "
            "{\"role\": \"assistant\", \"content\": \"Let me look.\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": {}}, "
            "{\"name\": \"g\", \"arguments\": {\"x\": 1}}]}, {\"role\": \"tool\", \"content\": \"one\"}, {\"role\": \"tool\", "
            "\"content\": \"two\"}, {\"role\": \"assistant\", \"content\": \"Done.\"}], \"tools\": [{\"name\": \"f\"}]}"),
        MT_OK);
    if (r.reason) fail_msg("%s", r.err.msg);
    assert_non_null(
        strstr(r.samples[0].text, "<|im_start|>system\nBe kind.\nYou have access to the following tools:\n> Tool Name: f\n"));
    assert_non_null(
        strstr(r.samples[0].text,
               "assistant\nLet me look.\nAction: f\nAction Input: {}\nAction: g\nAction Input: {\"x\": 1}<|im_end|>"));
    assert_non_null(strstr(r.samples[0].text, "<|im_start|>user\none\ntwo<|im_end|>"));
    rig_close(&r);
}

/* LLaMA-Factory's own way of writing such records. */
static void calls_of_the_sharegpt_layout_are_text_as_well(void **state)
{
    rig r;
    mt_record_layout l = mt_record_layout_default(MT_FORMATTING_SHAREGPT);
    (void)state;
    l.tools = "tools";
    rig_open(&r, TOKENIZER, l, (mt_sampler_config){ .template = "llama3", .keep_text = true });
    assert_int_equal(
        rig_run(
            &r,
            "{\"conversations\": [{\"from\": \"human\", \"value\": \"Rain?\"}, {\"from\": \"function_call\", \"value\": "
            "\"<think>\\nhm\\n</think>\\n\\n{\\\"name\\\": \\\"weather\\\", \\\"arguments\\\": {\\\"city\\\": \\\"Łódź\\\"}}\"}, "
            "{\"from\": \"observation\", \"value\": \"dry\"}, {\"from\": \"gpt\", \"value\": \"No.\"}], \"tools\": "
            "\"[{\\\"name\\\": \\\"weather\\\"}]\"}"),
        MT_OK);
    if (r.reason) fail_msg("%s", r.err.msg);
    assert_non_null(
        strstr(r.samples[0].text,
               "<|end_header_id|>\n\n<think>\nhm\n</think>\n\nAction: weather\nAction Input: {\"city\": \"Łódź\"}<|eot_id|>"));
    assert_non_null(strstr(r.samples[0].text, "user<|end_header_id|>\n\ndry<|eot_id|>"));
    rig_close(&r);
}

/* ---- thoughts ---- */

#define R1                                                                                                                       \
    "<\xef\xbd\x9c"                                                                                                              \
    "Assistant\xef\xbd\x9c>"
#define R1_END                                                                                                                   \
    "<\xef\xbd\x9c"                                                                                                              \
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"
#define IM "<|im_start|>assistant\n"

static void answers_without_a_thought_are_completed_as_asked(void **state)
{
    static const struct {
        const char *golden, *template;
        mt_empty_thought mode;
        const char *kwargs, *answer, *tail, *trained;
        int open; /* thoughts that nothing closes */
    } cases[] = {
        /* the prompt opens a thought: it is closed, which is learned unless it belongs to the prompt */
        { "deepseek_r1", "", MT_THOUGHT_AUTO, NULL, "A", R1 "<think>\n\n</think>\n\nA" R1_END, "\n</think>\n\nA" R1_END, 0 },
        { "deepseek_r1", "", MT_THOUGHT_PROMPT, NULL, "A", R1 "<think>\n\n</think>\n\nA" R1_END, "A" R1_END, 0 },
        { "deepseek_r1", "", MT_THOUGHT_TRAINED, NULL, "A", R1 "<think>\n\n</think>\n\nA" R1_END, "\n</think>\n\nA" R1_END, 0 },
        { "deepseek_r1", "", MT_THOUGHT_NONE, NULL, "A", R1 "<think>\nA" R1_END, "A" R1_END, 1 },
        { "deepseek_r1", "", MT_THOUGHT_AUTO, "{\"enable_thinking\": false}", "A", R1 "<think>\n\n</think>\n\nA" R1_END,
          "A" R1_END, 0 },
        { "deepseek_r1", "", MT_THOUGHT_AUTO, NULL, "<think>\\nhm\\n</think>\\n\\nA", R1 "<think>\nhm\n</think>\n\nA" R1_END,
          "hm\n</think>\n\nA" R1_END, 0 },
        { "deepseek_r1", "", MT_THOUGHT_AUTO, "{\"enable_thinking\": false}", "<think>\\nhm\\n</think>\\n\\nA",
          R1 "<think>\n\n</think>\n\nA" R1_END, "A" R1_END, 0 },
        { "deepseek_r1", "", MT_THOUGHT_AUTO, NULL, "<think>\\nhm", R1 "<think>\nhm" R1_END, "hm" R1_END, 1 },
        { NULL, "deepseekr1", MT_THOUGHT_AUTO, NULL, "A", R1 "<think>\n\n</think>\n\nA</s>", "\n</think>\n\nA</s>", 0 },
        /* the template shows an empty thought by itself: learned or in the prompt as enable_thinking says, else left out */
        { "qwen3_thinking", "", MT_THOUGHT_AUTO, NULL, "A", IM "A<|im_end|>", "A<|im_end|>", 0 },
        { "qwen3_thinking", "", MT_THOUGHT_AUTO, "{\"enable_thinking\": true}", "A", IM "<think>\n\n</think>\n\nA<|im_end|>",
          "<think>\n\n</think>\n\nA<|im_end|>", 0 },
        { "qwen3_thinking", "", MT_THOUGHT_AUTO, "{\"enable_thinking\": false}", "A", IM "<think>\n\n</think>\n\nA<|im_end|>\n",
          "A<|im_end|>", 0 },
        { "qwen3_thinking", "", MT_THOUGHT_PROMPT, NULL, "A", IM "<think>\n\n</think>\n\nA<|im_end|>", "A<|im_end|>", 0 },
        { "qwen3_thinking", "qwen3", MT_THOUGHT_TRAINED, NULL, "A", IM "<think>\n\n</think>\n\nA<|im_end|>",
          "<think>\n\n</think>\n\nA<|im_end|>", 0 },
        { "qwen3_thinking", "qwen3_nothink", MT_THOUGHT_TRAINED, NULL, "A", IM "A<|im_end|>", "A<|im_end|>", 0 },
        { "qwen3_thinking", "", MT_THOUGHT_TRAINED, NULL, "<think>\\nhm\\n</think>\\n\\nA",
          IM "<think>\nhm\n</think>\n\nA<|im_end|>\n", "<think>\nhm\n</think>\n\nA<|im_end|>", 0 },
        { "qwen3_thinking", "", MT_THOUGHT_AUTO, "{\"enable_thinking\": false}", "<think>\\nhm\\n</think>\\n\\nA",
          IM "<think>\n\n</think>\n\nA<|im_end|>\n", "A<|im_end|>", 0 },
        /* a built-in one of a family that thinks, and one that does not */
        { NULL, "qwen3", MT_THOUGHT_TRAINED, NULL, "A", IM "<think>\n\n</think>\n\nA<|im_end|>",
          "<think>\n\n</think>\n\nA<|im_end|>", 0 },
        { NULL, "seed_oss", MT_THOUGHT_TRAINED, NULL, "A", "assistant\n<seed:think></seed:think>A</s>",
          "<seed:think></seed:think>A</s>", 0 },
        { NULL, "glmz1", MT_THOUGHT_TRAINED, NULL, "A", "<|assistant|>\n<think>\n\n</think>\n\nA<|user|>",
          "\n<think>\n\n</think>\n\nA<|user|>", 0 },
        { NULL, "qwen", MT_THOUGHT_TRAINED, NULL, "A", IM "A<|im_end|>\n", "A<|im_end|>", 0 },
        { "qwen25", "", MT_THOUGHT_TRAINED, NULL, "A", IM "A<|im_end|>\n", "A<|im_end|>", 0 },
        { "qwen25", "", MT_THOUGHT_AUTO, "{\"enable_thinking\": false}", "<think>hm</think>A",
          IM "<think>hm</think>A<|im_end|>\n", "<think>hm</think>A<|im_end|>", 0 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig r;
        mt_err err = { 0 };
        mt_arena arena = { 0 };
        mt_value kwargs = { .type = MT_VALUE_NULL };
        char record[256];
        if (cases[i].golden) write_golden_template(*state, cases[i].golden);
        if (cases[i].kwargs)
            assert_ok(mt_value_parse_json(&kwargs, &arena, cases[i].kwargs, strlen(cases[i].kwargs), NULL, "kwargs", &err));
        rig_open(
            &r, cases[i].golden ? *state : TOKENIZER, alpaca(),
            (mt_sampler_config){
                .template = cases[i].template, .template_kwargs = &kwargs, .empty_thought = cases[i].mode, .keep_text = true });
        snprintf(record, sizeof record, "{\"instruction\": \"Q\", \"output\": \"%s\"}", cases[i].answer);
        assert_int_equal(rig_run(&r, record), MT_OK);
        if (r.n != 1) fail_msg("case %zu: %s", i, r.err.msg);
        size_t n = strlen(r.samples[0].text), k = strlen(cases[i].tail);
        if (n < k || strcmp(r.samples[0].text + n - k, cases[i].tail) != 0) fail_msg("case %zu: %s", i, r.samples[0].text);
        mt_str trained = rig_trained(&r, 0);
        if (strcmp(trained.s, cases[i].trained) != 0) fail_msg("case %zu trains \"%s\"", i, trained.s);
        if (r.odd.thoughts_open != cases[i].open) fail_msg("case %zu: %d thoughts stay open", i, (int)r.odd.thoughts_open);
        mt_str_free(&trained);
        mt_arena_free(&arena);
        rig_close(&r);
    }
}

/* A template may open a thought in the prompt and show it, empty, in the turn: it stands there once. */
#define OPENS_AND_SHOWS                                                                                                          \
    "{{ 'tools' if tools }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{{ "        \
    "'<think>\\n\\n</think>\\n\\n' }}{% endif %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ 'call ' + "             \
    "c.function.name "                                                                                                           \
    "+ (c.function.arguments | string) }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n<think>\\n' "  \
    "if "                                                                                                                        \
    "add_generation_prompt }}"

static void a_thought_that_the_template_shows_is_not_doubled(void **state)
{
    static const struct {
        mt_empty_thought mode;
        const char *answer, *call;
    } cases[] = {
        { MT_THOUGHT_AUTO, "\n</think>\n\nA<|im_end|>", "\n</think>\n\ncall f{}<|im_end|>" },
        { MT_THOUGHT_TRAINED, "\n</think>\n\nA<|im_end|>", "\n</think>\n\ncall f{}<|im_end|>" },
        { MT_THOUGHT_PROMPT, "A<|im_end|>", "call f{}<|im_end|>" },
    };
    template_model_write(*state, OPENS_AND_SHOWS);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig r;
        rig_open(&r, *state, openai(), (mt_sampler_config){ .empty_thought = cases[i].mode, .keep_text = true });
        assert_int_equal(
            rig_run(&r,
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}"),
            MT_OK);
        if (r.reason || r.n != 1) fail_msg("case %zu: %s", i, r.err.msg);
        mt_str trained = rig_trained(&r, 0);
        assert_string_equal(trained.s, cases[i].answer);
        mt_str_free(&trained);
        assert_non_null(strstr(r.samples[0].text, "<think>\n\n</think>\n\nA<|im_end|>"));
        assert_int_equal(
            rig_run(&r, "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"tool_calls\": "
                        "[{\"name\": \"f\", \"arguments\": {}}]}]}"),
            MT_OK);
        if (r.reason || r.n != 1) fail_msg("case %zu: %s", i, r.err.msg);
        trained = rig_trained(&r, 0);
        assert_string_equal(trained.s, cases[i].call);
        mt_str_free(&trained);
        rig_close(&r);
    }
}

/* Calls are answers, too. */
static void calls_without_a_thought_are_completed_as_well(void **state)
{
    static const struct {
        const char *golden;
        mt_empty_thought mode;
        const char *trained; /* of the first sample: the call */
    } cases[] = {
        { "qwen3_thinking", MT_THOUGHT_AUTO, "<tool_call>" },
        { "qwen3_thinking", MT_THOUGHT_TRAINED, "<think>\n\n</think>\n\n<tool_call>" },
        { "qwen3_thinking", MT_THOUGHT_PROMPT, "<tool_call>" },
        { "deepseek_r1", MT_THOUGHT_AUTO, "\n</think>\n\n<" },
        { "deepseek_r1", MT_THOUGHT_PROMPT, "<" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig r;
        write_golden_template(*state, cases[i].golden);
        rig_open(&r, *state, openai(), (mt_sampler_config){ .empty_thought = cases[i].mode, .keep_text = true });
        assert_int_equal(rig_run(&r, "{\"messages\": [{\"role\": \"user\", \"content\": \"Rain?\"}, {\"role\": \"assistant\", "
                                     "\"tool_calls\": [{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}]}]}"),
                         MT_OK);
        if (r.reason || r.n != 1) fail_msg("case %zu: %s", i, r.err.msg);
        mt_str trained = rig_trained(&r, 0);
        if (strncmp(trained.s, cases[i].trained, strlen(cases[i].trained)) != 0 || !strstr(trained.s, "weather"))
            fail_msg("case %zu trains \"%s\" of %s", i, trained.s, r.samples[0].text);
        bool twice = strstr(r.samples[0].text, "</think>") && strstr(strstr(r.samples[0].text, "</think>") + 1, "</think>");
        assert_false(twice);
        mt_str_free(&trained);
        rig_close(&r);
    }
}

/* A thought under its own key is never lost where the model thinks, and counted where it does not. */
static void thoughts_that_a_template_does_not_show_become_text(void **state)
{
    static const struct {
        const char *golden, *template, *tail, *trained;
        int lost;
    } cases[] = {
        { "deepseek_r1", "", R1 "<think>\nhm\n</think>\n\nA" R1_END, "hm\n</think>\n\nA" R1_END, 0 },
        { "qwen3_thinking", "", IM "<think>\nhm\n</think>\n\nA<|im_end|>\n", "<think>\nhm\n</think>\n\nA<|im_end|>", 0 },
        { NULL, "qwen3", IM "<think>\nhm\n</think>\n\nA<|im_end|>\n", "<think>\nhm\n</think>\n\nA<|im_end|>", 0 },
        { NULL, "seed_oss", "assistant\n<seed:think>hm</seed:think>A</s>", "<seed:think>hm</seed:think>A</s>", 0 },
        { "qwen25", "", IM "A<|im_end|>\n", "A<|im_end|>", 1 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig r;
        if (cases[i].golden) write_golden_template(*state, cases[i].golden);
        rig_open(&r, cases[i].golden ? *state : TOKENIZER, openai(),
                 (mt_sampler_config){ .template = cases[i].template, .keep_text = true });
        assert_int_equal(rig_run(&r, "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
                                     "\"content\": \"A\", \"reasoning_content\": \"hm\\n\"}]}"),
                         MT_OK);
        if (r.reason || r.n != 1) fail_msg("case %zu: %s", i, r.err.msg);
        size_t n = strlen(r.samples[0].text), k = strlen(cases[i].tail);
        if (n < k || strcmp(r.samples[0].text + n - k, cases[i].tail) != 0) fail_msg("case %zu: %s", i, r.samples[0].text);
        mt_str trained = rig_trained(&r, 0);
        if (strcmp(trained.s, cases[i].trained) != 0) fail_msg("case %zu trains \"%s\"", i, trained.s);
        assert_int_equal(r.odd.thoughts_lost, cases[i].lost);
        mt_str_free(&trained);
        rig_close(&r);
    }
}

/* As GLM-4.5, DeepSeek-V3.1 and the small models of Qwen3.5 write thoughts, and one that opens them with other white space. */
#define GLM45                                                                                                                    \
    "[gMASK]<sop>{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}{% if m.role == 'assistant' %}{{ '\n<think>' ~ "               \
    "(m.reasoning_content or '') ~ '</think>' }}{% endif %}{{ '\n' ~ m.content }}{% for c in m.tool_calls or [] %}{{ "           \
    "c.function.name ~ c.function.arguments|tojson }}{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{{ "     \
    "'\n<think></think>' if enable_thinking is defined and not enable_thinking }}{% endif %}"
#define V31                                                                                                                      \
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}{% else %}<|assistant|></think>{{ "                  \
    "m.content.split('</think>')[-1] }}</s>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{{ '<think>' if "   \
    "thinking else '</think>' }}{% endif %}"
#define QWEN35                                                                                                                   \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{{ '<think>\n' ~ (m.reasoning_content or "   \
    "'') ~ '\n</think>\n\n' }}{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt "                    \
    "%}<|im_start|>assistant\n{{ '<think>\n' if enable_thinking else '<think>\n\n</think>\n\n' }}{% endif %}"
#define OTHER_SPACE                                                                                                              \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{{ '<think>' ~ (m.reasoning_content or '') " \
    "~ '</think>' }}{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt "                              \
    "%}<|im_start|>assistant\n<think>\n{% endif %}"

static void thoughts_are_written_as_the_template_writes_them(void **state)
{
    static const char bare[] = "\"content\": \"A\"", key[] = "\"content\": \"A\", \"reasoning_content\": \"hm\"",
                      text[] = "\"content\": \"<think>\\nhm\\n</think>\\n\\nA\"";
    static const struct {
        const char *template, *kwargs;
        mt_empty_thought mode;
        const char *answer, *tail, *trained;
        int closed;
    } cases[] = {
        { GLM45, "{}", MT_THOUGHT_AUTO, key, "<|assistant|>\n<think>hm</think>\nA<|user|>", "\n<think>hm</think>\nA<|user|>", 0 },
        { GLM45, "{}", MT_THOUGHT_AUTO, bare, "<|assistant|>\nA<|user|>", "\nA<|user|>", 0 },
        { GLM45, "{}", MT_THOUGHT_TRAINED, bare, "<|assistant|>\n<think></think>\nA<|user|>", "\n<think></think>\nA<|user|>", 0 },
        { GLM45, "{}", MT_THOUGHT_PROMPT, bare, "<|assistant|>\n<think></think>\nA<|user|>", "A<|user|>", 0 },
        { GLM45, "{\"enable_thinking\": true}", MT_THOUGHT_AUTO, bare, "<|assistant|>\n<think></think>\nA<|user|>",
          "\n<think></think>\nA<|user|>", 0 },
        { GLM45, "{\"enable_thinking\": false}", MT_THOUGHT_AUTO, key, "<|assistant|>\n<think></think>\nA<|user|>", "\nA<|user|>",
          0 },
        { V31, "{}", MT_THOUGHT_AUTO, bare, "<|assistant|></think>A</s>", "A</s>", 0 },
        { V31, "{}", MT_THOUGHT_TRAINED, bare, "<|assistant|></think>A</s>", "A</s>", 0 },
        { V31, "{}", MT_THOUGHT_AUTO, key, "<|assistant|></think>A</s>", "A</s>", 1 },
        { V31, "{}", MT_THOUGHT_TRAINED, text, "<|assistant|></think>A</s>", "A</s>", 1 },
        { V31, "{\"thinking\": true}", MT_THOUGHT_AUTO, text, "<|assistant|><think>\nhm\n</think>\n\nA</s>",
          "\nhm\n</think>\n\nA</s>", 0 },
        { V31, "{\"thinking\": true}", MT_THOUGHT_AUTO, key, "<|assistant|><think>hm</think>A</s>", "hm</think>A</s>", 0 },
        { V31, "{\"thinking\": true}", MT_THOUGHT_AUTO, bare, "<|assistant|><think></think>A</s>", "</think>A</s>", 0 },
        { QWEN35, "{}", MT_THOUGHT_AUTO, key, "assistant\n<think>\n\n</think>\n\nA<|im_end|>\n", "A<|im_end|>", 1 },
        { QWEN35, "{}", MT_THOUGHT_AUTO, text, "assistant\n<think>\n\n</think>\n\nA<|im_end|>\n", "A<|im_end|>", 1 },
        { QWEN35, "{\"enable_thinking\": true}", MT_THOUGHT_AUTO, key, "assistant\n<think>\nhm\n</think>\n\nA<|im_end|>\n",
          "hm\n</think>\n\nA<|im_end|>", 0 },
        { QWEN35, "{\"enable_thinking\": false}", MT_THOUGHT_AUTO, key, "assistant\n<think>\n\n</think>\n\nA<|im_end|>\n",
          "A<|im_end|>", 0 },
        { OTHER_SPACE, "{}", MT_THOUGHT_AUTO, key, "assistant\n<think>\nhm</think>A<|im_end|>", "hm</think>A<|im_end|>", 0 },
    };
    write_tokenizer(*state);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig r;
        mt_err err = { 0 };
        mt_arena arena = { 0 };
        mt_value kwargs;
        char record[256];
        assert_ok(mt_value_parse_json(&kwargs, &arena, cases[i].kwargs, strlen(cases[i].kwargs), NULL, "kwargs", &err));
        rig_open(&r, *state, openai(),
                 (mt_sampler_config){ .template_text = cases[i].template,
                                      .template_kwargs = &kwargs,
                                      .empty_thought = cases[i].mode,
                                      .keep_text = true });
        snprintf(record, sizeof record,
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", %s}]}", cases[i].answer);
        assert_int_equal(rig_run(&r, record), MT_OK);
        if (r.reason || r.n != 1) fail_msg("case %zu: %s", i, r.err.msg);
        size_t n = strlen(r.samples[0].text), k = strlen(cases[i].tail);
        if (n < k || strcmp(r.samples[0].text + n - k, cases[i].tail) != 0) fail_msg("case %zu: %s", i, r.samples[0].text);
        mt_str trained = rig_trained(&r, 0);
        if (strcmp(trained.s, cases[i].trained) != 0) fail_msg("case %zu trains \"%s\"", i, trained.s);
        if (r.odd.thoughts_closed != cases[i].closed)
            fail_msg("case %zu: %d thoughts were closed", i, (int)r.odd.thoughts_closed);
        mt_str_free(&trained);
        mt_arena_free(&arena);
        rig_close(&r);
    }
}

/* Kimi-K2-Thinking writes an empty thought before the last answer, too: a thought of a record is text, and in no turn a second one. */
static void a_thought_as_text_stands_in_its_own_sample_alone(void **state)
{
    static const char *const texts[] = {
        "<|user|>Q<|assistant|><think>hm</think>A<|end|>",
        "<|user|>Q<|assistant|><think></think>A<|end|><|user|>Q<|assistant|><think>\nso\n</think>\n\n"
        "B<|end|>"
    };
    rig r;
    write_tokenizer(*state);
    rig_open(&r, *state, openai(),
             (mt_sampler_config){ .template_text =
                                      "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}{% if m.role == 'assistant' "
                                      "%}<think></think>{% endif %}{{ m.content }}{% if m.role == 'assistant' "
                                      "%}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% "
                                      "endif %}",
                                  .keep_text = true });
    assert_int_equal(
        rig_run(&r, "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\", "
                    "\"reasoning_content\": \"hm\"}, {\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
                    "\"content\": \"<think>\\nso\\n</think>\\n\\nB\"}]}"),
        MT_OK);
    if (r.reason || r.n != 2) fail_msg("%zu samples: %s", r.n, r.err.msg);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(r.samples[i].n_text, strlen(texts[i]));
        assert_memory_equal(r.samples[i].text, texts[i], strlen(texts[i]));
    }
    rig_close(&r);
}

static void an_answer_after_its_thought_is_ended_before_a_question_too(void **state)
{
    rig r;
    write_tokenizer(*state);
    rig_open(&r, *state, openai(), (mt_sampler_config){ .template_text = GLM45 });
    assert_int_equal(
        rig_run(&r, "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\", "
                    "\"reasoning_content\": \"hm\"}, {\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
                    "\"content\": \"B\", \"reasoning_content\": \"so\"}]}"),
        MT_OK);
    assert_int_equal(r.n, 1);
    mt_str trained = rig_trained(&r, 0);
    assert_string_equal(trained.s, "\n<think>hm</think>\nA<|user|>\n<think>so</think>\nB<|user|>");
    mt_str_free(&trained);
    rig_close(&r);
}

/* What a thought in the prompt is in training, it is when the model is asked. */
static void a_thought_in_the_prompt_is_there_when_the_model_is_asked(void **state)
{
    static const char asked[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}]}";
    rig r;
    mt_value record;
    const mt_sample *prompt;
    write_golden_template(*state, "deepseek_r1");
    rig_open(&r, *state, openai(), (mt_sampler_config){ .empty_thought = MT_THOUGHT_PROMPT, .keep_text = true });
    assert_int_equal(mt_value_parse_json(&record, &r.arena, asked, strlen(asked), NULL, "record", &r.err), MT_OK);
    assert_int_equal(mt_sampler_prompt(r.s, r.w, &record, &prompt, &r.reason, &r.err), MT_OK);
    assert_non_null(strstr(prompt->text, R1 "<think>\n\n</think>\n\n"));
    rig_close(&r);
}

/* Each answer of a conversation is completed; those before it stand as the record has them. */
static void every_answer_of_a_conversation_is_completed(void **state)
{
    rig r;
    mt_record_layout l = alpaca();
    l.history = "history";
    write_golden_template(*state, "qwen3_thinking");
    rig_open(&r, *state, l, (mt_sampler_config){ .empty_thought = MT_THOUGHT_TRAINED, .keep_text = true });
    assert_int_equal(rig_run(&r, "{\"instruction\": \"Q\", \"output\": \"A\", \"history\": [[\"q\", \"a\"]]}"), MT_OK);
    assert_int_equal(r.n, 2);
    static const char *const texts[] = { "<|im_start|>user\nq<|im_end|>\n" IM "<think>\n\n</think>\n\na<|im_end|>",
                                         "<|im_start|>user\nq<|im_end|>\n" IM "a<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n" IM
                                         "<think>\n\n</think>\n\nA<|im_end|>" };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(r.samples[i].n_text, strlen(texts[i]));
        assert_memory_equal(r.samples[i].text, texts[i], strlen(texts[i]));
    }
    rig_close(&r);
}

/* ---- published tokenizers ---- */

static void published_models_keep_their_templates(void **state)
{
    static const struct {
        const char *archive, *name, *used; /* used NULL: it stops, naming `lacks` */
        const char *lacks;
    } cases[] = {
        { "qwen2_5", "qwen", "the model's own", NULL },
        { "qwen2_5", "chatml", "chatml", NULL },
        { "qwen2_5", "llama3", NULL, "<|start_header_id|>" },
        { "gemma2", "gemma", "gemma", NULL },
        { "gemma2", "qwen", NULL, "<|im_start|>" },
        { "mistral_nemo", "ministral", "the model's own", NULL },
        { "llama2", "llama2", "llama2", NULL },
        { "deepseek_v3", "deepseek3", "the model's own", NULL },
    };
    archives all;
    char used[64];
    (void)state;
    archives_open(&all);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        const char *dir = archive_find(&all, cases[i].archive);
        if (!dir) continue;
        if (cases[i].used) {
            if (strcmp(template_used(dir, cases[i].name, used, sizeof used), cases[i].used) != 0)
                fail_msg("\"%s\" on %s: %s", cases[i].name, cases[i].archive, used);
            continue;
        }
        assert_int_equal(try_template(dir, cases[i].name, &err), MT_EINVAL);
        assert_says(cases[i].lacks);
    }
    if (!archives_close(&all)) skip();
}

#define IN_TEMPDIR(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)

/* Yi's base model has the marks of its chat model's turns in the vocabulary, but not as special tokens. */
static void marks_that_are_ordinary_tokens_become_special(void **state)
{
    static const char json[] =
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"</s>\", \"special\": true}], \"model\": {\"type\": "
        "\"BPE\", \"merges\": [], \"byte_fallback\": false, \"vocab\": {\"</s>\": 0, \"<|im_start|>\": 6, "
        "\"<|im_end|>\": 7, \"<\": 8, \"|\": 9, \">\": 10, \"i\": 11, \"m\": 12, \"_\": 13, \"e\": 14, \"n\": "
        "15, \"d\": 16, \"s\": 17, \"t\": 18, \"a\": 19, \"r\": 20, \"u\": 21, \"\\n\": 22}}}";
    mt_err err = { 0 };
    mt_tokenizer *tok;
    mt_tokens out = { 0 };
    mt_tok_scratch *w;
    size_t n;
    (void)state;
    assert_ok(mt_tokenizer_open_json(&tok, json, sizeof json - 1, "tokenizer.json", &err));
    for (int i = 0; i < 2; i++) { /* again is nothing */
        assert_ok(mt_template_adopt("yi", tok, &err));
        assert_int_equal(mt_tokenizer_adopted(tok, &n)[1], 7);
        assert_int_equal(n, 2);
    }
    assert_ok(mt_template_adopt("auto", tok, &err));
    assert_ok(mt_tok_scratch_create(&w, tok, &err));
    assert_ok(mt_tokenizer_encode(tok, w, "<|im_start|>a<|im_end|>\n", 24, 0, &out, &err));
    assert_int_equal(out.n, 4);
    assert_int_equal(out.ids[0], 6);
    assert_int_equal(out.ids[2], 7);
    assert_true(mt_tokenizer_is_special(tok, 7));
    mt_tok_scratch_free(w);
    mt_tokens_free(&out);
    mt_tokenizer_close(tok);
}

/* Cohere2 closes the response, then the turn; an eos after the last turn alone is not a part of its end (Phi-3). */
static void special_tokens_that_end_an_answer_together_are_trained(void **state)
{
    static const struct {
        const char *template, *end, *trained;
    } cases[] = {
        { "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}{% if m.role == 'assistant' %}<|end|>{% endif "
          "%}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant<|message|>{% endif %}",
          "<|end|><|eot_id|>", "A<|end|><|eot_id|>B<|end|><|eot_id|>" },
        { "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt "
          "%}<|start|>assistant<|message|>{% else %}</s>{% endif %}",
          "<|end|>", "A<|end|>B<|end|>" },
    };
    write_tokenizer(*state);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig r;
        rig_open(&r, *state, openai(), (mt_sampler_config){ .template_text = cases[i].template });
        assert_string_equal(mt_sampler_end(r.s), cases[i].end);
        assert_int_equal(
            rig_run(&r, "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": "
                        "\"A\"}, {\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"B\"}]}"),
            MT_OK);
        mt_str trained = rig_trained(&r, 0);
        assert_string_equal(trained.s, cases[i].trained);
        mt_str_free(&trained);
        rig_close(&r);
    }
}

/* Qwen3's template puts an empty thought before the last answer alone, so no rendering has both prompts, but the sample of the
 * second answer begins with that of the first: it takes its place, if it is kept. */
static void answers_of_one_sample_are_trained_together(void **state)
{
    static const char turns[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": "
        "\"one\"}, {\"role\": \"user\", \"content\": \"And now?\"}, {\"role\": \"assistant\", \"content\": "
        "\"two\"}]}";
    static const char first[] = "one<|im_end|>", both[] = "one<|im_end|>two<|im_end|>", part[] = "one<|im_end|>t";
    static const struct {
        int64_t less;
        mt_overlong overlong;
        size_t n;
        const char *trained;
        int64_t truncated, without_room;
    } cases[] = {
        { 0, MT_OVERLONG_AUTO, 1, both, 0, 0 },  { 0, MT_OVERLONG_SKIP, 1, both, 0, 0 },
        { 3, MT_OVERLONG_AUTO, 1, part, 1, 0 },  /* cut within the second answer */
        { 3, MT_OVERLONG_SKIP, 1, first, 0, 1 }, /* too long with it */
        { 5, MT_OVERLONG_AUTO, 1, first, 0, 1 }, /* cut within its prompt */
        { 3, MT_OVERLONG_SPLIT, 2, part, 0, 0 },
    };
    write_tokenizer(*state);
    char *text = template_text("qwen3_thinking");
    rig r;
    rig_open(&r, *state, openai(), (mt_sampler_config){ .template_text = text, .keep_text = true });
    assert_int_equal(rig_run(&r, turns), MT_OK);
    assert_int_equal(r.n, 1);
    int64_t whole = r.samples[0].n;
    rig_close(&r);
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        rig_open(
            &r, *state, openai(),
            (mt_sampler_config){ .template_text = text, .max_seq_len = whole - cases[i].less, .overlong = cases[i].overlong });
        assert_int_equal(rig_run(&r, turns), MT_OK);
        assert_int_equal(r.n, cases[i].n);
        mt_str trained = rig_trained(&r, 0);
        assert_string_equal(trained.s, cases[i].trained);
        assert_int_equal(r.odd.truncated, cases[i].truncated);
        assert_int_equal(r.odd.unrolled, cases[i].without_room);
        assert_int_equal(r.odd.turns_without_room, cases[i].without_room);
        mt_str_free(&trained);
        rig_close(&r);
    }
    mt_free(text);
}

MT_TEST_MAIN(
    IN_TEMPDIR(a_thought_as_text_stands_in_its_own_sample_alone), IN_TEMPDIR(a_text_that_is_not_llama_factorys_is_remarked),
    IN_TEMPDIR(an_answer_after_its_thought_is_ended_before_a_question_too),
    IN_TEMPDIR(thoughts_are_written_as_the_template_writes_them), cmocka_unit_test(marks_that_are_ordinary_tokens_become_special),
    IN_TEMPDIR(special_tokens_that_end_an_answer_together_are_trained), IN_TEMPDIR(answers_of_one_sample_are_trained_together),
    IN_TEMPDIR(names_of_llama_factory_write_turns_as_there),
    cmocka_unit_test(names_of_llama_factory_are_known_or_refused_as_what_they_are),
    cmocka_unit_test(the_documentation_lists_every_name), IN_TEMPDIR(a_template_that_does_not_fit_stops_the_run),
    IN_TEMPDIR(the_name_of_a_family_means_the_models_own_template), IN_TEMPDIR(tool_data_works_under_the_name_of_the_family),
    IN_TEMPDIR(a_broken_template_of_the_model_gives_way_to_a_named_one),
    IN_TEMPDIR(a_family_whose_template_refuses_system_turns_gets_them_in_the_question),
    cmocka_unit_test(tools_are_text_where_a_template_has_no_place_for_them),
    cmocka_unit_test(several_calls_and_results_share_their_turns),
    cmocka_unit_test(calls_of_the_sharegpt_layout_are_text_as_well), IN_TEMPDIR(answers_without_a_thought_are_completed_as_asked),
    IN_TEMPDIR(a_thought_in_the_prompt_is_there_when_the_model_is_asked),
    IN_TEMPDIR(thoughts_that_a_template_does_not_show_become_text), IN_TEMPDIR(calls_without_a_thought_are_completed_as_well),
    IN_TEMPDIR(a_thought_that_the_template_shows_is_not_doubled), IN_TEMPDIR(every_answer_of_a_conversation_is_completed),
    cmocka_unit_test(published_models_keep_their_templates))
