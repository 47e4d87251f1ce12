/* cudnn_graph.c - descriptors, and the few calls of cuDNN there are, found when the library is loaded.
 *
 * Nothing is linked: a machine without cuDNN runs the same program with our own kernels.  Every descriptor lives as long as its
 * plan. */
#include "ops/cudnn_graph.h"

#include "base/mem.h"

#include <dlfcn.h>
#include <string.h>

enum { MAX_DESCS = 256, MAX_OPS = 64, MAX_NODES = 128, MAX_CONFIGS = 16, VIRTUAL_IDS = 1000, OLDEST = 91400 };

/* -- the library ----------------------------------------------------------------------------------- */

/* name, result, arguments */
#define FUNCTIONS(X)                                                                                                             \
    X(cudnnGetVersion, size_t, (void))                                                                                           \
    X(cudnnGetErrorString, const char *, (cudnnStatus_t))                                                                        \
    X(cudnnGetLastErrorString, void, (char *, size_t))                                                                           \
    X(cudnnCreate, cudnnStatus_t, (cudnnHandle_t *))                                                                             \
    X(cudnnDestroy, cudnnStatus_t, (cudnnHandle_t))                                                                              \
    X(cudnnSetStream, cudnnStatus_t, (cudnnHandle_t, cudaStream_t))                                                              \
    X(cudnnBackendCreateDescriptor, cudnnStatus_t, (cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *))                   \
    X(cudnnBackendDestroyDescriptor, cudnnStatus_t, (cudnnBackendDescriptor_t))                                                  \
    X(cudnnBackendFinalize, cudnnStatus_t, (cudnnBackendDescriptor_t))                                                           \
    X(cudnnBackendSetAttribute, cudnnStatus_t,                                                                                   \
      (cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t, const void *))               \
    X(cudnnBackendGetAttribute, cudnnStatus_t,                                                                                   \
      (const cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t, int64_t *, void *))    \
    X(cudnnBackendExecute, cudnnStatus_t, (cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t))

struct mt_cudnn {
    void *library;
    cudnnHandle_t handle;            /* of this GPU, or NULL: */
    cudnnBackendDescriptor_t device; /* what stands for another one */
#define FIELD(name, result, args) result(*name) args;
    FUNCTIONS(FIELD)
#undef FIELD
};

static mt_rc find_functions(mt_cudnn *l, mt_err *err)
{
    const struct {
        const char *name;
        void *to;
    } all[] = {
#define ROW(name, result, args) { #name, &l->name },
        FUNCTIONS(ROW)
#undef ROW
    };
    for (size_t i = 0; i < MT_COUNT(all); i++) {
        void *found = dlsym(l->library, all[i].name);
        if (!found) return mt_fail(err, MT_EUNSUPPORTED, "libcudnn.so.9 has no %s; install cuDNN 9.14 or newer", all[i].name);
        memcpy(all[i].to, &found, sizeof found);
    }
    return MT_OK;
}

static bool lacks_memory(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

static mt_rc explain(const mt_cudnn *l, cudnnStatus_t status, const char *what, mt_err *err)
{
    char more[512] = "";
    l->cudnnGetLastErrorString(more, sizeof more);
    return mt_fail(err, lacks_memory(status) ? MT_ENOMEM : MT_EDEVICE, "cuDNN, %s: %s%s%s", what, l->cudnnGetErrorString(status),
                   *more ? ": " : "", more);
}

static cudnnStatus_t describe(mt_cudnn *l, const char *device)
{
    cudnnStatus_t s = l->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &l->device);
    if (!s)
        s = l->cudnnBackendSetAttribute(l->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                        (int64_t)strlen(device) + 1, device);
    return s ? s : l->cudnnBackendFinalize(l->device);
}

mt_rc mt_cudnn_open(mt_cudnn **out, const char *device, mt_err *err)
{
    *out = NULL;
    mt_cudnn *l = mt_calloc(1, sizeof *l);
    if (!l) return mt_no_memory(err, "cuDNN");
    l->library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    mt_rc rc = l->library ? find_functions(l, err) : mt_fail(err, MT_EUNSUPPORTED, "no cuDNN: %s", dlerror());
    if (!rc && l->cudnnGetVersion() < OLDEST)
        rc = mt_fail(err, MT_EUNSUPPORTED, "cuDNN %zu is too old, 9.14 is the oldest known to compute packed attention right",
                     l->cudnnGetVersion());
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (!rc) status = device ? describe(l, device) : l->cudnnCreate(&l->handle);
    if (status) rc = explain(l, status, "starting", err);
    if (rc) {
        mt_cudnn_close(l);
        return rc;
    }
    *out = l;
    return MT_OK;
}

