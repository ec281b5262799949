/* Sentences are made of the account's numbers and the choice; nothing is planned here. */
#include "explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/units.h"
#include "search/search.h"

typedef struct size_text {
    char text[SL_UNITS_TEXT_BYTES];
} size_text;

static size_text format_size(double bytes)
{
    size_text size;
    sl_units_format_size(bytes < 1.8e19 ? (uint64_t)bytes : UINT64_MAX, size.text);
    return size;
}

static size_text format_seconds(double seconds)
{
    size_text text;
    if (seconds >= 1)
        snprintf(text.text, sizeof text.text, "%.2f s", seconds);
    else
        snprintf(text.text, sizeof text.text, "%.2f ms", 1e3 * seconds);
    return text;
}

static __attribute__((format(printf, 2, 3))) void add_line(sl_explanation *to, const char *format,
                                                           ...)
{
    va_list arguments;
    if (to->count == SL_EXPLAIN_LINES)
        return;
    va_start(arguments, format);
    vsnprintf(to->lines[to->count++], SL_EXPLAIN_BYTES, format, arguments);
    va_end(arguments);
}

/* ---- what binds ---- */

static double count_home_bytes(const sl_blueprint *blueprint, sl_tier tier)
{
    double bytes = 0;
    const sl_homes *homes = blueprint->homes;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t c = 0; homes->tier[group] && c < homes->chunk_count; c++)
            if (homes->tier[group][c] == (uint8_t)tier)
                bytes += (double)sl_layout_chunk_bytes(blueprint->layout, (sl_group)group, c);
    return bytes;
}

/* Above so many tokens a step the transfers of a resource are hidden behind the computation; they
 * do not grow with the tokens where each chunk moves once a step. "" where they do. */
static void describe_hiding(const sl_blueprint *blueprint, const sl_account *account,
                            char out_text[160])
{
    const sl_choice *choice = &blueprint->choice;
    double compute = account->resource_seconds[SL_RESOURCE_COMPUTE];
    double seconds = account->resource_seconds[account->bound_by];
    bool moves_once = choice->accumulate == 1 || choice->accumulation == SL_ACCUMULATE_LAYER ||
                      account->bound_by == SL_RESOURCE_UPDATE ||
                      account->bound_by == SL_RESOURCE_HOST_MEMORY ||
                      account->bound_by == SL_RESOURCE_DISK;
    *out_text = '\0';
    if (moves_once && compute > 0)
        snprintf(out_text, 160, "it is hidden above about %.0f tokens a step (this one has %.0f); ",
                 (double)account->request.tokens * seconds / compute,
                 (double)account->request.tokens);
}

static void bind_compute(const sl_blueprint *blueprint, const sl_account *account,
                         char out_line[SL_EXPLAIN_BYTES])
{
    const sl_machine *machine = &blueprint->machine;
    double update = account->lane[SL_LANE_HOST].alone_seconds;
    double all = account->resource_seconds[SL_RESOURCE_COMPUTE];
    double again = 0; /* what is recomputed */
    const sl_program *program = blueprint->programs[0];
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        const sl_section section = sl_program_section(program, s);
        for (uint32_t i = section.first; i < section.first + section.count; i++)
            if (program->ops[i].phase == SL_PHASE_RECOMPUTE)
                again += section.repeat * sl_machine_op_seconds(machine, program->ops[i].kind,
                                                                &program->ops[i].attrs, false);
    }
    char more[200] = "";
    if (again > 0.01 * all)
        snprintf(more, sizeof more, "--recompute none saves up to %s of it and takes memory; ",
                 format_seconds(again).text);
    snprintf(out_line, SL_EXPLAIN_BYTES,
             "bound by compute%s: its ops take %s a step if nothing disturbs them; to be faster: "
             "%s%sa faster device or more cores",
             machine->shares_cores && update > 0 ? " (updates on the same cores included)" : "",
             format_seconds(all).text, more,
             blueprint->task.type == SL_TYPE_FP32 ? "--precision bf16 where the device is faster "
                                                    "in it; "
                                                  : "");
}

static void bind_link(const sl_account *account, const char *hiding,
                      char out_line[SL_EXPLAIN_BYTES])
{
    sl_lane lane = account->bound_by == SL_RESOURCE_H2D ? SL_LANE_H2D : SL_LANE_D2H;
    snprintf(out_line, SL_EXPLAIN_BYTES,
             "bound by the link (%s): it moves %s a step, which takes %s; to be faster: %smore "
             "rows (--micro-batch), --accumulation layer, or more --device-memory to keep chunks "
             "there",
             sl_lane_name(lane), format_size((double)account->lane[lane].moved_bytes).text,
             format_seconds(account->resource_seconds[account->bound_by]).text, hiding);
}

