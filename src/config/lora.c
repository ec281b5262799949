/* See lora.h. */
#include "lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

/* Commas or words separate targets. */
static sl_status join_targets(const sl_config_list *list, sl_lora *lora)
{
    size_t length = 0;
    lora->targets[0] = '\0';
    for (uint32_t i = 0; i < list->count; i++) {
        length += (size_t)snprintf(lora->targets + length, sizeof lora->targets - length, "%s%s",
                                   i > 0 ? "," : "", list->items[i]);
        if (length >= sizeof lora->targets)
            SL_FAIL(SL_ERROR_USAGE,
                    "--lora-targets: more than %zu characters: name layers by patterns, such as "
                    "'layers.*.mlp.*'",
                    sizeof lora->targets - 1);
    }
    return SL_OK;
}

static sl_status choose_targets(const sl_config *config, const sl_lora *base,
                                const sl_model_shape *shape, sl_lora *lora)
{
    const char *linears = sl_model_shape_attention_linears(shape);
    if (config->lora_targets.count > 0)
        return join_targets(&config->lora_targets, lora);
    if (base->rank == 0 && linears == NULL)
        SL_FAIL(SL_ERROR_USAGE, "--lora-rank: the model is the program's own: name its layers by "
                                "--lora-targets, or give --lora-targets " SL_LORA_ALL);
    snprintf(lora->targets, sizeof lora->targets, "%s", base->rank > 0 ? base->targets : linears);
    return SL_OK;
}

enum { DIFFERENCE_BYTES = sizeof((sl_lora *)0)->targets + 64 };

/* "rank 4, alpha 8, for q_proj", of it what differs: what is not given is the base's. */
static void describe_difference(const sl_lora *base, const sl_lora *lora,
                                char text[DIFFERENCE_BYTES])
{
    char rank[24] = "", alpha[32] = "";
    if (lora->rank != base->rank)
        snprintf(rank, sizeof rank, ", rank %u", lora->rank);
    if (lora->alpha != base->alpha)
        snprintf(alpha, sizeof alpha, ", alpha %g", lora->alpha);
    const bool has_targets = strcmp(lora->targets, base->targets) != 0;
    char all[DIFFERENCE_BYTES];
    snprintf(all, sizeof all, "%s%s%s%s", rank, alpha, has_targets ? ", for " : "",
             has_targets ? lora->targets : "");
    snprintf(text, DIFFERENCE_BYTES, "%s", all + strlen(", "));
}

static sl_status check_base(const sl_lora *base, const sl_lora *lora)
{
    if (base->rank == 0 || sl_lora_is_same(base, lora))
        return SL_OK;
    char difference[DIFFERENCE_BYTES];
    describe_difference(base, lora, difference);
    SL_FAIL(SL_ERROR_USAGE,
            "the weights have adapters of rank %u, alpha %g, for %s, and the options say %s: leave "
            "--lora-rank, --lora-alpha and --lora-targets out, or begin with the merged weights "
            "(sluice convert --merge)",
            base->rank, base->alpha, base->targets, difference);
}

/* Options without a meaning, unless they say what was resolved before. */
static sl_status refuse_without_rank(const sl_config *config)
{
    const char *name = !isnan(config->lora_alpha)       ? "lora-alpha"
                       : config->lora_targets.count > 0 ? "lora-targets"
                       : config->lora_dropout > 0       ? "lora-dropout"
                                                        : NULL;
    if (name != NULL)
        SL_FAIL(SL_ERROR_USAGE, "--%s needs --lora-rank, as in --lora-rank 8", name);
    return SL_OK;
}

sl_status sl_config_take_lora(sl_config *config, const sl_lora *base, sl_model_shape *shape)
{
    sl_lora lora = {.rank = config->lora_rank > 0 ? (uint32_t)config->lora_rank : base->rank};
    shape->lora = (sl_lora){0};
    if (lora.rank == 0)
        return refuse_without_rank(config);
    lora.alpha = base->rank > 0 ? base->alpha : lora.rank;
    if (!isnan(config->lora_alpha))
        lora.alpha = config->lora_alpha;
    SL_TRY(choose_targets(config, base, shape, &lora));
    SL_TRY(check_base(base, &lora));
    shape->lora = lora;
    config->lora_rank = lora.rank;
    config->lora_alpha = lora.alpha;
    return sl_config_resolve(config, SL_CONFIG_ROW_lora_targets, lora.targets);
}

/* ---- the layers ---- */

/* The name of the layer that an adapter is beside; false: the tensor is no first one of two. */
static bool find_layer(const sl_tensor_spec *spec, char layer[sizeof spec->name])
{
    const size_t length = strlen(spec->name), ending = strlen(SL_LORA_A);
    if (!spec->is_adapter || length <= ending + 1 ||
        strcmp(spec->name + length - ending, SL_LORA_A) != 0)
        return false;
    snprintf(layer, sizeof spec->name, "%.*s", (int)(length - ending - 1), spec->name);
    return true;
}

static bool is_used(const char *target, const sl_program *program)
{
    char layer[sizeof program->tensors->name];
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (find_layer(&program->tensors[t], layer) && sl_lora_matches(target, layer))
            return true;
    return false;
}

/* The name of a linear layer's weight in the last block, for a message. */
static const char *find_example(const sl_program *program)
{
    enum { WEIGHT = 1 };
    const char *name = "";
    for (uint32_t o = 0; o < program->op_count; o++) {
        const sl_op *op = &program->ops[o];
        if (op->kind == SL_OP_LINEAR)
            name = program->tensors[program->values[op->operand[WEIGHT]].index].name;
    }
    return name;
}

sl_status sl_lora_check(const sl_lora *lora, const sl_program *program)
{
    sl_lora_target at = {.rest = NULL};
    while (lora->rank > 0 && sl_lora_next(lora, &at)) {
        if (is_used(at.text, program))
            continue;
        const char *example = find_example(program);
        const char *end = strrchr(example, '.'); /* of "layers.3.mlp.down_proj.weight" */
        SL_FAIL(SL_ERROR_USAGE,
                "--lora-targets: \"%s\" names no linear layer; they are called like %.*s, and the "
                "end of a name behind a dot names them in all blocks",
                at.text, end ? (int)(end - example) : 0, example);
    }
    return SL_OK;
}
