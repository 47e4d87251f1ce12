/* fake_cudnn.c - stands in for libcudnn.so.9: takes any graph and proposes the kernels a test wrote down.  It computes nothing.
 * Left as it is, it serves one graph and no more: enough to be taken for a cuDNN that works. */
#include "fake_cudnn.h"

#include <cudnn.h>

#include <stdlib.h>
#include <string.h>

extern fake_cudnn_state fake_cudnn;
fake_cudnn_state fake_cudnn = { .kernels = { { .mode = CUDNN_HEUR_MODE_A } }, .n_kernels = 1, .n_serves = 1 };

typedef struct thing {
    cudnnBackendDescriptorType_t type;
    cudnnBackendHeurMode_t mode; /* of a question */
    fake_kernel kernel;          /* of a proposal or a plan */
} thing;

size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(cudnnStatus_t status) { return status == CUDNN_STATUS_SUCCESS ? "well" : "the fake refuses"; }
void cudnnGetLastErrorString(char *out, size_t n)
{
    if (n) *out = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out) { return *out = (cudnnHandle_t)(void *)&fake_cudnn, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return (void)handle, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    return (void)handle, (void)stream, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    thing *t = calloc(1, sizeof *t);
    t->type = type;
    fake_cudnn.n_descs++;
    return *out = t, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    fake_cudnn.n_descs--;
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    thing *t = d;
    (void)type, (void)n;
    if (name == CUDNN_ATTR_ENGINEHEUR_MODE) memcpy(&t->mode, values, sizeof t->mode);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) {
        cudnnBackendDescriptor_t config;
        memcpy(&config, values, sizeof config);
        t->kernel = ((const thing *)config)->kernel;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t compile(const thing *t)
{
    fake_cudnn.n_tried++;
    if (t->kernel.lacks_memory) return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    if (t->kernel.refuses || (fake_cudnn.n_serves && fake_cudnn.n_compiled >= fake_cudnn.n_serves))
        return CUDNN_STATUS_NOT_SUPPORTED;
    fake_cudnn.n_compiled++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    const thing *t = d;
    if (t->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && fake_cudnn.knows_nothing[t->mode]) return CUDNN_STATUS_NOT_SUPPORTED;
    return t->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ? compile(t) : CUDNN_STATUS_SUCCESS;
}

/* How many, or the proposals themselves. */
static void propose(cudnnBackendHeurMode_t mode, int64_t room, int64_t *n, void *configs)
{
    *n = 0;
    for (int i = 0; i < fake_cudnn.n_kernels; i++) {
        if (fake_cudnn.kernels[i].mode != (int)mode) continue;
        if (*n < room) ((thing *)((cudnnBackendDescriptor_t *)configs)[*n])->kernel = fake_cudnn.kernels[i];
        ++*n;
    }
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *values)
{
    const thing *t = d;
    (void)type;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) propose(t->mode, room, n, values);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) memcpy(values, &t->kernel.workspace, sizeof t->kernel.workspace);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    (void)handle, (void)plan, (void)pack;
    return CUDNN_STATUS_EXECUTION_FAILED;
}
