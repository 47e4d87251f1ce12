/* regex.c - runs the program of a regular expression on a text.
 *
 * A matcher that backtracks, as Oniguruma is one: the first way through the program counts, not the longest.  What to try next if the present way
 * fails is a stack of frames.  Looks and atomic groups leave a fence on it; their end forgets the frames above the fence.
 * Every instruction, every character of a run and every frame taken back is a step, and steps are counted. */
#include "tokenizer/regex_impl.h"

#include "base/utf8.h"
#include "tokenizer/text.h"

#include <string.h>

/* Steps for a text, and more for each of its bytes: published patterns take 2 to 20 for a byte.  SLICE of them pass between looks at
 * *stop.  Frames: 24 bytes each. */
enum { TEXT_STEPS = 10000000, BYTE_STEPS = 512, SLICE = 1 << 17, MAX_FRAMES = 1 << 20 };

typedef enum frame_kind {
    WAY,     /* continue at pc, pos */
    SHRINK,  /* a run that ends at pos, and may end as early as `other`: one character less, and continue at pc */
    EXTEND,  /* a lazy run at pc that ends at pos after `other` characters: one more */
    FURTHER, /* a lookbehind at pc that began at pos, `other` characters back: one more */
    SLOT,    /* slot pc had the value `other` */
    FENCE,   /* the outer fence is `other`; the look or group began at pos */
    REFUTED  /* a fence of a negative look: it holds, continue at pc, pos */
} frame_kind;

typedef struct frame {
    frame_kind kind;
    uint32_t pc;
    size_t pos, other;
} frame;

struct mt_regex_state {
    frame *frames;
    size_t n_frames, cap_frames;
    size_t fence; /* the topmost fence */
    size_t *slots;
    size_t cap_slots;
    int64_t fuel;       /* steps until the next look at *stop */
    int64_t steps_left; /* beyond them */
    size_t text_bytes;
    const atomic_bool *stop;
};

typedef struct match {
    const mt_regex *re;
    mt_regex_state *st;
    const char *s;
    size_t n, from;
    mt_err *err;
} match;

/* ---- life ---- */

mt_rc mt_regex_create(mt_regex **out, const char *pattern, size_t n, mt_err *err)
{
    mt__tree tree = { 0 };
    *out = NULL;
    mt_regex *re = mt_calloc(1, sizeof *re);
    mt_rc rc = re ? mt__regex_parse(&tree, pattern, n, err) : mt_no_memory(err, "a regular expression");
    if (!rc) rc = mt__regex_compile(re, &tree, err);
    for (size_t i = 0; i < tree.n_sets; i++) mt_free(tree.sets[i].spans);
    mt_free(tree.sets);
    mt_arena_free(&tree.arena);
    if (rc)
        mt_regex_free(re);
    else
        *out = re;
    return rc;
}

void mt_regex_free(mt_regex *re)
{
    if (!re) return;
    for (size_t i = 0; i < re->n_sets; i++) mt_free(re->sets[i].spans);
    mt_free(re->sets);
    mt_free(re->code);
    mt_free(re->text);
    mt_free(re);
}

mt_rc mt_regex_state_create(mt_regex_state **out, mt_err *err)
{
    *out = mt_calloc(1, sizeof **out);
    if (!*out) return mt_no_memory(err, "regular expressions");
    mt_regex_state_begin(*out, 0);
    return MT_OK;
}

void mt_regex_state_free(mt_regex_state *st)
{
    if (!st) return;
    mt_free(st->frames);
    mt_free(st->slots);
    mt_free(st);
}

void mt_regex_state_heed(mt_regex_state *st, const atomic_bool *stop) { st->stop = stop; }

void mt_regex_state_begin(mt_regex_state *st, size_t n)
{
    st->text_bytes = n;
    st->fuel = 0;
    st->steps_left = TEXT_STEPS + BYTE_STEPS * (int64_t)n;
}

/* ---- steps and frames ---- */

static mt_rc refuel(mt_regex_state *st, mt_err *err)
{
    if (st->stop && atomic_load(st->stop)) return mt_fail(err, MT_ESTOPPED, "stopped on request");
    if (st->steps_left <= 0)
        return mt_fail(err, MT_ERANGE, "a regular expression of the tokenizer takes too many steps on a text of %zu bytes",
                       st->text_bytes);
    const int64_t more = mt_min_i64(st->steps_left, SLICE);
    st->steps_left -= more;
    st->fuel += more;
    return MT_OK;
}

static inline mt_rc spend(match *m, size_t steps)
{
    m->st->fuel -= (int64_t)steps;
    while (m->st->fuel < 0) MT_TRY(refuel(m->st, m->err));
    return MT_OK;
}

