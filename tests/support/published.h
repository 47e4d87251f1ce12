/* published.h - published shapes and machines that are not here, for tests of the planner. */
#ifndef MT_TESTS_PUBLISHED_H
#define MT_TESTS_PUBLISHED_H

#include "test.h"

#include "plan/gpus.h"
#include "plan/shapes.h"

typedef struct subject {
    mt_config *config;
    mt_model *model;
} subject;

static subject open_shape(const char *name)
{
    mt_err err = { 0 };
    const mt_shape *shape;
    subject s;
    assert_ok(mt_shape_find(&shape, name, &err));
    assert_ok(mt_shape_model(&s.config, &s.model, shape, NULL, &err));
    return s;
}

static void close_shape(subject *s)
{
    mt_model_free(s->model);
    mt_config_close(s->config);
}

static mt_machine machine(const char *gpu, double ram, int cores)
{
    mt_err err = { 0 };
    const mt_gpu *g;
    assert_ok(mt_gpu_find(&g, gpu, &err));
    mt_machine m = mt_machine_of_gpu(g, cores);
    m.host_bytes = (size_t)ram;
    return m;
}

#endif
