/* Lets the device's kernels get ready for what the plans will ask of them, so that no step is the
 * one that does. Knows nothing of what they do for it. */
#include "engine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Orders RUN commands by op and sizes; sl_op_attrs has no padding, so its bytes compare. */
static int compare_runs(const void *a, const void *b)
{
    const sl_bound_command *x = *(const sl_bound_command *const *)a;
    const sl_bound_command *y = *(const sl_bound_command *const *)b;
    if (x->op_kind != y->op_kind)
        return x->op_kind < y->op_kind ? -1 : 1;
    return memcmp(x->call.attrs, y->call.attrs, sizeof *x->call.attrs);
}

static uint64_t gather_runs(const sl_engine *engine, const sl_bound_command **out_runs)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < engine->plan_count; i++) {
        const sl_bound_plan *plan = &engine->plans[i];
        for (uint32_t j = 0; j < plan->plan->body_count; j++) {
            const sl_bound_command *bound = &plan->body[j];
            if (bound->kernel && bound->command->lane != SL_LANE_HOST)
                out_runs[count++] = bound;
        }
    }
    return count;
}

static sl_status prepare_each(sl_engine *engine, const sl_bound_command *const *runs,
                              uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (i > 0 && compare_runs(&runs[i - 1], &runs[i]) == 0)
            continue;
        sl_status status =
            engine->kernels->prepare(engine->library, runs[i]->op_kind, runs[i]->call.attrs);
        if (status != SL_OK)
            return sl_status_prefix(status, "preparing %s", sl_walk_op_name(runs[i]->op_kind));
    }
    return SL_OK;
}

const char *sl_engine_kernel_choice(const sl_engine *engine, uint64_t index)
{
    return engine->kernels->choice(engine->library, index);
}

sl_status sl_prepare(sl_engine *engine)
{
    uint64_t capacity = 1;
    for (uint32_t i = 0; i < engine->plan_count; i++)
        capacity += engine->plans[i].plan->body_count;
    const sl_bound_command **runs = calloc(capacity, sizeof *runs);
    if (!runs)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %" PRIu64 " commands", capacity);
    uint64_t count = gather_runs(engine, runs);
    qsort(runs, count, sizeof *runs, compare_runs);
    sl_status status = prepare_each(engine, runs, count);
    free(runs);
    return status;
}
