/* Which kernels serve which attention: what a plan counts on without a GPU. */
#include "test.h"

#include "ops/attention_ways.h"

#include "base/mem.h"

enum {
    PLAIN = 1 << MT_ATTENTION_PLAIN,
    FLASH = 1 << MT_ATTENTION_FLASH,
    CUDNN = 1 << MT_ATTENTION_CUDNN,
    FAST = 1 << MT_ATTENTION_CUDNN_FAST
};

/* n documents of equal length, heads as in Qwen2.5-7B. */
static mt_attention call(uint32_t ways, int64_t n, int64_t length)
{
    return (
        mt_attention){ .t = MT_DTYPE_BF16,
                       .N = n * length,
                       .H = 28,
                       .K = 4,
                       .Dh = 128,
                       .ldq = 4608,
                       .ldk = 4608,
                       .ldv = 4608,
                       .ldo = 3584,
                       .ld_d = 4608,
                       .n_docs = n,
                       .longest = length,
                       .scale = 0.1f,
                       .use = { .ways = ways, .cudnn_head = 128, .workspace = (uint64_t)4 << 30, .parts = true, .caps = true } };
}

static void assert_ways(const mt_attention *a, mt_attention_way forward, mt_attention_way backward)
{
    assert_string_equal(mt_attention_way_name(mt_attention_choose(a, false)), mt_attention_way_name(forward));
    assert_string_equal(mt_attention_way_name(mt_attention_choose(a, true)), mt_attention_way_name(backward));
}

static void each_call_gets_the_fastest_that_serves(void **state)
{
    (void)state;
    const uint32_t repeatable = PLAIN | FLASH | CUDNN, all = repeatable | FAST;
    mt_attention a = call(all, 16, 1024);
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    a = call(all, 4, 4096);
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN_FAST);
    a.window = 128;
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_FLASH);
    a.window = 1024;
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN_FAST);
    a = call(repeatable, 4, 4096);
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    a = call(repeatable, 1, 16384); /* 15 GB of squares, in parts */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    a = call(repeatable, 1, 131072);
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    a = call(repeatable, 1, 200000); /* parts too small to fill a GPU */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_FLASH);
    a = call(repeatable, 1, 4096);
    a.use.workspace = (uint64_t)256 << 20; /* the same of shorter ones in little memory */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_FLASH);
    a.use.ways = PLAIN | CUDNN; /* still better than nothing */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    a = call(repeatable, 1, 16384);
    a.use.parts = false; /* a run that began before there were any */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_FLASH);
    a = call(repeatable, 16, 1024);
    a.softcap = 30;
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    a.use.caps = false; /* likewise */
    assert_ways(&a, MT_ATTENTION_FLASH, MT_ATTENTION_FLASH);
    a = call(all, 4, 4096);
    a.softcap = 30;
    a.window = 1024;
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN_FAST);
    a = call(0, 16, 1024); /* not given: our own */
    assert_ways(&a, MT_ATTENTION_FLASH, MT_ATTENTION_FLASH);
    a = call(PLAIN, 16, 1024); /* eager */
    assert_ways(&a, MT_ATTENTION_PLAIN, MT_ATTENTION_PLAIN);
}

static void values_of_another_width_have_their_ways(void **state)
{
    (void)state;
    const uint32_t all = PLAIN | FLASH | CUDNN | FAST;
    mt_attention a = call(all, 4, 4096);
    a.use.cudnn_head = 256;
    a.H = a.K = 16;
    a.Dh = 192;
    a.Dv = 128; /* DeepSeek */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN_FAST);
    a.use.ways = PLAIN | FLASH | CUDNN;
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    a.use.cudnn_head = 0; /* an old one */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_FLASH);
    a.use.cudnn_head = 256;
    a.K = 4; /* grouped heads of such widths were not tried */
    assert_ways(&a, MT_ATTENTION_FLASH, MT_ATTENTION_FLASH);
    a.K = 16;
    a.Dh = a.Dv = 256; /* GLM-4.7-Flash */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    a.Dh = 128; /* nor were others */
    assert_ways(&a, MT_ATTENTION_FLASH, MT_ATTENTION_FLASH);
    a.Dv = 100;
    assert_ways(&a, MT_ATTENTION_PLAIN, MT_ATTENTION_PLAIN);
}

