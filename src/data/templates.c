/* templates.c - see templates.h.  To add one, add a row.
 *
 * Each writes `system` where its model expects it, a user turn up to the point where the model answers, and the answer
 * with its end.  Roles a model was not trained with (tool) are refused by raise_exception rather than written somehow. */
#include "data/templates.h"

#include "base/log.h"
#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

#define REFUSE_OTHERS "{% else %}{{ raise_exception('this template has no ' ~ m.role ~ ' turns') }}{% endif %}"
#define FOR_EACH      "{% for m in messages %}"
#define END_FOR       "{% endfor %}"
#define IF_SYSTEM     "{% if m.role == 'system' %}"
#define IF_USER       "{% elif m.role == 'user' %}"
#define IF_ANSWER     "{% elif m.role == 'assistant' %}"
#define PROMPT(text)  "{% if add_generation_prompt %}{{ " text " }}{% endif %}"

/* Every role the same way: header, content, end. */
#define ALIKE(before_role, after_role, end, prompt)                                                                              \
    FOR_EACH "{% if m.role in ['system', 'user', 'assistant'] %}{{ " before_role " ~ m.role ~ " after_role " ~ m.content ~ " end \
             " }}" REFUSE_OTHERS END_FOR                                                                                         \
             PROMPT(prompt)

/* The system message of conversations that bring none, as the model's template or LLaMA-Factory's of that name has it. */
#define UNLESS_SYSTEM(text) "{% if messages[0].role != 'system' %}{{ " text " }}{% endif %}"

/* Each role in its own way. */
#define TURNS(system, user, answer, prompt)                                                                                      \
    FOR_EACH IF_SYSTEM "{{ " system " }}" IF_USER "{{ " user " }}" IF_ANSWER "{{ " answer " }}" REFUSE_OTHERS END_FOR PROMPT(    \
        prompt)

#define IM_TOKENS        "<|im_start|>", "<|im_end|>"
#define CHATML           ALIKE("'<|im_start|>'", "'\\n'", "'<|im_end|>\\n'", "'<|im_start|>assistant\\n'")
#define CHATML_BY(brief) UNLESS_SYSTEM("'<|im_start|>system\\n" brief "<|im_end|>\\n'") CHATML
#define LLAMA3_TOKENS    "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"
#define LLAMA3                                                                                                                   \
    ALIKE("'<|start_header_id|>'", "'<|end_header_id|>\\n\\n'", "'<|eot_id|>'",                                                  \
          "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'")
#define GLM4_TOKENS "[gMASK]", "<sop>", "<|user|>", "<|assistant|>"
/* The model learns to write the line break after its header, too. */
#define GLM4_TURNS ALIKE("'<|'", "'|>\\n'", "''", "'<|assistant|>'")
#define GLM4       "{{ '[gMASK]<sop>' }}" GLM4_TURNS
/* Every turn between bos and eos, its role on the first line. */
#define SEED ALIKE("bos_token", "'\\n'", "eos_token", "bos_token ~ 'assistant\\n'")
#define BAICHUAN(user, answer)                                                                                                   \
    FOR_EACH IF_SYSTEM "{{ m.content }}" IF_USER "{{ '" user "' ~ m.content ~ '" answer "' }}" IF_ANSWER                         \
                       "{{ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR
#define CODE_ONLY(model, maker)                                                                                                  \
    "You are an AI programming assistant, utilizing the " model " model, developed by " maker ", and you only answer questions " \
    "related to computer science. For politically sensitive questions, security and privacy issues, and other non-computer "     \
    "science questions, you will refuse to answer."
#define GRANITE                                                                                                                  \
    ALIKE("'<|start_of_role|>'", "'<|end_of_role|>'", "'<|end_of_text|>\\n'", "'<|start_of_role|>assistant<|end_of_role|>'")

