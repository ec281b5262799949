/* A planned run: programs, layout, homes and plans, before any memory is taken.
 *
 * A task says what is to be computed; a choice is one way to do it. Building a blueprint is
 * deterministic and pure: the same task and choice give the same one. Every plan of a blueprint was
 * verified, but for those that were built to be compared (is_probe).
 */
#ifndef SL_SEARCH_BLUEPRINT_H
#define SL_SEARCH_BLUEPRINT_H

#include "base/status.h"
#include "config/freeze.h"
#include "config/stages.h"
#include "config/update_rules.h"
#include "engine/engine.h"
#include "model/architecture.h"

/* A last micro-batch of an evaluation may be smaller than the others: it has a program of its own.
 */
typedef enum sl_work {
    /* Program 0: a training step. With evaluation then: the loss of a micro-batch; of the last one
     * of the evaluation data, and of the test data, where these are smaller and differ. With
     * samples, last: what comes behind a row. */
    SL_WORK_TRAIN,
    /* Program 0: the loss of a micro-batch; 1: of the last one, where it is smaller. */
    SL_WORK_EVALUATE,
    /* Program 0: one more token of each of micro_batch rows; then, where there is one, the prompt,
     * of one row; then, likewise, a piece of all rows. */
    SL_WORK_GENERATE
} sl_work;

typedef struct sl_task {
    sl_work work;
    sl_model_shape shape;
    sl_type type;              /* compute type */
    uint32_t seq;              /* tokens of a row; GENERATE: of the prompt, 0: no program for it */
    uint32_t piece;            /* GENERATE: tokens of a piece; 0: no program for it */
    uint32_t cache_rows;       /* GENERATE: tokens that the cache holds; 0: the context */
    bool by_token;             /* EVALUATE: what the loss of each token is made of, not their sum */
    bool with_evaluation;      /* TRAIN: builds program 1 too */
    bool with_samples;         /* TRAIN: builds the last program too, of one row */
    bool by_document;          /* programs of a loss: see sl_model_options */
    bool masks;                /* TRAIN, EVALUATE: likewise */
    float dropout;             /* TRAIN: likewise, of program 0 */
    float lora_dropout;        /* TRAIN: likewise */
    sl_update_rules rules;     /* TRAIN: of tensors */
    uint32_t tail_rows;        /* rows of the last program of an evaluation; 0: it is left out */
    uint32_t test_tail_rows;   /* TRAIN: the same of the evaluation on test data */
    bool update_early;         /* TRAIN: see sl_step_options */
    uint32_t tp_size, tp_rank; /* ranks that tensors are split over, and this one; 0 or 1: none */
    uint32_t dp_size, dp_rank; /* ranks with rows of their own, and this one; likewise */
    uint32_t stage_count, stage_index;  /* pipeline stages, and which this rank has */
    sl_schedule schedule;               /* of them */
    uint32_t stage_ends[SL_STAGES_MAX]; /* the layer behind each; [0] = 0: shared out evenly */
    uint32_t zero;                      /* ZeRO stage over them, see sl_program */
    sl_split_layout split_layout;
    bool sequence_parallel;     /* TRAIN: see sl_model_options */
    bool partition_activations; /* TRAIN: see sl_step_options */
    uint64_t head_logits;       /* TRAIN: see sl_model_options; 0: as suits the target */
    sl_engine_target target;    /* who computes */
    uint64_t shared_bytes; /* what device and host may take together where a budget is unset; of a
                              device with memory of its own: what the host may take */
    uint64_t window_bytes; /* of the memory through which ranks exchange, beside all tiers: this
                              rank's part */
    uint64_t device_bytes; /* what such a device may take where its budget is unset */
    sl_device_info device_info; /* what it says of itself; its name is "" if it is not here */
    const char *const *disk_directories; /* of the disk tier, for the session; borrowed */
    uint32_t disk_directory_count;
    uint64_t disk_endurance; /* bytes that the disks may have written in their life; 0: not known */
    sl_machine machine;      /* for prefetching and predictions; no name: a plain guess */
    sl_address_cache *addresses; /* of the search that builds, or NULL; not kept in a blueprint */
    uint64_t *work_left; /* of a search, see sl_plan_request, or NULL; not kept in a blueprint */
    bool is_probe; /* for searches: a failure may be found early and name too few bytes, and */
                   /* plans are not verified: the caller verifies the one it keeps */
} sl_task;

