/* A trace sees what streams do between two turns, when, and under which name; and nothing else. */
#include "test.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "device/device_cpu.h"
#include "device/trace.h"
#include "ops/ops.h"
#include "run/spent.h"
#include "tempdir.h"

#include <string.h>
#include <unistd.h>

typedef struct fixture {
    mt_device *dev;
    mt_stream *a, *b;
    mt_event *e;
    mt_trace *trace;
    float *mem; /* device */
} fixture;

enum { N = 64 };

static void open_fixture(fixture *f, int max_spans)
{
    mt_err err = { 0 };
    *f = (fixture){ 0 };
    assert_ok(mt_device_open(&f->dev, "cpu", &(mt_device_options){ .n_threads = 2 }, &err));
    assert_ok(mt_device_cpu.stream_create(f->dev, &f->a, "a", &err));
    assert_ok(mt_device_cpu.stream_create(f->dev, &f->b, "b", &err));
    assert_ok(mt_device_cpu.event_create(f->dev, &f->e, &err));
    assert_ok(mt_device_alloc(f->dev, (void **)&f->mem, 8 * N * N * sizeof(float), "matrices", &err));
    assert_ok(mt_trace_create(&f->trace, f->dev, max_spans, &err));
    f->e->name = "b's turn";
    mt_trace_attach(f->trace, f->a, "compute");
    mt_trace_attach(f->trace, f->b, "copy-in");
}

static void close_fixture(fixture *f)
{
    mt_device_cpu.stream_free(f->a);
    mt_device_cpu.stream_free(f->b);
    mt_device_cpu.event_free(f->e);
    mt_device_cpu.free(f->dev, f->mem);
    mt_trace_free(f->trace);
    mt_device_close(f->dev);
}

static void settle(fixture *f, mt_stream *s)
{
    mt_err err = { 0 };
    mt_event *done;
    assert_ok(mt_device_cpu.event_create(f->dev, &done, &err));
    assert_ok(mt_record(s, done, &err));
    assert_ok(mt_sync(done, &err));
    mt_device_cpu.event_free(done);
}

static mt_rc sleep_a_while(mt_pool *pool, const void *args, mt_err *err)
{
    (void)pool, (void)err;
    usleep(*(const useconds_t *)args);
    return MT_OK;
}

/* Stream a: a fill, a wait for b's nap, a product and its gradients; stream b: an untraced nap, a copy. */
static void work(fixture *f)
{
    mt_err err = { 0 };
    float *x = f->mem, *w = x + N * N, *y = w + N * N, *dy = y + N * N, *dx = dy + N * N, *dw = dx + N * N;
    mt_linear p = { .t = MT_DTYPE_F32, .M = N, .N = N, .K = N, .x = x, .w = w, .y = y };
    useconds_t nap = 100000; /* a has come to its wait by then */
    assert_ok(mt_fill(f->a, f->mem, 0, 6 * N * N * sizeof(float), &err));
    assert_ok(mt_cpu_enqueue(f->b, sleep_a_while, &nap, sizeof nap, &err));
    assert_ok(mt_record(f->b, f->e, &err));
    assert_ok(mt_wait(f->a, f->e, &err));
    assert_ok(mt_copy(f->b, dw + N * N, dw + N * N + 16, 16 * sizeof(float), MT_COPY_IN, &err));
    assert_ok(mt_ops_traced.linear_fwd(f->a, &p, &err));
    p.dy = dy;
    p.dx = dx;
    p.dw = dw;
    assert_ok(mt_ops_traced.linear_bwd(f->a, &p, &err));
    settle(f, f->a);
    settle(f, f->b);
}

static const mt_trace_span *find(const fixture *f, const char *name)
{
    int n, lost;
    int64_t window;
    const mt_trace_span *spans = mt_trace_spans(f->trace, &n, &window, &lost);
    for (int i = 0; i < n; i++)
        if (strcmp(spans[i].name, name) == 0) return &spans[i];
    return NULL;
}

