/* hub_server.h - a small hub on loopback: what the real one answers, as far as we ask, and every way it can misbehave.
 *
 *     hub_server *s = hub_server_start();
 *     hub_repo *r = hub_add_repo(s, "acme/tiny", false);
 *     hub_add_file(r, "config.json", "{}", 2, false);
 *     hub_add_rule(s, (hub_rule){ .match = "config.json", .status = 500, .times = 2 });
 *     setenv("HF_ENDPOINT", s->endpoint, 1);
 *     ...
 *     hub_server_stop(s);
 *
 * As the real one does: large files (lfs) are answered with a redirect to another host (a second port here), at an address that
 * is signed letter by letter and takes no Authorization; small ones with a relative redirect; a repository that was renamed, and
 * everything in it, with a relative 307; listings in pages, the next one's address in Link; RateLimit on every answer; Xet's
 * headers on large files, which plain HTTP may ignore.  Requests are logged, one line each: "METHOD PORT TARGET range=...
 * auth=...". */
#ifndef MT_TEST_HUB_SERVER_H
#define MT_TEST_HUB_SERVER_H

#include "test.h"

#include "base/str.h"
#include "hub/sha.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HUB_MAX_FILES = 32, HUB_MAX_REPOS = 8, HUB_MAX_RULES = 8, HUB_PAGE = 3 };

/* The kind of letters that a client may be tempted to write in another way. */
#define HUB_SIGNATURE                                                                                                            \
    "Expires=1767225600&Policy=eyJ~a-b_&Signature=aB%2Bc%2fd%3D%3D&response-content-disposition=inline%3B+filename%3D%22m.bin%"  \
    "22"

typedef struct hub_file {
    char path[128];
    char *data; /* owned; NULL: size is a claim only */
    uint64_t size;
    bool lfs;
    char git[65], sha[65];
} hub_file;

typedef struct hub_repo {
    char name[128], commit[41];
    const char *old_name; /* it was called so before; NULL: never */
    const char *branch;
    bool dataset, gated, hidden;
    hub_file files[HUB_MAX_FILES];
    int n_files;
} hub_repo;

typedef struct hub_rule {
    const char *match;      /* part of the request's target */
    int times;              /* how often it applies; 0: always */
    int status;             /* answer with this; 0: continue */
    const char *error_code; /* X-Error-Code */
    const char *retry_after, *rate_limit;
    const char *error_message; /* X-Error-Message */
    const char *location;      /* with a status of 3xx */
    long cut_after;            /* close the connection after this many bytes of the body */
    bool wrong;                /* one byte of the body is another */
    bool no_range;             /* answers with the whole */
    int slow_ms;               /* pause before each 4 KiB */
    int used;
} hub_rule;

typedef struct hub_server {
    int listeners[2], ports[2];
    char endpoint[64];
    pthread_t acceptors[2];
    pthread_mutex_t lock;
    int n_busy; /* connections being served */
    hub_repo repos[HUB_MAX_REPOS];
    int n_repos;
    hub_rule rules[HUB_MAX_RULES];
    int n_rules;
    bool short_links; /* the next page's address is given without the host, which the real one does not do */
    mt_str log;
} hub_server;

/* -- what it holds --------------------------------------------------------------------------------- */

static inline hub_repo *hub_add_repo(hub_server *s, const char *name, bool dataset)
{
    assert_true(s->n_repos < HUB_MAX_REPOS);
    hub_repo *r = &s->repos[s->n_repos];
    snprintf(r->name, sizeof r->name, "%s", name);
    snprintf(r->commit, sizeof r->commit, "%040x", 0xc0ffee + s->n_repos++);
    r->branch = "main";
    r->dataset = dataset;
    return r;
}

