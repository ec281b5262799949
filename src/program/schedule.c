/* The orders in which a step takes its micro-batches, each as a table of rows.
 *
 * micro: each micro-batch runs forward and backward before the next one starts.
 *
 * layer: each segment runs all micro-batches before the next segment starts, so its parameters are
 * needed twice a step and not twice a micro-batch. Both orders visit micro-batches in index order,
 * so sums come out equal.
 *
 * gpipe (Huang et al. 2019): a stage of a pipeline takes all micro-batches forward, then all
 * backward. Stages cannot wait for each other: a stage sends all activations before it waits for a
 * gradient.
 *
 * These three are loops over the micro-batches, and each loop is three turns: the first
 * micro-batch, those between as one repeated section, the last one. A turn is a section and a
 * place.
 *
 * 1f1b (PipeDream-Flush, Narayanan et al. 2021): stage s of p takes w forward, w = min(m, p - s) -
 * 1 of m; then pairs of one forward and one backward; then w backward. So it keeps w + 1
 * micro-batches, at w + 1 places: micro-batch i at place i mod (w + 1).
 *
 *     F(0) .. F(w - 1) | pair 0 | pairs 1 .. w + 1, repeated | other pairs | B(m - w) .. B(m - 1)
 *
 * A repetition is w + 1 pairs, after which every place is as it was before. Pair 0 has the first
 * backward, which writes sums that others add to; the last pair has no micro-batch to wait for.
 *
 * Two neighbours that both sent first would wait for ever, so a pair sends and receives in one
 * exchange. A forward sends its activation and receives the gradient for the pair's backward. A
 * backward sends its gradient and receives the activation of the next forward. The stage behind has
 * one pair more, and the same exchanges. If m < p - s, w is m - 1 on this stage and on the stage
 * behind: then sends and receives are not joined, because this stage sends all activations before
 * the stage behind sends the first gradient.
 */
#include "schedule.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/status.h"

enum { TURNS_MAX = 3 };

typedef struct builder {
    const sl_program *forward;
    const sl_tape *tape;
    const sl_step_options *options;
    sl_schedule_table *schedule;
} builder;

/* ---- rows and sections ---- */

static sl_status begin_section(builder *b, sl_section section)
{
    sl_schedule_table *to = b->schedule;
    SL_TRY(SL_ARRAY_GROW(to->sections, to->section_count, to->section_capacity, "a program"));
    section.first = to->row_count;
    section.count = 0;
    to->sections[to->section_count++] = section;
    return SL_OK;
}

static sl_status add_row(builder *b, const sl_schedule_row *row)
{
    sl_schedule_table *to = b->schedule;
    SL_TRY(SL_ARRAY_GROW(to->rows, to->row_count, to->row_capacity, "a program"));
    to->rows[to->row_count] = *row;
    to->rows[to->row_count++].section = to->section_count - 1;
    to->sections[to->section_count - 1].count++;
    return SL_OK;
}

/* ---- loops of turns ---- */

static uint32_t count_turns(const builder *b)
{
    const uint32_t count = b->options->micro_batch_count;
    return count < TURNS_MAX ? count : TURNS_MAX;
}

/* The section of a turn; rows of one micro-batch that follow each other share it. */
static sl_status enter_turn(builder *b, uint32_t turn, sl_placed *out_batch)
{
    const sl_schedule_table *to = b->schedule;
    const uint32_t count = b->options->micro_batch_count, turns = count_turns(b);
    const bool is_between = turn == 1 && turns == TURNS_MAX;
    const sl_section section = {.first_micro_batch = turn + 1 == turns ? count - 1 : turn,
                                .repeat = is_between ? count - 2 : 1};
    *out_batch = (sl_placed){section.first_micro_batch, turn, turn};
    const bool goes_on =
        to->section_count > 0 &&
        to->sections[to->section_count - 1].first_micro_batch == section.first_micro_batch;
    return goes_on ? SL_OK : begin_section(b, section);
}

