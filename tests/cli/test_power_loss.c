/* A power failure keeps less than a kill: what was not synced may be lost, in part, and in another order than it was written.
 *
 * A run records every change it makes to files (MT_DISK_LOG, base/disk.h).  For a moment between two changes this test rebuilds
 * directories that a journaling file system may have left: entries of a directory come back in order up to some point after its
 * last sync, each directory for itself; of a file's content all that was synced, and of later writes any, or half of one.  Every
 * such directory must resume to the end of the undisturbed run, byte for byte; and a checkpoint that was there whole and synced
 * must still be there.  MT_STATES sets how many directories are tried (24; `make soak`: all that differ). */
#include "disk_log.h"
#include "process.h"
#include "workspace.h"

#include "ckpt/checkpoint.h"

/* -- what was recorded ----------------------------------------------------------------------------- */

enum { MOST_OPS = 1 << 16, MOST_OBJECTS = 1 << 14 };

typedef struct op {
    disk_change c;
    int dir;    /* whose entries it changes, or which it syncs; -1: none */
    int object; /* which file or directory it makes, moves, removes, writes or syncs */
} op;

typedef struct object {
    bool is_dir;
    uint64_t file; /* inode */
} object;

typedef struct journal {
    mt_map map;
    op ops[MOST_OPS];
    int n;
    object objects[MOST_OBJECTS];
    int n_objects;
} journal;

static journal the_journal;

static void read_journal(journal *j, const char *path)
{
    mt_err err = { 0 };
    assert_ok(mt_map_open(&j->map, path, &err));
    for (const uint8_t *p = j->map.data, *end = p + j->map.size; p < end;) {
        assert_true(j->n < MOST_OPS);
        op *o = &j->ops[j->n++];
        p = disk_change_read(&o->c, p);
        o->dir = o->object = -1;
    }
}

static void close_journal(journal *j)
{
    for (int i = 0; i < j->n; i++) disk_change_free(&j->ops[i].c);
    mt_map_close(&j->map);
    memset(j, 0, sizeof *j);
}

/* -- names ----------------------------------------------------------------------------------------- */

/* Entries of one directory: (name, object), in no order. */
typedef struct entry {
    const char *name;
    size_t n; /* bytes of the name */
    int object;
} entry;

typedef struct tree {
    entry *entries[MOST_OBJECTS];
    size_t n[MOST_OBJECTS], cap[MOST_OBJECTS];
} tree;

static void tree_clear(tree *t, int n_objects)
{
    for (int i = 0; i < n_objects; i++) t->n[i] = 0;
}

static entry *tree_find(tree *t, int dir, const char *name, size_t n)
{
    for (size_t i = 0; i < t->n[dir]; i++)
        if (t->entries[dir][i].n == n && memcmp(t->entries[dir][i].name, name, n) == 0) return &t->entries[dir][i];
    return NULL;
}

static void tree_set(tree *t, int dir, const char *name, size_t n, int what)
{
    mt_err err = { 0 };
    entry *e = tree_find(t, dir, name, n);
    if (!e) {
        assert_ok(mt_grow(&t->entries[dir], &t->cap[dir], t->n[dir] + 1, sizeof **t->entries, &err));
        e = &t->entries[dir][t->n[dir]++];
    }
    *e = (entry){ name, n, what };
}

static void tree_drop(tree *t, int dir, const char *name, size_t n)
{
    entry *e = tree_find(t, dir, name, n);
    if (e) *e = t->entries[dir][--t->n[dir]];
}

/* The directory a path is in and its last name; -1: not below the program's directory. */
static int tree_parent(tree *t, const journal *j, const char *path, const char **name, size_t *n)
{
    int dir = 0;
    if (*path == '/') return -1;
    for (;;) {
        size_t k = strcspn(path, "/");
        if (!path[k]) {
            *name = path;
            *n = k;
            return dir;
        }
        entry *e = tree_find(t, dir, path, k);
        if (!e || !j->objects[e->object].is_dir) return -1;
        dir = e->object;
        path += k + strspn(path + k, "/");
    }
}

static int new_object(journal *j, bool is_dir, uint64_t file)
{
    assert_true(j->n_objects < MOST_OBJECTS);
    j->objects[j->n_objects] = (object){ is_dir, file };
    return j->n_objects++;
}

