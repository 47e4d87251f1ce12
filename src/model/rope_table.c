/* rope_table.c - rotary frequencies with every scaling, then cos and sin per position.
 * The formulas are those of transformers' modeling_rope_utils; angles are fp32 products as there. */
#include "model/config.h"

#include <math.h>

static double llama3(const mt_rope_spec *r, double theta)
{
    double wavelength = 2 * M_PI / theta, L0 = r->original_positions;
    if (wavelength < L0 / r->high_freq) return theta;
    if (wavelength > L0 / r->low_freq) return theta / r->factor;
    double s = (L0 / wavelength - r->low_freq) / (r->high_freq - r->low_freq);
    return (1 - s) * theta / r->factor + s * theta;
}

/* The dimension whose wavelength makes n turns over the original length. */
static double yarn_dim(const mt_rope_spec *r, double turns)
{
    return (double)r->dr * log(r->original_positions / (turns * 2 * M_PI)) / (2 * log(r->theta));
}

static double yarn(const mt_rope_spec *r, double theta, int64_t i)
{
    double lo = yarn_dim(r, r->beta_fast), hi = yarn_dim(r, r->beta_slow);
    if (r->truncate) lo = floor(lo), hi = ceil(hi);
    lo = fmax(lo, 0), hi = fmin(hi, (double)r->dr - 1);
    if (lo == hi) hi += 0.001;
    double ramp = fmin(fmax(((double)i - lo) / (hi - lo), 0), 1);
    return theta * (1 - ramp) + theta / r->factor * ramp;
}

static double frequency(const mt_rope_spec *r, int64_t i, bool far)
{
    double theta = pow(r->theta, -2.0 * (double)i / (double)r->dr);
    switch (r->type) {
    case MT_ROPE_LINEAR: return theta / r->factor;
    case MT_ROPE_LLAMA3: return llama3(r, theta);
    case MT_ROPE_YARN: return yarn(r, theta, i);
    case MT_ROPE_LONG: return theta / (far ? r->long_factor[i] : r->short_factor[i]);
    case MT_ROPE_DYNAMIC: /* changes nothing up to max_positions; fill_dynamic does the rest */
    case MT_ROPE_DEFAULT: break;
    }
    return theta;
}

static int64_t rope_short_rows(const mt_rope_spec *r, int64_t longest)
{
    return r->type == MT_ROPE_LONG && (double)longest > r->original_positions ? (int64_t)r->original_positions : 0;
}

/* Where both are longropes, their original_positions are the same (config_layers.c). */
int64_t mt_rope_short_rows(const mt_config *c, int64_t longest)
{
    const int64_t n = rope_short_rows(&c->rope, longest);
    return n || !c->has_rope_local ? n : rope_short_rows(&c->rope_local, longest);
}

static void rope_table_fill(const mt_rope_spec *r, bool far, int64_t n_positions, float *cos_out, float *sin_out)
{
    int64_t half = r->dr / 2;
    double factor = far && r->type == MT_ROPE_LONG ? r->long_attention_factor : r->attention_factor;
    for (int64_t i = 0; i < half; i++) {
        float theta = (float)frequency(r, i, far);
        for (int64_t p = 0; p < n_positions; p++) {
            float angle = (float)p * theta;
            cos_out[p * half + i] = (float)(cos((double)angle) * factor);
            sin_out[p * half + i] = (float)(sin((double)angle) * (r->backwards ? -factor : factor));
        }
    }
}

/* The base of a sequence of this many rows grows with what is beyond original_positions. */
static double dynamic_base(const mt_rope_spec *r, double rows)
{
    double width = (double)r->dr, grown = r->factor * rows / r->original_positions - (r->factor - 1);
    return r->theta * pow(grown, width / (width - 2));
}

/* Rows that come after the model's positions, or in a prompt that is longer than those. */
static void fill_dynamic(const mt_rope_spec *r, int64_t n_positions, int64_t prompt, float *cos_out, float *sin_out)
{
    int64_t half = r->dr / 2, known = (int64_t)r->original_positions;
    if (half < 2) return; /* the base grows by a power of dr / (dr - 2) */
    for (int64_t p = prompt > known ? 0 : known; p < n_positions; p++) {
        double base = dynamic_base(r, (double)(p < prompt ? prompt : p + 1));
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)p * (float)pow(base, -2.0 * (double)i / (double)r->dr);
            cos_out[p * half + i] = (float)cos((double)angle);
            sin_out[p * half + i] = (float)(r->backwards ? -sin((double)angle) : sin((double)angle));
        }
    }
}

void mt_rope_tables(const mt_rope_spec *r, int64_t short_rows, int64_t longest, int64_t prompt, float *cos_out, float *sin_out)
{
    const int64_t behind = short_rows * (r->dr / 2);
    rope_table_fill(r, false, short_rows, cos_out, sin_out);
    rope_table_fill(r, short_rows > 0, longest, cos_out + behind, sin_out + behind);
    if (r->type == MT_ROPE_DYNAMIC) fill_dynamic(r, short_rows, prompt, cos_out, sin_out);
    if (r->type == MT_ROPE_DYNAMIC) fill_dynamic(r, longest, prompt, cos_out + behind, sin_out + behind);
}
