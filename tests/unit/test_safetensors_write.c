/* Writing safetensors: the bytes are those of the reference implementation, and a write that fails, wherever it fails, says so
 * and leaves no file. */
#include "tempdir.h"

#include "base/fault.h"
#include "base/outfile.h"
#include "ckpt/safetensors_write.h"
#include "ckpt/shards.h"
#include "ckpt/shards_write.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const int64_t shape_23[] = { 2, 3 };

static void rewriting_a_file_of_the_reference_gives_the_same_bytes(void **state)
{
    static const char *const fixtures[] = { MT_FIXTURE("safetensors/every_dtype.safetensors"),
                                            MT_FIXTURE("safetensors/sharded/model-00001-of-00002.safetensors"),
                                            MT_FIXTURE("safetensors/sharded/model-00002-of-00002.safetensors") };
    for (size_t k = 0; k < MT_COUNT(fixtures); k++) {
        mt_err err = { 0 };
        mt_safetensors *st;
        mt_safetensors_writer *w;
        char *path = mt_path_join(*state, "copy.safetensors"), *a, *b;
        size_t n_a, n_b;
        assert_ok(mt_safetensors_open(&st, fixtures[k], &err));
        assert_ok(mt_safetensors_writer_create(&w, path, &err));
        for (size_t i = 0; i < mt_safetensors_meta_count(st); i++) {
            const char *key, *value;
            mt_safetensors_meta_at(st, i, &key, &value);
            assert_ok(mt_safetensors_writer_meta(w, key, value, &err));
        }
        for (size_t i = 0; i < mt_safetensors_count(st); i++) {
            const mt_st_tensor *t = mt_safetensors_at(st, i);
            assert_ok(mt_safetensors_writer_add(w, t->name, t->dtype, t->n_dims, t->shape, &err));
        }
        assert_ok(mt_safetensors_writer_start(w, &err));
        for (size_t i = mt_safetensors_count(st); i-- > 0;) { /* any order will do */
            const mt_st_tensor *t = mt_safetensors_at(st, i);
            assert_ok(mt_safetensors_writer_put(w, t->name, 0, t->data, t->bytes, &err));
        }
        assert_ok(mt_safetensors_writer_finish(w, &err));
        mt_safetensors_writer_free(w);
        mt_safetensors_close(st);
        assert_ok(mt_file_read(&a, &n_a, fixtures[k], 1 << 20, &err));
        assert_ok(mt_file_read(&b, &n_b, path, 1 << 20, &err));
        assert_int_equal(n_a, n_b);
        assert_memory_equal(a, b, n_a);
        mt_free(a);
        mt_free(b);
        mt_free(path);
    }
}

/* Two tensors, in pieces; returns the first error. */
static mt_rc write_small(const char *path, mt_err *err)
{
    static const float a[6] = { 1, 2, 3, 4, 5, 6 };
    static const uint8_t b[2] = { 7, 8 };
    mt_safetensors_writer *w;
    MT_TRY(mt_safetensors_writer_create(&w, path, err));
    mt_rc rc = mt_safetensors_writer_meta(w, "format", "pt", err);
    if (!rc) rc = mt_safetensors_writer_add(w, "b", MT_DTYPE_U8, 1, (int64_t[]){ 2 }, err);
    if (!rc) rc = mt_safetensors_writer_add(w, "a", MT_DTYPE_F32, 2, shape_23, err);
    if (!rc) rc = mt_safetensors_writer_start(w, err);
    if (!rc) rc = mt_safetensors_writer_append(w, "b", b, 1, err);
    if (!rc) rc = mt_safetensors_writer_put(w, "a", 8, a + 2, 16, err);
    if (!rc) rc = mt_safetensors_writer_append(w, "b", b + 1, 1, err);
    if (!rc) rc = mt_safetensors_writer_put(w, "a", 0, a, 8, err);
    if (!rc) rc = mt_safetensors_writer_finish(w, err);
    mt_safetensors_writer_free(w);
    return rc;
}

