/* chat.h - a question to a chat model as tokens, or a conversation, for the library and for `generate`. */
#ifndef MT_API_CHAT_H
#define MT_API_CHAT_H

#include "data/sampler.h"

/* The sampler that renders conversations: the same one that makes training samples, so that prompts look as in training. instead:
 * the advice in the error if the tokenizer has no chat template ("omit --chat"). */
mt_rc mt_chat_open(mt_sampler **out, const mt_tokenizer *tok, const char *instead, mt_err *err);
/* The conversation for the template: a system message (NULL: none), then the user's. */
mt_rc mt_chat_encode(const mt_sampler *asker, const char *system_text, const char *text, mt_tokens *out, mt_err *err);
/* The same for a list of turns as messages.h makes them; system_text NULL: theirs, if they begin with one.  tools: a list, or
 * NULL. */
mt_rc mt_chat_encode_turns(const mt_sampler *asker, const char *system_text, const mt_value *turns, const mt_value *tools,
                           mt_tokens *out, mt_err *err);

#endif
