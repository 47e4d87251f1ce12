/* What reading costs: for every reader, files of n, 2n and 4n parts in shapes that have hurt or could.  The step from 2n to 4n
 * may take about twice the work of the step from n to 2n (count.h; quadratic work would take four times), and work and peak
 * memory may be a fixed multiple of the file.  A file may be refused: only the cost of coming to that end counts.
 *
 * MT_THOROUGH=1 (make soak) uses files eight times as large, MT_SHOW=1 prints the table, MT_ONLY=TEXT picks shapes by name. */
#include "test.h"

#include "count.h"
#include "forge.h"

#include "ckpt/export.h"
#include "ckpt/gguf.h"
#include "ckpt/pickle.h"
#include "ckpt/safetensors.h"
#include "ckpt/weights.h"
#include "data/formats.h"
#include "hub/internal.h"
#include "jinja/jinja.h"
#include "model/config.h"
#include "settings/settings.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>

/* The result does not matter, but all of the file is read. */
typedef void reads(const char *bytes, size_t n);
typedef void makes(mt_str *out, size_t n);

/* -- the readers ------------------------------------------------------------------------------------- */

static void read_records(const char *format, const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_records *r = NULL;
    mt_arena arena = { 0 };
    mt_value v;
    mt_record_place where = { 0 };
    int64_t count;
    mt_rc rc = mt__records_open_bytes(&r, format, (const uint8_t *)bytes, n, &(mt_records_options){ .format = format }, &err);
    if (!rc) (void)mt_records_count(r, &count, &err);
    while (!rc && where.state != MT_RECORD_END) {
        mt_arena_reset(&arena);
        rc = mt_records_next(r, &arena, &v, &where, &err);
    }
    mt_records_close(r);
    mt_arena_free(&arena);
}

static void read_json(const char *bytes, size_t n) { read_records("json", bytes, n); }
static void read_csv(const char *bytes, size_t n) { read_records("csv", bytes, n); }
static void read_parquet(const char *bytes, size_t n) { read_records("parquet", bytes, n); }
static void read_arrow(const char *bytes, size_t n) { read_records("arrow", bytes, n); }

static void read_yaml(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_settings s;
    assert_ok(mt_settings_init(&s, &err));
    (void)mt_settings_parse(&s, bytes, n, "cost.yaml", &err);
    mt_settings_deinit(&s);
}

static void read_safetensors(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_safetensors *st;
    if (!mt_safetensors_open_memory(&st, bytes, n, "cost.safetensors", &err)) mt_safetensors_close(st);
}

static void write_part(const char *dir, const char *name, const char *bytes, size_t n)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* A config.json, a NUL, and the weights that belong to it: each finds its place in the model, and what is none of its own is
 * listed for the export.  The type is not known, so that what is left over is looked at, too. */
static void read_weights(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    char dir[] = "/tmp/mt-cost-XXXXXX", command[64], notice[256];
    const size_t config_n = strlen(bytes);
    mt_config *c;
    mt_shards *s;
    mt_model *m;
    const mt_st_tensor **rest;
    size_t n_unused, n_rest;
    assert_non_null(mkdtemp(dir));
    write_part(dir, "model.safetensors", bytes + config_n + 1, n - config_n - 1);
    assert_ok(mt_config_parse(&c, bytes, config_n, "config.json", &err));
    assert_ok(mt_shards_open(&s, dir, &err));
    assert_ok(mt_weights_model(&m, &c, s, NULL, notice, &err));
    c->n_assumptions++; /* as of a type that a person vouched for */
    assert_ok(mt_weights_check(m, s, &n_unused, &err));
    c->n_assumptions--;
    assert_ok(mt__export_rest(&(mt_export){ .model = m, .source = s, .dtype = MT_DTYPE_COUNT }, &rest, &n_rest, &err));
    assert_true(n_unused == 1 && n_rest == 1);
    mt_free(rest);
    mt_model_free(m);
    mt_shards_close(s);
    mt_config_close(c);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static void read_pickle(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_pickle *p;
    if (mt_pickle_open_memory(&p, bytes, n, "cost.bin", &err)) return;
    for (size_t i = 1; i < mt_pickle_count(p); i++) (void)mt_st_same(mt_pickle_at(p, 0), mt_pickle_at(p, i));
    mt_pickle_close(p);
}

static void read_gguf(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_gguf *g;
    mt_str config = { 0 }, tokenizer = { 0 };
    if (mt_gguf_open_memory(&g, bytes, n, "cost.gguf", &err)) return;
    (void)mt_gguf_config(g, &config, &err);
    (void)mt_gguf_tokenizer(g, &tokenizer, &err);
    mt_str_free(&config);
    mt_str_free(&tokenizer);
    mt_gguf_close(g);
}

/* A tokenizer.json, a NUL, and a text to encode with it. */
static void read_tokenizer(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_tokenizer *tok;
    mt_tok_scratch *scratch = NULL;
    mt_tokens out = { 0 };
    const char *nul = memchr(bytes, '\0', n);
    size_t n_json = nul ? (size_t)(nul - bytes) : n;
    if (mt_tokenizer_open_json(&tok, bytes, n_json, "cost.json", &err)) return;
    if (nul && !mt_tok_scratch_create(&scratch, tok, &err))
        (void)mt_tokenizer_encode(tok, scratch, nul + 1, n - n_json - 1, 0, &out, &err);
    mt_tokens_free(&out);
    mt_tok_scratch_free(scratch);
    mt_tokenizer_close(tok);
}

static void read_jinja(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_jinja *t;
    mt_str out = { 0 };
    if (mt_jinja_parse(&t, bytes, n, "cost", &err)) return;
    (void)mt_jinja_render(t, NULL, NULL, &out, NULL, &err);
    mt_str_free(&out);
    mt_jinja_free(t);
}

/* Names of files, one on each line; the README follows "\n---\n". */
static void read_card(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt__files files = { 0 };
    char *text = mt_strndup(bytes, n), *readme = strstr(text, "\n---\n");
    assert_non_null(readme);
    *readme++ = '\0';
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) assert_ok(mt__files_add(&files, line, 1, "", &err));
    (void)mt__choose_data(&files, &(mt__repo){ .name = "a/b", .dataset = true }, readme, strlen(readme), "", "train", "", &err);
    mt__files_free(&files);
    mt_free(text);
}

