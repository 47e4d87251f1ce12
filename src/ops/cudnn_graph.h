/* cudnn_graph.h - cuDNN's graph API made short: the library, loaded when first wanted, and graphs of small operations that it
 * compiles into one kernel.  Plain C; only files named for cuDNN include this.
 *
 *     mt_cudnn_open(&lib, NULL, &err);                      // MT_EUNSUPPORTED: no library, or one too old
 *     mt_cudnn_graph *g = mt_cudnn_graph_create(lib);
 *     mt_node x = mt_cudnn_tensor(g, &(mt_cudnn_tensor_spec){ .id = 1, ... });
 *     mt_node y = mt_cudnn_pointwise(g, CUDNN_POINTWISE_EXP, x, NULL, NULL);
 *     mt_cudnn_plan_create(&plan, g, workspace_bytes, &err); // takes the graph; compiles
 *     mt_cudnn_run(plan, stream, values, n, workspace, &err);
 *
 * Building is sticky: after the first failure every call does nothing, and mt_cudnn_plan_create reports that failure. */
#ifndef MT_OPS_CUDNN_GRAPH_H
#define MT_OPS_CUDNN_GRAPH_H

#include "base/err.h"

#include <cudnn.h>

#include <stdbool.h>

typedef struct mt_cudnn mt_cudnn;
typedef struct mt_cudnn_graph mt_cudnn_graph;
typedef struct mt_cudnn_plan mt_cudnn_plan;
typedef const struct mt_cudnn_node *mt_node; /* a tensor of a graph; owned by it */

/* The library for the calling thread's present GPU.  It stays loaded until the process ends.
 * device: JSON that describes another GPU, as cuDNN writes it: plans can be made for that one, without running them; else
 * NULL. */
mt_rc mt_cudnn_open(mt_cudnn **out, const char *device, mt_err *err);
void mt_cudnn_close(mt_cudnn *lib);           /* accepts NULL */
size_t mt_cudnn_version(const mt_cudnn *lib); /* 91400: 9.14.0 */

mt_cudnn_graph *mt_cudnn_graph_create(mt_cudnn *lib); /* NULL: no memory, which mt_cudnn_plan_create then reports */

/* Elements of all tensors: [dims] with strides.  id 0: virtual, an intermediate of the fused kernel. */
typedef struct mt_cudnn_tensor_spec {
    int64_t id; /* what a run names its pointer by */
    cudnnDataType_t type;
    int64_t dims[4], strides[4]; /* strides all 0: packed */
    int64_t aligned;             /* bytes its pointer is a multiple of; 0: 16 */
    bool by_value;               /* a host scalar, read when the plan runs */
    mt_node ragged;              /* where in memory each of dims[0] starts, in elements */
} mt_cudnn_tensor_spec;
mt_node mt_cudnn_tensor(mt_cudnn_graph *g, const mt_cudnn_tensor_spec *spec);

/* Operations whose result is virtual.  Shapes follow from x, types are fp32 unless said. */
mt_node mt_cudnn_pointwise(mt_cudnn_graph *g, cudnnPointwiseMode_t mode, mt_node x, mt_node b, mt_node t);
mt_node mt_cudnn_pointwise_typed(mt_cudnn_graph *g, cudnnPointwiseMode_t mode, mt_node x, mt_node b, cudnnDataType_t compute,
                                 cudnnDataType_t type);
mt_node mt_cudnn_index(mt_cudnn_graph *g, mt_node like, int64_t axis);           /* INT32: its place along an axis */
mt_node mt_cudnn_reduce(mt_cudnn_graph *g, cudnnReduceTensorOp_t op, mt_node x); /* over the last axis */
/* Operations into a tensor that exists. */
void mt_cudnn_pointwise_to(mt_cudnn_graph *g, cudnnPointwiseMode_t mode, mt_node x, mt_node b, mt_node y);
void mt_cudnn_reduce_to(mt_cudnn_graph *g, cudnnReduceTensorOp_t op, mt_node x, mt_node y);
void mt_cudnn_reshape_to(mt_cudnn_graph *g, mt_node x, mt_node y);
/* c = a b; m, n, k: how much of each dimension counts, per batch entry; NULL: all. */
void mt_cudnn_matmul_to(mt_cudnn_graph *g, mt_node a, mt_node b, mt_node c, mt_node m, mt_node n, mt_node k);

/* The compiled graph, by the first of the library's proposals that compiles and needs at most `most` bytes of workspace.  Frees
 * the graph, or keeps the parts that the plan needs. */
mt_rc mt_cudnn_plan_create(mt_cudnn_plan **out, mt_cudnn_graph *g, size_t most, mt_err *err);
void mt_cudnn_plan_free(mt_cudnn_plan *p); /* accepts NULL */
size_t mt_cudnn_plan_workspace(const mt_cudnn_plan *p);

typedef struct mt_cudnn_value {
    int64_t id;
    const void *p; /* device memory, or a host scalar */
} mt_cudnn_value;
enum { MT_CUDNN_MAX_VALUES = 40 };
mt_rc mt_cudnn_run(mt_cudnn_plan *p, cudaStream_t stream, const mt_cudnn_value *values, int n, void *workspace, mt_err *err);

#endif
