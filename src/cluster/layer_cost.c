#include "layer_cost.h"

#include <stdlib.h>

#include "base/bits.h"
#include "machine/exchange_cost.h"

/* Micro-batches of the two steps that are compared: from the third on, one is like the other. */
enum { FEWER = 3, MORE = 4 };

/* One model of a few layers, planned and simulated. */
typedef struct sounding {
    double micro_seconds;   /* of a micro-batch in a step, both passes */
    double forward_seconds; /* of its forward pass alone */
    double exposed_seconds, exchange_seconds;
    double embedding_forward, embedding_backward;
    sl_layer_cost layers, embedding, head, tied; /* what is done once a step, and elements */
    double largest_directions;                   /* elements of a chunk */
    double passes_bytes, updates_bytes;          /* peaks of both parts of a step */
} sounding;

/* Seconds of updates of an element, by rule. */
typedef struct update_rates {
    double device[SL_RULE_COUNT], host[SL_RULE_COUNT];
} update_rates;

sl_task sl_layer_cost_task(const sl_layer_cost_args *sample, const sl_comm_layout *layout,
                           uint32_t layers)
{
    sl_task task = {.work = SL_WORK_TRAIN,
                    .shape = sample->shape,
                    .type = sample->type,
                    .seq = sample->seq,
                    .tp_size = sample->tensor_ranks,
                    .sequence_parallel = sample->sequence_parallel,
                    .partition_activations = sample->partition_activations,
                    .lora_dropout = sample->lora_dropout,
                    .rules = sample->rules,
                    .is_probe = true};
    task.shape.layers = layers;
    task.head_logits = sl_model_gpu_head_logits(sample->type);
    task.dp_size = layout->data;
    task.target = (sl_engine_target){.device = SL_DEVICE_CPU,
                                     .worker_count = 1,
                                     .rank_count = sample->tensor_ranks,
                                     .data_rank_count = layout->data};
    task.machine = sl_cluster_machine(
        sample->cluster, layout, sample->stores_sums ? 4 : (uint32_t)sl_type_bytes(sample->type));
    return task;
}

static double sum_ops(const sl_program *program, const sl_machine *machine, const sl_op_kind *kinds,
                      uint32_t count)
{
    double seconds = 0;
    for (uint32_t i = 0; i < program->op_count; i++)
        for (uint32_t k = 0; k < count; k++)
            if (program->ops[i].kind == kinds[k])
                seconds += sl_machine_op_seconds(machine, kinds[k], &program->ops[i].attrs, false);
    return seconds;
}

/* Of the embedding: in a program of one micro-batch each op stands once. */
static void sound_embedding(const sl_blueprint *blueprint, sounding *out)
{
    static const sl_op_kind forward[] = {SL_OP_EMBED_POSITION, SL_OP_EMBED_TOKENS};
    static const sl_op_kind backward[] = {SL_OP_EMBED_POSITION_BACKWARD,
                                          SL_OP_EMBED_TOKENS_BACKWARD};
    out->embedding_forward = sum_ops(blueprint->programs[1], &blueprint->machine, forward, 2);
    out->embedding_backward = sum_ops(blueprint->programs[0], &blueprint->machine, backward, 2);
}

static sl_status build(const sl_layer_cost_args *sample, uint32_t layers, uint32_t accumulate,
                       sl_blueprint **out_blueprint)
{
    const sl_comm_layout layout = {sample->tensor_ranks, 1, 1};
    sl_task task = sl_layer_cost_task(sample, &layout, layers);
    sl_fit_failure failure;
    const sl_choice choice = {.prefetch = SL_PREFETCH_AUTO,
                              .micro_batch = sample->micro_batch,
                              .accumulate = accumulate,
                              .recompute = sample->recompute,
                              .placement = {.policy = SL_POLICY_DEVICE},
                              .device_memory = UINT64_MAX / 4,
                              .host_memory = UINT64_MAX / 4};
    task.with_evaluation = true;
    return sl_blueprint_build(&task, &choice, out_blueprint, &failure);
}

static sl_status simulate(const sl_blueprint *blueprint, uint32_t program, sl_simulation *out)
{
    return sl_plan_simulate(blueprint->programs[program], blueprint->plans[program],
                            &blueprint->machine, out);
}

