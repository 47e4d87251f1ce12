/* The page of a run: what it holds, that nothing in a run's files can break it, and a server that minds its own business. */
#include "tempdir.h"
#include "test.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/outfile.h"
#include "page/page.h"
#include "page/run_view.h"
#include "page/server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* -- a run's directory ----------------------------------------------------------------------------- */

static void put(const char *dir, const char *name, const char *text)
{
    mt_err err;
    char *path = mt_path_join(dir, name);
    assert_ok(mt_outfile_save(path, text, strlen(text), &err));
    mt_free(path);
}

static const mt_value *view(const char *dir, int64_t from)
{
    mt_err err;
    mt_str s = { 0 };
    const mt_value *out;
    assert_ok(mt_run_view_write(&s, &(mt_run_at){ .dir = dir }, from, &err));
    assert_ok(mt_json_parse(&out, s.s, s.n, "view", &err));
    mt_str_free(&s);
    return out;
}

static const char *text_of(const mt_value *v, const char *key) { return mt_json_string(mt_value_get(v, key)); }
static long long number_of(const mt_value *v, const char *key) { return (long long)mt_value_int(mt_value_get(v, key)); }

static const char TWO_LINES[] = "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 2, \"loss\": 2.25}\n";

static void view_holds_the_files_as_they_are(void **state)
{
    const char *dir = *state;
    put(dir, "metrics.jsonl", TWO_LINES);
    put(dir, "plan.json", "{\"n_steps\": 2}");
    put(dir, "log.txt", "line </script> \"quoted\" \xff\n");
    const mt_value *v = view(dir, 0);
    assert_string_equal(text_of(v, "metrics"), TWO_LINES);
    assert_string_equal(text_of(v, "plan"), "{\"n_steps\": 2}");
    assert_string_equal(text_of(v, "log"), "line </script> \"quoted\" \xef\xbf\xbd\n");
    assert_string_equal(text_of(v, "config"), "");
    assert_int_equal(number_of(v, "bytes"), sizeof TWO_LINES - 1);
    mt_json_free(v);
}

static void view_goes_on_where_it_stopped(void **state)
{
    const char *dir = *state;
    put(dir, "metrics.jsonl", "{\"step\": 1}\n{\"step\": 2}\n{\"st"); /* the third is being written */
    const mt_value *v = view(dir, 12);
    assert_string_equal(text_of(v, "metrics"), "{\"step\": 2}\n");
    assert_int_equal(number_of(v, "bytes"), 24);
    mt_json_free(v);
    v = view(dir, 1000); /* the run was resumed and the file is shorter: everything again */
    assert_int_equal(number_of(v, "from"), 0);
    assert_string_equal(text_of(v, "metrics"), "{\"step\": 1}\n{\"step\": 2}\n");
    mt_json_free(v);
}

static void long_runs_are_thinned_but_keep_evaluations_and_the_end(void **state)
{
    enum { LINES = 50000 };
    const char *dir = *state;
    mt_str s = { 0 };
    for (int i = 1; i <= LINES; i++) {
        mt_str_printf(&s, "{\"step\": %d, \"loss\": 1}\n", i);
        if (i % 9999 == 0) mt_str_printf(&s, "{\"step\": %d, \"eval_loss\": 1}\n", i);
    }
    put(dir, "metrics.jsonl", s.s);
    const mt_value *v = view(dir, 0);
    int n = 0, evals = 0;
    for (const char *at = text_of(v, "metrics"); *at; at = strchr(at, '\n') + 1, n++)
        evals += strncmp(strstr(at, ", \""), ", \"eval_loss", 12) == 0;
    assert_in_range(n, MT_VIEW_LINES / 2, MT_VIEW_LINES + 10);
    assert_int_equal(evals, LINES / 9999);
    assert_non_null(strstr(text_of(v, "metrics"), "\"step\": 50000, "));
    assert_int_equal(number_of(v, "bytes"), s.n);
    mt_json_free(v);
    mt_str_free(&s);
}