/* No dlclose, on purpose: the library keeps its threads and driver objects. */
void mt_cudnn_close(mt_cudnn *l)
{
    if (!l) return;
    if (l->device) l->cudnnBackendDestroyDescriptor(l->device);
    if (l->handle) {
        l->cudnnSetStream(l->handle, NULL); /* the last one may be gone */
        l->cudnnDestroy(l->handle);
    }
    mt_free(l);
}

size_t mt_cudnn_version(const mt_cudnn *l) { return l->cudnnGetVersion(); }

/* -- graphs ---------------------------------------------------------------------------------------- */

struct mt_cudnn_node {
    cudnnBackendDescriptor_t desc;
    mt_cudnn_tensor_spec spec;
};

struct mt_cudnn_graph {
    mt_cudnn *lib;
    mt_err error; /* the first */
    int n_descs, n_ops, n_nodes;
    int64_t next_virtual;
    cudnnBackendDescriptor_t descs[MAX_DESCS], ops[MAX_OPS];
    struct mt_cudnn_node nodes[MAX_NODES];
};

mt_cudnn_graph *mt_cudnn_graph_create(mt_cudnn *lib)
{
    mt_cudnn_graph *g = mt_calloc(1, sizeof *g);
    if (!g) return NULL;
    g->lib = lib;
    g->next_virtual = VIRTUAL_IDS;
    return g;
}

static void graph_free(mt_cudnn_graph *g)
{
    if (!g) return;
    while (g->n_descs) g->lib->cudnnBackendDestroyDescriptor(g->descs[--g->n_descs]);
    mt_free(g);
}

static bool broken(const mt_cudnn_graph *g) { return !g || g->error.rc; }

static void cudnn_graph_check(mt_cudnn_graph *g, cudnnStatus_t status, const char *what)
{
    if (status && !broken(g)) explain(g->lib, status, what, &g->error);
}

static cudnnBackendDescriptor_t create(mt_cudnn_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (broken(g)) return NULL;
    if (g->n_descs == MAX_DESCS) {
        mt_fail(&g->error, MT_EINTERNAL, "a cuDNN graph of more than %d descriptors", MAX_DESCS);
        return NULL;
    }
    cudnn_graph_check(g, g->lib->cudnnBackendCreateDescriptor(type, &d), "a descriptor");
    if (!broken(g)) g->descs[g->n_descs++] = d;
    return broken(g) ? NULL : d;
}

static void set(mt_cudnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t n, const void *values)
{
    if (!broken(g)) cudnn_graph_check(g, g->lib->cudnnBackendSetAttribute(d, name, type, n, values), "an attribute");
}

static void set_desc(mt_cudnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, mt_node node)
{
    if (node) set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &node->desc);
}

static void finalize(mt_cudnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    if (!broken(g)) cudnn_graph_check(g, g->lib->cudnnBackendFinalize(d), what);
}

static void finish_op(mt_cudnn_graph *g, cudnnBackendDescriptor_t op, const char *what)
{
    finalize(g, op, what);
    if (broken(g)) return;
    if (g->n_ops == MAX_OPS)
        mt_fail(&g->error, MT_EINTERNAL, "a cuDNN graph of more than %d operations", MAX_OPS);
    else
        g->ops[g->n_ops++] = op;
}

static void pack(mt_cudnn_tensor_spec *s)
{
    const int64_t *d = s->dims;
    if (s->strides[0] || s->strides[1] || s->strides[2] || s->strides[3]) return;
    s->strides[3] = 1;
    s->strides[2] = d[3];
    s->strides[1] = d[3] * d[2];
    s->strides[0] = d[3] * d[2] * d[1];
}

mt_node mt_cudnn_tensor(mt_cudnn_graph *g, const mt_cudnn_tensor_spec *spec)
{
    cudnnBackendDescriptor_t d = create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (broken(g)) return NULL;
    if (g->n_nodes == MAX_NODES) {
        mt_fail(&g->error, MT_EINTERNAL, "a cuDNN graph of more than %d tensors", MAX_NODES);
        return NULL;
    }
    struct mt_cudnn_node *n = &g->nodes[g->n_nodes++];
    *n = (struct mt_cudnn_node){ d, *spec };
    pack(&n->spec);
    bool yes = true;
    int64_t aligned = spec->aligned ? spec->aligned : 16, id = spec->id ? spec->id : g->next_virtual++;
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &spec->type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, n->spec.dims);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, n->spec.strides);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &aligned);
    if (!spec->id) set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (spec->by_value) set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    set_desc(g, d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, spec->ragged);
    finalize(g, d, "a tensor");
    return n;
}

static mt_node virtual_like(mt_cudnn_graph *g, mt_node x, cudnnDataType_t type, int64_t last)
{
    if (broken(g)) return NULL;
    mt_cudnn_tensor_spec s = { .type = type };
    memcpy(s.dims, x->spec.dims, sizeof s.dims);
    if (last) s.dims[3] = last;
    return mt_cudnn_tensor(g, &s);
}

