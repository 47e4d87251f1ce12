/* Learning-rate schedules against transformers' (golden/schedule/README.md), and what is refused. */
#include "test.h"

#include "base/json.h"
#include "optim/schedule.h"

#include <math.h>

static const mt_value *goldens(void)
{
    mt_err err = { 0 };
    const mt_value *doc;
    assert_ok(mt_json_read(&doc, MT_TESTS_DIR "/golden/schedule/schedules.json", &err));
    return doc;
}

static mt_schedule_config config_of(const mt_value *c)
{
    mt_err err = { 0 };
    mt_schedule_config s = mt_schedule_defaults();
    const mt_value *k = mt_value_get(c, "kwargs");
    assert_ok(mt_json_str(c, "name", NULL, &s.name, "golden", &err));
    assert_ok(mt_json_f64(c, "lr", 0, &s.lr, "golden", &err));
    assert_ok(mt_json_i64(c, "n_steps", 0, &s.n_steps, "golden", &err));
    assert_ok(mt_json_f64(c, "warmup_steps", 0, &s.warmup_steps, "golden", &err));
    assert_ok(mt_json_f64(k, "num_cycles", NAN, &s.num_cycles, "golden", &err));
    assert_ok(mt_json_f64(k, "power", NAN, &s.power, "golden", &err));
    assert_ok(mt_json_f64(k, "lr_end", NAN, &s.lr_end, "golden", &err));
    assert_ok(mt_json_f64(k, "timescale", NAN, &s.timescale, "golden", &err));
    assert_ok(mt_json_f64(k, "min_lr", NAN, &s.min_lr, "golden", &err));
    assert_ok(mt_json_f64(k, "min_lr_rate", NAN, &s.min_lr_rate, "golden", &err));
    assert_ok(mt_json_f64(k, "warmup_lr_rate", NAN, &s.warmup_lr_rate, "golden", &err));
    assert_ok(mt_json_f64(k, "num_decay_steps", NAN, &s.num_decay_steps, "golden", &err));
    assert_ok(mt_json_f64(k, "num_stable_steps", NAN, &s.num_stable_steps, "golden", &err));
    assert_ok(mt_json_f64(k, "min_lr_ratio", NAN, &s.min_lr_ratio, "golden", &err));
    assert_ok(mt_json_str(k, "warmup_type", NULL, &s.warmup_type, "golden", &err));
    assert_ok(mt_json_str(k, "decay_type", NULL, &s.decay_type, "golden", &err));
    return s;
}

static void factors_are_those_of_transformers(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *doc = goldens(), *cases = mt_value_get(doc, "cases");
    size_t n = 0;
    for (size_t i = 0; i < mt_value_items(cases); i++) {
        const mt_value *c = mt_value_at(cases, i), *factors = mt_value_get(c, "factors");
        mt_schedule_config config = config_of(c);
        mt_schedule s;
        assert_ok(mt_schedule_init(&s, &config, &err));
        for (size_t j = 0; j < mt_value_items(factors); j++) {
            const mt_value *point = mt_value_at(factors, j);
            int64_t step = mt_value_int(mt_value_at(point, 0));
            double want = mt_value_number(mt_value_at(point, 1)), got = mt_schedule_factor(&s, step);
            if (!(fabs(got - want) <= 1e-12 * fabs(want) + 1e-15))
                fail_msg("%s, case %zu, step %lld: %.17g, expected %.17g", config.name, i, (long long)step, got, want);
            assert_true(mt_schedule_lr(&s, step) == config.lr * got);
            n++;
        }
    }
    assert_true(n > 1500);
    mt_json_free(doc);
}

static void warmup_is_counted_as_transformers_does(void **state)
{
    (void)state;
    mt_err err = { 0 };
    const mt_value *doc = goldens(), *rows = mt_value_get(doc, "warmups");
    size_t i;
    for (i = 0; i < mt_value_items(rows); i++) {
        const mt_value *row = mt_value_at(rows, i);
        mt_schedule_config c = mt_schedule_defaults();
        mt_schedule s;
        c.name = "linear";
        c.n_steps = mt_value_int(mt_value_at(row, 0));
        c.warmup_steps = mt_value_number(mt_value_at(row, 1));
        assert_ok(mt_schedule_init(&s, &c, &err));
        assert_true(s.warmup == (double)mt_value_int(mt_value_at(row, 2)));
        if (c.warmup_steps >= 1) continue;
        c.warmup_ratio = c.warmup_steps; /* the same thing by its older name */
        c.warmup_steps = 0;
        assert_ok(mt_schedule_init(&s, &c, &err));
        assert_true(s.warmup == (double)mt_value_int(mt_value_at(row, 2)));
    }
    assert_true(i > 30);
    mt_json_free(doc);
}