static void assert_small_is_whole(const char *path)
{
    mt_err err = { 0 };
    mt_safetensors *st;
    float a[6];
    assert_ok(mt_safetensors_open(&st, path, &err));
    const mt_st_tensor *t = mt_safetensors_find(st, "a");
    assert_true(t == mt_safetensors_at(st, 0)); /* the wider format comes first */
    assert_int_equal((uintptr_t)t->data % 8, 0);
    mt_to_f32(a, t->data, t->dtype, t->n);
    for (int i = 0; i < 6; i++) assert_true(a[i] == (float)(i + 1));
    assert_int_equal(mt_safetensors_find(st, "b")->data[1], 8);
    mt_safetensors_close(st);
}

static void tensors_may_come_in_pieces_and_in_any_order(void **state)
{
    mt_err err = { 0 };
    char *path = mt_path_join(*state, "small.safetensors");
    assert_ok(write_small(path, &err));
    assert_small_is_whole(path);
    assert_ok(write_small(path, &err)); /* over the old one */
    assert_small_is_whole(path);
    assert_int_equal(tempdir_count(*state, NULL), 1);
    mt_free(path);
}

static void an_empty_file_and_an_empty_tensor_are_files_too(void **state)
{
    mt_err err = { 0 };
    for (int n = 0; n < 2; n++) {
        char *path = mt_path_join(*state, "empty.safetensors");
        mt_safetensors_writer *w;
        mt_safetensors *st;
        assert_ok(mt_safetensors_writer_create(&w, path, &err));
        if (n) assert_ok(mt_safetensors_writer_add(w, "none", MT_DTYPE_F32, 2, (int64_t[]){ 0, 4 }, &err));
        assert_ok(mt_safetensors_writer_start(w, &err));
        assert_ok(mt_safetensors_writer_finish(w, &err));
        mt_safetensors_writer_free(w);
        assert_ok(mt_safetensors_open(&st, path, &err));
        assert_int_equal(mt_safetensors_count(st), (size_t)n);
        mt_safetensors_close(st);
        mt_free(path);
    }
}

static void misuse_is_refused_and_leaves_nothing(void **state)
{
    mt_err err = { 0 };
    mt_safetensors_writer *w;
    char *path = mt_path_join(*state, "x.safetensors");
    const float a[6] = { 0 };
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    assert_int_equal(mt_safetensors_writer_add(w, "w", MT_DTYPE_F32, 1, (int64_t[]){ -1 }, &err), MT_ERANGE);
    assert_int_equal(mt_safetensors_writer_add(w, "w", MT_DTYPE_F32, 2, (int64_t[]){ INT64_MAX, 8 }, &err), MT_ERANGE);
    assert_int_equal(mt_safetensors_writer_add(w, "\xff", MT_DTYPE_F32, 2, shape_23, &err), MT_EINVAL);
    assert_int_equal(mt_safetensors_writer_add(w, "__metadata__", MT_DTYPE_F32, 2, shape_23, &err), MT_EINVAL);
    assert_int_equal(mt_safetensors_writer_put(w, "a", 0, a, 4, &err), MT_EINVAL);
    assert_int_equal(mt_safetensors_writer_finish(w, &err), MT_EINVAL);
    assert_ok(mt_safetensors_writer_add(w, "a", MT_DTYPE_F32, 2, shape_23, &err));
    assert_int_equal(tempdir_count(*state, NULL), 0); /* nothing on disk before start */
    assert_ok(mt_safetensors_writer_start(w, &err));
    assert_int_equal(tempdir_count(*state, ".tmp"), 1);
    assert_int_equal(mt_safetensors_writer_start(w, &err), MT_EINVAL);
    assert_int_equal(mt_safetensors_writer_add(w, "b", MT_DTYPE_F32, 2, shape_23, &err), MT_EINVAL);
    assert_int_equal(mt_safetensors_writer_meta(w, "k", "v", &err), MT_EINVAL);
    assert_int_equal(mt_safetensors_writer_put(w, "b", 0, a, 4, &err), MT_EINVAL);
    assert_says("\"b\" was never added");
    assert_int_equal(mt_safetensors_writer_put(w, "a", 4, a, 24, &err), MT_EINVAL);
    assert_says("\"a\" has 24 bytes, and 24 are put at 4");
    assert_int_equal(mt_safetensors_writer_put(w, "a", SIZE_MAX, a, 2, &err), MT_EINVAL);
    assert_ok(mt_safetensors_writer_append(w, "a", a, 20, &err));
    assert_int_equal(mt_safetensors_writer_finish(w, &err), MT_EINVAL);
    assert_says("20 of the 24 bytes of tensor \"a\"");
    mt_safetensors_writer_free(w);
    assert_int_equal(tempdir_count(*state, NULL), 0);

    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    assert_ok(mt_safetensors_writer_add(w, "a", MT_DTYPE_F32, 2, shape_23, &err));
    assert_ok(mt_safetensors_writer_add(w, "a", MT_DTYPE_U8, 2, shape_23, &err));
    assert_int_equal(mt_safetensors_writer_start(w, &err), MT_EINVAL);
    assert_says("\"a\" is added twice");
    mt_safetensors_writer_free(w);
    assert_int_equal(tempdir_count(*state, NULL), 0);
    mt_free(path);
}

