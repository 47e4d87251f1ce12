#include "data/store.h"

#include "base/file.h"
#include "base/rng.h"
#include "data/batch.h"
#include "data/store_file.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct mt_store {
    mt_map map;
    mt__store_header header; /* a copy, so that the checked values are the used ones */
    const uint8_t *words;
    const uint64_t *index, *lengths, *blocks; /* [n_samples + 1], [n_lengths], [n_blocks] */
    atomic_uchar *verified;                   /* [n_blocks], or NULL: all words were, when it was mapped */
    const char *path;                         /* for messages; ours */
    int held;                                 /* -1: none */
};

static mt_rc check_header(const mt_store *s, const char *path, uint64_t key, mt_err *err)
{
    const mt__store_header *h = &s->header;
    if (memcmp(h->magic, MT__STORE_MAGIC, sizeof h->magic) != 0)
        return mt_fail(err, MT_EFORMAT, "%s is not a file of samples", path);
    if (h->checksum != mt__store_checksum(h)) return mt_fail(err, MT_EFORMAT, "%s: the header is damaged", path);
    if (h->key != key) return mt_fail(err, MT_EFORMAT, "%s was made from other data or settings, or by other code", path);
    if (h->file_bytes != s->map.size)
        return mt_fail(err, MT_EFORMAT, "%s has %zu bytes, expected %llu", path, s->map.size, (unsigned long long)h->file_bytes);
    return MT_OK;
}

/* The parts are where the counts place them: inside the file and aligned. */
static bool sizes_fit(const mt_store *s)
{
    const mt__store_header *h = &s->header;
    size_t n_tokens = (size_t)h->counts.n_tokens, n_samples = (size_t)h->counts.n_samples, bytes, end;
    if (h->counts.n_tokens < 0 || h->counts.n_samples < 0 || (h->word_bytes != 2 && h->word_bytes != 4)) return false;
    if (!mt_mul_size(n_tokens, h->word_bytes, &bytes) || !mt_add_size(bytes, MT__STORE_WORDS_AT, &end)) return false;
    size_t n_blocks = (bytes + MT__STORE_BLOCK - 1) / MT__STORE_BLOCK;
    if (h->index_at != mt_round_up(end, sizeof(uint64_t)) || h->index_at > h->file_bytes) return false;
    if (!mt_mul_size(n_samples + 1, sizeof(uint64_t), &bytes) || !mt_add_size(h->index_at, bytes, &end)) return false;
    if (h->lengths_at != end || !mt_mul_size(h->n_lengths, sizeof(uint64_t), &bytes)) return false;
    if (!mt_add_size(end, bytes, &end) || h->blocks_at != end || h->n_blocks != n_blocks) return false;
    return mt_mul_size(h->n_blocks, sizeof(uint64_t), &bytes) && mt_add_size(end, bytes, &end) && end == h->file_bytes;
}

static bool index_ascends(const mt_store *s)
{
    const mt_store_counts *c = &s->header.counts;
    for (int64_t i = 0; i < c->n_samples; i++) {
        int64_t n = (int64_t)(s->index[i + 1] & ~MT__STORE_FIRST) - (int64_t)(s->index[i] & ~MT__STORE_FIRST);
        if (n < 1 || n > c->longest) return false;
    }
    return (s->index[0] & ~MT__STORE_FIRST) == 0 && s->index[c->n_samples] == (uint64_t)c->n_tokens;
}

static size_t words_bytes(const mt_store *s) { return (size_t)s->header.counts.n_tokens * s->header.word_bytes; }

static mt_rc check_content(mt_store *s, const char *path, size_t verify_bytes, mt_err *err)
{
    const mt__store_header *h = &s->header;
    const uint8_t *data = s->map.data;
    if (mt__store_hash(data + h->index_at, h->lengths_at - h->index_at) != h->index_hash || !index_ascends(s))
        return mt_fail(err, MT_EFORMAT, "%s: the index is damaged", path);
    if (mt_hash(data + h->lengths_at, h->blocks_at - h->lengths_at, 0) != h->lengths_hash)
        return mt_fail(err, MT_EFORMAT, "%s: the lengths are damaged", path);
    if (mt_hash(data + h->blocks_at, h->file_bytes - h->blocks_at, 0) != h->blocks_hash ||
        (h->n_blocks && s->blocks[h->n_blocks - 1] != h->words_hash))
        return mt_fail(err, MT_EFORMAT, "%s: the hashes of the tokens are damaged", path);
    if (words_bytes(s) <= verify_bytes)
        return mt__store_hash(s->words, words_bytes(s)) == h->words_hash
                   ? MT_OK
                   : mt_fail(err, MT_EFORMAT, "%s: the tokens are damaged", path);
    s->verified = mt_calloc(h->n_blocks, sizeof *s->verified);
    s->path = mt_strdup(path);
    return s->verified && s->path ? MT_OK : mt_no_memory(err, "opening %s", path);
}

