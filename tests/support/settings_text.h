/* settings_text.h - settings from a text, as a command would read and check them. */
#ifndef MT_TEST_SETTINGS_TEXT_H
#define MT_TEST_SETTINGS_TEXT_H

#include "test.h"

#include "settings/settings.h"

/* How "c.yaml" of this text is read and checked; err is emptied first. */
static inline mt_rc settings_try(const char *yaml, mt_err *err)
{
    mt_settings s;
    *err = (mt_err){ 0 };
    mt_rc rc = mt_settings_init(&s, err);
    if (!rc) rc = mt_settings_parse(&s, yaml, strlen(yaml), "c.yaml", err);
    if (!rc) rc = mt_settings_check(&s, 0, err);
    mt_settings_deinit(&s);
    return rc;
}

#endif
