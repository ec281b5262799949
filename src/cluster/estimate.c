#include "estimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "machine/exchange_cost.h"

enum { VISITING_LAYERS = 2 }; /* one at work, the next one on its way */

static const double usable = 0.9; /* of a node's memory and drives */

const char *sl_cluster_share_name(sl_cluster_share share)
{
    static const char *const names[] = {"compute", "tensor exchange", "visits",
                                        "bubble",  "data exchange",   "update"};
    return names[share];
}

const char *sl_cluster_resource_name(sl_cluster_resource resource)
{
    static const char *const names[] = {"GPU",       "link",        "network",
                                        "host link", "host memory", "drives"};
    return names[resource];
}

bool sl_cluster_is_runnable(const sl_cluster_candidate *candidate)
{
    const sl_comm_layout *layout = &candidate->layout;
    return (uint64_t)layout->tensor * layout->data * layout->stages <= SL_COMM_RANKS_MAX;
}

static bool is_in_layer_order(const sl_cluster_candidate *candidate)
{
    return candidate->layout.stages == 1 && candidate->accumulation == SL_ACCUMULATE_LAYER;
}

static bool stores_sums(const sl_cluster_candidate *candidate)
{
    return candidate->accumulate > 1 && !is_in_layer_order(candidate);
}

sl_layer_cost_args sl_cluster_layer_args(const sl_cluster_job *job,
                                         const sl_cluster_candidate *candidate)
{
    return (sl_layer_cost_args){
        .cluster = job->cluster,
        .shape = job->shape,
        .type = job->type,
        .seq = job->seq,
        .tensor_ranks = candidate->layout.tensor,
        .micro_batch = candidate->micro_batch,
        .recompute = candidate->recompute,
        .sequence_parallel = job->sequence_parallel && candidate->layout.tensor > 1,
        .partition_activations = job->partition_activations && candidate->layout.tensor > 1,
        .stores_sums = stores_sums(candidate),
        .lora_dropout = job->lora_dropout,
        .rules = job->rules};
}

void sl_cluster_stage_layers(uint32_t layers, uint32_t stages, uint32_t stage, uint32_t *out_first,
                             uint32_t *out_count)
{
    const uint32_t each = layers / stages, rest = layers % stages;
    *out_first = stage * each + (stage < rest ? stage : rest);
    *out_count = each + (stage < rest);
}

/* ---- what a stage has, and where ---- */

/* The share of a group that lives in a tier. */
static double share_of(const sl_policy_options *placement, sl_group group, sl_tier tier)
{
    const double disk = placement->disk_fraction[group], host = placement->host_fraction[group];
    double shares[SL_TIER_COUNT] = {0};
    switch (placement->policy) {
    case SL_POLICY_HOST:
        shares[SL_TIER_HOST] = 1;
        break;
    case SL_POLICY_NVME:
        shares[SL_TIER_DISK] = disk;
        shares[SL_TIER_HOST] = 1 - disk;
        break;
    case SL_POLICY_STATIC:
        shares[SL_TIER_DISK] = disk;
        shares[SL_TIER_HOST] = host;
        shares[SL_TIER_DEVICE] = 1 - disk - host;
        break;
    default:
        shares[SL_TIER_DEVICE] = 1;
    }
    return shares[tier];
}

static double share_away(const sl_policy_options *placement, sl_group group)
{
    return 1 - share_of(placement, group, SL_TIER_DEVICE);
}

typedef struct stage {
    uint32_t layers;
    double elements, trained, directions;         /* parameters, see sl_layer_cost */
    double param_bytes, grad_bytes;               /* of an element */
    double state_bytes;                           /* of all master weights and states */
    double param_ranks, grad_ranks, moment_ranks; /* that share them */
    double forward, backward;                     /* seconds of a micro-batch, nothing visiting */
    double exposed, exchange;                     /* of both, of tensor-parallel ranks */
    double device_update, host_update, turns;     /* seconds, were all there */
    double kept;                                  /* micro-batches */
} stage;

static void add_part(stage *out, const sl_layer_cost *part, double times)
{
    out->elements += times * part->elements;
    out->trained += times * part->trained;
    out->directions += times * part->directions;
    out->state_bytes += times * part->state_bytes;
    out->device_update += times * part->update_seconds;
    out->host_update += times * part->host_update_seconds;
    out->turns += times * part->turn_seconds;
    out->forward += times * part->forward_seconds;
    out->backward += times * part->backward_seconds;
    out->exposed += times * part->exposed_seconds;
    out->exchange += times * part->exchange_seconds;
}

