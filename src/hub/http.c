#include "hub/http.h"

#include "base/log.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_REDIRECTS = 8,
    MAX_BODY = 64 << 20,
    MAX_ERROR_BODY = 4096,
    MAX_TRIES = 5,
    MAX_TRIES_TO_CONNECT = 3,
    CONNECT_S = 15,
    SILENCE_S = 60
};
static const double longest_wait_s = 330; /* the hub counts requests per 300 s; a longer wait is reported to the user instead */

struct mt_http {
    CURLSH *kept; /* connections, from one request to the next */
    CURLU *home;  /* the endpoint: where the token may go */
    char *token;  /* "Authorization: Bearer ..." or NULL */
};

typedef struct transfer {
    CURL *curl; /* of the current address */
    const mt_http_request *q;
    mt_http_response *r;
    mt_err *err;
    int64_t first; /* where the body begins in the whole, by Content-Range */
    mt_rc refused; /* by the sink, or the body is too long */
} transfer;

/* -- who may see the token ------------------------------------------------------------------------- */

static char *part_of(CURLU *u, CURLUPart part)
{
    char *text = NULL;
    return curl_url_get(u, part, &text, CURLU_DEFAULT_PORT) ? NULL : text;
}

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
    char *x = part_of(a, part), *y = part_of(b, part);
    bool same = x && y && strcasecmp(x, y) == 0;
    curl_free(x);
    curl_free(y);
    return same;
}

static bool is_home(const mt_http *h, CURLU *url)
{
    return same_part(h->home, url, CURLUPART_SCHEME) && same_part(h->home, url, CURLUPART_HOST) &&
           same_part(h->home, url, CURLUPART_PORT);
}

/* http or https, and not down from https to http. */
static bool may_go(const mt_http *h, CURLU *url)
{
    char *scheme = part_of(url, CURLUPART_SCHEME), *home = part_of(h->home, CURLUPART_SCHEME);
    bool secure = scheme && strcasecmp(scheme, "https") == 0, plain = scheme && strcasecmp(scheme, "http") == 0;
    bool ok = secure || (plain && home && strcasecmp(home, "http") == 0);
    curl_free(scheme);
    curl_free(home);
    return ok;
}

/* -- what comes back ------------------------------------------------------------------------------- */

/* It may be shown: what would move a terminal's cursor is left out. */
static void copy_value(char *out, size_t cap, const char *value, size_t n)
{
    n = n < cap - 1 ? n : cap - 1;
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)value[i] < 0x20 || value[i] == 0x7f ? '?' : value[i];
    out[n] = '\0';
}

/* <https://...>; rel="next", possibly among others */
static void read_link(mt_http_response *r, const char *value, size_t n)
{
    char *text = mt_strndup(value, n);
    for (char *p = text; p && (p = strchr(p, '<'));) {
        char *end = strchr(p, '>'), *after = end ? end + strcspn(end, ",") : NULL;
        if (!end) break;
        char *rel = strstr(end, "rel=\"next\"");
        if (rel && rel < after) {
            mt_free(r->next);
            r->next = mt_strndup(p + 1, (size_t)(end - p - 1));
        }
        p = after;
    }
    mt_free(text);
}

/* "120", or "Wed, 21 Oct 2026 07:28:00 GMT"; negative: neither. */
static double seconds_until(const char *value)
{
    if (value[0] >= '0' && value[0] <= '9') return strtod(value, NULL);
    time_t when = curl_getdate(value, NULL), now = time(NULL);
    if (when == (time_t)-1) return -1;
    return when > now ? (double)(when - now) : 0;
}

/* The hub's own way to say it, on every answer: "api";r=0;t=55 (requests left, seconds to the next window). */
static double seconds_to_next_window(const char *value)
{
    const char *left = strstr(value, "r="), *until = strstr(value, "t=");
    bool used_up = left && until && strtol(left + 2, NULL, 10) == 0;
    return used_up ? strtod(until + 2, NULL) + 1 : -1; /* it rounds down */
}

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    transfer *t = user;
    size_t total = size * n, name = 0;
    while (name < total && line[name] != ':') name++;
    if (name == total) return total; /* the status line, or the end */
    const char *value = line + name + 1;
    size_t value_n = total - name - 1;
    while (value_n && (*value == ' ' || *value == '\t')) value++, value_n--;
    while (value_n && (unsigned char)value[value_n - 1] <= ' ') value_n--;
    char text[64];
    copy_value(text, sizeof text, value, value_n);
