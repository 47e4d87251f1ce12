#include "page/page.h"

#include "base/outfile.h"
#include "page/assets.h"

#include <string.h>

/* JSON inside a script element: "</script>" and "<!--" must not appear, and in JSON '<' stands in strings only. */
static void put_inline(mt_str *out, const mt_str *json)
{
    for (size_t i = 0; i < json->n; i++) {
        if (json->s[i] == '<')
            mt_str_puts(out, "\\u003c");
        else
            mt_str_putc(out, json->s[i]);
    }
}

static mt_rc write_data(mt_str *json, const mt_run_at *runs, size_t n_runs, bool live, mt_err *err)
{
    mt_json_out j = { .to = json };
    mt_json_map(&j, NULL, MT_JSON_FLAT);
    mt_json_put_str(&j, "version", MT_VERSION);
    mt_json_put_bool(&j, "live", live);
    mt_json_list(&j, "runs", MT_JSON_FLAT);
    for (size_t i = 0; i < n_runs; i++) MT_TRY(mt_run_view_put(&j, &runs[i], 0, err));
    mt_json_end(&j);
    mt_json_end(&j);
    return mt_json_done(&j, "a page", err);
}

/* The page with @STYLE@, @DATA@ and @SCRIPT@ filled in. */
static void page_fill(mt_str *out, const mt_str *json)
{
    for (const char *at = mt__asset_page_html; *at;) {
        const char *mark = strchr(at, '@');
        mt_str_add(out, at, mark ? (size_t)(mark - at) : strlen(at));
        if (!mark) return;
        at = strchr(mark + 1, '@') + 1;
        if (strncmp(mark, "@STYLE@", 7) == 0) mt_str_puts(out, mt__asset_page_css);
        if (strncmp(mark, "@SCRIPT@", 8) == 0) mt_str_puts(out, mt__asset_page_js);
        if (strncmp(mark, "@DATA@", 6) == 0) put_inline(out, json);
    }
}

mt_rc mt_page_write(mt_str *out, const mt_run_at *runs, size_t n_runs, bool live, mt_err *err)
{
    mt_str json = { 0 };
    mt_rc rc = write_data(&json, runs, n_runs, live, err);
    if (!rc) page_fill(out, &json);
    mt_str_free(&json);
    if (!rc && !mt_str_ok(out)) rc = mt_no_memory(err, "a page");
    return rc;
}

mt_rc mt_page_save(const char *path, const mt_run_at *runs, size_t n_runs, mt_err *err)
{
    mt_str page = { 0 };
    mt_rc rc = mt_page_write(&page, runs, n_runs, false, err);
    if (!rc) rc = mt_outfile_save(path, page.s, page.n, err);
    mt_str_free(&page);
    return rc;
}
