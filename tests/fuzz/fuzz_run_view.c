/* fuzz_run_view.c - the files of a run directory, as the dashboard shows them.  Parts: the byte to start from, metrics.jsonl,
 * plan.json, config.yaml, log.txt.
 *
 * The view is JSON, whatever the files hold.  It reports a place inside the file, and nothing of the files becomes markup in the
 * page.  A file outside the run directory never shows, whatever plan.json names. */
#define _GNU_SOURCE
#include "base/json.h"
#include "folder.h"
#include "harness.h"
#include "page/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET "9c1e77d0-a-line-of-another-file"

static void fill_folder(void)
{
    mkdir(folder_at("run").s, 0777);
    mkdir(folder_at("run/more").s, 0777);
    folder_put_text("secret.jsonl", SECRET "\n");
    folder_put_text("run/more/metrics.jsonl", "{\"step\": 1}\n");
    expect(symlink("../secret.jsonl", folder_at("run/link.jsonl").s) == 0);
    expect(symlink("..", folder_at("run/up").s) == 0);
}

static int64_t number(const mt_value *doc, const char *key)
{
    const mt_value *v = mt_value_get(doc, key);
    expect(mt_value_has(v, MT_VALUE_INT));
    return mt_value_int(v);
}

static void check_view(const mt_str *view, int64_t asked, const fuzz_part *metrics)
{
    static const char *const texts[] = { "name", "metrics", "plan", "config", "log" };
    const mt_value *doc;
    expect(!mt_json_parse(&doc, view->s, view->n, "the view", NULL));
    for (size_t i = 0; i < MT_COUNT(texts); i++) expect(mt_value_has(mt_value_get(doc, texts[i]), MT_VALUE_STR));
    int64_t from = number(doc, "from"), end = number(doc, "bytes");
    expect((from == asked || from == 0) && end >= from);
    if (from) expect((uint64_t)end <= (metrics->n > 12 ? metrics->n : 12)); /* or of more/metrics.jsonl */
    mt_json_free(doc);
}

static size_t count(const mt_str *s, char c)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += s->s[i] == c;
    return n;
}

static void check_page(const mt_run_at *run)
{
    static size_t n_marks; /* of a page without a run */
    mt_err err = { 0 };
    mt_str page = { 0 };
    if (!n_marks) {
        expect(mt_page_write(&page, run, 0, true, &err) == MT_OK);
        n_marks = count(&page, '<');
        mt_str_free(&page);
    }
    expect(mt_page_write(&page, run, 1, true, &err) == MT_OK);
    expect(count(&page, '<') == n_marks);
    mt_str_free(&page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "run/metrics.jsonl", "run/plan.json", "run/config.yaml", "run/log.txt" };
    if (folder_make()) fill_folder();
    fuzz_part start = fuzz_part_of(data, size, 0), metrics = fuzz_part_of(data, size, 1);
    for (size_t i = 0; i < MT_COUNT(names); i++) folder_put(names[i], fuzz_part_of(data, size, 1 + i));
    char digits[24] = "";
    memcpy(digits, start.s, start.n < sizeof digits ? start.n : sizeof digits - 1);
    int64_t from = strtoll(digits, NULL, 10);

    mt_err err = { 0 };
    mt_str view = { 0 };
    folder_path dir = folder_at("run");
    mt_run_at run = { .dir = dir.s };
    mt_rc checked = mt_run_view_check(&run, &err), rc = mt_run_view_write(&view, &run, from, &err);
    expect((!checked && !rc) || *err.msg);
    if (!rc) {
        check_view(&view, from, &metrics);
        check_page(&run);
        expect(!part_has(view.s, view.n, SECRET) || part_has((const char *)data, size, SECRET));
    }
    mt_str_free(&view);
    return 0;
}
