/* What binds a step, and what would make it faster: one sentence each, made of the numbers that
 * were measured. What the compute lane does longest binds: compute, or wait for one lane. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "accounts.h"
#include "config/units.h"

typedef struct text {
    char *at;
    size_t capacity, length;
} text;

static void __attribute__((format(printf, 2, 3))) add(text *to, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = vsnprintf(to->at + to->length, to->capacity - to->length, format, list);
    va_end(list);
    if (length > 0)
        to->length += (size_t)length;
    if (to->length >= to->capacity)
        to->length = to->capacity - 1;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* ---- what binds ---- */

static const char *const lane_works[SL_LANE_COUNT] = {
    [SL_LANE_COMPUTE] = "compute",
    [SL_LANE_H2D] = "copies to the device (h2d)",
    [SL_LANE_D2H] = "copies from the device (d2h)",
    [SL_LANE_HOST] = "AdamW on the host",
    [SL_LANE_READ] = "reading from disk",
    [SL_LANE_WRITE] = "writing to disk",
    [SL_LANE_COMM] = "other ranks, and exchanges with them",
    [SL_LANE_INPUT] = "the data",
};

/* COMPUTE: it is at work for longer than it waits for any other. */
static sl_lane find_binding(const sl_measured *measured)
{
    const sl_measured_lane *compute = &measured->lanes[SL_LANE_COMPUTE];
    sl_lane binding = SL_LANE_COMPUTE;
    double most_ms = compute->busy_ms;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (lane != SL_LANE_COMPUTE && compute->wait_ms[lane] > most_ms) {
            most_ms = compute->wait_ms[lane];
            binding = (sl_lane)lane;
        }
    return binding;
}

/* Threads that are ready and have no core: this was not a quiet machine. */
static bool is_disturbed(const sl_measured *measured)
{
    return measured->core_wait_ms > 0.1 * measured->step_ms;
}

static void write_binding(const sl_measured *measured, sl_lane binding, bool shares_cores, text *to)
{
    const sl_measured_lane *lanes = measured->lanes;
    double step_ms = measured->step_ms;
    if (binding == SL_LANE_COMPUTE)
        add(to, "compute: the compute lane is at work for %.0f%% of the step",
            percent(measured->compute_ms, step_ms));
    else
        add(to, "%s: the compute lane waits for it for %.0f%% of the step, and computes for %.0f%%",
            lane_works[binding], percent(lanes[SL_LANE_COMPUTE].wait_ms[binding], step_ms),
            percent(measured->compute_ms, step_ms));
    if (shares_cores && lanes[SL_LANE_HOST].busy_ms > 0.05 * step_ms)
        add(to, "; AdamW on the host, %.0f%%, shares the cores with it",
            percent(lanes[SL_LANE_HOST].busy_ms, step_ms));
    if (is_disturbed(measured))
        add(to, "; its threads waited %.0f ms a step for a core", measured->core_wait_ms);
}

/* ---- what would help ---- */

/* The variant with more memory that gains most, if it gains anything worth while. */
static const sl_variant *find_best_variant(const sl_measured *measured)
{
    const double now_ms = measured->variants_now_ms;
    const sl_variant *best = NULL;
    for (uint32_t i = 0; i < measured->variant_count; i++) {
        const sl_variant *variant = &measured->variants[i];
        bool gains = variant->is_more && 1e3 * variant->step_seconds < 0.98 * now_ms;
        if (gains && (!best || variant->step_seconds < best->step_seconds))
            best = variant;
    }
    return best;
}

/* Ops of which much of the time could be saved by the machine's own rates. */
static const sl_measured_op *find_slow_op(const sl_measured *measured)
{
    const sl_measured_op *worst = NULL;
    double most_ms = 0.05 * measured->step_ms;
    for (uint32_t i = 0; i < measured->op_count; i++) {
        const sl_measured_op *op = &measured->ops[i];
        double lost_ms = op->ms * (1 - op->bench_share); /* NaN: not known */
        if (lost_ms > most_ms) {
            most_ms = lost_ms;
            worst = op;
        }
    }
    return worst;
}

