/* fuzz_hub.c - what a hub may answer when a model is downloaded: status lines, headers and bodies, as they come from the network.
 * Parts: the answer about a revision, the answer for a file, then the answers to everything else in turn (the pages of a list,
 * what redirects lead to).
 *
 * Only verified content gets a name in the cache, and nothing is written outside it.  The token reaches the hub alone.  The
 * download ends: a model, or a message.  Every request goes to this process, which all addresses have as their proxy. */
#define _GNU_SOURCE
#include "folder.h"
#include "harness.h"
#include "hub/hub.h"
#include "hub/names.h"
#include "hub/sha.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOST   "hub.test"
#define TOKEN  "hf_0a1b2c3d4e5f"
#define COMMIT "0123456789abcdef0123456789abcdef01234567"

/* Pauses between tries are not what is tested. */
int nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)t, (void)left;
    return 0;
}

/* -- the hub --------------------------------------------------------------------------------------- */

static struct {
    int listener;
    pthread_mutex_t lock; /* of what follows */
    const uint8_t *data;
    size_t n, n_others; /* answers given to "everything else" */
    bool told;          /* another host has seen the token */
} hub = { .lock = PTHREAD_MUTEX_INITIALIZER };

static fuzz_part choose_answer(const char *target)
{
    fuzz_part a = strstr(target, "/revision/")  ? fuzz_part_of(hub.data, hub.n, 0)
                  : strstr(target, "/resolve/") ? fuzz_part_of(hub.data, hub.n, 1)
                                                : fuzz_part_of(hub.data, hub.n, 2 + hub.n_others++);
    return a.s ? a : (fuzz_part){ "HTTP/1.1 404 \r\n\r\n", 17 };
}

static bool read_request(int fd, char *request, size_t cap)
{
    size_t n = 0;
    request[0] = '\0';
    while (n + 1 < cap && !strstr(request, "\r\n\r\n")) {
        ssize_t got = recv(fd, request + n, cap - 1 - n, 0);
        if (got <= 0) return false;
        request[n += (size_t)got] = '\0';
    }
    return true;
}

static void answer(int fd)
{
    char request[1 << 14];
    if (read_request(fd, request, sizeof request)) {
        char target[1 << 13] = "";
        sscanf(request, "%*s %8191s", target);
        bool home = strncmp(target, "http://" HOST "/", strlen("http://" HOST "/")) == 0;
        pthread_mutex_lock(&hub.lock);
        if (!home && strcasestr(request, "Authorization:")) hub.told = true;
        fuzz_part a = choose_answer(target);
        for (size_t sent = 0; sent < a.n;) {
            ssize_t n = send(fd, a.s + sent, a.n - sent, MSG_NOSIGNAL);
            if (n <= 0) break;
            sent += (size_t)n;
        }
        pthread_mutex_unlock(&hub.lock);
    }
    shutdown(fd, SHUT_WR);
    close(fd);
}

static void *serve(void *arg)
{
    for (int fd; (fd = accept(hub.listener, NULL, NULL)) >= 0 || errno == EINTR || errno == ECONNABORTED;)
        if (fd >= 0) answer(fd);
    return arg;
}

static void hush(void *user, mt_log_level level, const char *text) { (void)user, (void)level, (void)text; }

/* What a file may take here: a hub may claim any size. */
static void bound_files(void)
{
    enum { MOST_BYTES = 4 << 20 };
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = MOST_BYTES;
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
}

