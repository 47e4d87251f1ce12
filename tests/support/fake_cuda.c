/* fake_cuda.c - stands in for NVIDIA's driver (libcuda.so.1), so that machines without a GPU can see what is said on machines
 * where it is not usable.  FAKE_CUDA in the environment: "old", a driver older than the program needs; "empty", a driver that
 * sees no GPU; "broken", one whose GPUs wait for a service that is down. */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NO_DEVICE = 100, NOT_READY = 802, UNKNOWN = 999 };

typedef void (*function)(void);

static int is(const char *what)
{
    const char *word = getenv("FAKE_CUDA");
    return word && strcmp(word, what) == 0;
}

static int init(unsigned flags)
{
    (void)flags;
    return is("empty") ? NO_DEVICE : is("broken") ? NOT_READY : SUCCESS;
}

static int driver_get_version(int *version)
{
    *version = is("old") ? 11040 : 13000;
    return SUCCESS;
}

/* Whatever else is asked of it. */
static int refuse(void) { return UNKNOWN; }

int cuGetProcAddress(const char *name, function *out, int version, unsigned long long flags);
int cuGetProcAddress_v2(const char *name, function *out, int version, unsigned long long flags, int *status);

int cuGetProcAddress(const char *name, function *out, int version, unsigned long long flags)
{
    (void)flags;
    *out = (function)refuse;
    if (strcmp(name, "cuInit") == 0) *out = (function)init;
    if (strcmp(name, "cuDriverGetVersion") == 0) *out = (function)driver_get_version;
    if (strcmp(name, "cuGetProcAddress") == 0)
        *out = version >= 12000 ? (function)cuGetProcAddress_v2 : (function)cuGetProcAddress;
    return SUCCESS;
}

int cuGetProcAddress_v2(const char *name, function *out, int version, unsigned long long flags, int *status)
{
    if (status) *status = 0;
    return cuGetProcAddress(name, out, version, flags);
}