/* The system text goes in front of the first question, which is message 0 or 1: `brief` is it, once. */
#define BRIEF_OR(text) "{% set brief = messages[0].content if messages[0].role == 'system' else '" text "' %}"
#define BRIEF          BRIEF_OR("")
#define LLAMA2(brief)                                                                                                            \
    brief FOR_EACH "{% if m.role == 'system' %}" IF_USER                                                                         \
                   "{{ bos_token ~ '[INST] ' ~ ('<<SYS>>\\n' ~ brief ~ '\\n<</SYS>>\\n\\n' if brief and loop.index0 < 2 else "   \
                   "'') ~ m.content ~ "                                                                                          \
                   "' [/INST]' }}" IF_ANSWER "{{ ' ' ~ m.content ~ ' ' ~ eos_token }}" REFUSE_OTHERS END_FOR

/* What LLaMA-Factory's text of a name is not, as one clause. */
#define SPACES  "spaces and line breaks between turns are as the model's maker writes them"
#define EOS     "the eos token ends every answer"
#define GLM_END "<|user|> ends an answer, as GLM-4 stops"

const mt_template mt_template_plain = {
    .name = "default",
    .differs = "a line break and no eos stand after the question, and eos ends an answer",
    .form = true,
    .text =
        FOR_EACH IF_SYSTEM "{{ m.content ~ '\\n\\n' }}" IF_USER "{{ 'Human: ' ~ m.content ~ '\\n\\nAssistant:\\n' }}" IF_ANSWER
                           "{{ m.content ~ eos_token ~ '\\n\\n' }}" REFUSE_OTHERS END_FOR,
};