static void set_sharing(const sl_cluster_job *job, const sl_cluster_candidate *candidate,
                        stage *out)
{
    const double ranks = candidate->layout.data, type = (double)sl_type_bytes(job->type);
    const bool sums = stores_sums(candidate);
    out->param_bytes = type;
    out->grad_bytes = sums ? 4 : type;
    out->moment_ranks = candidate->zero >= 1 ? ranks : 1;
    out->grad_ranks = candidate->zero >= 2 && !sums ? ranks : 1;
    out->param_ranks = candidate->zero >= 3 ? ranks : 1;
}

static double count_kept(const sl_cluster_candidate *candidate, uint32_t index)
{
    const sl_pipeline pipeline = {.stage_count = candidate->layout.stages,
                                  .micro_batches = candidate->accumulate,
                                  .is_gpipe = candidate->is_gpipe};
    if (is_in_layer_order(candidate))
        return candidate->accumulate;
    return candidate->layout.stages == 1 ? 1 : sl_pipeline_kept(&pipeline, index);
}

static stage stage_at(const sl_cluster_job *job, const sl_layer_costs *costs,
                      const sl_cluster_candidate *candidate, uint32_t index)
{
    uint32_t first;
    stage out = {0};
    const uint32_t last = candidate->layout.stages - 1;
    sl_cluster_stage_layers(job->shape.layers, last + 1, index, &first, &out.layers);
    add_part(&out, &costs->layer, out.layers);
    if (index == 0)
        add_part(&out, &costs->embedding, 1);
    if (index == last)
        add_part(&out, &costs->head, 1);
    if (index == last && last > 0)
        add_part(&out, &costs->tied, 1);
    set_sharing(job, candidate, &out);
    out.kept = count_kept(candidate, index);
    return out;
}

/* ---- bytes ---- */

static double states_in(const stage *it, const sl_policy_options *placement, sl_tier tier)
{
    return it->elements * it->param_bytes / it->param_ranks *
               share_of(placement, SL_GROUP_PARAM, tier) +
           it->trained * it->grad_bytes / it->grad_ranks *
               share_of(placement, SL_GROUP_GRAD, tier) +
           it->state_bytes / it->moment_ranks * share_of(placement, SL_GROUP_STATE1, tier);
}

/* Of what is elsewhere, on the device while it is used. */
static double visiting_bytes(const stage *it, const sl_layer_costs *costs,
                             const sl_policy_options *placement)
{
    const double gathered = it->param_ranks > 1 ? 1 : share_away(placement, SL_GROUP_PARAM);
    const double grads = it->grad_ranks > 1 ? 1 : share_away(placement, SL_GROUP_GRAD);
    return VISITING_LAYERS * (gathered * it->param_bytes * costs->layer.elements +
                              grads * it->grad_bytes * costs->layer.trained);
}

/* Beyond states, in the passes or in the updates, whichever takes more. Where gradients are shared
 * out, directions are gathered beside them. */
static double working_bytes(const stage *it, const sl_layer_costs *costs)
{
    const double passes = costs->working_bytes + it->kept * it->layers * costs->layer.saved_bytes;
    const double gathered = it->grad_ranks > 1 ? costs->largest_directions * it->grad_bytes : 0;
    return fmax(passes, costs->updating_bytes + gathered);
}

static void count_stage(const stage *it, const sl_layer_costs *costs,
                        const sl_cluster_candidate *candidate, double bytes[SL_TIER_COUNT])
{
    const sl_policy_options *placement = &candidate->placement;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        bytes[tier] = states_in(it, placement, (sl_tier)tier);
    bytes[SL_TIER_DEVICE] += visiting_bytes(it, costs, placement) + working_bytes(it, costs);
    if (candidate->layout.stages > 1)
        bytes[SL_TIER_DEVICE] += 2 * costs->boundary_bytes;
    if (share_of(placement, SL_GROUP_STATE1, SL_TIER_DISK) > 0) /* drives need a place between */
        bytes[SL_TIER_HOST] += VISITING_LAYERS * (costs->layer.state_bytes / it->moment_ranks +
                                                  costs->layer.elements * it->param_bytes);
}