/* A repository of as many files as there are bytes, all of which the cache has. */
static void read_repository(const char *bytes, size_t n)
{
    (void)bytes;
    mt_err err = { 0 };
    char dir[] = "/tmp/mt-cost-XXXXXX", folder[64], path[160], command[64];
    assert_non_null(mkdtemp(dir));
    snprintf(folder, sizeof folder, "%s/models--a--b", dir);
    snprintf(path, sizeof path, "%s/blobs", folder);
    assert_ok(mt__make_dirs(path, &err));
    mt_hub hub = { .at = { .cache = dir, .endpoint = "http://127.0.0.1:9" },
                   .o = { .n_connections = 1, .piece_bytes = 1 << 20 } };
    mt__files files = { 0 };
    for (size_t i = 0; i < n; i++) {
        char name[32], hash[65];
        snprintf(name, sizeof name, "f%zu", i);
        snprintf(hash, sizeof hash, "%064zx", i);
        snprintf(path, sizeof path, "%s/blobs/%s", folder, hash);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fclose(f);
        assert_ok(mt__files_add(&files, name, 0, hash, &err));
        files.items[i].wanted = true;
    }
    assert_ok(mt__download(&hub, &(mt__repo){ .name = "a/b", .folder = folder }, &files, &err));
    mt__files_free(&files);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static void many_bytes(mt_str *out, size_t n) { forge_repeat(out, "x", n); }

static void read_config(const char *bytes, size_t n)
{
    mt_err err = { 0 };
    mt_config *c;
    if (!mt_config_parse(&c, bytes, n, "config.json", &err)) mt_config_close(c);
}

/* -- shapes: JSON ------------------------------------------------------------------------------------- */

static void colliding_record(mt_str *out, size_t n)
{
    char key[17];
    uint64_t turn = 0;
    mt_str_puts(out, "{\"a\":\"b\"");
    for (size_t i = 0; i < n; i++) forge_colliding_key(&turn, key), mt_str_printf(out, ",\"%s\":0", key);
    mt_str_puts(out, "}\n");
}

static void many_keys(mt_str *out, size_t n)
{
    mt_str_puts(out, "{\"a\":\"b\"");
    for (size_t i = 0; i < n; i++) mt_str_printf(out, ",\"key%zu\":0", i % 7 ? i : 0);
    mt_str_puts(out, "}\n");
}

static void nested_lists(mt_str *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mt_str_puts(out, "{\"a\":"), forge_repeat(out, "[", 400), forge_repeat(out, "]", 400), mt_str_puts(out, "}\n");
}

static void escapes(mt_str *out, size_t n)
{
    mt_str_puts(out, "{\"a\":\"");
    forge_repeat(out, "\\ud83d\\n", n);
    mt_str_puts(out, "\"}\n");
}

static void bad_lines(mt_str *out, size_t n) { forge_repeat(out, "{\"a\":\n", n); }
static void one_list(mt_str *out, size_t n)
{
    mt_str_puts(out, "["), forge_repeat(out, "{\"a\":1},", n), mt_str_puts(out, "{\"a\":]");
}

/* -- YAML: the document may not be longer than 256 KB -------------------------------------------------- */

static void yaml_keys(mt_str *out, size_t n)
{
    mt_str_puts(out, "x-a:\n");
    for (size_t i = 0; i < n; i++) mt_str_printf(out, "  k%zu: 1\n", i);
}

static void yaml_merges(mt_str *out, size_t n)
{
    mt_str_puts(out, "x-a: &a\n");
    for (size_t i = 0; i < n; i++) mt_str_printf(out, "  k%zu: 1\n", i);
    mt_str_puts(out, "x-b:\n  <<: [");
    forge_repeat(out, "*a,", n);
    mt_str_puts(out, "*a]\n");
}

static void yaml_anchors(mt_str *out, size_t n)
{
    for (size_t i = 0; i < n; i++) mt_str_printf(out, "x-%zu: &a%zu 1\n", i, i);
    for (size_t i = 0; i < n; i++) mt_str_printf(out, "x-b%zu: *a%zu\n", i, i / 2);
}

static void yaml_aliases(mt_str *out, size_t n)
{
    mt_str_puts(out, "x-0: &a0 [1, 1]\n");
    for (size_t i = 1; i < n; i++) mt_str_printf(out, "x-%zu: &a%zu [*a%zu, *a%zu]\n", i, i, i - 1, i - 1);
    mt_str_printf(out, "dataset: {template_kwargs: {a: *a%zu}}\n", n - 1);
}

/* -- CSV ------------------------------------------------------------------------------------------------ */

static void csv_columns(mt_str *out, size_t n)
{
    for (size_t i = 0; i < n; i++) mt_str_printf(out, "%sc%zu", i ? "," : "", i);
    mt_str_putc(out, '\n');
    forge_repeat(out, "1,", n - 1);
    mt_str_puts(out, "1\n");
}

static void csv_quotes(mt_str *out, size_t n)
{
    mt_str_puts(out, "a,b\n1,\"");
    forge_repeat(out, "\"\"\n", n);
    mt_str_puts(out, "\"\n");
}

static void csv_open_quote(mt_str *out, size_t n)
{
    mt_str_puts(out, "a,b\n");
    forge_repeat(out, "1,\"x\n", n);
}

/* -- Parquet, Arrow -------------------------------------------------------------------------------------- */

static void parquet_columns(mt_str *out, size_t n)
{
    forge_write_parquet(out, &(forge_parquet){ .n_columns = n, .n_groups = 1, .rows = 1, .text = "hello", .encoding = 8 });
}

static void parquet_groups(mt_str *out, size_t n)
{
    forge_write_parquet(out, &(forge_parquet){ .n_columns = 2, .n_groups = n, .rows = 1, .text = "hello", .encoding = 8 });
}

static void arrow_columns(mt_str *out, size_t n)
{
    forge_write_arrow(out, &(forge_arrow){ .n_columns = n, .n_batches = 1, .rows = 2, .type = 2 });
}
static void arrow_batches(mt_str *out, size_t n)
{
    forge_write_arrow(out, &(forge_arrow){ .n_columns = 2, .n_batches = n, .rows = 2, .type = 2 });
}

/* n columns that share one name of 16 n bytes. */
static void arrow_shared_name(mt_str *out, size_t n)
{
    mt_str name = { 0 };
    forge_repeat(&name, "0123456789abcdef", n);
    forge_write_arrow(out, &(forge_arrow){ .n_columns = n, .n_batches = 1, .rows = 2, .type = 2, .shared_name = name.s });
    mt_str_free(&name);
}

/* -- weights ---------------------------------------------------------------------------------------------- */

static void safetensors_of(mt_str *out, const mt_str *header)
{
    forge_le(out, header->n, 8);
    mt_str_add(out, header->s, header->n);
}

static void colliding_tensors(mt_str *out, size_t n)
{
    mt_str header = { 0 };
    char key[17];
    uint64_t turn = 0;
    for (size_t i = 0; i < n; i++) {
        forge_colliding_key(&turn, key);
        mt_str_printf(&header, "%c\"%s\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? ',' : '{', key);
    }
    mt_str_puts(&header, "}");
    safetensors_of(out, &header);
    mt_str_free(&header);
}

static void add_tensor(mt_str *header, size_t *at, const char *name, int rows, int cols)
{
    const size_t bytes = 4 * (size_t)rows * (cols ? (size_t)cols : 1);
    mt_str_printf(header, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%d", *at ? ',' : '{', name, rows);
    if (cols) mt_str_printf(header, ",%d", cols);
    mt_str_printf(header, "],\"data_offsets\":[%zu,%zu]}", *at, *at + bytes);
    *at += bytes;
}

static void add_layer(mt_str *header, size_t *at, int layer, int experts)
{
    static const char *const plain[] = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj" };
    char name[128];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s_layernorm.weight", layer, i ? "input" : "post_attention");
        add_tensor(header, at, name, 2, 0);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, plain[i]);
        add_tensor(header, at, name, 2, 2);
    }
    snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.gate.weight", layer);
    add_tensor(header, at, name, experts, 2);
    for (int e = 0; e < 3 * experts; e++) {
        snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.experts.%d.w%d.weight", layer, e / 3, e % 3 + 1);
        add_tensor(header, at, name, e % 3 == 1 ? 2 : 1, e % 3 == 1 ? 1 : 2);
    }
}

/* A mixtral as small as it can be, but for the number of its layers and experts. */
static void experts_of(mt_str *out, int layers, int experts)
{
    mt_str header = { 0 };
    size_t at = 0;
    mt_str_printf(out,
                  "{\"model_type\":\"mixtral\",\"hidden_size\":2,\"intermediate_size\":1,\"num_hidden_layers\":%d,"
                  "\"num_attention_heads\":1,\"num_key_value_heads\":1,\"vocab_size\":2,\"num_local_experts\":%d,"
                  "\"num_experts_per_tok\":1}",
                  layers, experts);
    mt_str_putc(out, '\0');
    add_tensor(&header, &at, "model.embed_tokens.weight", 2, 2);
    add_tensor(&header, &at, "model.norm.weight", 2, 0);
    add_tensor(&header, &at, "lm_head.weight", 2, 2);
    add_tensor(&header, &at, "model.rotary.inv_freq", 1, 0); /* none of the model's own */
    for (int l = 0; l < layers; l++) add_layer(&header, &at, l, experts);
    mt_str_puts(&header, "}");
    safetensors_of(out, &header);
    for (size_t i = 0; i < at; i++) mt_str_putc(out, '\0');
    mt_str_free(&header);
}

/* 4 n is as many tensors as the largest published models have. */
static void layers_of_experts(mt_str *out, size_t n) { experts_of(out, (int)(n / 192), 64); }
static void experts_of_layers(mt_str *out, size_t n) { experts_of(out, 2, (int)n); }

static void header_of_zeros(mt_str *out, size_t n)
{
    mt_str header = { 0 };
    mt_str_puts(&header, "{\"w\":{\"dtype\":\"U8\",\"shape\":[0");
    forge_repeat(&header, ",0", n);
    mt_str_puts(&header, "],\"data_offsets\":[0,0]}}");
    safetensors_of(out, &header);
    mt_str_free(&header);
}

static void metadata(mt_str *out, size_t n)
{
    mt_str header = { 0 };
    mt_str_puts(&header, "{\"__metadata__\":{\"a\":\"\"");
    for (size_t i = 0; i < n; i++) mt_str_printf(&header, ",\"k%zu\":\"\"", i);
    mt_str_puts(&header, "}}");
    safetensors_of(out, &header);
    mt_str_free(&header);
}

static void zip_of(mt_str *out, const mt_str *list, const char *key, size_t n_floats)
{
    forge_zip z = { .out = out, .start = out->n };
    char *zeros = mt_calloc(n_floats, 4), name[64];
    snprintf(name, sizeof name, "archive/data/%s", key);
    forge_entry(&z, "archive/data.pkl", list->s, list->n);
    forge_entry(&z, name, zeros, 4 * n_floats);
    forge_zip_end(&z);
    mt_free(zeros);
}

/* n calls of OrderedDict on a list of n pairs. */
static void copied_lists(mt_str *out, size_t n)
{
    mt_str s = { 0 };
    mt_str_puts(&s, "\x80\x02");
    forge_pk_text(&s, "a");
    mt_str_puts(&s, "N\x86q\x01"
                    "0](");
    forge_repeat(&s, "h\x01", n);
    mt_str_puts(&s, "e\x85q\x02"
                    "0ccollections\nOrderedDict\nq\x03"
                    "0");
    forge_repeat(&s, "h\x03h\x02R0", n);
    mt_str_puts(&s, "}(");
    forge_pk_text(&s, "w");
    forge_pk_tensor(&s, "0", 4, 1, (int64_t[]){ 4 }, (int64_t[]){ 1 });
    mt_str_puts(&s, "u.");
    zip_of(out, &s, "0", 4);
    mt_str_free(&s);
}

/* Two views of n numbers that claim n^2. */
static void repeating_views(mt_str *out, size_t n)
{
    mt_str s = { 0 };
    const int64_t shape[] = { (int64_t)n, (int64_t)n }, stride[] = { 0, 1 };
    mt_str_puts(&s, "\x80\x02}(");
    for (int i = 0; i < 2; i++) {
        forge_pk_text(&s, i ? "b" : "a");
        forge_pk_tensor(&s, "0", (int64_t)n, 2, shape, stride);
    }
    mt_str_puts(&s, "u.");
    zip_of(out, &s, "0", n);
    mt_str_free(&s);
}

static void many_tensors(mt_str *out, size_t n)
{
    mt_str s = { 0 };
    char name[32];
    mt_str_puts(&s, "\x80\x02}(");
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "w%zu", i);
        forge_pk_text(&s, name);
        forge_pk_tensor(&s, "0", 4, 1, (int64_t[]){ 4 }, (int64_t[]){ 1 });
    }
    mt_str_puts(&s, "u.");
    zip_of(out, &s, "0", 4);
    mt_str_free(&s);
}