/* The newest file of that inode: numbers are used again. */
static int file_of(const journal *j, uint64_t inode)
{
    for (int i = j->n_objects; i-- > 0;)
        if (!j->objects[i].is_dir && j->objects[i].file == inode) return i;
    return -1;
}

static void place_dir(tree *t, journal *j, op *o)
{
    const char *name;
    size_t n;
    if (strcmp(o->c.path, ".") == 0) {
        o->dir = 0;
        return;
    }
    char path[4096];
    snprintf(path, sizeof path, "%s", o->c.path);
    for (size_t k = strlen(path); k > 1 && path[k - 1] == '/';) path[--k] = '\0';
    int parent = tree_parent(t, j, path, &name, &n);
    entry *e = parent >= 0 ? tree_find(t, parent, name, n) : NULL;
    o->dir = e && j->objects[e->object].is_dir ? e->object : -1;
}

/* Names become directories and objects, by doing all of it in order. */
static void resolve(journal *j)
{
    static tree t;
    tree_clear(&t, MOST_OBJECTS);
    new_object(j, true, 0);
    for (int i = 0; i < j->n; i++) {
        op *o = &j->ops[i];
        const char *name, *to;
        size_t n, n_to;
        switch ((mt_disk_op)o->c.r.op) {
        case MT_DISK_WRITE:
        case MT_DISK_TRUNCATE:
        case MT_DISK_RESERVE:
        case MT_DISK_SYNC: o->object = file_of(j, o->c.r.file); break;
        case MT_DISK_SYNC_DIR: place_dir(&t, j, o); break;
        case MT_DISK_CREATE:
        case MT_DISK_MKDIR: {
            o->dir = tree_parent(&t, j, o->c.path, &name, &n);
            if (o->dir < 0) break;
            entry *there = tree_find(&t, o->dir, name, n);
            if (there) { /* opened again */
                o->dir = -1;
                break;
            }
            o->object = new_object(j, o->c.r.op == MT_DISK_MKDIR, o->c.r.file);
            tree_set(&t, o->dir, name, n, o->object);
            break;
        }
        case MT_DISK_REMOVE:
        case MT_DISK_RENAME: {
            o->dir = tree_parent(&t, j, o->c.path, &name, &n);
            entry *there = o->dir >= 0 ? tree_find(&t, o->dir, name, n) : NULL;
            if (!there) {
                o->dir = -1;
                break;
            }
            o->object = there->object;
            tree_drop(&t, o->dir, name, n);
            if (o->c.r.op == MT_DISK_REMOVE) break;
            assert_int_equal(tree_parent(&t, j, o->c.to, &to, &n_to), o->dir); /* nothing moves to another folder */
            tree_set(&t, o->dir, to, n_to, o->object);
            break;
        }
        }
    }
}

/* -- a moment -------------------------------------------------------------------------------------- */

typedef enum policy { ALL, NOTHING, NAMES_ONLY, CONTENTS_ONLY, RANDOM } policy;

typedef struct moment {
    int at; /* changes [0, at) were made */
    policy policy;
    uint64_t seed;
} moment;

static int last_sync[MOST_OBJECTS]; /* of a file's content or a directory's entries, before the moment; -1: none */
static int upto[MOST_OBJECTS];      /* the last change of a directory's entries that is there */

static bool coin(const moment *m, int i) { return mt_rng_below(m->seed, 7, (uint64_t)i, 2); }

static void choose(const journal *j, const moment *m)
{
    for (int i = 0; i < j->n_objects; i++) last_sync[i] = -1;
    for (int i = 0; i < m->at; i++) {
        const op *o = &j->ops[i];
        if (o->c.r.op == MT_DISK_SYNC && o->object >= 0) last_sync[o->object] = i;
        if (o->c.r.op == MT_DISK_SYNC_DIR && o->dir >= 0) last_sync[o->dir] = i;
    }
    for (int i = 0; i < j->n_objects; i++) {
        bool names = m->policy == ALL || m->policy == NAMES_ONLY;
        upto[i] = names ? m->at : last_sync[i];
        if (m->policy == RANDOM)
            upto[i] = last_sync[i] + (int)mt_rng_below(m->seed, 3, (uint64_t)i, (uint64_t)(m->at - last_sync[i]) + 1);
    }
}

