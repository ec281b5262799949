/* See job_rules.h. */
#include "job_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/freeze.h"
#include "config/lora.h"

/* ---- equal blocks ---- */

/* A name is "h.12.mlp.c_fc.weight": the number of its block begins behind the first dot. */
typedef struct block_name {
    unsigned long block;
    const char *digits, *rest; /* rest: from the dot behind the number on */
} block_name;

/* False: the tensor is of no block. */
static bool split_name(const char *name, block_name *out)
{
    const char *dot = strchr(name, '.');
    char *end;
    if (dot == NULL || dot[1] < '0' || dot[1] > '9')
        return false;
    *out = (block_name){.block = strtoul(dot + 1, &end, 10), .digits = dot + 1};
    out->rest = end;
    return *end == '.';
}

/* The same tensor of block 0; NULL: it has none. */
static const sl_tensor_spec *find_first(const sl_program *whole, const char *name,
                                        const block_name *at)
{
    char first[sizeof whole->tensors->name + 2];
    snprintf(first, sizeof first, "%.*s0%s", (int)(at->digits - name), name, at->rest);
    for (uint32_t t = 0; t < whole->tensor_count; t++)
        if (strcmp(whole->tensors[t].name, first) == 0)
            return &whole->tensors[t];
    return NULL;
}

static sl_status refuse_block(const char *name, const block_name *at)
{
    SL_FAIL(SL_ERROR_USAGE,
            "one block stands for all, and \"%s\" is in another way than in block 0: let patterns "
            "match it in every block, as '%.*s*%s'",
            name, (int)(at->digits - name), name, at->rest);
}

/* Tensors of a block 0 that is like the others are as many as those of each. */
static sl_status check_blocks(const sl_program *whole, uint32_t layers)
{
    uint64_t first_count = 0, count = 0;
    const sl_tensor_spec *last = NULL;
    block_name at, last_at = {.block = 0};
    for (uint32_t t = 0; t < whole->tensor_count; t++) {
        const sl_tensor_spec *spec = &whole->tensors[t];
        if (!split_name(spec->name, &at))
            continue;
        const sl_tensor_spec *first = find_first(whole, spec->name, &at);
        if (first == NULL || first->rule != spec->rule)
            return refuse_block(spec->name, &at);
        first_count += at.block == 0;
        count++;
        if (at.block == 0 && spec->is_adapter) {
            last = spec;
            last_at = at;
        }
    }
    if (last != NULL && count != first_count * layers)
        return refuse_block(last->name, &last_at);
    return SL_OK;
}

/* ---- the job ---- */

static sl_status check_whole(sl_cluster_job *job, sl_program *whole)
{
    SL_TRY(sl_lora_check(&job->shape.lora, whole));
    SL_TRY(sl_update_rules_apply(&job->rules, whole));
    SL_TRY(sl_update_rules_check(&job->rules, whole));
    SL_TRY(check_blocks(whole, job->shape.layers));
    job->parameters += sl_freeze_count_adapters(whole);
    if (!sl_update_rules_freeze(&job->rules))
        return SL_OK;
    job->trained = sl_freeze_count_trained(whole);
    job->token_flops = sl_freeze_token_flops(whole, job->seq);
    return SL_OK;
}

sl_status sl_cluster_check_rules(sl_cluster_job *job)
{
    const sl_model_options options = {.batch = 1, .seq = 1, .tp_size = 1};
    sl_program *whole;
    job->parameters = job->trained = sl_model_shape_parameters(&job->shape);
    job->token_flops = sl_model_shape_token_flops(&job->shape, job->seq);
    if (!sl_update_rules_are_given(&job->rules))
        return SL_OK;
    SL_TRY(sl_model_shape_emit(&job->shape, &options, &whole));
    const sl_status status = check_whole(job, whole);
    sl_program_close(whole);
    return status;
}
