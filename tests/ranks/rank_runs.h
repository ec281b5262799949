/* Sessions of one rank, or of several as threads, that take steps from one state, and whole tensors
 * of them to compare: what tests of split models share. */
#ifndef SL_TESTS_RANK_RUNS_H
#define SL_TESTS_RANK_RUNS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "rank_threads.h"
#include "sanitizer_share.h"
#include "scratch_dir.h"
#include "search/search.h"
#include "session/ranks.h"
#include "session/runtime.h"

/* Five heads of eight: three on the first of two ranks; 160 features of the MLP, 56 on the first of
 * three; ids that end within the last rank's panels. */
#ifndef RANK_RUNS_LAYERS
#define RANK_RUNS_LAYERS 2
#endif
#ifdef RANK_RUNS_CHOOSES_SHAPE
static sl_model_shape shape; /* set by the program before it opens a run */
#else
static const sl_model_shape shape = {RANK_RUNS_LAYERS, 40, 5, 24, 600};
#endif

enum { PLAN_STEP = 0, SETTINGS_MAX = 24, NAMES_MAX = 64 };

/* Steps behind which rounding has had time to add up; a sanitizer sees the same in all of them. */
enum { MANY_STEPS = SANITIZER_SHARE > 1 ? 4 : 50 };

/* Bounds of the relative distance of a gradient, over a tensor (find_distance), from that of other
 * ranks.
 *
 * A sum in another order differs by about 2^-24, and an op that stores bf16 then rounds some
 * elements the other way. A few ops on, all elements differ, and the roundings of both runs are
 * independent. One is off by 0.42 * 2^-8 of the value in quadratic mean (uniform within half a gap,
 * values spread evenly over a binade), the two together by sqrt(2) times that. On the longest path
 * of 3 layers 8 ops a layer store an activation, as many its gradient, and embedding and head 4:
 * errors of 52 ops add up as a random walk. Two of 8 ops round the terms of tensor ranks too,
 * before they are summed: sqrt(1.25 * 52) sqrt(2) 0.42 * 2^-8 = 1.9e-2. In fp32 the order of sums
 * itself is what differs, of up to 256 terms, whose errors are a random walk of 256 steps: 16
 * sqrt(2 * 52) 0.42 * 2^-24 = 4.1e-6. */
static const double fp32_bound = 5e-6, bf16_bound = 2e-2;

/* Quick: one number of ranks for each way; SL_TEST_FULL: all. */
static inline bool is_full(void)
{
    return getenv("SL_TEST_FULL") != NULL;
}

/* Around the threads of ranks, for a device that each of them has of its own: before all, in each
 * one first and last, and behind all. */
typedef struct rank_hooks {
    void (*start)(void);
    void (*enter)(uint32_t rank);
    void (*leave)(uint32_t rank);
    void (*join)(void);
} rank_hooks;

static const char *run_device = "device=cpu";
static const rank_hooks *run_hooks; /* NULL: none */

static scratch_path disk;
static char disk_dir[SCRATCH_PATH_BYTES + 16]; /* "disk-dir=..." */

/* The set-up of a program whose runs have a disk tier. */
static inline int open_disk(void **state)
{
    (void)state;
    disk = scratch_open();
    snprintf(disk_dir, sizeof disk_dir, "disk-dir=%s", disk.text);
    return 0;
}

static inline int close_disk(void **state)
{
    (void)state;
    scratch_close(&disk);
    return 0;
}

/* ---- a run: one rank, or many as threads ---- */

/* What a test plants in the blueprint of a rank. */
typedef void (*damage)(sl_blueprint *blueprint, uint32_t rank);

typedef struct run_rank {
    struct ranks_run *run;
    uint32_t rank, tensor, data, stage; /* data: which rows */
    sl_ranks others;                    /* where there are data-parallel ranks, or stages */
    sl_config config;
    sl_runtime *runtime;
    uint64_t step;        /* done */
    double loss, counted; /* counted: tokens that the loss is the mean of */
    sl_step_control control;
    sl_status status;
    char message[SL_STATUS_MESSAGE_BYTES];
    sl_checkpoint_save_args save;
} run_rank;