static void a_header_that_nobody_would_read_is_not_written(void **state)
{
    mt_err err = { 0 };
    mt_safetensors_writer *w;
    char *path = mt_path_join(*state, "x.safetensors"), *text = mt_malloc(MT_ST_MAX_HEADER_BYTES);
    assert_non_null(text);
    memset(text, 'x', MT_ST_MAX_HEADER_BYTES);
    text[MT_ST_MAX_HEADER_BYTES - 1] = '\0';
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    assert_ok(mt_safetensors_writer_meta(w, "text", text, &err));
    assert_int_equal(mt_safetensors_writer_start(w, &err), MT_ERANGE);
    assert_says("no reader accepts more than 100000000");
    mt_safetensors_writer_free(w);
    assert_int_equal(tempdir_count(*state, NULL), 0);
    mt_free(text);
    mt_free(path);
}

static void every_failure_of_a_file_or_of_memory_is_reported_and_cleaned_up(void **state)
{
    static const struct {
        mt_fault_kind kind;
        mt_rc rc;
    } kinds[] = { { MT_FAULT_ALLOC, MT_ENOMEM }, { MT_FAULT_FILE, MT_EIO } };
    char *path = mt_path_join(*state, "small.safetensors");
    for (size_t k = 0; k < MT_COUNT(kinds); k++) {
        for (int n = 0;; n++) {
            mt_err err = { 0 };
            unlink(path);
            mt_fault_arm(kinds[k].kind, n);
            mt_rc rc = write_small(path, &err);
            bool hit = mt_fault_disarm();
            assert_int_equal(tempdir_count(*state, ".tmp"), 0);
            if (!hit) {
                assert_ok(rc);
                assert_true(n > 4);
                break;
            }
            assert_int_equal(rc, kinds[k].rc);
            assert_true(err.msg[0]);
            /* Only a directory that could not be synced leaves the file: it is complete by then. */
            if (mt_file_exists(path)) assert_small_is_whole(path);
        }
    }
    mt_free(path);
}

static void a_failed_write_leaves_the_old_file_alone(void **state)
{
    mt_err err = { 0 };
    char *path = mt_path_join(*state, "small.safetensors");
    struct stat before, after;
    assert_ok(write_small(path, &err));
    assert_int_equal(stat(path, &before), 0);
    for (int n = 0; n < 8; n++) { /* open, reserve, header, four puts, sync */
        mt_fault_arm(MT_FAULT_FILE, n);
        assert_int_equal(write_small(path, &err), MT_EIO);
        assert_true(mt_fault_disarm());
        if (n == 1) assert_says("small.safetensors, which needs 178 B (free some space");
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(before.st_ino, after.st_ino);
        assert_small_is_whole(path);
    }
    mt_free(path);
}

static void killed_at_any_point_the_file_is_old_new_or_absent_and_never_half(void **state)
{
    char *path = mt_path_join(*state, "small.safetensors");
    for (int n = 0;; n++) {
        unlink(path);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            mt_err err = { 0 };
            mt_fault_arm_kill(MT_FAULT_FILE, n);
            _exit(write_small(path, &err) ? 1 : 0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (mt_file_exists(path)) assert_small_is_whole(path);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            assert_true(n > 8);
            break;
        }
        mt_err err = { 0 };
        assert_ok(write_small(path, &err)); /* leftover files do not matter */
        assert_int_equal(tempdir_count(*state, ".tmp"), 0);
    }
    mt_free(path);
}

