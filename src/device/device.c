#include "device/device.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* Weak: a build without CUDA simply does not define it. */
extern const mt_device_api mt_device_cuda __attribute__((weak));

static mt_rc open_cuda(mt_device **out, const char *word, const mt_device_options *options, mt_err *err)
{
    mt_device_options o = options ? *options : (mt_device_options){ 0 };
    if (!&mt_device_cuda)
        return mt_fail(err, MT_EUNSUPPORTED,
                       "--device %s: this program was built without CUDA; install the CUDA toolkit and run make again", word);
    if (word[4] == ':') {
        char *end;
        long index = strtol(word + 5, &end, 10);
        if (end == word + 5 || *end || index < 0 || index > 1023)
            return mt_fail(err, MT_EINVAL, "--device %s: expected cuda:N, such as cuda:0", word);
        o.index = (int)index;
    }
    return mt_device_cuda.open(out, &o, err);
}

/* The first GPU this program can use: it may be beside a display's old card, or beside a card that is full. */
static mt_rc open_any_gpu(mt_device **out, const mt_device_options *options, mt_err *why)
{
    enum { MOST_GPUS = 16 };
    mt_device_options o = options ? *options : (mt_device_options){ 0 };
    mt_err next;
    mt_rc rc = mt_device_cuda.open(out, &o, why);
    if (rc != MT_EUNSUPPORTED && rc != MT_ENOMEM && rc != MT_EDEVICE) return rc;
    for (mt_rc other = rc; other != MT_EINVAL && o.index + 1 < MOST_GPUS;) { /* EINVAL: no more GPUs */
        o.index++;
        other = mt_device_cuda.open(out, &o, &next);
        if (other) continue;
        mt_info("cuda:%d is used; of cuda:0: %s", o.index, why->msg);
        return MT_OK;
    }
    return rc;
}

bool mt_device_same_kind(const mt_device_info *a, const mt_device_info *b)
{
    return strcmp(a->name, b->name) == 0 && a->n_processors == b->n_processors;
}

mt_rc mt_device_open(mt_device **out, const char *word, const mt_device_options *options, mt_err *err)
{
    *out = NULL;
    if (strcmp(word, "cpu") == 0) return mt_device_cpu.open(out, options, err);
    if (strcmp(word, "cuda") == 0 || strncmp(word, "cuda:", 5) == 0) return open_cuda(out, word, options, err);
    if (strcmp(word, "auto") == 0) {
        mt_err why = { .rc = MT_ENOENT };
        if (&mt_device_cuda && open_any_gpu(out, options, &why) == MT_OK) return MT_OK;
        if (why.rc != MT_ENOENT) mt_warn("the GPU is left alone: %s", why.msg);
        return mt_device_cpu.open(out, options, err);
    }
    return mt_fail(err, MT_EINVAL, "--device %s: expected auto, cpu, cuda or cuda:N", word);
}