/* Segments [first, end), in one direction. */
static sl_status add_turn_row(builder *b, uint32_t turn, sl_direction direction, uint32_t first,
                              uint32_t end, uint32_t only_op)
{
    sl_schedule_row row = {.direction = direction,
                           .first_segment = first,
                           .segment_end = end,
                           .only_op = only_op,
                           .returns = {SL_NONE, SL_NONE, SL_NONE}};
    SL_TRY(enter_turn(b, turn, &row.batch));
    row.refills = b->schedule->sections[b->schedule->section_count - 1].count == 0;
    return add_row(b, &row);
}

/* A loop of one row a turn. */
static sl_status add_loop(builder *b, sl_direction direction, uint32_t first, uint32_t end,
                          uint32_t only_op)
{
    for (uint32_t turn = 0; turn < count_turns(b); turn++)
        SL_TRY(add_turn_row(b, turn, direction, first, end, only_op));
    return SL_OK;
}

/* ---- micro and gpipe ---- */

static sl_status add_backward_rows(builder *b, uint32_t turn)
{
    const uint32_t end = b->forward->segment_count;
    SL_TRY(add_turn_row(b, turn, SL_DIRECTION_LOSS, 0, end, SL_NONE));
    return add_turn_row(b, turn, SL_DIRECTION_BACKWARD, 0, end, SL_NONE);
}

static sl_status build_micro(builder *b)
{
    for (uint32_t turn = 0; turn < count_turns(b); turn++) {
        SL_TRY(add_turn_row(b, turn, SL_DIRECTION_FORWARD, 0, b->forward->segment_count, SL_NONE));
        SL_TRY(add_backward_rows(b, turn));
    }
    return SL_OK;
}

static sl_status build_gpipe(builder *b)
{
    SL_TRY(add_loop(b, SL_DIRECTION_FORWARD, 0, b->forward->segment_count, SL_NONE));
    for (uint32_t turn = 0; turn < count_turns(b); turn++)
        SL_TRY(add_backward_rows(b, turn));
    return SL_OK;
}

/* ---- layer: a backward op by op ---- */

static bool op_uses_tensor(const sl_program *forward, const sl_op *op, uint32_t tensor)
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
        if (op->operand[i] != SL_NONE && forward->values[op->operand[i]].kind == SL_VALUE_TENSOR &&
            forward->values[op->operand[i]].index == tensor)
            return true;
    return false;
}

/* True if an op of the segment before `op_index` uses the tensor. */
static bool is_used_before(const sl_program *forward, const sl_segment *segment, uint32_t op_index,
                           uint32_t tensor)
{
    for (uint32_t o = segment->first_op; o < op_index; o++)
        if (op_uses_tensor(forward, &forward->ops[o], tensor))
            return true;
    return false;
}

/* Elements of the largest activation that the segment touches, of all micro-batches. */
static double count_activation_elements(const builder *b, const sl_segment *segment)
{
    double most = 0;
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const uint32_t v = b->forward->ops[o].operand[i];
            if (v == SL_NONE || b->forward->values[v].kind != SL_VALUE_ACTIVATION)
                continue;
            const sl_value *value = &b->forward->values[v];
            const double elements = (double)value->bytes / (double)sl_type_bytes(value->type);
            most = elements > most ? elements : most;
        }
    return most * b->options->micro_batch_count;
}

/* True if it helps to run a segment's backward op by op over all micro-batches, because it uses a
 * parameter whose last site is another one, and its accumulator is larger than the gradients that
 * each op then reads again; and if that changes no sum: no two of its ops add to the same
 * accumulator. */
static bool may_go_by_op(const builder *b, uint32_t segment_index)
{
    const sl_program *forward = b->forward;
    const sl_segment *segment = &forward->segments[segment_index];
    double deferred_elements = 0;
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++) {
        const sl_op *op = &forward->ops[o];
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const uint32_t v = op->operand[i];
            if (v == SL_NONE || forward->values[v].kind != SL_VALUE_TENSOR)
                continue;
            const uint32_t tensor = forward->values[v].index;
            if (!sl_program_trains(forward, tensor))
                continue;
            if (sl_tape_is_deferred(b->tape, segment, tensor))
                deferred_elements += (double)forward->tensors[tensor].element_count;
            else if (is_used_before(forward, segment, o, tensor))
                return false;
        }
    }
    return deferred_elements >= count_activation_elements(b, segment) && deferred_elements > 0;
}

