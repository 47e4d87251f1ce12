/* Every file under configs/ is one that `train` accepts. */
#include "test.h"

#include "settings/settings.h"

#include <dirent.h>

#define CONFIGS MT_TESTS_DIR "/../configs"

static void every_configuration_reads_and_checks(void **state)
{
    (void)state;
    int n = 0;
    DIR *d = opendir(CONFIGS);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        mt_err err = { 0 };
        mt_settings s;
        char path[1024];
        if (!strstr(e->d_name, ".yaml")) continue;
        snprintf(path, sizeof path, "%s/%s", CONFIGS, e->d_name);
        assert_ok(mt_settings_init(&s, &err));
        assert_ok(mt_settings_read(&s, path, &err));
        assert_ok(mt_settings_check(&s, MT_NEED_MODEL | MT_NEED_DATA, &err));
        mt_settings_deinit(&s);
        n++;
    }
    closedir(d);
    assert_true(n > 0);
}

MT_TEST_MAIN(cmocka_unit_test(every_configuration_reads_and_checks))