static void spans_are_named_timed_and_in_order(void **state)
{
    (void)state;
    mt_err err = { 0 };
    fixture f;
    open_fixture(&f, 64);
    work(&f); /* before the window: not seen */
    mt_trace_turn(f.trace);
    work(&f);
    int64_t now = mt_now_ns();
    mt_trace_host(f.trace, "updater", "layer 3", now - 5000000, now);
    mt_trace_turn(f.trace);
    work(&f); /* after it: not seen either */
    assert_ok(mt_trace_collect(f.trace, &err));

    int n, lost;
    int64_t window;
    mt_trace_spans(f.trace, &n, &window, &lost);
    assert_int_equal(n, 7);
    assert_int_equal(lost, 0);
    const mt_trace_span *fill = find(&f, "fill"), *wait = find(&f, "wait b's turn"), *fwd = find(&f, "linear_fwd 64x64"),
                        *dw = find(&f, "linear_dw 64x64"), *dx = find(&f, "linear_dx 64x64"), *in = find(&f, "in"),
                        *host = find(&f, "layer 3");
    assert_non_null(fill), assert_non_null(wait), assert_non_null(fwd), assert_non_null(dw), assert_non_null(dx),
        assert_non_null(in), assert_non_null(host);
    const mt_trace_span *in_order[] = { fill, wait, fwd, dw, dx };
    for (size_t i = 0; i < MT_COUNT(in_order); i++) {
        assert_string_equal(in_order[i]->track, "compute");
        assert_true(in_order[i]->from >= (i ? in_order[i - 1]->to : 0));
        assert_true(in_order[i]->to >= in_order[i]->from && in_order[i]->to <= window);
    }
    assert_true(wait->to - wait->from > 10000000); /* b's nap, less what passed before a got there */
    assert_true(fwd->flops == 2.0 * N * N * N && dw->flops == fwd->flops && wait->flops == 0);
    assert_int_equal(in->bytes, 64);
    assert_true(host->to - host->from >= 5000000);
    close_fixture(&f);
}

static void what_finds_no_room_is_counted(void **state)
{
    (void)state;
    mt_err err = { 0 };
    fixture f;
    int n, lost;
    int64_t window;
    open_fixture(&f, 3);
    mt_trace_turn(f.trace);
    work(&f);
    assert_int_equal(mt_trace_collect(f.trace, &err), MT_EINVAL); /* the window is still open */
    mt_trace_turn(f.trace);
    assert_ok(mt_trace_collect(f.trace, &err));
    mt_trace_spans(f.trace, &n, &window, &lost);
    assert_int_equal(n, 3);
    assert_int_equal(lost, 3);
    close_fixture(&f);
}

static void the_table_adds_up_to_the_window(void **state)
{
    (void)state;
    mt_err err = { 0 };
    fixture f;
    mt_spent spent;
    mt_config *c;
    mt_model *m;
    const char *config = "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, "
                         "\"intermediate_size\": 192, \"vocab_size\": 320}"; /* its o is 64x64 */
    assert_int_equal(N, 64);
    assert_ok(mt_config_parse(&c, config, strlen(config), "config", &err));
    assert_ok(mt_model_create(&m, c, NULL, &err));
    double compute = 0;
    bool o = false, idle = false;
    open_fixture(&f, 64);
    mt_trace_turn(f.trace);
    work(&f);
    usleep(5000);
    mt_trace_turn(f.trace);
    assert_ok(mt_trace_collect(f.trace, &err));
    mt_spent_of(&spent, f.trace, m);
    mt_model_free(m);
    mt_config_close(c);
    for (int i = 0; i < spent.n; i++) {
        const mt_spent_row *r = &spent.rows[i];
        if (strcmp(r->track, "compute") == 0) compute += r->seconds;
        o |= strcmp(r->name, "o dw") == 0 && r->n == 1 && r->flops == 2.0 * N * N * N;
        idle |= strcmp(r->name, "idle") == 0 && r->seconds > 0.004;
    }
    assert_true(o && idle);
    assert_true(compute > 0.999 * spent.seconds && compute < 1.001 * spent.seconds);
    mt_str text = { 0 };
    mt_spent_text(&text, &spent, 1e12);
    assert_non_null(strstr(text.s, "wait b's turn"));
    mt_str_free(&text);
    close_fixture(&f);
}

/* Two units of 4 of 8 experts, with 3 and 13 of the 16 rows that 8 tokens have: together they count as all 16. */
static void the_table_counts_the_flops_of_experts(void **state)
{
    (void)state;
    enum { TOKENS = 8, T = 2, E = 8, UNIT = 4, D = 64, I = 16 };
    mt_err err = { 0 };
    fixture f;
    mt_spent spent;
    mt_config *c;
    mt_model *m;
    const char *config = "{\"model_type\": \"olmoe\", \"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, "
                         "\"intermediate_size\": 16, \"vocab_size\": 320, \"num_experts\": 8, \"num_experts_per_tok\": 2}";
    const int32_t offsets[E + 1] = { 0, 1, 1, 2, 3, 3, 9, 12, 16 };
    int32_t rows[TOKENS * T];
    for (int i = 0; i < TOKENS * T; i++) rows[i] = i % TOKENS;
    static float x[TOKENS * D], w[UNIT * 2 * I * D], y[TOKENS * T * 2 * I];
    mt_grouped_linear a = {
        .M = TOKENS * T, .N = 2 * I, .K = D, .c = UNIT, .offsets = offsets, .rows = rows, .gather_x = true, .x = x, .w = w, .y = y
    };
    assert_ok(mt_config_parse(&c, config, strlen(config), "config", &err));
    assert_ok(mt_model_create(&m, c, NULL, &err));
    open_fixture(&f, 64);
    mt_trace_turn(f.trace);
    for (; a.e0 < E; a.e0 += UNIT) assert_ok(mt_ops_traced.grouped_linear_fwd(f.a, &a, &err));
    settle(&f, f.a);
    mt_trace_turn(f.trace);
    assert_ok(mt_trace_collect(f.trace, &err));
    mt_spent_of(&spent, f.trace, m);
    mt_model_free(m);
    mt_config_close(c);
    const mt_spent_row *found = NULL;
    for (int i = 0; i < spent.n; i++)
        if (strcmp(spent.rows[i].name, "experts gate+up fwd") == 0) found = &spent.rows[i];
    assert_non_null(found);
    assert_int_equal(found->n, 2);
    assert_true(found->flops == 2.0 * TOKENS * T * 2 * I * D);
    close_fixture(&f);
}

