/* The hub's client against a hub of the tests' own on loopback: what it fetches, where it puts it, and what it does when the
 * other side misbehaves.  Each ends in the right file or the right message, and never in a torn file in the cache. */
#include "hub_rig.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/outfile.h"
#include "hub/places.h"
#include "hub/sha_shani.h"

#include <dirent.h>
#include <stdatomic.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { PIECE = HUB_TINY_PIECE, BIG = HUB_TINY_BIG };

static mt_rc fetch_unchecked(rig *r, mt_err *err)
{
    char *dir = NULL;
    mt_rc rc = mt_hub_model(r->hub, "acme/tiny", "", MT_HUB_MODEL, &dir, err);
    if (!rc) { /* the snapshot's folder */
        test_path within = snapshot_path(r, r->tiny, "");
        assert_int_equal(strlen(dir) + 1, strlen(within.s));
        assert_memory_equal(dir, within.s, strlen(dir));
    }
    mt_free(dir);
    return rc;
}

static mt_rc fetch(rig *r, mt_err *err)
{
    mt_rc rc = fetch_unchecked(r, err);
    no_blob_is_torn(r, "models--acme--tiny");
    return rc;
}

static void arrives_whole(rig *r)
{
    mt_err err = { 0 };
    assert_ok(fetch(r, &err));
    for (int i = 0; i < r->tiny->n_files; i++) {
        const char *path = r->tiny->files[i].path;
        bool needed = strcmp(path, "README.md") != 0 && strcmp(path, "pytorch_model.bin") != 0 && !strchr(path, '/');
        if (needed)
            holds(r, r->tiny, path);
        else
            assert_true(lacks(r, r->tiny, path));
    }
}

/* Nothing that looks whole: no ref, no link. */
static void left_nothing_behind(const rig *r)
{
    assert_false(mt_file_exists(in_cache(r, "models--acme--tiny/refs/main").s));
    assert_false(mt_dir_exists(in_cache(r, "models--acme--tiny/snapshots").s));
}

/* -- hashes and names ------------------------------------------------------------------------------ */

