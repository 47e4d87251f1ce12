/* The table of optimizers, and the bytes and layouts of a unit's state (optim/state.h). */
#include "test.h"

#include "base/mem.h"
#include "base/rng.h"
#include "optim/optimizer.h"

static void rows_are_complete_and_differ_in_name(void **state)
{
    (void)state;
    for (mt_optimizer_kind kind = 0; kind < MT_OPTIMIZERS; kind++) {
        const mt_optimizer *o = mt_optimizer_of(kind);
        mt_optimizer_kind found;
        assert_true(o->title && o->arrays_title && o->host_title && o->coef && o->on_host && o->on_device);
        assert_true(o->n_arrays >= 1 && o->n_arrays <= MT_MOST_ARRAYS);
        assert_true(o->device_bytes == 10 + 8 * o->n_arrays); /* hi, lo and arrays in and out, and the gradient */
        for (int k = 0; k < o->n_arrays; k++) {
            assert_true(strcmp(o->arrays[k].tail, ".hi") != 0 && strcmp(o->arrays[k].tail, ".lo") != 0);
            for (int j = 0; j < k; j++) assert_string_not_equal(o->arrays[j].tail, o->arrays[k].tail);
        }
        assert_true(mt_optimizer_from_name(o->name, &found) && found == kind);
        for (mt_state_kind k = 0; k < MT_STATE_KINDS; k++) {
            const mt_state_form form = { kind, MT_MOMENTS_F32 };
            const bool has = (int)k < MT_STATE_ARRAYS + o->n_arrays;
            assert_int_equal(mt_state_has(form, k), has);
            assert_int_equal(mt_state_read_bytes(form, k), !has ? 0 : mt_state_is_array(k) ? 4 : 2);
            assert_int_equal(mt_state_stored_bytes(form, k, 100), !has ? 0 : mt_state_is_array(k) ? 400 : 200);
        }
    }
    assert_false(mt_optimizer_from_name("adam", &(mt_optimizer_kind){ 0 }));
}

/* Every array that is there begins aligned, and none reaches into another. */
static void arrays_do_not_overlap(void **state)
{
    (void)state;
    for (unsigned parts = 1; parts < 1u << MT_STATE_PARTS; parts++) {
        size_t bytes[MT_STATE_PARTS], sum = 0;
        for (int k = 0; k < MT_STATE_PARTS; k++) {
            bytes[k] = parts >> k & 1 ? 1 + (size_t)mt_rng_below(1, parts, (uint64_t)k, 2000) : 0;
            sum += bytes[k];
        }
        const mt_state_layout l = mt_state_lay_out(bytes);
        assert_true(l.bytes >= sum && l.bytes < sum + MT_STATE_PARTS * MT_STATE_ALIGN);
        for (int a = 0; a < MT_STATE_PARTS; a++) {
            assert_true(l.at[a] % MT_STATE_ALIGN == 0 && l.at[a] + bytes[a] <= l.bytes);
            for (int b = 0; b < a; b++)
                assert_true(!bytes[a] || !bytes[b] || l.at[a] + bytes[a] <= l.at[b] || l.at[b] + bytes[b] <= l.at[a]);
        }
        if (!bytes[MT_STATE_HI]) continue; /* what an update in place leaves out moves nothing else */
        bytes[MT_STATE_HI] = 0;
        const mt_state_layout in_place = mt_state_lay_out(bytes);
        for (int k = MT_STATE_LO; k < MT_STATE_PARTS; k++) assert_int_equal(in_place.at[k], l.at[k]);
    }
}

/* Runs of consecutive pieces cover an array's bytes once, but for the gap between codes and exponents. */
static void byte_runs_cover_an_array_once(void **state)
{
    (void)state;
    enum { N = 5 * MT_MOMENT_BLOCK + 77, PIECE = 2 * MT_MOMENT_BLOCK };
    for (mt_moments moments = 0; moments < MT_MOMENTS_FORMS; moments++)
        for (mt_state_kind kind = 0; kind < MT_STATE_KINDS; kind++) {
            const mt_state_form form = { MT_OPTIMIZER_ADAMW, moments };
            const size_t all = mt_state_stored_bytes(form, kind, N);
            size_t covered = 0, next[2] = { 0 };
            mt_byte_run runs[2], whole[2];
            const int n = mt_state_byte_runs(form, kind, N, 0, N, whole);
            for (int64_t first = 0; first < N; first += PIECE) {
                assert_int_equal(mt_state_byte_runs(form, kind, N, first, mt_min_i64(PIECE, N - first), runs), n);
                for (int i = 0; i < n; i++) {
                    assert_int_equal(runs[i].at, first ? next[i] : whole[i].at);
                    next[i] = runs[i].at + runs[i].bytes;
                    covered += runs[i].bytes;
                }
            }
            assert_int_equal(next[n - 1], all);
            assert_true(covered == all || (n == 2 && covered <= all && covered + 16 > all));
        }
    const mt_state_form lion = { MT_OPTIMIZER_LION, MT_MOMENTS_F32 };
    assert_int_equal(mt_state_byte_runs(lion, MT_STATE_ARRAYS + 1, N, 0, N, (mt_byte_run[2]){ { 0 } }), 0);
}

MT_TEST_MAIN(cmocka_unit_test(rows_are_complete_and_differ_in_name), cmocka_unit_test(arrays_do_not_overlap),
             cmocka_unit_test(byte_runs_cover_an_array_once))
