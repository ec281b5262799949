/* One function a table, in the order in which they are read: what binds comes first. */
#include "profile_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/plural.h"
#include "command.h"
#include "measure/ranks.h"
#include "search/plan_json.h"
#include "terminal.h"

enum { OBJECT_ROWS = 8, OP_ROWS = 12, RANK_ROWS = 32, LANE_INDENT = 12, VARIANT_INDENT = 43 };

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* ---- the step ---- */

enum { STEP_INDENT = 9 };

static void print_step(const sl_measured *m)
{
    sl_terminal_text rate = {.used = 0};
    putchar('\n');
    sl_terminal_print(stdout, STEP_INDENT,
                      "step     %.1f ms measured (mean of %" PRIu64 ", after %" PRIu64
                      " of warm-up), %.1f ms predicted by %s",
                      m->step_ms, m->step_count, m->warm_up_count, m->predicted_ms, m->machine);
    sl_terminal_add(&rate, "         %.0f tokens/s; model %.3g GFLOP a step, %.1f GFLOP/s",
                    m->tokens_per_s, 1e-9 * m->model_flops, 1e-9 * m->flop_rate);
    if (isfinite(m->model_flop_share))
        sl_terminal_add(&rate, ", %.1f%% of the fastest product that bench measured (MFU)",
                        100 * m->model_flop_share);
    sl_terminal_print(stdout, STEP_INDENT, "%s", rate.text);
    sl_terminal_print(stdout, STEP_INDENT,
                      "         compute %.1f ms + waits %.1f ms + gaps %.1f ms: %.1f%% explained",
                      m->compute_ms, m->stall_ms, m->gap_ms, 100 * m->explained_share);
    sl_terminal_print(stdout, STEP_INDENT,
                      "         %.2f cores used by %u worker%s and the lanes; threads waited %.1f "
                      "ms for one",
                      m->cores_used, m->worker_count, sl_plural(m->worker_count), m->core_wait_ms);
    sl_terminal_print(stdout, STEP_INDENT,
                      "         forward %.1f ms, recompute %.1f, backward %.1f, update %.1f",
                      m->phase_ms[SL_PHASE_FORWARD], m->phase_ms[SL_PHASE_RECOMPUTE],
                      m->phase_ms[SL_PHASE_BACKWARD], m->phase_ms[SL_PHASE_UPDATE]);
    sl_terminal_print(stdout, STEP_INDENT, "bound by %s%s%s",
                      sl_terminal_begin(stdout, SL_TERMINAL_BOUND), m->bound_by,
                      sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
    sl_terminal_print(stdout, STEP_INDENT, "to be faster: %s", m->to_be_faster);
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
    printf("\n%s  %-18s %14s %14s %14s%s\n", sl_terminal_begin(stdout, SL_TERMINAL_HEADING),
           "memory", "device", "host", count > 2 ? "disk" : "",
           sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
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
            sl_terminal_print(stdout, 2,
                              "  beyond the plan: %" PRIu64
                              " bytes of the %s arena were written behind its "
                              "peak: a defect of sluice, please report it",
                              tiers[tier].beyond_bytes, sl_tier_name((sl_tier)tier));
    if (tiers[SL_TIER_DEVICE].device_used_bytes > 0)
        sl_terminal_print(stdout, 2,
                          "  the driver counts %s in use on the device, by all processes",
                          sl_command_format_size(tiers[SL_TIER_DEVICE].device_used_bytes).text);
}

static void print_objects(const sl_measured *m, const sl_blueprint *blueprint, sl_tier tier)
{
    const sl_measured_tier *of = &m->tiers[tier];
    const sl_program *program = blueprint->programs[0];
    uint64_t shown = 0;
    if (of->object_count == 0)
        return;
    printf("\n%salive at the %s's peak%s (tick %u of %u, %s)\n",
           sl_terminal_begin(stdout, SL_TERMINAL_HEADING), sl_tier_name(tier),
           sl_terminal_begin(stdout, SL_TERMINAL_PLAIN), of->live_tick, program->op_count,
           sl_op_info_of(program->ops[of->live_tick].kind)->name);
    for (uint32_t i = 0; i < of->object_count && i < OBJECT_ROWS; i++) {
        const sl_account_class *item = &of->objects[i];
        char count[16] = "";
        if (item->count > 1)
            snprintf(count, sizeof count, " (%u)", item->count);
        sl_terminal_print(stdout, 26, "  %14s  %5.1f%%  %s%s",
                          sl_command_format_size(item->bytes).text,
                          percent((double)item->bytes, (double)of->live_bytes), item->name, count);
        shown += item->bytes;
    }
    if (shown < of->live_bytes)
        printf("  %14s  %5.1f%%  others\n", sl_command_format_size(of->live_bytes - shown).text,
               percent((double)(of->live_bytes - shown), (double)of->live_bytes));
}

static void print_resident(const sl_measured *m)
{
    const sl_resident *of = &m->resident;
    sl_terminal_text line = {.used = 0};
    putchar('\n');
    sl_terminal_add(&line, "resident %s (most %s)", sl_command_format_size(of->total_bytes).text,
                    sl_command_format_size(of->peak_bytes).text);
    for (int kind = 0; kind < SL_RESIDENT_KIND_COUNT; kind++)
        if (of->kind_bytes[kind] > 0)
            sl_terminal_add(&line, "%s %s %s", kind == 0 ? ":" : ",",
                            sl_resident_name((sl_resident_kind)kind),
                            sl_command_format_size(of->kind_bytes[kind]).text);
    sl_terminal_add(&line, "; beside it %s of page tables; %u threads",
                    sl_command_format_size(of->page_table_bytes).text, of->thread_count);
    sl_terminal_print(stdout, 2, "%s", line.text);
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
static void add_causes(const sl_measured_lane *lane, sl_terminal_text *line)
{
    double sum = sum_waits(lane);
    const char *comma = "  for ";
    for (int cause = 0; cause < SL_LANE_COUNT; cause++) {
        if (lane->wait_ms[cause] < 0.005 * sum || sum <= 0)
            continue;
        sl_terminal_add(line, "%s%s %.0f%%", comma, sl_lane_name((sl_lane)cause),
                        percent(lane->wait_ms[cause], sum));
        comma = ", ";
    }
}

static void print_lanes(const sl_measured *m)
{
    printf("\n%s  %-8s %10s %10s %10s %10s%s\n", sl_terminal_begin(stdout, SL_TERMINAL_HEADING),
           "lane, ms", "busy", "planned", "waiting", "left",
           sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        const sl_measured_lane *of = &m->lanes[lane];
        if (of->command_count == 0)
            continue;
        sl_terminal_text line = {.used = 0};
        sl_terminal_add(&line, "  %-8s %10.2f %10.2f %10.2f %10.2f", sl_lane_name((sl_lane)lane),
                        of->busy_ms, of->planned_busy_ms, sum_waits(of), of->gap_ms + of->idle_ms);
        add_causes(of, &line);
        sl_terminal_print(stdout, LANE_INDENT, "%s", line.text);
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
            printf("\n%s  %-8s %14s %14s %12s%s\n", sl_terminal_begin(stdout, SL_TERMINAL_HEADING),
                   "moved", "a step", "by formula", "rate",
                   sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
        is_first = false;
        printf("  %-8s %14s %14s %9.2f GB/s\n", sl_lane_name((sl_lane)lane),
               sl_command_format_size(of->moved_bytes).text,
               sl_command_format_size(of->formula_bytes).text,
               of->busy_ms > 0 ? 1e-6 * (double)of->moved_bytes / of->busy_ms : 0);
    }
    if (*m->disk)
        sl_terminal_print(stdout, 4, "  %s", m->disk);
}

static void print_stalls(const sl_measured *m)
{
    if (m->stall_count > 0)
        printf("\n%slongest waits of the compute lane%s, ms a step (the longest one)\n",
               sl_terminal_begin(stdout, SL_TERMINAL_HEADING),
               sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
    for (uint32_t i = 0; i < m->stall_count; i++) {
        const sl_measured_stall *of = &m->stalls[i];
        sl_terminal_print(stdout, 14, "  %10.2f (%.2f)  %s waits for %s; in the end for %s", of->ms,
                          of->longest_ms, of->waiter, of->awaited, sl_lane_name(of->cause));
    }
}

static void print_ops(const sl_measured *m)
{
    bool has_rates = m->is_machine_measured;
    printf("\n%s  %-24s %6s %9s %6s %7s %7s %5s %5s%s\n",
           sl_terminal_begin(stdout, SL_TERMINAL_HEADING), "op", "a step", "ms", "share", "GFLOP/s",
           "GB/s", has_rates ? "roof" : "", has_rates ? "bench" : "",
           sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
    for (uint32_t i = 0; i < m->op_count && i < OP_ROWS; i++) {
        const sl_measured_op *of = &m->ops[i];
        char name[48];
        snprintf(name, sizeof name, "%s%s", sl_op_info_of(of->kind)->name,
                 of->on_host ? " (host lane)" : "");
        printf("  %-24s %6.0f %9.2f %5.1f%% %7.1f %7.2f", name, of->count, of->ms, 100 * of->share,
               1e-9 * of->flop_rate, 1e-9 * of->byte_rate);
        if (has_rates)
            printf(" %4.0f%% %4.0f%%", 100 * of->roof_share, 100 * of->bench_share);
        printf("\n");
    }
    if (!has_rates)
        sl_terminal_print(
            stdout, 2,
            "  how near that is to this machine's rates is not known: sluice bench measures them "
            "once");
}

/* ---- budgets ---- */

static void print_variant(const sl_measured *m, const sl_variant *of)
{
    char what[128];
    snprintf(what, sizeof what, "%s %s %s (%s)", sl_command_format_size(of->change_bytes).text,
             of->is_more ? "more" : "less", sl_tier_name(of->tier),
             sl_command_format_size(of->budget_bytes).text);
    sl_terminal_text line = {.used = 0};
    sl_terminal_add(&line, "  %-40s", what);
    if (of->outcome == SL_VARIANT_DOES_NOT_FIT)
        sl_terminal_add(&line, " does not fit: %s are missing",
                        sl_command_format_size(of->missing_bytes).text);
    else if (of->outcome == SL_VARIANT_SAME)
        sl_terminal_add(&line, " nothing changes");
    else
        sl_terminal_add(&line, " %10.1f ms (%+.1f%%)%s%s", 1e3 * of->step_seconds,
                        100 * (1e3 * of->step_seconds / m->variants_now_ms - 1),
                        *of->change ? "  " : "", of->change);
    sl_terminal_print(stdout, VARIANT_INDENT, "%s", line.text);
}

static void print_variants(const sl_measured *m)
{
    if (m->variant_count > 0)
        printf("\n%swith another budget%s, planned and simulated (now %.1f ms by the same rates)\n",
               sl_terminal_begin(stdout, SL_TERMINAL_HEADING),
               sl_terminal_begin(stdout, SL_TERMINAL_PLAIN), m->variants_now_ms);
    for (uint32_t i = 0; i < m->variant_count; i++)
        print_variant(m, &m->variants[i]);
}

/* ---- ranks ---- */

/* "rank 3 (stage 1, data rank 0, tensor rank 1)"; what there is one of is left out. */
static void add_rank_name(const sl_measured_ranks *all, uint32_t rank, sl_terminal_text *line)
{
    const sl_comm_place place = sl_comm_place_of(&all->layout, rank);
    const struct {
        const char *name;
        uint32_t count, index;
    } groups[] = {{"stage", all->layout.stages, place.stage},
                  {"data rank", all->layout.data, place.data},
                  {"tensor rank", all->layout.tensor, place.tensor}};
    const char *before = " (";
    sl_terminal_add(line, "rank %u", rank);
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if (groups[i].count <= 1)
            continue;
        sl_terminal_add(line, "%s%s %u", before, groups[i].name, groups[i].index);
        before = ", ";
    }
    sl_terminal_add(line, ")");
}

static uint64_t sum_sent(const uint64_t sent_bytes[SL_COMM_GROUP_COUNT])
{
    uint64_t sum = 0;
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++)
        sum += sent_bytes[group];
    return sum;
}

static void print_rank(const sl_measured_ranks *all, uint32_t rank, int tier_count)
{
    const sl_measured *of = &all->items[rank];
    const sl_measured_lane *compute = &of->lanes[SL_LANE_COMPUTE];
    const double for_ranks = compute->wait_ms[SL_LANE_COMM];
    printf("  %-4u %9.1f %9.1f %9.1f %9.1f %12s", rank, compute->busy_ms, for_ranks,
           sum_waits(compute) - for_ranks, of->lanes[SL_LANE_COMM].busy_ms,
           sl_command_format_size(sum_sent(of->sent_bytes)).text);
    for (int tier = 0; tier < tier_count; tier++)
        printf(" %12s", sl_command_format_size(of->tiers[tier].measured_bytes).text);
    printf("\n");
}

/* Names each arena whose measured peak is not the planned one; all are one line. */
static void print_rank_peaks(const sl_measured_ranks *all, int tier_count)
{
    bool all_equal = true;
    for (uint32_t rank = 0; rank < all->count; rank++)
        for (int tier = 0; tier < tier_count; tier++) {
            const sl_measured_tier *of = &all->items[rank].tiers[tier];
            if (of->planned_bytes == of->measured_bytes)
                continue;
            all_equal = false;
            sl_terminal_print(
                stdout, 2, "  rank %u: planned peak of the %s %" PRIu64 " bytes, measured %" PRIu64,
                rank, sl_tier_name((sl_tier)tier), of->planned_bytes, of->measured_bytes);
        }
    if (all_equal)
        sl_terminal_print(stdout, 2,
                          "  measured peaks of all ranks: equal to the planned ones, to "
                          "the byte");
}

static void print_sent(const sl_measured_ranks *all)
{
    sl_terminal_text line = {.used = 0};
    const char *comma = "  sent by all ranks a step: ";
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++) {
        if (all->sent_bytes[group] == 0)
            continue;
        sl_terminal_add(&line, "%s%s %s", comma, sl_comm_group_name((sl_comm_group)group),
                        sl_command_format_size(all->sent_bytes[group]).text);
        comma = ", ";
    }
    if (line.used > 0)
        sl_terminal_print(stdout, 4, "%s", line.text);
}

static void print_slowest(const sl_measured_ranks *all)
{
    const sl_measured *slowest = &all->items[all->slowest];
    sl_terminal_text line = {.used = 0};
    sl_terminal_add(&line, "  the slowest is ");
    add_rank_name(all, all->slowest, &line);
    sl_terminal_add(&line, ": it waits for others for %.0f%% of the step, the least of all ranks",
                    percent(slowest->step_ms - sl_measured_own_ms(slowest), slowest->step_ms));
    sl_terminal_print(stdout, 4, "%s", line.text);
}

static void print_ranks(const sl_measured_ranks *all)
{
    const int tier_count =
        all->tiers[SL_TIER_DISK].planned_bytes > 0 ? SL_TIER_COUNT : SL_TIER_DISK;
    printf("\n%s  %-4s %9s %9s %9s %9s %12s %12s %12s %12s%s\n",
           sl_terminal_begin(stdout, SL_TERMINAL_HEADING), "rank", "compute", "for ranks", "others",
           "exchange", "sent a step", "device", "host", tier_count > SL_TIER_DISK ? "disk" : "",
           sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
    for (uint32_t rank = 0; rank < all->count && rank < RANK_ROWS; rank++)
        print_rank(all, rank, tier_count);
    if (all->count > RANK_ROWS)
        printf("  %u rank%s more: --json FILE has them\n", all->count - RANK_ROWS,
               sl_plural(all->count - RANK_ROWS));
    print_slowest(all);
    print_sent(all);
    print_rank_peaks(all, tier_count);
    sl_terminal_print(stdout, 2, "  the other tables are of rank 0");
}

void sl_profile_table_print(const sl_measured *measured, const sl_blueprint *blueprint)
{
    print_step(measured);
    if (measured->ranks)
        print_ranks(measured->ranks);
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
