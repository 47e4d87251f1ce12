#include "page/request.h"

#include "page/page.h"
#include "page/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* -- answers --------------------------------------------------------------------------------------- */

static void put_answer(mt_str *out, const char *status, const char *type, const char *body, size_t n)
{
    mt_str_printf(
        out,
        "HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
        "'self'; img-src data:; frame-ancestors 'none'\r\n%s\r\n",
        status, type, n, strncmp(status, "405", 3) == 0 ? "Allow: GET\r\n" : "");
    mt_str_add(out, body, n);
}

static void put_plain(mt_str *out, const char *status, const char *text)
{
    put_answer(out, status, "text/plain", text, strlen(text));
}

static void put_failed(mt_str *out, const mt_err *err) { put_plain(out, "500 Internal Server Error", err->msg); }

static void answer_page(const mt__asked *of, mt_str *out)
{
    mt_err err;
    mt_str page = { 0 };
    if (mt_page_write(&page, &of->run, 1, true, &err))
        put_failed(out, &err);
    else
        put_answer(out, "200 OK", "text/html", page.s, page.n);
    mt_str_free(&page);
}

static void answer_data(const mt__asked *of, mt_str *out, const char *query)
{
    mt_err err;
    mt_str json = { 0 };
    long long from = strncmp(query, "from=", 5) == 0 ? strtoll(query + 5, NULL, 10) : 0;
    if (mt_run_view_write(&json, &of->run, from, &err))
        put_failed(out, &err);
    else
        put_answer(out, "200 OK", "application/json", json.s, json.n);
    mt_str_free(&json);
}

/* -- requests -------------------------------------------------------------------------------------- */

/* The value of a header, or NULL; it ends at \r or \n. */
static const char *header(const char *request, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = strchr(request, '\n'); line; line = strchr(line + 1, '\n'))
        if (strncasecmp(line + 1, name, n) == 0 && line[1 + n] == ':') return line + 2 + n + strspn(line + 2 + n, " \t");
    return NULL;
}

/* Another site can point its own host name at 127.0.0.1; the browser then still sends that name. */
static bool is_our_name(const char *host)
{
    static const char *const names[] = { "127.0.0.1", "localhost", "[::1]" };
    if (!host) return true;
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && strchr(":\r\n", host[n])) return true;
    }
    return false;
}

/* The part of a path after "/KEY", or NULL.  It takes as long for a wrong key as for the right one. */
static const char *behind_key(const mt__asked *of, const char *path)
{
    unsigned char differs = 0;
    if (path[0] != '/' || strlen(path) < 1 + MT__KEY_DIGITS) return NULL;
    for (int i = 0; i < MT__KEY_DIGITS; i++) differs |= (unsigned char)(path[1 + i] ^ of->key[i]);
    return differs ? NULL : path + 1 + MT__KEY_DIGITS;
}

static void answer_whole(const mt__asked *of, const char *request, mt_str *answer)
{
    char path[256];
    const char *asked = NULL;
    if (strncmp(request, "GET ", 4) != 0) {
        put_plain(answer, "405 Method Not Allowed", "only GET is answered here\n");
    } else if (!is_our_name(header(request, "Host"))) {
        put_plain(answer, "403 Forbidden", "only names of this machine are answered here\n");
    } else if (sscanf(request + 4, "%255[^ \r\n] HTTP/1.", path) != 1 || path[0] != '/') {
        put_plain(answer, "400 Bad Request", "not understood\n");
    } else if (!(asked = behind_key(of, path))) {
        put_plain(answer, "403 Forbidden",
                  "the address has a key in it: use the one that the terminal shows, or the run's " MT_SERVER_FILE "\n");
    } else if (strcmp(asked, "/") == 0) {
        answer_page(of, answer);
    } else if (strcmp(asked, "/data") == 0 || strncmp(asked, "/data?", 6) == 0) {
        answer_data(of, answer, asked + (asked[5] ? 6 : 5));
    } else {
        put_plain(answer, "404 Not Found", "there is / and /data\n");
    }
}

void mt__request_answer(const mt__asked *of, const char *request, size_t n, mt_str *answer)
{
    if (strstr(request, "\r\n\r\n") || strstr(request, "\n\n"))
        answer_whole(of, request, answer);
    else if (n == MT__MAX_REQUEST || strlen(request) < n)
        put_plain(answer, "400 Bad Request", "not understood\n");
}