/* An accumulator of a deferred use lives for one op only. */
static sl_status add_loops_by_op(builder *b, uint32_t segment_index)
{
    const sl_segment *segment = &b->forward->segments[segment_index];
    for (uint32_t o = segment->first_op + segment->op_count; o-- > segment->first_op;)
        SL_TRY(add_loop(b, SL_DIRECTION_BACKWARD, segment_index, segment_index + 1, o));
    return SL_OK;
}

/* ---- layer ---- */

/* An EXCHANGE runs in the loop of the block that reads or makes its value: the other stage then
 * waits for one micro-batch and not for all. */
static bool exchanges(const sl_program *forward, uint32_t segment_index)
{
    return forward->ops[forward->segments[segment_index].first_op].kind == SL_OP_EXCHANGE;
}

static bool goes_with_next(const sl_program *forward, uint32_t segment_index)
{
    const bool takes = segment_index == 0 && exchanges(forward, segment_index);
    const bool is_before_last = segment_index + 2 == forward->segment_count;
    return takes || (is_before_last && exchanges(forward, segment_index + 1));
}

/* The last norm: only the terminal segments read its output, so it runs in their loop, forward
 * before and backward after them. SL_NONE: there is none. */
static uint32_t find_head_segment(const sl_program *forward)
{
    uint32_t last = SL_NONE;
    bool has_terminals = false;
    for (uint32_t s = 0; s < forward->segment_count; s++) {
        has_terminals = has_terminals || forward->segments[s].is_terminal;
        if (!forward->segments[s].is_terminal)
            last = s;
    }
    return has_terminals && last != SL_NONE && !forward->segments[last].is_block ? last : SL_NONE;
}

static sl_status add_head(builder *b, uint32_t head)
{
    const uint32_t end = b->forward->segment_count;
    for (uint32_t turn = 0; turn < count_turns(b); turn++) {
        if (head != SL_NONE)
            SL_TRY(add_turn_row(b, turn, SL_DIRECTION_FORWARD, head, head + 1, SL_NONE));
        SL_TRY(add_turn_row(b, turn, SL_DIRECTION_LOSS, 0, end, SL_NONE));
        if (head != SL_NONE)
            SL_TRY(add_turn_row(b, turn, SL_DIRECTION_BACKWARD, head, head + 1, SL_NONE));
    }
    return SL_OK;
}

static sl_status build_layer(builder *b)
{
    const sl_program *forward = b->forward;
    const uint32_t head = find_head_segment(forward);
    uint32_t first, end;
    for (first = 0; first < forward->segment_count; first = end) {
        end = first + 1;
        if (first == head || forward->segments[first].is_terminal)
            continue;
        while (goes_with_next(forward, end - 1))
            end++;
        SL_TRY(add_loop(b, SL_DIRECTION_FORWARD, first, end, SL_NONE));
    }
    SL_TRY(add_head(b, head));
    for (end = forward->segment_count; end > 0; end = first) {
        first = end - 1;
        if (first == head || forward->segments[first].is_terminal)
            continue;
        while (first > 0 && goes_with_next(forward, first - 1))
            first--;
        SL_TRY(end == first + 1 && may_go_by_op(b, first)
                   ? add_loops_by_op(b, first)
                   : add_loop(b, SL_DIRECTION_BACKWARD, first, end, SL_NONE));
    }
    return SL_OK;
}

/* ---- 1f1b ---- */

typedef struct interleaving {
    uint32_t kept;       /* w + 1 */
    uint32_t pair_count; /* m - w */
    uint32_t repeat;     /* of kept pairs, from pair 1 on; 0: none is repeated */
} interleaving;

/* This stage and those behind it; 0 if there is no such stage. */
static uint32_t count_stages_on(const builder *b)
{
    const uint32_t index = b->forward->stage_index, count = b->forward->stage_count;
    return index < count ? count - index : 0;
}

