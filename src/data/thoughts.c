#include "data/thoughts.h"

/* Pairs of tags around a model's thoughts. */
static const struct {
    mt_slice open, close;
} thoughts[] = { { { "<think>", 7 }, { "</think>", 8 } }, { { "[THINK]", 7 }, { "[/THINK]", 8 } } };

mt_slice mt__undouble(mt_slice prompt, mt_slice answer)
{
    for (size_t i = 0; i < MT_COUNT(thoughts); i++) {
        mt_slice open = thoughts[i].open, close = thoughts[i].close, said = mt_slice_skip_space(answer),
                 p = mt_slice_trim_end(prompt);
        if (!mt_slice_starts(said, open)) continue;
        if (mt_slice_ends(p, open)) {
            mt_slice space = mt_slice_from(prompt, p.n), rest = mt_slice_from(said, open.n);
            return mt_slice_starts(rest, space) ? mt_slice_from(rest, space.n) : rest;
        }
        if (!mt_slice_ends(p, close)) continue;
        p = mt_slice_trim_end(mt_slice_upto(p, p.n - close.n));
        if (!mt_slice_ends(p, open)) continue;
        mt_slice empty = mt_slice_from(prompt, p.n - open.n);
        if (mt_slice_starts(said, empty)) return mt_slice_from(said, empty.n);
    }
    return answer;
}

mt_slice mt__without_thought(mt_slice answer)
{
    for (size_t i = 0; i < MT_COUNT(thoughts); i++) {
        size_t at = mt_slice_find_last(answer, thoughts[i].close);
        if (at != SIZE_MAX) return mt_slice_from(answer, at + thoughts[i].close.n);
    }
    return answer;
}

mt_slice mt__skip_empty_thought(mt_slice t)
{
    for (size_t i = 0; i < MT_COUNT(thoughts); i++) {
        mt_slice u = mt_slice_skip_space(t);
        if (!mt_slice_starts(u, thoughts[i].open)) continue;
        u = mt_slice_skip_space(mt_slice_from(u, thoughts[i].open.n));
        if (mt_slice_starts(u, thoughts[i].close)) return mt_slice_skip_space(mt_slice_from(u, thoughts[i].close.n));
    }
    return t;
}