static size_t llama_keys(mt_str *kvs)
{
    forge_gg_str(kvs, "general.architecture", "llama");
    forge_gg_u32(kvs, "llama.embedding_length", 64);
    forge_gg_u32(kvs, "llama.feed_forward_length", 64);
    forge_gg_u32(kvs, "llama.block_count", 1);
    forge_gg_u32(kvs, "llama.context_length", 64);
    return 5;
}

/* n query matrices, and the number of heads stated 8 n times. */
static void head_counts(mt_str *out, size_t n)
{
    mt_str kvs = { 0 }, tensors = { 0 };
    char name[64];
    size_t n_kvs = llama_keys(&kvs);
    forge_gg_array(&kvs, "llama.attention.head_count", 0, 8 * n);
    forge_repeat(&kvs, "\x04", 8 * n);
    for (size_t i = 0; i < n; i++)
        snprintf(name, sizeof name, "blk.%zu.attn_q.weight", i), forge_gg_tensor(&tensors, name, 64, 64);
    forge_gg_file(out, &kvs, n_kvs + 1, &tensors, n, 64 * 64 * 4);
    mt_str_free(&kvs);
    mt_str_free(&tensors);
}

static void gguf_keys(mt_str *out, size_t n)
{
    mt_str kvs = { 0 }, tensors = { 0 };
    char name[64];
    size_t n_kvs = llama_keys(&kvs);
    forge_gg_u32(&kvs, "llama.attention.head_count", 4);
    for (size_t i = 0; i < n; i++) snprintf(name, sizeof name, "key.%zu", i), forge_gg_u32(&kvs, name, 1);
    for (size_t i = 0; i < n; i++)
        snprintf(name, sizeof name, "blk.%zu.attn_q.weight", i), forge_gg_tensor(&tensors, name, 64, 64);
    forge_gg_file(out, &kvs, n_kvs + 1 + n, &tensors, n, 64 * 64 * 4);
    mt_str_free(&kvs);
    mt_str_free(&tensors);
}

