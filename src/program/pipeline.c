/* The order in which a stage of a pipeline takes its micro-batches, and what it exchanges with its
 * neighbours meanwhile.
 *
 * gpipe (Huang et al. 2019): all of them forward, then all backward. No stage waits for one that
 * waits for it: whatever goes forward is sent before anything that comes back is awaited.
 *
 * 1f1b (PipeDream-Flush, Narayanan et al. 2021): stage s of p takes w forward, w = min(m, p - s) -
 * 1 of m; then pairs of one forward and one backward; then w backward. So it keeps w + 1 of them,
 * and each turn is the place of one: micro-batch i has turn i mod (w + 1).
 *
 *     warm-up F(0) .. F(w - 1) | pair 0 | pairs 1 .. w + 1, repeated | other pairs | B .. B(m - 1)
 *
 * A repetition is w + 1 pairs, after which every turn is where it was; so the program of 512
 * micro-batches is as long as that of few. Pair 0 has the first backward, which writes sums that
 * others add to; the last pair has no micro-batch to wait for.
 *
 * What two neighbours give each other at one time is one exchange, for both would wait for ever if
 * each gave first: as micro-batch f leaves, the gradient of the pair's other one comes; as that
 * goes backward, the next micro-batch comes. The stage behind has one pair more, and the same
 * exchanges. Where a stage keeps all micro-batches, w is m - 1 on its neighbour, too: then they
 * give one after the other, all forward first.
 */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "step.h"

enum { GIVEN, TAKEN }; /* of EXCHANGE */

/* The first step values that a turn had for what it keeps of a forward value: all, or a part. */
typedef struct sl_slot {
    uint32_t whole, part;
} sl_slot;

/* A step value, and the first one that its turn had for the same forward value. */
typedef struct sl_link {
    uint32_t value, first;
} sl_link;

typedef struct interleaving {
    uint32_t kept;       /* w + 1 */
    uint32_t pair_count; /* m - w */
    uint32_t repeat;     /* of kept pairs, from pair 1 on; 0: none is repeated */
} interleaving;

static bool interleaves(const sl_step *step)
{
    return step->options->schedule == SL_SCHEDULE_1F1B;
}

static uint32_t count_stages_on(const sl_step *step)
{
    return step->forward->stage_count - step->forward->stage_index;
}

static interleaving find_interleaving(const sl_step *step)
{
    const uint32_t count = step->options->micro_batch_count, stages = count_stages_on(step);
    interleaving it = {.kept = count < stages ? count : stages};
    it.pair_count = count - (it.kept - 1);
    const uint32_t repeat = it.pair_count < 2 ? 0 : (it.pair_count - 2) / it.kept;
    it.repeat = repeat > 1 ? repeat : 0;
    return it;
}

void sl_pipeline_open(sl_step *step)
{
    if (!interleaves(step))
        return;
    const interleaving it = find_interleaving(step);
    const uint32_t skipped = it.repeat > 0 ? (it.repeat - 1) * it.kept : 0;
    step->turn_count = it.kept;
    step->pass_count = step->options->micro_batch_count - skipped;
    step->refills_inputs = true;
}

/* ---- what a turn keeps ---- */

static sl_slot *find_slot(const sl_step *step, uint32_t forward_value)
{
    return &step->slots[(uint64_t)step->turn * step->forward->value_count + forward_value];
}

static sl_status append_link(sl_step *step, uint32_t *first, uint32_t value)
{
    if (value == SL_NONE)
        return SL_OK;
    if (*first == SL_NONE)
        *first = value;
    if (step->link_count == step->link_capacity) {
        const uint32_t capacity = step->link_capacity ? 2 * step->link_capacity : 256;
        sl_link *links = realloc(step->links, (uint64_t)capacity * sizeof *links);
        if (links == NULL)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u values of a stage", capacity);
        step->links = links;
        step->link_capacity = capacity;
    }
    step->links[step->link_count++] = (sl_link){value, *first};
    return SL_OK;
}

/* ---- exchanges ---- */

/* The gradient of what another turn gave before. */
static sl_status add_return(sl_step *step, uint32_t forward_value, uint32_t *out_gradient)
{
    const sl_value *given = &step->forward->values[forward_value];
    const uint32_t turn = step->turn;
    step->turn = step->return_turn;
    sl_status status = sl_instance_add_activation(step, "d ", given->name, given->bytes,
                                                  given->type, out_gradient);
    if (status == SL_OK)
        status = sl_gradient_add(step, forward_value, *out_gradient, true);
    step->turn = turn;
    return status;
}