#define IS(header) (name == sizeof header - 1 && strncasecmp(line, header, name) == 0)
    if (IS("X-Error-Code")) copy_value(t->r->error_code, sizeof t->r->error_code, value, value_n);
    if (IS("X-Error-Message")) copy_value(t->r->error_message, sizeof t->r->error_message, value, value_n);
    if (IS("Link")) read_link(t->r, value, value_n);
    if (IS("Retry-After") && t->r->retry_after_s < 0) t->r->retry_after_s = seconds_until(text);
    if (IS("RateLimit") && seconds_to_next_window(text) >= 0) t->r->retry_after_s = seconds_to_next_window(text);
    if (IS("Content-Range") && strncasecmp(text, "bytes ", 6) == 0) t->first = strtoll(text + 6, NULL, 10);
#undef IS
    return total;
}

/* A success goes to the sink; anything else, and everything without one, is kept to be read. */
static size_t on_body(char *data, size_t size, size_t n, void *user)
{
    transfer *t = user;
    size_t total = size * n;
    long status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    bool success = status == 200 || status == 206;
    if (success && t->q->sink) {
        t->refused = t->q->sink(t->q->user, status == 206 ? t->first : -1, data, total, t->err);
        return t->refused ? 0 : total;
    }
    size_t room = (success ? MAX_BODY : MAX_ERROR_BODY) - t->r->body.n;
    if (total > room && success) {
        t->refused = mt_fail(t->err, MT_EFORMAT, "%s: an answer of more than %d MiB", t->q->url, MAX_BODY >> 20);
        return 0;
    }
    mt_str_add(&t->r->body, data, total < room ? total : room);
    return total;
}

static int on_progress(void *user, curl_off_t dl_total, curl_off_t dl, curl_off_t ul_total, curl_off_t ul)
{
    (void)dl_total, (void)dl, (void)ul_total, (void)ul;
    const mt_http_request *q = user;
    return q->stop && atomic_load(q->stop);
}

/* -- asking ---------------------------------------------------------------------------------------- */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static void start_curl(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

/* Where the authorities' certificates are, if libcurl was built on a distribution that keeps them elsewhere. */
static const char *find_certificates(void)
{
    static const char *const variables[] = { "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE" };
    static const char *const files[] = { "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem" };
    for (size_t i = 0; i < MT_COUNT(variables); i++)
        if (getenv(variables[i]) && access(getenv(variables[i]), R_OK) == 0) return getenv(variables[i]);
    for (size_t i = 0; i < MT_COUNT(files); i++)
        if (access(files[i], R_OK) == 0) return files[i];
    return NULL;
}

/* A connection belongs to one thread, so nothing is locked. */
static CURLSH *open_kept(void)
{
    static const curl_lock_data what[] = { CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_DNS, CURL_LOCK_DATA_SSL_SESSION };
    CURLSH *kept = curl_share_init();
    for (size_t i = 0; kept && i < MT_COUNT(what); i++) curl_share_setopt(kept, CURLSHOPT_SHARE, what[i]);
    return kept;
}

mt_rc mt_http_open(mt_http **out, const char *endpoint, const char *token, mt_err *err)
{
    *out = NULL;
    pthread_once(&curl_once, start_curl);
    mt_http *h = mt_calloc(1, sizeof *h);
    if (!h) return mt_no_memory(err, "a connection");
    h->kept = open_kept();
    h->home = curl_url();
    if (token) h->token = mt_asprintf("Authorization: Bearer %s", token);
    mt_rc rc = MT_OK;
    if (!h->kept || !h->home || (token && !h->token))
        rc = mt_no_memory(err, "a connection");
    else if (curl_url_set(h->home, CURLUPART_URL, endpoint, 0))
        rc = mt_fail(err, MT_EINVAL, "HF_ENDPOINT: \"%.200s\" is not an address", endpoint);
    if (rc)
        mt_http_close(h);
    else
        *out = h;
    return rc;
}

void mt_http_close(mt_http *h)
{
    if (!h) return;
    curl_share_cleanup(h->kept);
    curl_url_cleanup(h->home);
    mt_free(h->token);
    mt_free(h);
}

static void set_up(const mt_http *h, transfer *t, const char *url, struct curl_slist *headers)
{
    CURL *c = t->curl;
    const char *certificates = find_certificates();
    char range[64];
    curl_easy_setopt(c, CURLOPT_SHARE, h->kept);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "megatrain/" MT_VERSION);
    curl_easy_setopt(c, CURLOPT_ACCEPT_ENCODING, "identity"); /* ranges are of the file, not of something packed */
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 1L << 18);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, (void *)(uintptr_t)t->q);
    if (headers) curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    if (certificates) curl_easy_setopt(c, CURLOPT_CAINFO, certificates);
    if (t->q->end) {
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)t->q->first, (unsigned long long)t->q->end - 1);
        curl_easy_setopt(c, CURLOPT_RANGE, range);
    }
}