static void places_that_cannot_be_written_are_named(void **state)
{
    mt_err err = { 0 };
    char *path = mt_path_join(*state, "absent/small.safetensors");
    assert_int_equal(write_small(path, &err), MT_EIO);
    assert_says("absent/small.safetensors.tmp");
    mt_free(path);
    mt_shards_writer *w = NULL;
    assert_int_equal(mt_shards_writer_create(&w, "/nonexistent/dir", 0, &err), MT_ENOENT);
    assert_says("/nonexistent/dir");
    assert_null(w);
}

static void a_small_file_is_saved_whole_or_not_at_all(void **state)
{
    mt_err err = { 0 };
    char *path = mt_path_join(*state, "note.json"), *text;
    for (int n = 0;; n++) {
        unlink(path);
        mt_fault_arm(MT_FAULT_FILE, n);
        mt_rc rc = mt_outfile_save(path, "{}\n", 3, &err);
        bool hit = mt_fault_disarm();
        assert_int_equal(rc, hit ? MT_EIO : MT_OK);
        assert_int_equal(tempdir_count(*state, ".tmp"), 0);
        if (!hit) break;
    }
    assert_ok(mt_file_read(&text, NULL, path, 10, &err));
    assert_string_equal(text, "{}\n");
    mt_free(text);
    mt_free(path);
}

static void tensors_are_dealt_to_files_in_order(void **state)
{
    (void)state;
    static const struct {
        size_t max, n, bytes[6], shard[6], n_shards;
    } cases[] = {
        { 0, 3, { 10, 20, 30 }, { 0, 0, 0 }, 1 },
        { 10, 0, { 0 }, { 0 }, 1 },
        { 30, 3, { 10, 20, 30 }, { 0, 0, 1 }, 2 },
        { 29, 3, { 10, 20, 30 }, { 0, 1, 2 }, 3 },
        { 10, 4, { 50, 1, 50, 1 }, { 0, 1, 2, 3 }, 4 }, /* a large one has a file to itself */
        { 10, 5, { 0, 50, 0, 0, 10 }, { 0, 0, 1, 1, 1 }, 2 },
        { 10, 3, { SIZE_MAX, SIZE_MAX, 1 }, { 0, 1, 2 }, 3 },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        size_t shard[6] = { 0 };
        assert_int_equal(mt_shards_deal(shard, cases[i].bytes, cases[i].n, cases[i].max), cases[i].n_shards);
        assert_memory_equal(shard, cases[i].shard, cases[i].n * sizeof *shard);
    }
    assert_string_equal(mt_shards_file_name(0, 1).s, "model.safetensors");
    assert_string_equal(mt_shards_file_name(1, 12).s, "model-00002-of-00012.safetensors");
}

/* The fixture's three tensors, through the writer, 48 bytes a file at most. */
static mt_rc write_model(const char *dir, size_t max_bytes, mt_err *err)
{
    mt_shards *in = NULL;
    mt_shards_writer *w = NULL;
    mt_rc rc = mt_shards_open(&in, MT_FIXTURE("safetensors/sharded"), err);
    if (!rc) rc = mt_shards_writer_create(&w, dir, max_bytes, err);
    for (size_t i = 0; !rc && i < mt_shards_count(in); i++) {
        const mt_st_tensor *t = mt_shards_at(in, i);
        rc = mt_shards_writer_add(w, t->name, t->dtype, t->n_dims, t->shape, err);
    }
    if (!rc) rc = mt_shards_writer_start(w, err);
    for (size_t i = 0; !rc && i < mt_shards_count(in); i++) {
        const mt_st_tensor *t = mt_shards_at(in, i);
        rc = mt_shards_writer_append(w, t->name, t->data, 4, err);
        if (!rc) rc = mt_shards_writer_put(w, t->name, 4, t->data + 4, t->bytes - 4, err);
    }
    if (!rc) rc = mt_shards_writer_finish(w, err);
    mt_shards_writer_free(w);
    mt_shards_close(in);
    return rc;
}

