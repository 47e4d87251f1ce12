/* fuzz_settings.c - any bytes as a configuration file: read, checked, shown, and what was accepted must be
 * written such that it reads back equal. */
#include "settings/settings.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
    if (!holds) abort();
}

static void reads_back_equal(const mt_settings *s)
{
    mt_settings again;
    mt_setting_changes changes;
    mt_str yaml = { 0 };
    mt_settings_write_yaml(s, &yaml);
    expect(mt_settings_init(&again, NULL) == MT_OK);
    if (yaml.n <= 256 << 10) { /* escapes can make it longer than a file may be */
        expect(mt_settings_parse(&again, yaml.s, yaml.n, "written", NULL) == MT_OK);
        expect(mt_settings_check(&again, 0, NULL) == MT_OK);
        expect(mt_settings_diff(&changes, s, &again, NULL) == MT_OK);
        expect(changes.n == 0);
        mt_setting_changes_free(&changes);
    }
    mt_settings_deinit(&again);
    mt_str_free(&yaml);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mt_settings s;
    mt_err err = { 0 };
    mt_str out = { 0 };
    expect(mt_settings_init(&s, &err) == MT_OK);
    mt_rc rc = mt_settings_parse(&s, (const char *)data, size, "fuzz.yaml", &err);
    if (!rc) rc = mt_settings_check(&s, 0, &err);
    expect(!rc || *err.msg);
    if (!rc) {
        mt_settings_print(&s, true, &out);
        reads_back_equal(&s);
    }
    mt_str_free(&out);
    mt_settings_deinit(&s);
    return 0;
}
