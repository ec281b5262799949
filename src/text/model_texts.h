/* What is known of a model beside its weights and its vocabulary: how it is asked, and how its
 * answers end. A checkpoint keeps it, so it is there when the base model's directory is gone.
 */
#ifndef SL_TEXT_MODEL_TEXTS_H
#define SL_TEXT_MODEL_TEXTS_H

#include "text_ends.h"

#define SL_MODEL_TEXTS_CHAT_FILE "chat_template.jinja"
#define SL_MODEL_TEXTS_GENERATION_FILE "generation_config.json"

/* Texts in UTF-8, owned; NULL: not known. */
typedef struct sl_model_texts {
    char *chat;       /* the chat template of transformers, in Jinja */
    char *generation; /* the JSON object of generation_config.json, or one with the ids alone that
                         end a text ("eos_token_id") */
    char *examples;   /* the template of the examples that it was tuned on (example.h) */
} sl_model_texts;

/* Reads those of a directory of Hugging Face. The chat template is chat_template.jinja, or else the
 * text of that name in tokenizer_config.json. What cannot be read or kept is not known, and a
 * warning says why. */
sl_status sl_model_texts_read(const char *directory, sl_model_texts *out_texts);

/* Copies the texts; the caller frees the copy, also after SL_ERROR_SYSTEM. */
sl_status sl_model_texts_copy(const sl_model_texts *from, sl_model_texts *out_texts);

/* Notes the template of examples, if it can be kept; else a warning says why not. */
sl_status sl_model_texts_set_examples(sl_model_texts *texts, const char *template_text);

/* Writes the ids that end a text into `generation`, in the place of those that are there; of no ids
 * none stay there. */
sl_status sl_model_texts_set_ends(sl_model_texts *texts, const sl_text_ends *ends);

/* Adds the ids of `generation` to those that end a text of a model of `vocab` ids. `path` is the
 * model's, for messages. SL_ERROR_DATA: as sl_text_ends_read. */
sl_status sl_model_texts_find_ends(const sl_model_texts *texts, const char *path, uint32_t vocab,
                                   sl_text_ends *ends);

/* A zeroed one is fine. */
void sl_model_texts_free(sl_model_texts *texts);

#endif