sl_status sl_pipeline_emit_exchange(sl_step *step, uint32_t op_index)
{
    const sl_op *op = &step->forward->ops[op_index];
    const bool takes = op->operand[GIVEN] == SL_NONE;
    uint32_t given, gradient;
    if (takes && sl_instance_of(step, op->operand[TAKEN])->counterpart != SL_NONE)
        return SL_OK; /* it came as another micro-batch went backward */
    if (takes || step->return_turn == SL_NONE)
        return sl_instance_emit_op(step, op);
    SL_TRY(sl_instance_find(step, op->operand[GIVEN], &given));
    SL_TRY(add_return(step, op->operand[GIVEN], &gradient));
    return sl_instance_emit(step, SL_OP_EXCHANGE, &op->attrs, (uint32_t[]){given, gradient});
}

sl_status sl_pipeline_give_back(sl_step *step, uint32_t op_index, uint32_t gradient)
{
    const sl_op *op = &step->forward->ops[op_index];
    if (!step->holds_return)
        return sl_instance_emit(step, SL_OP_EXCHANGE, &op->attrs, (uint32_t[]){gradient, SL_NONE});
    step->held_gradient = gradient;
    step->held_op = op_index;
    return SL_OK;
}

/* The gradient that was held goes, and micro-batch `next` comes into its turn. */
static sl_status swap_with_stage_before(sl_step *step, uint32_t next)
{
    const sl_op *op = &step->forward->ops[step->held_op];
    uint32_t taken;
    step->micro_batch = next;
    step->segment = op->segment;
    step->phase = SL_PHASE_BACKWARD;
    SL_TRY(sl_instance_make(step, op->operand[TAKEN], &taken));
    SL_TRY(append_link(step, &find_slot(step, op->operand[TAKEN])->whole, taken));
    return sl_instance_emit(step, SL_OP_EXCHANGE, &op->attrs,
                            (uint32_t[]){step->held_gradient, taken});
}

/* ---- turns ---- */

/* The turn's micro-batch is over: the next one makes values of its own, and sl_pipeline_settle says
 * which of them are the same. */
static sl_status clear_turn(sl_step *step)
{
    const sl_program *forward = step->forward;
    for (uint32_t v = 0; v < forward->value_count; v++) {
        const sl_value_kind kind = forward->values[v].kind;
        sl_turn_value *it = sl_instance_of(step, v);
        sl_slot *slot = find_slot(step, v);
        if (kind != SL_VALUE_ACTIVATION && kind != SL_VALUE_INPUT)
            continue; /* shared by all turns */
        if (kind == SL_VALUE_ACTIVATION && it->part == SL_NONE)
            SL_TRY(append_link(step, &slot->whole, it->counterpart));
        if (kind == SL_VALUE_ACTIVATION)
            SL_TRY(append_link(step, &slot->part, it->part));
        *it = (sl_turn_value){.counterpart = SL_NONE, .gradient = SL_NONE, .part = SL_NONE};
    }
    return SL_OK;
}

static void enter_turn(sl_step *step, uint32_t micro_batch)
{
    step->turn = micro_batch % step->turn_count;
    step->micro_batch = micro_batch;
    step->instances = 1;
    step->is_first = micro_batch == 0;
    step->is_last = micro_batch + 1 == step->options->micro_batch_count;
}

static sl_status emit_pass_forward(sl_step *step, uint32_t micro_batch)
{
    enter_turn(step, micro_batch);
    sl_instance_forget_inputs(step);
    return sl_step_emit_pass_forward(step);
}

static sl_status emit_pass_backward(sl_step *step, uint32_t micro_batch)
{
    enter_turn(step, micro_batch);
    if (step->turn_count > 1) /* the only turn has just been filled */
        sl_instance_forget_inputs(step);
    SL_TRY(sl_step_emit_pass_backward(step));
    return clear_turn(step);
}

/* ---- 1f1b ---- */

static sl_status emit_pair(sl_step *step, const interleaving *it, uint32_t pair)
{
    const bool has_next = step->forward->stage_index + 1 < step->forward->stage_count;
    const bool keeps_fewer = step->options->micro_batch_count >= count_stages_on(step);
    const bool is_last = pair + 1 == it->pair_count;
    const uint32_t next = pair + it->kept;
    if (has_next && keeps_fewer)
        step->return_turn = pair % step->turn_count;
    sl_status status = emit_pass_forward(step, next - 1);
    step->return_turn = SL_NONE;
    SL_TRY(status);
    step->holds_return = step->forward->stage_index > 0 && !is_last;
    status = emit_pass_backward(step, pair);
    const bool is_held = step->holds_return;
    step->holds_return = false;
    SL_TRY(status);
    return is_held ? swap_with_stage_before(step, next) : SL_OK;
}

static sl_status emit_pairs(sl_step *step, const interleaving *it, uint32_t first, uint32_t end)
{
    for (uint32_t pair = first; pair < end; pair++)
        SL_TRY(emit_pair(step, it, pair));
    return SL_OK;
}

