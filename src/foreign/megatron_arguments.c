/* Reads and compares arguments; see megatron_arguments.h. */
#include "megatron_arguments.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "files/files.h"

enum { WHY_BYTES = 96 };

static sl_status refuse(const sl_megatron_arguments *self, const char *key, const char *why)
{
    SL_FAIL(SL_ERROR_DATA, "%s: its argument %s %s", sl_files_show(self->path).text, key, why);
}

static bool is_true(const sl_pickle_value *value)
{
    return value && value->kind == SL_PICKLE_BOOL && value->integer != 0;
}

static sl_status check_text(const sl_megatron_arguments *self, const sl_megatron_argument *argument,
                            const sl_pickle_value *value)
{
    char why[WHY_BYTES];
    if (value->kind != SL_PICKLE_TEXT || sl_pickle_is_text(value, argument->text))
        return SL_OK;
    snprintf(why, sizeof why, "is not %s's", self->names->title);
    return refuse(self, argument->key, why);
}

static sl_status check_flag(const sl_megatron_arguments *self, const sl_megatron_argument *argument,
                            const sl_pickle_value *value)
{
    char why[WHY_BYTES];
    if (value->kind != SL_PICKLE_BOOL || is_true(value) == argument->flag)
        return SL_OK;
    snprintf(why, sizeof why, argument->flag ? "is False: %s has it" : "is True: %s has none",
             self->names->title);
    return refuse(self, argument->key, why);
}

/* Arguments that make another model of it. */
static sl_status check_arguments(const sl_megatron_arguments *self)
{
    for (const sl_megatron_argument *at = self->names->megatron_arguments; at->key; at++) {
        const sl_pickle_value *value = sl_pickle_get(self->values, at->key);
        if (value && !at->is_near)
            SL_TRY(at->text ? check_text(self, at, value) : check_flag(self, at, value));
    }
    return SL_OK;
}

/* The epsilon of norms is the same in all of the model. */
static sl_status check_epsilon(const sl_megatron_arguments *self)
{
    const sl_model_names *names = self->names;
    static const char *const keys[] = {"layernorm_epsilon", "norm_epsilon"};
    const double epsilon = names->epsilon(NULL); /* the same in all shapes */
    char why[WHY_BYTES];
    snprintf(why, sizeof why, "is not %s, as %s's", names->epsilon_text, self->names->title);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const sl_pickle_value *value = sl_pickle_get(self->values, keys[i]);
        if (value && value->kind == SL_PICKLE_REAL && fabs(value->real - epsilon) > 1e-12)
            return refuse(self, keys[i], why);
    }
    return SL_OK;
}

sl_status sl_megatron_arguments_read_size(const sl_megatron_arguments *self, const char *key,
                                          uint32_t *value)
{
    uint64_t read;
    const sl_pickle_value *argument = sl_pickle_get(self->values, key);
    if (!argument || argument->kind == SL_PICKLE_NONE)
        return SL_OK;
    if (!sl_pickle_get_u64(argument, 1, INT32_MAX, &read))
        return refuse(self, key, "is no integer from 1 to 2^31 - 1");
    *value = (uint32_t)read;
    return SL_OK;
}

sl_status sl_megatron_arguments_need_size(const sl_megatron_arguments *self, const char *key,
                                          uint64_t needed)
{
    uint32_t value = 0;
    SL_TRY(sl_megatron_arguments_read_size(self, key, &value));
    if (value == 0 || value == needed)
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA, "%s: its argument %s is %u, and %" PRIu64 " is needed",
            sl_files_show(self->path).text, key, value, needed);
}

/* The fused GeLU, Megatron's default, is the tanh form. */
static void warn_of_near(const sl_megatron_arguments *self)
{
    for (const sl_megatron_argument *at = self->names->megatron_arguments; at->key; at++) {
        const sl_pickle_value *fused = sl_pickle_get(self->values, at->key);
        if (at->is_near && fused && fused->kind == SL_PICKLE_BOOL && !is_true(fused) &&
            !is_true(sl_pickle_get(self->values, "openai_gelu")))
            sl_log_write(SL_LOG_WARNING,
                         "the model was trained without --bias-gelu-fusion, so with the exact "
                         "GeLU; %s's is the tanh form, whose values differ by up to 0.0005",
                         self->names->title);
    }
}

sl_status sl_megatron_arguments_read_shape(const sl_megatron_arguments *self, sl_model_shape *shape)
{
    const struct {
        const char *key;
        uint32_t *size;
    } sizes[] = {{"num_layers", &shape->layers},
                 {"hidden_size", &shape->width},
                 {"num_attention_heads", &shape->heads},
                 {"max_position_embeddings", &shape->context},
                 {"vocab_size", &shape->vocab}};
    SL_TRY(check_arguments(self));
    SL_TRY(check_epsilon(self));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        SL_TRY(sl_megatron_arguments_read_size(self, sizes[i].key, sizes[i].size));
    if (sl_pickle_is_text(sl_pickle_get(self->values, "tokenizer_type"), "NullTokenizer"))
        shape->vocab += shape->vocab > 0; /* it counts without the end of a document */
    if (shape->width > 0)
        SL_TRY(sl_megatron_arguments_need_size(self, "ffn_hidden_size",
                                               self->names->size(shape, SL_SIZE_INNER)));
    if (shape->heads > 0 && shape->width > 0)
        SL_TRY(sl_megatron_arguments_need_size(self, "kv_channels", shape->width / shape->heads));
    warn_of_near(self);
    return SL_OK;
}
