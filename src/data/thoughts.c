#include "data/thoughts.h"

#define SLICE(text)                                                                                                              \
    {                                                                                                                            \
        text, sizeof text - 1                                                                                                    \
    }

/* Pairs of tags around a model's thoughts, and the white space in and after an empty thought. */
static const struct {
    mt_slice open, close, inside, after;
} thoughts[] = { { SLICE("<think>"), SLICE("</think>"), SLICE("\n\n"), SLICE("\n\n") },
                 { SLICE("[THINK]"), SLICE("[/THINK]"), SLICE(""), SLICE("") },
                 { SLICE("<seed:think>"), SLICE("</seed:think>"), SLICE(""), SLICE("") } };

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

mt_slice mt__skip_shown_thought(mt_slice prompt, mt_slice t)
{
    mt_slice p = mt_slice_trim_end(prompt), u = mt_slice_skip_space(t);
    for (size_t i = 0; i < MT_COUNT(thoughts); i++)
        if (mt_slice_ends(p, thoughts[i].open) && mt_slice_starts(u, thoughts[i].close))
            return mt_slice_skip_space(mt_slice_from(u, thoughts[i].close.n));
    return mt__skip_empty_thought(t);
}

bool mt__opens_thought(mt_slice answer)
{
    bool any = false;
    for (size_t i = 0; i < MT_COUNT(thoughts); i++) any |= mt_slice_has(answer, thoughts[i].open);
    return any;
}

bool mt__closes_thought(mt_slice answer)
{
    bool any = false;
    for (size_t i = 0; i < MT_COUNT(thoughts); i++) any |= mt_slice_has(answer, thoughts[i].close);
    return any;
}

mt_slice mt__without_opening(mt_slice prompt)
{
    mt_slice p = mt_slice_trim_end(prompt);
    for (size_t i = 0; i < MT_COUNT(thoughts); i++)
        if (mt_slice_ends(p, thoughts[i].open)) return mt_slice_upto(p, p.n - thoughts[i].open.n);
    return prompt;
}

const char *mt__thought_open_at_end(mt_slice prompt)
{
    mt_slice p = mt_slice_trim_end(prompt);
    for (size_t i = 0; i < MT_COUNT(thoughts); i++)
        if (mt_slice_ends(p, thoughts[i].open)) return thoughts[i].open.s;
    return NULL;
}

const char *mt__empty_thought_at_end(mt_slice t)
{
    t = mt_slice_trim_end(t);
    for (size_t i = 0; i < MT_COUNT(thoughts); i++) {
        if (!mt_slice_ends(t, thoughts[i].close)) continue;
        mt_slice before = mt_slice_trim_end(mt_slice_upto(t, t.n - thoughts[i].close.n));
        if (mt_slice_ends(before, thoughts[i].open)) return thoughts[i].open.s;
    }
    return NULL;
}

bool mt__closes_thought_at_end(mt_slice t)
{
    bool any = false;
    t = mt_slice_trim_end(t);
    for (size_t i = 0; i < MT_COUNT(thoughts); i++) any |= mt_slice_ends(t, thoughts[i].close);
    return any;
}

static void thoughts_add(mt_str *out, mt_slice t) { mt_str_add(out, t.s, t.n); }

/* An empty thought without its opening; `begun` is the white space that is there already. */
static void write_rest(mt_str *out, size_t i, mt_slice begun)
{
    mt_slice inside = thoughts[i].inside;
    thoughts_add(out, mt_slice_starts(inside, begun) ? mt_slice_from(inside, begun.n) : inside);
    thoughts_add(out, thoughts[i].close);
    thoughts_add(out, thoughts[i].after);
}

bool mt__thought_open_is_bare(mt_slice prompt)
{
    return mt__thought_open_at_end(prompt) && mt_slice_trim_end(prompt).n == prompt.n;
}

void mt__write_empty_thought(mt_str *out, mt_slice prompt, const char *tag)
{
    mt_slice p = mt_slice_trim_end(prompt);
    for (size_t i = 0; i < MT_COUNT(thoughts); i++)
        if (mt_slice_ends(p, thoughts[i].open)) {
            if (mt__thought_open_is_bare(prompt))
                thoughts_add(out, thoughts[i].close);
            else
                write_rest(out, i, mt_slice_from(prompt, p.n));
            return;
        }
    if (!tag || mt__empty_thought_at_end(prompt)) return;
    for (size_t i = 0; i < MT_COUNT(thoughts); i++)
        if (!strcmp(tag, thoughts[i].open.s)) {
            thoughts_add(out, thoughts[i].open);
            write_rest(out, i, (mt_slice){ "", 0 });
        }
}

void mt__write_thought(mt_str *out, const char *tag, bool bare, mt_slice thought, mt_slice rest)
{
    for (size_t i = 0; i < MT_COUNT(thoughts); i++) {
        mt_slice inside = thoughts[i].inside;
        if (bare) inside.n = 0;
        if (strcmp(tag, thoughts[i].open.s) != 0) continue;
        thoughts_add(out, thoughts[i].open);
        thoughts_add(out, mt_slice_upto(inside, inside.n / 2));
        thoughts_add(out, mt_slice_trim_end(mt_slice_skip_space(thought)));
        thoughts_add(out, mt_slice_from(inside, inside.n / 2));
        thoughts_add(out, thoughts[i].close);
        if (!bare) thoughts_add(out, thoughts[i].after);
        thoughts_add(out, rest);
    }
}
