#include "layer_cost.h"

#include "machine/exchange_cost.h"

/* Micro-batches of the two steps that are compared: from the third on, one is like the other. */
enum { FEWER = 3, MORE = 4 };

/* One model of a few layers, planned and simulated. */
typedef struct sounding {
    double micro_seconds;   /* of a micro-batch in a step, both passes */
    double forward_seconds; /* of its forward pass alone */
    double exposed_seconds, exchange_seconds;
    double embedding_forward, embedding_backward;
    double elements;
    double peak_bytes;
} sounding;

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

static sl_status sound_fewer(const sl_blueprint *blueprint, sl_simulation *out_step, sounding *out)
{
    sl_simulation forward;
    SL_TRY(simulate(blueprint, 0, out_step));
    SL_TRY(simulate(blueprint, 1, &forward));
    out->forward_seconds = forward.step_seconds;
    out->elements = (double)blueprint->layout->valid_elements;
    out->peak_bytes = (double)blueprint->plans[0]->live_peak_bytes[SL_TIER_DEVICE];
    sound_embedding(blueprint, out);
    return SL_OK;
}

static sl_status sound(const sl_layer_cost_args *sample, uint32_t layers, sounding *out)
{
    sl_blueprint *blueprint = NULL;
    sl_simulation fewer, more;
    SL_TRY(build(sample, layers, sample->stores_sums ? FEWER : 1, &blueprint));
    sl_status status = sound_fewer(blueprint, &fewer, out);
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

/* Of one layer the peak may be elsewhere than of many: in the head, or in the update. */
static sl_status sound_memory(const sl_layer_cost_args *sample, uint32_t layers, sounding *out)
{
    sl_blueprint *blueprint = NULL;
    SL_TRY(build(sample, layers, sample->stores_sums ? FEWER : 1, &blueprint));
    out->elements = (double)blueprint->layout->valid_elements;
    out->peak_bytes = (double)blueprint->plans[0]->live_peak_bytes[SL_TIER_DEVICE];
    sl_blueprint_close(blueprint);
    return SL_OK;
}

/* Bytes of all states of an element. */
static double state_bytes(const sl_layer_cost_args *sample)
{
    const double type = (double)sl_type_bytes(sample->type);
    const double master = sample->type == SL_TYPE_FP32 ? 0 : 4;
    return type + (sample->stores_sums ? 4 : type) + master + 8;
}

static double at_least_zero(double value)
{
    return value > 0 ? value : 0;
}

static void set_ends(const sl_layer_cost_args *sample, const sounding *one, sl_layer_costs *costs)
{
    const sl_model_shape *shape = &sample->shape;
    const double ends = one->elements - costs->layer.elements;
    const double table = (double)sl_model_shape_padded_vocab(shape, sample->tensor_ranks) /
                         sample->tensor_ranks * shape->width;
    costs->tied_elements = shape->is_untied ? 0 : table;
    costs->head.elements =
        (double)sl_model_shape_norm_elements(shape) + (shape->is_untied ? table : 0);
    costs->embedding.elements = at_least_zero(ends - costs->head.elements);
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

static void set_updates(const sl_layer_cost_args *sample, sl_layer_costs *costs)
{
    enum { MANY = 1 << 26 }; /* elements, so that fixed costs are of a chunk, not of an element */
    const sl_comm_layout alone = {1, 1, 1};
    const sl_machine machine = sl_cluster_machine(sample->cluster, &alone, 4);
    const sl_op_attrs attrs = {.element_count = MANY,
                               .type = (uint16_t)sample->type,
                               .grad_type =
                                   (uint16_t)(sample->stores_sums ? SL_TYPE_FP32 : sample->type)};
    costs->element_seconds = (sl_machine_op_seconds(&machine, SL_OP_ADAMW, &attrs, false) +
                              sl_machine_op_seconds(&machine, SL_OP_BLOCK_NORM, &attrs, false)) /
                             MANY;
    costs->host_update_seconds = sl_machine_op_seconds(&machine, SL_OP_ADAMW, &attrs, true) / MANY;
}

sl_status sl_layer_cost_measure(const sl_layer_cost_args *sample, sl_layer_costs *out_costs)
{
    sounding one = {0}, two = {0}, three = {0};
    sl_layer_costs costs = {0};
    SL_TRY(sound(sample, 1, &one));
    SL_TRY(sound(sample, 2, &two));
    SL_TRY(sound_memory(sample, 3, &three));
    sl_layer_cost *layer = &costs.layer;
    layer->elements = two.elements - one.elements;
    layer->forward_seconds = at_least_zero(two.forward_seconds - one.forward_seconds);
    layer->backward_seconds =
        at_least_zero(two.micro_seconds - one.micro_seconds - layer->forward_seconds);
    layer->exposed_seconds = at_least_zero(two.exposed_seconds - one.exposed_seconds);
    layer->exchange_seconds = at_least_zero(two.exchange_seconds - one.exchange_seconds);
    layer->saved_bytes =
        at_least_zero(three.peak_bytes - two.peak_bytes - layer->elements * state_bytes(sample));
    costs.working_bytes = at_least_zero(three.peak_bytes - three.elements * state_bytes(sample) -
                                        3 * layer->saved_bytes);
    costs.boundary_bytes = (double)sample->micro_batch * sample->seq * sample->shape.width *
                           (double)sl_type_bytes(sample->type) /
                           (sample->sequence_parallel ? sample->tensor_ranks : 1);
    set_ends(sample, &one, &costs);
    set_updates(sample, &costs);
    *out_costs = costs;
    return SL_OK;
}