static const mt_template table[] = {
    { .name = "chatml", .tokens = { IM_TOKENS }, .text = CHATML, .form = true },
    { .name = "chatml_de",
      .tokens = { IM_TOKENS },
      .text = CHATML_BY("Du bist ein freundlicher und hilfsbereiter KI-Assistent."),
      .form = true },
    { .name = "yi", .aliases = " smollm qwen3_nothink qwen3_5_nothink ", .tokens = { IM_TOKENS }, .text = CHATML },
    { .name = "qwen3", .aliases = " qwen3_5 qwen3_6 ", .tokens = { IM_TOKENS }, .text = CHATML, .thought = "<think>" },
    { .name = "mimo", .tokens = { IM_TOKENS }, .text = CHATML_BY("You are a helpful assistant."), .thought = "<think>" },
    { .name = "opencoder", .tokens = { IM_TOKENS }, .text = CHATML_BY("You are OpenCoder, created by OpenCoder Team.") },
    { .name = "sailor",
      .tokens = { IM_TOKENS },
      .text =
          UNLESS_SYSTEM("'<|im_start|>system\\nYou are an AI assistant named Sailor created by Sea AI Lab. Your answer should be "
                        "friendly, unbiased, faithful, informative and detailed.<|im_end|>\\n'")
              TURNS("'<|im_start|>system\\n' ~ m.content ~ '<|im_end|>\\n'",
                    "'<|im_start|>question\\n' ~ m.content ~ '<|im_end|>\\n'",
                    "'<|im_start|>answer\\n' ~ m.content ~ '<|im_end|>\\n'", "'<|im_start|>answer\\n'") },
    { .name = "ernie",
      .tokens = { IM_TOKENS },
      .text = UNLESS_SYSTEM("'<|im_start|>system\\n<global_setting>\\nthink_mode=True\\n</global_setting><|im_end|>\\n\\n'")
          ALIKE("'<|im_start|>'", "'\\n'", "'<|im_end|>\\n\\n'", "'<|im_start|>assistant\\n'") },
    { .name = "ernie_nothink",
      .tokens = { "<|begin_of_sentence|>", "<|end_of_sentence|>" },
      .text = "{{ '<|begin_of_sentence|>' }}" TURNS("m.content ~ '\\n'", "'User: ' ~ m.content ~ '\\n'",
                                                    "'Assistant: ' ~ m.content ~ '<|end_of_sentence|>'", "'Assistant: '") },
    { .name = "qwen",
      .aliases = " qwen2.5 ",
      .tokens = { IM_TOKENS },
      .text = CHATML_BY("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.") },
    { .name = "qwen2", .tokens = { IM_TOKENS }, .text = CHATML_BY("You are a helpful assistant.") },
    { .name = "smollm2",
      .differs = "the system message has no period at its end, as in the model's own template",
      .tokens = { IM_TOKENS },
      .text = CHATML_BY("You are a helpful AI assistant named SmolLM, trained by Hugging Face") },
    { .name = "internlm2",
      .differs = "its default system message is left out",
      .aliases = " intern2 ",
      .tokens = { IM_TOKENS },
      .text = "{{ bos_token }}" CHATML },
    { .name = "llama2", .differs = SPACES, .text = LLAMA2(BRIEF) },
    { .name = "llama2_zh", .differs = SPACES, .text = LLAMA2(BRIEF_OR("You are a helpful assistant. 你是一个乐于助人的助手。")) },
    { .name = "llama3",
      .aliases = " llama3.1 llama3.2 llama3.3 ",
      .tokens = { LLAMA3_TOKENS },
      .text = "{{ bos_token }}" LLAMA3 },
    { .name = "skywork_o1",
      .tokens = { LLAMA3_TOKENS },
      .text = "{{ bos_token }}" UNLESS_SYSTEM("\"<|start_header_id|>system<|end_header_id|>\\n\\nYou are Skywork-o1, a thinking "
                                              "model developed by Skywork AI, specializing in "
                                              "solving complex problems involving mathematics, coding, and logical reasoning "
                                              "through deep thought. When faced with a user's "
                                              "request, you first engage in a lengthy and in-depth thinking process to explore "
                                              "possible solutions to the problem. After "
                                              "completing your thoughts, you then provide a detailed explanation of the solution "
                                              "process in your response.<|eot_id|>\"") LLAMA3 },
    { .name = "openchat-3.6",
      .tokens = { LLAMA3_TOKENS },
      .text =
          "{{ bos_token }}" TURNS("'<|start_header_id|>System<|end_header_id|>\\n\\n' ~ m.content ~ '<|eot_id|>'",
                                  "'<|start_header_id|>GPT4 Correct User<|end_header_id|>\\n\\n' ~ m.content ~ '<|eot_id|>'",
                                  "'<|start_header_id|>GPT4 Correct Assistant<|end_header_id|>\\n\\n' ~ m.content ~ '<|eot_id|>'",
                                  "'<|start_header_id|>GPT4 Correct Assistant<|end_header_id|>\\n\\n'") },
    { .name = "openchat",
      .differs = SPACES,
      .text = "{{ bos_token }}" FOR_EACH IF_SYSTEM "{{ m.content ~ eos_token }}" IF_USER
              "{{ 'GPT4 Correct User: ' ~ m.content ~ eos_token ~ 'GPT4 Correct Assistant:' }}" IF_ANSWER
              "{{ ' ' ~ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR },
    { .name = "llama4",
      .tokens = { "<|header_start|>", "<|header_end|>", "<|eot|>" },
      .text = "{{ bos_token }}" ALIKE("'<|header_start|>'", "'<|header_end|>\\n\\n'", "'<|eot|>'",
                                      "'<|header_start|>assistant<|header_end|>\\n\\n'") },
    { .name = "mistral",
      .differs = SPACES,
      .aliases = " mixtral ",
      .text =
          BRIEF "{{ bos_token }}" FOR_EACH "{% if m.role == 'system' %}" IF_USER
                "{{ '[INST] ' ~ (brief ~ '\\n\\n' if brief and loop.index0 == 1 else '') ~ m.content ~ ' [/INST]' }}" IF_ANSWER
                "{{ ' ' ~ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR },
    { .name = "mistral_nemo",
      .aliases = " ministral ministral3 ",
      .tokens = { "[INST]", "[/INST]" },
      .text = BRIEF "{{ bos_token }}" FOR_EACH "{% if m.role == 'system' %}" IF_USER
                    "{{ '[INST]' ~ (brief ~ '\\n\\n' if brief and loop.index0 == 1 else '') ~ m.content ~ '[/INST]' }}" IF_ANSWER
                    "{{ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR },
    { .name = "mistral_small",
      .tokens = { "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]" },
      .text = "{{ bos_token }}" FOR_EACH IF_SYSTEM "{{ '[SYSTEM_PROMPT]' ~ m.content ~ '[/SYSTEM_PROMPT]' }}" IF_USER
              "{{ '[INST]' ~ m.content ~ '[/INST]' }}" IF_ANSWER "{{ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR },
    { .name = "gemma",
      .differs = "<end_of_turn> alone ends an answer, as the model's maker has it (with gemma2 it also writes <eos>)",
      .aliases = " gemma2 gemma3 ",
      .tokens = { "<start_of_turn>", "<end_of_turn>" },
      .text = BRIEF "{{ bos_token }}" FOR_EACH "{% if m.role == 'system' %}" IF_USER
                    "{{ '<start_of_turn>user\\n' ~ (brief ~ '\\n\\n' if brief and loop.index0 == 1 else '') ~ m.content ~ "
                    "'<end_of_turn>\\n' }}" IF_ANSWER
                    "{{ '<start_of_turn>model\\n' ~ m.content ~ '<end_of_turn>\\n' }}" REFUSE_OTHERS END_FOR PROMPT(
                        "'<start_of_turn>model\\n'") },
    { .name = "phi3",
      .aliases = " phi phi_small ",
      .tokens = { "<|user|>", "<|assistant|>", "<|end|>" },
      .text = ALIKE("'<|'", "'|>\\n'", "'<|end|>\\n'", "'<|assistant|>\\n'") },
    { .name = "phi4",
      .tokens = { "<|im_start|>", "<|im_sep|>", "<|im_end|>" },
      .text = ALIKE("'<|im_start|>'", "'<|im_sep|>'", "'<|im_end|>'", "'<|im_start|>assistant<|im_sep|>'") },
    { .name = "phi4_mini",
      .tokens = { "<|user|>", "<|assistant|>", "<|end|>" },
      .text = ALIKE("'<|'", "'|>'", "'<|end|>'", "'<|assistant|>'") },
    { .name = "glm4", .differs = GLM_END, .aliases = " chatglm3 ", .tokens = { GLM4_TOKENS }, .text = GLM4 },
    { .name = "glmz1",
      .differs = GLM_END,
      .aliases = " glm4_moe glm4_7 ",
      .tokens = { GLM4_TOKENS },
      .text = GLM4,
      .thought = "<think>" },
    { .name = "aeva",
      .differs = GLM_END,
      .tokens = { GLM4_TOKENS },
      .text = "{{ '[gMASK]<sop>' }}" UNLESS_SYSTEM(
          "'<|system|>\\nYou are an AI assistant named Aeva created by Zongzhi Lou. Your answer should be friendly, unbiased, "
          "faithful, informative and detailed.'") GLM4_TURNS,
      .thought = "<think>" },
    { .name = "deepseek",
      .differs = SPACES,
      .text =
          "{{ bos_token }}" FOR_EACH IF_SYSTEM "{{ m.content ~ '\\n\\n' }}" IF_USER
          "{{ 'User: ' ~ m.content ~ '\\n\\nAssistant:' }}" IF_ANSWER "{{ ' ' ~ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR },
    { .name = "deepseek3",
      .aliases = " deepseek2 ",
      .tokens = { "<｜User｜>", "<｜Assistant｜>" },
      .text = "{{ bos_token }}" FOR_EACH IF_SYSTEM "{{ m.content }}" IF_USER "{{ '<｜User｜>' ~ m.content }}" IF_ANSWER
              "{{ '<｜Assistant｜>' ~ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR PROMPT("'<｜Assistant｜>'") },
    { .name = "deepseekr1",
      .tokens = { "<｜User｜>", "<｜Assistant｜>" },
      .text = "{{ bos_token }}" FOR_EACH IF_SYSTEM "{{ m.content }}" IF_USER "{{ '<｜User｜>' ~ m.content }}" IF_ANSWER
              "{{ '<｜Assistant｜>' ~ m.content.split('</think>')[-1] ~ eos_token }}" REFUSE_OTHERS END_FOR PROMPT(
                  "'<｜Assistant｜><think>\\n'"),
      .thought = "<think>" },
    { .name = "deepseekcoder",
      .tokens = { "<|EOT|>" },
      .text = "{{ bos_token }}" UNLESS_SYSTEM("'" CODE_ONLY("DeepSeek Coder", "DeepSeek Company") "\\n'") FOR_EACH IF_SYSTEM
      "{{ m.content }}" IF_USER "{{ '### Instruction:\\n' ~ m.content ~ '\\n### Response:' }}" IF_ANSWER
      "{{ '\\n' ~ m.content ~ '\\n<|EOT|>\\n' }}" REFUSE_OTHERS END_FOR },
    { .name = "vicuna",
      .differs = SPACES,
      .form = true,
      .text = UNLESS_SYSTEM(
          "\"A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
          "and polite answers to the user's questions. \"") FOR_EACH IF_SYSTEM
      "{{ m.content ~ ' ' }}" IF_USER "{{ 'USER: ' ~ m.content ~ ' ASSISTANT:' }}" IF_ANSWER
      "{{ ' ' ~ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR },
    { .name = "alpaca",
      .form = true,
      .text = UNLESS_SYSTEM(
          "'Below is an instruction that describes a task. Write a response that appropriately completes the request.\\n\\n'")
          FOR_EACH IF_SYSTEM "{{ m.content ~ '\\n\\n' }}" IF_USER
                             "{{ '### Instruction:\\n' ~ m.content ~ '\\n\\n### Response:\\n' }}" IF_ANSWER
                             "{{ m.content ~ eos_token ~ '\\n\\n' }}" REFUSE_OTHERS END_FOR },
    { .name = "zephyr",
      .differs = "its default system message is left out, and turns end as the model's maker ends them",
      .text = ALIKE("'<|'", "'|>\\n'", "eos_token ~ '\\n'", "'<|assistant|>\\n'") },
    { .name = "granite3", .tokens = { "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>" }, .text = GRANITE },
    { .name = "granite4",
      .tokens = { "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>" },
      .text = UNLESS_SYSTEM("'<|start_of_role|>system<|end_of_role|>You are Granite, developed by IBM. You are a helpful AI "
                            "assistant.<|end_of_text|>\\n'") GRANITE },
    { .name = "baichuan2",
      .differs = EOS,
      .tokens = { "<reserved_106>", "<reserved_107>" },
      .text = BAICHUAN("<reserved_106>", "<reserved_107>") },
    { .name = "baichuan",
      .differs = EOS,
      .tokens = { "<reserved_102>", "<reserved_103>" },
      .text = BAICHUAN("<reserved_102>", "<reserved_103>") },
    { .name = "exaone",
      .tokens = { "[|system|]", "[|user|]", "[|assistant|]", "[|endofturn|]" },
      .text = TURNS("'[|system|]' ~ m.content ~ '[|endofturn|]\\n'", "'[|user|]' ~ m.content ~ '\\n'",
                    "'[|assistant|]' ~ m.content ~ eos_token ~ '\\n'", "'[|assistant|]'") },
    { .name = "seed_oss", .text = SEED, .thought = "<seed:think>" },
    { .name = "seed_coder",
      .text = UNLESS_SYSTEM("bos_token ~ 'system\\n" CODE_ONLY("Seed-Coder", "ByteDance Seed") "\\n\\n' ~ eos_token") SEED },
    { .name = "hunyuan",
      .tokens = { "<|startoftext|>", "<|extra_0|>", "<|extra_4|>", "<|eos|>" },
      .text = "{{ '<|startoftext|>' }}" FOR_EACH IF_SYSTEM "{{ m.content ~ '<|extra_4|>' }}" IF_USER
              "{{ m.content ~ '<|extra_0|>' }}" IF_ANSWER "{{ m.content ~ '<|eos|>' }}" REFUSE_OTHERS END_FOR },
    { .name = "hunyuan_small",
      .tokens = { "<｜hy_begin▁of▁sentence｜>", "<｜hy_User｜>", "<｜hy_place▁holder▁no▁8｜>", "<｜hy_place▁holder▁no▁2｜>",
                  "<｜hy_place▁holder▁no▁3｜>" },
      .text = "{{ '<｜hy_begin▁of▁sentence｜>' }}" FOR_EACH IF_SYSTEM "{{ m.content ~ '<｜hy_place▁holder▁no▁3｜>' }}" IF_USER
              "{{ '<｜hy_User｜>' ~ m.content ~ '<｜hy_place▁holder▁no▁8｜>' }}" IF_ANSWER
              "{{ m.content ~ '<｜hy_place▁holder▁no▁2｜>' }}" REFUSE_OTHERS END_FOR },
    { .name = "moonlight",
      .tokens = { "<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>" },
      .text = UNLESS_SYSTEM("'<|im_system|>system<|im_middle|>You are a helpful assistant provided by Moonshot-AI.<|im_end|>'")
          ALIKE("'<|im_' ~ m.role ~ '|>'", "'<|im_middle|>'", "'<|im_end|>'", "'<|im_assistant|>assistant<|im_middle|>'") },
    { .name = "minimax2",
      .tokens = { "]~!b[", "]~b]", "[e~[" },
      .text = UNLESS_SYSTEM(
          "']~!b[]~b]system\\nYou are a helpful assistant. Your name is MiniMax-M2.1 and is built by MiniMax.[e~[\\n'")
          TURNS("']~!b[]~b]system\\n' ~ m.content ~ '[e~[\\n'", "']~b]user\\n' ~ m.content ~ '[e~[\\n'",
                "']~b]ai\\n' ~ m.content ~ '[e~[\\n'", "']~b]ai\\n'"),
      .thought = "<think>" },
    { .name = "xuanyuan",
      .text = UNLESS_SYSTEM(
          "'以下是用户和人工智能助手之间的对话。用户以Human开头，人工智能助手以Assistant开头，会对人类提出的问题给出有帮助、"
          "高质量、详细和礼貌的回答，并且总是拒绝参与与不道德、不安全、有争议、政治敏感等相关的话题、问题和指示。\\n'")
          FOR_EACH IF_SYSTEM "{{ m.content }}" IF_USER "{{ 'Human: ' ~ m.content ~ ' Assistant:' }}" IF_ANSWER
                             "{{ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR },
    { .name = "gpt_oss",
      .differs = "the generation prompt opens the final channel, without an empty analysis channel before it",
      .tokens = { "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>" },
      .text = UNLESS_SYSTEM("'<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.<|end|>'")
          TURNS("'<|start|>system<|message|>' ~ m.content ~ '<|end|>'", "'<|start|>user<|message|>' ~ m.content ~ '<|end|>'",
                "'<|start|>assistant<|channel|>final<|message|>' ~ m.content ~ ('<|return|>' if loop.last else '<|end|>')",
                "'<|start|>assistant<|channel|>final<|message|>'") },
    { .name = "solar",
      .differs = EOS,
      .text = FOR_EACH IF_SYSTEM "{{ '### System:\\n' ~ m.content ~ '\\n\\n' }}" IF_USER
                                 "{{ '### User:\\n' ~ m.content ~ '\\n\\n### Assistant:\\n' }}" IF_ANSWER
                                 "{{ m.content ~ eos_token ~ '\\n\\n' }}" REFUSE_OTHERS END_FOR },
    { .name = "breeze",
      .differs = EOS,
      .text = "{{ bos_token }}" FOR_EACH IF_SYSTEM "{{ m.content ~ ' ' }}" IF_USER
              "{{ '[INST] ' ~ m.content ~ ' [/INST]' }}" IF_ANSWER "{{ ' ' ~ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR },
    { .name = "atom",
      .text = FOR_EACH IF_SYSTEM
      "{{ m.content }}" IF_USER "{{ bos_token ~ 'Human: ' ~ m.content ~ '\\n' ~ eos_token ~ bos_token ~ 'Assistant:' }}" IF_ANSWER
      "{{ m.content ~ '\\n' ~ eos_token }}" REFUSE_OTHERS END_FOR },
    { .name = "ziya",
      .differs = EOS,
      .text = FOR_EACH IF_SYSTEM "{{ m.content ~ '\\n' }}" IF_USER "{{ '<human>:' ~ m.content ~ '\\n<bot>:' }}" IF_ANSWER
                                 "{{ m.content ~ eos_token ~ '\\n' }}" REFUSE_OTHERS END_FOR },
    { .name = "starchat",
      .tokens = { "<|system|>", "<|user|>", "<|assistant|>", "<|end|>" },
      .text = TURNS("'<|system|>\\n' ~ m.content ~ '<|end|>\\n'", "'<|user|>\\n' ~ m.content ~ '<|end|>\\n'",
                    "'<|assistant|>' ~ m.content ~ '<|end|>\\n'", "'<|assistant|>'") },
    { .name = "cohere",
      .tokens = { "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>" },
      .text = "{{ bos_token }}" FOR_EACH IF_SYSTEM
              "{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' ~ m.content ~ '<|END_OF_TURN_TOKEN|>' }}" IF_USER
              "{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' ~ m.content ~ '<|END_OF_TURN_TOKEN|>' }}" IF_ANSWER
              "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' ~ m.content ~ '<|END_OF_TURN_TOKEN|>' }}" REFUSE_OTHERS END_FOR
                  PROMPT("'<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'") },
    { .name = "olmo",
      .differs = SPACES,
      .text = "{{ bos_token or '' }}" FOR_EACH IF_SYSTEM "{{ '<|system|>\\n' ~ m.content ~ '\\n' }}" IF_USER
              "{{ '<|user|>\\n' ~ m.content ~ '\\n<|assistant|>\\n' }}" IF_ANSWER
              "{{ m.content ~ eos_token ~ '\\n' }}" REFUSE_OTHERS END_FOR },
    { .name = "falcon",
      .differs = EOS,
      .text = FOR_EACH IF_SYSTEM "{{ m.content ~ '\\n' }}" IF_USER "{{ 'User: ' ~ m.content ~ '\\nFalcon:' }}" IF_ANSWER
                                 "{{ ' ' ~ m.content ~ eos_token ~ '\\n' }}" REFUSE_OTHERS END_FOR },
    { .name = "fewshot",
      .differs = EOS,
      .form = true,
      .text = FOR_EACH IF_SYSTEM "{{ m.content }}" IF_USER "{{ m.content }}" IF_ANSWER
                                 "{{ m.content ~ eos_token ~ '\\n\\n' }}" REFUSE_OTHERS END_FOR },
    { .name = "empty",
      .differs = EOS,
      .form = true,
      .text = FOR_EACH IF_SYSTEM "{{ m.content }}" IF_USER "{{ m.content }}" IF_ANSWER
                                 "{{ m.content ~ eos_token }}" REFUSE_OTHERS END_FOR },
};

/* LLaMA-Factory's other names, with what their models are. */
static const struct {
    const char *what, *names;
} foreign[] = {
    { "models that see or hear",
      " dots_ocr ernie_vl gemma3n gemma4 gemma4n glm4v glm4_5v glm_ocr granite3_vision intern_vl intern_s1 keye_vl kimi_vl "
      "lfm2_vl "
      "llava llava_next llava_next_llama3 llava_next_mistral llava_next_qwen llava_next_yi llava_next_video "
      "llava_next_video_mistral llava_next_video_yi mimo_vl minicpm_o minicpm_v minicpm_v_4_6 mllama paligemma paligemma_chat "
      "pixtral "
      "qwen2_audio qwen2_omni qwen2_vl qwen3_omni qwen3_omni_nothink qwen3_vl qwen3_vl_nothink video_llava yi_vl youtu_vl " },
    { "models that are not trained here", " aquila bailing bailing_v2 bluelm chatglm2 codegeex2 cpm cpm3 cpm4 dbrx falcon_h1 hy3 "
                                          "index intern lfm2 marco mimo_v2 minimax1 "
                                          "orion telechat telechat2 xverse yayi youtu yuan " },
};

/* True if `names` has `name`, with a space around each. */
static bool has_name(const char *names, const char *name)
{
    char spaced[80];
    int n = snprintf(spaced, sizeof spaced, " %s ", name);
    return names && n > 2 && (size_t)n < sizeof spaced && !strchr(name, ' ') && strstr(names, spaced);
}

const char *mt_template_foreign(const char *name)
{
    for (size_t i = 0; i < MT_COUNT(foreign); i++)
        if (has_name(foreign[i].names, name)) return foreign[i].what;
    return NULL;
}

const mt_template *mt_template_at(size_t i)
{
    if (i == 0) return &mt_template_plain;
    return i <= MT_COUNT(table) ? &table[i - 1] : NULL;
}

const mt_template *mt_template_find(const char *name)
{
    const mt_template *t;
    for (size_t i = 0; (t = mt_template_at(i)); i++)
        if (!strcmp(t->name, name) || has_name(t->aliases, name)) return t;
    return NULL;
}

static bool same_digits(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    for (;; a++, b++) {
        a += strcspn(a, digits);
        b += strcspn(b, digits);
        if (*a != *b) return false;
        if (!*a) return true;
    }
}

void mt_template_nearest(const char *name, char near[64])
{
    mt_nearest search = { .word = name };
    const mt_template *t;
    for (size_t i = 0; (t = mt_template_at(i)); i++) {
        if (same_digits(name, t->name)) mt_nearest_offer(&search, t->name);
        for (const char *p = t->aliases; p && p[1]; p += 1 + strcspn(p + 1, " ")) {
            char alias[64];
            snprintf(alias, sizeof alias, "%.*s", (int)strcspn(p + 1, " "), p + 1);
            if (same_digits(name, alias)) mt_nearest_offer(&search, alias);
        }
    }
    memcpy(near, search.best, sizeof search.best);
}

const char *mt_template_lacks(const mt_template *t, const mt_tokenizer *tok)
{
    for (size_t i = 0; i < MT_COUNT(t->tokens) && t->tokens[i]; i++)
        if (mt_tokenizer_token_id(tok, t->tokens[i], strlen(t->tokens[i])) < 0) return t->tokens[i];
    if (strstr(t->text, "eos_token") && mt_tokenizer_role_id(tok, MT_TOK_EOS) < 0) return "an eos token";
    if (strstr(t->text, "bos_token") && !strstr(t->text, "bos_token or ''") && mt_tokenizer_role_id(tok, MT_TOK_BOS) < 0)
        return "a bos token";
    return NULL;
}

mt_rc mt_template_adopt(const char *name, mt_tokenizer *tok, mt_err *err)
{
    size_t n = 0, n_text;
    const mt_template *t = name ? mt_template_find(name) : NULL;
    if (!t) return MT_OK;
    MT_TRY(mt_tokenizer_adopt(tok, t->tokens, MT_COUNT(t->tokens), err));
    const int32_t *ids = mt_tokenizer_adopted(tok, &n);
    mt_str s = { 0 };
    for (size_t i = 0; i < n; i++) {
        const char *text = mt_tokenizer_token(tok, ids[i], &n_text);
        mt_str_puts(&s, i ? ", " : "");
        mt_str_add(&s, text, n_text);
    }
    if (n && mt_str_ok(&s))
        mt_info(
            "dataset.template %s: ordinary tokens of this vocabulary become special ones, here and in the saved tokenizer: %s",
            name, s.s);
    mt_rc rc = mt_str_ok(&s) ? MT_OK : mt_no_memory(err, "the chat template");
    mt_str_free(&s);
    return rc;
}
