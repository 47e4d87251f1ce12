/* store_file.h - the file of a store: its header, and how it is written.
 *
 * Words and index are appended as they come; the index waits in a separate file until the words are complete.  The header is
 * written last, then the file is synced and renamed (outfile.h): a store is complete or absent. */
#ifndef MT_DATA_STORE_FILE_H
#define MT_DATA_STORE_FILE_H

#include "base/outfile.h"
#include "data/store.h"

enum { MT__STORE_WORDS_AT = 8192, MT__STORE_BLOCK = 1 << 20 };
#define MT__STORE_MAGIC "mtstore\n"
#define MT__STORE_FIRST (UINT64_C(1) << 63) /* in the index: the first sample of a record */

typedef struct mt__store_header {
    char magic[8];
    uint64_t key; /* follows every change of this format too: it is a part of the code that makes samples */
    uint64_t word_bytes;
    uint64_t file_bytes, index_at, lengths_at, n_lengths; /* bytes from the start; number of buckets */
    uint64_t blocks_at, n_blocks;                         /* the hash of the words up to the end of each block */
    mt_store_counts counts;
    char bad[MT_STORE_SHOWN][MT_STORE_TEXT];
    uint64_t words_hash, index_hash, lengths_hash,
        blocks_hash;   /* words and index in blocks of MT__STORE_BLOCK bytes, each seeding the next */
    uint64_t checksum; /* of all before it */
} mt__store_header;

_Static_assert(sizeof(mt__store_header) <= MT__STORE_WORDS_AT, "the header must fit before the words");

uint64_t mt__store_checksum(const mt__store_header *h);
/* The hash that a file's words or index have. */
uint64_t mt__store_hash(const uint8_t *bytes, size_t n);

/* Bytes on their way to the end of a file, in blocks. */
typedef struct mt__store_sink {
    mt_outfile file;
    size_t at; /* where the block goes */
    uint8_t *block;
    size_t n;         /* bytes in it */
    uint64_t hash;    /* of the blocks written */
    uint64_t *hashes; /* after each of them */
    size_t n_hashes, cap_hashes;
} mt__store_sink;

typedef struct mt__store_writer {
    mt__store_header header; /* the builder fills counts and bad */
    mt__store_sink words, index;
    uint64_t *lengths; /* buckets */
    size_t n_lengths, cap_lengths;
} mt__store_writer;

/* mt_store_map, which hashes all words of a store up to `verify_bytes` at once, and of larger ones each block when it is first
 * read. */
mt_rc mt__store_map(mt_store **out, const char *path, uint64_t key, size_t verify_bytes, mt_err *err);

mt_rc mt__store_create(mt__store_writer *w, const char *path, uint64_t key, uint32_t word_bytes, mt_err *err);
/* Samples laid end to end: their words, their lengths, which of them begin a record. */
mt_rc mt__store_append(mt__store_writer *w, const void *words, size_t n_words, mt_err *err);
mt_rc mt__store_append_index(mt__store_writer *w, int64_t length, int64_t uncut, bool first, mt_err *err);
/* Complete the file, sync and rename it. */
mt_rc mt__store_publish(mt__store_writer *w, mt_err *err);
void mt__store_abandon(mt__store_writer *w); /* always last; accepts a zeroed one */

#endif