static void set_budgets(const sl_cluster *cluster, uint64_t budget[SL_TIER_COUNT])
{
    if (cluster->rank) {
        memcpy(budget, cluster->rank->budget, sizeof cluster->rank->budget);
        return;
    }
    budget[SL_TIER_DEVICE] = cluster->device_bytes - cluster->reserved_bytes;
    budget[SL_TIER_HOST] = (uint64_t)(usable * (double)cluster->host_bytes) / cluster->node_gpus;
    budget[SL_TIER_DISK] = (uint64_t)(usable * (double)cluster->disk_bytes) / cluster->node_gpus;
}

static bool check_budgets(const sl_cluster *cluster, const sl_cluster_estimate *estimate,
                          sl_tier *out_tier, uint64_t *out_missing)
{
    const uint64_t both = estimate->bytes[SL_TIER_DEVICE] + estimate->bytes[SL_TIER_HOST];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (estimate->bytes[tier] > estimate->budget[tier]) {
            *out_tier = (sl_tier)tier;
            *out_missing = estimate->bytes[tier] - estimate->budget[tier];
            return false;
        }
    if (!cluster->rank || both <= cluster->rank->shared_bytes)
        return true;
    *out_tier = SL_TIER_HOST;
    *out_missing = both - cluster->rank->shared_bytes;
    return false;
}

/* ---- time ---- */

typedef struct times {
    double forward, backward; /* of a micro-batch, with visits */
    double visits;            /* of both, what they add */
    double data, update;      /* behind the last pass */
    double device_update, host_update, drive_seconds, copy_seconds, send_seconds;
    double tensor_exchange, data_exchange;
} times;

/* What shows of `seconds` of work beside a pass that leaves all but one of the layers' part of it
 * room. */
static double exposed_beside(double seconds, double pass, uint32_t layers)
{
    const double one = seconds / (layers ? layers : 1);
    return fmax(one, seconds - (pass - pass / (layers ? layers : 1)));
}

static double host_link_seconds(const sl_cluster *cluster, double bytes)
{
    return bytes / (cluster->host_link.byte_rate * cluster->host_link.efficiency);
}

/* Visits of a pass: parameters both times; gradients in the backward pass, out and, as sums, in. */
static void add_visits(const sl_cluster_job *job, const sl_cluster_candidate *candidate,
                       const sl_exchange_cost *data, const stage *it, times *out)
{
    const sl_policy_options *placement = &candidate->placement;
    const double passes = is_in_layer_order(candidate) ? candidate->accumulate : 1;
    const double away = share_away(placement, SL_GROUP_PARAM) * it->param_bytes * it->elements;
    const double up = host_link_seconds(job->cluster, away / it->param_ranks);
    const double gather =
        it->param_ranks > 1 ? sl_exchange_cost_seconds(data, it->param_bytes * it->elements) : 0;
    const double grads = host_link_seconds(job->cluster, share_away(placement, SL_GROUP_GRAD) *
                                                             it->grad_bytes * it->trained);
    const double both_ways = stores_sums(candidate) ? grads : 0;
    const double forward = fmax(up, gather) / passes;
    const double backward = fmax(fmax(up + both_ways, grads), gather) / passes;
    out->forward = fmax(it->forward, forward);
    out->backward = fmax(it->backward, backward);
    out->visits = out->forward - it->forward + out->backward - it->backward;
    out->copy_seconds += candidate->accumulate / passes * (2 * up + both_ways);
    out->data_exchange += 2 * gather * candidate->accumulate / passes;
}

static void add_sums(const sl_cluster_candidate *candidate, const sl_exchange_cost *data,
                     const stage *it, times *out)
{
    const double once = sl_exchange_cost_seconds(data, it->param_bytes * it->trained);
    const double sums = candidate->zero == 0 ? 2 * once : once;
    const double gathers = candidate->zero == 1 || candidate->zero == 2 ? once : 0;
    const double directions =
        candidate->zero > 0 ? sl_exchange_cost_seconds(data, it->grad_bytes * it->directions) : 0;
    if (data->ranks == 1)
        return;
    out->data_exchange += sums + gathers + directions;
    out->data = exposed_beside(sums, out->backward, it->layers) + directions;
    if (gathers > 0)
        out->data += exposed_beside(gathers, out->forward, it->layers);
}

/* Seconds in which the link copies for updates off the device: those of the way, up or down, with
 * more bytes. Up come parameters. Down go gradients that are on the device; beside masters in
 * halves, whose update reads the parameters, also parameters that are there. Muon's directions come
 * up to be turned, and go down again. */
