/* The ready configs: every file under configs/ reads, names data that is registered, and plans on the machine its comment asks
 * for, without a network. */
#include "test.h"

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "plan/gpus.h"
#include "plan/machine.h"
#include "plan/search.h"
#include "plan/shapes.h"
#include "schedule/plan.h"
#include "settings/settings.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <strings.h>

#define CONFIGS MT_TESTS_DIR "/../configs"

static const size_t GIB = (size_t)1 << 30;

typedef struct ready {
    char name[64]; /* without .yaml */
    char *text;
    mt_settings s;
} ready;

static bool open_ready(ready *c, const char *file)
{
    mt_err err = { 0 };
    char path[512];
    size_t n = strlen(file);
    if (n < 6 || strcmp(file + n - 5, ".yaml") != 0) return false;
    snprintf(c->name, sizeof c->name, "%.*s", (int)n - 5, file);
    snprintf(path, sizeof path, "%s/%s", CONFIGS, file);
    assert_ok(mt_file_read(&c->text, NULL, path, 1 << 20, &err));
    assert_ok(mt_settings_init(&c->s, &err));
    assert_ok(mt_settings_read(&c->s, path, &err));
    assert_ok(mt_settings_check(&c->s, MT_NEED_MODEL | MT_NEED_DATA, &err));
    return true;
}

static void close_ready(ready *c)
{
    mt_settings_deinit(&c->s);
    mt_free(c->text);
}

/* "Llama-2-7b-chat-hf" -> "llama-2-7b": as shapes and published models are called. */
static void base_name(const char *hub, char *out, size_t n)
{
    static const struct {
        const char *text;
        bool at_end;
    } words[] = {
        { "-instruct", false }, { "-chat", false }, { "-hf", true }, { "-it", true }, { "-pt", true }, { "-v1.0", true }
    };
    snprintf(out, n, "%s", mt_path_base(hub));
    for (char *p = out; *p; p++) *p = (char)tolower((unsigned char)*p);
    for (size_t i = 0; i < MT_COUNT(words); i++) {
        char *at = strstr(out, words[i].text);
        size_t k = strlen(words[i].text);
        if (at && (!words[i].at_end || !at[k])) memmove(at, at + k, strlen(at + k) + 1);
    }
}

/* The model's config.json, from the table of shapes or that of published models. */
static void open_config(mt_config **out, const char *name, const mt_value *published)
{
    mt_err err = { 0 };
    *out = NULL;
    for (size_t i = 0; !*out && i < mt_value_items(published); i++) {
        const mt_value *row = mt_value_at(published, i);
        if (strcasecmp(mt_json_string(mt_value_get(row, "name")), name) != 0) continue;
        mt_str text = { 0 };
        mt_value_write_json(&text, mt_value_get(row, "config"));
        assert_ok(mt_config_parse(out, text.s, text.n, name, &err));
        mt_str_free(&text);
    }
    if (!*out) assert_ok(mt_shape_open(out, name, &err));
}

/* The run fits a machine with this many GiB, less what the system and a CUDA context take. */
static void fits(const ready *c, const mt_model *model, size_t ram, size_t gpu)
{
    mt_err err = { 0 };
    mt_plan *plan;
    const mt_training_settings *t = &c->s.training;
    int64_t docs = t->batch_size * t->gradient_accumulation_steps, longest = c->s.dataset.max_seq_len;
    mt_job job = { .train = true, .clip = true, .step_tokens = docs * longest, .step_docs = docs, .longest = longest };
    mt_arithmetic form = { .compute = c->s.model.dtype, .grad = t->grad_dtype };
    mt_machine machine = mt_machine_typical();
    machine.device_bytes = (gpu - 1) * GIB;
    machine.host_bytes = (ram - 4) * GIB;
    machine.base_host = machine.host_page = 0; /* is in those 4 */
    if (mt_plan_auto(&plan, (mt_plan_inputs){ model, &job, &form, &machine }, &err))
        fail_msg("%s on %zu GiB of RAM and a GPU with %zu GiB: %s", c->name, ram, gpu, err.msg);
    assert_true(plan->device_bytes <= machine.device_bytes && plan->host_bytes <= machine.host_bytes);
    assert_true((double)(ram - 4) * (double)GIB < 19.0 * (double)model->n_params + 4.0 * (double)GIB); /* and not a guess */
    mt_plan_free(plan);
}

static void plans(const ready *c, const mt_value *published)
{
    mt_err err = { 0 };
    mt_config *config;
    mt_model *model;
    char name[64];
    size_t ram, gpu;
    const char *needs = strstr(c->text, "# Needs ");
    if (!needs || sscanf(needs, "# Needs %zu GiB of RAM and a GPU with %zu GiB", &ram, &gpu) != 2)
        fail_msg("%s says no machine", c->name);
    base_name(c->s.model.name, name, sizeof name);
    open_config(&config, name, published);
    assert_ok(mt_model_create(&model, config, NULL, &err));
    fits(c, model, ram, gpu);
    mt_model_free(model);
    mt_config_close(config);
}

static void every_config_reads_and_plans(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *registry, *published;
    int n = 0, n_planned = 0;
    assert_ok(mt_json_read(&registry, MT_TESTS_DIR "/../data/dataset_info.json", &err));
    assert_ok(mt_json_read(&published, MT_TESTS_DIR "/unit/published/published.json", &err));
    DIR *d = opendir(CONFIGS);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        ready c;
        if (!open_ready(&c, e->d_name)) continue;
        n++;
        for (size_t i = 0; i < c.s.dataset.name.n; i++) assert_non_null(mt_value_get(registry, c.s.dataset.name.items[i]));
        if (strcmp(c.name, "demo") != 0) {
            if (test_tries(mt_hash(c.name, strlen(c.name), 0) % 64, 64)) plans(&c, published);
            n_planned++;
        }
        close_ready(&c);
    }
    closedir(d);
    mt_json_free(published);
    mt_json_free(registry);
    assert_true(n >= 60);
    assert_true(n_planned >= 55);
}