static void start_hub(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    pthread_t thread;
    char proxy[64];
    hub.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expect(hub.listener >= 0 && bind(hub.listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(hub.listener, 64) == 0);
    expect(getsockname(hub.listener, (struct sockaddr *)&a, &n) == 0);
    snprintf(proxy, sizeof proxy, "http://127.0.0.1:%d", ntohs(a.sin_port));
    static const char *const proxies[] = { "http_proxy", "https_proxy", "all_proxy" };
    static const char *const others[] = { "no_proxy",       "NO_PROXY",      "HF_HUB_CACHE",         "HUGGINGFACE_HUB_CACHE",
                                          "HF_HUB_OFFLINE", "HF_TOKEN_PATH", "TRANSFORMERS_OFFLINE", "HTTPS_PROXY" };
    for (size_t i = 0; i < MT_COUNT(proxies); i++) setenv(proxies[i], proxy, 1);
    for (size_t i = 0; i < MT_COUNT(others); i++) unsetenv(others[i]);
    setenv("HF_HOME", folder_root, 1);
    setenv("HF_ENDPOINT", "http://" HOST, 1);
    setenv("HF_TOKEN", TOKEN, 1);
    mt_log_set_sink(hush, NULL);
    bound_files();
    expect(pthread_create(&thread, NULL, serve, NULL) == 0 && pthread_detach(thread) == 0);
}

/* -- what it leaves -------------------------------------------------------------------------------- */

static void hash_file(const char *path, bool large, char out[MT_SHA_HEX_BYTES])
{
    mt_err err;
    mt_sha h;
    char *text = NULL;
    size_t n = 0;
    expect(mt_file_read(&text, &n, path, 1 << 24, &err) == MT_OK);
    if (large)
        mt_sha_init(&h, MT_SHA256);
    else
        mt_sha_init_git(&h, n);
    mt_sha_add(&h, text, n);
    mt_sha_hex(&h, out);
    mt_free(text);
}

static void check_blobs(const char *folder)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char path[PATH_MAX + 256], found[MT_SHA_HEX_BYTES];
        if (!mt__hub_is_hash(e->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        hash_file(path, strlen(e->d_name) == 64, found);
        expect(strcmp(found, e->d_name) == 0);
    }
    if (d) closedir(d);
}

/* HF_HOME holds the cache and nothing else. */
static void check_folder(void)
{
    DIR *d = opendir(folder_root);
    expect(d != NULL);
    for (const struct dirent *e; (e = readdir(d));) expect(e->d_name[0] == '.' || strcmp(e->d_name, "hub") == 0);
    closedir(d);
}

static void download(void)
{
    mt_err err = { 0 };
    mt_hub *client = NULL;
    char *dir = NULL;
    folder_path cache = folder_at("hub");
    mt_hub_options o = { .piece_bytes = 4096, .n_connections = 2, .pause_s = 0.01 };
    if (fuzz_production) o.piece_bytes = 0, o.n_connections = 0;
    expect(mt_hub_open(&client, &o, &err) == MT_OK);
    mt_rc rc = mt_hub_model(client, "acme/tiny", "", MT_HUB_MODEL, &dir, &err);
    expect(rc ? *err.msg != '\0' && !dir : dir && strncmp(dir, cache.s, strlen(cache.s)) == 0 && mt_dir_exists(dir));
    check_blobs(folder_at("hub/models--acme--tiny/blobs").s);
    check_folder();
    mt_free(dir);
    mt_hub_close(client);
    expect(mt_dir_remove(cache.s, &err) == MT_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (folder_make()) start_hub();
    pthread_mutex_lock(&hub.lock);
    hub.data = data;
    hub.n = size;
    hub.n_others = 0;
    pthread_mutex_unlock(&hub.lock);
    download();
    pthread_mutex_lock(&hub.lock);
    hub.data = NULL; /* an answer that is still on its way has no owner */
    hub.n = 0;
    expect(!hub.told);
    pthread_mutex_unlock(&hub.lock);
    return 0;
}

/* -- made inputs ----------------------------------------------------------------------------------- */

static void put_answer(fuzz_rng *r, mt_str *out, const char *headers, const mt_str *body)
{
    static const char *const statuses[] = { "200 OK", "206 Partial Content", "307 x", "302 x", "401 x", "403 x", "404 x", "429 x",
                                            "503 x" };
    static const char *const more[] = { "",
                                        "Retry-After: 5\r\n",
                                        "RateLimit: \"api\";r=0;t=55\r\n",
                                        "X-Error-Code: GatedRepo\r\n",
                                        "X-Error-Code: RevisionNotFound\r\nX-Error-Message: no \x1b[2J\r\n",
                                        "Location: /elsewhere\r\n",
                                        "Location: https://other.test/x?key=1\r\n",
                                        "Location: http://other.test/x\r\n",
                                        "Content-Range: bytes 0-2/3\r\n",
                                        "Content-Range: bytes 99999999999999999999-\r\n",
                                        "Link: <http://hub.test/api/next>; rel=\"next\"\r\n",
                                        "Link: <?cursor=2>; rel=\"next\", <x>; rel=\"last\"\r\n",
                                        "Link: <file:///etc/passwd>; rel=\"next\"\r\n" };
    bool odd = fuzz_once_in(r, 6);
    mt_str_printf(out, "HTTP/1.1 %s\r\n%s%s", odd ? FUZZ_PICK(r, statuses) : statuses[0], headers, odd ? FUZZ_PICK(r, more) : "");
    if (!fuzz_once_in(r, 8)) mt_str_printf(out, "Content-Length: %llu\r\n", (unsigned long long)fuzz_odd(r, body->n));
    mt_str_puts(out, "\r\n");
    mt_str_add(out, body->s, body->n);
}

static void put_file(fuzz_rng *r, mt_str *list, const char *path, const mt_str *content, bool large)
{
    char hash[MT_SHA_HEX_BYTES];
    mt_sha h;
    if (large)
        mt_sha_init(&h, MT_SHA256);
    else
        mt_sha_init_git(&h, content->n);
    mt_sha_add(&h, content->s, content->n);
    mt_sha_hex(&h, hash);
    mt_str_printf(list, "%s{\"type\":\"file\",\"path\":\"%s\",%s\"oid\":\"%s\",\"size\":%lld}%s", list->n > 1 ? "," : "", path,
                  large ? "\"oid\":\"x\",\"lfs\":{" : "", hash, (long long)fuzz_odd(r, content->n), large ? "}" : "");
}

/* A revision, one content for all files, and lists of them. */
void fuzz_generate(fuzz_rng *r, mt_str *out)
{
    static const char *const paths[] = {
        "config.json",       "model.safetensors",   "tokenizer.json", "tokenizer_config.json",
        "../config.json",    "a/b/c/merges.txt",    "vocab.json",     "generation_config.json",
        "pytorch_model.bin", "model-2.safetensors", "x.gguf",         "special_tokens_map.json"
    };
    static const char *const contents[] = { "{}", "", "{\"model_type\": \"llama\"}" };
    mt_str content = { 0 }, body = { 0 }, list = { 0 };
    mt_str_puts(&content, FUZZ_PICK(r, contents));
    if (fuzz_once_in(r, 4))
        for (size_t i = fuzz_below(r, 9000); i > 0; i--) mt_str_putc(&content, (char)fuzz_u64(r));
    mt_str_printf(&body, "{\"sha\": \"%s\"}", fuzz_once_in(r, 20) ? "main" : COMMIT);
    put_answer(r, out, "", &body);
    mt_str_puts(out, FUZZ_CUT);
    put_answer(r, out, "ETag: \"x\"\r\n", &content);
    for (size_t page = 0, n_pages = 1 + fuzz_below(r, 3); page < n_pages; page++) {
        mt_str_clear(&list);
        mt_str_puts(&list, "[");
        if (page == 0) put_file(r, &list, "config.json", &content, false);
        if (page == 0) put_file(r, &list, "model.safetensors", &content, fuzz_once_in(r, 2));
        for (size_t i = fuzz_below(r, 4); i > 0; i--) put_file(r, &list, FUZZ_PICK(r, paths), &content, fuzz_once_in(r, 3));
        mt_str_puts(&list, "]");
        mt_str_puts(out, FUZZ_CUT);
        put_answer(r, out, page + 1 < n_pages ? "Link: </api/models/acme/tiny/tree/next>; rel=\"next\"\r\n" : "", &list);
    }
    if (fuzz_once_in(r, 4)) fuzz_damage(r, out, 1);
    mt_str_free(&content);
    mt_str_free(&body);
    mt_str_free(&list);
}
