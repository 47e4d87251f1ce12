/* train_screen.h - the output of a run: a banner, a bar, lines above it, and at the end a curve; and log.txt, which has every
 * line with its time.
 *
 *     init       prints messages, and keeps them until there is a log
 *     loading, finish
 *     log_to     the run's directory is locked: writes log.txt from here on, including earlier messages
 *     banner, start, step ..., finish
 *     end        the results
 *     deinit
 *
 * Notices may come from any thread (mt_train_screen_say); the rest is for the thread that runs the trainer. */
#ifndef MT_CLI_TRAIN_SCREEN_H
#define MT_CLI_TRAIN_SCREEN_H

#include "base/log.h"
#include "cli/progress.h"
#include "run/train.h"

#include <pthread.h>
#include <stdio.h>

typedef struct mt_train_screen {
    mt_terminal term;     /* stdout; set before anything except notices is shown */
    pthread_mutex_t lock; /* guards the bar and the log */
    mt_progress bar;
    bool bar_open;
    struct {
        double *x, *y;
        size_t n, cap_x, cap_y;
    } losses;
    struct {
        int64_t step; /* -1: none */
        double loss;
    } eval_first, eval_last;
    char experts[200]; /* load of the experts in the last step; "": no experts */
    char devices[320]; /* seconds of each device for its shares of the last step; "": one device */
    bool cpu, resumed; /* the device is the CPU; the run began from a checkpoint */
    size_t notes;      /* of the settings' notices, those that were printed before the banner */
    FILE *log;         /* log.txt of the run; NULL: not yet */
    mt_str early;      /* messages from before there was one */
} mt_train_screen;

void mt_train_screen_init(mt_train_screen *screen);
void mt_train_screen_deinit(mt_train_screen *screen);

/* A line above the bar, and in the log. */
void mt_train_screen_say(mt_train_screen *screen, const char *line);
/* The same as a sink of notices (mt_log_set_sink); user is the screen. */
void mt_train_screen_notice(void *user, mt_log_level level, const char *text);
/* A line for the log only. */
void mt_train_screen_keep(mt_train_screen *screen, const char *line);
/* A log that cannot be written does not stop the run. */
void mt_train_screen_log_to(mt_train_screen *screen, const char *dir);

/* url: the dashboard's, only for this terminal (it contains a secret key); NULL: no dashboard. */
void mt_train_screen_banner(mt_train_screen *screen, const mt_settings *settings, const mt_train_info *info, const char *url);
/* The plan's memory by use, and the time of a step. */
void mt_train_screen_plan(const mt_plan *plan);
/* The plan's memory, buffer by buffer. */
void mt_train_screen_buffers(const mt_plan *plan);

/* A bar while weights load, if that takes more than a moment. */
void mt_train_screen_loading(mt_train_screen *screen, size_t done, size_t total);
/* The bar of the steps. */
void mt_train_screen_start(mt_train_screen *screen, const mt_train_info *info);
void mt_train_screen_step(mt_train_screen *screen, const mt_train_step *step);
void mt_train_screen_eval(mt_train_screen *screen, const mt_train_eval *eval);
void mt_train_screen_sample(mt_train_screen *screen, int64_t step, const char *prompt, const char *answer);
void mt_train_screen_saved(mt_train_screen *screen, const char *path, double seconds);
/* Ends the current bar. */
void mt_train_screen_finish(mt_train_screen *screen);

/* Compares plan and run, and prints the curve and the model's path or how to continue. */
void mt_train_screen_end(mt_train_screen *screen, const mt_settings *settings, const mt_train_result *result);

#endif