static void gguf_vocabulary(mt_str *out, const mt_str *tokens, size_t n)
{
    mt_str kvs = { 0 }, tensors = { 0 };
    size_t n_kvs = llama_keys(&kvs);
    forge_gg_u32(&kvs, "llama.attention.head_count", 4);
    forge_gg_str(&kvs, "tokenizer.ggml.model", "llama");
    forge_gg_array(&kvs, "tokenizer.ggml.tokens", 8, n);
    mt_str_add(&kvs, tokens->s, tokens->n);
    forge_gg_array(&kvs, "tokenizer.ggml.scores", 6, n);
    forge_zeros(&kvs, 4 * n);
    forge_gg_file(out, &kvs, n_kvs + 4, &tensors, 0, 0);
    mt_str_free(&kvs);
}

/* A token of 8 n bytes that is known by its first, and n pieces that begin with that. */
static void tokens_with_a_tail(mt_str *out, size_t n)
{
    mt_str tokens = { 0 }, tail = { 0 };
    char text[32];
    mt_str_add(&tail, "a\0", 2);
    forge_repeat(&tail, "zzzzzzzz", n);
    forge_gg_text(&tokens, tail.s, tail.n);
    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "a%06zu", i);
        forge_gg_text(&tokens, text, strlen(text));
        forge_gg_text(&tokens, text + 1, strlen(text + 1));
    }
    gguf_vocabulary(out, &tokens, 2 * n + 1);
    mt_str_free(&tokens);
    mt_str_free(&tail);
}

/* The same piece n times, which can be made in 200 ways. */
static void tokens_again(mt_str *out, size_t n)
{
    mt_str tokens = { 0 };
    char text[256] = { 0 };
    for (size_t i = 1; i < 200; i++) memset(text, 'a', i), text[i] = '\0', forge_gg_text(&tokens, text, i);
    for (size_t i = 0; i < n; i++) forge_gg_text(&tokens, text, strlen(text));
    gguf_vocabulary(out, &tokens, 199 + n);
    mt_str_free(&tokens);
}

/* -- tokenizers ------------------------------------------------------------------------------------------- */

static void add_text(mt_str *out, const char *what, size_t times)
{
    mt_str_putc(out, '\0');
    forge_repeat(out, what, times);
}

/* n merges whose pairs share few slots of a table that multiplies by a known number: 0x9e37...15 * pair is small. */
static void colliding_merges(mt_str *out, size_t n)
{
    size_t n_tokens = 1;
    while (n_tokens * n_tokens / 4096 < 4 * n) n_tokens++;
    mt_str_puts(out, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (size_t i = 0; i < n_tokens; i++) mt_str_printf(out, "%s\"%zx\":%zu", i ? "," : "", i, i);
    size_t next = n_tokens, put = 0;
    mt_str merges = { 0 };
    for (uint64_t a = 0; a < n_tokens && put < n; a++)
        for (uint64_t b = 0; b < n_tokens && put < n; b++) {
            if ((a << 32 | b) * 0x9e3779b97f4a7c15u >> 52) continue;
            char text[64];
            snprintf(text, sizeof text, "%zx%zx", (size_t)a, (size_t)b);
            mt_str_printf(out, ",\"%s\":%zu", text, next++);
            mt_str_printf(&merges, "%s[\"%zx\",\"%zx\"]", put++ ? "," : "", (size_t)a, (size_t)b);
        }
    mt_str_puts(out, "},\"merges\":[");
    mt_str_add(out, merges.s ? merges.s : "", merges.n);
    mt_str_puts(out, "]}}");
    mt_str_free(&merges);
}

static void one_long_word(mt_str *out, size_t n)
{
    mt_str_puts(
        out, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2},\"merges\":[[\"a\",\"a\"],[\"aa\",\"aa\"]]}}");
    add_text(out, "a", n);
}

