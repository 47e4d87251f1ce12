#include "page/server.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/outfile.h"
#include "base/thread.h"
#include "page/request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_CLIENTS = 16,
    ASK_SECONDS = 10,   /* for a whole request */
    STALL_SECONDS = 30, /* without taking a byte of the answer */
    PORTS_TRIED = 20,
    DEAF_MS = 200, /* after a connection that the system has no descriptor for */
};

typedef struct client {
    int fd; /* -1: free */
    double deadline_s;
    char request[MT__MAX_REQUEST + 1];
    size_t n_request;
    mt_str answer; /* empty while the request is read */
    size_t sent;
} client;

struct mt_server {
    char *dir, *metrics; /* metrics: NULL, or the file the caller named */
    char key[MT__KEY_DIGITS + 1];
    char url[64 + MT__KEY_DIGITS];
    int listener, port;
    double deaf_until_s; /* no connection is accepted before */
    int wake[2];         /* a byte here ends the thread */
    pthread_t thread;
    bool running;
    client clients[MAX_CLIENTS];
};

/* -- clients --------------------------------------------------------------------------------------- */

static void drop(client *c)
{
    if (c->fd >= 0) close(c->fd);
    mt_str_free(&c->answer);
    *c = (client){ .fd = -1 };
}

/* If all places are taken, the client with the least time left goes, so that silent clients do not keep others out. */
static client *find_place(mt_server *s)
{
    client *least = &s->clients[0];
    for (size_t i = 0; i < MAX_CLIENTS; i++) {
        if (s->clients[i].fd < 0) return &s->clients[i];
        if (s->clients[i].deadline_s < least->deadline_s) least = &s->clients[i];
    }
    drop(least);
    return least;
}

static void greet(mt_server *s)
{
    int fd = accept(s->listener, NULL, NULL);
    if (fd < 0) {
        /* A client that was not accepted is still waiting: polling again at once would loop forever. */
        if (errno != EAGAIN && errno != EINTR) s->deaf_until_s = mt_now_s() + DEAF_MS / 1e3;
        return;
    }
    client *c = find_place(s);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    c->fd = fd;
    c->deadline_s = mt_now_s() + ASK_SECONDS;
}

static void server_take(const mt_server *s, client *c)
{
    ssize_t n = recv(c->fd, c->request + c->n_request, MT__MAX_REQUEST - c->n_request, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        drop(c);
        return;
    }
    c->n_request += (size_t)n;
    c->request[c->n_request] = '\0';
    mt__request_answer(&(mt__asked){ { s->dir, s->metrics }, s->key }, c->request, c->n_request, &c->answer);
    if (c->answer.n) c->deadline_s = mt_now_s() + STALL_SECONDS;
    if (!mt_str_ok(&c->answer)) drop(c);
}

static void give(client *c)
{
    ssize_t n = send(c->fd, c->answer.s + c->sent, c->answer.n - c->sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) {
        c->sent += (size_t)n;
        c->deadline_s = mt_now_s() + STALL_SECONDS;
    }
    if (n > 0 && c->sent < c->answer.n) return;
    shutdown(c->fd, SHUT_WR);
    drop(c);
}

static void *serve(void *arg)
{
    mt_server *s = arg;
    for (;;) {
        bool deaf = mt_now_s() < s->deaf_until_s;
        struct pollfd p[2 + MAX_CLIENTS] = { { .fd = s->wake[0], .events = POLLIN },
                                             { .fd = deaf ? -1 : s->listener, .events = POLLIN } };
        for (size_t i = 0; i < MAX_CLIENTS; i++)
            p[2 + i] = (struct pollfd){ .fd = s->clients[i].fd, .events = s->clients[i].answer.n ? POLLOUT : POLLIN };
        int n = poll(p, MT_COUNT(p), deaf ? DEAF_MS : 1000);
        if (n < 0 && errno != EINTR) return NULL;
        if (p[0].revents) return NULL;
        for (size_t i = 0; i < MAX_CLIENTS; i++) {
            client *c = &s->clients[i];
            if (c->fd < 0) continue;
            if (n > 0 && p[2 + i].revents) {
                if (c->answer.n)
                    give(c);
                else
                    server_take(s, c);
            }
            if (c->fd >= 0 && mt_now_s() > c->deadline_s) drop(c);
        }
        if (n > 0 && p[1].revents) greet(s);
    }
}

/* -- open and close -------------------------------------------------------------------------------- */

static int listen_on(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = mt_fault(MT_FAULT_FILE) ? (errno = EMFILE, -1) : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
        yes = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, MAX_CLIENTS) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static mt_rc start_listening(mt_server *s, int port, mt_err *err)
{
    int tries = port == MT_SERVER_PORT ? PORTS_TRIED : 1;
    for (int i = 0; i < tries; i++) {
        s->port = port + i;
        s->listener = listen_on(s->port);
        if (s->listener >= 0 || errno != EADDRINUSE) break;
    }
    if (s->listener >= 0) return MT_OK;
    if (errno == EADDRINUSE && tries > 1)
        return mt_fail(err, MT_EBUSY,
                       "ports %d to %d of this machine are all in use; choose one (train --dashboard PORT, report --serve PORT)",
                       port, port + tries - 1);
    if (errno == EADDRINUSE)
        return mt_fail(err, MT_EBUSY,
                       "port %d of this machine is in use; choose another (train --dashboard PORT, report --serve PORT)", port);
    return mt_fail_errno(err, MT_EIO, "opening port %d of this machine for the dashboard", s->port);
}

