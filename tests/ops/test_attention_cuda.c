/* cuDNN's attention against the plain CPU op, and against itself.  Where there is none, the tests of it are skipped. */
#include "test.h"

#include "op_cases.h"
#include "ops/attention_ways.h"

#include <stdlib.h>

enum { SKIPPED = 77, REPEATS = 20 };

static mt_device *cpu, *gpu;
static mt_attention_use all;        /* what the GPU has */
static int share = 1, n_shares = 1; /* of the cases: 2/4 as an argument is every fourth from the second on */

static bool is_mine(int c) { return c % n_shares == share - 1; }

static uint32_t bit(mt_attention_way way) { return 1u << way; }

static op_run *run(mt_device *dev, const op_spec *spec, int c, mt_dtype t, const mt_attention_use *use)
{
    mt_err err = { 0 };
    op_run *r = op_run_create(spec, c, &(op_how){ .t = t, .seed = op_seed(), .rounded = true, .use = use });
    assert_ok(op_execute(r, dev, true, &err));
    return r;
}

static void assert_near(const op_run *got, const op_run *want, double tolerance, const char *what)
{
    for (int k = 0; k < want->n_bufs; k++) {
        const op_buf *b = &want->bufs[k];
        if (!op_is_result(b)) continue;
        double d = op_distance(&got->bufs[k], b);
        if (getenv("MT_TEST_VERBOSE")) printf("    %s case %d: %s is %.2e away\n", what, want->case_index, b->name, d);
        if (!(d <= tolerance))
            fail_msg("%s, case %d: %s is %.3g away, allowed %.3g", what, want->case_index, b->name, d, tolerance);
    }
}

static void assert_same(const op_run *a, const op_run *b, const char *what)
{
    for (int k = 0; k < a->n_bufs; k++)
        if (op_is_result(&a->bufs[k]) && memcmp(a->bufs[k].result, b->bufs[k].result, op_bytes(&a->bufs[k])) != 0)
            fail_msg("%s, case %d: %s differs", what, a->case_index, a->bufs[k].name);
}

/* Workspaces that hold a document in parts: all heads but a byte of them, one head of each group, one head, the fewest keys of
 * one. */
enum { NOT_ALL = 1, EACH_GROUP, ONE_HEAD, FEW_KEYS };

/* How cuDNN may be asked: everything at once, or a few documents or heads at a time, and made for more and longer ones.  Every
 * size is a kernel to compile, a fifth of a second, so what has room is asked about some cases. */
static const struct {
    const char *name;
    mt_attention_way way;
    uint64_t workspace;
    int64_t docs, longest; /* made for as many and as long at least; 0: for this call alone */
    int every;             /* index of the case */
} asks[] = {
    { "repeatable", MT_ATTENTION_CUDNN, (uint64_t)2 << 30, 0, 0, 1 },
    { "repeatable, in pieces", MT_ATTENTION_CUDNN, (uint64_t)16 << 20, 0, 0, 1 },
    { "repeatable, some heads", MT_ATTENTION_CUDNN, NOT_ALL, 0, 0, 1 },
    { "repeatable, head by head", MT_ATTENTION_CUDNN, ONE_HEAD, 0, 0, 2 },
    { "repeatable, with room", MT_ATTENTION_CUDNN, (uint64_t)256 << 20, 4, 500, 3 },
    { "repeatable, with much room", MT_ATTENTION_CUDNN, (uint64_t)256 << 20, 300, 5000, 14 },
    { "fast", MT_ATTENTION_CUDNN_FAST, 0, 0, 0, 1 },
    { "fast, with room", MT_ATTENTION_CUDNN_FAST, 0, 4, 500, 3 },
    { "fast, with much room", MT_ATTENTION_CUDNN_FAST, 0, 50, 3000, 14 },
};

static uint64_t tight(const mt_attention *a, uint64_t workspace)
{
    mt_attention roomy = *a;
    roomy.use = (mt_attention_use){ .workspace = UINT64_MAX, .parts = true };
    uint64_t longest = (uint64_t)mt_cudnn_size_of(&roomy, true).longest, head = longest * longest * 2;
    switch (workspace) {
    case NOT_ALL: return head * (uint64_t)a->H - 1;
    case EACH_GROUP: return head * (uint64_t)a->K;
    case ONE_HEAD: return head;
    case FEW_KEYS: return longest * MT_CUDNN_FEWEST_KEYS * 2;
    default: return workspace;
    }
}