static void what_cudnn_does_not_know_is_ours(void **state)
{
    (void)state;
    const uint32_t all = PLAIN | FLASH | CUDNN | FAST;
    mt_attention a = call(all, 16, 1024);
    a.alibi = 1;
    assert_ways(&a, MT_ATTENTION_FLASH, MT_ATTENTION_FLASH);
    a = call(all, 16, 1024);
    a.use.cudnn_head = 0; /* 9.14: its gradients are wrong */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_FLASH);
    a = call(all, 16, 1024);
    a.Dh = 256;
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_FLASH);
    a.use.cudnn_head = 256;
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN_FAST);
    a = call(all, 16, 1024);
    a.Dh = 72;
    assert_ways(&a, MT_ATTENTION_FLASH, MT_ATTENTION_FLASH);
    a.Dh = 33;
    assert_ways(&a, MT_ATTENTION_PLAIN, MT_ATTENTION_PLAIN);
    a = call(all, 16, 1024);
    a.t = MT_DTYPE_F32;
    assert_ways(&a, MT_ATTENTION_PLAIN, MT_ATTENTION_PLAIN);
    a = call(all, 16, 1024);
    a.q = (const void *)(uintptr_t)8; /* rows that 16-byte loads cannot read */
    assert_ways(&a, MT_ATTENTION_PLAIN, MT_ATTENTION_PLAIN);
    a = call(PLAIN | FLASH | CUDNN, 16, 1024);
    a.window = 512; /* cuDNN's repeatable backward would go through everything */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_FLASH);
    a.window = 1024; /* hides nothing */
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
}