static inline mt_rc push(match *m, frame f)
{
    mt_regex_state *st = m->st;
    if (st->n_frames == MAX_FRAMES)
        return mt_fail(m->err, MT_ERANGE, "a regular expression of the tokenizer has too many ways through a text of %zu bytes",
                       st->text_bytes ? st->text_bytes : m->n);
    if (st->n_frames == st->cap_frames)
        MT_TRY(mt_grow(&st->frames, &st->cap_frames, st->n_frames + 1, sizeof *st->frames, m->err));
    st->frames[st->n_frames++] = f;
    return MT_OK;
}

static mt_rc push_fence(match *m, frame_kind kind, uint32_t pc, size_t pos)
{
    MT_TRY(push(m, (frame){ kind, pc, pos, m->st->fence }));
    m->st->fence = m->st->n_frames - 1;
    return MT_OK;
}

/* Forget the topmost fence and all above it; where its look or group began. */
static size_t cut(mt_regex_state *st)
{
    frame f = st->frames[st->fence];
    st->n_frames = st->fence;
    st->fence = f.other;
    return f.pos;
}

/* ---- characters ---- */

static inline bool one_of(const mt__set *set, const char *s, size_t n, size_t *i)
{
    uint32_t cp;
    if (*i >= n) return false;
    size_t len = mt_cp_at(s, n, *i, &cp);
    if (!mt__set_has(set, cp)) return false;
    *i += len;
    return true;
}

/* One character back, but not before `least`. */
static inline size_t back_from(const char *s, size_t i, size_t least)
{
    do i--;
    while (i > least && ((unsigned char)s[i] & 0xc0) == 0x80);
    return i;
}

static bool newline_at(const match *m, size_t i) { return i < m->n && m->s[i] == '\n'; }

static bool edge(const match *m, size_t i)
{
    const mt__set *word = &m->re->sets[m->re->n_sets - 1];
    size_t before = i ? back_from(m->s, i, 0) : 0, after = i;
    return (i && one_of(word, m->s, m->n, &before)) != one_of(word, m->s, m->n, &after);
}

static bool is_at(const match *m, mt__place place, size_t i)
{
    switch (place) {
    case MT__AT_START: return i == 0;
    case MT__AT_END: return i == m->n;
    case MT__AT_LAST_LINE: return i == m->n || (newline_at(m, i) && i + 1 == m->n);
    case MT__AT_LINE_START: return i == 0 || (i < m->n && m->s[i - 1] == '\n');
    case MT__AT_LINE_END: return i == m->n || newline_at(m, i);
    case MT__AT_FROM: return i == m->from;
    case MT__AT_EDGE: return edge(m, i);
    case MT__AT_NO_EDGE: return !edge(m, i);
    }
    return false;
}

/* ---- instructions ---- */

/* Moves *pos over characters of a run; *ok is false if there are too few. */
static mt_rc run_over(match *m, const mt__insn *insn, uint32_t pc, size_t *pos, bool *ok)
{
    enum { CHUNK = 1 << 14 }; /* characters between counts */
    const mt__set *set = &m->re->sets[insn->a];
    const uint32_t most = insn->greed == MT__LAZY ? insn->least : insn->most;
    size_t i = *pos, least_end = i;
    uint32_t n = 0, counted = 0;
    while (n < most && one_of(set, m->s, m->n, &i)) {
        if (++n == insn->least) least_end = i;
        if (n - counted == CHUNK) {
            MT_TRY(spend(m, CHUNK));
            counted = n;
        }
    }
    MT_TRY(spend(m, n - counted));
    *ok = n >= insn->least;
    if (!*ok) return MT_OK;
    *pos = i;
    if (insn->greed == MT__LAZY && insn->most > insn->least) return push(m, (frame){ EXTEND, pc, i, n });
    if (insn->greed == MT__GREEDY && i > least_end) return push(m, (frame){ SHRINK, pc + 1, i, least_end });
    return MT_OK;
}

/* Moves *pos back to the nearest place from which a lookbehind may match; *ok is false if there is none. */
static mt_rc step_behind(match *m, uint32_t pc, size_t back, size_t *pos, bool *ok)
{
    const mt__insn *insn = &m->re->code[pc];
    const size_t target = back + (back < insn->least ? insn->least - back : 0);
    for (; back<target && * pos> 0; back++) {
        MT_TRY(spend(m, 1));
        *pos = back_from(m->s, *pos, 0);
    }
    *ok = back == target;
    return *ok && back < insn->most ? push(m, (frame){ FURTHER, pc, *pos, back }) : MT_OK;
}

