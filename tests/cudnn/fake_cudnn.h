/* fake_cudnn.h - what the fake cuDNN (fake_cudnn.c) proposes, and what was asked of it; a test finds it by
 * dlsym("fake_cudnn"). */
#ifndef MT_TESTS_FAKE_CUDNN_H
#define MT_TESTS_FAKE_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fake_kernel {
    int mode; /* the cudnnBackendHeurMode_t it is proposed in */
    bool refuses, lacks_memory;
    int64_t workspace;
} fake_kernel;

enum { FAKE_MODES = 4, FAKE_KERNELS = 8 };

typedef struct fake_cudnn_state {
    fake_kernel kernels[FAKE_KERNELS];
    int n_kernels;
    bool knows_nothing[FAKE_MODES]; /* asking in this mode fails */
    int n_serves;                   /* after this many compiled kernels no more compile; 0: any number */
    int n_tried, n_compiled, n_descs;
} fake_cudnn_state;

#endif
