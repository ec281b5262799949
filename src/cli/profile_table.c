/* One function a table, in the order in which they are read: what binds comes first. */
#include "profile_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "command.h"
#include "session/search/plan_json.h"

enum { OBJECT_ROWS = 8, OP_ROWS = 12 };

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* ---- the step ---- */

static void print_step(const sl_measured *m)
{
    printf("\nstep     %.1f ms measured (mean of %" PRIu64 ", after %" PRIu64
           " of warm-up), %.1f ms predicted by %s\n",
           m->step_ms, m->step_count, m->warm_up_count, m->predicted_ms, m->machine);
    printf("         %.0f tokens/s; model %.3g GFLOP a step, %.1f GFLOP/s", m->tokens_per_s,
           1e-9 * m->model_flops, 1e-9 * m->flop_rate);
    if (isfinite(m->model_flop_share))
        printf(", %.1f%% of the fastest product that bench measured (MFU)",
               100 * m->model_flop_share);
    printf("\n         compute %.1f ms + waits %.1f ms + gaps %.1f ms: %.1f%% explained\n",
           m->compute_ms, m->stall_ms, m->gap_ms, 100 * m->explained_share);
    printf("         %.2f cores used by %u workers and the lanes; threads waited %.1f ms for one\n",
           m->cores_used, m->worker_count, m->core_wait_ms);
    printf("         forward %.1f ms, recompute %.1f, backward %.1f, update %.1f\n",
           m->phase_ms[SL_PHASE_FORWARD], m->phase_ms[SL_PHASE_RECOMPUTE],
           m->phase_ms[SL_PHASE_BACKWARD], m->phase_ms[SL_PHASE_UPDATE]);
    printf("bound by %s\n", m->bound_by);
    printf("to be faster: %s\n", m->to_be_faster);
}

/* ---- memory ---- */

static void print_size(uint64_t bytes)
{
    printf(" %14s", bytes ? sl_command_format_size(bytes).text : "-");
}

static void print_size_row(const char *name, const uint64_t *first, size_t stride, int tier_count)
{
    printf("  %-18s", name);
    for (int tier = 0; tier < tier_count; tier++)
        print_size(*(const uint64_t *)((const char *)first + (size_t)tier * stride));
    printf("\n");
}

static bool holds_any(const sl_measured *m, int kind)
{
    bool any = false;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        any = any || m->tiers[tier].kind_bytes[kind] > 0;
    return any;
}

static void print_tiers(const sl_measured *m)
{
    const sl_measured_tier *tiers = m->tiers;
    const size_t stride = sizeof *tiers;
    const int count = tiers[SL_TIER_DISK].planned_bytes > 0 ? SL_TIER_COUNT : SL_TIER_DISK;
    printf("\n  %-18s %14s %14s %14s\n", "memory", "device", "host", count > 2 ? "disk" : "");
    for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
        if (holds_any(m, kind))
            print_size_row(sl_plan_json_kind_names[kind], &tiers->kind_bytes[kind], stride, count);
    print_size_row("holes", &tiers->hole_bytes, stride, count);
    print_size_row("= planned peak", &tiers->planned_bytes, stride, count);
    print_size_row("measured peak", &tiers->measured_bytes, stride, count);
    print_size_row("pages written", &tiers->written_bytes, stride, count);
    print_size_row("budget", &tiers->budget_bytes, stride, count);
    for (int tier = 0; tier < count; tier++)
        if (tiers[tier].beyond_bytes > 0)
            printf("  beyond the plan: %" PRIu64 " bytes of the %s arena were written behind its "
                   "peak: a defect of sluice, please report it\n",
                   tiers[tier].beyond_bytes, sl_tier_name((sl_tier)tier));
    if (tiers[SL_TIER_DEVICE].device_used_bytes > 0)
        printf("  the driver counts %s in use on the device, by all processes\n",
               sl_command_format_size(tiers[SL_TIER_DEVICE].device_used_bytes).text);
}

static void print_objects(const sl_measured *m, const sl_blueprint *blueprint, sl_tier tier)
{
    const sl_measured_tier *of = &m->tiers[tier];
    const sl_program *program = blueprint->programs[0];
    uint64_t shown = 0;
    if (of->object_count == 0)
        return;
    printf("\nalive at the %s's peak (tick %u of %u, %s)\n", sl_tier_name(tier), of->live_tick,
           program->op_count, sl_op_info_of(program->ops[of->live_tick].kind)->name);
    for (uint32_t i = 0; i < of->object_count && i < OBJECT_ROWS; i++) {
        const sl_account_class *item = &of->objects[i];
        printf("  %14s  %5.1f%%  %s", sl_command_format_size(item->bytes).text,
               percent((double)item->bytes, (double)of->live_bytes), item->name);
        printf(item->count > 1 ? " (%u)\n" : "\n", item->count);
        shown += item->bytes;
    }
    if (shown < of->live_bytes)
        printf("  %14s  %5.1f%%  others\n", sl_command_format_size(of->live_bytes - shown).text,
               percent((double)(of->live_bytes - shown), (double)of->live_bytes));
}

static void print_resident(const sl_measured *m)
{
    const sl_resident *of = &m->resident;
    printf("\nresident %s (most %s)", sl_command_format_size(of->total_bytes).text,
           sl_command_format_size(of->peak_bytes).text);
    for (int kind = 0; kind < SL_RESIDENT_KIND_COUNT; kind++)
        if (of->kind_bytes[kind] > 0)
            printf("%s %s %s", kind == 0 ? ":" : ",", sl_resident_name((sl_resident_kind)kind),
                   sl_command_format_size(of->kind_bytes[kind]).text);
    printf("; beside it %s of page tables; %u threads\n",
           sl_command_format_size(of->page_table_bytes).text, of->thread_count);
}