static inline hub_file *hub_add_file(hub_repo *r, const char *path, const void *data, uint64_t n, bool lfs)
{
    assert_true(r->n_files < HUB_MAX_FILES);
    hub_file *f = &r->files[r->n_files++];
    mt_sha h;
    snprintf(f->path, sizeof f->path, "%s", path);
    f->size = n;
    f->lfs = lfs;
    f->data = data ? malloc(n + 1) : NULL;
    if (data) memcpy(f->data, data, n);
    mt_sha_init(&h, MT_SHA256);
    if (data) mt_sha_add(&h, data, n);
    mt_sha_hex(&h, f->sha);
    mt_sha_init_git(&h, n);
    if (data) mt_sha_add(&h, data, n);
    mt_sha_hex(&h, f->git);
    return f;
}

static inline const char *hub_hash(const hub_file *f) { return f->lfs ? f->sha : f->git; }

static inline void hub_add_rule(hub_server *s, hub_rule rule)
{
    pthread_mutex_lock(&s->lock);
    assert_true(s->n_rules < HUB_MAX_RULES);
    s->rules[s->n_rules++] = rule;
    pthread_mutex_unlock(&s->lock);
}

static inline void hub_clear_rules(hub_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->n_rules = 0;
    pthread_mutex_unlock(&s->lock);
}

/* Until every answer is out; then what it holds may be changed. */
static inline void hub_wait(hub_server *s)
{
    for (bool busy = true; busy;) {
        pthread_mutex_lock(&s->lock);
        busy = s->n_busy > 0;
        pthread_mutex_unlock(&s->lock);
        if (busy) nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
    }
}

/* How many requests so far have `text` in their line; clears nothing. */
static inline int hub_count(hub_server *s, const char *text)
{
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (const char *p = s->log.s; p && (p = strstr(p, text)); p++) n++;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static inline void hub_clear_log(hub_server *s)
{
    pthread_mutex_lock(&s->lock);
    mt_str_clear(&s->log);
    pthread_mutex_unlock(&s->lock);
}

/* -- one request ----------------------------------------------------------------------------------- */

typedef struct hub_request {
    hub_server *s;
    int fd, port;
    bool head;
    char raw[1024];    /* as it came */
    char target[1024]; /* decoded, with the query */
    char range[64], auth[128];
    hub_rule rule; /* what applies; match NULL: nothing */
} hub_request;

static inline void hub_send(const hub_request *q, const char *data, size_t n)
{
    while (n) {
        size_t piece = q->rule.slow_ms && n > 4096 ? 4096 : n;
        if (q->rule.slow_ms) nanosleep(&(struct timespec){ 0, q->rule.slow_ms * 1000000L }, NULL);
        ssize_t got = send(q->fd, data, piece, MSG_NOSIGNAL);
        if (got <= 0) return;
        data += got, n -= (size_t)got;
    }
}

/* A whole answer; `more` holds further header lines. */
static inline void hub_answer(const hub_request *q, int status, const char *more, const char *body, size_t n)
{
    char head[2048];
    int len = snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n%s%s\r\n", status, n,
                       strstr(more, "RateLimit:") ? "" : "RateLimit: \"api\";r=499;t=300\r\n", more);
    size_t send_n = q->rule.cut_after && (size_t)q->rule.cut_after < n ? (size_t)q->rule.cut_after : n;
    hub_rule none = { 0 };
    hub_request plain = *q;
    plain.rule = none;
    hub_send(&plain, head, (size_t)len);
    if (q->head) return;
    if (!q->rule.wrong || !n) {
        hub_send(q, body, send_n);
        return;
    }
    char *spoiled = malloc(n);
    memcpy(spoiled, body, n);
    spoiled[n / 2] ^= 1;
    hub_send(q, spoiled, send_n);
    free(spoiled);
}

static inline void hub_refuse(const hub_request *q, int status, const char *code)
{
    char more[256];
    snprintf(more, sizeof more, "X-Error-Code: %s\r\nX-Error-Message: no\r\n", code);
    hub_answer(q, status, more, "{\"error\":\"no\"}", 14);
}