static bool content_is_there(const moment *m, const op *o, int i)
{
    if (o->object < 0) return false;
    if (i <= last_sync[o->object] || m->policy == ALL || m->policy == CONTENTS_ONLY) return true;
    return m->policy == RANDOM && coin(m, i);
}

static void apply_names(const journal *j, const moment *m, tree *t)
{
    tree_clear(t, j->n_objects);
    for (int i = 0; i < m->at; i++) {
        const op *o = &j->ops[i];
        bool changes = o->c.r.op == MT_DISK_CREATE || o->c.r.op == MT_DISK_MKDIR || o->c.r.op == MT_DISK_RENAME ||
                       o->c.r.op == MT_DISK_REMOVE;
        if (!changes || o->dir < 0 || i > upto[o->dir]) continue;
        const char *from = mt_path_base(o->c.path), *to = mt_path_base(o->c.to);
        if (o->c.r.op == MT_DISK_RENAME || o->c.r.op == MT_DISK_REMOVE) tree_drop(t, o->dir, from, strlen(from));
        if (o->c.r.op != MT_DISK_REMOVE)
            tree_set(t, o->dir, o->c.r.op == MT_DISK_RENAME ? to : from, strlen(o->c.r.op == MT_DISK_RENAME ? to : from),
                     o->object);
    }
}

/* A file's content, as much of it as is there. */
static void build_content(const journal *j, const moment *m, int file, mt_str *out)
{
    mt_str_clear(out);
    for (int i = 0; i < m->at; i++) {
        const op *o = &j->ops[i];
        if (o->object != file || o->c.r.op == MT_DISK_CREATE || !content_is_there(m, o, i)) continue;
        bool synced = i <= last_sync[file], torn = !synced && m->policy == RANDOM && coin(m, i + (1 << 20));
        size_t n = torn ? o->c.r.n_data / 2 : o->c.r.n_data, end = o->c.r.op == MT_DISK_WRITE ? o->c.r.at + n : o->c.r.bytes;
        if (o->c.r.op == MT_DISK_SYNC) continue;
        while (out->n < end) mt_str_putc(out, '\0'); /* room that was never written reads as zeros */
        if (o->c.r.op == MT_DISK_WRITE && n) memcpy(out->s + o->c.r.at, o->c.data, n);
        if (o->c.r.op == MT_DISK_TRUNCATE) out->n = o->c.r.bytes;
    }
    assert_true(mt_str_ok(out));
}

