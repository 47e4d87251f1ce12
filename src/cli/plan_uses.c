/* plan_uses.c - a plan's memory by what it is used for. */
#include "cli/plan_view.h"

static const char *const use_names[MT_PLAN_USES] = {
    [MT_USE_MASTERS] = "master weights (fp32 in two halves)",
    [MT_USE_GRADIENTS] = "gradients",
    [MT_USE_SUMS] = "gradient sums (fp32)",
    [MT_USE_WEIGHTS] = "weights for compute",
    [MT_USE_KEPT] = "kept activations",
    [MT_USE_WORK] = "workspace and input",
    [MT_USE_RUNTIME] = "runtime (base item)",
};

static mt_use use_of(mt_buffer_kind k)
{
    switch (k) {
    case MT_BUF_HI:
    case MT_BUF_LO:
    case MT_BUF_PACKED_HOME:
    case MT_BUF_EXACT_HOME: return MT_USE_MASTERS;
    case MT_BUF_ARRAY: return MT_USE_MOMENTS;
    case MT_BUF_PARKED:
    case MT_BUF_SLAB:
    case MT_BUF_GRAD:
    case MT_BUF_GRAD_DEV: return MT_USE_GRADIENTS;
    case MT_BUF_ACC:
    case MT_BUF_ACC_TIED:
    case MT_BUF_ACC_HOST:
    case MT_BUF_LAND:
    case MT_BUF_LAND_TIED:
    case MT_BUF_TOTAL:
    case MT_BUF_SLICE:
    case MT_BUF_CHUNKS:
    case MT_BUF_CHUNKS_HOST: return MT_USE_SUMS;
    case MT_BUF_RESIDENT:
    case MT_BUF_RING:
    case MT_BUF_WEIGHT_SLICE:
    case MT_BUF_EXACT:
    case MT_BUF_HALVES: return MT_USE_WEIGHTS;
    case MT_BUF_KEEP:
    case MT_BUF_KEEP_SLOT:
    case MT_BUF_KEEP_HOST: return MT_USE_KEPT;
    default: return MT_USE_WORK;
    }
}

void mt_plan_uses(const mt_plan *p, mt_plan_use out[MT_PLAN_USES])
{
    for (int i = 0; i < MT_PLAN_USES; i++) out[i] = (mt_plan_use){ .name = use_names[i] };
    out[MT_USE_MOMENTS].name = mt_optimizer_of(p->arithmetic.optimizer)->arrays_title;
    for (size_t i = 0; i < p->n_buffers; i++) {
        const mt_buffer *b = &p->buffers[i];
        const bool of_lane = b->place == MT_HOST && mt_buffer_of_lane(b->kind, b->place);
        out[use_of(b->kind)].bytes[b->place] += b->bytes * (of_lane ? (size_t)mt_plan_lanes(p) : 1);
    }
    out[MT_USE_RUNTIME].bytes[MT_HOST] = p->base_host;
    out[MT_USE_RUNTIME].bytes[MT_DEVICE] = p->base_device;
}
