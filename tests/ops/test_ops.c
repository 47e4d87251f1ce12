/* Every op on the CPU, the truth for all other devices: gradients against differences, bf16 against fp32, and the
 * promises of ops.h. */
#include "test.h"

#include "base/rng.h"
#include "op_cases.h"

#include <math.h>
#include <stdlib.h>

static mt_device *open_cpu(int n_threads)
{
    mt_err err = { 0 };
    mt_device *dev = NULL;
    assert_ok(mt_device_open(&dev, "cpu", &(mt_device_options){ .n_threads = n_threads }, &err));
    return dev;
}

static op_run *run(mt_device *dev, const op_spec *spec, int c, op_how how)
{
    mt_err err = { 0 };
    op_run *r = op_run_create(spec, c, &how);
    assert_ok(op_execute(r, dev, true, &err));
    return r;
}

/* Calls body with `spec` and `c` for every case of every op. */
#define FOR_ALL_CASES                                                                                                            \
    for (int id = 0; id < OP_COUNT; id++)                                                                                        \
        for (int c = 0; c < op_specs[id]->n_cases; c++)

/* The same with fewer cases under the sanitizers: they meet the code of each op in the first test, and here the answers count. */
#define FOR_TRIED_CASES                                                                                                          \
    for (int id = 0, n = 0; id < OP_COUNT; id++)                                                                                 \
        for (int c = 0; c < op_specs[id]->n_cases; c++)                                                                          \
            if (test_tries((size_t)(n++ % 32), 32))

static const mt_dtype both[] = { MT_DTYPE_F32, MT_DTYPE_BF16 };

static void every_element_is_written_and_nothing_else(void **state)
{
    (void)state;
    mt_device *dev = open_cpu(2);
    FOR_ALL_CASES for (int k = 0; k < 2; k++)
    {
        op_run *r = run(dev, op_specs[id], c, (op_how){ .t = both[k], .seed = 1 });
        const char *wrong = op_check_written(r);
        if (wrong) fail_msg("%s, case %d, %s: %s", r->spec->name, c, mt_dtype_name(both[k]), wrong);
        op_run_free(r);
    }
    mt_device_close(dev);
}

/* -- gradients ------------------------------------------------------------------------------------- */

/* sum of output times its gradient, in double. */
static double loss_of(const op_run *r)
{
    double loss = 0;
    for (int k = 0; k < r->n_bufs; k++) {
        const op_buf *out = &r->bufs[k];
        if (out->seed == OP_NOWHERE) continue;
        const op_buf *seed = &r->bufs[out->seed];
        for (int64_t i = 0; i < out->rows; i++)
            for (int64_t j = 0; j < out->width; j++) loss += op_get(out, out->result, i, j) * op_get(seed, seed->init, i, j);
    }
    return loss;
}

/* The loss with x moved by step * (+1 or -1 at random in each element). */
static double moved_loss(op_run *r, mt_device *dev, op_buf *x, double step, uint64_t direction)
{
    mt_err err = { 0 };
    size_t bytes = op_bytes(x);
    unsigned char *kept = malloc(bytes);
    assert_non_null(kept);
    memcpy(kept, x->init, bytes);
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->width; j++) {
            double sign = mt_rng_u64(direction, 5, (uint64_t)(i * x->width + j)) & 1 ? 1.0 : -1.0;
            op_set(x, i, j, op_get(x, kept, i, j) + sign * step);
        }
    assert_ok(op_execute(r, dev, false, &err));
    memcpy(x->init, kept, bytes);
    free(kept);
    return loss_of(r);
}

/* What backward says the loss changes by along that direction, per unit; *size: the gradient's norm. */
static double predicted(const op_run *r, const op_buf *x, uint64_t direction, double *size)
{
    const op_buf *g = &r->bufs[x->grad];
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->width; j++) {
            double sign = mt_rng_u64(direction, 5, (uint64_t)(i * x->width + j)) & 1 ? 1.0 : -1.0;
            double d = op_get(g, g->result, i, j) - (g->kind == OP_SUM ? op_get(g, g->init, i, j) : 0.0);
            sum += sign * d;
            squares += d * d;
        }
    *size = sqrt(squares) + g->floor * sqrt((double)(x->rows * x->width));
    return sum;
}