static mt_rc failed(transfer *t, CURLcode code)
{
    mt_http_response *r = t->r;
    if (t->refused) return t->refused;
    if (code == CURLE_ABORTED_BY_CALLBACK) return mt_fail(t->err, MT_ESTOPPED, "the download was stopped");
    if (code == CURLE_OUT_OF_MEMORY) return mt_no_memory(t->err, "a download");
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        return mt_fail(t->err, MT_EIO,
                       "%s: this machine does not trust its certificate.  If a proxy opens connections, set "
                       "SSL_CERT_FILE to "
                       "its certificate",
                       t->q->url);
    r->cut = true;
    r->unreachable = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_PROXY ||
                     (code == CURLE_OPERATION_TIMEDOUT && !r->status);
    return mt_fail(t->err, MT_EIO, "%s: %s", t->q->url, curl_easy_strerror(code));
}

/* A name and a password in an address that a server gives would be sent as credentials; none are ours to send elsewhere. */
static void remove_credentials(CURLU *url)
{
    curl_url_set(url, CURLUPART_USER, NULL, 0);
    curl_url_set(url, CURLUPART_PASSWORD, NULL, 0);
}

/* One address, no redirect.  Each gets a new handle: libcurl 7.88 leaves a pointer to the last header of an answer in its handle,
 * frees that header, and uses the pointer if the next answer begins with a folded header. */
static mt_rc perform(const mt_http *h, transfer *t, CURLU *url)
{
    struct curl_slist *headers = NULL;
    if (!is_home(h, url)) remove_credentials(url);
    char *text = part_of(url, CURLUPART_URL);
    curl_easy_cleanup(t->curl);
    t->curl = curl_easy_init();
    if (!text || !t->curl) return curl_free(text), mt_no_memory(t->err, "an address");
    if (h->token && is_home(h, url)) headers = curl_slist_append(NULL, h->token);
    set_up(h, t, text, headers);
    t->r->status = 0;
    CURLcode code = curl_easy_perform(t->curl);
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &t->r->status);
    curl_slist_free_all(headers);
    curl_free(text);
    return code ? failed(t, code) : MT_OK;
}

/* Where a redirect leads, checked. */
static mt_rc follow(const mt_http *h, transfer *t, CURLU *url)
{
    char *to = NULL;
    curl_easy_getinfo(t->curl, CURLINFO_REDIRECT_URL, &to);
    if (!to || curl_url_set(url, CURLUPART_URL, to, 0))
        return mt_fail(t->err, MT_EFORMAT, "%s: the server redirects to no address", t->q->url);
    if (!may_go(h, url))
        return mt_fail(t->err, MT_EFORMAT, "%s: the server redirects to %.*s, which is not safe to follow", t->q->url,
                       (int)strcspn(to, "?"), to); /* the rest may be a key */
    return MT_OK;
}

