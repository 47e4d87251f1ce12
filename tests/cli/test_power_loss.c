/* A power failure keeps less than a kill: what was not synced may be lost, in part, and in another order than it was written.
 *
 * A run records every change it makes to files (MT_DISK_LOG, base/disk.h).  For a moment between two changes this test rebuilds
 * directories that a journaling file system may have left: entries of a directory come back in order up to some point after its
 * last sync, each directory for itself; of a file's content all that was synced, and of later writes any, or half of one.  Every
 * such directory must resume to the end of the undisturbed run, byte for byte; and a checkpoint that was there whole and synced
 * must still be there.  MT_STATES sets how many directories are tried (24; 0, `make soak`: all that differ).  MT_STATE_JOBS
 * sets how many of them resume at a time (1). */
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
    int next;   /* the next change of the same file's content; -1: none */
} op;

typedef struct object {
    bool is_dir;
    uint64_t file;   /* inode */
    int first, last; /* changes of its content: a list through op.next; -1: none */
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
        o->dir = o->object = o->next = -1;
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
    j->objects[j->n_objects] = (object){ is_dir, file, -1, -1 };
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

/* Append change i to the list of its file. */
static void list_change(journal *j, int i)
{
    op *o = &j->ops[i];
    o->object = file_of(j, o->c.r.file);
    if (o->object < 0 || o->c.r.op == MT_DISK_SYNC) return;
    object *file = &j->objects[o->object];
    *(file->first < 0 ? &file->first : &j->ops[file->last].next) = i;
    file->last = i;
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
        case MT_DISK_SYNC: list_change(j, i); break;
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

/* How much of change i to a file's content is there: all of it, half of it, or nothing. */
typedef enum share_kept { NONE, HALF, WHOLE } share_kept;

static share_kept kept_of(const moment *m, int file, int i)
{
    if (i <= last_sync[file] || m->policy == ALL || m->policy == CONTENTS_ONLY) return WHOLE;
    if (m->policy != RANDOM || !coin(m, i)) return NONE;
    return coin(m, i + (1 << 20)) ? HALF : WHOLE;
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
    for (int i = j->objects[file].first; i >= 0 && i < m->at; i = j->ops[i].next) {
        const op *o = &j->ops[i];
        share_kept kept = kept_of(m, file, i);
        if (kept == NONE) continue;
        size_t n = kept == HALF ? o->c.r.n_data / 2 : o->c.r.n_data;
        size_t end = o->c.r.op == MT_DISK_WRITE ? o->c.r.at + n : o->c.r.bytes;
        while (out->n < end) mt_str_putc(out, '\0'); /* room that was never written reads as zeros */
        if (o->c.r.op == MT_DISK_WRITE && n) memcpy(out->s + o->c.r.at, o->c.data, n);
        if (o->c.r.op == MT_DISK_TRUNCATE) out->n = o->c.r.bytes;
    }
    assert_true(mt_str_ok(out));
}

/* The directory of a moment, made in `path`. */
static void materialize(const journal *j, const moment *m, const tree *t, int dir, const char *path)
{
    mt_str content = { 0 };
    for (size_t i = 0; i < t->n[dir]; i++) {
        const entry *e = &t->entries[dir][i];
        test_path p = workspace_path("%s/%.*s", path, (int)e->n, e->name);
        if (j->objects[e->object].is_dir) {
            assert_int_equal(mkdir(p.s, 0777), 0);
            materialize(j, m, t, e->object, p.s);
            continue;
        }
        build_content(j, m, e->object, &content);
        int fd = open(p.s, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        assert_true(fd >= 0 && mt_disk_write(fd, content.s ? content.s : "", content.n, 0) == 0);
        close(fd);
    }
    mt_str_free(&content);
}

/* -- which moments differ -------------------------------------------------------------------------- */

/* Keys and what belongs to them.  A key is never 0. */
enum { TABLE_SLOTS = 1 << 19 };
typedef struct table {
    struct {
        uint64_t key, value;
    } slots[TABLE_SLOTS];
    size_t n;
} table;

/* The value of a key; a new key has 0. */
static uint64_t *table_at(table *t, uint64_t key)
{
    size_t i = key % TABLE_SLOTS;
    while (t->slots[i].key && t->slots[i].key != key) i = (i + 1) % TABLE_SLOTS;
    if (!t->slots[i].key) {
        assert_true(++t->n < TABLE_SLOTS / 2);
        t->slots[i].key = key;
    }
    return &t->slots[i].value;
}

/* A hash of a file's content.  Most files have the same changes at many moments, so it is computed once for each list of them. */
static uint64_t content_hash(const journal *j, const moment *m, int file)
{
    static table hashes;
    uint64_t changes = (uint64_t)file + 1;
    for (int i = j->objects[file].first; i >= 0 && i < m->at; i = j->ops[i].next)
        changes = mt_rng_u64(changes, (uint64_t)kept_of(m, file, i), (uint64_t)i) | 1;
    uint64_t *hash = table_at(&hashes, changes);
    if (!*hash) {
        mt_str content = { 0 };
        build_content(j, m, file, &content);
        *hash = mt_hash(content.s ? content.s : "", content.n, 1) | 1;
        mt_str_free(&content);
    }
    return *hash;
}

static uint64_t tree_hash(const journal *j, const moment *m, const tree *t, int dir)
{
    uint64_t hash = 1;
    for (size_t i = 0; i < t->n[dir]; i++) {
        const entry *e = &t->entries[dir][i];
        bool is_dir = j->objects[e->object].is_dir;
        uint64_t what = is_dir ? tree_hash(j, m, t, e->object) : content_hash(j, m, e->object);
        hash += mt_rng_u64(what, is_dir, mt_hash(e->name, e->n, 1)); /* a sum: entries have no order */
    }
    return hash;
}

static tree *names_of(const journal *j, const moment *m)
{
    static tree t;
    choose(j, m);
    apply_names(j, m, &t);
    return &t;
}

/* True the first time that a moment leaves such a directory. */
static bool is_new(const journal *j, const moment *m)
{
    static table seen;
    uint64_t *times = table_at(&seen, tree_hash(j, m, names_of(j, m), 0) | 1);
    return (*times)++ == 0;
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

static void rebuild(const journal *j, const moment *m, const char *dir) { materialize(j, m, names_of(j, m), 0, dir); }

/* A directory that is being resumed. */
typedef struct attempt {
    bool runs;
    moment m;
    test_path dir;
    program p;
} attempt;

static void start_attempt(attempt *a, const journal *j, const moment *m, const char *root, int which)
{
    char name[32];
    snprintf(name, sizeof name, "case-%d", which);
    a->m = *m;
    a->dir = workspace_case(root, name);
    rebuild(j, m, a->dir.s);
    set_up(&a->p, root, a->dir.s, true);
    program_start(&a->p);
    a->runs = true;
}

/* Wait for its end, which must be that of the undisturbed run. */
static void finish_attempt(attempt *a, const char *root)
{
    char what[128];
    if (!a->runs) return;
    a->runs = false;
    snprintf(what, sizeof what, "after change %d, policy %d, seed %llu", a->m.at, (int)a->m.policy,
             (unsigned long long)a->m.seed);
    if (program_wait(&a->p) != 0) fail_msg("%s: resuming ended with %d: %s", what, a->p.status, a->p.text);
    char *difference = workspace_difference(workspace_path("%s/reference/out", root).s, workspace_path("%s/out", a->dir.s).s);
    if (difference) fail_msg("%s: %s\n%s", what, difference, a->p.text);
}

static int number_from(const char *name, int otherwise)
{
    const char *env = getenv(name);
    return env ? atoi(env) : otherwise;
}

/* Draws moments until `wanted` of them leave different directories; 0: all moments, each policy, some seeds. */
static void every_state_resumes_to_the_same_end(void **state)
{
    enum { SEEDS = 4, EACH = RANDOM + SEEDS, MOST_JOBS = 64 };
    static attempt attempts[MOST_JOBS];
    const char *root = *state;
    int wanted = number_from("MT_STATES", 24), jobs = number_from("MT_STATE_JOBS", 1), different = 0;
    assert_in_range(jobs, 1, MOST_JOBS);
    journal *j = &the_journal;
    record_run(j, root);
    long long all = (long long)(j->n + 1) * EACH, i = 0;
    for (; i < (wanted ? 20LL * wanted : all) && (!wanted || different < wanted); i++) {
        long long at = wanted ? (long long)mt_rng_below(19, 1, (uint64_t)i, (uint64_t)all) : i;
        int kind = (int)(at % EACH);
        moment m = { .at = (int)(at / EACH), .policy = kind < RANDOM ? (policy)kind : RANDOM, .seed = (uint64_t)at };
        if (!is_new(j, &m)) continue;
        int which = different++ % jobs;
        finish_attempt(&attempts[which], root);
        start_attempt(&attempts[which], j, &m, root, which);
    }
    for (int k = 0; k < jobs; k++) finish_attempt(&attempts[k], root);
    printf("%d changes, %lld states, %d different directories, all resumed to the same end\n", j->n, i, different);
    assert_true(different > 0);
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
        while (k < j->n && j->ops[k].c.r.op == MT_DISK_WRITE) k++; /* the run writes metrics meanwhile */
        assert_true(k < j->n && j->ops[k].c.r.op == MT_DISK_SYNC_DIR);
        assert_string_equal(mt_path_base(j->ops[k].c.path), "out");
        moment m = { .at = k + 1, .policy = NOTHING };
        test_path dir = workspace_case(root, "case");
        rebuild(j, &m, dir.s);
        assert_ok(mt_ckpt_verify(workspace_path("%s/%s", dir.s, j->ops[i].c.to).s, &err));
        n_published++;
    }
    assert_int_equal(n_published, 3);
    close_journal(j);
}

#define RUNS(test) cmocka_unit_test_setup_teardown(test, workspace_make, workspace_remove)
MT_TEST_MAIN(RUNS(every_state_resumes_to_the_same_end), RUNS(a_published_checkpoint_lasts))