static void the_originals_names_are_kept(void **state)
{
    (void)state;
    static const char *const names[] = { "qwen_7b",    "qwen3_8b",  "qwen3_5_27b", "qwen3_next_80b",
                                         "glm4_flash", "llama3_8b", "gpt_oss_20b" };
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        char path[512];
        snprintf(path, sizeof path, CONFIGS "/%s.yaml", names[i]);
        assert_true(mt_file_exists(path));
    }
}

/* -- the README's table: which machine trains which model ------------------------------------------- */

static const struct {
    const char *words, *gpu; /* NULL: none */
    double ram_gb;
} machines[] = {
    { "a laptop or CPU server, 16 GB", NULL, 16 },  { "RTX 3090 or 4090, 64 GB of RAM", "rtx3090", 64 },
    { "RTX 4090 or 5090, 128 GB", "rtx4090", 128 }, { "H100, 256 GB", "h100", 256 },
    { "H100 or H200, 512 GB", "h100", 512 },        { "H200, 1 TB", "h200", 1000 },
};

/* 3 GB are the system's. */
static mt_machine machine_of(const char *words)
{
    mt_err err = { 0 };
    for (size_t i = 0; i < MT_COUNT(machines); i++) {
        const mt_gpu *gpu;
        if (strcmp(words, machines[i].words) != 0) continue;
        mt_machine m = mt_machine_cpu(1e11, 4);
        if (machines[i].gpu) {
            assert_ok(mt_gpu_find(&gpu, machines[i].gpu, &err));
            m = mt_machine_of_gpu(gpu, 16);
        }
        m.host_bytes = (size_t)((machines[i].ram_gb - 3) * 1e9);
        return m;
    }
    fail_msg("the README's machine \"%s\" is not known to this test", words);
    return (mt_machine){ 0 };
}

static void fits_on(const mt_machine *machine, const char *words, double most, const char *file, const mt_value *published)
{
    ready c;
    mt_err err = { 0 };
    mt_config *config;
    mt_model *model;
    mt_plan *plan;
    char name[64];
    assert_true(open_ready(&c, file));
    base_name(c.s.model.name, name, sizeof name);
    open_config(&config, name, published);
    assert_ok(mt_model_create(&model, config, NULL, &err));
    int64_t docs = 8, longest = 1024; /* the fewest that batch_size: auto takes where they fit */
    mt_job job = { .train = true, .clip = true, .step_tokens = docs * longest, .step_docs = docs, .longest = longest };
    mt_arithmetic form = { .compute = c.s.model.dtype, .grad = c.s.training.grad_dtype };
    if (mt_plan_auto(&plan, (mt_plan_inputs){ model, &job, &form, machine }, &err))
        fail_msg("%s on \"%s\": %s", c.name, words, err.msg);
    if ((double)model->n_params > most * 1.1) fail_msg("%s is larger than its row says", c.name); /* names round */
    mt_plan_free(plan);
    mt_model_free(model);
    mt_config_close(config);
    close_ready(&c);
}

/* "135M to 360M", "up to 4B": the last number. */
static double largest_in(const char *cell)
{
    double most = 0;
    for (char *end; *cell; cell = end) {
        double v = strtod(cell, &end);
        if (end == cell) {
            end++;
            continue;
        }
        most = v * (*end == 'B' ? 1e9 : 1e6);
    }
    assert_true(most > 0);
    return most;
}

static void what_the_readme_says_a_machine_trains_it_trains(void **state)
{
    (void)state;
    mt_err err = { 0 };
    char *readme, words[80], range[80], configs[300];
    const mt_value *published;
    size_t n_rows = 0, n_named = 0;
    assert_ok(mt_json_read(&published, MT_TESTS_DIR "/unit/published/published.json", &err));
    assert_ok(mt_file_read(&readme, NULL, MT_TESTS_DIR "/../README.md", 1 << 20, &err));
    const char *row = strstr(readme, "| you have |");
    assert_non_null(row);
    row = strchr(strchr(row, '\n') + 1, '\n') + 1;
    for (; sscanf(row, "| %79[^|] | %79[^|] | %299[^|\n] |", words, range, configs) == 3; row = strchr(row, '\n') + 1, n_rows++) {
        words[strcspn(words, "|")] = '\0';
        for (size_t n = strlen(words); n && words[n - 1] == ' '; n--) words[n - 1] = '\0';
        mt_machine machine = machine_of(words);
        for (char *name = strtok(configs, "`, "); name; name = strtok(NULL, "`, ")) {
            char file[96];
            snprintf(file, sizeof file, "%s.yaml", name);
            if (test_tries(n_named++ % 32, 32)) fits_on(&machine, words, largest_in(range), file, published);
        }
    }
    assert_int_equal(n_rows, MT_COUNT(machines));
    mt_free(readme);
    mt_json_free(published);
}

MT_TEST_MAIN(cmocka_unit_test(what_the_readme_says_a_machine_trains_it_trains), cmocka_unit_test(every_config_reads_and_plans),
             cmocka_unit_test(the_originals_names_are_kept))