/* A traced call becomes one per product, and each of its results is added once. */
static void a_traced_gradient_of_experts_is_added_once(void **state)
{
    enum { E = 2, ROWS = 6, OUT = 4, IN = 8, SUMS = E * OUT * IN + E * OUT + ROWS };
    (void)state;
    mt_err err = { 0 };
    fixture f;
    const int32_t offsets[E + 1] = { 0, 2, ROWS }, order[ROWS] = { 1, 4, 0, 2, 3, 5 };
    float x[ROWS * IN], w[E * OUT * IN], b[E * OUT], dy[ROWS * OUT], weights[ROWS], dx[2][ROWS * IN], sums[2][SUMS] = { 0 };
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)(i % 7 - 3);
    for (int i = 0; i < E * OUT * IN; i++) w[i] = (float)(i % 5 - 2);
    for (int i = 0; i < E * OUT; i++) b[i] = (float)(i + 1);
    for (int i = 0; i < ROWS * OUT; i++) dy[i] = (float)(i % 3 + 1);
    for (int i = 0; i < ROWS; i++) weights[i] = (float)(i + 1);
    open_fixture(&f, 64);
    const mt_ops *tables[] = { mt_ops_of(f.dev), &mt_ops_traced };
    for (int i = 0; i < 2; i++) {
        float *dw = sums[i], *db = dw + E * OUT * IN, *dweights = db + E * OUT;
        const mt_grouped_linear a = { .M = ROWS,
                                      .N = OUT,
                                      .K = IN,
                                      .c = E,
                                      .offsets = offsets,
                                      .x = x,
                                      .w = w,
                                      .b = b,
                                      .dy = dy,
                                      .dx = dx[i],
                                      .dw = dw,
                                      .db = db,
                                      .order = order,
                                      .weights = weights,
                                      .dweights = dweights };
        assert_ok(tables[i]->grouped_linear_bwd(f.a, &a, &err));
    }
    settle(&f, f.a);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    close_fixture(&f);
}

static void the_file_is_a_chrome_trace(void **state)
{
    mt_err err = { 0 };
    fixture f;
    char path[512];
    snprintf(path, sizeof path, "%s/trace.json", (const char *)*state);
    open_fixture(&f, 64);
    mt_trace_turn(f.trace);
    work(&f);
    mt_trace_turn(f.trace);
    assert_ok(mt_trace_collect(f.trace, &err));
    assert_ok(mt_trace_write(f.trace, path, &err));
    const mt_value *json;
    bool dx = false, track = false;
    assert_ok(mt_json_read(&json, path, &err));
    const mt_value *events = mt_value_get(json, "traceEvents");
    for (size_t i = 0; i < mt_value_items(events); i++) {
        const mt_value *span = mt_value_at(events, i);
        const char *name = mt_json_string(mt_value_get(span, "name")),
                   *of = mt_json_string(mt_value_get(mt_value_get(span, "args"), "name"));
        dx |= name && strcmp(name, "linear_dx 64x64") == 0 && mt_value_number(mt_value_get(span, "dur")) > 0;
        track |= of && strcmp(of, "copy-in") == 0;
    }
    assert_true(dx && track);
    mt_json_free(json);
    assert_int_equal(mt_trace_write(f.trace, "/nowhere/at/all.json", &err), MT_EIO);
    close_fixture(&f);
}

MT_TEST_MAIN(cmocka_unit_test(spans_are_named_timed_and_in_order), cmocka_unit_test(what_finds_no_room_is_counted),
             cmocka_unit_test(the_table_adds_up_to_the_window), cmocka_unit_test(the_table_counts_the_flops_of_experts),
             cmocka_unit_test(a_traced_gradient_of_experts_is_added_once),
             cmocka_unit_test_setup_teardown(the_file_is_a_chrome_trace, tempdir_make, tempdir_remove))