/* A token of n bytes, and a text that begins it at each of its places. */
static void long_unigram(mt_str *out, size_t n)
{
    mt_str_puts(out, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"");
    forge_repeat(out, "a", n);
    mt_str_puts(out, "b\",-2]]}}");
    add_text(out, "a", 4 * n);
}

static void long_added_token(mt_str *out, size_t n)
{
    mt_str_puts(out, "{\"added_tokens\":[{\"id\":1,\"content\":\"");
    forge_repeat(out, "a", n);
    mt_str_puts(out, "b\",\"special\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    add_text(out, "a", 4 * n);
}

static void stripping_token(mt_str *out, size_t n)
{
    mt_str_puts(out, "{\"added_tokens\":[{\"id\":1,\"content\":\" \",\"special\":true,\"lstrip\":true,\"rstrip\":true}],"
                     "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    add_text(out, " ", n);
}

static void long_wordpiece(mt_str *out, size_t n)
{
    mt_str_puts(out, "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"max_input_chars_per_word\":1000,\"vocab\":{\"u\":"
                     "0,\"a\":1,\"##a\":2,\"");
    forge_repeat(out, "a", 2000);
    mt_str_puts(out, "\":3}},\"pre_tokenizer\":{\"type\":\"Whitespace\"}}");
    mt_str_putc(out, '\0');
    for (size_t i = 0; i < n; i++) forge_repeat(out, "a", 999), mt_str_putc(out, ' ');
}

static void grown_text(mt_str *out, size_t n)
{
    mt_str_puts(out, "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"");
    forge_repeat(out, "b", n);
    mt_str_puts(out, "\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"b\":0},\"merges\":[]}}");
    add_text(out, "a", n);
}

/* A pattern that backs up at every place of a text. */
static void split_by(mt_str *out, const char *pattern, size_t n)
{
    mt_str_printf(out,
                  "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"%s\"}},"
                  "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
                  pattern);
    add_text(out, "a", n);
}

static void run_before_literal(mt_str *out, size_t n) { split_by(out, "a*b|a", n); }
static void nested_lookahead(mt_str *out, size_t n) { split_by(out, "(?:(?=a*c)b|a)*d|a", n); }
static void long_lookbehind(mt_str *out, size_t n) { split_by(out, "(?<=a*)b|a", n); }
static void nested_repeats(mt_str *out, size_t n) { split_by(out, "(?:a*)*b", n); }

static void pattern_of_sets(mt_str *out, size_t n)
{
    mt_str pattern = { 0 };
    forge_repeat(&pattern, "[^\\\\P{L}]", n);
    split_by(out, pattern.s, 10);
    mt_str_free(&pattern);
}

/* -- templates --------------------------------------------------------------------------------------------- */

/* A thousand names in each of many blocks inside each other, and n uses of one from outside. */
static void nested_scopes(mt_str *out, size_t n)
{
    for (int depth = 0; depth < 20; depth++) {
        mt_str_puts(out, "{% for i in x %}");
        for (size_t i = 0; i < n / 4; i++) mt_str_printf(out, "{%% set v%d_%zu = 1 %%}", depth, i);
    }
    forge_repeat(out, "{{ messages }}", n);
    for (int depth = 0; depth < 20; depth++) mt_str_puts(out, "{% endfor %}");
}

static void unclosed_tags(mt_str *out, size_t n) { mt_str_printf(out, "{{ ('<' * %zu)|striptags|length }}", n); }
static void stripped(mt_str *out, size_t n) { mt_str_printf(out, "{{ ('a' * %zu).strip('b' * %zu + 'a')|length }}", n, n); }
static void long_dict(mt_str *out, size_t n)
{
    mt_str_puts(out, "{% set d = {");
    for (size_t i = 0; i < n; i++) mt_str_printf(out, "'k%zu': 1, ", i);
    mt_str_puts(out, "} %}{% for i in range(100000) %}{% if d.nothing %}{% endif %}{% endfor %}");
}
static void empty_strings(mt_str *out, size_t n)
{
    mt_str_puts(out, "{% for i in range(1000) %}{% for j in range(1000) %}{% set x = ''");
    forge_repeat(out, "~''", n);
    mt_str_puts(out, " %}{% endfor %}{% endfor %}");
}

static void many_branches(mt_str *out, size_t n)
{
    mt_str_puts(out, "{% for i in range(1000) %}{% for j in range(1000) %}{% if x %}");
    forge_repeat(out, "{% elif x %}", n);
    mt_str_puts(out, "{% endif %}{% endfor %}{% endfor %}");
}

/* -- dataset cards, configurations ----------------------------------------------------------------------------- */

static void aliased_patterns(mt_str *out, size_t n)
{
    for (size_t i = 0; i < 20; i++) mt_str_printf(out, "data/train-%zu.parquet\n", i);
    mt_str_puts(out, "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path:\n    - &a '");
    forge_repeat(out, "*a[a-z]?", 4 * n);
    mt_str_puts(out, "'\n");
    forge_repeat(out, "    - *a\n", n);
    mt_str_puts(out, "---\n");
}

static void many_splits(mt_str *out, size_t n)
{
    mt_str_puts(out, "data/train.parquet\n---\nconfigs:\n- config_name: default\n  data_files:\n  - split: &a '");
    forge_repeat(out, "long-", 8 * n);
    mt_str_puts(out, "'\n    path: a\n");
    forge_repeat(out, "  - split: *a\n    path: a\n", n);
    mt_str_puts(out, "---\n");
}

static void many_files(mt_str *out, size_t n)
{
    for (size_t i = 0; i < n; i++) mt_str_printf(out, "data/train-%05zu-of-%05zu.parquet\n", i, n);
    mt_str_puts(out, "---\nconfigs:\n- config_name: default\n  data_files: data/**\n---\n");
}

static void config_of_zeros(mt_str *out, size_t n)
{
    mt_str_puts(out, "{\"model_type\":\"llama\",\"x\":[0");
    forge_repeat(out, ",0", n);
    mt_str_puts(out, "]}");
}

static void config_keys(mt_str *out, size_t n)
{
    mt_str_puts(out, "{\"model_type\":\"llama\"");
    for (size_t i = 0; i < n; i++) mt_str_printf(out, ",\"k%zu\":0", i);
    mt_str_puts(out, "}");
}

/* -- the table -------------------------------------------------------------------------------------------------- */

typedef struct shape {
    const char *name;
    reads *read;
    makes *make;
    size_t n;          /* parts of the smallest file */
    double steps_each; /* bounds for each byte of the file: steps, bytes of memory */
    double bytes_each;
    bool fixed; /* the reader refuses larger files: the same size in make soak */
} shape;

enum { SPARE_STEPS = 1000000, SPARE_BYTES = 4 << 20 }; /* the fixed cost of a reader: tables made at the start */

static const shape shapes[] = {
    { "json: keys that collide", read_json, colliding_record, 2000, 200, 20, false },
    { "json: keys, some twice", read_json, many_keys, 4000, 200, 20, false },
    { "json: nested lists", read_json, nested_lists, 100, 200, 20, false },
    { "json: escapes", read_json, escapes, 20000, 50, 10, false },
    { "json: lines that are none", read_json, bad_lines, 4000, 600, 20, false },
    { "json: a list that ends wrong", read_json, one_list, 8000, 200, 20, false },
    { "yaml: keys", read_yaml, yaml_keys, 600, 300, 60, true },
    { "yaml: merges", read_yaml, yaml_merges, 400, 300, 80, true },
    { "yaml: anchors", read_yaml, yaml_anchors, 300, 300, 60, true },
    { "yaml: aliases of aliases", read_yaml, yaml_aliases, 4, 300, 60, true },
    { "csv: columns", read_csv, csv_columns, 2000, 300, 60, false },
    { "csv: quotes", read_csv, csv_quotes, 20000, 100, 20, false },
    { "csv: quotes that stay open", read_csv, csv_open_quote, 4000, 300, 20, false },
    { "parquet: columns", read_parquet, parquet_columns, 500, 300, 150, true },
    { "parquet: row groups", read_parquet, parquet_groups, 500, 300, 40, false },
    { "arrow: columns", read_arrow, arrow_columns, 500, 200, 20, true },
    { "arrow: batches", read_arrow, arrow_batches, 500, 100, 20, false },
    { "arrow: columns that share a name", read_arrow, arrow_shared_name, 500, 200, 40, true },
    { "safetensors: names that collide", read_safetensors, colliding_tensors, 1500, 200, 20, false },
    { "safetensors: a shape of zeros", read_safetensors, header_of_zeros, 20000, 100, 80, false },
    { "safetensors: metadata", read_safetensors, metadata, 4000, 200, 30, false },
    { "weights: layers of experts", read_weights, layers_of_experts, 11520, 100, 60, true },
    { "weights: experts of a layer", read_weights, experts_of_layers, 250, 100, 60, true },
    { "pickle: lists that are copied", read_pickle, copied_lists, 1000, 300, 120, false },
    { "pickle: views that repeat", read_pickle, repeating_views, 500, 300, 40, false },
    { "pickle: tensors", read_pickle, many_tensors, 1000, 300, 40, false },
    { "gguf: heads stated often", read_gguf, head_counts, 1000, 300, 30, false },
    { "gguf: keys", read_gguf, gguf_keys, 1000, 300, 30, false },
    { "gguf: a token with a tail", read_gguf, tokens_with_a_tail, 1000, 600, 60, false },
    { "gguf: a token again and again", read_gguf, tokens_again, 300, 1200, 60, false },
    { "tokenizer: merges that collide", read_tokenizer, colliding_merges, 500, 300, 80, false },
    { "tokenizer: one long word", read_tokenizer, one_long_word, 20000, 500, 200, false },
    { "tokenizer: a long unigram", read_tokenizer, long_unigram, 2000, 4000, 200, false },
    { "tokenizer: a long added token", read_tokenizer, long_added_token, 2000, 4000, 200, false },
    { "tokenizer: a token that strips", read_tokenizer, stripping_token, 4000, 300, 200, false },
    { "tokenizer: long word pieces", read_tokenizer, long_wordpiece, 10, 4000, 200, false },
    { "tokenizer: text that grows", read_tokenizer, grown_text, 4000, 300, 600, false },
    { "tokenizer: a run before a literal", read_tokenizer, run_before_literal, 50000, 8000, 200, false },
    { "tokenizer: a lookahead in a loop", read_tokenizer, nested_lookahead, 50000, 8000, 200, false },
    { "tokenizer: a long lookbehind", read_tokenizer, long_lookbehind, 50000, 8000, 200, false },
    { "tokenizer: repeats of repeats", read_tokenizer, nested_repeats, 50000, 8000, 200, false },
    { "tokenizer: a pattern of sets", read_tokenizer, pattern_of_sets, 400, 12000, 2500, true },
    { "jinja: names in nested blocks", read_jinja, nested_scopes, 120, 400, 200, true },
    { "jinja: tags that stay open", read_jinja, unclosed_tags, 20000, 1e9, 1e9, false },
    { "jinja: strip", read_jinja, stripped, 2000, 1e9, 1e9, false },
    { "jinja: a look-up in a long dict", read_jinja, long_dict, 100, 1e9, 1e9, true },
    { "jinja: empty strings", read_jinja, empty_strings, 500, 1e9, 1e9, true },
    { "jinja: branches", read_jinja, many_branches, 500, 1e9, 1e9, true },
    { "card: aliased patterns", read_card, aliased_patterns, 200, 1e9, 80, true },
    { "card: splits", read_card, many_splits, 200, 400, 80, true },
    { "card: files", read_card, many_files, 1000, 400, 40, false },
    { "hub: files that are here", read_repository, many_bytes, 500, 2000, 4000, true },
    { "config: zeros", read_config, config_of_zeros, 20000, 60, 80, false },
    { "config: keys", read_config, config_keys, 4000, 60, 80, false },
};

static cost cost_of(const shape *s, size_t n, size_t *n_bytes)
{
    mt_str file = { 0 };
    s->make(&file, n);
    assert_true(mt_str_ok(&file));
    char *exact = malloc(file.n);
    assert_non_null(exact);
    memcpy(exact, file.s, file.n);
    *n_bytes = file.n;
    mt_str_free(&file);
    cost_begin();
    s->read(exact, *n_bytes);
    cost c = cost_end();
    free(exact);
    return c;
}

/* The bound on a template's steps, in basic blocks. */
static const double most_steps_of_a_template = 3e9;

static bool in_proportion(const shape *s, size_t n)
{
    size_t bytes[3];
    cost c[3];
    bool fine = true;
    for (int i = 0; i < 3; i++) {
        c[i] = cost_of(s, n << i, &bytes[i]);
        bool few =
            (double)c[i].steps <= s->steps_each * (double)bytes[i] + SPARE_STEPS && (double)c[i].steps < most_steps_of_a_template;
        bool small = (double)c[i].peak <= s->bytes_each * (double)bytes[i] + SPARE_BYTES;
        if (!few || !small)
            print_error("%s: %zu bytes took %llu steps and %zu bytes of memory\n", s->name, bytes[i],
                        (unsigned long long)c[i].steps, c[i].peak);
        fine = fine && few && small;
    }
    /* Twice, and a little more for logarithms and for tables that grow in jumps. */
    double first = (double)c[1].steps - (double)c[0].steps, second = (double)c[2].steps - (double)c[1].steps;
    bool linear = second <= 2.8 * (first > 0 ? first : 0) + 200000;
    if (!linear)
        print_error("%s: %zu, %zu and %zu bytes took %llu, %llu and %llu steps\n", s->name, bytes[0], bytes[1], bytes[2],
                    (unsigned long long)c[0].steps, (unsigned long long)c[1].steps, (unsigned long long)c[2].steps);
    if (getenv("MT_SHOW"))
        print_message("%-40s %9zu bytes %12llu steps (%5.1f a byte, then x%.2f, x%.2f) %10zu memory (%.1f a byte)\n", s->name,
                      bytes[2], (unsigned long long)c[2].steps, (double)c[2].steps / (double)bytes[2],
                      (double)c[1].steps / (double)c[0].steps, (double)c[2].steps / (double)c[1].steps, c[2].peak,
                      (double)c[2].peak / (double)bytes[2]);
    return fine && linear;
}

static void work_and_memory_grow_with_the_file_and_no_faster(void **state)
{
    (void)state;
    const char *only = getenv("MT_ONLY");
    int n_bad = 0;
    for (size_t i = 0; i < MT_COUNT(shapes); i++) {
        const shape *s = &shapes[i];
        if (only && !strstr(s->name, only)) continue;
        n_bad += !in_proportion(s, s->n * (getenv("MT_THOROUGH") && !s->fixed ? 8 : 1));
    }
    assert_int_equal(n_bad, 0);
}

/* -- operations of templates ------------------------------------------------------------------------------------- */

/* Of a text x, and of y, which is one letter longer.  A call has other costs for each kind of character. */
static const char *const template_texts[] = {
    "'a' * 8000",   "'A' * 8000",     "'\xc3\xa9' * 4000", "'\xc7\x86' * 4000",     "'\xce\xa3' * 4000",
    "' ' * 8000",   "'<' * 8000",     "'<a>' * 2600",      "'&amp;' * 1600",        "'%%' * 4000",
    "'{{}' * 2600", "'}}' * 4000",    "'ab ' * 2600",      "'a\\n' * 4000",         "'\\t' * 1000",
    "'7' * 8000",   "'%Z' * 4000",    "'%s' * 4000",       "'\xe2\x80\xa8' * 2600", "'\xf0\x9f\x8e\x89' * 2000",
    "'\"' * 8000",  "'\\x00' * 8000", "'ab' * 4000"
};

static const char *const template_operations[] = {
    /* filters */
    "x|abs",
    "x|attr('y')",
    "x|batch(2)|list",
    "x|capitalize",
    "x|center(9)",
    "x|center(16000)",
    "x|count",
    "x|default('z')",
    "{x: 1}|dictsort",
    "{x: 1, y: 2}|dictsort",
    "x|e",
    "x|escape",
    "x|filesizeformat",
    "x|first",
    "x|float",
    "x|forceescape",
    "x|format(1)",
    "x|format()",
    "[x, y]|groupby(0)|list",
    "x|indent(2)",
    "x|indent(2, true, true)",
    "x|int",
    "x|int(0, 36)",
    "{'a': x}|items|list",
    "x|join",
    "x|join('ab')",
    "[x, y]|join(',')",
    "x|last",
    "x|length",
    "x|list",
    "x|lower",
    "[x]|map('length')|list",
    "[x]|map('lower')|list",
    "x|map('upper')|list",
    "x|max",
    "x|min",
    "[x, y]|max",
    "[x, y]|min",
    "[x, y]|reject('eq', y)|list",
    "x|replace('q', 'r')",
    "x|replace('a', 'b')",
    "x|replace('aa', '')",
    "x|replace(x, y)",
    "x|reverse",
    "[x, y]|select('eq', y)|list",
    "x|slice(3)|list",
    "x|sort",
    "[x, y]|sort",
    "x|string",
    "x|striptags",
    "x|sum",
    "x|title",
    "x|tojson",
    "[x]|tojson(indent=2)",
    "x|trim",
    "x|trim('a')",
    "x|truncate(9)",
    "x|truncate(7999)",
    "x|truncate(7800, true)",
    "x|unique|list",
    "[x, y]|unique|list",
    "x|upper",
    "x|urlencode",
    "x|wordcount",
    "{'a': x}|xmlattr",
    "{x: 1}|xmlattr",
    "x|e|e",
    "x|e ~ x",
    "x|safe",
    "x|round",
    /* methods */
    "x.strip()",
    "x.strip('a')",
    "x.lstrip('\xc3\xa9')",
    "x.rstrip('a\xc3\xa9')",
    "x.lstrip()",
    "x.rstrip()",
    "x.split()",
    "x.split('a')",
    "x.split('q')",
    "x.split('', 1)",
    "x.split(None, 9)",
    "x.rsplit()",
    "x.rsplit('q')",
    "x.rsplit('a', 9)",
    "x.splitlines()",
    "x.startswith('a')",
    "x.startswith('a', 7999)",
    "x.startswith(x)",
    "x.startswith((y, x))",
    "x.endswith('a')",
    "x.endswith('a', 2, 7999)",
    "x.endswith(x)",
    "x.replace('q', 'z')",
    "x.replace('a', 'b')",
    "x.replace('', '-')",
    "x.upper()",
    "x.lower()",
    "x.title()",
    "x.capitalize()",
    "x.swapcase()",
    "x.find('q')",
    "x.find('q', 5, 6000)",
    "x.find(x)",
    "x.rfind('q')",
    "x.rfind('qqqqqqqqq')",
    "x.rfind('aaaaaaaaab')",
    "x.find('aaaaaaaaab')",
    "x.find('aaab')",
    "x.rfind(x)",
    "x.index(x)",
    "x.rindex(x)",
    "x.count('q')",
    "x.count('a')",
    "x.count('aab')",
    "x.count('')",
    "'ab'.join(x)",
    "x.join(['a', 'b', 'c'])",
    "x.join('ab')",
    "x.format(1)",
    "x.format_map({})",
    "x.removeprefix(x)",
    "x.removesuffix(x)",
    "x.zfill(9)",
    "x.zfill(16000)",
    "x.center(16000)",
    "x.ljust(16000)",
    "x.rjust(16000)",
    "x.partition('q')",
    "x.partition('a')",
    "x.rpartition('q')",
    "x.rpartition('a')",
    "x.expandtabs()",
    "x.expandtabs(1)",
    "x.isdigit()",
    "x.isdecimal()",
    "x.isnumeric()",
    "x.isalpha()",
    "x.isalnum()",
    "x.isspace()",
    "x.isupper()",
    "x.islower()",
    "x.istitle()",
    "x.isascii()",
    "x.isidentifier()",
    "x.isprintable()",
    /* tests */
    "x is string",
    "x is lower",
    "x is upper",
    "x is in x",
    "x is in y",
    "x is eq y",
    "x is lt y",
    "x is ge x",
    "x is iterable",
    "x is filter",
    "x is test",
    "x is sameas x",
    "x is escaped",
    /* operators and the rest */
    "x % ()",
    "x % 1",
    "x % x",
    "'%s' % x",
    "'%.3s' % x",
    "'%r' % x",
    "'%16000s' % x",
    "x ~ 'b'",
    "x + 'b'",
    "x * 2",
    "x[5]",
    "x[-1]",
    "x[7800]",
    "x[1:]",
    "x[::-1]",
    "x[::2]",
    "x[6000:7000]",
    "x == y",
    "x == x ~ ''",
    "x < y",
    "x < x ~ ''",
    "'q' in x",
    "x in y",
    "y in x",
    "x in [y, x ~ '']",
    "x and 1",
    "x if x else 1",
    "{x: 1}",
    "{x: 1}[x ~ '']",
    "{y: 1, x: 2}[x ~ '']",
    "(x, y)",
    "dict(a=x)",
    "'{}'.format(x)",
    "'{:>16000}'.format(1)",
    "'{:>16000}'.format(x)",
    "'{!r}'.format(x)",
    "'{0:{1}}'.format(1, x)",
    "'%16000d' % 1",
    "x.nothing",
    "x['nothing']",
    "strftime_now(x)",
    "[x]|string",
    "{x: y}|string",
    "namespace(a=x)",
    "joiner(x)",
    "range(2000)|list",
    "range(2000)|sum",
    "range(2000)|list|string",
    "range(2000)|list|tojson",
    "range(2000)|map('string')|join",
    "range(2000)|list|sort(reverse=true)",
    "range(2000)|list == range(2000)|list",
    "1990 in range(2000)|list",
};

/* This many basic blocks at most: 20 million steps, the bound, take 2 seconds, and 5 on a slow machine. */
enum { OPERATION_STEPS = 20000, BLOCKS_OF_A_STEP = 100 };

static uint64_t blocks_of(const char *text, const char *operation)
{
    mt_str template = { 0 }, out = { 0 };
    mt_err err = { 0 };
    mt_jinja *t;
    const mt_jinja_options options = { .max_steps = OPERATION_STEPS };
    mt_str_printf(&template,
                  "{%% set x = %s %%}{%% set y = x ~ 'a' %%}{%% for i in range(100000) %%}{%% set z = %s %%}{%% endfor %%}", text,
                  operation);
    assert_true(mt_str_ok(&template));
    assert_ok(mt_jinja_parse(&t, template.s, template.n, "cost", &err));
    cost_begin();
    (void)mt_jinja_render(t, NULL, &options, &out, NULL, &err); /* ends for having too many steps, or with an error of x's kind */
    const cost c = cost_end();
    mt_jinja_free(t);
    mt_str_free(&template);
    mt_str_free(&out);
    return c.steps;
}

/* Whatever a template does in a loop, and to whatever text, its steps bound the time that it takes. */
static void an_operation_of_a_template_counts_what_it_takes(void **state)
{
    (void)state;
    int n_bad = 0;
    for (size_t i = 0; i < MT_COUNT(template_operations); i++) {
        uint64_t most = 0;
        size_t which = 0;
        for (size_t k = 0; k < MT_COUNT(template_texts); k++) {
            const uint64_t n = blocks_of(template_texts[k], template_operations[i]);
            if (n > most) most = n, which = k;
        }
        const double each = (double)most / OPERATION_STEPS;
        if (getenv("MT_SHOW"))
            print_message("%6.1f blocks a step: %s of %s\n", each, template_operations[i], template_texts[which]);
        if (each <= BLOCKS_OF_A_STEP) continue;
        print_error("%s of %s: %.0f basic blocks a step, at most %d expected\n", template_operations[i], template_texts[which],
                    each, BLOCKS_OF_A_STEP);
        n_bad++;
    }
    assert_int_equal(n_bad, 0);
}

MT_TEST_MAIN(cmocka_unit_test(an_operation_of_a_template_counts_what_it_takes),
             cmocka_unit_test(work_and_memory_grow_with_the_file_and_no_faster))
