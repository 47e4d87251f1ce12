/* choices.h - choices that a person makes in the settings and the data code carries out.  Settings and data may not include each
 * other, so that both find them here.  Zero is the default. */
#ifndef MT_BASE_CHOICES_H
#define MT_BASE_CHOICES_H

/* How a text file becomes records. */
typedef enum mt_sample_by { MT_SAMPLE_LINE, MT_SAMPLE_PARAGRAPH, MT_SAMPLE_DOCUMENT } mt_sample_by;

/* Conversations whose earlier turns a template renders differently later on. */
typedef enum mt_history { MT_HISTORY_UNROLL, MT_HISTORY_LAST } mt_history;

/* Samples beyond max_seq_len.  AUTO: truncate conversations, split plain text. */
typedef enum mt_overlong { MT_OVERLONG_AUTO, MT_OVERLONG_TRUNCATE, MT_OVERLONG_SPLIT, MT_OVERLONG_SKIP } mt_overlong;

/* What an answer without a thought gets where the template thinks.  AUTO: as the template variable enable_thinking says (true:
 * TRAINED, false: PROMPT); without it, a thought that the generation prompt opens is closed, which is learned. */
typedef enum mt_empty_thought {
    MT_THOUGHT_AUTO,
    MT_THOUGHT_NONE,   /* nothing */
    MT_THOUGHT_PROMPT, /* an empty thought as a part of the prompt */
    MT_THOUGHT_TRAINED /* an empty thought that is learned */
} mt_empty_thought;

/* How several datasets become one order (data/mix.h). */
typedef enum mt_mix_strategy { MT_MIX_CONCAT, MT_MIX_UNDER, MT_MIX_OVER } mt_mix_strategy;

#endif