/* The bytes of a file, or the range that was asked for. */
static inline void hub_answer_file(const hub_request *q, const hub_repo *r, const hub_file *f)
{
    unsigned long long first = 0, last = f->size ? f->size - 1 : 0;
    char more[512];
    bool ranged = !q->rule.no_range && f->size && sscanf(q->range, "bytes=%llu-%llu", &first, &last) >= 1;
    if (!ranged) first = 0, last = f->size ? f->size - 1 : 0;
    if (last >= f->size && f->size) last = f->size - 1;
    int n = snprintf(more, sizeof more, "ETag: \"%s\"\r\nX-Repo-Commit: %s\r\nAccept-Ranges: bytes\r\n", hub_hash(f), r->commit);
    if (ranged)
        snprintf(more + n, sizeof more - (size_t)n, "Content-Range: bytes %llu-%llu/%llu\r\n", first, last,
                 (unsigned long long)f->size);
    hub_answer(q, ranged ? 206 : 200, more, f->data + first, f->size ? (size_t)(last - first + 1) : 0);
}

/* A file's hash in Xet's storage: another one than the content's. */
static inline void hub_xet_hash(const hub_file *f, char out[65])
{
    for (int i = 0; i < 64; i++) out[i] = f->sha[63 - i];
    out[64] = '\0';
}

static inline void hub_answer_list(const hub_request *q, const hub_repo *r, int page)
{
    mt_str s = { 0 };
    char more[256] = "";
    int first = page * HUB_PAGE, end = first + HUB_PAGE < r->n_files ? first + HUB_PAGE : r->n_files;
    mt_str_puts(&s, "[{\"type\":\"directory\",\"oid\":\"0\",\"size\":0,\"path\":\"folder\"}");
    for (int i = first; i < end; i++) {
        const hub_file *f = &r->files[i];
        mt_str_printf(&s, ",{\"type\":\"file\",\"oid\":\"%s\",\"size\":%llu,\"path\":\"%s\"", f->git, (unsigned long long)f->size,
                      f->path);
        char xet[65];
        hub_xet_hash(f, xet);
        if (f->lfs)
            mt_str_printf(&s, ",\"lfs\":{\"oid\":\"%s\",\"size\":%llu,\"pointerSize\":134},\"xetHash\":\"%s\"", f->sha,
                          (unsigned long long)f->size, xet);
        mt_str_puts(&s, "}");
    }
    mt_str_puts(&s, "]");
    if (end < r->n_files)
        snprintf(more, sizeof more, "Link: <%s/api/%s/%s/tree/%s?recursive=true&limit=%d&cursor=%d%%3D%%3D>; rel=\"next\"\r\n",
                 q->s->short_links ? "" : q->s->endpoint, r->dataset ? "datasets" : "models", r->name, r->commit, HUB_PAGE,
                 page + 1);
    hub_answer(q, 200, more, s.s, s.n);
    mt_str_free(&s);
}

static inline bool hub_starts(const char *text, const char *with, const char **rest)
{
    size_t n = strlen(with);
    *rest = text + n;
    return strncmp(text, with, n) == 0;
}

static inline bool hub_is_revision(const hub_repo *r, const char *text, const char **rest)
{
    return hub_starts(text, r->commit, rest) || hub_starts(text, r->branch, rest);
}

static inline void hub_answer_api(const hub_request *q, const hub_repo *r, const char *rest)
{
    char body[256];
    const char *of, *after, *cursor = strstr(rest, "cursor=");
    if (hub_starts(rest, "/revision/", &of) && hub_is_revision(r, of, &after) && !*after) {
        int n = snprintf(body, sizeof body,
                         "{\"id\":\"%s\",\"sha\":\"%s\",\"siblings\":[],\"private\":false,\"downloads\":0,\"tags\":[]}", r->name,
                         r->commit);
        hub_answer(q, 200, "Content-Type: application/json\r\n", body, (size_t)n);
    } else if (hub_starts(rest, "/tree/", &of) && hub_is_revision(r, of, &after)) {
        hub_answer_list(q, r, cursor ? atoi(cursor + 7) : 0);
    } else {
        hub_refuse(q, 404, "RevisionNotFound");
    }
}