static uint64_t materialize(const journal *j, const moment *m, tree *t, int dir, const char *path, uint64_t hash)
{
    mt_str content = { 0 };
    for (size_t i = 0; i < t->n[dir]; i++) {
        const entry *e = &t->entries[dir][i];
        test_path p = workspace_path("%s/%.*s", path, (int)e->n, e->name);
        uint64_t own = mt_hash(p.s + strlen(path), strlen(p.s) - strlen(path), 1);
        if (j->objects[e->object].is_dir) {
            assert_int_equal(mkdir(p.s, 0777), 0);
            hash += materialize(j, m, t, e->object, p.s, own); /* a sum: entries have no order */
            continue;
        }
        build_content(j, m, e->object, &content);
        int fd = open(p.s, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        assert_true(fd >= 0 && mt_disk_write(fd, content.s ? content.s : "", content.n, 0) == 0);
        close(fd);
        hash += mt_hash(content.s ? content.s : "", content.n, own);
    }
    mt_str_free(&content);
    return hash;
}

/* -- the runs -------------------------------------------------------------------------------------- */

static void set_up(program *p, const char *root, const char *dir, bool resume)
{
    static test_path model, rows;
    model = workspace_path("%s/model", root);
    rows = workspace_path("%s/rows.json", root);
    program_init(p, dir);
    const char *const args[] = { "train",           "--model-name",
                                 model.s,           "--from-scratch",
                                 "--dataset-path",  rows.s,
                                 "--output-dir",    "out",
                                 "--num-steps",     "6",
                                 "--save-steps",    "2",
                                 "--keep-last",     "2",
                                 "--batch-size",    "8",
                                 "--device",        "cpu",
                                 "--learning-rate", "3e-3",
                                 "--log-interval",  "1",
                                 "--set",           "logging.enable_timing=false" };
    for (size_t i = 0; i < MT_COUNT(args); i++) program_arg(p, args[i]);
    if (resume) program_arg(p, "--resume");
}

static void record_run(journal *j, const char *root)
{
    static program p;
    test_path dir = workspace_case(root, "reference"), log = workspace_path("%s/log", root);
    set_up(&p, root, dir.s, false);
    setenv("MT_DISK_LOG", log.s, 1);
    int status = program_run(&p);
    unsetenv("MT_DISK_LOG");
    if (status) fail_msg("the reference ended with %d: %s", status, p.text);
    read_journal(j, log.s);
    resolve(j);
    assert_true(j->n > 200);
}

static bool seen_before(uint64_t hash)
{
    static uint64_t seen[1 << 16];
    static size_t n;
    for (size_t i = 0; i < n; i++)
        if (seen[i] == hash) return true;
    if (n < MT_COUNT(seen)) seen[n++] = hash;
    return false;
}

/* The directory of a moment, made in DIR.  False: one like it was tried before. */
static bool rebuild(const journal *j, const moment *m, const char *dir)
{
    static tree t;
    choose(j, m);
    apply_names(j, m, &t);
    return !seen_before(materialize(j, m, &t, 0, dir, 0));
}

static void resumes_equal(const char *root, const char *dir, const moment *m)
{
    static program p;
    char what[128];
    snprintf(what, sizeof what, "after change %d, policy %d, seed %llu", m->at, (int)m->policy, (unsigned long long)m->seed);
    set_up(&p, root, dir, true);
    if (program_run(&p) != 0) fail_msg("%s: resuming ended with %d: %s", what, p.status, p.text);
    char *difference = workspace_difference(workspace_path("%s/reference/out", root).s, workspace_path("%s/out", dir).s);
    if (difference) fail_msg("%s: %s\n%s", what, difference, p.text);
}

/* Draws moments until so many different directories were tried; 0: all moments, each policy, some seeds. */
static void every_state_resumes_to_the_same_end(void **state)
{
    const char *root = *state, *env = getenv("MT_STATES");
    int wanted = env ? atoi(env) : 24, tried = 0;
    journal *j = &the_journal;
    record_run(j, root);
    enum { SEEDS = 4, EACH = RANDOM + SEEDS };
    long long all = (long long)(j->n + 1) * EACH;
    for (long long i = 0; i < (wanted ? 20LL * wanted : all) && (!wanted || tried < wanted); i++) {
        long long at = wanted ? (long long)mt_rng_below(19, 1, (uint64_t)i, (uint64_t)all) : i;
        int kind = (int)(at % EACH);
        moment m = { .at = (int)(at / EACH), .policy = kind < RANDOM ? (policy)kind : RANDOM, .seed = (uint64_t)at };
        test_path dir = workspace_case(root, "case");
        if (!rebuild(j, &m, dir.s)) continue;
        resumes_equal(root, dir.s, &m);
        tried++;
    }
    printf("%d different directories of %d changes\n", tried, j->n);
    assert_true(tried > 0);
    close_journal(j);
}

/* From the sync that ends a checkpoint's publication on, no loss takes it away, until the run removes it itself. */
static void a_published_checkpoint_lasts(void **state)
{
    const char *root = *state;
    mt_err err = { 0 };
    journal *j = &the_journal;
    int n_published = 0;
    record_run(j, root);
    for (int i = 0; i < j->n; i++) {
        int64_t step;
        if (j->ops[i].c.r.op != MT_DISK_RENAME || !mt_ckpt_step_of(j->ops[i].c.to, &step)) continue;
        int k = i + 1;
        while (k < j->n && j->ops[k].c.r.op == MT_DISK_WRITE) k++; /* the run goes on writing metrics meanwhile */
        assert_true(k < j->n && j->ops[k].c.r.op == MT_DISK_SYNC_DIR);
        assert_string_equal(mt_path_base(j->ops[k].c.path), "out");
        moment m = { .at = k + 1, .policy = NOTHING };
        test_path dir = workspace_case(root, "case");
        (void)rebuild(j, &m, dir.s);
        assert_ok(mt_ckpt_verify(workspace_path("%s/%s", dir.s, j->ops[i].c.to).s, &err));
        n_published++;
    }
    assert_int_equal(n_published, 3);
    close_journal(j);
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)
MT_TEST_MAIN(RUNS(every_state_resumes_to_the_same_end), RUNS(a_published_checkpoint_lasts))
