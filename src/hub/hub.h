/* hub.h - models and datasets by name: from the Hugging Face cache, or downloaded into it in its own layout.
 *
 *     mt_hub *hub;
 *     char *dir;
 *     MT_TRY(mt_hub_open(&hub, &(mt_hub_options){ .progress = draw, .user = bar }, err));   // reads HF_HOME, HF_TOKEN, ...
 *     rc = mt_hub_model(hub, "Qwen/Qwen3-8B", "", MT_HUB_MODEL, &dir, err);                // ".../snapshots/<commit>"
 *     ...
 *     mt_free(dir);
 *     mt_hub_close(hub);
 *
 * A name is first looked for as a directory, then in the cache, and only then on the network.  A download is checked against the
 * hash that the hub lists before it gets its name in the cache, so a file there is complete; an interrupted download continues
 * where it stopped.  Two processes that want the same file do not both download it, even if one is huggingface_hub.  docs/hub.md
 * has the rules.  Not thread-safe: one hub, one thread (it starts threads while it downloads). */
#ifndef MT_HUB_HUB_H
#define MT_HUB_HUB_H

#include "base/mem.h"

#include <stdatomic.h>

typedef struct mt_hub mt_hub;

typedef struct mt_hub_progress {
    const char *what; /* the repository */
    uint64_t done_bytes, total_bytes;
    size_t n_files;
} mt_hub_progress;
/* Called a few times a second and at the end, on the caller's thread. */
typedef void (*mt_hub_progress_fn)(void *user, const mt_hub_progress *p);

/* Zero means the default. */
typedef struct mt_hub_options {
    mt_hub_progress_fn progress;
    void *user;
    uint64_t piece_bytes;    /* large files are fetched in pieces of this size; 64 MiB */
    int n_connections;       /* pieces at once; 8 */
    double pause_s;          /* before a second try, doubled for each more; 1 */
    const atomic_bool *stop; /* once true, calls end with MT_ESTOPPED within a second; may be NULL */
} mt_hub_options;

mt_rc mt_hub_open(mt_hub **out, const mt_hub_options *o, mt_err *err);
void mt_hub_close(mt_hub *hub); /* accepts NULL */

/* What of a model is needed. */
enum {
    MT_HUB_CONFIG = 1,
    MT_HUB_TOKENIZER = 2,
    MT_HUB_WEIGHTS = 4,
    MT_HUB_MODEL = 7,
    MT_HUB_NEWEST = 8, /* ask the hub even if the cache has it: the branch may have moved */
};

/* *dir: the name itself where it is a directory (or a .gguf file), else a snapshot in the cache; newly allocated. */
mt_rc mt_hub_model(mt_hub *hub, const char *name, const char *revision, int needs, char **dir, mt_err *err);

typedef struct mt_hub_query {
    const char *name;
    const char *revision; /* "" or NULL: the default branch */
    const char *subset;   /* configuration; "" or NULL: the default one */
    const char *split;    /* "" or NULL: train */
    const char *folder;   /* only files below this folder of the repository; "" or NULL: anywhere */
    bool newest;          /* as MT_HUB_NEWEST */
} mt_hub_query;

/* The data files of a split, in the order they are read; the list ends with NULL. */
typedef struct mt_hub_dataset {
    const char **files;
    size_t n;
    char *dir; /* what they have in common, for messages */
} mt_hub_dataset;

/* From the datasets library's cache (Arrow), the hub's cache, or the network: the parquet the hub has made of it if that is
 * complete, else its own files by its README and the names they have. */
mt_rc mt_hub_dataset_open(mt_hub *hub, const mt_hub_query *q, mt_hub_dataset *out, mt_err *err);
void mt_hub_dataset_close(mt_hub_dataset *d); /* accepts a zeroed one */

/* ORG/NAME by the hub's rules. */
bool mt_hub_is_name(const char *text);

#endif