/* Every allocation fails once, of a run so long that lines are left out. */
static void a_view_without_memory_says_so(void **state)
{
    enum { LINES = 2 * MT_VIEW_LINES };
    const char *dir = *state;
    mt_str text = { 0 };
    for (int i = 0; i < LINES; i++) mt_str_printf(&text, "{\"step\": %d}\n", i);
    put(dir, "metrics.jsonl", text.s);
    mt_str_free(&text);
    for (int n = 0;; n++) {
        mt_err err = { 0 };
        mt_str s = { 0 };
        mt_fault_arm(MT_FAULT_ALLOC, n);
        mt_rc rc = mt_run_view_write(&s, &(mt_run_at){ .dir = dir }, 0, &err);
        bool failed = mt_fault_disarm();
        mt_str_free(&s);
        if (!failed) break;
        if (rc) assert_int_equal(rc, MT_ENOMEM);
    }
}

static void metrics_may_lie_elsewhere(void **state)
{
    const char *dir = *state;
    mt_err err;
    put(dir, "numbers.jsonl", TWO_LINES);
    put(dir, "plan.json", "{\"metrics_file\": \"numbers.jsonl\"}");
    const mt_value *v = view(dir, 0);
    assert_string_equal(text_of(v, "metrics"), TWO_LINES);
    mt_json_free(v);
    assert_ok(mt_run_view_check(&(mt_run_at){ .dir = dir }, &err));
}

static void what_is_no_run_is_refused(void **state)
{
    const char *dir = *state;
    mt_err err;
    assert_int_equal(mt_run_view_check(&(mt_run_at){ .dir = dir }, &err), MT_EINVAL);
    assert_says("holds no run");
    assert_int_equal(mt_run_view_check(&(mt_run_at){ .dir = "/nowhere/at/all" }, &err), MT_EINVAL);
    assert_says("no directory");
}

/* -- the page -------------------------------------------------------------------------------------- */

static void nothing_in_a_run_ends_the_script(void **state)
{
    const char *dir = *state;
    mt_err err;
    mt_str page = { 0 };
    put(dir, "metrics.jsonl", "{\"step\": 1, \"sample\": \"</script><script>alert(1)</script><!--\"}\n");
    const mt_run_at runs[] = { { .dir = dir }, { .dir = dir } };
    assert_ok(mt_page_write(&page, runs, 2, false, &err));
    assert_null(strstr(page.s, "alert(1)</script"));
    assert_null(strstr(page.s, "<!--"));
    assert_null(strstr(page.s, "@DATA@"));
    assert_null(strstr(page.s, "@SCRIPT@"));
    /* Nothing is loaded from elsewhere; one name is a namespace. */
    for (const char *far = page.s; (far = strstr(far, "://")); far++)
        assert_true(strncmp(far, "://www.w3.org/2000/svg", 22) == 0);
    mt_str_free(&page);
}

/* The script draws each device from the key that the metrics have (tests/real/dashboard.py looks at the charts). */
static void the_page_draws_each_device(void **state)
{
    const char *dir = *state;
    mt_err err;
    mt_str page = { 0 };
    put(dir, "metrics.jsonl", "{\"step\": 1, \"loss\": 2.5, \"device_seconds\": [1.5, 1.25], \"wait_devices_seconds\": 0.1}\n");
    assert_ok(mt_page_write(&page, &(mt_run_at){ .dir = dir }, 1, false, &err));
    assert_non_null(strstr(page.s, "if (has(\"device_seconds\"))"));
    assert_non_null(strstr(page.s, "[1.5, 1.25]"));
    mt_str_free(&page);
}

/* -- the server ------------------------------------------------------------------------------------ */

static int connect_to(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* What comes back for these bytes, until the server closes. */
static char *ask_bytes(int port, const char *request, size_t n)
{
    static char answer[1 << 20];
    size_t got = 0;
    int fd = connect_to(port);
    assert_int_equal(send(fd, request, n, MSG_NOSIGNAL), n);
    for (ssize_t k; got < sizeof answer - 1 && (k = recv(fd, answer + got, sizeof answer - 1 - got, 0)) > 0;) got += (size_t)k;
    answer[got] = '\0';
    close(fd);
    return answer;
}

static char the_key[64]; /* "/KEY" of the server that was opened last */

/* The request with the key in front of its path. */
static const char *with_key(const char *request)
{
    static char text[1024];
    const char *slash = strncmp(request, "GET /", 5) == 0 ? request + 4 : request;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(slash - request), request, slash > request ? the_key : "", slash);
    return text;
}

static char *ask_without_key(int port, const char *request) { return ask_bytes(port, request, strlen(request)); }
static char *ask(int port, const char *request) { return ask_without_key(port, with_key(request)); }