typedef struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t compute;
    int64_t axis; /* of GEN_INDEX */
    mt_node x, b, t, y;
} pointwise;

static void add_pointwise(mt_cudnn_graph *g, const pointwise *p)
{
    cudnnBackendDescriptor_t how = create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
                             op = create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p->mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p->compute);
    if (p->mode == CUDNN_POINTWISE_GEN_INDEX) set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p->axis);
    finalize(g, how, "a pointwise mode");
    set(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->t);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p->y);
    finish_op(g, op, "a pointwise operation");
}

mt_node mt_cudnn_pointwise(mt_cudnn_graph *g, cudnnPointwiseMode_t mode, mt_node x, mt_node b, mt_node t)
{
    mt_node y = virtual_like(g, x, CUDNN_DATA_FLOAT, 0);
    add_pointwise(g, &(pointwise){ .mode = mode, .compute = CUDNN_DATA_FLOAT, .x = x, .b = b, .t = t, .y = y });
    return y;
}

mt_node mt_cudnn_pointwise_typed(mt_cudnn_graph *g, cudnnPointwiseMode_t mode, mt_node x, mt_node b, cudnnDataType_t compute,
                                 cudnnDataType_t type)
{
    mt_node y = virtual_like(g, x, type, 0);
    add_pointwise(g, &(pointwise){ .mode = mode, .compute = compute, .x = x, .b = b, .y = y });
    return y;
}

mt_node mt_cudnn_index(mt_cudnn_graph *g, mt_node like, int64_t axis)
{
    mt_node y = virtual_like(g, like, CUDNN_DATA_INT32, 0);
    add_pointwise(
        g, &(pointwise){ .mode = CUDNN_POINTWISE_GEN_INDEX, .compute = CUDNN_DATA_FLOAT, .axis = axis, .x = like, .y = y });
    return y;
}

void mt_cudnn_pointwise_to(mt_cudnn_graph *g, cudnnPointwiseMode_t mode, mt_node x, mt_node b, mt_node y)
{
    add_pointwise(g, &(pointwise){ .mode = mode, .compute = CUDNN_DATA_FLOAT, .x = x, .b = b, .y = y });
}

void mt_cudnn_reduce_to(mt_cudnn_graph *g, cudnnReduceTensorOp_t operator, mt_node x, mt_node y)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR),
                             op = create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operator);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, how, "a reduction");
    set(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish_op(g, op, "a reduction operation");
}

mt_node mt_cudnn_reduce(mt_cudnn_graph *g, cudnnReduceTensorOp_t operator, mt_node x)
{
    mt_node y = virtual_like(g, x, CUDNN_DATA_FLOAT, 1);
    mt_cudnn_reduce_to(g, operator, x, y);
    return y;
}

void mt_cudnn_reshape_to(mt_cudnn_graph *g, mt_node x, mt_node y)
{
    cudnnBackendDescriptor_t op = create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish_op(g, op, "a reshape");
}

void mt_cudnn_matmul_to(mt_cudnn_graph *g, mt_node a, mt_node b, mt_node c, mt_node m, mt_node n, mt_node k)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR),
                             op = create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, how, "a product");
    set(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k);
    finish_op(g, op, "a matrix product");
}

/* -- plans ----------------------------------------------------------------------------------------- */

struct mt_cudnn_plan {
    mt_cudnn_graph *graph;
    cudnnBackendDescriptor_t plan;
    int64_t workspace;
};

static cudnnBackendDescriptor_t join_ops(mt_cudnn_graph *g)
{
    cudnnBackendDescriptor_t ops = create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, ops, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops);
    if (g->lib->handle) set(g, ops, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->lib->handle);
    finalize(g, ops, "a graph");
    return ops;
}

/* The library's proposals in one of its modes, best first.  Reading them may give fewer than it counted. */
static int64_t list_configs(mt_cudnn_graph *g, cudnnBackendDescriptor_t ops, cudnnBackendHeurMode_t mode,
                            cudnnBackendDescriptor_t configs[MAX_CONFIGS])
{
    const mt_cudnn *l = g->lib;
    int64_t n = 0, found = 0;
    cudnnBackendDescriptor_t heur = create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(g, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &ops);
    set(g, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (l->device) set(g, heur, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &l->device);
    if (broken(g) || l->cudnnBackendFinalize(heur)) return 0; /* another mode may know more */
    if (l->cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL)) return 0;
    n = mt_min_i64(n, MAX_CONFIGS);
    for (int64_t i = 0; i < n; i++) configs[i] = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (broken(g) || n == 0 ||
        l->cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &found, configs))
        return 0;
    return mt_min_i64(n, found);
}

