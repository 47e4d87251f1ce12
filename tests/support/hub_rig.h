/* hub_rig.h - a hub on loopback with acme/tiny, its own cache, and a client between them: cmocka_unit_test_setup_teardown(test,
 * rig_make, rig_remove); *state is the rig. */
#ifndef MT_TEST_HUB_RIG_H
#define MT_TEST_HUB_RIG_H

#include "hub_tiny.h"
#include "workspace.h"

#include "base/log.h"
#include "hub/hub.h"
#include "hub/names.h"

#include <stdatomic.h>

typedef struct rig {
    char *dir;
    hub_server *s;
    hub_repo *tiny; /* a model: config, tokenizer, two shards, and what is not needed */
    mt_hub *hub;
    mt_hub_progress last; /* the latest that was shown */
    int n_shown;
    pthread_t caller;  /* the thread that downloads, on which progress is shown */
    char said[4096];   /* notices */
    atomic_int n_said; /* how many */
} rig;

static inline void show(void *user, const mt_hub_progress *p)
{
    rig *r = user;
    assert_true(pthread_equal(pthread_self(), r->caller));
    assert_true(p->done_bytes <= p->total_bytes);
    r->last = *p;
    r->n_shown++;
}

static inline void hear(void *user, mt_log_level level, const char *text)
{
    rig *r = user;
    (void)level;
    strncat(r->said, text, sizeof r->said - strlen(r->said) - 1);
    atomic_fetch_add(&r->n_said, 1);
}

static inline void open_hub(rig *r)
{
    mt_err err = { 0 };
    mt_hub_close(r->hub);
    r->caller = pthread_self();
    assert_ok(mt_hub_open(
        &r->hub,
        &(mt_hub_options){ .progress = show, .user = r, .piece_bytes = HUB_TINY_PIECE, .n_connections = 4, .pause_s = 0.01 },
        &err));
}

static inline int rig_make(void **state)
{
    static const char *const variables[] = { "HF_HUB_CACHE",
                                             "HUGGINGFACE_HUB_CACHE",
                                             "HF_TOKEN",
                                             "HUGGING_FACE_HUB_TOKEN",
                                             "HF_TOKEN_PATH",
                                             "HF_HUB_OFFLINE",
                                             "TRANSFORMERS_OFFLINE",
                                             "HF_DATASETS_OFFLINE",
                                             "HF_DATASETS_CACHE",
                                             "HF_HUB_DISABLE_IMPLICIT_TOKEN",
                                             "http_proxy",
                                             "HTTP_PROXY",
                                             "all_proxy",
                                             "ALL_PROXY" };
    rig *r = calloc(1, sizeof *r);
    void *dir;
    if (tempdir_make(&dir)) return -1;
    r->dir = dir;
    for (size_t i = 0; i < MT_COUNT(variables); i++) unsetenv(variables[i]);
    r->s = hub_server_start();
    setenv("HF_HOME", r->dir, 1);
    setenv("HF_ENDPOINT", r->s->endpoint, 1);
    mt_log_set_sink(hear, r);
    r->tiny = hub_add_tiny(r->s);
    open_hub(r);
    *state = r;
    return 0;
}

static inline int rig_remove(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    mt_log_set_sink(NULL, NULL);
    mt_hub_close(r->hub);
    hub_server_stop(r->s);
    mt_rc rc = mt_dir_remove(r->dir, &err);
    mt_free(r->dir);
    free(r);
    return rc ? -1 : 0;
}

/* -- the cache on disk -------------------------------------------------------------- */

static inline test_path in_cache(const rig *r, const char *path) { return workspace_path("%s/hub/%s", r->dir, path); }

static inline test_path snapshot_path(const rig *r, const hub_repo *repo, const char *path)
{
    const char *slash = strchr(repo->name, '/');
    return workspace_path("%s/hub/%s--%.*s--%s/snapshots/%s/%s", r->dir, repo->dataset ? "datasets" : "models",
                          (int)(slash - repo->name), repo->name, slash + 1, repo->commit, path);
}

static inline void holds(const rig *r, const hub_repo *repo, const char *path)
{
    mt_err err = { 0 };
    char *text;
    size_t n;
    for (int i = 0; i < repo->n_files; i++) {
        if (strcmp(repo->files[i].path, path) != 0) continue;
        assert_ok(mt_file_read(&text, &n, snapshot_path(r, repo, path).s, 1 << 24, &err));
        assert_int_equal(n, repo->files[i].size);
        assert_memory_equal(text, repo->files[i].data, n);
        mt_free(text);
        return;
    }
    fail_msg("%s is no file of the repository", path);
}

static inline bool lacks(const rig *r, const hub_repo *repo, const char *path)
{
    return !mt_file_exists(snapshot_path(r, repo, path).s);
}

/* Every file in blobs/ with a blob's name has the content its name promises. */
static inline void no_blob_is_torn(const rig *r, const char *folder)
{
    mt_err err = { 0 };
    mt_dir_names names;
    test_path dir = workspace_path("%s/hub/%s/blobs", r->dir, folder);
    if (!mt_dir_exists(dir.s)) return;
    assert_ok(mt_dir_list(&names, dir.s, &err));
    for (size_t i = 0; i < names.n; i++) {
        if (!mt__hub_is_hash(names.items[i])) {
            assert_non_null(strstr(names.items[i], ".parts.incomplete"));
            continue;
        }
        mt_map map;
        mt_sha h;
        char hex[MT_SHA_HEX_BYTES];
        assert_ok(mt_map_open(&map, workspace_path("%s/%s", dir.s, names.items[i]).s, &err));
        if (strlen(names.items[i]) == 64)
            mt_sha_init(&h, MT_SHA256);
        else
            mt_sha_init_git(&h, map.size);
        mt_sha_add(&h, map.data, map.size);
        mt_sha_hex(&h, hex);
        assert_string_equal(hex, names.items[i]);
        mt_map_close(&map);
    }
    mt_dir_names_free(&names);
}

#define RIG(test) cmocka_unit_test_setup_teardown(test, rig_make, rig_remove)

#endif