/* ---- tensors: elements, states, and what is done once a step ---- */

static double find_op_seconds(const sl_layer_cost_args *sample, const sl_machine *machine,
                              sl_op_kind kind, uint64_t elements, bool on_host)
{
    const sl_type grad = sample->stores_sums ? SL_TYPE_FP32 : sample->type;
    const sl_op_attrs attrs = {.element_count = elements,
                               .type = (uint16_t)sample->type,
                               .grad_type = (uint16_t)grad,
                               .state_type = sample->rules.states,
                               .master_type = sample->rules.master};
    return sl_machine_op_seconds(machine, kind, &attrs, on_host);
}

static update_rates find_update_rates(const sl_layer_cost_args *sample)
{
    enum { MANY = 1 << 26 }; /* elements, so that fixed costs are of a chunk, not of an element */
    const sl_comm_layout alone = {1, 1, 1};
    const sl_machine machine = sl_cluster_machine(sample->cluster, &alone, 4);
    update_rates rates = {.device = {0}};
    for (int rule = 0; rule < SL_RULE_COUNT; rule++) {
        const sl_rule_direction *direction = sl_rule_direction_of((sl_rule_id)rule);
        const sl_op_kind kinds[] = {sl_rule_of((sl_rule_id)rule)->update,
                                    direction ? direction->make : SL_OP_COUNT};
        if (kinds[0] == SL_OP_COUNT)
            continue;
        for (int i = 0; i < 2 && kinds[i] != SL_OP_COUNT; i++) {
            rates.device[rule] += find_op_seconds(sample, &machine, kinds[i], MANY, false) / MANY;
            rates.host[rule] += find_op_seconds(sample, &machine, kinds[i], MANY, true) / MANY;
        }
        rates.device[rule] +=
            find_op_seconds(sample, &machine, SL_OP_BLOCK_NORM, MANY, false) / MANY;
    }
    return rates;
}

static void add_tensor(const sl_blueprint *blueprint, const update_rates *rates,
                       const sl_tensor_spec *spec, sl_layer_cost *part)
{
    static const sl_group groups[] = {SL_GROUP_MASTER, SL_GROUP_STATE1, SL_GROUP_STATE2};
    const sl_program *program = blueprint->programs[0];
    const sl_stored_types types = sl_program_stored_types(program);
    const double elements = (double)spec->element_count;
    part->elements += elements;
    if (!sl_rule_stores(spec->rule, SL_GROUP_GRAD))
        return;
    part->trained += elements;
    part->directions += sl_rule_direction_of(spec->rule) ? elements : 0;
    part->update_seconds += elements * rates->device[spec->rule];
    part->host_update_seconds += elements * rates->host[spec->rule];
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        part->state_bytes += elements * (double)sl_rule_block_bytes(spec->rule, groups[i], &types) /
                             SL_BLOCK_ELEMENTS;
}

/* The first op that reads a tensor. */
static const sl_op *find_reader(const sl_program *forward, uint32_t tensor)
{
    for (uint32_t o = 0; o < forward->op_count; o++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const uint32_t value = forward->ops[o].operand[i];
            if (value != SL_NONE && forward->values[value].kind == SL_VALUE_TENSOR &&
                forward->values[value].index == tensor)
                return &forward->ops[o];
        }
    return &forward->ops[0]; /* every tensor is read */
}

/* Tensors stand in the order in which they are used: before the blocks those of the embedding,
 * behind them those of the head. */
