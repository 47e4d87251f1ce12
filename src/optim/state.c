/* state.c - bytes of a unit's state, and the one layout of its arrays in memory that holds several of them. */
#include "optim/optimizer.h"

#include "base/mem.h"

#include <assert.h>

const mt_state_kind mt_state_copy_order[] = { MT_STATE_ARRAYS + 1, MT_STATE_LO, MT_STATE_ARRAYS, MT_STATE_HI };

bool mt_state_has(mt_state_form form, mt_state_kind kind)
{
    return kind == MT_STATE_PACKED || (int)kind < MT_STATE_ARRAYS + mt_optimizer_of(form.optimizer)->n_arrays;
}

size_t mt_state_stored_bytes(mt_state_form form, mt_state_kind kind, size_t n)
{
    if (!mt_state_has(form, kind)) return 0;
    return mt_state_is_array(kind) ? mt_moments_bytes(form.moments, n) : 2 * n;
}

size_t mt_state_read_bytes(mt_state_form form, mt_state_kind kind)
{
    return mt_state_has(form, kind) ? mt_dtype_bytes(mt_state_read_type(form, kind)) : 0;
}

size_t mt_state_arrays_bytes(mt_state_form form)
{
    size_t sum = 0;
    for (mt_state_kind kind = MT_STATE_ARRAYS; kind < MT_STATE_KINDS; kind++) sum += mt_state_read_bytes(form, kind);
    return sum;
}

mt_dtype mt_state_read_type(mt_state_form form, mt_state_kind kind)
{
    if (kind == MT_STATE_PACKED) return MT_DTYPE_U8;
    if (mt_state_is_array(kind)) return mt_moments_type(form.moments);
    return kind == MT_STATE_HI ? MT_DTYPE_BF16 : MT_DTYPE_I16;
}

mt_state_layout mt_state_lay_out(const size_t bytes[MT_STATE_PARTS])
{
    /* The high halves come last: updates in place leave them out, and everything before stays where it is. */
    static const int order[] = { MT_STATE_ARRAYS, MT_STATE_ARRAYS + 1, MT_STATE_LO, MT_STATE_KINDS, MT_STATE_HI };
    _Static_assert(MT_COUNT(order) == MT_STATE_PARTS, "every array has its place");
    mt_state_layout l = { .bytes = 0 };
    for (size_t i = 0; i < MT_COUNT(order); i++) {
        if (!bytes[order[i]]) continue;
        l.at[order[i]] = mt_round_up(l.bytes, MT_STATE_ALIGN);
        l.bytes = l.at[order[i]] + bytes[order[i]];
    }
    return l;
}

int mt_state_byte_runs(mt_state_form form, mt_state_kind kind, int64_t n_all, int64_t first, int64_t n, mt_byte_run out[2])
{
    const bool blocks = mt_state_is_array(kind) && form.moments == MT_MOMENTS_8BIT;
    const size_t each = blocks ? 1 : mt_state_stored_bytes(form, kind, 1);
    if (!mt_state_has(form, kind)) return 0;
    assert(!blocks || first % MT_MOMENT_BLOCK == 0);
    out[0] = (mt_byte_run){ (size_t)first * each, (size_t)n * each };
    if (!blocks) return 1;
    out[1] =
        (mt_byte_run){ mt_moments_exponents_at((size_t)n_all) + (size_t)(first / MT_MOMENT_BLOCK), mt_moments_blocks((size_t)n) };
    return 2;
}
