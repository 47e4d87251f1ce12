/* template_model.h - the tests' tokenizer with a chat template, as a model directory. */
#ifndef MT_TEST_TEMPLATE_MODEL_H
#define MT_TEST_TEMPLATE_MODEL_H

#include "workspace.h"

#define TOKENIZER MT_TESTS_DIR "/golden/samples/tokenizer"

/* Copies: links that leave a model directory are refused. */
static inline void template_model_write(const char *dir, const char *template)
{
    static const char *const files[] = { "tokenizer.json", "tokenizer_config.json" };
    for (size_t i = 0; i < MT_COUNT(files); i++)
        workspace_copy(workspace_path(TOKENIZER "/%s", files[i]).s, workspace_path("%s/%s", dir, files[i]).s);
    workspace_write(dir, "chat_template.jinja", template);
}

#endif