static void count_tensors(const sl_layer_cost_args *sample, const sl_blueprint *blueprint,
                          sounding *out)
{
    const sl_program *forward = blueprint->programs[1];
    const update_rates rates = find_update_rates(sample);
    bool is_behind = false;
    for (uint32_t t = 0; t < forward->tensor_count; t++) {
        const sl_tensor_spec *spec = &forward->tensors[t];
        const sl_op *reader = find_reader(forward, t);
        const bool is_of_block = forward->segments[reader->segment].is_block;
        sl_layer_cost *part = is_of_block ? &out->layers : is_behind ? &out->head : &out->embedding;
        is_behind = is_behind || is_of_block;
        add_tensor(blueprint, &rates, spec, part);
        if (!sample->shape.is_untied && reader->kind == SL_OP_EMBED_TOKENS)
            add_tensor(blueprint, &rates, spec, &out->tied);
    }
    for (uint32_t c = 0; c < blueprint->layout->chunk_count; c++) {
        const sl_chunk *chunk = &blueprint->layout->chunks[c];
        if (sl_rule_direction_of(chunk->rule) && (double)chunk->elements > out->largest_directions)
            out->largest_directions = (double)chunk->elements;
    }
}

/* The first op that updates: all behind it is done once a step. */
static uint32_t find_updates(const sl_program *program)
{
    uint32_t first = 0;
    while (first < program->op_count && !sl_op_info_of(program->ops[first].kind)->updates_chunk)
        first++;
    return first;
}

/* Of the matrices of blocks, which alone are turned; with what gathers and shares them out. */
static double count_turns(const sl_blueprint *blueprint)
{
    const sl_program *program = blueprint->programs[0];
    double seconds = 0;
    for (uint32_t i = find_updates(program); i < program->op_count; i++) {
        const sl_op *op = &program->ops[i];
        if (!sl_op_info_of(op->kind)->updates_chunk)
            seconds += sl_machine_op_seconds(&blueprint->machine, op->kind, &op->attrs, false);
    }
    return seconds;
}

/* ---- peaks ---- */