static void advise_compute(const sl_blueprint *blueprint, const sl_measured *measured, text *to)
{
    double recompute_ms = measured->phase_ms[SL_PHASE_RECOMPUTE];
    const sl_measured_op *slow = find_slow_op(measured);
    if (recompute_ms > 0.02 * measured->step_ms)
        add(to,
            "recomputation takes %.0f%% of the step, which --recompute none trades for memory; ",
            percent(recompute_ms, measured->step_ms));
    if (slow && !is_disturbed(measured))
        add(to, "%s takes %.0f%% of the step at %.0f%% of the rate that bench measured; ",
            sl_op_info_of(slow->kind)->name, percent(slow->ms, measured->step_ms),
            100 * slow->bench_share);
    if (blueprint->task.type == SL_TYPE_FP32 && isnan(measured->roof_flop_rate))
        add(to, "sluice bench would say how near to the machine's own rates this is; ");
    add(to, "then only more or faster compute helps: nothing else holds it up for long");
}

/* States and gradients move once a step, however many tokens it has. */
static void advise_tokens(const sl_measured *measured, sl_lane lane, text *to)
{
    double factor = measured->lanes[lane].busy_ms / measured->compute_ms;
    if (factor > 1)
        add(to, "about %.1f times the tokens a step (--accumulate, in layer order) would hide it; ",
            factor);
}

static void advise_lane(const sl_blueprint *blueprint, const sl_measured *measured, sl_lane lane,
                        text *to)
{
    bool is_disk = lane == SL_LANE_READ || lane == SL_LANE_WRITE;
    bool is_link = lane == SL_LANE_H2D || lane == SL_LANE_D2H;
    if (lane == SL_LANE_COMM)
        add(to, "more tokens between exchanges (--accumulate, --micro-batch), less work for the "
                "slowest rank (--stages cost), or --pp and --dp in the place of --tp; ");
    else
        advise_tokens(measured, lane, to);
    if (is_disk)
        add(to, "a faster drive or several (--disk-dir A B), or a smaller share on disk "
                "(--nvme-optimizer); ");
    if (is_link)
        add(to, "more of the parameters and gradients on the device, or --prefetch with more room "
                "there; ");
    if (lane == SL_LANE_HOST)
        add(to, "more of the optimizer states on the device (--policy static), or more cores; ");
    if (lane == SL_LANE_INPUT)
        add(to, "tokens made beforehand (sluice tokenize), or a faster place for the data; ");
    if (blueprint->choice.prefetch != SL_PREFETCH_AUTO && (is_disk || is_link))
        add(to, "--prefetch auto; ");
    if (to->length >= 2)
        to->at[to->length -= 2] = '\0';
}

static void advise_memory(const sl_measured *measured, text *to)
{
    char change[SL_UNITS_TEXT_BYTES];
    const sl_variant *best = find_best_variant(measured);
    if (!best)
        return;
    sl_units_format_size(best->change_bytes, change);
    add(to, "%s%s more %s memory is predicted to save %.0f%% of the step", to->length ? "; " : "",
        change, sl_tier_name(best->tier),
        100 * (1 - 1e3 * best->step_seconds / measured->variants_now_ms));
}

void sl_verdict_write(const sl_blueprint *blueprint, const sl_account *account,
                      sl_measured *measured)
{
    text bound = {measured->bound_by, sizeof measured->bound_by, 0};
    text faster = {measured->to_be_faster, sizeof measured->to_be_faster, 0};
    sl_lane binding = find_binding(measured);
    measured->binding = binding;
    write_binding(measured, binding, blueprint->machine.shares_cores, &bound);
    if (account->bound_by == SL_RESOURCE_HOST_MEMORY &&
        (sl_lane_copies(binding) || binding == SL_LANE_HOST))
        add(&bound,
            "; copies and updates share host memory, which takes %.0f%% of the step by the plan",
            percent(1e3 * account->resource_seconds[SL_RESOURCE_HOST_MEMORY], measured->step_ms));
    if (is_disturbed(measured))
        add(&faster, "leave the cores to it: other work, too many --threads or a quota of a cgroup "
                     "took them, and what is measured here is slower by that; ");
    if (binding == SL_LANE_COMPUTE)
        advise_compute(blueprint, measured, &faster);
    else
        advise_lane(blueprint, measured, binding, &faster);
    advise_memory(measured, &faster);
}
