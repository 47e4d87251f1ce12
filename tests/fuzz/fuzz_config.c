/* Any text is a configuration, or an error that says something. */
#include "model/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mt_err err = { 0 };
    mt_config *c = NULL;
    if (mt_config_parse(&c, (const char *)data, size, "config.json", &err)) return err.msg[0] && !c ? 0 : (abort(), 0);
    mt_config_close(c);
    return 0;
}