static mt_attention_use use_of(size_t i, int c)
{
    op_run *r = op_run_create(&op_packed_attention, c, &(op_how){ .t = MT_DTYPE_BF16 });
    const mt_attention *a = (const mt_attention *)(const void *)r->args;
    mt_attention_use use = { .ways = bit(asks[i].way) | (asks[i].way == MT_ATTENTION_CUDNN_FAST ? bit(MT_ATTENTION_FLASH) : 0),
                             .cudnn_head = all.cudnn_head,
                             .workspace = tight(a, asks[i].workspace),
                             .parts = asks[i].workspace <= FEW_KEYS,
                             .caps = true,
                             .docs = asks[i].docs ? mt_max_i64(asks[i].docs, a->n_docs) : 0,
                             .longest = asks[i].longest ? mt_max_i64(asks[i].longest, a->longest) : 0 };
    op_run_free(r);
    return use;
}

/* The backward of this case is the one asked for, not what steps in where that cannot. */
static bool serves(const op_run *r, mt_attention_way way)
{
    return mt_attention_choose((const mt_attention *)(const void *)r->args, true) == way;
}

static void agrees_with_the_cpu(void **state)
{
    (void)state;
    int n_served = 0, n_asked = 0;
    for (int c = 0; c < op_packed_attention.n_cases; c++) {
        if (!is_mine(c)) continue;
        op_run *truth = run(cpu, &op_packed_attention, c, MT_DTYPE_F32, NULL);
        for (size_t i = 0; i < MT_COUNT(asks); i++) {
            if (c % asks[i].every) continue;
            mt_attention_use use = use_of(i, c);
            op_run *r = run(gpu, &op_packed_attention, c, MT_DTYPE_BF16, &use);
            const char *wrong = op_check_written(r);
            if (wrong) fail_msg("%s, case %d: %s", asks[i].name, c, wrong);
            assert_near(r, truth, 1e-2, asks[i].name);
            n_served += serves(r, asks[i].way);
            n_asked++;
            op_run_free(r);
        }
        op_run_free(truth);
    }
    printf("    %d of %d runs by cuDNN\n", n_served, n_asked);
    /* Half of all, so at least a third of every share of them; an old one has the forward alone. */
    assert_true(n_served >= (all.cudnn_head ? n_asked / (n_shares > 1 ? 3 : 2) : 0));
}

static bool chooses(const mt_attention_use *use, const op_spec *spec, int c, mt_attention_way way)
{
    op_run *r = op_run_create(spec, c, &(op_how){ .t = MT_DTYPE_BF16, .use = use });
    bool yes = serves(r, way);
    op_run_free(r);
    return yes;
}

static void assert_fast_is_right(int c, const op_run *truth)
{
    mt_attention_use use = { .ways = bit(MT_ATTENTION_CUDNN_FAST) | bit(MT_ATTENTION_FLASH),
                             .cudnn_head = all.cudnn_head,
                             .caps = true };
    if (!chooses(&use, &op_long_attention, c, MT_ATTENTION_CUDNN_FAST)) return;
    op_run *r = run(gpu, &op_long_attention, c, MT_DTYPE_BF16, &use);
    assert_near(r, truth, 1e-2, "long, fast");
    op_run_free(r);
}

static uint64_t tight_for(int c, uint64_t workspace)
{
    op_run *r = op_run_create(&op_long_attention, c, &(op_how){ .t = MT_DTYPE_BF16 });
    mt_attention a = *(const mt_attention *)(const void *)r->args;
    a.use = (mt_attention_use){ .workspace = tight(&a, workspace), .parts = true };
    mt_cudnn_size s = mt_cudnn_size_of(&a, true);
    printf("    case %d, %llu MiB: %lld documents of %lld, %lld of %lld heads, %lld keys\n", c,
           (unsigned long long)(a.use.workspace >> 20), (long long)s.docs, (long long)s.longest, (long long)s.heads,
           (long long)a.H, (long long)s.keys);
    op_run_free(r);
    return s.longest ? a.use.workspace : 0;
}

