/* What a download leaves survives a power failure: a blob is synced before it has its name, its name before a link leads to it,
 * the links before the ref, and every new folder with the one it is in.  Checked on the changes that the program records itself
 * (MT_DISK_LOG); tests/cli/test_power_loss.c does it for a run. */
#include "disk_log.h"
#include "hub_rig.h"

enum { MOST_CHANGES = 1 << 12 };

static disk_change changes[MOST_CHANGES];
static int n_changes;
static mt_map recorded;

static void read_changes(const char *path)
{
    mt_err err = { 0 };
    assert_ok(mt_map_open(&recorded, path, &err));
    for (const uint8_t *p = recorded.data; p < recorded.data + recorded.size;) {
        assert_true(n_changes < MOST_CHANGES);
        p = disk_change_read(&changes[n_changes++], p);
    }
}

static void forget_changes(void)
{
    while (n_changes > 0) disk_change_free(&changes[--n_changes]);
    mt_map_close(&recorded);
}

static bool is_op(int i, mt_disk_op op) { return changes[i].r.op == op; }

/* The folder of a path, as a prefix's length. */
static size_t n_folder(const char *path) { return (size_t)(mt_path_base(path) - path - 1); }

/* The first sync of a folder after change i; n_changes: never. */
static int synced_after(int i, const char *inside)
{
    size_t n = n_folder(inside);
    for (int k = i + 1; k < n_changes; k++)
        if (is_op(k, MT_DISK_SYNC_DIR) && strncmp(changes[k].path, inside, n) == 0 && !changes[k].path[n]) return k;
    return n_changes;
}

/* The rename to a path; -1: none. */
static int renamed_to(const char *path)
{
    for (int i = 0; i < n_changes; i++)
        if (is_op(i, MT_DISK_RENAME) && strcmp(changes[i].to, path) == 0) return i;
    return -1;
}

/* The content of the file that change i renames was synced as it is. */
static void content_is_synced(int i)
{
    const char *from = changes[i].path;
    uint64_t file = 0;
    int last_write = -1, last_sync = -1;
    for (int k = 0; k < i; k++) {
        if (is_op(k, MT_DISK_CREATE) && strcmp(changes[k].path, from) == 0) file = changes[k].r.file;
        if (!file || changes[k].r.file != file) continue;
        if (is_op(k, MT_DISK_WRITE) || is_op(k, MT_DISK_TRUNCATE) || is_op(k, MT_DISK_RESERVE)) last_write = k;
        if (is_op(k, MT_DISK_SYNC)) last_sync = k;
    }
    if (!file || last_sync <= last_write) fail_msg("%s got its name before its content was synced", changes[i].to);
}

static void download(rig *r)
{
    mt_err err = { 0 };
    char *dir = NULL;
    assert_ok(mt_hub_model(r->hub, "acme/tiny", "", MT_HUB_MODEL, &dir, &err));
    mt_free(dir);
}

static char log_path[] = "/tmp/mt-hub-sync-XXXXXX"; /* outside what is recorded */

static void remove_log(void) { unlink(log_path); }

/* A process opens its log once, before its first change: it stays the same for all tests and begins empty in each. */
static int setup(void **state)
{
    if (!getenv("MT_DISK_LOG")) {
        int fd = mkstemp(log_path);
        if (fd < 0 || atexit(remove_log) || setenv("MT_DISK_LOG", log_path, 1)) return -1;
        close(fd);
    }
    return truncate(log_path, 0) ? -1 : rig_make(state);
}

static int teardown(void **state)
{
    forget_changes();
    return rig_remove(state);
}

static void what_is_downloaded_is_synced_before_anything_leads_to_it(void **state)
{
    rig *r = *state;
    int n_blobs = 0, n_links = 0;
    download(r);
    read_changes(log_path);
    test_path ref = in_cache(r, "models--acme--tiny/refs/main"), blobs = in_cache(r, "models--acme--tiny/blobs/"),
              snapshots = in_cache(r, "models--acme--tiny/snapshots/");
    int ref_named = renamed_to(ref.s), first_link = n_changes;
    assert_true(ref_named > 0);
    for (int i = 0; i < n_changes; i++)
        if (is_op(i, MT_DISK_RENAME) && strncmp(changes[i].to, snapshots.s, strlen(snapshots.s)) == 0) {
            if (i < first_link) first_link = i;
            n_links++;
            assert_true(synced_after(i, changes[i].to) < ref_named);
        }
    for (int i = 0; i < n_changes; i++)
        if (is_op(i, MT_DISK_RENAME) && strncmp(changes[i].to, blobs.s, strlen(blobs.s)) == 0) {
            n_blobs++;
            content_is_synced(i);
            assert_true(synced_after(i, changes[i].to) < first_link);
        }
    assert_true(n_blobs >= 5 && n_links >= n_blobs);
    assert_true(synced_after(ref_named, ref.s) < n_changes);
}

/* outfile.h writes it under another name first, and that one is renamed again. */
static void the_ref_itself_is_synced(void **state)
{
    rig *r = *state;
    download(r);
    read_changes(log_path);
    int i = renamed_to(in_cache(r, "models--acme--tiny/refs/main").s);
    assert_true(i > 0);
    int earlier = renamed_to(changes[i].path);
    assert_true(earlier >= 0 && earlier < i);
    content_is_synced(earlier);
}

static void every_new_folder_is_synced_with_the_one_it_is_in(void **state)
{
    rig *r = *state;
    int n = 0;
    download(r);
    read_changes(log_path);
    int ref_named = renamed_to(in_cache(r, "models--acme--tiny/refs/main").s);
    for (int i = 0; i < ref_named; i++)
        if (is_op(i, MT_DISK_MKDIR) && !strstr(changes[i].path, "/.locks")) {
            n++;
            if (synced_after(i, changes[i].path) > ref_named) fail_msg("%s: its folder was not synced", changes[i].path);
        }
    assert_true(n >= 5); /* hub, the model's, blobs, snapshots, the commit's, refs */
}

#define RECORDED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
MT_TEST_MAIN(RECORDED(what_is_downloaded_is_synced_before_anything_leads_to_it), RECORDED(the_ref_itself_is_synced),
             RECORDED(every_new_folder_is_synced_with_the_one_it_is_in))