/* ---- lanes ---- */

static double sum_waits(const sl_measured_lane *lane)
{
    double ms = 0;
    for (int cause = 0; cause < SL_LANE_COUNT; cause++)
        ms += lane->wait_ms[cause];
    return ms;
}

/* "read 80%, host 20%" */
static void print_causes(const sl_measured_lane *lane)
{
    double sum = sum_waits(lane);
    const char *comma = "  for ";
    for (int cause = 0; cause < SL_LANE_COUNT; cause++) {
        if (lane->wait_ms[cause] < 0.005 * sum || sum <= 0)
            continue;
        printf("%s%s %.0f%%", comma, sl_lane_name((sl_lane)cause),
               percent(lane->wait_ms[cause], sum));
        comma = ", ";
    }
}

static void print_lanes(const sl_measured *m)
{
    printf("\n  %-8s %12s %12s %12s %12s\n", "lane, ms", "busy", "planned", "waiting", "left");
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        const sl_measured_lane *of = &m->lanes[lane];
        if (of->command_count == 0)
            continue;
        printf("  %-8s %12.2f %12.2f %12.2f %12.2f", sl_lane_name((sl_lane)lane), of->busy_ms,
               of->planned_busy_ms, sum_waits(of), of->gap_ms + of->idle_ms);
        print_causes(of);
        printf("\n");
    }
}

static void print_moves(const sl_measured *m)
{
    bool is_first = true;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        const sl_measured_lane *of = &m->lanes[lane];
        if (!sl_lane_copies((sl_lane)lane) || of->moved_bytes + of->formula_bytes == 0)
            continue;
        if (is_first)
            printf("\n  %-8s %14s %14s %12s\n", "moved", "a step", "by formula", "rate");
        is_first = false;
        printf("  %-8s %14s %14s %9.2f GB/s\n", sl_lane_name((sl_lane)lane),
               sl_command_format_size(of->moved_bytes).text,
               sl_command_format_size(of->formula_bytes).text,
               of->busy_ms > 0 ? 1e-6 * (double)of->moved_bytes / of->busy_ms : 0);
    }
    if (*m->disk)
        printf("  %s\n", m->disk);
}

static void print_stalls(const sl_measured *m)
{
    if (m->stall_count > 0)
        printf("\nlongest waits of the compute lane, ms a step (the longest one)\n");
    for (uint32_t i = 0; i < m->stall_count; i++) {
        const sl_measured_stall *of = &m->stalls[i];
        printf("  %10.2f (%.2f)  %s waits for %s; in the end for %s\n", of->ms, of->longest_ms,
               of->waiter, of->awaited, sl_lane_name(of->cause));
    }
}

static void print_ops(const sl_measured *m)
{
    bool has_rates = m->is_machine_measured;
    printf("\n  %-26s %8s %12s %7s %10s %9s %6s %6s\n", "op", "a step", "ms", "share", "GFLOP/s",
           "GB/s", has_rates ? "roof" : "", has_rates ? "bench" : "");
    for (uint32_t i = 0; i < m->op_count && i < OP_ROWS; i++) {
        const sl_measured_op *of = &m->ops[i];
        char name[48];
        snprintf(name, sizeof name, "%s%s", sl_op_info_of(of->kind)->name,
                 of->on_host ? " (host lane)" : "");
        printf("  %-26s %8.0f %12.2f %6.1f%% %10.1f %9.2f", name, of->count, of->ms,
               100 * of->share, 1e-9 * of->flop_rate, 1e-9 * of->byte_rate);
        if (has_rates)
            printf(" %5.0f%% %5.0f%%", 100 * of->roof_share, 100 * of->bench_share);
        printf("\n");
    }
    if (!has_rates)
        printf(
            "  how near that is to this machine's rates is not known: sluice bench measures them "
            "once\n");
}

/* ---- budgets ---- */

static void print_variant(const sl_measured *m, const sl_variant *of)
{
    char what[128];
    snprintf(what, sizeof what, "%s %s %s (%s)", sl_command_format_size(of->change_bytes).text,
             of->is_more ? "more" : "less", sl_tier_name(of->tier),
             sl_command_format_size(of->budget_bytes).text);
    printf("  %-40s", what);
    if (of->outcome == SL_VARIANT_DOES_NOT_FIT)
        printf(" does not fit: %s are missing\n", sl_command_format_size(of->missing_bytes).text);
    else if (of->outcome == SL_VARIANT_SAME)
        printf(" nothing changes\n");
    else
        printf(" %10.1f ms (%+.1f%%)%s%s\n", 1e3 * of->step_seconds,
               100 * (1e3 * of->step_seconds / m->variants_now_ms - 1), *of->change ? "  " : "",
               of->change);
}

static void print_variants(const sl_measured *m)
{
    if (m->variant_count > 0)
        printf("\nwith another budget, planned and simulated (now %.1f ms by the same rates)\n",
               m->variants_now_ms);
    for (uint32_t i = 0; i < m->variant_count; i++)
        print_variant(m, &m->variants[i]);
}

void sl_profile_table_print(const sl_measured *measured, const sl_blueprint *blueprint)
{
    print_step(measured);
    print_tiers(measured);
    print_objects(measured, blueprint, SL_TIER_DEVICE);
    print_objects(measured, blueprint, SL_TIER_HOST);
    print_resident(measured);
    print_lanes(measured);
    print_moves(measured);
    print_stalls(measured);
    print_ops(measured);
    print_variants(measured);
}