/* Takes frames back until one leads somewhere: *pc, *pos; *any is false if none does. */
static mt_rc next_way(match *m, uint32_t *pc, size_t *pos, bool *any)
{
    mt_regex_state *st = m->st;
    for (*any = false; !*any && st->n_frames;) {
        frame f = st->frames[--st->n_frames];
        MT_TRY(spend(m, 1));
        *pc = f.pc;
        *pos = f.pos;
        switch (f.kind) {
        case WAY: *any = true; break;
        case SHRINK:
            *any = true;
            *pos = back_from(m->s, f.pos, f.other);
            if (*pos > f.other) st->frames[st->n_frames++] = (frame){ SHRINK, f.pc, *pos, f.other };
            break;
        case EXTEND:
            *any = one_of(&m->re->sets[m->re->code[f.pc].a], m->s, m->n, pos);
            if (*any && ++f.other < m->re->code[f.pc].most) st->frames[st->n_frames++] = (frame){ EXTEND, f.pc, *pos, f.other };
            ++*pc;
            break;
        case FURTHER:
            if (f.pos == 0) break;
            *pos = back_from(m->s, f.pos, 0);
            *any = true;
            if (++f.other < m->re->code[f.pc].most) st->frames[st->n_frames++] = (frame){ FURTHER, f.pc, *pos, f.other };
            ++*pc;
            break;
        case SLOT: st->slots[f.pc] = f.other; break;
        case FENCE: st->fence = f.other; break;
        case REFUTED:
            st->fence = f.other;
            *any = true;
            break;
        }
    }
    return MT_OK;
}

/* One instruction: *pc and *pos move on, or *ok is false. */
static inline mt_rc step(match *m, uint32_t *pc, size_t *pos, bool *ok)
{
    const mt__insn *insn = &m->re->code[*pc];
    mt_regex_state *st = m->st;
    const uint32_t at = (*pc)++;
    *ok = true;
    switch ((mt__code)insn->code) {
    case MT__MATCH: return MT_OK;
    case MT__BYTES:
        *ok = m->n - *pos >= insn->b && !memcmp(m->s + *pos, m->re->text + insn->a, insn->b);
        *pos += insn->b;
        return insn->b > 16 ? spend(m, insn->b / 16) : MT_OK;
    case MT__ONE: return *ok = one_of(&m->re->sets[insn->a], m->s, m->n, pos), MT_OK;
    case MT__RUN: return run_over(m, insn, at, pos, ok);
    case MT__AT: return *ok = is_at(m, (mt__place)insn->a, *pos), MT_OK;
    case MT__JUMP: return *pc = insn->a, MT_OK;
    case MT__SPLIT: {
        const mt__insn *first = &m->re->code[insn->a]; /* of a list of words most end here */
        const bool other = first->code == MT__BYTES && (*pos >= m->n || m->s[*pos] != m->re->text[first->a]);
        *pc = other ? insn->b : insn->a;
        return other ? MT_OK : push(m, (frame){ WAY, insn->b, *pos, 0 });
    }
    case MT__ENTER: {
        const size_t before = st->slots[insn->a];
        st->slots[insn->a] = *pos;
        return push(m, (frame){ SLOT, insn->a, 0, before });
    }
    case MT__LEAVE:
        if (st->slots[insn->a] == *pos) *pc = insn->b;
        return MT_OK;
    case MT__AHEAD:
    case MT__ATOM: return push_fence(m, FENCE, 0, *pos);
    case MT__NOT: return push_fence(m, REFUTED, insn->a, *pos);
    case MT__BEHIND: return step_behind(m, at, 0, pos, ok);
    case MT__BEHIND_END: return *ok = *pos == st->frames[st->fence].pos, MT_OK;
    case MT__CUT: return cut(st), MT_OK;
    case MT__CUT_BACK: return *pos = cut(st), MT_OK;
    case MT__CUT_FAIL: return cut(st), *ok = false, MT_OK;
    }
    return MT_OK;
}

/* Does the expression match from `start` on?  *end < start: no. */
static mt_rc match_at(match *m, size_t start, bool *found, size_t *end)
{
    uint32_t pc = 0;
    size_t pos = start;
    bool ok;
    m->st->n_frames = 0;
    *found = false;
    while (m->re->code[pc].code != MT__MATCH) {
        MT_TRY(spend(m, 1));
        MT_TRY(step(m, &pc, &pos, &ok));
        if (ok) continue;
        MT_TRY(next_way(m, &pc, &pos, &ok));
        if (!ok) return MT_OK;
    }
    *found = true;
    *end = pos;
    return MT_OK;
}

mt_rc mt_regex_find(const mt_regex *re, mt_regex_state *st, const char *s, size_t n, size_t from, bool *found, size_t *start,
                    size_t *end, mt_err *err)
{
    match m = { .re = re, .st = st, .s = s, .n = n, .from = from, .err = err };
    *found = false;
    if (re->n_slots) MT_TRY(mt_grow(&st->slots, &st->cap_slots, re->n_slots, sizeof *st->slots, err));
    for (size_t i = from; i <= n;) {
        uint32_t cp;
        *start = i;
        MT_TRY(match_at(&m, i, found, end));
        if (*found || i == n) return MT_OK;
        i += mt_cp_at(s, n, i, &cp);
    }
    return MT_OK;
}