static double find_peak(const uint64_t *live, uint32_t first, uint32_t end)
{
    double most = 0;
    for (uint32_t tick = first; tick < end; tick++) {
        double bytes = 0;
        for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
            bytes += (double)live[(uint64_t)tick * SL_MEMORY_KIND_COUNT + (uint64_t)kind];
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* An update may take more than a pass does, but nothing of a pass is left then. */
static sl_status find_peaks(const sl_blueprint *blueprint, sounding *out)
{
    const sl_program *program = blueprint->programs[0];
    const uint32_t updates = find_updates(program);
    uint64_t bytes;
    SL_TRY(sl_bits_multiply((uint64_t)program->op_count * SL_MEMORY_KIND_COUNT, sizeof(uint64_t),
                            "live bytes", &bytes));
    uint64_t *live = malloc(bytes);
    if (!live)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the live bytes of %u ops", program->op_count);
    sl_plan_live_bytes(blueprint->plans[0], SL_TIER_DEVICE, program->op_count, live);
    out->passes_bytes = find_peak(live, 0, updates);
    out->updates_bytes = find_peak(live, updates, program->op_count);
    free(live);
    return SL_OK;
}

static sl_status sound_fewer(const sl_layer_cost_args *sample, const sl_blueprint *blueprint,
                             sl_simulation *out_step, sounding *out)
{
    sl_simulation forward;
    SL_TRY(simulate(blueprint, 0, out_step));
    SL_TRY(simulate(blueprint, 1, &forward));
    out->forward_seconds = forward.step_seconds;
    count_tensors(sample, blueprint, out);
    out->layers.turn_seconds = out->layers.directions > 0 ? count_turns(blueprint) : 0;
    sound_embedding(blueprint, out);
    return find_peaks(blueprint, out);
}

static sl_status sound(const sl_layer_cost_args *sample, uint32_t layers, sounding *out)
{
    sl_blueprint *blueprint = NULL;
    sl_simulation fewer, more;
    SL_TRY(build(sample, layers, sample->stores_sums ? FEWER : 1, &blueprint));
    sl_status status = sound_fewer(sample, blueprint, &fewer, out);
    sl_blueprint_close(blueprint);
    SL_TRY(status);
    SL_TRY(build(sample, layers, MORE, &blueprint));
    status = simulate(blueprint, 0, &more);
    if (status == SL_OK && !sample->stores_sums) {
        sl_blueprint_close(blueprint);
        SL_TRY(build(sample, layers, FEWER, &blueprint));
        status = simulate(blueprint, 0, &fewer);
    }
    sl_blueprint_close(blueprint);
    SL_TRY(status);
    out->micro_seconds = more.step_seconds - fewer.step_seconds;
    out->exposed_seconds = more.stall_seconds[SL_LANE_COMM] - fewer.stall_seconds[SL_LANE_COMM];
    out->exchange_seconds = more.busy_seconds[SL_LANE_COMM] - fewer.busy_seconds[SL_LANE_COMM];
    return SL_OK;
}

/* Of one layer the peak may be elsewhere than of many: in the head. */
static sl_status sound_memory(const sl_layer_cost_args *sample, uint32_t layers, sounding *out)
{
    sl_blueprint *blueprint = NULL;
    SL_TRY(build(sample, layers, sample->stores_sums ? FEWER : 1, &blueprint));
    count_tensors(sample, blueprint, out);
    const sl_status status = find_peaks(blueprint, out);
    sl_blueprint_close(blueprint);
    return status;
}

/* Bytes of all that is stored of a part. */
static double stored_bytes(const sl_layer_cost_args *sample, const sl_layer_cost *part)
{
    const double type = (double)sl_type_bytes(sample->type);
    return part->elements * type + part->trained * (sample->stores_sums ? 4 : type) +
           part->state_bytes;
}

/* Of the whole model of a sounding. */
static double all_stored_bytes(const sl_layer_cost_args *sample, const sounding *it)
{
    return stored_bytes(sample, &it->layers) + stored_bytes(sample, &it->embedding) +
           stored_bytes(sample, &it->head);
}

static double at_least_zero(double value)
{
    return value > 0 ? value : 0;
}

static void set_ends(const sounding *one, sl_layer_costs *costs)
{
    costs->tied = one->tied;
    costs->head = one->head;
    costs->embedding = one->embedding;
    costs->embedding.forward_seconds = one->embedding_forward;
    costs->embedding.backward_seconds = one->embedding_backward;
    const double forward = one->forward_seconds - costs->layer.forward_seconds;
    const double both =
        one->micro_seconds - costs->layer.forward_seconds - costs->layer.backward_seconds;
    costs->head.forward_seconds = at_least_zero(forward - one->embedding_forward);
    costs->head.backward_seconds = at_least_zero(both - forward - one->embedding_backward);
    costs->head.exposed_seconds =
        at_least_zero(one->exposed_seconds - costs->layer.exposed_seconds);
    costs->head.exchange_seconds =
        at_least_zero(one->exchange_seconds - costs->layer.exchange_seconds);
}

static void set_layer(const sounding *one, const sounding *two, sl_layer_cost *layer)
{
    *layer = one->layers;
    layer->forward_seconds = at_least_zero(two->forward_seconds - one->forward_seconds);
    layer->backward_seconds =
        at_least_zero(two->micro_seconds - one->micro_seconds - layer->forward_seconds);
    layer->exposed_seconds = at_least_zero(two->exposed_seconds - one->exposed_seconds);
    layer->exchange_seconds = at_least_zero(two->exchange_seconds - one->exchange_seconds);
}

sl_status sl_layer_cost_measure(const sl_layer_cost_args *sample, sl_layer_costs *out_costs)
{
    sounding one = {0}, two = {0}, three = {0};
    sl_layer_costs costs = {0};
    SL_TRY(sound(sample, 1, &one));
    SL_TRY(sound(sample, 2, &two));
    SL_TRY(sound_memory(sample, 3, &three));
    sl_layer_cost *layer = &costs.layer;
    set_layer(&one, &two, layer);
    const double stored = all_stored_bytes(sample, &three);
    layer->saved_bytes =
        at_least_zero(three.passes_bytes - two.passes_bytes - stored_bytes(sample, layer));
    costs.working_bytes = at_least_zero(three.passes_bytes - stored - 3 * layer->saved_bytes);
    costs.updating_bytes = at_least_zero(three.updates_bytes - stored);
    costs.largest_directions = three.largest_directions;
    costs.boundary_bytes = (double)sample->micro_batch * sample->seq * sample->shape.width *
                           (double)sl_type_bytes(sample->type) /
                           (sample->sequence_parallel ? sample->tensor_ranks : 1);
    set_ends(&one, &costs);
    *out_costs = costs;
    return SL_OK;
}