static void send_request(int fd)
{
    const char *text = with_key("GET / HTTP/1.1\r\n\r\n");
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static mt_server *serve(const char *dir, int *port)
{
    mt_err err;
    mt_server *server;
    put(dir, "metrics.jsonl", TWO_LINES);
    put(dir, "secret.txt", "secret");
    assert_ok(mt_server_open(&server, &(mt_run_at){ .dir = dir }, MT_SERVER_PORT, &err));
    *port = mt_server_port(server);
    snprintf(the_key, sizeof the_key, "%s", strchr(mt_server_url(server) + strlen("http://"), '/'));
    the_key[strlen(the_key) - 1] = '\0';
    return server;
}

static void server_answers_the_page_and_its_data_alone(void **state)
{
    int port;
    mt_server *server = serve(*state, &port);
    const char *page = ask(port, "GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n");
    assert_true(begins(page, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(page, "<!doctype html>"));
    assert_non_null(strstr(page, "\"live\": true"));
    const char *data = ask(port, "GET /data?from=26 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert_true(begins(data, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(data, "2.25"));
    assert_null(strstr(data, "\\\"loss\\\": 2.5}"));
    static const char *const odd[] = { "-5", "x", "99999999999999999999999", "", "1e9" }; /* everything, then */
    for (size_t i = 0; i < MT_COUNT(odd); i++) {
        char request[128];
        snprintf(request, sizeof request, "GET /data?from=%s HTTP/1.1\r\nHost: localhost\r\n\r\n", odd[i]);
        assert_true(begins(ask(port, request), "HTTP/1.1 200 OK\r\n"));
    }
    static const struct {
        const char *request, *status;
    } refused[] = {
        { "GET /secret.txt HTTP/1.1\r\n\r\n", "HTTP/1.1 404" },
        { "GET /../../etc/passwd HTTP/1.1\r\n\r\n", "HTTP/1.1 404" },
        { "GET /data/../secret.txt HTTP/1.1\r\n\r\n", "HTTP/1.1 404" },
        { "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 405" },
        { "DELETE /data HTTP/1.1\r\n\r\n", "HTTP/1.1 405" },
        { "GET / HTTP/1.1\r\nHost: evil.example:8088\r\n\r\n", "HTTP/1.1 403" },
        { "GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", "HTTP/1.1 403" },
        { "GET \r\n\r\n", "HTTP/1.1 400" },
        { "\r\n\r\n", "HTTP/1.1 405" },
    };
    for (size_t i = 0; i < MT_COUNT(refused); i++) {
        const char *a = ask(port, refused[i].request);
        assert_true(begins(a, refused[i].status));
        assert_null(strstr(a, "secret\n"));
    }
    mt_server_close(server);
}

static void server_survives_odd_clients(void **state)
{
    enum { SILENT = 8 };
    int port;
    mt_server *server = serve(*state, &port);
    int silent[SILENT];
    char big[20000];
    memset(big, 'x', sizeof big);
    for (int i = 0; i < SILENT; i++) silent[i] = connect_to(port); /* say nothing, for as long as they like */
    char half[80];
    snprintf(half, sizeof half, "GET %s/ HT", the_key);
    assert_int_equal(send(silent[0], half, strlen(half), MSG_NOSIGNAL), strlen(half));
    int rude = connect_to(port);
    send_request(rude);
    close(rude);                    /* does not wait for its answer */
    int endless = connect_to(port); /* a request without an end */
    (void)!send(endless, big, sizeof big, MSG_NOSIGNAL);
    assert_true(begins(ask_bytes(port, "GET /\0 HTTP/1.1\r\n", 17), "HTTP/1.1 400"));
    assert_true(begins(ask(port, "GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 200"));
    assert_int_equal(send(silent[0], "TP/1.1\r\n\r\n", 10, MSG_NOSIGNAL), 10); /* slow, but in the end well-formed */
    assert_true(recv(silent[0], big, sizeof big, 0) > 0);
    assert_true(begins(big, "HTTP/1.1 200"));
    close(endless);
    for (int i = 0; i < SILENT; i++) close(silent[i]);
    mt_server_close(server);
}

static void silent_clients_keep_nobody_out(void **state)
{
    enum { MANY = 40 };
    int port, silent[MANY];
    mt_server *server = serve(*state, &port);
    for (int i = 0; i < MANY; i++) silent[i] = connect_to(port);
    int slow = connect_to(port); /* asks, and takes its answer later */
    send_request(slow);
    assert_true(begins(ask(port, "GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 200"));
    char first[16] = "";
    assert_true(recv(slow, first, sizeof first - 1, 0) > 0);
    assert_true(begins(first, "HTTP/1.1 200"));
    close(slow);
    for (int i = 0; i < MANY; i++) close(silent[i]);
    mt_server_close(server);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void a_process_without_descriptors_left_does_not_spin(void **state)
{
    enum { LIMIT = 64 };
    int port, filler[LIMIT], n = 0;
    char answer[16] = "";
    struct rlimit was, none;
    mt_server *server = serve(*state, &port);
    do { /* all below LIMIT are in use, */
        filler[n] = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(filler[n] >= 0);
    } while (filler[n++] < LIMIT - 1);
    int fd = filler[--n]; /* but one, the client's */
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = (struct rlimit){ .rlim_cur = (rlim_t)fd + 1, .rlim_max = was.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(connect_to(port), fd);
    double before = cpu_seconds();
    nanosleep(&(struct timespec){ 0, 500000000 }, NULL);
    double used = cpu_seconds() - before;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_true(used < 0.1);
    send_request(fd); /* it has waited, and is let in */
    assert_true(recv(fd, answer, sizeof answer - 1, 0) > 0);
    assert_true(begins(answer, "HTTP/1.1 200"));
    close(fd);
    while (n > 0) close(filler[--n]);
    mt_server_close(server);
}

static void server_is_reached_from_this_machine_alone(void **state)
{
    int port;
    mt_server *server = serve(*state, &port);
    char line[512];
    int listening = 0;
    FILE *f = fopen("/proc/net/tcp", "r");
    assert_non_null(f);
    char ours[32];
    snprintf(ours, sizeof ours, "0100007F:%04X", (unsigned)port); /* 127.0.0.1, and no other address */
    while (fgets(line, sizeof line, f)) {
        unsigned number, address, at_port, far, far_port, status;
        if (sscanf(line, " %u: %8X:%4X %8X:%4X %2X", &number, &address, &at_port, &far, &far_port, &status) != 6) continue;
        if (status != 10 || at_port != (unsigned)port) continue;
        assert_non_null(strstr(line, ours));
        listening++;
    }
    fclose(f);
    assert_int_equal(listening, 1);
    mt_server_close(server);
}

static void a_taken_port_is_named(void **state)
{
    mt_err err;
    mt_server *second;
    int port;
    mt_server *server = serve(*state, &port);
    assert_ok(mt_server_open(&second, &(mt_run_at){ .dir = *state }, MT_SERVER_PORT, &err)); /* the usual one: the next will do */
    assert_true(mt_server_port(second) != port);
    mt_server *third; /* asked for by number: no other one will do */
    assert_int_equal(mt_server_open(&third, &(mt_run_at){ .dir = *state }, mt_server_port(second), &err), MT_EBUSY);
    assert_says("in use; choose another");
    mt_server_close(second);
    mt_server_close(server);
}

/* On a machine with several users the port is open to all of them. */
static void without_the_key_the_server_answers_nothing(void **state)
{
    static const char *const requests[] = { "GET / HTTP/1.1\r\n\r\n", "GET /data HTTP/1.1\r\n\r\n",
                                            "GET /data?from=0 HTTP/1.1\r\n\r\n",
                                            "GET /00000000000000000000000000000000/ HTTP/1.1\r\n\r\n",
                                            "GET // HTTP/1.1\r\n\r\n" };
    int port;
    mt_server *server = serve(*state, &port);
    for (size_t i = 0; i < MT_COUNT(requests); i++) {
        const char *a = ask_without_key(port, requests[i]);
        if (!begins(a, "HTTP/1.1 403")) fail_msg("%s was answered with %s", requests[i], a);
        assert_null(strstr(a, "loss"));
        assert_null(strstr(a, the_key));
    }
    assert_true(begins(ask(port, "GET /data HTTP/1.1\r\n\r\n"), "HTTP/1.1 200"));
    mt_server_close(server);
}

static void the_address_is_kept_for_the_owner_alone_and_used_again(void **state)
{
    mt_err err;
    struct stat st;
    mt_server *server, *again;
    char first[128], *folder = mt_path_join(*state, MT_SERVER_FOLDER), *path = mt_path_join(*state, MT_SERVER_FILE), *text;
    assert_ok(mt_server_open(&server, &(mt_run_at){ .dir = *state }, MT_SERVER_PORT, &err));
    assert_ok(mt_server_keep(server, &err));
    snprintf(first, sizeof first, "%s\n", mt_server_url(server));
    assert_int_equal(lstat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_ok(mt_file_read(&text, NULL, path, 1000, &err));
    assert_string_equal(text, first);
    mt_free(text);
    mt_server_close(server);
    assert_ok(mt_server_open(&again, &(mt_run_at){ .dir = *state }, MT_SERVER_PORT, &err));
    assert_non_null(strstr(first, strchr(mt_server_url(again) + 7, '/')));
    mt_server_close(again);
    assert_int_equal(chmod(folder, 0755), 0); /* then the reader knows it */
    assert_ok(mt_server_open(&again, &(mt_run_at){ .dir = *state }, MT_SERVER_PORT, &err));
    assert_null(strstr(first, strchr(mt_server_url(again) + 7, '/')));
    assert_int_equal(mt_server_keep(again, &err), MT_EINVAL);
    mt_server_close(again);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    mt_free(folder);
    mt_free(path);
}

/* plan.json is whatever the directory's owner wrote: it cannot make a report publish another file. */
static void a_report_reads_only_inside_the_run(void **state)
{
    const char *dir = *state;
    static const char *const plans[] = { "{\"metrics_file\": \"/etc/passwd\"}", "{\"metrics_file\": \"../victim\"}",
                                         "{\"metrics_file\": \"x/../../victim\"}" };
    for (size_t i = 0; i < MT_COUNT(plans); i++) {
        mt_err err = { 0 };
        mt_str s = { 0 };
        put(dir, "plan.json", plans[i]);
        assert_int_equal(mt_run_view_check(&(mt_run_at){ .dir = dir }, &err), MT_EINVAL);
        assert_says("outside the run");
        assert_int_equal(mt_run_view_write(&s, &(mt_run_at){ .dir = dir }, 0, &err), MT_EINVAL);
        assert_ok(mt_run_view_check(&(mt_run_at){ dir, "/etc/passwd" }, &err)); /* named by the user, it is the user's wish */
        mt_str_free(&s);
    }
}

static void links_in_a_run_are_not_followed(void **state)
{
    const char *dir = *state;
    static const char *const names[] = { "metrics.jsonl", "log.txt", "config.yaml", "plan.json" };
    for (size_t i = 0; i < MT_COUNT(names); i++) {
        mt_err err = { 0 };
        mt_str s = { 0 };
        char *path = mt_path_join(dir, names[i]);
        put(dir, "metrics.jsonl", TWO_LINES);
        (void)unlink(path);
        assert_int_equal(symlink("/etc/passwd", path), 0);
        mt_rc rc = mt_run_view_write(&s, &(mt_run_at){ .dir = dir }, 0, &err);
        assert_int_equal(rc != MT_OK, i == 0); /* the others are left out */
        if (!rc) assert_null(strstr(s.s, "root:"));
        mt_str_free(&s);
        assert_int_equal(unlink(path), 0);
        mt_free(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_the_key_the_server_answers_nothing, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(the_address_is_kept_for_the_owner_alone_and_used_again, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(a_report_reads_only_inside_the_run, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(links_in_a_run_are_not_followed, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(view_holds_the_files_as_they_are, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(view_goes_on_where_it_stopped, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(long_runs_are_thinned_but_keep_evaluations_and_the_end, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(a_view_without_memory_says_so, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(metrics_may_lie_elsewhere, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(what_is_no_run_is_refused, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(nothing_in_a_run_ends_the_script, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(the_page_draws_each_device, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(server_answers_the_page_and_its_data_alone, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(server_survives_odd_clients, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(silent_clients_keep_nobody_out, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(a_process_without_descriptors_left_does_not_spin, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(server_is_reached_from_this_machine_alone, tempdir_make, tempdir_remove),
        cmocka_unit_test_setup_teardown(a_taken_port_is_named, tempdir_make, tempdir_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