/* -- the key --------------------------------------------------------------------------------------- */

/* A folder that only its owner, who is this user, can look into. */
static bool is_private(const char *folder)
{
    struct stat st;
    return lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077);
}

/* The key of an earlier server, so that an open page continues to work. */
static bool find_key(mt_server *s)
{
    mt_err ignored;
    char *folder = mt_path_join(s->dir, MT_SERVER_FOLDER), *path = mt_path_join(s->dir, MT_SERVER_FILE), *text = NULL;
    size_t n = 0;
    bool there = folder && path && is_private(folder) && !mt_file_read_own(&text, &n, path, sizeof s->url, &ignored);
    const char *key = there && n > MT__KEY_DIGITS + 2 ? text + n - MT__KEY_DIGITS - 2 : NULL; /* .../KEY/ and the line's end */
    bool found =
        key && key[-1] == '/' && strspn(key, "0123456789abcdef") == MT__KEY_DIGITS && strcmp(key + MT__KEY_DIGITS, "/\n") == 0;
    if (found) memcpy(s->key, key, MT__KEY_DIGITS);
    mt_free(text);
    mt_free(folder);
    mt_free(path);
    return found;
}

static mt_rc choose_key(mt_server *s, mt_err *err)
{
    unsigned char bytes[MT__KEY_BYTES];
    if (find_key(s)) return MT_OK;
    if (getentropy(bytes, sizeof bytes)) return mt_fail_errno(err, MT_EIO, "drawing a key for the dashboard");
    for (int i = 0; i < MT__KEY_BYTES; i++) snprintf(s->key + 2 * i, 3, "%02x", bytes[i]);
    return MT_OK;
}

static mt_rc make_private(const char *folder, mt_err *err)
{
    if (mt_disk_mkdir(folder, 0700) && errno != EEXIST) return mt_fail_errno(err, MT_EIO, "creating %s", folder);
    if (is_private(folder)) return MT_OK;
    return mt_fail(err, MT_EINVAL, "%s is not a folder that only its owner can look into (chmod 700)", folder);
}

mt_rc mt_server_keep(const mt_server *s, mt_err *err)
{
    char line[sizeof s->url + 1], *folder = mt_path_join(s->dir, MT_SERVER_FOLDER), *path = mt_path_join(s->dir, MT_SERVER_FILE);
    snprintf(line, sizeof line, "%s\n", s->url);
    mt_rc rc = folder && path ? make_private(folder, err) : mt_no_memory(err, "the dashboard");
    if (!rc) rc = mt_outfile_save(path, line, strlen(line), err);
    mt_free(folder);
    mt_free(path);
    return rc;
}

mt_rc mt_server_open(mt_server **out, const mt_run_at *run, int port, mt_err *err)
{
    *out = NULL;
    mt_server *s = mt_calloc(1, sizeof *s);
    if (!s) return mt_no_memory(err, "the dashboard");
    s->listener = s->wake[0] = s->wake[1] = -1;
    for (size_t i = 0; i < MAX_CLIENTS; i++) s->clients[i].fd = -1;
    s->dir = mt_strdup(run->dir);
    s->metrics = run->metrics ? mt_strdup(run->metrics) : NULL;
    bool named = s->dir && !run->metrics == !s->metrics;
    mt_rc rc = named ? choose_key(s, err) : mt_no_memory(err, "the dashboard");
    if (!rc) rc = start_listening(s, port, err);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d/%s/", s->port, s->key);
    if (!rc && pipe(s->wake)) rc = mt_fail_errno(err, MT_EIO, "starting the dashboard");
    if (!rc && !mt_thread_start(&s->thread, serve, s)) rc = mt_fail(err, MT_EIO, "the dashboard's thread did not start");
    if (rc) {
        mt_server_close(s);
        return rc;
    }
    s->running = true;
    *out = s;
    return MT_OK;
}

int mt_server_port(const mt_server *s) { return s->port; }
const char *mt_server_url(const mt_server *s) { return s->url; }

void mt_server_close(mt_server *s)
{
    if (!s) return;
    if (s->running) {
        ssize_t n = write(s->wake[1], "", 1);
        (void)n;
        pthread_join(s->thread, NULL);
    }
    for (size_t i = 0; i < MAX_CLIENTS; i++) drop(&s->clients[i]);
    if (s->listener >= 0) close(s->listener);
    if (s->wake[0] >= 0) close(s->wake[0]);
    if (s->wake[1] >= 0) close(s->wake[1]);
    mt_free(s->dir);
    mt_free(s->metrics);
    mt_free(s);
}
