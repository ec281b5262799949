/* What one micro-batch costs in a layer, in the embedding and in the head of one rank.
 *
 * Nothing of it is a formula: models of one and of two layers, of the local shape of a candidate,
 * are emitted, planned and simulated as `sluice plan` does, on the described machine; what the
 * second layer adds is a layer, what is left the two ends. So what a layer costs follows every
 * change of ops, passes and planner, and costs the same for 2 layers and for 128. Parameters are
 * counted tensor by tensor, each with the states of its rule. What is done once a step is counted
 * apart from what each micro-batch does.
 */
#ifndef SL_CLUSTER_LAYER_COST_H
#define SL_CLUSTER_LAYER_COST_H

#include "comm/groups.h"
#include "machine/cluster_file.h"
#include "search/blueprint.h"

typedef struct sl_layer_cost {
    double forward_seconds, backward_seconds; /* recomputation is of the backward pass */
    double exposed_seconds;  /* of both: waiting for the other tensor-parallel ranks */
    double exchange_seconds; /* of both: exchanging with them, beside the work or not */
    double elements;         /* parameters of the rank, padded ids and heads included */
    double trained;          /* those with a gradient */
    double directions;       /* those whose rule makes directions of gradients (rule.h) */
    double state_bytes;      /* of master weights and states of rules, on one data-parallel rank */
    double update_seconds;   /* norms and updates of all on the device, once a step */
    double host_update_seconds; /* updates of all on the host */
    double turn_seconds;        /* directions of all matrices turned, on each data-parallel rank */
    double saved_bytes;         /* that a micro-batch leaves for its backward pass */
} sl_layer_cost;

typedef struct sl_layer_costs {
    sl_layer_cost layer, embedding, head;
    sl_layer_cost tied;    /* the embedding's table, which a last stage of its own has too */
    double working_bytes;  /* beyond states and what is saved, at the peak of the passes */
    double updating_bytes; /* beyond states, at the peak of the updates, when nothing is saved */
    double largest_directions; /* elements of the largest chunk of directions */
    double boundary_bytes;     /* hidden states of a micro-batch, which one stage sends the next */
} sl_layer_costs;

/* What is measured: the task of one rank without layers, of which shape.layers is not looked at. */
typedef struct sl_layer_cost_args {
    const sl_cluster *cluster;
    sl_model_shape shape;
    sl_type type;
    uint32_t seq, tensor_ranks, micro_batch;
    sl_recompute recompute;
    bool sequence_parallel, partition_activations;
    bool stores_sums; /* gradients are fp32 sums over micro-batches */
    float lora_dropout;
    sl_update_rules rules; /* the same of all layers */
} sl_layer_cost_args;

/* SL_ERROR_USAGE: the shape does not divide so; else failures of planning. */
sl_status sl_layer_cost_measure(const sl_layer_cost_args *sample, sl_layer_costs *out_costs);

/* The task of a rank and the choice of a plan on the device alone, for so many layers. */
sl_task sl_layer_cost_task(const sl_layer_cost_args *sample, const sl_comm_layout *layout,
                           uint32_t layers);

#endif