typedef struct ranks_run {
    uint32_t size, tp, dp, pp;
    uint32_t factor; /* times as many micro-batches as the settings say */
    rank_group group;
    rank_end ends[RANKS_MAX];
    sl_engine_ranks ranks[RANKS_MAX];
    run_rank rank[RANKS_MAX];
    float learning_rate;
    const char *const *settings;
    damage plant;
    void *(*work)(void *rank); /* of the threads that run */
} ranks_run;

static inline bool has_others(const ranks_run *run)
{
    return run->dp > 1 || run->pp > 1;
}

/* A setting that one rank alone does not take. */
static inline bool is_of_ranks(const char *setting)
{
    static const char *const names[] = {"sequence-parallel", "partition-activations",
                                        "split-layout"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(setting, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static inline void configure(sl_config *config, const ranks_run *run, const char *const *settings)
{
    char tp[16], dp[16], pp[16];
    const uint32_t size = run->size;
    snprintf(tp, sizeof tp, "tp=%u", run->tp);
    snprintf(dp, sizeof dp, "dp=%u", run->dp);
    snprintf(pp, sizeof pp, "pp=%u", run->pp ? run->pp : 1);
    const char *const common[] = {
        "data=x", run_device,          "threads=1",      tp, dp, pp, "micro-batch=2",
        "seq=24", "device-memory=64M", "host-memory=64M"};
    assert_int_equal(sl_config_init(config), SL_OK);
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        if (sl_config_assign(config, SL_CONFIG_TRAIN, common[i]) != SL_OK)
            fail_msg("%s", sl_status_message());
    for (; *settings; settings++)
        if ((size > 1 || !is_of_ranks(*settings)) &&
            sl_config_assign(config, SL_CONFIG_TRAIN, *settings) != SL_OK)
            fail_msg("%s", sl_status_message());
    if (sl_config_check(config, SL_CONFIG_TRAIN) != SL_OK)
        fail_msg("%s", sl_status_message());
    config->accumulate *= run->factor;
    assert_int_equal(sl_config_fit_model(config, &shape), SL_OK);
}

/* The id at a place of all that is read. Any will do that depend on the step and the micro-batch
 * alone: of all ranks. */
#ifndef RANK_RUNS_TOKEN
#define RANK_RUNS_TOKEN(at) sl_rng_below(5, 1, at, shape.vocab)
#endif

/* With documents apart: tokens of each. */
#ifndef RANK_RUNS_DOCUMENT
#define RANK_RUNS_DOCUMENT 24
#endif

/* Where the settings name keys of examples: of each micro-batch another share, of one nearly all.
 */
static inline bool is_masked(uint64_t turn, uint64_t at)
{
    return sl_rng_below(6, 1, at, 100) < 25 + 24 * (turn % 4);
}

static inline sl_status fill_rows(void *user, const sl_engine_fill *what, void *memory)
{
    const run_rank *it = user;
    int32_t *tokens = memory;
    for (uint64_t i = 0; i < what->bytes / sizeof *tokens; i++) {
        const uint64_t turn = (uint64_t)what->micro_batch * it->run->dp + it->data;
        const uint64_t at = (it->step * 64 + turn) * 4096 + i + what->slot;
        tokens[i] = (int32_t)RANK_RUNS_TOKEN(at);
        if (it->config.prompt_key && what->slot == SL_INPUT_TARGETS && is_masked(turn, at))
            tokens[i] = -1;
        if (what->slot == SL_INPUT_POSITIONS)
            tokens[i] = (int32_t)(i % 24 % RANK_RUNS_DOCUMENT);
    }
    return SL_OK;
}

/* Every rank has a device, and so opens in a thread of its own. */
static inline bool is_apart(const ranks_run *run)
{
    return run_hooks != NULL && run->size > 1;
}

static inline void open_rank(run_rank *it, const char *const *settings, damage plant)
{
    sl_search search;
    sl_blueprint *blueprint;
    sl_refusal refusal;
    configure(&it->config, it->run, settings);
    it->config.local_rank = it->rank;
    assert_int_equal(sl_search_init(&it->config, SL_WORK_TRAIN, &shape, &search), SL_OK);
    assert_int_equal(search.task.tp_size, it->run->tp);
    search.task.tp_rank = it->tensor;
    search.task.dp_rank = it->data;
    search.task.stage_index = it->stage;
    if (sl_search_find(&search, &blueprint, &refusal) != SL_OK)
        fail_msg("%s", sl_status_message());
    if (plant)
        plant(blueprint, it->rank);
    const sl_engine_source source = {fill_rows, it};
    const sl_engine_ranks *tensor = &it->run->ranks[it->rank];
    if (it->others.world)
        tensor = &it->others.tensor;
    const sl_runtime_hooks hooks = {.source = &source,
                                    .ranks = it->run->tp > 1 ? tensor : NULL,
                                    .data_ranks = it->run->dp > 1 ? &it->others.data : NULL,
                                    .stage_ranks = it->run->pp > 1 ? &it->others.stages : NULL};
    if (sl_runtime_open(blueprint, &hooks, &it->runtime) != SL_OK)
        fail_msg("%s", sl_status_message());
    if (sl_runtime_initialise(it->runtime, 42, SL_INITIALISE_ALL) != SL_OK)
        fail_msg("%s", sl_status_message());
}

static inline void *run_in_hooks(void *argument)
{
    run_rank *it = argument;
    if (run_hooks)
        run_hooks->enter(it->rank);
    it->run->work(it);
    if (run_hooks)
        run_hooks->leave(it->rank);
    return NULL;
}

/* Calls `work` for every rank, each in a thread of its own. */
static inline void run_all(ranks_run *run, void *(*work)(void *))
{
    pthread_t threads[RANKS_MAX];
    run->work = work;
    if (run_hooks)
        run_hooks->start();
    for (uint32_t rank = 0; rank < run->size; rank++)
        assert_int_equal(pthread_create(&threads[rank], NULL, run_in_hooks, &run->rank[rank]), 0);
    for (uint32_t rank = 0; rank < run->size; rank++)
        pthread_join(threads[rank], NULL);
    if (run_hooks)
        run_hooks->join();
    for (uint32_t rank = 0; rank < run->size; rank++)
        if (run->rank[rank].status != SL_OK)
            fail_msg("rank %u: %s", rank, run->rank[rank].message);
}

static inline void keep_status(run_rank *it, sl_status status)
{
    it->status = status;
    if (status != SL_OK)
        snprintf(it->message, sizeof it->message, "%s", sl_status_message());
}

/* ---- opening ---- */

static inline void *divide_rank(void *argument)
{
    run_rank *it = argument;
    sl_config config;
    static const char *const none[] = {NULL};
    configure(&config, it->run, none);
    keep_status(it, sl_ranks_divide(&it->others, &config));
    sl_config_clear(&config);
    return NULL;
}

/* Data-parallel ranks reach each other by the communicators of a run, carried by threads. */
static inline void open_others(ranks_run *run)
{
    sl_comm *ends[RANKS_MAX];
    assert_int_equal(sl_comm_threads_open(run->size, ends), SL_OK);
    for (uint32_t rank = 0; rank < run->size; rank++)
        sl_ranks_adopt(ends[rank], &run->rank[rank].others);
    run_all(run, divide_rank);
}

static inline void *open_apart(void *argument)
{
    run_rank *it = argument;
    open_rank(it, it->run->settings, it->run->plant);
    return NULL;
}

static inline ranks_run *open_stages(uint32_t tp, uint32_t dp, uint32_t pp,
                                     const char *const *settings, uint32_t factor, damage plant)
{
    ranks_run *run = calloc(1, sizeof *run);
    *run = (ranks_run){.size = tp * dp * pp, .tp = tp, .dp = dp, .pp = pp, .factor = factor};
    assert_true(run->size <= RANKS_MAX);
    run->learning_rate = 3e-4f;
    rank_group_open(&run->group, run->size, run->ends, run->ranks);
    for (uint32_t rank = 0; rank < run->size; rank++)
        run->rank[rank] = (run_rank){.run = run,
                                     .rank = rank,
                                     .tensor = rank % tp,
                                     .data = rank / tp % dp,
                                     .stage = rank / tp / dp};
    run->settings = settings;
    run->plant = plant;
    if (has_others(run) || is_apart(run))
        open_others(run);
    if (is_apart(run))
        run_all(run, open_apart);
    for (uint32_t rank = 0; rank < run->size && !is_apart(run); rank++)
        open_rank(&run->rank[rank], settings, plant);
    return run;
}

static inline ranks_run *open_layout(uint32_t tp, uint32_t dp, const char *const *settings,
                                     uint32_t factor, damage plant)
{
    return open_stages(tp, dp, 1, settings, factor, plant);
}

/* Ranks that tensors are split over. */
static inline ranks_run *open_run(uint32_t size, const char *const *settings, damage plant)
{
    return open_layout(size, 1, settings, 1, plant);
}

static inline void close_run(ranks_run *run)
{
    for (uint32_t rank = 0; rank < run->size; rank++) {
        sl_runtime_close(run->rank[rank].runtime);
        sl_config_clear(&run->rank[rank].config);
    }
    for (uint32_t rank = 0; rank < run->size; rank++)
        sl_ranks_close(&run->rank[rank].others);
    rank_group_close(&run->group);
    free(run);
}

/* ---- steps ---- */

static inline void *step_rank(void *argument)
{
    run_rank *it = argument;
    sl_engine *engine = it->runtime->engine;
    const double t = (double)(it->step + 1);
    const uint64_t turns = it->config.accumulate * it->run->dp; /* micro-batches of a step */
    const sl_step_scalars scalars = {.learning_rate = it->run->learning_rate,
                                     .weight_decay = 0.1f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.95f,
                                     .epsilon = 1e-8f,
                                     .bias1 = (float)(1 - pow(0.9, t)),
                                     .bias2_root = (float)sqrt(1 - pow(0.95, t)),
                                     .lion_beta1 = 0.9f,
                                     .lion_beta2 = 0.99f,
                                     .momentum = 0.9f,
                                     .muon_momentum = 0.95f,
                                     .clip = (float)it->config.clip,
                                     .loss_scale = 1.0f,
                                     .dropout_seed = 9,
                                     .step = it->step,
                                     .first_row = 2 * (it->step * turns + it->data),
                                     .row_gap = 2 * (it->run->dp - 1),
                                     .flags = it->run->size > 1 ? 1u << it->rank : 0};
    sl_status status = sl_engine_step(engine, PLAN_STEP, &scalars);
    if (status == SL_OK)
        status = sl_engine_drain(engine);
    if (status == SL_OK) {
        const double *counted = sl_engine_output(engine, PLAN_STEP, SL_OUTPUT_COUNTED);
        it->counted = counted ? *counted : 48.0 * (double)turns;
        it->loss =
            *(const double *)sl_engine_output(engine, PLAN_STEP, SL_OUTPUT_LOSS) / it->counted;
        it->control =
            *(const sl_step_control *)sl_engine_output(engine, PLAN_STEP, SL_OUTPUT_CONTROL);
        it->step++;
    }
    keep_status(it, status);
    return NULL;
}

/* All ranks say the same of a step. */
static inline void take_step(ranks_run *run)
{
    run_all(run, step_rank);
    for (uint32_t rank = 1; rank < run->size; rank++) {
        assert_memory_equal(&run->rank[rank].loss, &run->rank[0].loss, sizeof(double));
        assert_memory_equal(&run->rank[rank].control, &run->rank[0].control,
                            sizeof run->rank[0].control);
    }
}

/* ---- whole tensors ---- */

typedef struct whole_tensor {
    const char *name;
    uint64_t count, covered; /* elements; those that some rank has */
    float *data;
} whole_tensor;

typedef struct whole_model {
    whole_tensor tensors[NAMES_MAX];
    uint32_t count;
} whole_model;

static inline whole_tensor *find_whole(whole_model *model, const sl_tensor_spec *spec)
{
    for (uint32_t i = 0; i < model->count; i++)
        if (strcmp(model->tensors[i].name, spec->name) == 0)
            return &model->tensors[i];
    assert_true(model->count < NAMES_MAX);
    whole_tensor *fresh = &model->tensors[model->count++];
    fresh->name = spec->name;
    fresh->count = spec->whole_shape[0] * (spec->dim_count == 2 ? spec->whole_shape[1] : 1);
    fresh->data = calloc(fresh->count, sizeof(float));
    return fresh;
}

/* Where element `e` of a rank's tensor stands in the whole one; UINT64_MAX: padding. Not by runs,
 * which are to be tested. */
static inline uint64_t find_place(const sl_tensor_spec *spec, uint32_t rank, uint64_t e)
{
    const bool is_vector = spec->dim_count == 1;
    const uint64_t part = spec->shape[is_vector ? 0 : 1];
    const uint64_t row = is_vector ? 0 : spec->first_row + e / part;
    const uint64_t whole = spec->whole_shape[is_vector ? 0 : 1], column = e % part;
    if (spec->split == SL_SPLIT_COLUMNS) {
        const uint64_t sharers = spec->replica_count > 1 ? spec->replica_count : 1;
        const uint64_t at = rank / sharers * part + column;
        const bool is_there = is_vector || e / part < spec->valid_rows;
        return at < whole && is_there ? row * whole + at : UINT64_MAX;
    }
    if (spec->split == SL_SPLIT_QKV) {
        const uint64_t third = column / (part / 3), at = rank * (part / 3) + column % (part / 3);
        return at < whole / 3 ? row * whole + third * (whole / 3) + at : UINT64_MAX;
    }
    if (e / spec->shape[1] >= spec->valid_rows)
        return UINT64_MAX;
    return spec->first_row * spec->shape[1] + e;
}

/* With ZeRO a rank has the sum of gradients, and the states, of its part of each chunk alone. The
 * exact parameters are the fp32 masters in half precision; a frozen tensor has no master. */
static inline bool is_sharded(const run_rank *it, sl_group group, uint32_t index)
{
    const bool has_master =
        it->runtime->has_state[SL_GROUP_MASTER] && it->runtime->tensors[index].rule != SL_RULE_NONE;
    if (group == SL_GROUP_PARAM && !has_master)
        return it->run->dp > 1 && it->config.zero > 2;
    return it->run->dp > 1 && it->config.zero > 0;
}

static inline bool is_in_shard(const run_rank *it, uint32_t index, uint64_t e)
{
    const sl_layout *layout = it->runtime->blueprint->layout;
    const uint32_t own = it->runtime->own[index];
    const uint64_t part = layout->chunks[layout->chunk_of_tensor[own]].elements / it->run->dp;
    return (layout->first_element[own] + e) / part == it->data;
}

static inline void place_tensor(const run_rank *it, sl_group group, uint32_t index,
                                const float *data, whole_model *model)
{
    const sl_tensor_spec *spec = &it->runtime->tensors[index];
    const bool has_shards = is_sharded(it, group, index);
    whole_tensor *whole = find_whole(model, spec);
    for (uint64_t e = 0; e < spec->element_count; e++) {
        const uint64_t at = find_place(spec, it->tensor, e);
        if (has_shards && !is_in_shard(it, index, e))
            continue;
        if (at == UINT64_MAX) {
            if (data[e] != 0.0f)
                fail_msg("rank %u: %s: padding at %llu is %g", it->rank, spec->name,
                         (unsigned long long)e, (double)data[e]);
            continue;
        }
        assert_true(at < whole->count);
        const bool is_copy = it->stage > 0 && (strcmp(spec->name, "wte.weight") == 0 ||
                                               strcmp(spec->name, "embed_tokens.weight") == 0);
        const bool is_replica = (it->data > 0 && !has_shards) || is_copy || spec->replica_index > 0;
        if (is_replica || (spec->split == SL_SPLIT_NONE && it->tensor > 0)) { /* the same */
            if (sl_bits_of_float(whole->data[at]) != sl_bits_of_float(data[e]))
                fail_msg("rank %u: %s differs from rank 0's at %llu", it->rank, spec->name,
                         (unsigned long long)e);
            continue;
        }
        whole->data[at] = data[e];
        whole->covered++;
    }
}

static inline whole_model *read_model(ranks_run *run, sl_group group)
{
    whole_model *model = calloc(1, sizeof *model);
    for (uint32_t rank = 0; rank < run->size; rank++) {
        const sl_runtime *runtime = run->rank[rank].runtime;
        for (uint32_t i = 0; i < runtime->tensor_count; i++) {
            const uint64_t count = runtime->tensors[i].element_count;
            if (runtime->own[i] == SL_NONE) /* another stage's */
                continue;
            float *data = malloc(count * sizeof *data);
            assert_int_equal(runtime->io.read(runtime->io.user, group, i, 0, count, data), SL_OK);
            place_tensor(&run->rank[rank], group, i, data, model);
            free(data);
        }
    }
    for (uint32_t i = 0; i < model->count; i++)
        assert_int_equal(model->tensors[i].covered, model->tensors[i].count);
    return model;
}

static inline void free_model(whole_model *model)
{
    for (uint32_t i = 0; i < model->count; i++)
        free(model->tensors[i].data);
    free(model);
}

/* Names of one model point into its session; they are found by text. */
static const whole_tensor *find_same(const whole_model *model, const char *name)
{
    for (uint32_t i = 0; i < model->count; i++)
        if (strcmp(model->tensors[i].name, name) == 0)
            return &model->tensors[i];
    fail_msg("%s is missing", name);
    return NULL;
}

/* The largest relative L2 distance of a tensor. */
static inline double find_distance(const whole_model *a, const whole_model *b,
                                   const char **out_name)
{
    double most = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        const whole_tensor *x = &a->tensors[i], *y = find_same(b, x->name);
        double apart = 0, length = 0;
        for (uint64_t e = 0; e < x->count; e++) {
            apart += pow((double)x->data[e] - (double)y->data[e], 2);
            length += pow((double)x->data[e], 2);
        }
        double distance = apart == 0 ? 0 : sqrt(apart / length); /* gradients may be zero */
        if (isnan(distance)) /* one that is not a number must not hide the others */
            distance = INFINITY;
        if (distance > most) {
            most = distance;
            *out_name = x->name;
        }
    }
    return most;
}

static inline bool are_bits_equal(const whole_tensor *x, const whole_tensor *y)
{
    for (uint64_t e = 0; e < x->count; e++)
        if (sl_bits_of_float(x->data[e]) != sl_bits_of_float(y->data[e]))
            return false;
    return true;
}

static inline bool is_same(const whole_model *a, const whole_model *b)
{
    for (uint32_t i = 0; i < a->count; i++) {
        const whole_tensor *x = &a->tensors[i], *y = find_same(b, x->name);
        if (x->count != y->count || !are_bits_equal(x, y))
            return false;
    }
    return a->count == b->count;
}

/* ---- ways to run ---- */

static const char *const on_device[] = {"policy=device", "precision=fp32", NULL};
static const char *const on_host[] = {"policy=host", "precision=fp32", "accumulate=3", NULL};
/* Gradients at home on disk are not written there once they are used up, so none are here. */
static const char *const on_disk[] = {
    "policy=nvme",    disk_dir,       "nvme-params=1",      "recompute=full",
    "precision=fp32", "accumulate=3", "accumulation=layer", NULL};
static const char *const dropping[] = {"policy=device", "precision=fp32", "dropout=0.2", NULL};
static const char *const bf16_on_device[] = {"policy=device", "precision=bf16", NULL};
static const char *const bf16_on_disk[] = {"policy=nvme",    disk_dir,       "nvme-params=1",
                                           "precision=bf16", "accumulate=2", NULL};

static const struct way {
    const char *const *settings;
    double bound;
} ways[] = {{on_device, fp32_bound}, {on_host, fp32_bound},        {on_disk, fp32_bound},
            {dropping, fp32_bound},  {bf16_on_device, bf16_bound}, {bf16_on_disk, bf16_bound}};

enum { WAY_COUNT = sizeof ways / sizeof ways[0] };

/* ---- checkpoints ---- */

static inline void *save_rank(void *argument)
{
    run_rank *it = argument;
    keep_status(it, sl_checkpoint_save(&it->save));
    return NULL;
}

static inline void save_run(ranks_run *run, const char *directory)
{
    static sl_checkpoint_state state;
    state = (sl_checkpoint_state){.step = run->rank[0].step, .loss_scale = 1, .seed = 42};
    for (uint32_t rank = 0; rank < run->size; rank++) {
        const sl_runtime *runtime = run->rank[rank].runtime;
        run->rank[rank].save =
            (sl_checkpoint_save_args){.directory = directory,
                                      .shape = &shape,
                                      .tensors = runtime->tensors,
                                      .tensor_count = runtime->tensor_count,
                                      .ranks = has_others(run) ? &run->rank[rank].others.table
                                               : run->size > 1 ? &run->ranks[rank]
                                                               : NULL,
                                      .has_state = runtime->has_state,
                                      .io = &runtime->io,
                                      .state = &state,
                                      .precision = runtime->blueprint->task.type,
                                      .config_json = "{}",
                                      .gemm = "",
                                      .data_fingerprint = ""};
    }
    run_all(run, save_rank);
}

static inline void load_run(ranks_run *run, const char *directory)
{
    for (uint32_t rank = 0; rank < run->size; rank++) {
        sl_runtime *runtime = run->rank[rank].runtime;
        sl_checkpoint *checkpoint;
        if (sl_checkpoint_find_newest(directory, &checkpoint) != SL_OK)
            fail_msg("%s", sl_status_message());
        if (sl_checkpoint_load(checkpoint, runtime->tensors, runtime->tensor_count,
                               runtime->has_state, &runtime->io) != SL_OK)
            fail_msg("%s", sl_status_message());
        run->rank[rank].step = sl_checkpoint_describe(checkpoint)->state.step;
        sl_checkpoint_close(checkpoint);
    }
}

static inline bool is_file_equal(const char *a, const char *b, const char *name, uint64_t step)
{
    char under[64];
    snprintf(under, sizeof under, "step-%08u/%s", (unsigned)step, name);
    return scratch_is_same(scratch_join(a, under).text, scratch_join(b, under).text);
}

static inline bool are_files_equal(const char *a, const char *b, uint64_t step)
{
    return is_file_equal(a, b, "model.safetensors", step) &&
           is_file_equal(a, b, "moment1.safetensors", step) &&
           is_file_equal(a, b, "moment2.safetensors", step);
}

/* ---- gradients ---- */

/* One step of each from the same state; `directory`: of a checkpoint, or NULL for first values.
 * Closes both. */
static inline double compare_runs(ranks_run *one, ranks_run *many, const char *directory,
                                  const char **out_name)
{
    if (directory) {
        load_run(one, directory);
        load_run(many, directory);
    }
    take_step(one);
    take_step(many);
    whole_model *expected = read_model(one, SL_GROUP_GRAD),
                *found = read_model(many, SL_GROUP_GRAD);
    double most = find_distance(expected, found, out_name);
    const double norm =
        fabs((double)many->rank[0].control.grad_norm / (double)one->rank[0].control.grad_norm - 1);
    if (norm > most) {
        most = norm;
        *out_name = "the norm";
    }
    static char name[128]; /* the model's own goes with it */
    snprintf(name, sizeof name, "%s", *out_name);
    *out_name = name;
    assert_true(one->rank[0].control.grad_norm > 0.1f);
    assert_int_equal(many->rank[0].control.flags, (1u << many->size) - 1);
    assert_int_equal(one->rank[0].control.flags, 0);
    free_model(expected);
    free_model(found);
    close_run(one);
    close_run(many);
    return most;
}

static inline double compare_gradients(uint32_t size, const struct way *way, const char *directory,
                                       const char **out_name)
{
    return compare_runs(open_run(1, way->settings, NULL), open_run(size, way->settings, NULL),
                        directory, out_name);
}

/* ---- bits ---- */

static inline void check_groups(ranks_run *first, ranks_run *second, const char *what)
{
    static const sl_group groups[] = {SL_GROUP_PARAM, SL_GROUP_STATE1, SL_GROUP_STATE2};
    for (int i = 0; i < 3; i++) {
        whole_model *a = read_model(first, groups[i]), *b = read_model(second, groups[i]);
        if (!is_same(a, b))
            fail_msg("%s: %s differs", what, sl_group_name(groups[i]));
        free_model(a);
        free_model(b);
    }
}

static inline void check_peaks(const ranks_run *run)
{
    for (uint32_t rank = 0; rank < run->size; rank++) {
        sl_engine_statistics statistics;
        sl_engine_take_statistics(run->rank[rank].runtime->engine, &statistics);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            assert_int_equal(
                statistics.measured_peak_bytes[tier],
                sl_blueprint_peak_bytes(run->rank[rank].runtime->blueprint, (sl_tier)tier));
    }
}

/* Both take `steps`; all that they compute has the same bits, and the second keeps to its plan. */
static inline void take_same_steps(ranks_run *first, ranks_run *second, int steps, const char *what)
{
    for (int step = 0; step < steps; step++) {
        take_step(first);
        take_step(second);
        const run_rank *a = &first->rank[0], *b = &second->rank[0];
        if (memcmp(&a->loss, &b->loss, sizeof a->loss) != 0 ||
            memcmp(&a->control.grad_norm, &b->control.grad_norm, sizeof(float)) != 0)
            fail_msg("%s: step %d: loss %.17g and %.17g, norm %.9g and %.9g", what, step, a->loss,
                     b->loss, (double)a->control.grad_norm, (double)b->control.grad_norm);
    }
    check_groups(first, second, what);
    check_peaks(second);
}

/* Likewise, and closes both. */
static inline void compare_same_runs(ranks_run *first, ranks_run *second, int steps,
                                     const char *what)
{
    take_same_steps(first, second, steps, what);
    close_run(first);
    close_run(second);
}

/* Policies other than `device`, in other orders of work, give the bits of `device`. `common`: an
 * option of all runs, or NULL. */
static inline void check_policies(uint32_t size, const char *precision, const char *common)
{
    static const char *const others[][SETTINGS_MAX] = {
        {"policy=host"},
        {"policy=nvme", disk_dir, "nvme-params=1", "nvme-grads=1", "recompute=full",
         "accumulation=layer", "chunk-size=40960"},
        {"policy=static", disk_dir, "nvme-params=0.5", "offload-optimizer=0.5",
         "recompute=selective", "threads=2"}};
    const char *const plain[] = {"policy=device", precision, "accumulate=3", common, NULL};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const char *settings[SETTINGS_MAX];
        size_t count = 0;
        for (; others[i][count]; count++)
            settings[count] = others[i][count];
        memcpy(settings + count, plain + 1, sizeof plain - sizeof plain[0]);
        compare_same_runs(open_run(size, plain, NULL), open_run(size, settings, NULL), 3,
                          others[i][0]);
    }
}

/* The device's budget that a refusal asks for, of the first rank. */
static inline uint64_t find_needed_device(uint32_t tp, uint32_t dp, const char *const *settings)
{
    ranks_run run = {.size = tp * dp, .tp = tp, .dp = dp, .factor = 1};
    sl_config config;
    sl_search search;
    sl_blueprint *blueprint;
    sl_refusal refusal;
    configure(&config, &run, settings);
    config.device_memory = 64 << 10;
    assert_int_equal(sl_search_init(&config, SL_WORK_TRAIN, &shape, &search), SL_OK);
    assert_int_equal(sl_search_find(&search, &blueprint, &refusal), SL_ERROR_FIT);
    sl_config_clear(&config);
    assert_int_equal(refusal.failure.shortage.tier, SL_TIER_DEVICE);
    return refusal.failure.shortage.needed_bytes;
}

#endif
