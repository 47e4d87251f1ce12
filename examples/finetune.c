/* finetune.c - fine-tune a model from a configuration, print how it goes, and report where the model is.
 *
 *     cc -o finetune finetune.c $(pkg-config --cflags --libs megatrain)
 *     ./finetune my.yaml training.num_steps=60 save.output_dir=runs/mine
 *
 * my.yaml is what `megatrain train` reads; KEY=VALUE overrides it.  Ctrl-C ends the run with a checkpoint. */
#include <megatrain.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static void print_step(void *user, const megatrain_progress *p)
{
    (void)user;
    printf("step %lld of %lld: loss %.4f, %.0f tokens/s\n", (long long)p->step, (long long)p->n_steps, p->loss,
           p->tokens_per_second);
    fflush(stdout);
}

static void print_evaluation(void *user, const megatrain_evaluation *e)
{
    (void)user;
    printf("after step %lld: loss on held-out data %.4f, accuracy %.1f%%\n", (long long)e->step, e->loss, 100 * e->accuracy);
}

static bool asked_to_stop(void *user)
{
    (void)user;
    return interrupted != 0;
}

/* "training.num_steps=60" */
static megatrain_status set_pair(megatrain_config *config, char *pair, megatrain_error *error)
{
    char *equals = strchr(pair, '=');
    if (!equals) return megatrain_config_read(config, pair, error);
    *equals = '\0';
    return megatrain_config_set(config, pair, equals + 1, error);
}

int main(int argc, char **argv)
{
    const megatrain_hooks hooks = { .step = print_step, .evaluated = print_evaluation, .stop = asked_to_stop };
    megatrain_error error;
    megatrain_outcome outcome;
    megatrain_config *config = NULL;
    megatrain_status status = megatrain_config_create(&config, &error);
    for (int i = 1; !status && i < argc; i++) status = set_pair(config, argv[i], &error);
    signal(SIGINT, on_interrupt);
    if (!status) status = megatrain_train(config, &hooks, &outcome, &error);
    megatrain_config_free(config);
    if (status) {
        fprintf(stderr, "error: %s\n", error.message);
        return 1;
    }
    printf(outcome.stopped ? "stopped; continue from %s\n" : "the model is in %s\n",
           outcome.stopped ? outcome.checkpoint : outcome.model_dir);
    return 0;
}