static sl_status emit_repeated_pairs(sl_step *step, const interleaving *it)
{
    const sl_section loop = {
        .first_micro_batch = 1, .repeat = it->repeat, .micro_batches = it->kept};
    const sl_section behind = {.first_micro_batch = 1 + it->repeat * it->kept, .repeat = 1};
    SL_TRY(sl_step_begin_section(step, &loop));
    SL_TRY(emit_pairs(step, it, 1, 1 + it->kept));
    return sl_step_begin_section(step, &behind);
}

static sl_status emit_interleaved(sl_step *step)
{
    const interleaving it = find_interleaving(step);
    const uint32_t behind = 1 + it.repeat * it.kept; /* the first pair behind the repeated ones */
    for (uint32_t f = 0; f + 1 < it.kept; f++)
        SL_TRY(emit_pass_forward(step, f));
    SL_TRY(emit_pair(step, &it, 0));
    if (it.repeat > 0)
        SL_TRY(emit_repeated_pairs(step, &it));
    SL_TRY(emit_pairs(step, &it, behind, it.pair_count));
    for (uint32_t b = it.pair_count; b < step->options->micro_batch_count; b++)
        SL_TRY(emit_pass_backward(step, b));
    return SL_OK;
}

/* ---- gpipe ---- */

static sl_status emit_in_two_loops(sl_step *step)
{
    for (uint32_t turn = 0; turn < step->turn_count; turn++) {
        SL_TRY(sl_step_begin_turn(step, turn));
        SL_TRY(sl_step_emit_pass_forward(step));
    }
    for (uint32_t turn = 0; turn < step->turn_count; turn++) {
        SL_TRY(sl_step_begin_turn(step, turn));
        SL_TRY(sl_step_emit_pass_backward(step));
    }
    return SL_OK;
}

sl_status sl_pipeline_emit(sl_step *step)
{
    if (step->options->accumulation == SL_ACCUMULATE_LAYER)
        return sl_step_emit_by_layer(step); /* all forward, then all backward, too */
    if (!interleaves(step))
        return emit_in_two_loops(step);
    const uint64_t count = (uint64_t)step->turn_count * step->forward->value_count;
    step->slots = malloc(count * sizeof *step->slots + 1);
    if (step->slots == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the micro-batches that a stage keeps");
    memset(step->slots, 0xFF, count * sizeof *step->slots); /* SL_NONE */
    return emit_interleaved(step);
}

/* ---- one value a turn ----
 *
 * user: the section that uses a value, SL_NONE: none. crosses: there are several, or there are for
 * one of the values that are linked to this one, the first of them. */

static void find_crossing(const sl_step *step, uint32_t *user, bool *crosses)
{
    const sl_program *program = step->program;
    for (uint32_t s = 0; s < program->section_count; s++) {
        const sl_section *section = &program->sections[s];
        for (uint32_t o = section->first; o < section->first + section->count; o++)
            for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
                const uint32_t v = program->ops[o].operand[i];
                if (v == SL_NONE)
                    continue;
                crosses[v] = crosses[v] || (user[v] != SL_NONE && user[v] != s);
                user[v] = s;
            }
    }
    for (uint32_t l = 0; l < step->link_count; l++)
        if (crosses[step->links[l].value])
            crosses[step->links[l].first] = true;
}

/* Values [0, count) are called map[value] from now on; those that are called as one before them are
 * left out. */
static void rename_values(sl_program *program, const uint32_t *map)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < program->value_count; v++)
        if (map[v] == count) {
            program->values[count] = program->values[v];
            count++;
        }
    program->value_count = count;
    for (uint32_t v = 0; v < count; v++)
        if (program->values[v].kind == SL_VALUE_PART)
            program->values[v].whole = map[program->values[v].whole];
    for (uint32_t o = 0; o < program->op_count; o++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            uint32_t *operand = &program->ops[o].operand[i];
            *operand = *operand == SL_NONE ? SL_NONE : map[*operand];
        }
}

/* In `map`, what each value stands for; then the numbers of those that are left. */
static void number_values(const sl_step *step, const bool *crosses, uint32_t *map)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < step->program->value_count; v++)
        map[v] = v;
    for (uint32_t l = 0; l < step->link_count; l++)
        if (crosses[step->links[l].first])
            map[step->links[l].value] = step->links[l].first;
    for (uint32_t v = 0; v < step->program->value_count; v++)
        map[v] = map[v] == v ? count++ : map[map[v]];
}

sl_status sl_pipeline_settle(sl_step *step)
{
    const uint64_t count = (uint64_t)step->program->value_count + 1;
    uint32_t *map = malloc(count * sizeof *map);
    bool *crosses = calloc(count, sizeof *crosses);
    sl_status status = SL_OK;
    if (map == NULL || crosses == NULL) {
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for a program");
        goto free_both;
    }
    memset(map, 0xFF, count * sizeof *map); /* the user of each value, at first: SL_NONE */
    find_crossing(step, map, crosses);
    number_values(step, crosses, map);
    rename_values(step->program, map);
free_both:
    free(map);
    free(crosses);
    return status;
}