/* The kernels need not know of sinks, and cuDNN serves chunks that cut nothing. */
static void chunks_that_cut_are_ours_and_sinks_change_no_choice(void **state)
{
    (void)state;
    const float sinks[28] = { 0 };
    mt_attention a = call(PLAIN | FLASH | CUDNN, 4, 4096);
    a.sinks = sinks;
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    a.chunk = 4096;
    assert_ways(&a, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    a.chunk = 4095;
    assert_ways(&a, MT_ATTENTION_FLASH, MT_ATTENTION_FLASH);
    /* A run whose longest document is cut has shorter ones that are not. */
    mt_attention whole = call(PLAIN | FLASH | CUDNN, 4, 4096);
    assert_int_equal(mt_attention_scratch(&a), mt_attention_scratch(&whole) + mt_sinks_scratch(&a));
    assert_true(mt_sinks_scratch(&a) >= (size_t)(a.N / 32 * a.H) * sizeof(float) && mt_sinks_scratch(&whole) == 0);
}

static uint64_t squares_of(mt_cudnn_size s) { return (uint64_t)(s.docs * s.heads * s.longest * s.keys * 2); }

/* How a document goes through that does not fit at once: what was fastest of what fits (docs/notebook). */
static void long_documents_go_in_the_parts_that_were_fastest(void **state)
{
    (void)state;
    static const struct {
        int64_t H, K, Dh, length, gib, heads, keys;
    } cases[] = {
        { 28, 4, 128, 8192, 4, 28, 8192 },  { 28, 4, 128, 8192, 2, 28, 4096 },   { 28, 4, 128, 16384, 4, 28, 4096 },
        { 28, 4, 128, 16384, 2, 4, 16384 }, { 28, 4, 128, 32768, 4, 4, 16384 },  { 28, 4, 128, 32768, 2, 2, 16384 },
        { 28, 4, 128, 65536, 4, 1, 32768 }, { 28, 4, 128, 131072, 4, 1, 16384 }, { 14, 2, 64, 16384, 4, 14, 8192 },
        { 14, 2, 64, 16384, 2, 14, 4096 },  { 14, 2, 64, 32768, 4, 2, 32768 },   { 32, 8, 128, 16384, 2, 8, 8192 },
        { 7, 1, 128, 32768, 4, 7, 8192 },   { 32, 32, 128, 16384, 2, 8, 8192 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_attention a = call(CUDNN, 1, cases[i].length);
        a.H = cases[i].H, a.K = cases[i].K, a.Dh = cases[i].Dh;
        a.use.workspace = (uint64_t)cases[i].gib << 30;
        mt_cudnn_size s = mt_cudnn_size_of(&a, true);
        if (s.heads != cases[i].heads || s.keys != cases[i].keys || s.docs != 1 || s.longest != cases[i].length)
            fail_msg("case %zu: %lld heads and %lld keys at a time", i, (long long)s.heads, (long long)s.keys);
    }
}

/* However the lengths of a run vary, its sizes are those of its first call, and each call finds one that holds it. */
static void sizes_hold_every_call_of_a_run(void **state)
{
    (void)state;
    for (int64_t cap = 1; cap <= 40000; cap += cap < 600 ? 7 : cap < 9000 ? 977 : 7001) {
        mt_attention first = call(CUDNN, 3, cap);
        first.use.docs = 100, first.use.longest = cap;
        mt_cudnn_size sizes[MT_CUDNN_SIZES], others[MT_CUDNN_SIZES];
        int n = mt_cudnn_sizes(&first, true, sizes);
        for (int i = 0; i < n; i++) {
            assert_true(sizes[i].docs >= 1 && sizes[i].docs <= MT_CUDNN_MOST_DOCS && sizes[i].longest % 128 == 0);
            assert_true(squares_of(sizes[i]) <= first.use.workspace);
            assert_true(mt_cudnn_whole(&first, sizes[i]) ||
                        (sizes[i].docs == 1 && (sizes[i].heads == first.H || first.K % sizes[i].heads == 0) &&
                         sizes[i].keys % 128 == 0 && sizes[i].keys <= sizes[i].longest));
            assert_true(i == 0 || sizes[i].longest > sizes[i - 1].longest ||
                        (sizes[i].longest == sizes[i - 1].longest && sizes[i].docs == 2 * sizes[i - 1].docs));
        }
        for (int64_t longest = 1; longest <= cap; longest += 1 + longest / 3) {
            mt_attention a = call(CUDNN, 2, longest);
            a.use = first.use;
            assert_int_equal(mt_cudnn_sizes(&a, true, others), n);
            assert_memory_equal(others, sizes, (size_t)n * sizeof *sizes);
            mt_cudnn_size s = mt_cudnn_size_of(&a, true), w = mt_cudnn_size_of(&a, false);
            bool listed = false;
            for (int i = 0; i < n; i++) listed |= memcmp(&s, &sizes[i], sizeof s) == 0;
            assert_true((listed && s.longest >= longest) || (s.longest == 0 && (n == 0 || longest > sizes[n - 1].longest)));
            assert_true(w.longest == mt_cudnn_longest(&first) && w.docs == 2);
        }
    }
}

/* Documents among which are some whose heads do not fit at once: each is in one parcel, with others of its length, that fits and
 * has a kernel. */
static void every_document_is_in_one_parcel(void **state)
{
    (void)state;
    static const int lengths[] = { 3, 20000, 300, 7000, 1, 256, 257, 9001, 16384, 17000, 4096, 4097 };
    enum { DOCS = 300 };
    int32_t starts[DOCS + 1] = { 0 };
    bool seen[DOCS] = { false };
    for (int d = 0; d < DOCS; d++) starts[d + 1] = starts[d] + (d < (int)MT_COUNT(lengths) ? lengths[d] : 1 + d % 290);
    mt_attention a = call(CUDNN, DOCS, 0);
    a.N = starts[DOCS], a.longest = 20000, a.host_start = starts;
    mt_cudnn_layout l = mt_cudnn_layout_of(&a, MT_ATTENTION_CUDNN, true);
    assert_true(l.parcels);
    mt_cudnn_size sizes[MT_CUDNN_SIZES];
    int n_sizes = mt_cudnn_sizes(&a, true, sizes), n_launches = 0;
    for (mt_cudnn_parcel p = { .next = 0 }; mt_cudnn_parcel_next(&a, &p); n_launches++) {
        bool listed = false;
        for (int i = 0; i < n_sizes; i++) listed |= memcmp(&p.size, &sizes[i], sizeof p.size) == 0;
        assert_true(listed && p.n_docs >= 1 && p.n_docs <= p.size.docs);
        assert_true(squares_of(p.size) + 4096 <= l.workspace_bytes && p.size.docs < l.offsets_ld && p.size.docs <= l.lengths_ld);
        for (int64_t i = 0; i < p.n_docs; i++) {
            int d = 0;
            while (starts[d] != p.row[i]) d++;
            assert_true(!seen[d] && p.length[i] == starts[d + 1] - starts[d] && p.length[i] <= p.size.longest &&
                        (2 * p.length[i] > p.size.longest || p.size.longest == 256));
            seen[d] = true;
        }
    }
    for (int d = 0; d < DOCS; d++) assert_true(seen[d]);
    assert_in_range(n_launches, 12, 16); /* the short ones 64 at a time */
}

/* A document that leaves room for no other in the workspace, though it fits whole, is not to send every short one through
 * alone. */
static void short_documents_beside_a_long_one_go_together(void **state)
{
    (void)state;
    static const struct {
        int32_t longest, others, length;
        int most; /* launches */
    } cases[] = { { 8092, 448, 128, 8 }, { 8092, 1795, 32, 30 }, { 3996, 480, 128, 9 }, { 40000, 480, 128, 9 } };
    static int32_t starts[2000];
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_attention a = call(CUDNN, cases[i].others + 1, 0);
        starts[1] = cases[i].longest;
        for (int d = 1; d <= cases[i].others; d++) starts[d + 1] = starts[d] + cases[i].length;
        a.N = starts[a.n_docs], a.longest = cases[i].longest, a.host_start = starts;
        mt_cudnn_layout l = mt_cudnn_layout_of(&a, MT_ATTENTION_CUDNN, true);
        int n_parcels = 0;
        assert_true(l.parcels && l.bytes <= mt_attention_scratch(&a));
        for (mt_cudnn_parcel p = { .next = 0 }; mt_cudnn_parcel_next(&a, &p); n_parcels++)
            assert_true(squares_of(p.size) + 4096 <= l.workspace_bytes && p.size.docs < l.offsets_ld &&
                        p.size.docs <= l.lengths_ld);
        if (n_parcels > cases[i].most) fail_msg("case %zu: %d launches", i, n_parcels);
    }
    mt_attention alike = call(CUDNN, 26, 1024); /* all of them fit */
    assert_false(mt_cudnn_layout_of(&alike, MT_ATTENTION_CUDNN, true).parcels);
}

/* Where every layer has a window, longer documents than that are never cuDNN's to take back: no kernels, no workspace for
 * them. */
static void windows_bound_the_squares(void **state)
{
    (void)state;
    mt_cudnn_size sizes[MT_CUDNN_SIZES];
    mt_attention a = call(CUDNN | FLASH, 4, 32768), short_ones = call(CUDNN | FLASH, 4, 4096);
    a.window = 4096;
    size_t with = mt_attention_scratch(&a);
    int n = mt_cudnn_sizes(&a, true, sizes);
    assert_int_equal(sizes[n - 1].longest, 4096);
    short_ones.window = 4096, short_ones.use.longest = 32768;
    assert_ways(&short_ones, MT_ATTENTION_CUDNN, MT_ATTENTION_CUDNN);
    assert_int_equal(mt_cudnn_size_of(&short_ones, true).longest, 4096);
    assert_true(mt_cudnn_layout_of(&short_ones, MT_ATTENTION_CUDNN, true).bytes <= with);
    a.window = 0;
    assert_true(mt_attention_scratch(&a) > with);
}

/* Documents of one call go in parts of different kinds; each kind's offsets, gradients of queries and squares are within the
 * call's scratch.  A shorter document may have more pieces than the longest, and larger ones: once they overwrote the offsets. */
static void parts_of_every_length_stay_inside_the_scratch(void **state)
{
    (void)state;
    static const struct {
        int64_t H, K, Dh;
        uint64_t mib;
        int32_t lengths[6];
    } cases[] = {
        { 16, 2, 64, 256, { 8192, 40, 2111, 5000 } }, /* two heads of the longest, two pieces of the third */
        { 28, 4, 128, 2048, { 32768, 5000, 9000, 300, 20000 } },
        { 28, 4, 128, 4096, { 9000, 65536, 32768, 16384, 8192 } },
        { 14, 2, 64, 2048, { 16384, 60000, 30000, 1 } },
        { 7, 1, 128, 1024, { 131072, 8192, 16384, 32768, 65536 } },
        { 32, 32, 96, 2048, { 4096, 8192, 16384, 40000 } },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_attention a = call(CUDNN, 0, 0);
        int32_t starts[7] = { 0 };
        int n_kinds = 0;
        a.H = cases[i].H, a.K = cases[i].K, a.Dh = cases[i].Dh, a.host_start = starts, a.use.workspace = cases[i].mib << 20;
        for (; a.n_docs < 6 && cases[i].lengths[a.n_docs]; a.n_docs++) {
            starts[a.n_docs + 1] = starts[a.n_docs] + cases[i].lengths[a.n_docs];
            a.longest = mt_max_i64(a.longest, cases[i].lengths[a.n_docs]);
        }
        a.N = starts[a.n_docs];
        mt_cudnn_layout l = mt_cudnn_layout_of(&a, MT_ATTENTION_CUDNN, true);
        size_t after_dq = a.H != a.K ? l.dkf : l.workspace;
        assert_true(l.parcels && l.bytes <= mt_attention_scratch(&a));
        for (mt_cudnn_parcel p = { .next = 0 }; mt_cudnn_parcel_next(&a, &p);) {
            int64_t pieces = (p.length[0] + p.size.keys - 1) / p.size.keys;
            bool cut = p.size.keys != p.size.longest;
            n_kinds += cut || p.size.heads != a.H;
            if (pieces > l.n_chunks)
                fail_msg("case %zu, document of %d: %d pieces and room for %d", i, p.length[0], (int)pieces, (int)l.n_chunks);
            size_t dq = (size_t)(mt_cudnn_pieces(p.size) * p.size.longest * p.size.heads * a.Dh * 2);
            if (cut && (l.dq <= l.delta || after_dq - l.dq < dq))
                fail_msg("case %zu, document of %d: %zu bytes of dq do not fit", i, p.length[0], dq);
            assert_true(squares_of(p.size) + 4096 <= l.workspace_bytes && l.workspace + l.workspace_bytes <= l.bytes);
        }
        assert_true(n_kinds >= 2);
    }
}

/* Whatever the workspace: if the longest document of a call can go through, so can all shorter ones, each once and inside the
 * scratch. */
static void what_fits_the_longest_fits_every_shorter(void **state)
{
    (void)state;
    static const int64_t heads[][2] = { { 28, 4 }, { 14, 2 }, { 7, 1 }, { 12, 12 }, { 40, 10 } };
    int n_served = 0;
    for (size_t h = 0; h < MT_COUNT(heads); h++)
        for (int mib = 1; mib <= 8192; mib = mib * 3 / 2 + 1)
            for (int32_t longest = 300; longest <= 140000; longest = longest * 5 / 4 + 11) {
                int32_t starts[40] = { 0 };
                mt_attention a = call(CUDNN, 0, 0);
                a.H = heads[h][0], a.K = heads[h][1], a.longest = longest, a.host_start = starts,
                a.use.workspace = (uint64_t)mib << 20;
                for (int32_t length = longest; length; length = length * 2 / 3, a.n_docs++)
                    starts[a.n_docs + 1] = starts[a.n_docs] + length;
                a.N = starts[a.n_docs];
                if (!mt_cudnn_size_of(&a, true).docs) continue;
                mt_cudnn_layout l = mt_cudnn_layout_of(&a, MT_ATTENTION_CUDNN, true);
                int64_t n_docs = 0, rows = 0;
                if (!l.parcels) continue;
                for (mt_cudnn_parcel p = { .next = 0 }; mt_cudnn_parcel_next(&a, &p); n_docs += p.n_docs) {
                    for (int64_t i = 0; i < p.n_docs; i++) rows += p.length[i];
                    bool cut = p.size.keys != p.size.longest;
                    size_t dq = cut ? (size_t)(mt_cudnn_pieces(p.size) * p.size.longest * p.size.heads * a.Dh * 2) : 0;
                    assert_true(mt_cudnn_pieces(p.size) <= l.n_chunks && dq <= (a.H != a.K ? l.dkf : l.workspace) - l.dq &&
                                squares_of(p.size) <= l.workspace_bytes);
                }
                assert_true(n_docs == a.n_docs && rows == a.N && l.bytes <= mt_attention_scratch(&a));
                n_served++;
            }
    assert_true(n_served > 500);
}

/* The scratch a plan asks for once holds whatever any micro-batch up to its sizes lays out in it. */
static void scratch_of_the_largest_call_holds_every_other(void **state)
{
    (void)state;
    const uint32_t sets[] = { CUDNN, FAST, CUDNN | FAST, PLAIN | FLASH, CUDNN };
    for (size_t w = 0; w < MT_COUNT(sets); w++) {
        uint64_t workspace = (uint64_t)(w < 4 ? 512 : 64) << 20; /* the last: documents of more than 1024 rows in parts */
        mt_attention most = {
            .t = MT_DTYPE_BF16,
            .N = 8192,
            .H = 28,
            .K = 4,
            .Dh = 128,
            .n_docs = 300,
            .longest = 4096,
            .scale = 0.1f,
            .use = { .ways = sets[w], .cudnn_head = 128, .workspace = workspace, .parts = w == 4, .docs = 300, .longest = 4096 }
        };
        size_t bytes = mt_attention_scratch(&most);
        for (int64_t n = 1; n <= 300; n += 1 + n / 2)
            for (int64_t longest = 1; longest * n <= 8192 && longest <= 4096; longest += 1 + longest) {
                mt_attention a = call(sets[w], n, longest);
                if (n % 2) a.ldq = a.ldk = 32 * 128;
                a.use = most.use;
                assert_true(mt_attention_scratch(&a) <= bytes);
                for (int back = 0; back < 2; back++) {
                    mt_attention_way way = mt_attention_choose(&a, back);
                    if (way == MT_ATTENTION_CUDNN || way == MT_ATTENTION_CUDNN_FAST)
                        assert_true(mt_cudnn_layout_of(&a, way, back).bytes <= bytes);
                }
            }
    }
}

/* No two parts of the scratch overlap, and documents fall into as many launches as they need. */
static void a_layout_has_room_for_each_part(void **state)
{
    (void)state;
    mt_attention a = call(CUDNN | FAST, 37, 400);
    a.use.parts = false;
    a.use.workspace = (uint64_t)64 << 20; /* 4 documents at a time: squares of 400 rows, rounded up to 512 */
    mt_cudnn_layout l = mt_cudnn_layout_of(&a, MT_ATTENTION_CUDNN, true);
    assert_int_equal(l.size.docs, 4);
    assert_int_equal(l.size.longest, 512);
    assert_int_equal(l.n_chunks, 10);
    assert_true(l.lengths - l.offsets >= (size_t)(10 * MT_OFFSETS * 5) * 8);
    assert_true(l.delta - l.lengths >= (size_t)(10 * 4) * 4);
    assert_true(l.dkf - l.delta >= (size_t)(a.N * a.H) * 4);
    assert_true(l.dvf - l.dkf >= (size_t)(a.N * a.H * a.Dh) * 2 && l.dk - l.dvf >= (size_t)(a.N * a.H * a.Dh) * 2);
    assert_true(l.dv - l.dk >= (size_t)(a.N * a.K * a.Dh) * 2 && l.workspace - l.dv >= (size_t)(a.N * a.K * a.Dh) * 2);
    assert_true(l.bytes - l.workspace >= (size_t)4 * 28 * 512 * 512 * 2);
    l = mt_cudnn_layout_of(&a, MT_ATTENTION_CUDNN_FAST, true);
    assert_int_equal(l.n_chunks, 1);
    assert_true(l.dkf - l.acc >= (size_t)(a.N * a.ldq) * 4);
    a.ldq = 32 * 128; /* q and k apart from v: dq, made with rows as far apart as q's, cannot go to its place at once */
    l = mt_cudnn_layout_of(&a, MT_ATTENTION_CUDNN_FAST, true);
    assert_int_equal(mt_cudnn_ld_dq(&a, MT_ATTENTION_CUDNN_FAST), a.ldq);
    assert_true(l.dq - l.acc >= (size_t)(a.N * a.ldq) * 4 && l.dkf - l.dq >= (size_t)(a.N * a.ldq) * 2);
    assert_int_equal(mt_cudnn_ld_dq(&a, MT_ATTENTION_CUDNN), a.ld_d);
}

static void settings_become_ways(void **state)
{
    (void)state;
    mt_err err = { 0 };
    mt_device *dev;
    char text[64];
    assert_ok(mt_device_open(&dev, "cpu", NULL, &err));
    mt_attention_use use = mt_attention_use_of(dev, true, false, (size_t)1 << 30);
    assert_int_equal(use.ways, PLAIN);
    assert_int_equal(use.workspace, 0); /* the CPU needs none */
    use = mt_attention_use_typical(true, false, (size_t)141 << 30);
    assert_int_equal(use.ways, PLAIN | FLASH | CUDNN);
    assert_true(use.workspace == (uint64_t)4 << 30 && use.parts && use.caps);
    /* A little less free memory: the same bits. */
    assert_true(mt_attention_use_typical(true, false, (size_t)140 << 30).workspace == use.workspace);
    assert_true(mt_attention_use_typical(true, false, (size_t)80 << 30).workspace == (uint64_t)2 << 30);
    use = mt_attention_use_typical(false, false, (size_t)141 << 30);
    assert_int_equal(use.ways, PLAIN | FLASH | CUDNN | FAST);
    assert_true(use.workspace == (uint64_t)2 << 30 && !use.parts); /* what could go in parts goes by atomic additions */
    assert_int_equal(mt_attention_use_typical(false, true, (size_t)80 << 30).ways, PLAIN);
    mt_attention_use_text(&(mt_attention_use){ .ways = PLAIN | FLASH | CUDNN }, text, sizeof text);
    assert_string_equal(text, "cudnn, flash, plain");
    mt_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_gets_the_fastest_that_serves),
        cmocka_unit_test(what_cudnn_does_not_know_is_ours),
        cmocka_unit_test(values_of_another_width_have_their_ways),
        cmocka_unit_test(chunks_that_cut_are_ours_and_sinks_change_no_choice),
        cmocka_unit_test(long_documents_go_in_the_parts_that_were_fastest),
        cmocka_unit_test(sizes_hold_every_call_of_a_run),
        cmocka_unit_test(every_document_is_in_one_parcel),
        cmocka_unit_test(short_documents_beside_a_long_one_go_together),
        cmocka_unit_test(windows_bound_the_squares),
        cmocka_unit_test(parts_of_every_length_stay_inside_the_scratch),
        cmocka_unit_test(what_fits_the_longest_fits_every_shorter),
        cmocka_unit_test(scratch_of_the_largest_call_holds_every_other),
        cmocka_unit_test(a_layout_has_room_for_each_part),
        cmocka_unit_test(settings_become_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