static void bind_disk(const sl_account *account, const char *hiding,
                      char out_line[SL_EXPLAIN_BYTES])
{
    double moved = (double)account->lane[SL_LANE_READ].moved_bytes +
                   (double)account->lane[SL_LANE_WRITE].moved_bytes;
    double seconds = account->resource_seconds[SL_RESOURCE_DISK];
    double of_one_gib = moved > 0 ? seconds * 2 * (1u << 30) / moved : 0;
    snprintf(out_line, SL_EXPLAIN_BYTES,
             "bound by the disk: it moves %s a step, which takes %s; to be faster: %sa GiB of "
             "state kept on the host saves about %s a step (smaller --nvme-optimizer); a second "
             "--disk-dir divides the rest",
             format_size(moved).text, format_seconds(seconds).text, hiding,
             format_seconds(of_one_gib).text);
}

void sl_explain_bound(const sl_blueprint *blueprint, const sl_account *account,
                      char out_line[SL_EXPLAIN_BYTES])
{
    char hiding[160];
    describe_hiding(blueprint, account, hiding);
    switch (account->bound_by) {
    case SL_RESOURCE_H2D:
    case SL_RESOURCE_D2H:
        bind_link(account, hiding, out_line);
        return;
    case SL_RESOURCE_DISK:
        bind_disk(account, hiding, out_line);
        return;
    case SL_RESOURCE_UPDATE:
        snprintf(out_line, SL_EXPLAIN_BYTES,
                 "bound by the updates on the host, which take %s; to be faster: %s--adam device, "
                 "more --threads, or more of the optimizer on the device",
                 format_seconds(account->resource_seconds[SL_RESOURCE_UPDATE]).text, hiding);
        return;
    case SL_RESOURCE_HOST_MEMORY:
        snprintf(out_line, SL_EXPLAIN_BYTES,
                 "bound by host memory: copies and updates move %s a step through it, which takes "
                 "%s; to be faster: %smore --device-memory to keep states there, or --state-type "
                 "bf16",
                 format_size(account->simulation.host_bytes).text,
                 format_seconds(account->resource_seconds[SL_RESOURCE_HOST_MEMORY]).text, hiding);
        return;
    case SL_RESOURCE_COMPUTE:
    case SL_RESOURCE_COUNT:
        break;
    }
    bind_compute(blueprint, account, out_line);
}

/* ---- why ---- */

static void explain_homes(const sl_blueprint *blueprint, const sl_account *account,
                          sl_explanation *to)
{
    double home[SL_TIER_COUNT], state = 0;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        state += home[tier] = count_home_bytes(blueprint, (sl_tier)tier);
    const sl_account_tier *device = &account->tier[SL_TIER_DEVICE];
    double parameters = (double)sl_model_shape_parameters(&blueprint->task.shape);
    if (home[SL_TIER_DEVICE] == state) {
        add_line(to,
                 "All %s of state (%.1f bytes a parameter) live on the device: with what a step "
                 "needs beside them they take %s, and no chunk moves.",
                 format_size(state).text, state / parameters,
                 format_size((double)device->arena_bytes).text);
        return;
    }
    add_line(to,
             "State takes %s (%.1f bytes a parameter): %s live on the device, %s on the host, %s "
             "on disk. What a step needs of them visits the device, which takes %s with "
             "activations and workspace.",
             format_size(state).text, state / parameters, format_size(home[SL_TIER_DEVICE]).text,
             format_size(home[SL_TIER_HOST]).text, format_size(home[SL_TIER_DISK]).text,
             format_size((double)device->arena_bytes).text);
}

static void explain_orders(const sl_blueprint *blueprint, sl_explanation *to)
{
    static const char *const recompute[] = {
        "No activation is computed twice; all that the backward pass needs is kept.",
        "Cheap activations are computed again in the backward pass, the others kept.",
        "Of each block only its input is kept; the rest is computed again in the backward pass."};
    const sl_choice *choice = &blueprint->choice;
    const char *order = "";
    if (choice->accumulate > 1)
        order = choice->accumulation == SL_ACCUMULATE_LAYER
                    ? " Each layer serves all micro-batches before the next one, so its "
                      "parameters and gradients move once a step."
                    : " Micro-batches run one after the other, so activations of one live at a "
                      "time, and parameters that are not on the device move for each.";
    add_line(to, "%s%s", recompute[choice->recompute], order);
}

