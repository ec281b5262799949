/* What one combination of options costs on a described cluster: bytes of the fullest rank by tier,
 * and the time of a step.
 *
 * Arithmetic over layers that were planned and simulated (layer_cost.h), exchanges
 * (exchange_cost.h) and a pipeline that is simulated (pipeline.h). The rules that are neither:
 *
 *   bytes   states of the stage's parameters, shared over D ranks from ZeRO 1, 2 and 3 on; saved
 *           activations of the micro-batches that a stage keeps; what a layer's passes take beside
 *           them; one buffer to receive and one to send; of what lives elsewhere, two layers that
 *           visit
 *   data    sums begin with the last micro-batch's backward pass and run beside it: the step waits
 *           for what they take longer, at least for the last layer's sum; gathers likewise beside
 *           the next forward pass
 *   update  what is updated on the host or streamed from drives hides behind the next step's first
 *           forward pass, but for one layer
 *   rules   what is stored and updated is counted by the rule of each tensor; frozen ones have no
 *           gradient. Where a rule works by directions, every data-parallel rank turns all of them
 *           on the device, gathered first from ZeRO 1 on; they travel with gradients
 *   visits  parameters that are gathered (ZeRO 3) or that live elsewhere come once a pass of each
 *           micro-batch, in layer order once a pass; a pass takes as long as the slower of both
 */
#ifndef SL_CLUSTER_ESTIMATE_H
#define SL_CLUSTER_ESTIMATE_H

#include "layer_cost.h"
#include "pipeline.h"

typedef struct sl_cluster_candidate {
    sl_comm_layout layout;
    uint32_t micro_batch, accumulate; /* rows; micro-batches a step and data rank */
    uint32_t zero;
    sl_recompute recompute;
    bool is_gpipe;                /* with more than one stage */
    sl_accumulation accumulation; /* with one stage */
    sl_policy_options placement;
} sl_cluster_candidate;

/* Where the time of a step goes, on the stage with most to do; they add up to the step. */
typedef enum sl_cluster_share {
    SL_CLUSTER_COMPUTE,
    SL_CLUSTER_TENSOR, /* waiting for tensor-parallel ranks */
    SL_CLUSTER_VISITS, /* waiting for parameters that are elsewhere */
    SL_CLUSTER_BUBBLE, /* waiting for other stages */
    SL_CLUSTER_DATA,   /* sums and gathers of data-parallel ranks that show */
    SL_CLUSTER_UPDATE, /* updates that show */
    SL_CLUSTER_SHARE_COUNT
} sl_cluster_share;

/* What may be the slowest. */
typedef enum sl_cluster_resource {
    SL_CLUSTER_GPU,
    SL_CLUSTER_LINK,      /* between GPUs of a node */
    SL_CLUSTER_NETWORK,   /* between nodes */
    SL_CLUSTER_HOST_LINK, /* between GPU and host */
    SL_CLUSTER_HOST,      /* updates on the host */
    SL_CLUSTER_DRIVES,
    SL_CLUSTER_RESOURCE_COUNT
} sl_cluster_resource;

typedef struct sl_cluster_estimate {
    sl_cluster_candidate candidate;
    uint64_t bytes[SL_TIER_COUNT]; /* of the fullest rank */
    uint64_t budget[SL_TIER_COUNT];
    uint32_t fullest_stage;
    double bound_seconds; /* no schedule of it is faster */
    double step_seconds;
    double share_seconds[SL_CLUSTER_SHARE_COUNT];
    double busy_seconds[SL_CLUSTER_RESOURCE_COUNT];
    bool is_planned; /* bytes and time are of the whole plan, verified, not put together */
} sl_cluster_estimate;

/* What is asked, the same for all candidates. */
typedef struct sl_cluster_job {
    const sl_cluster *cluster;
    sl_model_shape shape;
    sl_type type;
    uint32_t seq, ranks;
    uint64_t global_batch; /* rows of a step */
    bool sequence_parallel, partition_activations;
    float lora_dropout;
    sl_update_rules rules; /* borrows the lists of a configuration */
    /* Of the whole model, by sl_cluster_check_rules; they are not looked at by estimates. */
    uint64_t parameters, trained; /* without padding; adapters are counted */
    double token_flops;
} sl_cluster_job;

sl_layer_cost_args sl_cluster_layer_args(const sl_cluster_job *job,
                                         const sl_cluster_candidate *candidate);

/* Layers of a stage: as many each, and one more for the first ones where they do not divide. */
void sl_cluster_stage_layers(uint32_t layers, uint32_t stages, uint32_t stage, uint32_t *out_first,
                             uint32_t *out_count);

/* Fills in bytes and budgets; false: it does not fit, and *out_tier misses
 * *out_missing bytes. */
bool sl_cluster_fits(const sl_cluster_job *job, const sl_layer_costs *costs,
                     sl_cluster_estimate *estimate, sl_tier *out_tier, uint64_t *out_missing);

/* Fills in a time that no schedule of the candidate beats. SL_ERROR_SYSTEM. */
sl_status sl_cluster_bound(const sl_cluster_job *job, const sl_layer_costs *costs,
                           sl_cluster_estimate *estimate);

/* Simulates the pipeline and fills in the times. `observer` may be NULL. */
sl_status sl_cluster_time(const sl_cluster_job *job, const sl_layer_costs *costs,
                          const sl_pipeline_observer *observer, sl_cluster_estimate *estimate);

/* Whether this version's train takes so many ranks. */
bool sl_cluster_is_runnable(const sl_cluster_candidate *candidate);

const char *sl_cluster_share_name(sl_cluster_share share);
const char *sl_cluster_resource_name(sl_cluster_resource resource);

#endif