static void steps_win_over_the_ratio(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_schedule_config c = mt_schedule_defaults();
    mt_schedule s;
    c.name = "linear", c.n_steps = 100, c.warmup_steps = 4, c.warmup_ratio = 0.5;
    assert_ok(mt_schedule_init(&s, &c, &err));
    assert_true(s.warmup == 4);
}

static void an_unknown_name_is_answered_with_the_known(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_schedule_config c = mt_schedule_defaults();
    mt_schedule s;
    c.name = "cosin", c.n_steps = 10;
    assert_int_equal(mt_schedule_init(&s, &c, &err), MT_EINVAL);
    assert_says("\"cosin\"");
    assert_says(
        ": constant, constant_with_warmup, linear, cosine, cosine_with_restarts, polynomial, inverse_sqrt, cosine_with_min_lr, "
        "cosine_warmup_with_min_lr, warmup_stable_decay");
    c.name = "greedy";
    assert_int_equal(mt_schedule_init(&s, &c, &err), MT_EUNSUPPORTED);
    assert_says("\"greedy\"");
}

typedef struct refusal {
    const char *name, *says;
    size_t field; /* offset of the number that makes no sense */
    double value;
} refusal;

static void senseless_numbers_are_refused(void **state)
{
    (void)state;
#define FIELD(f) offsetof(mt_schedule_config, f)
    static const refusal cases[] = {
        { "linear", "learning rate of -1", FIELD(lr), -1 },
        { "linear", "learning rate of nan", FIELD(lr), NAN },
        { "linear", "warm-up steps", FIELD(warmup_steps), -3 },
        { "linear", "warm-up steps", FIELD(warmup_steps), INFINITY },
        { "linear", "warm-up ratio of 1.5", FIELD(warmup_ratio), 1.5 },
        { "cosine", "num_cycles is -1", FIELD(num_cycles), -1 },
        { "polynomial", "power is -2", FIELD(power), -2 },
        { "polynomial", "lr_end (1) must be smaller", FIELD(lr_end), 1 },
        { "inverse_sqrt", "timescale is 0", FIELD(timescale), 0 },
        { "cosine_with_min_lr", "needs one of min_lr and min_lr_rate", FIELD(power), 1 },
        { "cosine_with_min_lr", "between 0 and the learning rate", FIELD(min_lr), 1 },
        { "cosine_warmup_with_min_lr", "between 0 and the learning rate", FIELD(min_lr_rate), -0.1 },
        { "warmup_stable_decay", "needs num_decay_steps", FIELD(power), 1 },
        { "warmup_stable_decay", "do not fit into 10 steps", FIELD(num_decay_steps), 11 },
        { "warmup_stable_decay", "do not fit into 10 steps", FIELD(num_decay_steps), -1 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        mt_schedule_config c = mt_schedule_defaults();
        mt_schedule s;
        c.name = cases[i].name, c.lr = 1e-4, c.n_steps = 10;
        memcpy((char *)&c + cases[i].field, &cases[i].value, sizeof(double));
        assert_int_not_equal(mt_schedule_init(&s, &c, &err), MT_OK);
        assert_says(cases[i].says);
    }
}

static void other_settings_that_cannot_be_are_refused(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_schedule_config c = mt_schedule_defaults();
    mt_schedule s;
    c.lr = 1e-4;
    assert_int_equal(mt_schedule_init(&s, &c, &err), MT_ERANGE);
    assert_says("over 0 steps");
    c.n_steps = 10, c.name = "cosine_with_min_lr", c.min_lr = 1e-5, c.min_lr_rate = 0.1;
    assert_int_equal(mt_schedule_init(&s, &c, &err), MT_EINVAL);
    assert_says("only one of min_lr");
    c.name = "warmup_stable_decay", c.num_decay_steps = 5, c.decay_type = "exp";
    assert_int_equal(mt_schedule_init(&s, &c, &err), MT_EINVAL);
    assert_says("unknown decay_type \"exp\"");
    c.decay_type = NULL, c.min_lr_ratio = 2;
    assert_int_equal(mt_schedule_init(&s, &c, &err), MT_ERANGE);
    assert_says("min_lr_ratio of 2");
}

MT_TEST_MAIN(cmocka_unit_test(factors_are_those_of_transformers), cmocka_unit_test(warmup_is_counted_as_transformers_does),
             cmocka_unit_test(steps_win_over_the_ratio), cmocka_unit_test(an_unknown_name_is_answered_with_the_known),
             cmocka_unit_test(senseless_numbers_are_refused), cmocka_unit_test(other_settings_that_cannot_be_are_refused))