/* Right, and the same bits again and again. */
static op_run *assert_repeats(int c, const op_run *truth, uint64_t workspace, bool parts, const char *what)
{
    mt_err err = { 0 };
    mt_attention_use use = {
        .ways = bit(MT_ATTENTION_CUDNN), .cudnn_head = all.cudnn_head, .workspace = workspace, .parts = parts, .caps = true
    };
    op_run *r = run(gpu, &op_long_attention, c, MT_DTYPE_BF16, &use);
    const char *wrong = op_check_written(r);
    if (wrong) fail_msg("%s, case %d: %s", what, c, wrong);
    assert_near(r, truth, 1e-2, what);
    unsigned char *first[OP_MAX_BUFS] = { NULL };
    for (int i = 0; i < r->n_bufs; i++)
        if (op_is_result(&r->bufs[i]))
            assert_non_null(first[i] = memcpy(malloc(op_bytes(&r->bufs[i])), r->bufs[i].result, op_bytes(&r->bufs[i])));
    assert_ok(op_place(r, gpu, &err));
    for (int k = 0; k < REPEATS; k++) {
        assert_ok(op_run_placed(r, true, &err));
        for (int i = 0; i < r->n_bufs; i++)
            if (first[i] && memcmp(first[i], r->bufs[i].result, op_bytes(&r->bufs[i])) != 0)
                fail_msg("%s, case %d: %s differs in run %d", what, c, r->bufs[i].name, k + 2);
    }
    op_unplace(r);
    for (int i = 0; i < r->n_bufs; i++) free(first[i]);
    return r;
}

/* Against our own plain fp32 kernels; again and again, and however the documents are split between launches.  Heads and keys that
 * are split change bits: their sums are then ours. */
static void long_documents_are_right_and_repeatable(void **state)
{
    (void)state;
    const uint64_t whole = (uint64_t)4 << 30, few = (uint64_t)256 << 20;
    mt_attention_use use = {
        .ways = bit(MT_ATTENTION_CUDNN), .cudnn_head = all.cudnn_head, .workspace = whole, .parts = true, .caps = true
    };
    for (int c = 0; c < op_long_attention.n_cases; c++) {
        if (!is_mine(c) || !chooses(&use, &op_long_attention, c, MT_ATTENTION_CUDNN)) continue;
        op_run *truth = run(gpu, &op_long_attention, c, MT_DTYPE_F32, NULL),
               *first = assert_repeats(c, truth, whole, false, "long");
        assert_fast_is_right(c, truth);
        if (few > tight_for(c, NOT_ALL)) {
            op_run *split = assert_repeats(c, truth, few, false, "long, few documents at a time");
            assert_same(first, split, "few documents at a time");
            op_run_free(split);
            op_run_free(assert_repeats(c, truth, few, true, "long, by length"));
        }
        for (uint64_t part = NOT_ALL; part <= FEW_KEYS; part++)
            if (tight_for(c, part)) op_run_free(assert_repeats(c, truth, tight_for(c, part), true, "long, in parts"));
        op_run_free(first);
        op_run_free(truth);
    }
}

/* Against our own kernels: plain ones would take minutes. */
static void squares_of_more_than_two_gigabytes_are_right(void **state)
{
    (void)state;
    const mt_attention_use ours = { .ways = bit(MT_ATTENTION_FLASH) };
    const mt_attention_use use = {
        .ways = bit(MT_ATTENTION_CUDNN), .cudnn_head = all.cudnn_head, .workspace = (uint64_t)4 << 30, .parts = true
    };
    for (int c = 0; c < op_huge_attention.n_cases; c++) {
        if (!is_mine(c) || !chooses(&use, &op_huge_attention, c, MT_ATTENTION_CUDNN)) continue;
        op_run *truth = run(gpu, &op_huge_attention, c, MT_DTYPE_BF16, &ours),
               *r = run(gpu, &op_huge_attention, c, MT_DTYPE_BF16, &use);
        assert_near(r, truth, 1e-2, "huge");
        op_run_free(r);
        op_run_free(truth);
    }
}

int main(int argc, char **argv)
{
    mt_err err = { 0 };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_cpu),
        cmocka_unit_test(long_documents_are_right_and_repeatable),
        cmocka_unit_test(squares_of_more_than_two_gigabytes_are_right),
    };
    if (argc > 1 && (sscanf(argv[1], "%d/%d", &share, &n_shares) != 2 || share < 1 || share > n_shares)) return 1;
    if (mt_device_open(&gpu, "cuda", NULL, &err)) {
        printf("skipped: %s\n", err.msg);
        return SKIPPED;
    }
    if (mt_device_open(&cpu, "cpu", NULL, &err)) return 1;
    all = mt_attention_use_of(gpu, false, false, (size_t)64 << 30);
    bool has = all.ways & bit(MT_ATTENTION_CUDNN);
    if (!has) printf("no cuDNN here that serves: nothing to test\n");
    int n_failed = has ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
    mt_device_close(gpu);
    mt_device_close(cpu);
    return n_failed ? 1 : 0;
}
