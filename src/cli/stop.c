#include "cli/stop.h"

#include "base/mem.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

static atomic_bool asked, saves, save_wanted, quiet;
static volatile sig_atomic_t stop_signal; /* the signal that came first */
static struct timespec asked_at;

/* One request may come as two signals: timeout(1) sends its own to the program and to the group, and runners that pass Ctrl-C on
 * send what the terminal has sent already. */
static bool same_request(void)
{
    const double APART_S = 0.5;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - asked_at.tv_sec) + 1e-9 * (double)(now.tv_nsec - asked_at.tv_nsec) < APART_S;
}

static void on_signal(int number)
{
    static const char saving[] = "\nstopping after this step and saving; a second signal stops at once\n",
                      ending[] = "\nstopping; a second signal stops at once\n";
    if (atomic_load(&asked) && same_request()) return;
    if (atomic_load(&asked)) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &asked_at);
    stop_signal = number;
    atomic_store(&asked, true);
    if (atomic_load(&quiet)) return;
    bool s = atomic_load(&saves);
    ssize_t n = write(STDERR_FILENO, s ? saving : ending, (s ? sizeof saving : sizeof ending) - 1);
    (void)n;
}

/* Slurm's --signal=USR1@300, or a user who wants to be sure: the run continues. */
static void on_save_signal(int number)
{
    (void)number;
    atomic_store(&save_wanted, true);
}

void mt_stop_catch(void)
{
    struct sigaction a = { .sa_handler = on_signal, .sa_flags = SA_RESTART | SA_NODEFER };
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGUSR2, &a, NULL);
    a.sa_handler = on_save_signal;
    sigaction(SIGUSR1, &a, NULL);
    static const int ignored[] = { SIGHUP, SIGPIPE, SIGXFSZ };
    for (size_t i = 0; i < MT_COUNT(ignored); i++) signal(ignored[i], SIG_IGN);
}

void mt_stop_saves(bool s) { atomic_store(&saves, s); }

void mt_stop_quietly(void) { atomic_store(&quiet, true); }

const atomic_bool *mt_stop_flag(void) { return &asked; }

int mt_stop_signal(void) { return stop_signal; }

int mt_stop_status(void)
{
    enum { SHELL_SIGNAL = 128 };
    return SHELL_SIGNAL + stop_signal;
}

bool mt_stop_take_save(void) { return atomic_exchange(&save_wanted, false); }
