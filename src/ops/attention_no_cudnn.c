/* attention_no_cudnn.c - in place of attention_cudnn.c where the build found no cuDNN headers. */
#include "ops/attention_cudnn.h"

static mt_rc absent(mt_err *err)
{
    return mt_fail(err, MT_EUNSUPPORTED, "this program was built without cuDNN; build it where cudnn.h is");
}

mt_rc mt_cudnn_attention_open(mt_cudnn_attention **out, const char *device, mt_err *err)
{
    (void)device;
    *out = NULL;
    return absent(err);
}

void mt_cudnn_attention_close(mt_cudnn_attention *c) { (void)c; }

int32_t mt_cudnn_attention_head(const mt_cudnn_attention *c)
{
    (void)c;
    return 0;
}

mt_rc mt_cudnn_attention_fwd(mt_cudnn_attention *c, void *stream, const mt_attention *a, mt_err *err)
{
    (void)c, (void)stream, (void)a;
    return absent(err);
}

mt_rc mt_cudnn_attention_bwd(mt_cudnn_attention *c, void *stream, const mt_attention *a, mt_attention_way way,
                             const mt_cudnn_layout *l, mt_cudnn_launch at, mt_err *err)
{
    (void)c, (void)stream, (void)a, (void)way, (void)l, (void)at;
    return absent(err);
}

mt_rc mt_cudnn_attention_prepare(mt_cudnn_attention *c, const mt_attention *a, bool backward, mt_attention_way way,
                                 size_t *workspace, mt_err *err)
{
    (void)c, (void)a, (void)backward, (void)way, (void)workspace;
    return absent(err);
}

void mt_cudnn_attention_expect(mt_cudnn_attention *c, const mt_attention *a) { (void)c, (void)a; }

int mt_cudnn_attention_plans(const mt_cudnn_attention *c)
{
    (void)c;
    return 0;
}

void mt_cudnn_offset_lds(const mt_attention *a, mt_attention_way way, const mt_cudnn_layout *l, int64_t ld[MT_OFFSETS])
{
    (void)a, (void)way, (void)l, (void)ld;
}