static void hashes_are_those_of_the_standards(void **state)
{
    (void)state;
    static const struct {
        mt_sha_kind kind;
        size_t n; /* of the letter a */
        const char *hex;
    } cases[] = {
        /* printf 'a...' | sha256sum, sha1sum */
        { MT_SHA256, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { MT_SHA256, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318" },
        { MT_SHA256, 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a" },
        { MT_SHA256, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb" },
        { MT_SHA256, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0" },
        { MT_SHA1, 0, "da39a3ee5e6b4b0d3255bfef95601890afd80709" },
        { MT_SHA1, 55, "c1c8bbdc22796e28c0e15163d20899b65621d65a" },
        { MT_SHA1, 56, "c2db330f6083854c99d4b5bfb6e8f29f201be699" },
        { MT_SHA1, 1000000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f" },
    };
    char *a = malloc(1000000), hex[MT_SHA_HEX_BYTES];
    memset(a, 'a', 1000000);
    for (size_t i = 0; i < MT_COUNT(cases); i++)
        for (size_t cut = 0; cut < 3; cut++) { /* in one go, and in two */
            mt_sha h;
            size_t first = cases[i].n * cut / 3;
            mt_sha_init(&h, cases[i].kind);
            mt_sha_add(&h, a, first);
            mt_sha_add(&h, a, cases[i].n - first);
            mt_sha_hex(&h, hex);
            assert_string_equal(hex, cases[i].hex);
        }
    mt_sha h;
    mt_sha_init_git(&h, 6); /* printf 'hello\n' | git hash-object --stdin */
    mt_sha_add(&h, "hello\n", 6);
    mt_sha_hex(&h, hex);
    assert_string_equal(hex, "ce013625030ba8dba906f756967f9e9ca394464a");
    free(a);
}

static void fast_and_plain_hashes_are_equal(void **state)
{
    (void)state;
    uint8_t blocks[5 * 64];
    for (size_t i = 0; i < sizeof blocks; i++) blocks[i] = (uint8_t)mt_rng_below(9, 0, i, 256);
    for (uint64_t seed = 0; seed < 50 && mt__sha256_has_fast(); seed++) {
        uint32_t a[8], b[8];
        for (uint64_t i = 0; i < 8; i++) a[i] = b[i] = (uint32_t)mt_rng_below(seed, 1, i, UINT32_MAX);
        mt__sha256_blocks_plain(a, blocks, 1 + seed % 5);
        mt__sha256_blocks_fast(b, blocks, 1 + seed % 5);
        assert_memory_equal(a, b, sizeof a);
    }
}

static void names_that_lead_elsewhere_are_refused(void **state)
{
    (void)state;
    static const char *const good[] = { "gpt2", "Qwen/Qwen2.5-7B-Instruct", "a_b/c.d-e_f" };
    static const char *const bad[] = { "",       "/etc",    "../x", "a/../b", "a//b", "a/b/c", "./a",
                                       "a--b/c", "a/b.git", "a/.b", "a b",    "a/b-", "~/x" };
    static const char *const unsafe[] = { "", "/x", "../x", "a/../x", "a//x", "a/", "./x", "a\\b", "a\nb", "a/..", ".." };
    static const char *const safe[] = { "x", ".gitattributes", "a/b/c.parquet", "a..b", "refs/convert/parquet", "\xc3\xa9.txt" };
    for (size_t i = 0; i < MT_COUNT(good); i++) assert_true(mt_hub_is_name(good[i]));
    for (size_t i = 0; i < MT_COUNT(bad); i++) assert_false(mt_hub_is_name(bad[i]));
    for (size_t i = 0; i < MT_COUNT(safe); i++) assert_true(mt__hub_safe_path(safe[i]));
    for (size_t i = 0; i < MT_COUNT(unsafe); i++) assert_false(mt__hub_safe_path(unsafe[i]));
}

/* -- what is fetched, and where it goes ------------------------------------------------------------ */

static void further_templates_arrive_in_their_folder(void **state)
{
    static const char tools[] = "additional_chat_templates/tool_use.jinja", rag[] = "additional_chat_templates/rag.jinja";
    rig *r = *state;
    mt_err err = { 0 };
    hub_add_file(r->tiny, tools, "{{ tools }}", 11, false);
    hub_add_file(r->tiny, rag, "{{ documents }}", 15, false);
    assert_ok(fetch(r, &err));
    holds(r, r->tiny, tools);
    holds(r, r->tiny, rag);
    assert_true(lacks(r, r->tiny, "onnx/model.safetensors"));
}

static void what_is_needed_arrives_and_no_more(void **state)
{
    rig *r = *state;
    arrives_whole(r);
    assert_int_equal(hub_count(r->s, "pytorch_model.bin"), 0);
    assert_int_equal(hub_count(r->s, "README.md"), 0);
    assert_true(hub_count(r->s, "range=bytes=4096-8191") >= 1); /* in pieces */
    assert_int_equal(r->last.done_bytes, r->last.total_bytes);
    assert_int_equal(r->last.n_files, 6);
    assert_int_equal(tempdir_count(in_cache(r, "models--acme--tiny/blobs").s, ".incomplete"), 0);
}

/* A listing of the cache: paths, links, sizes.  The golden beside it is what huggingface_hub has, too
 * (tests/golden/hub/README.md). */
static void list_tree(mt_str *out, const char *dir, const char *below)
{
    mt_err err = { 0 };
    mt_dir_names names;
    assert_ok(mt_dir_list(&names, dir, &err));
    for (size_t i = 0; i < names.n; i++) {
        test_path path = workspace_path("%s/%s", dir, names.items[i]),
                  name = workspace_path("%s%s%s", below, *below ? "/" : "", names.items[i]);
        char to[512] = "";
        struct stat st;
        assert_int_equal(lstat(path.s, &st), 0);
        if (S_ISLNK(st.st_mode)) {
            ssize_t n = readlink(path.s, to, sizeof to - 1);
            to[n > 0 ? n : 0] = '\0';
            mt_str_printf(out, "%s -> %s\n", name.s, to);
        } else if (S_ISDIR(st.st_mode)) {
            list_tree(out, path.s, name.s);
        } else {
            mt_str_printf(out, "%s %lld\n", name.s, (long long)st.st_size);
        }
    }
    mt_dir_names_free(&names);
}

static void the_layout_is_huggingface_hubs(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    mt_str tree = { 0 };
    char *golden, *ref;
    arrives_whole(r);
    list_tree(&tree, in_cache(r, "models--acme--tiny").s, "models--acme--tiny");
    assert_ok(mt_file_read(&golden, NULL, MT_TESTS_DIR "/golden/hub/layout.txt", 1 << 20, &err));
    assert_string_equal(tree.s, golden);
    assert_ok(mt_file_read(&ref, NULL, in_cache(r, "models--acme--tiny/refs/main").s, 100, &err));
    assert_string_equal(ref, r->tiny->commit);
    mt_free(ref);
    mt_free(golden);
    mt_str_free(&tree);
}

static void a_second_call_asks_nobody(void **state)
{
    rig *r = *state;
    arrives_whole(r);
    hub_clear_log(r->s);
    arrives_whole(r);
    setenv("HF_HUB_OFFLINE", "1", 1);
    open_hub(r);
    arrives_whole(r);
    assert_int_equal(hub_count(r->s, "GET"), 0);
    unsetenv("HF_HUB_OFFLINE");
}

static void a_branch_that_moved_is_followed_when_asked_for(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    char *dir;
    arrives_whole(r);
    char old[41];
    memcpy(old, r->tiny->commit, sizeof old);
    hub_wait(r->s);
    snprintf(r->tiny->commit, sizeof r->tiny->commit, "%040x", 0xbeef);
    hub_clear_log(r->s);
    assert_ok(mt_hub_model(r->hub, "acme/tiny", "", MT_HUB_MODEL | MT_HUB_NEWEST, &dir, &err));
    assert_non_null(strstr(dir, r->tiny->commit));
    assert_int_equal(hub_count(r->s, "GET cdn"), 0); /* the blobs are the same */
    mt_free(dir);
    assert_ok(mt_hub_model(r->hub, "acme/tiny", old, MT_HUB_MODEL, &dir, &err)); /* the old commit is still there by its name */
    assert_non_null(strstr(dir, old));
    mt_free(dir);
}

static void a_directory_of_that_name_comes_first(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    char *dir;
    assert_int_equal(chdir(r->dir), 0);
    assert_int_equal(mkdir("acme", 0777) | mkdir("acme/tiny", 0777), 0);
    assert_ok(mt_hub_model(r->hub, "acme/tiny", "", MT_HUB_MODEL, &dir, &err));
    assert_string_equal(dir, "acme/tiny");
    assert_int_equal(hub_count(r->s, "GET"), 0);
    mt_free(dir);
    assert_int_equal(chdir("/"), 0);
}

static void config_alone_is_small(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    char *dir;
    assert_ok(mt_hub_model(r->hub, "acme/tiny", "", MT_HUB_CONFIG, &dir, &err));
    mt_free(dir);
    holds(r, r->tiny, "config.json");
    assert_true(lacks(r, r->tiny, "tokenizer.json"));
    arrives_whole(r); /* the rest comes when it is needed */
}

/* -- who sees the token ---------------------------------------------------------------------------- */

static void the_token_goes_to_the_hub_and_nowhere_else(void **state)
{
    rig *r = *state;
    setenv("HF_TOKEN", "good", 1);
    r->tiny->gated = true;
    open_hub(r);
    arrives_whole(r);
    assert_true(hub_count(r->s, "GET cdn") > 0);
    assert_true(hub_count(r->s, "auth=Bearer good") > 0);
    hub_wait(r->s);
    for (const char *line = r->s->log.s; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (strncmp(line, "GET cdn", 7) == 0) assert_memory_not_equal(strstr(line, "auth="), "auth=B", 6);
    unsetenv("HF_TOKEN");
}

static void a_token_that_is_no_good_any_more_is_told(void **state)
{
    rig *r = *state;
    static const char *const messages[] = { "Invalid credentials in Authorization header",
                                            "User Access Token \"mine\" is expired" };
    setenv("HF_TOKEN", "old", 1);
    open_hub(r);
    for (size_t i = 0; i < MT_COUNT(messages); i++) {
        mt_err err = { 0 };
        hub_clear_rules(r->s);
        hub_add_rule(r->s, (hub_rule){ .match = "/", .status = 401, .error_message = messages[i] });
        assert_int_equal(fetch(r, &err), MT_EINVAL);
        assert_says("does not know the token");
        assert_says("/settings/tokens");
    }
    unsetenv("HF_TOKEN");
}

static void tokens_come_from_four_places(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    r->tiny->gated = true;
    workspace_write(r->dir, "token", "good\n"); /* what `hf auth login` leaves */
    open_hub(r);
    assert_ok(fetch(r, &err));
    unlink(workspace_path("%s/token", r->dir).s);
    assert_ok(mt_dir_remove(in_cache(r, "").s, &err));
    workspace_write(r->dir, "elsewhere", "  good  ");
    setenv("HF_TOKEN_PATH", workspace_path("%s/elsewhere", r->dir).s, 1);
    open_hub(r);
    assert_ok(fetch(r, &err));
    unsetenv("HF_TOKEN_PATH");
    assert_ok(mt_dir_remove(in_cache(r, "").s, &err));
    setenv("HUGGING_FACE_HUB_TOKEN", "good", 1);
    open_hub(r);
    assert_ok(fetch(r, &err));
    setenv("HF_TOKEN", "line\r\nX-Evil: 1", 1);
    assert_int_equal(mt_hub_open(&(mt_hub *){ NULL }, NULL, &err), MT_EINVAL);
    assert_says("blanks");
    unsetenv("HF_TOKEN");
    unsetenv("HUGGING_FACE_HUB_TOKEN");
}

/* -- misbehaviour that patience mends -------------------------------------------------------------- */

static void pages_may_be_linked_to_without_the_host(void **state)
{
    rig *r = *state;
    r->s->short_links = true;
    arrives_whole(r);
}

static void what_mends_itself_ends_in_the_right_files(void **state)
{
    rig *r = *state;
    static const struct {
        const char *what;
        hub_rule rule;
    } cases[] = {
        { "500, then success", { .match = "/", .status = 500, .times = 3 } },
        { "429 with Retry-After", { .match = "/resolve/", .status = 429, .retry_after = "0", .times = 3 } },
        { "429 until a date that is over",
          { .match = "/tree/", .status = 429, .retry_after = "Wed, 21 Oct 2015 07:28:00 GMT", .times = 3 } },
        { "503 until nobody knows when", { .match = "/tree/", .status = 503, .retry_after = "soon", .times = 3 } },
        { "the listing is cut", { .match = "/tree/", .cut_after = 20, .times = 2 } },
        { "a file is cut", { .match = "/lfs/", .cut_after = 1500, .times = 9 } },
        { "a file is cut at once", { .match = "/lfs/", .cut_after = 1, .times = 3 } },
        { "wrong content, once", { .match = "/lfs/", .wrong = true, .times = 1 } },
        { "no ranges", { .match = "/lfs/", .no_range = true } },
        { "no ranges, and cut", { .match = "/lfs/", .no_range = true, .cut_after = 9000, .times = 6 } },
    };
    mt_err err = { 0 };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        hub_clear_rules(r->s);
        hub_add_rule(r->s, cases[i].rule);
        arrives_whole(r);
        assert_ok(mt_dir_remove(in_cache(r, "").s, &err));
    }
}

/* As seconds, as a date, and in the hub's own words. */
static void a_server_is_given_the_time_it_asks_for(void **state)
{
    rig *r = *state;
    char date[64];
    struct timespec a, b;
    time_t soon = time(NULL) + 2;
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&soon));
    hub_rule rules[] = { { .retry_after = date }, { .retry_after = "1" }, { .rate_limit = "\"api\";r=0;t=0" } };
    for (size_t i = 0; i < MT_COUNT(rules); i++) {
        mt_err err = { 0 };
        rules[i].match = "/revision/", rules[i].status = 429, rules[i].times = 1;
        hub_clear_rules(r->s);
        hub_add_rule(r->s, rules[i]);
        clock_gettime(CLOCK_MONOTONIC, &a);
        arrives_whole(r);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double waited = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        if (waited < 0.9) fail_msg("rule %zu: waited for %.2f s", i, waited);
        assert_ok(mt_dir_remove(in_cache(r, "").s, &err));
    }
}

static void a_repository_that_was_renamed_is_found_by_its_old_name(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    char *dir;
    setenv("HF_TOKEN", "good", 1);
    open_hub(r);
    r->tiny->old_name = "older/small";
    r->tiny->gated = true; /* so the token has to come along */
    assert_ok(mt_hub_model(r->hub, "older/small", "", MT_HUB_MODEL, &dir, &err));
    assert_non_null(strstr(dir, "models--older--small/snapshots/")); /* where huggingface_hub has it, too */
    assert_true(mt_file_exists(workspace_path("%s/model-00001-of-00002.safetensors", dir).s));
    no_blob_is_torn(r, "models--older--small");
    mt_free(dir);
    unsetenv("HF_TOKEN");
}

/* huggingface_hub keeps what several repositories share in CACHE/blobs, and links to it. */
static void a_blob_may_be_a_link_to_a_shared_one(void **state)
{
    rig *r = *state;
    const char *hash = hub_hash(&r->tiny->files[3]);
    arrives_whole(r);
    test_path blob = in_cache(r, workspace_path("models--acme--tiny/blobs/%s", hash).s), shared = in_cache(r, "blobs/ab/shared");
    assert_int_equal(mkdir(in_cache(r, "blobs").s, 0777) | mkdir(in_cache(r, "blobs/ab").s, 0777), 0);
    assert_int_equal(rename(blob.s, shared.s) | symlink("../../blobs/ab/shared", blob.s), 0);
    hub_clear_log(r->s);
    arrives_whole(r);
    assert_int_equal(hub_count(r->s, "GET"), 0);
    assert_int_equal(unlink(shared.s), 0); /* swept away by its owner: it comes again */
    arrives_whole(r);
    assert_true(hub_count(r->s, "GET cdn") > 0);
}

/* -- and what it does not -------------------------------------------------------------------------- */

static void refusals_are_told_in_plain_words(void **state)
{
    rig *r = *state;
    static const struct {
        hub_rule rule;
        mt_rc rc;
        const char *says, *says_too;
    } cases[] = {
        { { .match = "/resolve/", .status = 401, .error_code = "GatedRepo" },
          MT_EINVAL,
          "is gated: accept its license at",
          "set HF_TOKEN" },
        { { .match = "/resolve/", .status = 403, .error_code = "GatedRepo" }, MT_EINVAL, "/acme/tiny", "gated" },
        { { .match = "/resolve/", .status = 403 }, MT_EINVAL, "does not allow", "HF_TOKEN" },
        { { .match = "/resolve/", .status = 401 }, MT_EINVAL, "does not allow", "HF_TOKEN" },
        { { .match = "/revision/", .status = 404, .error_code = "RevisionNotFound" },
          MT_ENOENT,
          "no branch, tag or commit",
          "main" },
        { { .match = "/resolve/", .status = 404, .error_code = "EntryNotFound" }, MT_ENOENT, "has no file", "any more" },
        { { .match = "/revision/", .status = 403, .error_message = "Access to this resource is disabled." },
          MT_EINVAL,
          "has closed it",
          "disabled" },
        { { .match = "/tree/", .status = 500 }, MT_EIO, "status 500", "try again later" },
        { { .match = "/revision/", .status = 429, .rate_limit = "\"api\";r=0;t=4000" }, MT_EIO, "asks to wait", "later" },
        { { .match = "/revision/", .status = 429, .retry_after = "4000" }, MT_EIO, "asks to wait", "later" },
        { { .match = "/lfs/", .wrong = true }, MT_EFORMAT, "does not arrive with the hash", "nothing was kept" },
        { { .match = "/lfs/", .status = 503 }, MT_EIO, "status 503", "model-0000" },
        { { .match = "/revision/", .status = 302, .location = "file:///etc/passwd" }, MT_EFORMAT, "not safe to follow", "file:" },
        { { .match = "/revision/", .status = 302, .location = "/api/models/acme/tiny/revision/main" },
          MT_EFORMAT,
          "redirected more than",
          "" },
    };
    for (size_t i = 0; i < MT_COUNT(cases); i++) {
        mt_err err = { 0 };
        hub_clear_rules(r->s);
        hub_add_rule(r->s, cases[i].rule);
        assert_int_equal(fetch(r, &err), cases[i].rc);
        assert_says(cases[i].says);
        assert_says(cases[i].says_too);
        left_nothing_behind(r);
    }
    hub_clear_rules(r->s);
    arrives_whole(r); /* what was left lying about does no harm */
}

static void an_unknown_name_is_answered_with_the_nearest(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    char *dir;
    assert_int_equal(mt_hub_model(r->hub, "acme/tinny", "", MT_HUB_MODEL, &dir, &err), MT_ENOENT);
    assert_says("did you mean acme/tiny?");
    assert_int_equal(mt_hub_model(r->hub, "who/knows-what-this-is", "", MT_HUB_MODEL, &dir, &err), MT_ENOENT);
    assert_says("HF_TOKEN");
    assert_int_equal(mt_hub_model(r->hub, "../escape", "", MT_HUB_MODEL, &dir, &err), MT_ENOENT);
    assert_says("is neither a directory here nor a name on the hub");
    assert_int_equal(mt_hub_model(r->hub, MT_TESTS_DIR "/golden/modles", "", MT_HUB_MODEL, &dir, &err), MT_ENOENT);
    assert_says("(did you mean " MT_TESTS_DIR "/golden/models?)");
    assert_int_equal(mt_hub_model(r->hub, "acme/tiny", "../../x", MT_HUB_MODEL, &dir, &err), MT_EINVAL);
    assert_says("is not a branch");
}

static void without_a_network_it_says_how_to_bring_it(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
    open_hub(r);
    assert_int_equal(fetch(r, &err), MT_EIO);
    assert_says("cannot be reached");
    assert_says("megatrain get acme/tiny");
    assert_says("models--acme--tiny");
    static const char *const variables[] = { "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE" };
    for (size_t i = 0; i < MT_COUNT(variables); i++) {
        setenv(variables[i], "1", 1);
        open_hub(r);
        assert_int_equal(fetch(r, &err), MT_ENOENT);
        assert_says(variables[i]);
        unsetenv(variables[i]);
    }
}

/* As huggingface_hub 2.4 reads them. */
static void the_environment_is_read_as_huggingface_hub_reads_it(void **state)
{
    static const char *const paths[][2] = {
        { "~/hub", "/home/me/hub" },        { "$MT_T/hub", "/scratch/hub" },  { "/a/${MT_T}b/$MT_T", "/a//scratchb//scratch" },
        { "$MT_NONE/hub", "$MT_NONE/hub" }, { "a$/${MT_T/$", "a$/${MT_T/$" },
    };
    (void)state;
    mt_err err = { 0 };
    mt_hub_places p;
    char *home = mt_strdup(getenv("HOME") ? getenv("HOME") : "");
    setenv("HOME", "/home/me", 1);
    setenv("MT_T", "/scratch", 1);
    for (size_t i = 0; i < MT_COUNT(paths); i++) {
        setenv("HF_HUB_CACHE", paths[i][0], 1);
        assert_ok(mt_hub_places_init(&p, &err));
        assert_string_equal(p.cache, paths[i][1]);
        mt_hub_places_deinit(&p);
    }
    setenv("HOME", home, 1);
    mt_free(home);
    setenv("TRANSFORMERS_OFFLINE", "1", 1);
    setenv("HF_HUB_OFFLINE", "0", 1);
    setenv("HF_TOKEN", "good", 1);
    setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "true", 1);
    assert_ok(mt_hub_places_init(&p, &err));
    assert_null(p.offline);
    assert_null(p.token);
    mt_hub_places_deinit(&p);
    static const char *const set[] = { "HF_HUB_CACHE",   "MT_T",     "TRANSFORMERS_OFFLINE",
                                       "HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_DISABLE_IMPLICIT_TOKEN" };
    for (size_t i = 0; i < MT_COUNT(set); i++) unsetenv(set[i]);
}

static void a_file_name_that_leads_out_is_refused(void **state)
{
    rig *r = *state;
    static const char *const paths[] = { "../../evil.safetensors", "/tmp/evil", "a/../../evil" };
    for (size_t i = 0; i < MT_COUNT(paths); i++) {
        mt_err err = { 0 };
        hub_file *f = hub_add_file(r->tiny, paths[i], "x", 1, false);
        assert_int_equal(fetch(r, &err), MT_EFORMAT);
        assert_says("leads out of its folder");
        left_nothing_behind(r);
        hub_wait(r->s);
        free(f->data);
        r->tiny->n_files--;
    }
}

static void a_full_disk_is_known_first(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    hub_add_file(r->tiny, "model-00003-of-00003.safetensors", NULL, UINT64_C(1) << 58, true);
    assert_int_equal(fetch(r, &err), MT_EIO);
    assert_says("set HF_HUB_CACHE to a folder on a larger disk");
    assert_says("acme/tiny needs");
    left_nothing_behind(r);
    assert_int_equal(hub_count(r->s, "/resolve/"), 0);
}

/* Added up they are next to nothing in 64 bits; memory for the pieces of the first alone would be 128 GiB. */
static void sizes_that_overflow_do_not_fit(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    static const char *const hashes[] = { "1111111111111111111111111111111111111111111111111111111111111111",
                                          "2222222222222222222222222222222222222222222222222222222222222222",
                                          "3333333333333333333333333333333333333333333333333333333333333333" };
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-0000%d-of-00005.safetensors", 3 + i);
        hub_file *f = hub_add_file(r->tiny, name, NULL, i < 2 ? INT64_MAX : 2, true);
        memcpy(f->sha, hashes[i], sizeof f->sha);
    }
    assert_int_equal(fetch(r, &err), MT_EIO);
    assert_says("set HF_HUB_CACHE to a folder on a larger disk");
    left_nothing_behind(r);
}

/* A download that was begun has the room that its file takes, not the room that the hub claims now. */
static void a_file_that_was_begun_and_has_grown_does_not_fit(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    hub_file *f = hub_add_file(r->tiny, "model-00003-of-00003.safetensors", NULL, UINT64_C(1) << 58, true);
    test_path blobs = in_cache(r, "models--acme--tiny/blobs");
    assert_ok(mt_dir_make(blobs.s, &err));
    assert_ok(mt_outfile_save(workspace_path("%s/%s.parts.incomplete", blobs.s, hub_hash(f)).s, "x", 1, &err));
    assert_int_equal(fetch(r, &err), MT_EIO);
    assert_says("set HF_HUB_CACHE to a folder on a larger disk");
}

/* Every file operation made to fail once: a message, no torn file, and the next call succeeds. */
/* Files that are put together beside a ref have their name taken away again. */
static void no_other_ref_is_left(const rig *r)
{
    DIR *d = opendir(in_cache(r, "models--acme--tiny/refs").s);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && strcmp(e->d_name, "main") != 0) fail_msg("refs/%s is left", e->d_name);
    if (d) closedir(d);
}

static void every_failing_file_call_leaves_a_cache_that_works(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    int n = 0;
    for (;; n++) {
        mt_fault_arm(MT_FAULT_FILE, n);
        mt_rc rc = fetch_unchecked(r, &err);
        bool hit = mt_fault_disarm();
        no_blob_is_torn(r, "models--acme--tiny");
        if (!hit) {
            assert_ok(rc);
            break;
        }
        if (rc) assert_int_equal(rc, MT_EIO);
        no_other_ref_is_left(r);
        if (n % 8 == 0) arrives_whole(r); /* from whatever it left */
        assert_ok(mt_dir_remove(in_cache(r, "").s, &err));
    }
    assert_true(n > 40);
}

/* -- resuming -------------------------------------------------------------------------------------- */

static void a_broken_download_goes_on_where_it_was(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    hub_add_rule(r->s, (hub_rule){ .match = "/lfs/", .times = 3 }); /* three pieces come, then the server is gone */
    hub_add_rule(r->s, (hub_rule){ .match = "/lfs/", .status = 403 });
    assert_int_equal(fetch(r, &err), MT_EINVAL);
    left_nothing_behind(r);
    hub_clear_rules(r->s);
    hub_clear_log(r->s);
    arrives_whole(r);
    assert_true(hub_count(r->s, "GET cdn") < 7); /* six pieces and the small file, less what was here */
    assert_true(hub_count(r->s, "GET cdn") > 0);
}

static void what_was_left_by_a_stranger_is_not_believed(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    const char *hash = hub_hash(&r->tiny->files[3]);
    assert_ok(fetch(r, &err));
    char *good;
    assert_ok(mt_file_read(&good, NULL, in_cache(r, workspace_path("models--acme--tiny/blobs/%s", hash).s).s, 1 << 20, &err));
    assert_ok(mt_dir_remove(in_cache(r, "models--acme--tiny/snapshots").s, &err));
    unlink(in_cache(r, workspace_path("models--acme--tiny/blobs/%s", hash).s).s);
    unlink(in_cache(r, "models--acme--tiny/refs/main").s);
    test_path part = in_cache(r, workspace_path("models--acme--tiny/blobs/%s.parts.incomplete", hash).s);
    FILE *f = fopen(part.s, "w"); /* of the right size, and wrong */
    for (int i = 0; i < BIG; i++) fputc('x', f);
    fclose(f);
    arrives_whole(r);
    assert_non_null(strstr(r->said, "not what the hub lists"));
    mt_free(good);
}

static void a_piece_marked_by_no_byte_of_ours_is_fetched_again(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    const char *hash = hub_hash(&r->tiny->files[3]);
    assert_ok(fetch(r, &err));
    assert_ok(mt_dir_remove(in_cache(r, "models--acme--tiny/snapshots").s, &err));
    unlink(in_cache(r, workspace_path("models--acme--tiny/blobs/%s", hash).s).s);
    unlink(in_cache(r, "models--acme--tiny/refs/main").s);
    test_path part = in_cache(r, workspace_path("models--acme--tiny/blobs/%s.parts.incomplete", hash).s);
    FILE *f = fopen(part.s, "w"); /* in order but for its marks: what a failing disk or another program leaves */
    const uint64_t piece = PIECE;
    for (int i = 0; i < BIG; i++) fputc('x', f);
    fputs("MTPARTS1", f);
    fwrite(&piece, sizeof piece, 1, f);
    fputs("\x02\x03\x07\x10\x7f\xff", f);
    fclose(f);
    arrives_whole(r);
    assert_null(strstr(r->said, "not what the hub lists")); /* all pieces were missing, none was wrong */
}

typedef struct other {
    rig *r;
    mt_rc rc;
    mt_err err;
} other;

static void *fetch_too(void *arg)
{
    other *o = arg;
    mt_hub *hub;
    char *dir = NULL;
    o->rc = mt_hub_open(&hub, &(mt_hub_options){ .piece_bytes = PIECE, .n_connections = 3, .pause_s = 0.01 }, &o->err);
    if (!o->rc) o->rc = mt_hub_model(hub, "acme/tiny", "", MT_HUB_MODEL, &dir, &o->err);
    mt_free(dir);
    mt_hub_close(hub);
    return NULL;
}

/* huggingface_hub holds this lock while it downloads a blob. */
static void the_others_lock_is_waited_for(void **state)
{
    rig *r = *state;
    pthread_t t;
    other o = { .r = r };
    const hub_file *f = &r->tiny->files[3];
    char make[4096];
    snprintf(make, sizeof make, "mkdir -p '%s'", in_cache(r, ".locks/models--acme--tiny").s);
    assert_int_equal(system(make), 0);
    int fd = open(in_cache(r, workspace_path(".locks/models--acme--tiny/%s.lock", hub_hash(f)).s).s, O_RDWR | O_CREAT, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(pthread_create(&t, NULL, fetch_too, &o), 0);
    for (int i = 0; i < 3000 && (atomic_load(&r->n_said) == 0 || hub_count(r->s, "GET cdn") == 0); i++)
        nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
    nanosleep(&(struct timespec){ 0, 200000000 }, NULL);
    assert_int_equal(hub_count(r->s, f->sha), 0); /* not that one, */
    assert_true(hub_count(r->s, "GET cdn") > 0);  /* but all the others */
    close(fd);
    pthread_join(t, NULL);
    if (o.rc) fail_msg("%s", o.err.msg);
    assert_non_null(strstr(r->said, "another process is downloading model-00001-of-00002.safetensors"));
}

static void two_at_once_fetch_it_once(void **state)
{
    rig *r = *state;
    pthread_t t;
    other o = { .r = r };
    hub_add_rule(r->s, (hub_rule){ .match = "/lfs/", .slow_ms = 10 });
    assert_int_equal(pthread_create(&t, NULL, fetch_too, &o), 0);
    arrives_whole(r);
    pthread_join(t, NULL);
    if (o.rc) fail_msg("%s", o.err.msg);
    assert_int_equal(hub_count(r->s, "GET cdn"), 7);
}

typedef struct stopping {
    atomic_bool flag;
    double at_s; /* when it was set */
    rig *r;
} stopping;

static void *ask_to_stop(void *arg)
{
    stopping *s = arg;
    while (hub_count(s->r->s, "GET cdn") == 0) nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
    s->at_s = mt_now_s();
    atomic_store(&s->flag, true);
    return NULL;
}

/* A server that takes seconds for every file; what has come stays, and the next call continues with it. */
static void a_request_to_stop_ends_a_download_at_once(void **state)
{
    rig *r = *state;
    mt_err err = { 0 };
    pthread_t t;
    stopping s = { .r = r };
    char *dir = NULL;
    mt_hub *hub;
    hub_add_rule(r->s, (hub_rule){ .match = "/lfs/", .slow_ms = 500 });
    assert_ok(
        mt_hub_open(&hub, &(mt_hub_options){ .piece_bytes = PIECE, .n_connections = 3, .pause_s = 0.01, .stop = &s.flag }, &err));
    assert_int_equal(pthread_create(&t, NULL, ask_to_stop, &s), 0);
    assert_int_equal(mt_hub_model(hub, "acme/tiny", "", MT_HUB_MODEL, &dir, &err), MT_ESTOPPED);
    double ended_s = mt_now_s();
    pthread_join(t, NULL);
    assert_true(ended_s - s.at_s < 10); /* at once, on a busy machine: it asks several times a second */
    assert_says("continues where it stopped");
    assert_null(dir);
    mt_hub_close(hub);
    hub_clear_rules(r->s);
    arrives_whole(r);
}

MT_TEST_MAIN(cmocka_unit_test(hashes_are_those_of_the_standards), cmocka_unit_test(fast_and_plain_hashes_are_equal),
             cmocka_unit_test(names_that_lead_elsewhere_are_refused), RIG(what_is_needed_arrives_and_no_more),
             RIG(further_templates_arrive_in_their_folder), RIG(the_layout_is_huggingface_hubs), RIG(a_second_call_asks_nobody),
             RIG(a_branch_that_moved_is_followed_when_asked_for), RIG(a_directory_of_that_name_comes_first),
             RIG(config_alone_is_small), RIG(the_token_goes_to_the_hub_and_nowhere_else),
             RIG(a_token_that_is_no_good_any_more_is_told), RIG(tokens_come_from_four_places),
             RIG(pages_may_be_linked_to_without_the_host), RIG(what_mends_itself_ends_in_the_right_files),
             RIG(a_server_is_given_the_time_it_asks_for), RIG(a_repository_that_was_renamed_is_found_by_its_old_name),
             RIG(a_blob_may_be_a_link_to_a_shared_one), RIG(refusals_are_told_in_plain_words),
             RIG(an_unknown_name_is_answered_with_the_nearest), RIG(without_a_network_it_says_how_to_bring_it),
             RIG(the_environment_is_read_as_huggingface_hub_reads_it), RIG(a_file_name_that_leads_out_is_refused),
             RIG(a_full_disk_is_known_first), RIG(sizes_that_overflow_do_not_fit),
             RIG(a_file_that_was_begun_and_has_grown_does_not_fit), RIG(every_failing_file_call_leaves_a_cache_that_works),
             RIG(a_broken_download_goes_on_where_it_was), RIG(what_was_left_by_a_stranger_is_not_believed),
             RIG(a_piece_marked_by_no_byte_of_ours_is_fetched_again), RIG(a_request_to_stop_ends_a_download_at_once),
             RIG(two_at_once_fetch_it_once), RIG(the_others_lock_is_waited_for))
