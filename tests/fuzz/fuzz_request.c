/* fuzz_request.c - any bytes as a request to the dashboard's server.
 *
 * There is at most one answer and it is well formed.  It does not depend on the pieces in which the bytes arrive.  A request
 * without the key sees nothing of the run. */
#define _GNU_SOURCE
#include "folder.h"
#include "harness.h"
#include "page/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEY    "00112233445566778899aabbccddeeff"
#define SECRET "9c1e77d0-a-line-of-the-run"

static void fill_folder(void)
{
    folder_put_text("metrics.jsonl", "{\"step\": 1, \"loss\": 2.5, \"note\": \"" SECRET "\"}\n{\"step\": 2, \"loss\": 2.25}\n");
    folder_put_text("plan.json", "{\"metrics_file\": \"metrics.jsonl\"}\n");
    folder_put_text("log.txt", "a line of the log\n");
}

/* A status of ours, the length it says, and one empty line before the body. */
static void check_answer(const mt_str *a)
{
    static const char *const statuses[] = { "200 OK\r\n", "400 Bad Request\r\n", "403 Forbidden\r\n", "404 Not Found\r\n",
                                            "405 Method Not Allowed\r\n" };
    const char *body = strstr(a->s, "\r\n\r\n"), *length = strstr(a->s, "Content-Length: ");
    bool known = false;
    expect(strncmp(a->s, "HTTP/1.1 ", 9) == 0 && body && length && length < body);
    for (size_t i = 0; i < MT_COUNT(statuses); i++) known |= strncmp(a->s + 9, statuses[i], strlen(statuses[i])) == 0;
    expect(known);
    expect(strtoull(length + 16, NULL, 10) == a->n - (size_t)(body + 4 - a->s));
}

/* The answer to the bytes as they arrive, `step` at a time; empty: it waits for more.  Returns how many had arrived by then. */
static size_t arrive(const mt__asked *of, const uint8_t *data, size_t size, size_t step, mt_str *answer)
{
    size_t n = 0;
    char *request = malloc(size + 1);
    expect(request != NULL);
    while (n < size && !answer->n) {
        size_t more = size - n < step ? size - n : step;
        memcpy(request + n, data + n, more);
        request[n += more] = '\0';
        mt__request_answer(of, request, n, answer);
    }
    free(request);
    expect(mt_str_ok(answer));
    if (answer->n) check_answer(answer);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (folder_make()) fill_folder();
    mt__asked of = { { .dir = folder_root }, KEY };
    if (size > MT__MAX_REQUEST) size = MT__MAX_REQUEST;
    mt_str bits = { 0 }, whole = { 0 };
    size_t n = arrive(&of, data, size, size < 512 ? 1 : 97, &bits);
    arrive(&of, data, n, n ? n : 1, &whole);
    expect(bits.n == whole.n && (!bits.n || memcmp(bits.s, whole.s, bits.n) == 0));
    if (!part_has((const char *)data, size, KEY)) expect(!part_has(bits.s, bits.n, SECRET));
    mt_str_free(&bits);
    mt_str_free(&whole);
    return 0;
}
