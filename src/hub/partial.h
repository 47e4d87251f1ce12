/* partial.h - a blob in progress: pieces arrive in any order, from any thread, over several runs.
 *
 * Until it is complete it is called BLOB.parts.incomplete, never BLOB.incomplete, which is huggingface_hub's name for a file
 * without holes.  A trailer after the content lists the pieces:
 *
 *     [size bytes of content] "MTPARTS1" [u64 piece_bytes] [one byte a piece: 1 when it has arrived]
 *
 * After a kill at any moment, it is found again with its pieces; the hash detects what a crash of the machine has lost.  A file
 * of exactly its size has lost its trailer just before its final name, and only needs to be verified. */
#ifndef MT_HUB_PARTIAL_H
#define MT_HUB_PARTIAL_H

#include "hub/internal.h"

typedef struct mt__partial {
    char *blob, *path;
    int fd;
    uint64_t size, piece_bytes, n_pieces, n_done;
    uint8_t *done; /* [n_pieces] */
    bool resumed;  /* some of it was here before */
} mt__partial;

/* *busy: another process writes it.  `alone`: a lock prevents that; otherwise it gets a unique name. */
mt_rc mt__partial_open(mt__partial *p, const mt__repo *repo, const mt__file *f, uint64_t piece_bytes, bool alone, bool *busy,
                       mt_err *err);
mt_rc mt__partial_write(const mt__partial *p, uint64_t at, const void *data, size_t n, mt_err *err);
/* Writes that a piece is complete; the caller notes it in done and n_done, under its lock. */
mt_rc mt__partial_mark(const mt__partial *p, uint64_t piece, mt_err *err);
/* Compare with the hash. */
mt_rc mt__partial_verify(const mt__partial *p, const char *hash, bool *right, const atomic_bool *stop, mt_err *err);
/* Forget all pieces. */
mt_rc mt__partial_restart(mt__partial *p, mt_err *err);
/* Give it its name. */
mt_rc mt__partial_publish(mt__partial *p, mt_err *err);
void mt__partial_close(mt__partial *p); /* leaves the file for the next run; accepts a zeroed one */
/* The same, and remove it. */
void mt__partial_discard(mt__partial *p);

#endif