static sl_status find_interleaving(const builder *b, interleaving *out)
{
    const uint32_t count = b->options->micro_batch_count, stages = count_stages_on(b);
    const uint32_t kept = count < stages ? count : stages;
    if (kept == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "there is no stage %u of %u", b->forward->stage_index,
                b->forward->stage_count);
    const uint32_t pair_count = count - (kept - 1);
    const uint32_t repeat = pair_count < 2 ? 0 : (pair_count - 2) / kept;
    *out = (interleaving){kept, pair_count, repeat > 1 ? repeat : 0};
    return SL_OK;
}

/* Rows of the repeated pairs name micro-batches up to 2 * kept; later micro-batches belong to rows
 * behind the repeated pairs. */
static sl_placed place(const interleaving *it, uint32_t micro_batch)
{
    const bool is_behind = it->repeat > 0 && micro_batch > 2 * it->kept;
    const uint32_t skipped = is_behind ? (it->repeat - 1) * it->kept : 0;
    return (sl_placed){micro_batch, micro_batch % it->kept, micro_batch - skipped};
}

static sl_status add_micro_batch_row(builder *b, const interleaving *it, sl_direction direction,
                                     uint32_t micro_batch, sl_schedule_row row)
{
    row.direction = direction;
    row.segment_end = b->forward->segment_count;
    row.only_op = SL_NONE;
    row.batch = place(it, micro_batch);
    return add_row(b, &row);
}

/* To the stage before. */
static bool sends_gradients(const builder *b)
{
    return b->forward->stage_index > 0 && !b->forward->stages_before_are_frozen;
}

static const sl_schedule_row nothing_returns = {.returns = {SL_NONE, SL_NONE, SL_NONE},
                                                .refills = true};

/* `pair` is the micro-batch that goes backward. */
static sl_status add_forward(builder *b, const interleaving *it, uint32_t micro_batch,
                             uint32_t pair)
{
    sl_schedule_row row = nothing_returns;
    const bool has_next = b->forward->stage_index + 1 < b->forward->stage_count;
    const bool keeps_fewer = b->options->micro_batch_count >= count_stages_on(b);
    if (pair != SL_NONE && has_next && keeps_fewer)
        row.returns = place(it, pair);
    row.has_received = sends_gradients(b) && micro_batch >= it->kept;
    return add_micro_batch_row(b, it, SL_DIRECTION_FORWARD, micro_batch, row);
}

static sl_status add_backward(builder *b, const interleaving *it, uint32_t micro_batch,
                              bool has_received)
{
    sl_schedule_row row = nothing_returns;
    row.refills = it->kept > 1; /* else inputs have just been filled */
    SL_TRY(add_micro_batch_row(b, it, SL_DIRECTION_LOSS, micro_batch, row));
    row.refills = false;
    row.has_received = has_received;
    if (sends_gradients(b) && micro_batch + it->kept < b->options->micro_batch_count)
        row.returns = place(it, micro_batch + it->kept);
    return add_micro_batch_row(b, it, SL_DIRECTION_BACKWARD, micro_batch, row);
}

static sl_status add_pairs(builder *b, const interleaving *it, uint32_t first, uint32_t end)
{
    for (uint32_t pair = first; pair < end; pair++) {
        SL_TRY(add_forward(b, it, pair + it->kept - 1, pair));
        const sl_schedule_row *sent = &b->schedule->rows[b->schedule->row_count - 1];
        SL_TRY(add_backward(b, it, pair, sent->returns.micro_batch != SL_NONE));
    }
    return SL_OK;
}

