/* fake_driver.c - stands in for NVIDIA's driver library (libcuda.so.1), so that cuDNN compiles kernels for a GPU that is not
 * here.  Loading compiled code succeeds and does nothing; everything else says, as the toolkit's own stub does, that it is not a
 * driver. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { DONE = 0, NO_DRIVER = 34 };

static char thing; /* whatever is asked for */

#define REFUSE(name)                                                                                                             \
    int name(void);                                                                                                              \
    int name(void) { return NO_DRIVER; }
#define ACCEPT(name)                                                                                                             \
    int name(void);                                                                                                              \
    int name(void) { return DONE; }
#define HAND_OUT(name)                                                                                                           \
    int name(void **out);                                                                                                        \
    int name(void **out) { return *out = &thing, DONE; }

/* What cuDNN looks up by name. */
REFUSE(cuInit)
REFUSE(cuGetErrorName)
REFUSE(cuGetErrorString)
REFUSE(cuCtxGetCurrent)
REFUSE(cuCtxGetLimit)
REFUSE(cuCtxPopCurrent)
REFUSE(cuCtxPushCurrent)
REFUSE(cuStreamGetCtx)
REFUSE(cuLinkCreate)
REFUSE(cuLinkAddData)
REFUSE(cuLinkComplete)
REFUSE(cuLinkDestroy)
REFUSE(cuLaunchKernel)
REFUSE(cuLaunchKernelEx)
REFUSE(cuLaunchCooperativeKernel)
REFUSE(cuDeviceGet)
REFUSE(cuDeviceGetCount)
REFUSE(cuOccupancyMaxPotentialClusterSize)
ACCEPT(cuLibraryUnload)
ACCEPT(cuKernelSetAttribute)
ACCEPT(cuKernelGetAttribute)
HAND_OUT(cuLibraryLoadData)
HAND_OUT(cuLibraryLoadFromFile)
HAND_OUT(cuLibraryGetKernel)

int cuDriverGetVersion(int *out);
int cuDriverGetVersion(int *out) { return *out = 13000, DONE; }

int cuGetProcAddress_v2(const char *name, void **out, int cuda, uint64_t flags, int *status);
int cuGetProcAddress(const char *name, void **out, int cuda, uint64_t flags);

/* The runtime asks by this one for everything. */
static const struct {
    const char *name;
    int (*fn)(void);
} by_address[] = {
    { "cuGetProcAddress", (int (*)(void))cuGetProcAddress_v2 },
    { "cuDriverGetVersion", (int (*)(void))cuDriverGetVersion },
    { "cuLibraryLoadData", (int (*)(void))cuLibraryLoadData },
    { "cuLibraryLoadFromFile", (int (*)(void))cuLibraryLoadFromFile },
    { "cuLibraryGetKernel", (int (*)(void))cuLibraryGetKernel },
    { "cuLibraryUnload", cuLibraryUnload },
    { "cuKernelSetAttribute", cuKernelSetAttribute },
    { "cuKernelGetAttribute", cuKernelGetAttribute },
    { "", cuInit }, /* all others refuse, too */
};

int cuGetProcAddress_v2(const char *name, void **out, int cuda, uint64_t flags, int *status)
{
    size_t i = 0;
    (void)cuda, (void)flags;
    while (*by_address[i].name && strcmp(by_address[i].name, name) != 0) i++;
    memcpy(out, &by_address[i].fn, sizeof *out);
    if (status) *status = 0;
    return DONE;
}

int cuGetProcAddress(const char *name, void **out, int cuda, uint64_t flags)
{
    return cuGetProcAddress_v2(name, out, cuda, flags, NULL);
}