static mt_rc store_check(mt_store *s, const char *path, uint64_t key, size_t verify_bytes, mt_err *err)
{
    if (s->map.size < MT__STORE_WORDS_AT)
        return mt_fail(err, MT_EFORMAT, "%s is not a file of samples: %zu bytes", path, s->map.size);
    memcpy(&s->header, s->map.data, sizeof s->header);
    MT_TRY(check_header(s, path, key, err));
    if (!sizes_fit(s)) return mt_fail(err, MT_EFORMAT, "%s: its parts do not fit its size", path);
    for (int k = 0; k < MT_STORE_SHOWN; k++) s->header.bad[k][MT_STORE_TEXT - 1] = '\0';
    s->words = s->map.data + MT__STORE_WORDS_AT;
    s->index = (const uint64_t *)(const void *)(s->map.data + s->header.index_at);
    s->lengths = (const uint64_t *)(const void *)(s->map.data + s->header.lengths_at);
    s->blocks = (const uint64_t *)(const void *)(s->map.data + s->header.blocks_at);
    MT_TRY(check_content(s, path, verify_bytes, err));
    madvise((void *)(uintptr_t)s->map.data, s->map.size, MADV_RANDOM); /* shuffled: reading ahead would only fill memory */
    return MT_OK;
}

mt_rc mt__store_map(mt_store **out, const char *path, uint64_t key, size_t verify_bytes, mt_err *err)
{
    *out = NULL;
    mt_store *s = mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "opening %s", path);
    s->held = -1;
    mt_rc rc = mt_map_open(&s->map, path, err);
    if (!rc) rc = store_check(s, path, key, verify_bytes, err);
    if (rc) {
        mt_store_close(s);
        return rc;
    }
    *out = s;
    return MT_OK;
}

mt_rc mt_store_map(mt_store **out, const char *path, uint64_t key, mt_err *err)
{
    enum { VERIFY_BYTES = 256 << 20 }; /* hashed in a fraction of a second */
    return mt__store_map(out, path, key, VERIFY_BYTES, err);
}

void mt_store_close(mt_store *s)
{
    if (!s) return;
    mt_map_close(&s->map);
    mt_free((void *)(uintptr_t)s->verified);
    mt_free((char *)(uintptr_t)s->path);
    if (s->held >= 0) close(s->held);
    mt_free(s);
}

void mt_store_hold(mt_store *s, int fd) { s->held = fd; }

const mt_store_counts *mt_store_counted(const mt_store *s) { return &s->header.counts; }

bool mt_store_fine(int r) { return r == MT_REASON_NONE || r == MT_REASON_NO_ROOM || r == MT_REASON_TOO_LONG; }

int64_t mt_store_bad(const mt_store_counts *c)
{
    int64_t n = 0;
    for (int r = 0; r < MT_REASONS; r++)
        if (!mt_store_fine(r)) n += c->by_reason[r];
    return n;
}

const char *mt_store_bad_text(const mt_store *s, int k)
{
    return k < MT_STORE_SHOWN && s->header.bad[k][0] ? s->header.bad[k] : NULL;
}

uint64_t mt_store_content(const mt_store *s)
{
    return mt_hash(&s->header.index_hash, sizeof s->header.index_hash, s->header.words_hash);
}

int64_t mt_store_samples(const mt_store *s) { return s->header.counts.n_samples; }
static int64_t start_of(const mt_store *s, int64_t i) { return (int64_t)(s->index[i] & ~MT__STORE_FIRST); }
int64_t mt_store_length(const mt_store *s, int64_t i) { return start_of(s, i + 1) - start_of(s, i); }
bool mt_store_first_of_record(const mt_store *s, int64_t i) { return s->index[i] & MT__STORE_FIRST; }

/* Block b hashes to what it did when it was written; looked at once. */
static mt_rc check_block(const mt_store *s, size_t b, mt_err *err)
{
    size_t at = b * MT__STORE_BLOCK, n = words_bytes(s) - at < MT__STORE_BLOCK ? words_bytes(s) - at : MT__STORE_BLOCK;
    if (atomic_load_explicit(&s->verified[b], memory_order_relaxed)) return MT_OK;
    if (mt_hash(s->words + at, n, b ? s->blocks[b - 1] : 0) != s->blocks[b])
        return mt_fail(err, MT_EFORMAT, "%s: its tokens are damaged; remove the file, and the next run makes it anew", s->path);
    atomic_store_explicit(&s->verified[b], 1, memory_order_relaxed);
    return MT_OK;
}

mt_rc mt_store_read(const mt_store *s, int64_t i, int32_t *ids, int32_t *labels, mt_err *err)
{
    int64_t start = start_of(s, i), n = mt_store_length(s, i);
    size_t word = s->header.word_bytes, first = (size_t)start * word / MT__STORE_BLOCK,
           last = ((size_t)(start + n) * word - 1) / MT__STORE_BLOCK;
    for (size_t b = first; s->verified && b <= last; b++) MT_TRY(check_block(s, b, err));
    if (s->header.word_bytes == 2) {
        const uint16_t *w = (const uint16_t *)(const void *)s->words + start;
        for (int64_t k = 0; k < n; k++) {
            ids[k] = w[k] & 0x7fff;
            labels[k] = w[k] & 0x8000 ? ids[k] : MT_IGNORE;
        }
    } else {
        const uint32_t *w = (const uint32_t *)(const void *)s->words + start;
        for (int64_t k = 0; k < n; k++) {
            ids[k] = (int32_t)(w[k] & 0x7fffffff);
            labels[k] = w[k] >> 31 ? ids[k] : MT_IGNORE;
        }
    }
    return MT_OK;
}

int64_t mt_store_keeps(const mt_store *s, double share)
{
    const mt_store_counts *c = &s->header.counts;
    double want = share * (double)(c->n_samples + c->by_reason[MT_REASON_NO_ROOM]), got = 0;
    for (uint64_t b = 0; b < s->header.n_lengths; b++) {
        got += (double)s->lengths[b];
        if (got >= want) return (int64_t)b * MT_STORE_BUCKET;
    }
    return 0;
}
