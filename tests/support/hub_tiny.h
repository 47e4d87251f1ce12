/* hub_tiny.h - acme/tiny, the model the tests' hub has: config, tokenizer, two shards, and unneeded files. */
#ifndef MT_TEST_HUB_TINY_H
#define MT_TEST_HUB_TINY_H

#include "hub_server.h"

#include "base/rng.h"

enum { HUB_TINY_PIECE = 4096, HUB_TINY_BIG = 5 * HUB_TINY_PIECE + 123 };

static inline hub_repo *hub_add_tiny(hub_server *s)
{
    static const char index[] = "{\"metadata\":{},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\",\"b\":\"model-00002-"
                                "of-00002.safetensors\"}}";
    char big[HUB_TINY_BIG];
    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)mt_rng_below(5, 0, i, 256);
    hub_repo *r = hub_add_repo(s, "acme/tiny", false);
    hub_add_file(r, "config.json", "{\"model_type\":\"llama\"}", 22, false);
    hub_add_file(r, "README.md", "words", 5, false);
    hub_add_file(r, "model.safetensors.index.json", index, sizeof index - 1, false);
    hub_add_file(r, "model-00001-of-00002.safetensors", big, sizeof big, true);
    hub_add_file(r, "model-00002-of-00002.safetensors", big + 1, 77, true);
    hub_add_file(r, "pytorch_model.bin", big, 2 * HUB_TINY_PIECE, true);
    hub_add_file(r, "onnx/model.safetensors", big, HUB_TINY_PIECE, true);
    hub_add_file(r, "tokenizer.json", "{}", 2, false);
    hub_add_file(r, "merges.txt", "", 0, false);
    return r;
}

#endif
