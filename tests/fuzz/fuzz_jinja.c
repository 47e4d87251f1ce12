/* Chat templates from strangers: any bytes parse or are refused, and what parses renders within its bounds.
 * The bytes are a template; behind a NUL byte, if there is one, follows the context as JSON. */
#include "base/value.h"
#include "jinja/jinja.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char default_context[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be\"}, {\"role\": \"user\", \"content\": \"Größe 🎉\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, "
    "2.5, true]}}}]}],"
    " \"tools\": [{\"type\": \"function\"}], \"s\": \"text\", \"n\": 7, \"f\": -2.5, \"l\": [3, 1, 2], \"d\": {\"a\": 1, \"b\": "
    "{}}, \"bos_token\": \"<s>\","
    " \"add_generation_prompt\": true}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data, *nul = n ? memchr(text, '\0', n) : NULL;
    size_t text_n = nul ? (size_t)(nul - text) : n;
    mt_arena a = { 0 };
    mt_value context;
    mt_err err = { 0 };
    mt_jinja *t;
    mt_rc rc = nul ? mt_value_parse_json(&context, &a, nul + 1, n - text_n - 1, NULL, "context", &err) : MT_EINVAL;
    if (rc) rc = mt_value_parse_json(&context, &a, default_context, sizeof default_context - 1, NULL, "context", &err);
    if (!rc && mt_jinja_parse(&t, text, text_n, "fuzz", &err) == MT_OK) {
        mt_str out = { 0 };
        mt_jinja_spans spans = { 0 };
        const struct tm now = { .tm_year = 124, .tm_mday = 1 };
        mt_jinja_options opt = { .now = &now, .max_steps = 20000, .max_output_bytes = 1 << 16, .max_memory_bytes = 4 << 20 };
        mt_jinja_render(t, &context, &opt, &out, &spans, &err);
        mt_jinja_spans_free(&spans);
        mt_str_free(&out);
        mt_jinja_free(t);
    }
    mt_arena_free(&a);
    return 0;
}