static void explain_peak(const sl_account *account, sl_explanation *to)
{
    const sl_account_tier *device = &account->tier[SL_TIER_DEVICE];
    char names[160] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < device->class_count && i < 3; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%.24s %s",
                                   i ? ", " : "", device->classes[i].name,
                                   format_size((double)device->classes[i].bytes).text);
    const sl_op *op = &account->request.program->ops[device->peak_tick];
    if (device->live_peak_bytes > 0)
        add_line(to, "The device is fullest in op %u of the step (%s), with %s: %s; holes take %s.",
                 device->peak_tick, sl_op_info_of(op->kind)->name,
                 format_size((double)device->live_peak_bytes).text, names,
                 format_size((double)device->hole_bytes).text);
}

static void explain_time(const sl_account *account, sl_explanation *to)
{
    double step = account->simulation.step_seconds, stalled = 0, most = 0;
    double bound = account->resource_seconds[account->bound_by];
    sl_lane cause = SL_LANE_COMPUTE;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        double seconds = account->simulation.stall_seconds[lane];
        stalled += seconds;
        if (seconds > most)
            cause = (sl_lane)lane;
        most = seconds > most ? seconds : most;
    }
    if (stalled < 0.001 * step)
        add_line(to, "The step is predicted to take %s; the compute lane waits for nothing.",
                 format_seconds(step).text);
    else
        add_line(to,
                 "The step is predicted to take %s, of which what binds works %.0f %%. The compute "
                 "lane waits "
                 "%s, "
                 "most of it for %s.",
                 format_seconds(step).text, step > 0 ? 100 * bound / step : 0,
                 format_seconds(stalled).text, sl_lane_name(cause));
}

void sl_explain_plan(const sl_blueprint *blueprint, const sl_account *account,
                     sl_explanation *out_explanation)
{
    char line[SL_EXPLAIN_BYTES];
    *out_explanation = (sl_explanation){.count = 0};
    explain_homes(blueprint, account, out_explanation);
    explain_orders(blueprint, out_explanation);
    explain_peak(account, out_explanation);
    explain_time(account, out_explanation);
    sl_explain_bound(blueprint, account, line);
    if (*line >= 'a' && *line <= 'z')
        *line = (char)(*line - 'a' + 'A');
    add_line(out_explanation, "%s.", line);
    if (sl_machine_is_guess(&blueprint->machine))
        add_line(out_explanation,
                 "Times are a guess: this machine was not measured. sluice bench does that, once.");
    else if (blueprint->machine.is_described || blueprint->machine.is_quick ||
             blueprint->machine.is_scaled)
        add_line(out_explanation, "Times are predicted by %s.",
                 sl_machine_basis(&blueprint->machine));
}

/* ---- rules of thumb ---- */

int sl_explain_thumbs(const sl_blueprint *blueprint, const sl_account *account,
                      sl_thumb out_thumbs[SL_EXPLAIN_THUMBS])
{
    const sl_model_shape *shape = &blueprint->task.shape;
    const bool is_gpt2 = shape->architecture == SL_ARCHITECTURE_GPT2;
    double l = shape->layers, h = shape->width, a = shape->heads, s = blueprint->task.seq;
    double b = blueprint->choice.micro_batch, state = 0;
    double parameters = (double)sl_model_shape_parameters(shape);
    double kept = (double)account->tier[SL_TIER_DEVICE].kind_bytes[SL_MEMORY_ACTIVATION];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        state += count_home_bytes(blueprint, (sl_tier)tier);
    int count = 0;
    if (is_gpt2) {
        out_thumbs[count++] = (sl_thumb){"parameters: 12 l h²", 12 * l * h * h, parameters, false};
        out_thumbs[count++] =
            (sl_thumb){"model and states: 20 bytes for each of 12 l h² parameters", 240 * l * h * h,
                       state, true};
    }
    out_thumbs[count++] =
        (sl_thumb){"ZeRO's model states: 16 bytes a parameter (2 + 2 + K, K = 12)", 16 * parameters,
                   state, true};
    if (is_gpt2)
        out_thumbs[count++] = (sl_thumb){
            "activations without recomputation, half precision: l (34 b s h + 5 b s² a); the "
            "plan: activations at the device's peak",
            l * (34 * b * s * h + 5 * b * s * s * a), kept, true};
    return count;
}
