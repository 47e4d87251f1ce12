/* registry.h - datasets by name: dataset_info.json as LLaMA-Factory documents it.
 *
 *     mt_registry *r;
 *     mt_dataset_entry e;
 *     MT_TRY(mt_registry_open(&r, &(mt_registry_places){ "data", "configs/qwen.yaml", "/usr/share/megatrain/data" }, err));
 *     MT_TRY(mt_registry_find(r, "alpaca_en", &e, err));
 *     MT_TRY(mt_records_open(&records, e.path, &(mt_records_options){ .split = e.split }, err));
 *     ... mt_sampler_open(&sampler, tokenizer, &e.layout, &config, err) ...
 *     mt_registry_close(r);                                       // after everything that borrowed its strings
 *
 * A hub dataset that is not on this machine has no path: the caller downloads it by name (hub/hub.h).  Everything in an entry is
 * borrowed from the registry.  mt_registry_find refuses datasets that cannot be trained (images, preference pairs), with the
 * reason.  Not thread-safe. */
#ifndef MT_DATA_REGISTRY_H
#define MT_DATA_REGISTRY_H

#include "data/layout.h"

typedef struct mt_registry mt_registry;

/* Where to look for dataset_dir: from the working directory, beside the configuration file, in the installed data. */
typedef struct mt_registry_places {
    const char *dataset_dir;
    const char *config_path; /* "" or NULL: none */
    const char *installed;   /* a folder that holds dataset_info.json; "" or NULL: none */
    bool outside;            /* dataset_info.json and what it names may be outside its folder, by link, path or ".." */
} mt_registry_places;

typedef struct mt_dataset_entry {
    const char *name;
    const char *path;    /* what mt_records_open takes; NULL: it is on the hub and not here */
    const char *hub;     /* its name there; NULL: it is not said to be there */
    const char *folder;  /* the folder of the repository that holds it; NULL: not said */
    const char *split;   /* NULL: not said */
    const char *subset;  /* NULL: not said */
    int64_t num_samples; /* a seeded choice of this many records; 0: all */
    mt_record_layout layout;
} mt_dataset_entry;

mt_rc mt_registry_open(mt_registry **out, const mt_registry_places *places, mt_err *err);
/* The same from text; files are looked for in `dir`. */
mt_rc mt_registry_parse(mt_registry **out, const char *text, size_t n, const char *dir, mt_err *err);
void mt_registry_close(mt_registry *r);

/* The folder that was found. */
const char *mt_registry_dir(const mt_registry *r);
/* Names in the order of the file. */
size_t mt_registry_count(const mt_registry *r);
const char *mt_registry_name(const mt_registry *r, size_t i);

bool mt_registry_has(const mt_registry *r, const char *name);
/* One dataset.  MT_ENOENT: no such name (the nearest one is suggested), or its files are not there. */
mt_rc mt_registry_find(mt_registry *r, const char *name, mt_dataset_entry *out, mt_err *err);
/* Warns of keys of a dataset's entry that are not read and are nearly a known key. */
void mt_registry_warn_of_typos(const mt_registry *r, const char *name);

/* True if the name ends like a data file (.jsonl, .csv, .parquet, ...): never the name of a dataset on the hub. */
bool mt_dataset_is_file_name(const char *path);

/* A file or folder of the user's own.  Strings are borrowed. */
mt_rc mt_dataset_direct(mt_dataset_entry *out, const char *path, mt_record_layout layout, mt_err *err);

#endif