/* Compiles a proposal; false: it cannot be, or wants too much, and why, unless an earlier one's reason is there. */
static bool try_config(mt_cudnn_plan *p, cudnnBackendDescriptor_t config, size_t most, mt_err *why)
{
    mt_cudnn_graph *g = p->graph;
    const mt_cudnn *l = g->lib;
    mt_err here = { 0 };
    int64_t got, bytes = 0;
    cudnnBackendDescriptor_t plan = create(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (l->handle) set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &l->handle);
    if (l->device) set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &l->device);
    set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (broken(g)) return false;
    cudnnStatus_t status = l->cudnnBackendFinalize(plan);
    if (!status)
        status = l->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got, &bytes);
    if (!status && (size_t)bytes <= most) {
        p->plan = plan;
        p->workspace = bytes;
        return true;
    }
    if (status)
        explain(l, status, "compiling attention", &here);
    else
        mt_fail(&here, MT_EUNSUPPORTED, "cuDNN %zu needs %lld bytes of workspace, but %zu were planned", l->cudnnGetVersion(),
                (long long)bytes, most);
    if (!why->rc || lacks_memory(status)) *why = here;
    l->cudnnBackendDestroyDescriptor(g->descs[--g->n_descs]); /* the plan was the last of them */
    return false;
}

/* The first proposal that compiles and is content with the workspace there is.  One that lacks memory ends the search: how much
 * is free must not choose the kernel. */
static void compile(mt_cudnn_plan *p, size_t most, mt_err *why)
{
    static const cudnnBackendHeurMode_t modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK };
    mt_cudnn_graph *g = p->graph;
    cudnnBackendDescriptor_t configs[MAX_CONFIGS], ops = join_ops(g);
    for (size_t m = 0; m < MT_COUNT(modes) && !p->plan && !broken(g) && why->rc != MT_ENOMEM; m++)
        for (int64_t i = 0, n = list_configs(g, ops, modes[m], configs);
             i < n && !broken(g) && !try_config(p, configs[i], most, why) && why->rc != MT_ENOMEM; i++) {
        }
    if (!p->plan && !why->rc)
        mt_fail(why, MT_EUNSUPPORTED, "cuDNN %zu has no kernel for this attention", g->lib->cudnnGetVersion());
}

mt_rc mt_cudnn_plan_create(mt_cudnn_plan **out, mt_cudnn_graph *g, size_t most, mt_err *err)
{
    *out = NULL;
    mt_err why = { 0 };
    mt_cudnn_plan *p = g ? mt_calloc(1, sizeof *p) : NULL;
    if (!p) {
        graph_free(g);
        return mt_no_memory(err, "a cuDNN graph");
    }
    p->graph = g;
    if (!broken(g)) compile(p, most, &why);
    if (p->plan && !broken(g)) {
        *out = p;
        return MT_OK;
    }
    if (err) *err = broken(g) ? g->error : why;
    mt_rc rc = broken(g) ? g->error.rc : why.rc;
    mt_cudnn_plan_free(p);
    return rc;
}

void mt_cudnn_plan_free(mt_cudnn_plan *p)
{
    if (!p) return;
    graph_free(p->graph);
    mt_free(p);
}

size_t mt_cudnn_plan_workspace(const mt_cudnn_plan *p) { return (size_t)p->workspace; }

static cudnnStatus_t execute(mt_cudnn_plan *p, cudnnBackendDescriptor_t pack, const mt_cudnn_value *values, int n,
                             void *workspace)
{
    mt_cudnn *l = p->graph->lib;
    int64_t ids[MT_CUDNN_MAX_VALUES];
    const void *pointers[MT_CUDNN_MAX_VALUES];
    for (int i = 0; i < n; i++) {
        ids[i] = values[i].id;
        pointers[i] = values[i].p;
    }
    cudnnStatus_t s = l->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers);
    if (!s) s = l->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);
    if (!s) s = l->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!s) s = l->cudnnBackendFinalize(pack);
    return s ? s : l->cudnnBackendExecute(l->handle, p->plan, pack);
}

mt_rc mt_cudnn_run(mt_cudnn_plan *p, cudaStream_t stream, const mt_cudnn_value *values, int n, void *workspace, mt_err *err)
{
    mt_cudnn *l = p->graph->lib;
    cudnnBackendDescriptor_t pack;
    if (n > MT_CUDNN_MAX_VALUES) return mt_fail(err, MT_EINTERNAL, "a cuDNN plan with %d values", n);
    cudnnStatus_t status = l->cudnnSetStream(l->handle, stream);
    if (!status) status = l->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status) return explain(l, status, "preparing to run", err);
    status = execute(p, pack, values, n, workspace);
    mt_rc rc = status ? explain(l, status, "running attention", err) : MT_OK;
    l->cudnnBackendDestroyDescriptor(pack);
    return rc;
}