static sl_status build_1f1b(builder *b)
{
    interleaving it;
    SL_TRY(find_interleaving(b, &it));
    const uint32_t behind = 1 + it.repeat * it.kept; /* the first pair behind the repeated ones */
    const sl_section loop = {.first_micro_batch = 1, .repeat = it.repeat, .micro_batches = it.kept};
    b->schedule->place_count = it.kept;
    b->schedule->shares_inputs = true;
    SL_TRY(begin_section(b, (sl_section){.repeat = 1}));
    for (uint32_t f = 0; f + 1 < it.kept; f++)
        SL_TRY(add_forward(b, &it, f, SL_NONE));
    SL_TRY(add_pairs(b, &it, 0, 1));
    if (it.repeat > 0) {
        SL_TRY(begin_section(b, loop));
        SL_TRY(add_pairs(b, &it, 1, 1 + it.kept));
        SL_TRY(begin_section(b, (sl_section){.first_micro_batch = behind, .repeat = 1}));
    }
    SL_TRY(add_pairs(b, &it, behind, it.pair_count));
    for (uint32_t m = it.pair_count; m < b->options->micro_batch_count; m++)
        SL_TRY(add_backward(b, &it, m, false));
    return SL_OK;
}

/* ---- what holds for every order ---- */

#ifndef NDEBUG
/* The rows before `row` that a micro-batch has at its place. */
typedef struct history {
    bool is_begun;     /* there is one */
    bool is_over;      /* the last one is the backward of the first segment */
    bool was_received; /* an EXCHANGE of another micro-batch's row received its value */
    uint32_t last;     /* serial of the micro-batch that was at the place last; SL_NONE: none */
} history;

static history look_back(const sl_schedule_table *schedule, uint32_t row, sl_placed batch)
{
    history past = {.last = SL_NONE};
    for (uint32_t r = 0; r < row; r++) {
        const sl_schedule_row *it = &schedule->rows[r];
        if (it->batch.place == batch.place) {
            past.last = it->batch.serial;
            past.is_over = it->direction == SL_DIRECTION_BACKWARD && it->first_segment == 0;
        }
        past.is_begun = past.is_begun || it->batch.serial == batch.serial;
        past.was_received = past.was_received || it->returns.serial == batch.serial;
    }
    return past;
}

/* A place goes to another micro-batch only when its micro-batch is over. A row that has_received
 * needs an earlier row that received the value. */
static bool is_row_valid(const sl_schedule_table *schedule, uint32_t row)
{
    const sl_schedule_row *it = &schedule->rows[row];
    const history past = look_back(schedule, row, it->batch);
    const bool is_here = past.last == it->batch.serial;
    if (it->batch.place >= schedule->place_count || it->section >= schedule->section_count)
        return false;
    if (!is_here && past.last != SL_NONE && (past.is_begun || !past.is_over))
        return false;
    if (!is_here && it->direction == SL_DIRECTION_BACKWARD)
        return false;
    return !it->has_received || past.was_received;
}

/* Sections follow each other and have all rows. */
static bool is_table_valid(const sl_schedule_table *schedule)
{
    uint32_t next = 0;
    for (uint32_t s = 0; s < schedule->section_count; s++) {
        const sl_section *section = &schedule->sections[s];
        if (section->first != next || section->repeat == 0)
            return false;
        next += section->count;
    }
    for (uint32_t r = 0; r < schedule->row_count; r++)
        if (!is_row_valid(schedule, r))
            return false;
    return next == schedule->row_count;
}
#endif

/* ---- all orders ---- */

static sl_status build_order(builder *b)
{
    if (b->options->accumulation == SL_ACCUMULATE_LAYER)
        return build_layer(b); /* of a stage: all forward, then all backward, too */
    if (b->forward->stage_count <= 1)
        return build_micro(b);
    return b->options->schedule == SL_SCHEDULE_1F1B ? build_1f1b(b) : build_gpipe(b);
}

sl_status sl_schedule_build(const sl_program *forward, const sl_tape *tape,
                            const sl_step_options *options, sl_schedule_table *out_schedule)
{
    builder b = {forward, tape, options, out_schedule};
    *out_schedule = (sl_schedule_table){.place_count = count_turns(&b)};
    SL_TRY(build_order(&b));
    assert(is_table_valid(out_schedule));
    return SL_OK;
}

void sl_schedule_close(sl_schedule_table *schedule)
{
    free(schedule->rows);
    free(schedule->sections);
    *schedule = (sl_schedule_table){0};
}