static inline void hub_answer_resolve(const hub_request *q, const hub_repo *r, const char *rest)
{
    char more[1024];
    if (!hub_is_revision(r, rest, &rest) || *rest++ != '/') {
        hub_refuse(q, 404, "RevisionNotFound");
        return;
    }
    for (int i = 0; i < r->n_files; i++) {
        const hub_file *f = &r->files[i];
        if (strcmp(f->path, rest) != 0) continue;
        if (r->gated && strcmp(q->auth, "Bearer good") != 0) {
            hub_refuse(q, *q->auth ? 403 : 401, "GatedRepo");
            return;
        }
        if (f->lfs) { /* to the content network, on another port */
            char xet[65];
            hub_xet_hash(f, xet);
            snprintf(more, sizeof more,
                     "Location: http://127.0.0.1:%d/lfs/%s?%s\r\nX-Repo-Commit: %s\r\nX-Linked-Etag: "
                     "\"%s\"\r\nX-Linked-Size: %llu\r\nX-Xet-Hash: %s\r\n"
                     "Link: <%s/api/models/%s/xet-read-token/%s>; rel=\"xet-auth\"\r\n",
                     q->s->ports[1], f->sha, HUB_SIGNATURE, r->commit, f->sha, (unsigned long long)f->size, xet, q->s->endpoint,
                     r->name, r->commit);
            hub_answer(q, 302, more, "", 0);
        } else if (q->head) {
            hub_answer_file(q, r, f);
        } else { /* to itself, by a relative address */
            snprintf(more, sizeof more, "Location: /api/resolve-cache/%d/%d?etag=%%22%s%%22\r\n", (int)(r - q->s->repos), i,
                     f->git);
            hub_answer(q, 307, more, "", 0);
        }
        return;
    }
    hub_refuse(q, 404, "EntryNotFound");
}

static inline void hub_answer_search(const hub_request *q, bool dataset)
{
    mt_str s = { 0 };
    mt_str_puts(&s, "[");
    for (int i = 0, n = 0; i < q->s->n_repos; i++)
        if (q->s->repos[i].dataset == dataset) mt_str_printf(&s, "%s{\"id\":\"%s\"}", n++ ? "," : "", q->s->repos[i].name);
    mt_str_puts(&s, "]");
    hub_answer(q, 200, "", s.s, s.n);
    mt_str_free(&s);
}

/* An address is good for nothing once a letter of it is another; two ways to say who one is are one too many. */
static inline void hub_answer_lfs(const hub_request *q, const char *sha)
{
    if (!strstr(q->raw, "?" HUB_SIGNATURE) || *q->auth) {
        hub_answer(q, *q->auth ? 400 : 403, "", "", 0);
        return;
    }
    for (int i = 0; i < q->s->n_repos; i++)
        for (int k = 0; k < q->s->repos[i].n_files; k++)
            if (strncmp(q->s->repos[i].files[k].sha, sha, 64) == 0 && q->s->repos[i].files[k].data) {
                hub_answer_file(q, &q->s->repos[i], &q->s->repos[i].files[k]);
                return;
            }
    hub_answer(q, 404, "", "", 0);
}

/* /api/models/OLD/... and /OLD/resolve/... lead to the same below the new name. */
static inline bool hub_answer_renamed(const hub_request *q)
{
    for (int i = 0; i < q->s->n_repos; i++) {
        const hub_repo *r = &q->s->repos[i];
        const char *at = r->old_name ? strstr(q->raw, r->old_name) : NULL;
        char more[1400];
        if (!at || at == q->raw || at[-1] != '/' || at[strlen(r->old_name)] != '/') continue;
        snprintf(more, sizeof more, "Location: %.*s%s%s\r\n", (int)(at - q->raw), q->raw, r->name, at + strlen(r->old_name));
        hub_answer(q, 307, more, "", 0);
        return true;
    }
    return false;
}