/* full: forward and backward; r: the same, whose forward is run with x moved. */
static void check_gradient(mt_device *dev, const op_run *full, op_run *r, int index)
{
    const double step = 4e-3, tolerance = 4e-3; /* truncation is step^2, fp32 rounding about 1e-7 / step */
    uint64_t n_directions = r->bufs[index].rows * r->bufs[index].width <= 4096 ? 3 : 1; /* the large ones are slow */
    for (uint64_t direction = 1; direction <= n_directions; direction++) {
        double size, want = predicted(full, &full->bufs[index], direction, &size);
        double up = moved_loss(r, dev, &r->bufs[index], step, direction),
               down = moved_loss(r, dev, &r->bufs[index], -step, direction);
        double got = (up - down) / (2 * step);
        if (!(fabs(got - want) <= tolerance * size))
            fail_msg("%s, case %d: gradient of %s: differences give %g, backward %g (its norm: %g)", r->spec->name, r->case_index,
                     r->bufs[index].name, got, want, size);
    }
}

static void backward_agrees_with_central_differences(void **state)
{
    (void)state;
    mt_device *dev = open_cpu(2);
    int n_checked = 0;
    FOR_TRIED_CASES
    {
        op_how how = { .t = MT_DTYPE_F32, .seed = 2 };
        op_run *full = run(dev, op_specs[id], c, how), *r = op_run_create(op_specs[id], c, &how);
        for (int k = 0; k < r->n_bufs; k++) {
            if (r->bufs[k].grad == OP_NOWHERE) continue;
            check_gradient(dev, full, r, k);
            n_checked++;
        }
        op_run_free(full);
        op_run_free(r);
    }
    assert_true(n_checked > 100 || !test_tries(0, 32));
    mt_device_close(dev);
}

/* -- the same numbers another way ------------------------------------------------------------------ */

static void bf16_is_within_one_percent_of_f32(void **state)
{
    (void)state;
    mt_device *dev = open_cpu(2);
    FOR_TRIED_CASES
    {
        if (op_specs[id]->exact) continue; /* another dtype is another result there */
        op_run *wide = run(dev, op_specs[id], c, (op_how){ .t = MT_DTYPE_F32, .seed = 3, .rounded = true });
        op_run *narrow = run(dev, op_specs[id], c, (op_how){ .t = MT_DTYPE_BF16, .seed = 3, .rounded = true });
        for (int k = 0; k < wide->n_bufs; k++) {
            const op_buf *b = &wide->bufs[k];
            if (!op_is_result(b) || b->t != MT_DTYPE_F32) continue;
            double d = op_distance(&narrow->bufs[k], b);
            if (!(d <= 1e-2)) fail_msg("%s, case %d: %s is %g away from fp32", op_specs[id]->name, c, b->name, d);
        }
        op_run_free(wide);
        op_run_free(narrow);
    }
    mt_device_close(dev);
}

static void assert_same_bits(const op_run *a, const op_run *b, const char *what)
{
    for (int k = 0; k < a->n_bufs; k++)
        if (op_is_result(&a->bufs[k]) && memcmp(a->bufs[k].result, b->bufs[k].result, op_bytes(&a->bufs[k])) != 0)
            fail_msg("%s, case %d, %s: %s changes %s", a->spec->name, a->case_index, mt_dtype_name(a->how.t), what,
                     a->bufs[k].name);
}

static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    mt_device *one = open_cpu(1), *three = open_cpu(3);
    FOR_TRIED_CASES for (int k = 0; k < 2; k++)
    {
        op_how how = { .t = both[k], .seed = 4 };
        op_run *a = run(one, op_specs[id], c, how), *b = run(three, op_specs[id], c, how);
        assert_same_bits(a, b, "another number of threads");
        op_run_free(a);
        op_run_free(b);
    }
    mt_device_close(one);
    mt_device_close(three);
}

static bool can_share(const op_spec *spec, int c)
{
    op_run *probe = op_run_create(spec, c, &(op_how){ .t = MT_DTYPE_F32 });
    bool can = false;
    for (int k = 0; k < probe->n_bufs; k++) can = can || probe->bufs[k].shares != OP_NOWHERE;
    op_run_free(probe);
    return can;
}

static void in_place_gives_the_same_bits(void **state)
{
    (void)state;
    mt_device *dev = open_cpu(2);
    FOR_ALL_CASES for (int k = 0, n = can_share(op_specs[id], c) ? 2 : 0; k < n; k++)
    {
        op_how apart = { .t = both[k], .seed = 5 }, together = apart;
        together.in_place = true;
        op_run *a = run(dev, op_specs[id], c, apart), *b = run(dev, op_specs[id], c, together);
        assert_same_bits(a, b, "working in place");
        op_run_free(a);
        op_run_free(b);
    }
    mt_device_close(dev);
}

MT_TEST_MAIN(cmocka_unit_test(every_element_is_written_and_nothing_else),
             cmocka_unit_test(backward_agrees_with_central_differences), cmocka_unit_test(bf16_is_within_one_percent_of_f32),
             cmocka_unit_test(the_number_of_threads_changes_no_bit), cmocka_unit_test(in_place_gives_the_same_bits))