typedef struct sl_choice {
    uint32_t micro_batch; /* rows */
    uint32_t accumulate;  /* micro-batches of a step */
    sl_recompute recompute;
    sl_accumulation accumulation;
    sl_policy_options placement;
    uint64_t chunk_elements;                   /* 0: as few bytes of padding as there can be */
    uint32_t prefetch;                         /* or SL_PREFETCH_AUTO */
    double disk_activations, host_activations; /* shares, see sl_plan_request */
    uint64_t device_memory, host_memory;       /* budgets in bytes; UINT64_MAX: unset */
    uint64_t disk_space;                       /* budget in bytes; 0 without a directory */
} sl_choice;

enum { SL_BLUEPRINT_PROGRAM_MAX = 5 };

typedef struct sl_blueprint {
    sl_task task;
    sl_choice choice;
    sl_machine machine;
    sl_gather_options gathers;            /* of chunks whose shards ranks keep */
    uint64_t budget_bytes[SL_TIER_COUNT]; /* unset ones resolved */
    sl_layout *layout;
    sl_homes *homes;
    double token_flops; /* of training on one token: sl_model_shape_token_flops, or fewer with
                           frozen tensors */
    sl_program *whole;  /* the forward program of all stages, for its tensors; NULL: of one */
    sl_program *programs[SL_BLUEPRINT_PROGRAM_MAX];
    sl_plan *plans[SL_BLUEPRINT_PROGRAM_MAX];
    uint32_t program_count;
} sl_blueprint;

/* Why a choice does not fit. */
typedef struct sl_fit_failure {
    sl_shortage shortage;
    uint64_t budget_bytes; /* of the tier */
    char op_name[32];      /* at the tick, "" after the last op */
    uint32_t op_count;     /* of the program; 0: no program was made */
    sl_choice choice;      /* that was tried */
} sl_fit_failure;

/* How gradients are stored: in the compute type where their sums live for one layer only or for one
 * micro-batch, else in fp32. The bits of a run do not depend on it. */
sl_type sl_blueprint_grad_type(const sl_task *task, const sl_choice *choice);

/* Seconds that program 0 computes at least, on the machine of the task, however it is placed: no
 * plan is needed to know them. */
sl_status sl_blueprint_bound_seconds(const sl_task *task, const sl_choice *choice,
                                     double *out_seconds);

/* Builds a blueprint. SL_ERROR_FIT fills *out_failure (and only then). */
sl_status sl_blueprint_build(const sl_task *task, const sl_choice *choice,
                             sl_blueprint **out_blueprint, sl_fit_failure *out_failure);

/* Of TRAIN with evaluation: the program of the rows that are left, of the test or else of the other
 * data; meaningless where none are. */
uint32_t sl_blueprint_tail_program(const sl_task *task, bool is_test);

/* Of TRAIN with samples: their program. Its row has positions (SL_INPUT_POSITIONS), so what is in
 * front of its text is a document of its own, and its outputs are the logits of its last token. */
uint32_t sl_blueprint_sample_program(const sl_task *task);

/* Verifies the plans of a blueprint that was built as a probe. */
sl_status sl_blueprint_verify(const sl_blueprint *blueprint);

/* Parameters of the whole model, without padding; adapters are counted. */
uint64_t sl_blueprint_count_parameters(const sl_blueprint *blueprint);

/* Parameters that are trained: all, but for frozen tensors. */
uint64_t sl_blueprint_count_trained(const sl_blueprint *blueprint);

/* NULL is fine. */
void sl_blueprint_close(sl_blueprint *blueprint);

/* The largest peak of a tier over all plans: what the engine will take. */
uint64_t sl_blueprint_peak_bytes(const sl_blueprint *blueprint, sl_tier tier);
uint64_t sl_blueprint_live_peak_bytes(const sl_blueprint *blueprint, sl_tier tier);

#endif