static inline void hub_route(const hub_request *q)
{
    const char *rest, *t = q->target;
    int a, b;
    if (q->port == q->s->ports[1] && hub_starts(t, "/lfs/", &rest)) {
        hub_answer_lfs(q, rest);
        return;
    }
    if (hub_answer_renamed(q)) return;
    if (sscanf(t, "/api/resolve-cache/%d/%d", &a, &b) == 2) {
        hub_answer_file(q, &q->s->repos[a], &q->s->repos[a].files[b]);
        return;
    }
    if (hub_starts(t, "/api/models?", &rest) || hub_starts(t, "/api/datasets?", &rest)) {
        hub_answer_search(q, t[5] == 'd');
        return;
    }
    for (int i = 0; i < q->s->n_repos; i++) {
        const hub_repo *r = &q->s->repos[i];
        char api[256], file[256];
        snprintf(api, sizeof api, "/api/%s/%s", r->dataset ? "datasets" : "models", r->name);
        snprintf(file, sizeof file, "/%s%s/resolve/", r->dataset ? "datasets/" : "", r->name);
        if (r->hidden && strcmp(q->auth, "Bearer good") != 0) continue;
        const char *after;
        if (hub_starts(t, file, &rest) && hub_is_revision(r, rest, &after)) {
            hub_answer_resolve(q, r, rest);
            return;
        }
        if (hub_starts(t, api, &rest) && *rest == '/') {
            const char *revision = strchr(rest + 1, '/');
            if (revision && !hub_is_revision(r, revision + 1, &after)) { /* another entry may have it: one per branch */
                bool other = false;
                for (int k = i + 1; k < q->s->n_repos; k++) other = other || strcmp(q->s->repos[k].name, r->name) == 0;
                if (other) continue;
            }
            hub_answer_api(q, r, rest);
            return;
        }
    }
    hub_refuse(q, *q->auth ? 404 : 401, "RepoNotFound");
}

/* -- connections ----------------------------------------------------------------------------------- */

static inline void hub_decode(char *s)
{
    char *to = s;
    for (; *s; s++) {
        unsigned code;
        if (*s == '%' && sscanf(s + 1, "%2x", &code) == 1)
            *to++ = (char)code, s += 2;
        else
            *to++ = *s;
    }
    *to = '\0';
}

static inline void hub_header(const char *text, const char *name, char *out, size_t n)
{
    for (const char *p = strchr(text, '\n'); p && *++p; p = strchr(p, '\n'))
        if (strncasecmp(p, name, strlen(name)) == 0)
            snprintf(out, n, "%.*s", (int)strcspn(p + strlen(name), "\r\n"), p + strlen(name));
}

static inline void hub_choose_rule(hub_request *q)
{
    pthread_mutex_lock(&q->s->lock);
    mt_str_printf(&q->s->log, "%s %s %s range=%s auth=%s\n", q->head ? "HEAD" : "GET", q->port == q->s->ports[0] ? "hub" : "cdn",
                  q->target, q->range, q->auth);
    for (int i = 0; i < q->s->n_rules && !q->rule.match; i++) {
        hub_rule *rule = &q->s->rules[i];
        if (!strstr(q->target, rule->match) || (rule->times && rule->used >= rule->times)) continue;
        rule->used++;
        q->rule = *rule;
    }
    pthread_mutex_unlock(&q->s->lock);
}

