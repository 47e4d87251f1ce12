/* What planning costs: a plan and the advice on batch sizes for published shapes on a large machine, counted instead of timed
 * (count.h), so that a busy machine does not matter.
 *
 * MT_THOROUGH=1 (make soak) plans every shape, MT_SHOW=1 prints the table. */
#include "published.h"

#include "count.h"

#include "plan/advise.h"

#include <stdlib.h>

/* Half as much again as any shape took: deepseek-llm-67b 1.3 billion, kimi-k2 3.6. */
static const double most = 2e9, most_with_experts = 5e9;

static uint64_t steps_to_plan(const subject *s)
{
    mt_err err = { 0 };
    mt_batch_advice advice;
    mt_plan *plan;
    const mt_question q = { .model = s->model,
                            .machine = machine("h200", 20e12, 64),
                            .form = { .compute = MT_DTYPE_BF16, .grad = MT_DTYPE_BF16 },
                            .clip = true,
                            .seq_len = 1024,
                            .batch = 64 };
    const mt_job job = mt_question_job(&q, q.batch);
    cost_begin();
    assert_ok(mt_plan_auto(&plan, (mt_plan_inputs){ q.model, &job, &q.form, &q.machine }, &err));
    assert_ok(mt_advise_batch(&advice, &q, &err));
    uint64_t steps = cost_end().steps;
    assert_true(advice.recommended > 0);
    mt_plan_free(plan);
    return steps;
}

static void every_shape_is_planned_at_once(void **state)
{
    (void)state;
    bool ok = true;
    for (size_t i = 0; i < mt_n_shapes; i += getenv("MT_THOROUGH") ? 1 : 16) {
        subject s = open_shape(mt_shapes[i].name);
        double steps = (double)steps_to_plan(&s);
        if (getenv("MT_SHOW"))
            print_message("%-32s %5d units %6.2f billion steps\n", mt_shapes[i].name, s.model->n_units, steps / 1e9);
        if (steps > (s.model->unit_experts ? most_with_experts : most)) {
            print_error("%s took %.2f billion steps for %d units\n", mt_shapes[i].name, steps / 1e9, s.model->n_units);
            ok = false;
        }
        close_shape(&s);
    }
    assert_true(ok);
}

MT_TEST_MAIN(cmocka_unit_test(every_shape_is_planned_at_once))