static void assert_model_is_whole(const char *dir, size_t n_files)
{
    mt_err err = { 0 };
    mt_shards *a, *b;
    assert_ok(mt_shards_open(&a, MT_FIXTURE("safetensors/sharded"), &err));
    assert_ok(mt_shards_open(&b, dir, &err));
    assert_int_equal(mt_shards_file_count(b), n_files);
    assert_int_equal(mt_shards_count(b), mt_shards_count(a));
    for (size_t i = 0; i < mt_shards_count(a); i++) {
        const mt_st_tensor *x = mt_shards_at(a, i), *y = mt_shards_find(b, x->name);
        assert_non_null(y);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
    mt_shards_close(a);
    mt_shards_close(b);
}

static void a_sharded_model_comes_back_whole_with_the_index_of_transformers(void **state)
{
    mt_err err = { 0 };
    assert_ok(write_model(*state, 0, &err));
    assert_int_equal(tempdir_count(*state, NULL), 1);
    assert_model_is_whole(*state, 1);
    assert_int_equal(write_model(*state, 48, &err), MT_EINVAL); /* it would not be read */
    assert_says("already holds a model.safetensors");
    char *single = mt_path_join(*state, "model.safetensors"), *index = mt_path_join(*state, "model.safetensors.index.json");
    assert_int_equal(unlink(single), 0);
    assert_ok(write_model(*state, 70, &err)); /* 48 | 12 + 48: the split the fixture has */
    assert_int_equal(tempdir_count(*state, NULL), 3);
    assert_model_is_whole(*state, 2);
    char *a, *b;
    assert_ok(mt_file_read(&a, NULL, MT_FIXTURE("safetensors/sharded/model.safetensors.index.json"), 1 << 20, &err));
    assert_ok(mt_file_read(&b, NULL, index, 1 << 20, &err));
    assert_string_equal(a, b);
    mt_free(a);
    mt_free(b);
    mt_free(single);
    mt_free(index);
}

static void a_model_that_fails_to_be_written_is_not_there(void **state)
{
    static const struct {
        mt_fault_kind kind;
        mt_rc rc;
    } kinds[] = { { MT_FAULT_ALLOC, MT_ENOMEM }, { MT_FAULT_FILE, MT_EIO } };
    for (size_t k = 0; k < MT_COUNT(kinds); k++) {
        for (int n = 0;; n++) {
            mt_err err = { 0 };
            mt_fault_arm(kinds[k].kind, n);
            mt_rc rc = write_model(*state, 48, &err);
            bool hit = mt_fault_disarm();
            if (!hit) {
                assert_ok(rc);
                assert_int_equal(tempdir_count(*state, NULL), 4);
                assert_model_is_whole(*state, 3);
                break;
            }
            assert_int_equal(rc, kinds[k].rc);
            assert_int_equal(tempdir_count(*state, NULL), 0);
        }
        void *fresh = NULL; /* the second kind begins with an empty directory too */
        tempdir_remove(state);
        assert_int_equal(tempdir_make(&fresh), 0);
        *state = fresh;
    }
}

static void misuse_of_the_model_writer_is_refused(void **state)
{
    mt_err err = { 0 };
    mt_shards_writer *w;
    assert_ok(mt_shards_writer_create(&w, *state, 48, &err));
    assert_int_equal(mt_shards_writer_finish(w, &err), MT_EINVAL);
    assert_int_equal(mt_shards_writer_put(w, "a", 0, "", 0, &err), MT_EINVAL);
    assert_int_equal(mt_shards_writer_add(w, "a", MT_DTYPE_F32, 9, shape_23, &err), MT_ERANGE);
    assert_ok(mt_shards_writer_add(w, "a", MT_DTYPE_F32, 2, shape_23, &err));
    assert_ok(mt_shards_writer_start(w, &err));
    assert_int_equal(mt_shards_writer_start(w, &err), MT_EINVAL);
    assert_int_equal(mt_shards_writer_add(w, "b", MT_DTYPE_F32, 2, shape_23, &err), MT_EINVAL);
    assert_int_equal(mt_shards_writer_append(w, "b", "", 0, &err), MT_EINVAL);
    assert_int_equal(mt_shards_writer_finish(w, &err), MT_EINVAL);
    assert_says("0 of the 24 bytes of tensor \"a\"");
    mt_shards_writer_free(w);
    assert_ok(mt_shards_writer_create(&w, *state, 8, &err));
    assert_ok(mt_shards_writer_add(w, "a", MT_DTYPE_F32, 2, shape_23, &err));
    assert_ok(mt_shards_writer_add(w, "a", MT_DTYPE_F32, 2, shape_23, &err));
    assert_int_equal(mt_shards_writer_start(w, &err), MT_EINVAL); /* though they would be in two files */
    mt_shards_writer_free(w);
    assert_int_equal(tempdir_count(*state, NULL), 0);
}

enum { N_THREADS = 4, N_ROWS = 64 };

typedef struct job {
    mt_safetensors_writer *w;
    int k;
    mt_rc rc;
} job;

static void *put_one_tensor(void *arg)
{
    job *j = arg;
    char name[8];
    snprintf(name, sizeof name, "t%d", j->k);
    for (int i = 0; !j->rc && i < N_ROWS; i++) {
        uint8_t row[16];
        memset(row, j->k * N_ROWS + i, sizeof row);
        j->rc = mt_safetensors_writer_append(j->w, name, row, sizeof row, NULL);
    }
    return NULL;
}

static void threads_may_write_different_tensors(void **state)
{
    mt_err err = { 0 };
    mt_safetensors_writer *w;
    mt_safetensors *st;
    job jobs[N_THREADS];
    pthread_t threads[N_THREADS];
    char *path = mt_path_join(*state, "x.safetensors");
    assert_ok(mt_safetensors_writer_create(&w, path, &err));
    for (int k = 0; k < N_THREADS; k++) {
        char name[8];
        snprintf(name, sizeof name, "t%d", k);
        assert_ok(mt_safetensors_writer_add(w, name, MT_DTYPE_U8, 2, (int64_t[]){ N_ROWS, 16 }, &err));
    }
    assert_ok(mt_safetensors_writer_start(w, &err));
    for (int k = 0; k < N_THREADS; k++) {
        jobs[k] = (job){ .w = w, .k = k };
        assert_int_equal(pthread_create(&threads[k], NULL, put_one_tensor, &jobs[k]), 0);
    }
    for (int k = 0; k < N_THREADS; k++) {
        pthread_join(threads[k], NULL);
        assert_int_equal(jobs[k].rc, MT_OK);
    }
    assert_ok(mt_safetensors_writer_finish(w, &err));
    mt_safetensors_writer_free(w);
    assert_ok(mt_safetensors_open(&st, path, &err));
    for (int k = 0; k < N_THREADS; k++)
        for (int i = 0; i < N_ROWS * 16; i++)
            assert_int_equal(mt_safetensors_at(st, (size_t)k)->data[i], (uint8_t)(k * N_ROWS + i / 16));
    mt_safetensors_close(st);
    mt_free(path);
}

#define with_dir(test) cmocka_unit_test_setup_teardown(test, tempdir_make, tempdir_remove)
MT_TEST_MAIN(with_dir(rewriting_a_file_of_the_reference_gives_the_same_bytes),
             with_dir(tensors_may_come_in_pieces_and_in_any_order), with_dir(an_empty_file_and_an_empty_tensor_are_files_too),
             with_dir(misuse_is_refused_and_leaves_nothing), with_dir(a_header_that_nobody_would_read_is_not_written),
             with_dir(every_failure_of_a_file_or_of_memory_is_reported_and_cleaned_up),
             with_dir(a_failed_write_leaves_the_old_file_alone),
             with_dir(killed_at_any_point_the_file_is_old_new_or_absent_and_never_half),
             with_dir(places_that_cannot_be_written_are_named), with_dir(a_small_file_is_saved_whole_or_not_at_all),
             cmocka_unit_test(tensors_are_dealt_to_files_in_order),
             with_dir(a_sharded_model_comes_back_whole_with_the_index_of_transformers),
             with_dir(a_model_that_fails_to_be_written_is_not_there), with_dir(misuse_of_the_model_writer_is_refused),
             with_dir(threads_may_write_different_tensors))
