/* own_batches.c - train a model on tokens that the program makes itself, then evaluate, generate and save it.
 *
 *     cc -o own_batches own_batches.c $(pkg-config --cflags --libs megatrain)
 *     ./own_batches MODEL OUTPUT [KEY=VALUE ...]
 *
 * The task is a toy: each token follows from the one before it.  A model that learns it predicts every token but the first. */
#include <megatrain.h>

#include <stdio.h>
#include <string.h>

enum { DOCUMENTS = 8, TOKENS = 24, STEPS = 40 };

typedef struct batch {
    int32_t tokens[DOCUMENTS][TOKENS];
    megatrain_document documents[DOCUMENTS];
} batch;

/* Documents begin with different tokens from step to step; what follows is always 5 x + 7 (a cycle through a small part of the
 * vocabulary, so that 40 steps are enough). */
static void fill_batch(batch *b, int step)
{
    for (int d = 0; d < DOCUMENTS; d++) {
        int32_t x = (int32_t)((11 * step + 5 * d) % 32);
        for (int i = 0; i < TOKENS; i++, x = (5 * x + 7) % 32) b->tokens[d][i] = x;
        b->documents[d] = (megatrain_document){ .tokens = b->tokens[d], .n_tokens = TOKENS };
    }
}

static megatrain_status configure(megatrain_config **config, int argc, char **argv, megatrain_error *error)
{
    /* A step takes up to 8 documents of up to 24 tokens; all settings are those of a whole run. */
    static const char *const settings[][2] = { { "training.batch_size", "8" },
                                               { "dataset.max_seq_len", "24" },
                                               { "training.learning_rate", "1e-2" },
                                               { "training.num_steps", "40" },
                                               { "training.lr_scheduler", "cosine" } };
    megatrain_status status = megatrain_config_create(config, error);
    if (!status) status = megatrain_config_set(*config, "model.name", argv[1], error);
    for (size_t i = 0; !status && i < sizeof settings / sizeof *settings; i++)
        status = megatrain_config_set(*config, settings[i][0], settings[i][1], error);
    for (int i = 3; !status && i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals) *equals++ = '\0';
        status = megatrain_config_set(*config, argv[i], equals ? equals : "", error);
    }
    return status;
}

static megatrain_status train(megatrain_model *model, batch *b, megatrain_error *error)
{
    megatrain_result r;
    for (int step = 0; step < STEPS; step++) {
        fill_batch(b, step);
        megatrain_status status = megatrain_model_step(model, b->documents, DOCUMENTS, &r, error);
        if (status) return status;
        if (step % 10 == 0 || step + 1 == STEPS)
            printf("step %d: loss %.4f, learning rate %.2g\n", step + 1, r.loss, r.learning_rate);
    }
    return MEGATRAIN_OK;
}

static megatrain_status evaluate(megatrain_model *model, batch *b, megatrain_error *error)
{
    megatrain_result r;
    fill_batch(b, 1000);
    megatrain_status status = megatrain_model_evaluate(model, b->documents, DOCUMENTS, &r, error);
    if (!status)
        printf("evaluation: loss %.4f, %lld of %lld tokens right\n", r.loss, (long long)r.n_correct, (long long)r.n_trained);
    return status;
}

static megatrain_status generate(megatrain_model *model, batch *b, megatrain_error *error)
{
    int32_t tokens[8];
    size_t n;
    megatrain_status status = megatrain_model_generate(model, b->tokens[0], 4, NULL, tokens, 8, &n, error);
    if (status) return status;
    printf("generated:");
    for (size_t i = 0; i < n; i++) printf(" %d", tokens[i]);
    printf("\nexpected: ");
    for (size_t i = 0; i < n; i++) printf(" %d", b->tokens[0][4 + i]);
    printf("\n");
    return MEGATRAIN_OK;
}

int main(int argc, char **argv)
{
    megatrain_error error;
    megatrain_config *config = NULL;
    megatrain_model *model = NULL;
    batch b;
    if (argc < 3) return fprintf(stderr, "usage: own_batches MODEL OUTPUT [KEY=VALUE ...]\n"), 2;
    megatrain_status status = configure(&config, argc, argv, &error);
    if (!status) status = megatrain_model_open(&model, config, MEGATRAIN_TRAIN | MEGATRAIN_GENERATE, &error);
    if (!status) status = train(model, &b, &error);
    if (!status) status = evaluate(model, &b, &error);
    if (!status) status = generate(model, &b, &error);
    if (!status) status = megatrain_model_save(model, argv[2], &error);
    megatrain_model_close(model);
    megatrain_config_free(config);
    if (status) return fprintf(stderr, "error: %s\n", error.message), 1;
    printf("saved to %s\n", argv[2]);
    return 0;
}
