#include "data/store_file.h"

#include "base/file.h"
#include "base/rng.h"

#include <string.h>

uint64_t mt__store_checksum(const mt__store_header *h) { return mt_hash(h, offsetof(mt__store_header, checksum), 0); }

uint64_t mt__store_hash(const uint8_t *bytes, size_t n)
{
    uint64_t hash = 0;
    for (size_t at = 0; at < n; at += MT__STORE_BLOCK)
        hash = mt_hash(bytes + at, n - at < MT__STORE_BLOCK ? n - at : MT__STORE_BLOCK, hash);
    return hash;
}

/* -- sinks ----------------------------------------------------------------------------------------- */

static mt_rc sink_open(mt__store_sink *s, const char *path, size_t at, mt_err *err)
{
    s->block = mt_malloc(MT__STORE_BLOCK);
    if (!s->block) return mt_no_memory(err, "writing %s", path);
    s->at = at;
    return mt_outfile_open(&s->file, path, 0, err);
}

static mt_rc sink_flush(mt__store_sink *s, mt_err *err)
{
    if (s->n == 0) return MT_OK;
    MT_TRY(mt_outfile_write(&s->file, s->at, s->block, s->n, err));
    s->hash = mt_hash(s->block, s->n, s->hash);
    MT_TRY(mt_grow(&s->hashes, &s->cap_hashes, s->n_hashes + 1, sizeof *s->hashes, err));
    s->hashes[s->n_hashes++] = s->hash;
    s->at += s->n;
    s->n = 0;
    return MT_OK;
}

static mt_rc sink_put(mt__store_sink *s, const void *bytes, size_t n, mt_err *err)
{
    const uint8_t *p = bytes;
    while (n > 0) {
        size_t k = MT__STORE_BLOCK - s->n < n ? MT__STORE_BLOCK - s->n : n;
        memcpy(s->block + s->n, p, k);
        s->n += k;
        p += k;
        n -= k;
        if (s->n == MT__STORE_BLOCK) MT_TRY(sink_flush(s, err));
    }
    return MT_OK;
}

static void sink_close(mt__store_sink *s)
{
    mt_free(s->block);
    mt_free(s->hashes);
    mt_outfile_close(&s->file);
    *s = (mt__store_sink){ 0 };
}

/* -- the writer ------------------------------------------------------------------------------------ */

mt_rc mt__store_create(mt__store_writer *w, const char *path, uint64_t key, uint32_t word_bytes, mt_err *err)
{
    memset(w, 0, sizeof *w); /* padding too: the header is hashed as bytes */
    memcpy(w->header.magic, MT__STORE_MAGIC, sizeof w->header.magic);
    w->header.word_bytes = word_bytes;
    w->header.key = key;
    char *side = mt_asprintf("%s.index", path);
    mt_rc rc = side ? MT_OK : mt_no_memory(err, "writing %s", path);
    if (!rc) rc = sink_open(&w->words, path, MT__STORE_WORDS_AT, err);
    if (!rc) rc = sink_open(&w->index, side, 0, err);
    mt_free(side);
    if (rc) mt__store_abandon(w);
    return rc;
}

mt_rc mt__store_append(mt__store_writer *w, const void *words, size_t n_words, mt_err *err)
{
    return sink_put(&w->words, words, n_words * w->header.word_bytes, err);
}

static mt_rc count_length(mt__store_writer *w, int64_t length, mt_err *err)
{
    size_t bucket = (size_t)((length + MT_STORE_BUCKET - 1) / MT_STORE_BUCKET), had = w->n_lengths;
    if (bucket >= had) {
        MT_TRY(mt_grow(&w->lengths, &w->cap_lengths, bucket + 1, sizeof *w->lengths, err));
        w->n_lengths = bucket + 1;
        memset(w->lengths + had, 0, (w->n_lengths - had) * sizeof *w->lengths);
    }
    w->lengths[bucket]++;
    return MT_OK;
}

mt_rc mt__store_append_index(mt__store_writer *w, int64_t length, int64_t uncut, bool first, mt_err *err)
{
    mt_store_counts *c = &w->header.counts;
    uint64_t entry = (uint64_t)c->n_tokens | (first ? MT__STORE_FIRST : 0);
    MT_TRY(count_length(w, uncut > length ? uncut : length, err));
    MT_TRY(sink_put(&w->index, &entry, sizeof entry, err));
    c->n_samples++;
    c->n_tokens += length;
    if (length > c->longest) c->longest = length;
    return MT_OK;
}

/* The index leaves its own file and follows the words. */
static mt_rc move_index(mt__store_writer *w, size_t *at, mt_err *err)
{
    mt_map map = { 0 };
    uint64_t end = (uint64_t)w->header.counts.n_tokens;
    MT_TRY(sink_put(&w->index, &end, sizeof end, err));
    MT_TRY(sink_flush(&w->index, err));
    MT_TRY(mt_map_open(&map, w->index.file.tmp, err));
    mt_rc rc = mt_outfile_write(&w->words.file, *at, map.data, map.size, err);
    *at += map.size;
    mt_map_close(&map);
    return rc;
}

mt_rc mt__store_publish(mt__store_writer *w, mt_err *err)
{
    mt__store_header *h = &w->header;
    MT_TRY(sink_flush(&w->words, err));
    size_t at = h->index_at = mt_round_up(w->words.at, sizeof(uint64_t));
    MT_TRY(move_index(w, &at, err));
    h->lengths_at = at;
    h->n_lengths = w->n_lengths;
    size_t lengths_bytes = w->n_lengths * sizeof *w->lengths;
    MT_TRY(mt_outfile_write(&w->words.file, at, w->lengths, lengths_bytes, err));
    h->blocks_at = at + lengths_bytes;
    h->n_blocks = w->words.n_hashes;
    size_t blocks_bytes = w->words.n_hashes * sizeof *w->words.hashes;
    MT_TRY(mt_outfile_write(&w->words.file, h->blocks_at, w->words.hashes, blocks_bytes, err));
    h->file_bytes = h->blocks_at + blocks_bytes;
    h->blocks_hash = mt_hash(w->words.hashes ? (const void *)w->words.hashes : "", blocks_bytes, 0);
    h->words_hash = w->words.hash;
    h->index_hash = w->index.hash;
    h->lengths_hash = mt_hash(w->lengths ? (const void *)w->lengths : "", lengths_bytes, 0);
    h->checksum = mt__store_checksum(h);
    MT_TRY(mt_outfile_write(&w->words.file, 0, h, sizeof *h, err));
    MT_TRY(mt_outfile_seal(&w->words.file, err));
    return mt_outfile_publish(&w->words.file, err);
}

void mt__store_abandon(mt__store_writer *w)
{
    sink_close(&w->words);
    sink_close(&w->index);
    mt_free(w->lengths);
    w->lengths = NULL;
}
