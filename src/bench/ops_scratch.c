/* One stretch: specials, flags, workspace. It is made on the host and copied, so that it may lie
 * where the processor does not reach. */
#include "ops_scratch.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum { TOKEN_BOUND = 50257, ALIGNMENT = 256 };

typedef struct special {
    const char *names[2]; /* of operands */
    uint64_t bytes;
} special;

enum { TOKENS, LOSS, NORM, CONTROL };

static const special specials[SL_OPS_SPECIAL_COUNT] = {
    [TOKENS] = {{"tokens", "targets"}, SL_OPS_TOKENS * sizeof(int32_t)},
    [LOSS] = {{"loss"}, sizeof(double)},
    [NORM] = {{"norm"}, sizeof(sl_norm_sum)},
    [CONTROL] = {{"control"}, sizeof(sl_step_control)},
};

void *sl_ops_special(const sl_ops *ops, const char *operand_name)
{
    for (int i = 0; i < SL_OPS_SPECIAL_COUNT; i++)
        for (int k = 0; k < 2 && specials[i].names[k]; k++)
            if (strcmp(operand_name, specials[i].names[k]) == 0)
                return ops->special[i];
    return NULL;
}

static uint64_t find_workspace_bytes(const sl_ops *ops)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < ops->count; i++) {
        const sl_ops_case *one = &ops->cases[i];
        uint64_t bytes = sl_kernels_workspace_bytes(ops->rig->kernels, one->kind, &one->attrs,
                                                    ops->rig->worker_count);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Bytes of all that have a content. */
static uint64_t find_filled_bytes(uint64_t flag_count)
{
    uint64_t bytes = sl_bits_round_up(flag_count, ALIGNMENT);
    for (int i = 0; i < SL_OPS_SPECIAL_COUNT; i++)
        bytes += sl_bits_round_up(specials[i].bytes, ALIGNMENT);
    return bytes;
}

/* The specials, the flags, the workspace. */
static void place_parts(sl_ops *ops, uint64_t flag_count)
{
    uint8_t *next = ops->scratch;
    for (int i = 0; i < SL_OPS_SPECIAL_COUNT; i++) {
        ops->special[i] = next;
        next += sl_bits_round_up(specials[i].bytes, ALIGNMENT);
    }
    ops->block_flags = next;
    ops->workspace = next + sl_bits_round_up(flag_count, ALIGNMENT);
}

static void fill_image(uint8_t *image, const sl_ops *placed)
{
    int32_t *tokens = (int32_t *)(void *)(image + (placed->special[TOKENS] - placed->special[0]));
    for (uint32_t i = 0; i < SL_OPS_TOKENS; i++)
        tokens[i] = (int32_t)((i * 2654435761u >> 8) % TOKEN_BOUND);
    const sl_step_control control = {.clip_scale = 0.5f};
    memcpy(image + (placed->special[CONTROL] - placed->special[0]), &control, sizeof control);
}

static sl_status upload_parts(sl_ops *ops, uint64_t bytes)
{
    sl_rig *rig = ops->rig;
    void *image;
    double seconds;
    SL_TRY(rig->ops->map_host(rig->device, bytes, SL_MAP_PLAIN, &image));
    fill_image(image, ops);
    const sl_rig_copy copy = {ops->scratch, image, bytes};
    sl_status status = sl_rig_copy_each(rig, &copy, 1, &seconds);
    rig->ops->unmap_host(rig->device, image, bytes, SL_MAP_PLAIN);
    return status;
}

sl_status sl_ops_take_scratch(sl_ops *ops, uint64_t flag_count)
{
    sl_rig *rig = ops->rig;
    uint64_t filled = find_filled_bytes(flag_count);
    ops->calls = calloc(SL_OPS_CALLS_MAX, sizeof *ops->calls);
    if (!ops->calls)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %d calls to measure", SL_OPS_CALLS_MAX);
    ops->scratch_bytes = filled + sl_bits_round_up(find_workspace_bytes(ops) + 1, ALIGNMENT);
    SL_TRY(rig->ops->map(rig->device, ops->scratch_bytes, SL_MAP_PLAIN, &ops->scratch));
    place_parts(ops, flag_count);
    return upload_parts(ops, filled);
}

void sl_ops_give_scratch(sl_ops *ops)
{
    if (ops->scratch)
        ops->rig->ops->unmap(ops->rig->device, ops->scratch, ops->scratch_bytes, SL_MAP_PLAIN);
    free(ops->calls);
}