static double update_copy_seconds(const sl_cluster_job *job, const sl_policy_options *placement,
                                  const stage *it, double away)
{
    const double directions = it->directions * it->grad_bytes;
    const double params = it->trained * it->param_bytes;
    double down = directions +
                  it->trained * it->grad_bytes * share_of(placement, SL_GROUP_GRAD, SL_TIER_DEVICE);
    if (job->rules.master == SL_MASTER_LOW)
        down += params * share_of(placement, SL_GROUP_PARAM, SL_TIER_DEVICE);
    return host_link_seconds(job->cluster, away * fmax(params + directions, down));
}

/* What is updated off the device: the link copies, states go from and to drives, and the host
 * computes; the slowest of them counts. */
static void add_update(const sl_cluster_job *job, const sl_cluster_candidate *candidate,
                       const stage *it, times *out)
{
    const sl_cluster *cluster = job->cluster;
    const double away = share_away(&candidate->placement, SL_GROUP_STATE1) / it->moment_ranks;
    const double here = 1 / it->moment_ranks - away;
    const double on_disk = share_of(&candidate->placement, SL_GROUP_STATE1, SL_TIER_DISK) *
                           it->state_bytes / it->moment_ranks;
    out->device_update = here * it->device_update + it->turns;
    out->host_update = away * it->host_update;
    if (on_disk > 0)
        out->drive_seconds = cluster->node_gpus * (on_disk / cluster->disk_read_rate +
                                                   on_disk / cluster->disk_write_rate);
    const double copies = update_copy_seconds(job, &candidate->placement, it, away);
    out->copy_seconds += copies;
    const double off = fmax(fmax(out->host_update, out->drive_seconds), copies);
    out->update = out->device_update;
    if (off > 0)
        out->update += exposed_beside(off, out->forward, it->layers);
}

static times time_stage(const sl_cluster_job *job, const sl_layer_costs *costs,
                        const sl_cluster_candidate *candidate, const stage *it)
{
    const sl_exchange_cost data =
        sl_exchange_cost_of(job->cluster, &candidate->layout, SL_COMM_DATA);
    const double m = candidate->accumulate;
    times out = {.tensor_exchange = m * it->exchange};
    add_visits(job, candidate, &data, it, &out);
    add_sums(candidate, &data, it, &out);
    add_update(job, candidate, it, &out);
    if (candidate->layout.stages > 1) {
        const double send =
            sl_exchange_cost_send_seconds(job->cluster, &candidate->layout, costs->boundary_bytes);
        const double tied = sl_exchange_cost_send_seconds(job->cluster, &candidate->layout,
                                                          4 * costs->tied.trained);
        out.send_seconds =
            m * send + tied; /* what comes goes the other way of a full-duplex link */
        out.data += tied;
    }
    return out;
}

static bool leaves_node(const sl_cluster_job *job, const sl_cluster_candidate *candidate,
                        sl_comm_group group)
{
    return sl_exchange_cost_of(job->cluster, &candidate->layout, group).leaves_node;
}

static void set_busy(const sl_cluster_job *job, const sl_cluster_candidate *candidate,
                     const stage *it, const times *time, double busy[SL_CLUSTER_RESOURCE_COUNT])
{
    const double m = candidate->accumulate;
    busy[SL_CLUSTER_GPU] = m * (it->forward + it->backward - it->exposed) + time->device_update;
    busy[SL_CLUSTER_LINK] = busy[SL_CLUSTER_NETWORK] = 0;
    busy[leaves_node(job, candidate, SL_COMM_TENSOR) ? SL_CLUSTER_NETWORK : SL_CLUSTER_LINK] +=
        time->tensor_exchange;
    busy[leaves_node(job, candidate, SL_COMM_DATA) ? SL_CLUSTER_NETWORK : SL_CLUSTER_LINK] +=
        time->data_exchange;
    busy[job->ranks > job->cluster->node_gpus ? SL_CLUSTER_NETWORK : SL_CLUSTER_LINK] +=
        time->send_seconds;
    busy[SL_CLUSTER_HOST_LINK] = time->copy_seconds;
    busy[SL_CLUSTER_HOST] = time->host_update;
    busy[SL_CLUSTER_DRIVES] = time->drive_seconds;
}

/* ---- all stages ---- */