static inline void hub_respond(hub_request *q)
{
    char more[512] = "";
    int n = 0;
    const hub_rule *rule = &q->rule;
    if (!rule->match || !rule->status) {
        hub_route(q);
        return;
    }
    if (rule->retry_after) n += snprintf(more + n, sizeof more - (size_t)n, "Retry-After: %s\r\n", rule->retry_after);
    if (rule->error_code) n += snprintf(more + n, sizeof more - (size_t)n, "X-Error-Code: %s\r\n", rule->error_code);
    if (rule->rate_limit) n += snprintf(more + n, sizeof more - (size_t)n, "RateLimit: %s\r\n", rule->rate_limit);
    if (rule->error_message) n += snprintf(more + n, sizeof more - (size_t)n, "X-Error-Message: %s\r\n", rule->error_message);
    if (rule->location) snprintf(more + n, sizeof more - (size_t)n, "Location: %s\r\n", rule->location);
    hub_answer(q, rule->status, more, "", 0);
}

static inline void *hub_serve(void *arg)
{
    hub_request *q = arg;
    char text[8192], method[8] = "";
    size_t n = 0;
    while (n < sizeof text - 1) {
        ssize_t got = recv(q->fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
        text[n] = '\0';
        if (strstr(text, "\r\n\r\n")) break;
    }
    text[n] = '\0';
    if (sscanf(text, "%7s %1023s", method, q->raw) == 2) {
        memcpy(q->target, q->raw, sizeof q->target);
        q->head = strcmp(method, "HEAD") == 0;
        hub_decode(q->target);
        hub_header(text, "Range: ", q->range, sizeof q->range);
        hub_header(text, "Authorization: ", q->auth, sizeof q->auth);
        hub_choose_rule(q);
        hub_respond(q);
    }
    shutdown(q->fd, SHUT_RDWR);
    close(q->fd);
    pthread_mutex_lock(&q->s->lock);
    q->s->n_busy--;
    pthread_mutex_unlock(&q->s->lock);
    free(q);
    return NULL;
}

typedef struct hub_acceptor {
    hub_server *s;
    int which;
} hub_acceptor;

static inline void *hub_accept(void *arg)
{
    hub_acceptor a = *(hub_acceptor *)arg;
    free(arg);
    for (int fd; (fd = accept(a.s->listeners[a.which], NULL, NULL)) >= 0;) {
        hub_request *q = calloc(1, sizeof *q);
        pthread_t t;
        *q = (hub_request){ .s = a.s, .fd = fd, .port = a.s->ports[a.which] };
        pthread_mutex_lock(&a.s->lock);
        a.s->n_busy++;
        pthread_mutex_unlock(&a.s->lock);
        if (pthread_create(&t, NULL, hub_serve, q)) abort();
        pthread_detach(t);
    }
    return NULL;
}

static inline hub_server *hub_server_start(void)
{
    hub_server *s = calloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof at;
        s->listeners[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(s->listeners[i], (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(listen(s->listeners[i], 64), 0);
        assert_int_equal(getsockname(s->listeners[i], (struct sockaddr *)&at, &n), 0);
        s->ports[i] = ntohs(at.sin_port);
    }
    snprintf(s->endpoint, sizeof s->endpoint, "http://127.0.0.1:%d", s->ports[0]);
    for (int i = 0; i < 2; i++) {
        hub_acceptor *a = malloc(sizeof *a);
        *a = (hub_acceptor){ s, i };
        assert_int_equal(pthread_create(&s->acceptors[i], NULL, hub_accept, a), 0);
    }
    return s;
}

static inline void hub_server_stop(hub_server *s)
{
    for (int i = 0; i < 2; i++) {
        shutdown(s->listeners[i], SHUT_RDWR);
        pthread_join(s->acceptors[i], NULL);
        close(s->listeners[i]);
    }
    hub_wait(s);
    for (int i = 0; i < s->n_repos; i++)
        for (int k = 0; k < s->repos[i].n_files; k++) free(s->repos[i].files[k].data);
    mt_str_free(&s->log);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

#endif
