/* Any text is a configuration that a model can be laid out for, or an error that says something. */
#include "model/model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mt_err err = { 0 };
    mt_config *c = NULL;
    if (mt_config_parse(&c, (const char *)data, size, "config.json", &err)) return err.msg[0] && !c ? 0 : (abort(), 0);
    mt_model *m = NULL;
    if (c->L <= 8 && !mt_model_create(&m, c, NULL, &err)) mt_model_free(m);
    mt_config_close(c);
    return 0;
}