typedef struct survey {
    sl_pipeline pipeline;
    sl_pipeline_stage *stages; /* owned */
    stage busiest;
    times time;         /* of the busiest */
    double tail;        /* behind the last pass, of the stage where it is longest */
    double tail_update; /* of that */
} survey;

static sl_status survey_stages(const sl_cluster_job *job, const sl_layer_costs *costs,
                               const sl_cluster_candidate *candidate, survey *out)
{
    const uint32_t count = candidate->layout.stages;
    out->stages = calloc(count, sizeof *out->stages);
    if (!out->stages)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u stages", count);
    out->pipeline = (sl_pipeline){
        out->stages, count, candidate->accumulate, candidate->is_gpipe,
        sl_exchange_cost_send_seconds(job->cluster, &candidate->layout, costs->boundary_bytes)};
    for (uint32_t s = 0; s < count; s++) {
        const stage it = stage_at(job, costs, candidate, s);
        const times time = time_stage(job, costs, candidate, &it);
        out->stages[s] = (sl_pipeline_stage){time.forward, time.backward};
        if (s == 0 || time.forward + time.backward > out->time.forward + out->time.backward) {
            out->busiest = it;
            out->time = time;
        }
        if (time.data + time.update > out->tail) {
            out->tail = time.data + time.update;
            out->tail_update = time.update;
        }
    }
    return SL_OK;
}

bool sl_cluster_fits(const sl_cluster_job *job, const sl_layer_costs *costs,
                     sl_cluster_estimate *estimate, sl_tier *out_tier, uint64_t *out_missing)
{
    const sl_cluster_candidate *candidate = &estimate->candidate;
    double most[SL_TIER_COUNT] = {0};
    for (uint32_t s = 0; s < candidate->layout.stages; s++) {
        double bytes[SL_TIER_COUNT];
        const stage it = stage_at(job, costs, candidate, s);
        count_stage(&it, costs, candidate, bytes);
        if (bytes[SL_TIER_DEVICE] > most[SL_TIER_DEVICE])
            estimate->fullest_stage = s;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            most[tier] = fmax(most[tier], bytes[tier]);
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        estimate->bytes[tier] = (uint64_t)most[tier];
    set_budgets(job->cluster, estimate->budget);
    return check_budgets(job->cluster, estimate, out_tier, out_missing);
}

sl_status sl_cluster_bound(const sl_cluster_job *job, const sl_layer_costs *costs,
                           sl_cluster_estimate *estimate)
{
    survey all = {0};
    sl_status status = survey_stages(job, costs, &estimate->candidate, &all);
    if (status == SL_OK)
        estimate->bound_seconds = sl_pipeline_bound(&all.pipeline) + all.tail;
    free(all.stages);
    return status;
}

static void set_shares(const sl_cluster_candidate *candidate, const survey *all,
                       sl_cluster_estimate *estimate)
{
    const double m = candidate->accumulate;
    double *share = estimate->share_seconds, rest = estimate->step_seconds;
    share[SL_CLUSTER_TENSOR] = m * all->busiest.exposed;
    share[SL_CLUSTER_COMPUTE] =
        m * (all->busiest.forward + all->busiest.backward) - share[SL_CLUSTER_TENSOR];
    share[SL_CLUSTER_VISITS] = m * all->time.visits;
    share[SL_CLUSTER_UPDATE] = all->tail_update;
    share[SL_CLUSTER_DATA] = all->tail - all->tail_update;
    for (int i = 0; i < SL_CLUSTER_SHARE_COUNT; i++)
        rest -= i == SL_CLUSTER_BUBBLE ? 0 : share[i];
    share[SL_CLUSTER_BUBBLE] = fmax(rest, 0);
}

sl_status sl_cluster_time(const sl_cluster_job *job, const sl_layer_costs *costs,
                          const sl_pipeline_observer *observer, sl_cluster_estimate *estimate)
{
    survey all = {0};
    double seconds = 0;
    sl_status status = survey_stages(job, costs, &estimate->candidate, &all);
    if (status == SL_OK)
        status = sl_pipeline_play(&all.pipeline, observer, &seconds);
    if (status == SL_OK) {
        estimate->step_seconds = seconds + all.tail;
        set_shares(&estimate->candidate, &all, estimate);
        set_busy(job, &estimate->candidate, &all.busiest, &all.time, estimate->busy_seconds);
    }
    free(all.stages);
    return status;
}