static mt_rc go(const mt_http *h, transfer *t, CURLU *url)
{
    for (int i = 0; i <= MAX_REDIRECTS; i++) {
        mt_str_clear(&t->r->body);
        MT_TRY(perform(h, t, url));
        if (t->r->status < 300 || t->r->status > 399) return MT_OK;
        MT_TRY(follow(h, t, url));
    }
    return mt_fail(t->err, MT_EFORMAT, "%s: redirected more than %d times", t->q->url, MAX_REDIRECTS);
}

/* The next page's address may be given relative to this one's. */
static mt_rc complete_next(const mt_http *h, transfer *t, CURLU *url)
{
    char *whole = NULL;
    if (!t->r->next) return MT_OK;
    if (curl_url_set(url, CURLUPART_URL, t->r->next, 0) || !may_go(h, url) || !(whole = part_of(url, CURLUPART_URL)))
        return mt_fail(t->err, MT_EFORMAT, "%s: \"%.200s\" is not the address of a next page", t->q->url, t->r->next);
    mt_free(t->r->next);
    t->r->next = mt_strdup(whole);
    curl_free(whole);
    return t->r->next ? MT_OK : mt_no_memory(t->err, "an address");
}

mt_rc mt_http_get(mt_http *h, const mt_http_request *q, mt_http_response *r, mt_err *err)
{
    *r = (mt_http_response){ .retry_after_s = -1 };
    transfer t = { .q = q, .r = r, .err = err };
    CURLU *url = curl_url();
    mt_rc rc = url && !curl_url_set(url, CURLUPART_URL, q->url, 0)
                   ? go(h, &t, url)
                   : mt_fail(err, MT_EFORMAT, "\"%.200s\" is not an address", q->url);
    if (!rc) rc = complete_next(h, &t, url);
    curl_easy_cleanup(t.curl);
    curl_url_cleanup(url);
    if (!rc && !mt_str_ok(&r->body)) rc = mt_no_memory(err, "an answer of the hub");
    return rc;
}

void mt_http_response_free(mt_http_response *r)
{
    mt_str_free(&r->body);
    mt_free(r->next);
    *r = (mt_http_response){ 0 };
}

/* -- patience -------------------------------------------------------------------------------------- */

static bool sleep_unless(double s, const atomic_bool *stop)
{
    const double LOOK_S = 0.05;
    while (s > 0 && !(stop && atomic_load(stop))) {
        double now = s < LOOK_S ? s : LOOK_S;
        nanosleep(&(struct timespec){ 0, (long)(now * 1e9) }, NULL);
        s -= now;
    }
    return !(stop && atomic_load(stop));
}

bool mt_http_try_again(const mt_http_response *r, mt_rc rc, int n_tries, double pause_s, const atomic_bool *stop)
{
    bool busy = !rc && (r->status == 429 || r->status == 408 || r->status >= 500), cut = rc == MT_EIO && r->cut;
    if (n_tries >= (r->unreachable ? MAX_TRIES_TO_CONNECT : MAX_TRIES) || (!busy && !cut)) return false;
    double wait = pause_s * (double)(1 << (n_tries - 1));
    if (busy && r->retry_after_s >= 0) {
        if (r->retry_after_s > longest_wait_s) return false;
        wait = r->retry_after_s;
    }
    const char *why = r->status == 429 ? "requests a pause" : "is in trouble";
    if (wait >= 2) mt_info("the hub %s; trying again in %.0f s", cut ? "does not answer" : why, wait);
    return sleep_unless(wait, stop);
}

mt_rc mt_http_get_patiently(mt_http *h, const mt_http_request *q, double pause_s, mt_http_response *r, mt_err *err)
{
    for (int n_tries = 1;; n_tries++) {
        mt_rc rc = mt_http_get(h, q, r, err);
        if (!mt_http_try_again(r, rc, n_tries, pause_s, q->stop)) return rc;
        mt_http_response_free(r);
    }
}
