/* What could be wrong here: a rank computes with another's part of a tensor, a sum over ranks
 * misses a part or has one twice, the norm counts a replicated tensor on every rank, padding is not
 * zero, a policy changes the numbers of many ranks, a checkpoint depends on how many they were.
 *
 * Sessions of 2, 3 (nothing divides) and 4 ranks (one of them without heads), as threads, take
 * steps from the state of one rank. AdamW hides a wrong scale, so gradients are compared before it.
 * Tolerances: sums of at most some hundred fp32 terms in another order differ by a few units of
 * 2^-24 relative to the largest; bf16 partial sums are rounded to 2^-9 before they are sent.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/rng.h"
#include "rank_threads.h"
#include "scratch_dir.h"
#include "session/search/search.h"
#include "session/session.h"

/* Five heads of eight: three on the first of two ranks; 160 features of the MLP, 56 on the first of
 * three; ids that end within the last rank's panels. */
static const sl_gpt2_shape shape = {2, 40, 5, 24, 600};

enum { PLAN_STEP = 0, SETTINGS_MAX = 16, NAMES_MAX = 64 };

static const double fp32_bound = 5e-6, bf16_bound = 2e-2;

/* Quick: one number of ranks for each way; SL_TEST_FULL: all. */
static bool is_full(void)
{
    return getenv("SL_TEST_FULL") != NULL;
}

static scratch_path disk;
static char disk_dir[SCRATCH_PATH_BYTES + 16]; /* "disk-dir=..." */

/* ---- a run: one rank, or many as threads ---- */

typedef struct run_rank {
    struct ranks_run *run;
    uint32_t rank;
    sl_config config;
    sl_session *session;
    uint64_t step; /* done */
    double loss;
    sl_step_control control;
    sl_status status;
    char message[SL_STATUS_MESSAGE_BYTES];
    sl_checkpoint_save_args save;
} run_rank;

typedef struct ranks_run {
    uint32_t size;
    rank_group group;
    rank_end ends[RANKS_MAX];
    sl_engine_ranks ranks[RANKS_MAX];
    run_rank rank[RANKS_MAX];
    float learning_rate;
} ranks_run;

static void configure(sl_config *config, uint32_t size, const char *const *settings)
{
    char tp[16];
    snprintf(tp, sizeof tp, "tp=%u", size);
    const char *const common[] = {
        "data=x",        "device=cpu", "threads=1",         tp,
        "micro-batch=2", "seq=24",     "device-memory=64M", "host-memory=64M"};
    assert_int_equal(sl_config_init(config), SL_OK);
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        if (sl_config_assign(config, SL_CONFIG_TRAIN, common[i]) != SL_OK)
            fail_msg("%s", sl_status_message());
    for (; *settings; settings++)
        if (sl_config_assign(config, SL_CONFIG_TRAIN, *settings) != SL_OK)
            fail_msg("%s", sl_status_message());
    if (sl_config_check(config, SL_CONFIG_TRAIN) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_int_equal(sl_config_fit_model(config, &shape), SL_OK);
}

/* Any rows will do that depend on the step and the micro-batch alone. */
static sl_status fill_rows(void *user, const sl_engine_fill *what, void *memory)
{
    const run_rank *it = user;
    int32_t *tokens = memory;
    for (uint64_t i = 0; i < what->bytes / sizeof *tokens; i++) {
        const uint64_t at = (it->step * 64 + what->micro_batch) * 4096 + i + what->slot;
        tokens[i] = (int32_t)sl_rng_below(5, 1, at, shape.vocab);
    }
    return SL_OK;
}

/* What a test plants in the blueprint of a rank. */
typedef void (*damage)(sl_blueprint *blueprint, uint32_t rank);

static void open_rank(run_rank *it, const char *const *settings, damage plant)
{
    sl_search search;
    sl_blueprint *blueprint;
    sl_refusal refusal;
    configure(&it->config, it->run->size, settings);
    assert_int_equal(sl_search_init(&it->config, SL_WORK_TRAIN, &shape, &search), SL_OK);
    assert_int_equal(search.task.tp_size, it->run->size);
    search.task.tp_rank = it->rank;
    if (sl_search_find(&search, &blueprint, &refusal) != SL_OK)
        fail_msg("%s", sl_status_message());
    if (plant)
        plant(blueprint, it->rank);
    const sl_engine_source source = {fill_rows, it};
    const sl_session_hooks hooks = {.source = &source,
                                    .ranks = it->run->size > 1 ? &it->run->ranks[it->rank] : NULL};
    if (sl_session_open(blueprint, &hooks, &it->session) != SL_OK)
        fail_msg("%s", sl_status_message());
    if (sl_session_initialise(it->session, 42) != SL_OK)
        fail_msg("%s", sl_status_message());
}

static ranks_run *open_run(uint32_t size, const char *const *settings, damage plant)
{
    ranks_run *run = calloc(1, sizeof *run);
    run->size = size;
    run->learning_rate = 3e-4f;
    rank_group_open(&run->group, size, run->ends, run->ranks);
    for (uint32_t rank = 0; rank < size; rank++) {
        run->rank[rank] = (run_rank){.run = run, .rank = rank};
        open_rank(&run->rank[rank], settings, plant);
    }
    return run;
}

static void close_run(ranks_run *run)
{
    for (uint32_t rank = 0; rank < run->size; rank++) {
        sl_session_close(run->rank[rank].session);
        sl_config_clear(&run->rank[rank].config);
    }
    rank_group_close(&run->group);
    free(run);
}

/* Calls `work` for every rank, each in a thread of its own. */
static void run_all(ranks_run *run, void *(*work)(void *))
{
    pthread_t threads[RANKS_MAX];
    for (uint32_t rank = 0; rank < run->size; rank++)
        assert_int_equal(pthread_create(&threads[rank], NULL, work, &run->rank[rank]), 0);
    for (uint32_t rank = 0; rank < run->size; rank++)
        pthread_join(threads[rank], NULL);
    for (uint32_t rank = 0; rank < run->size; rank++)
        if (run->rank[rank].status != SL_OK)
            fail_msg("rank %u: %s", rank, run->rank[rank].message);
}

static void keep_status(run_rank *it, sl_status status)
{
    it->status = status;
    if (status != SL_OK)
        snprintf(it->message, sizeof it->message, "%s", sl_status_message());
}

static void *step_rank(void *argument)
{
    run_rank *it = argument;
    sl_engine *engine = it->session->engine;
    const double t = (double)(it->step + 1);
    const sl_step_scalars scalars = {.learning_rate = it->run->learning_rate,
                                     .weight_decay = 0.1f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.95f,
                                     .epsilon = 1e-8f,
                                     .bias1 = (float)(1 - pow(0.9, t)),
                                     .bias2_root = (float)sqrt(1 - pow(0.95, t)),
                                     .clip = 1.0f,
                                     .loss_scale = 1.0f,
                                     .dropout_seed = 9,
                                     .first_row = it->step * 2 * it->config.accumulate,
                                     .flags = it->run->size > 1 ? 1u << it->rank : 0};
    sl_status status = sl_engine_step(engine, PLAN_STEP, &scalars);
    if (status == SL_OK)
        status = sl_engine_drain(engine);
    if (status == SL_OK) {
        it->loss = *(const double *)sl_engine_output(engine, PLAN_STEP, SL_OUTPUT_LOSS) /
                   (48.0 * (double)it->config.accumulate);
        it->control =
            *(const sl_step_control *)sl_engine_output(engine, PLAN_STEP, SL_OUTPUT_CONTROL);
        it->step++;
    }
    keep_status(it, status);
    return NULL;
}

/* All ranks say the same of a step. */
static void take_step(ranks_run *run)
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

static whole_tensor *find_whole(whole_model *model, const sl_tensor_spec *spec)
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
static uint64_t find_place(const sl_tensor_spec *spec, uint32_t rank, uint64_t e)
{
    const bool is_vector = spec->dim_count == 1;
    const uint64_t part = spec->shape[is_vector ? 0 : 1], row = is_vector ? 0 : e / part;
    const uint64_t whole = spec->whole_shape[is_vector ? 0 : 1], column = e % part;
    if (spec->split == SL_SPLIT_COLUMNS) {
        const uint64_t at = rank * part + column;
        return at < whole ? row * whole + at : UINT64_MAX;
    }
    if (spec->split == SL_SPLIT_QKV) {
        const uint64_t third = column / (part / 3), at = rank * (part / 3) + column % (part / 3);
        return at < whole / 3 ? row * whole + third * (whole / 3) + at : UINT64_MAX;
    }
    if (e / spec->shape[1] >= spec->valid_rows)
        return UINT64_MAX;
    return spec->first_row * spec->shape[1] + e;
}

static void place_tensor(const run_rank *it, uint32_t index, const float *data, whole_model *model)
{
    const sl_tensor_spec *spec = &it->session->tensors[index];
    whole_tensor *whole = find_whole(model, spec);
    for (uint64_t e = 0; e < spec->element_count; e++) {
        const uint64_t at = find_place(spec, it->rank, e);
        if (at == UINT64_MAX) {
            if (data[e] != 0.0f)
                fail_msg("rank %u: %s: padding at %llu is %g", it->rank, spec->name,
                         (unsigned long long)e, (double)data[e]);
            continue;
        }
        assert_true(at < whole->count);
        if (spec->split == SL_SPLIT_NONE && it->rank > 0) { /* the same on every rank */
            if (sl_bits_of_float(whole->data[at]) != sl_bits_of_float(data[e]))
                fail_msg("rank %u: %s differs from rank 0's at %llu", it->rank, spec->name,
                         (unsigned long long)e);
            continue;
        }
        whole->data[at] = data[e];
        whole->covered++;
    }
}

static whole_model *read_model(ranks_run *run, sl_group group)
{
    whole_model *model = calloc(1, sizeof *model);
    for (uint32_t rank = 0; rank < run->size; rank++) {
        const sl_session *session = run->rank[rank].session;
        for (uint32_t i = 0; i < session->tensor_count; i++) {
            const uint64_t count = session->tensors[i].element_count;
            float *data = malloc(count * sizeof *data);
            assert_int_equal(session->io.read(session->io.user, group, i, 0, count, data), SL_OK);
            place_tensor(&run->rank[rank], i, data, model);
            free(data);
        }
    }
    for (uint32_t i = 0; i < model->count; i++)
        assert_int_equal(model->tensors[i].covered, model->tensors[i].count);
    return model;
}

static void free_model(whole_model *model)
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
static double find_distance(const whole_model *a, const whole_model *b, const char **out_name)
{
    double most = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        const whole_tensor *x = &a->tensors[i], *y = find_same(b, x->name);
        double apart = 0, length = 0;
        for (uint64_t e = 0; e < x->count; e++) {
            apart += pow((double)x->data[e] - (double)y->data[e], 2);
            length += pow((double)x->data[e], 2);
        }
        const double distance = sqrt(apart / length);
        if (!(distance <= most)) {
            most = distance;
            *out_name = x->name;
        }
    }
    return most;
}

static bool are_bits_equal(const whole_tensor *x, const whole_tensor *y)
{
    for (uint64_t e = 0; e < x->count; e++)
        if (sl_bits_of_float(x->data[e]) != sl_bits_of_float(y->data[e]))
            return false;
    return true;
}

static bool is_same(const whole_model *a, const whole_model *b)
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

static void *save_rank(void *argument)
{
    run_rank *it = argument;
    keep_status(it, sl_checkpoint_save(&it->save));
    return NULL;
}

static void save_run(ranks_run *run, const char *directory)
{
    static sl_checkpoint_state state;
    state = (sl_checkpoint_state){.step = run->rank[0].step, .loss_scale = 1, .seed = 42};
    for (uint32_t rank = 0; rank < run->size; rank++) {
        const sl_session *session = run->rank[rank].session;
        run->rank[rank].save =
            (sl_checkpoint_save_args){.directory = directory,
                                      .shape = &shape,
                                      .tensors = session->tensors,
                                      .tensor_count = session->tensor_count,
                                      .ranks = run->size > 1 ? &run->ranks[rank] : NULL,
                                      .has_state = session->has_state,
                                      .io = &session->io,
                                      .state = &state,
                                      .precision = session->blueprint->task.type,
                                      .config_json = "{}",
                                      .gemm = "",
                                      .data_fingerprint = ""};
    }
    run_all(run, save_rank);
}

static void load_run(ranks_run *run, const char *directory)
{
    for (uint32_t rank = 0; rank < run->size; rank++) {
        sl_session *session = run->rank[rank].session;
        sl_checkpoint *checkpoint;
        if (sl_checkpoint_find_newest(directory, &checkpoint) != SL_OK)
            fail_msg("%s", sl_status_message());
        if (sl_checkpoint_load(checkpoint, session->tensors, session->tensor_count,
                               session->has_state, &session->io) != SL_OK)
            fail_msg("%s", sl_status_message());
        run->rank[rank].step = sl_checkpoint_describe(checkpoint)->state.step;
        sl_checkpoint_close(checkpoint);
    }
}

static bool is_file_equal(const char *a, const char *b, const char *name, uint64_t step)
{
    char under[64];
    snprintf(under, sizeof under, "step-%08u/%s", (unsigned)step, name);
    return scratch_is_same(scratch_join(a, under).text, scratch_join(b, under).text);
}

static bool are_files_equal(const char *a, const char *b, uint64_t step)
{
    return is_file_equal(a, b, "model.safetensors", step) &&
           is_file_equal(a, b, "moment1.safetensors", step) &&
           is_file_equal(a, b, "moment2.safetensors", step);
}

/* ---- gradients ---- */

/* One step of each from the same state; `directory`: of a checkpoint, or NULL for first values. */
static double compare_gradients(uint32_t size, const struct way *way, const char *directory,
                                const char **out_name)
{
    ranks_run *one = open_run(1, way->settings, NULL);
    ranks_run *many = open_run(size, way->settings, NULL);
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
    assert_int_equal(many->rank[0].control.flags, (1u << size) - 1);
    assert_int_equal(one->rank[0].control.flags, 0);
    free_model(expected);
    free_model(found);
    close_run(one);
    close_run(many);
    return most;
}

static void gradients_when_split_then_are_those_of_one_rank(void **state)
{
    (void)state;
    for (int way = 0; way < WAY_COUNT; way++)
        for (uint32_t size = 2; size <= RANKS_MAX; size++) {
            if (!is_full() && size != 2 + (uint32_t)way % 3)
                continue;
            const char *name = "";
            const double most = compare_gradients(size, &ways[way], NULL, &name);
            print_message("way %d, %u ranks: %.2g (%s)\n", way, size, most, name);
            if (!(most <= ways[way].bound))
                fail_msg("%s is off by %g", name, most);
        }
}

static void gradients_when_from_a_later_state_then_are_those_of_one_rank(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    ranks_run *one = open_run(1, on_device, NULL);
    for (int step = 0; step < 50; step++)
        take_step(one);
    save_run(one, directory.text);
    close_run(one);
    for (int way = 0; way < WAY_COUNT; way += is_full() ? 1 : 2) {
        const char *name = "";
        const double most = compare_gradients(2 + way % 3, &ways[way], directory.text, &name);
        print_message("way %d, %d ranks: %.2g (%s)\n", way, 2 + way % 3, most, name);
        if (!(most <= ways[way].bound))
            fail_msg("%s is off by %g", name, most);
    }
    scratch_close(&directory);
}

/* ---- losses ---- */

/* Bounds are those of runs whose weights begin one unit in the last place apart, with room: fp32
 * gaps of such runs were measured at 2e-7, of ranks at 3e-7. */
static void losses_over_fifty_steps_when_split_then_stay_together(void **state)
{
    (void)state;
    for (uint32_t size = is_full() ? 2 : 3; size <= (is_full() ? RANKS_MAX : 3); size++) {
        ranks_run *one = open_run(1, on_device, NULL), *many = open_run(size, on_device, NULL);
        double most = 0;
        for (int step = 0; step < 50; step++) {
            one->learning_rate = many->learning_rate =
                3e-4f * (step < 10 ? 0.1f * (float)(step + 1) : 1);
            take_step(one);
            take_step(many);
            most = fmax(most, fabs(many->rank[0].loss / one->rank[0].loss - 1));
        }
        print_message("%u ranks: losses within %.2g\n", size, most);
        assert_true(most <= 2e-6);
        whole_model *model = read_model(many, SL_GROUP_PARAM); /* its padding is checked */
        free_model(model);
        close_run(one);
        close_run(many);
    }
}

/* ---- placement ---- */

static void policies_when_split_then_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const others[][SETTINGS_MAX] = {
        {"policy=host", "precision=fp32", "accumulate=3", NULL},
        {"policy=nvme", disk_dir, "nvme-params=1", "nvme-grads=1", "recompute=full",
         "precision=fp32", "accumulate=3", "accumulation=layer", "chunk-size=40960", NULL},
        {"policy=static", disk_dir, "nvme-params=0.5", "offload-optimizer=0.5",
         "recompute=selective", "precision=fp32", "accumulate=3", "threads=2", NULL}};
    static const char *const first[] = {"policy=device", "precision=fp32", "accumulate=3", NULL};
    for (uint32_t size = is_full() ? 2 : 3; size <= (is_full() ? RANKS_MAX : 3); size++) {
        ranks_run *plain = open_run(size, first, NULL);
        for (int step = 0; step < 3; step++)
            take_step(plain);
        whole_model *params = read_model(plain, SL_GROUP_PARAM);
        whole_model *moments = read_model(plain, SL_GROUP_MOMENT2);
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            ranks_run *run = open_run(size, others[i], NULL);
            for (int step = 0; step < 3; step++)
                take_step(run);
            assert_true(run->rank[0].loss == plain->rank[0].loss);
            whole_model *found = read_model(run, SL_GROUP_PARAM);
            whole_model *found_moments = read_model(run, SL_GROUP_MOMENT2);
            if (!is_same(params, found) || !is_same(moments, found_moments))
                fail_msg("%u ranks: policy %zu changes bits", size, i);
            free_model(found);
            free_model(found_moments);
            close_run(run);
        }
        free_model(params);
        free_model(moments);
        close_run(plain);
    }
}

/* Four sums of [B, T, C] a layer, one of the embedding and one of what the head leaves. */
static void traffic_when_counted_is_that_of_the_formula(void **state)
{
    (void)state;
    ranks_run *run = open_run(2, on_device, NULL);
    take_step(run);
    const uint64_t hidden = 2ull * shape.context * shape.width * sizeof(float);
    assert_int_equal(run->group.reduced_bytes[0], (4 * shape.layers + 2) * hidden);
    assert_int_equal(run->group.reduced_bytes[1], run->group.reduced_bytes[0]);
    close_run(run);
}

/* ---- planted faults ---- */

static void count_all_blocks(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    const sl_layout *layout = blueprint->layout;
    if (layout->counted_flags)
        memset(layout->counted_flags, 1,
               layout->chunk_count * (layout->chunk_elements / SL_BLOCK_ELEMENTS));
}

static void add_bias_everywhere(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++)
        if (program->ops[o].kind == SL_OP_LINEAR)
            program->ops[o].attrs.rank_index = 0;
}

static void double_gradients(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++)
        if (program->ops[o].kind == SL_OP_HEAD_LOGITS_BACKWARD)
            program->ops[o].attrs.scale *= 2;
}

/* What the step before left stays, and is added to. */
static void double_norm_gradient(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++) {
        sl_op *op = &program->ops[o];
        if (op->kind == SL_OP_CLEAR && program->values[op->operand[0]].kind == SL_VALUE_CHUNK)
            op->attrs.element_count = 0;
        if (op->kind == SL_OP_LAYERNORM_BACKWARD)
            op->attrs.adds_gradient = 1;
    }
}

/* Distance of gradients and norm of a damaged run of two ranks after two steps. The parameters have
 * first values all the time: the learning rate is 0. */
static double find_damage(damage plant, uint64_t dropped)
{
    const char *name = "";
    ranks_run *one = open_run(1, on_device, NULL), *many = open_run(2, on_device, plant);
    one->learning_rate = many->learning_rate = 0;
    many->group.dropped = dropped;
    for (int step = 0; step < 2; step++) {
        run_all(one, step_rank);
        run_all(many, step_rank);
    }
    whole_model *expected = read_model(one, SL_GROUP_GRAD),
                *found = read_model(many, SL_GROUP_GRAD);
    const double norm =
        fabs((double)many->rank[0].control.grad_norm / (double)one->rank[0].control.grad_norm - 1);
    const double most = fmax(norm, find_distance(expected, found, &name));
    free_model(expected);
    free_model(found);
    close_run(one);
    close_run(many);
    return most;
}

static void faults_when_planted_then_are_found(void **state)
{
    (void)state;
    assert_true(find_damage(NULL, 0) <= fp32_bound);
    assert_true(find_damage(count_all_blocks, 0) > 100 * fp32_bound);
    assert_true(find_damage(double_gradients, 0) > 100 * fp32_bound);
    assert_true(find_damage(double_norm_gradient, 0) > 100 * fp32_bound);
    for (uint64_t dropped = 11; dropped <= 20; dropped += 3) /* of the second step */
        assert_true(find_damage(NULL, dropped) > 100 * fp32_bound);
}

/* First biases are zero, so the fault shows once they are not. */
static void bias_when_added_on_every_rank_then_is_found(void **state)
{
    (void)state;
    ranks_run *one = open_run(1, on_device, NULL),
              *many = open_run(2, on_device, add_bias_everywhere);
    one->learning_rate = many->learning_rate = 1e-2f;
    for (int step = 0; step < 3; step++) {
        run_all(one, step_rank);
        run_all(many, step_rank);
    }
    assert_true(fabs(many->rank[0].loss / one->rank[0].loss - 1) > 1e-4);
    close_run(one);
    close_run(many);
}

/* ---- checkpoints ---- */

/* Saved by any number of ranks and loaded by any other, the tensors are those of the first, byte
 * for byte, and the next step's loss is that of one rank. */
static void checkpoint_when_ranks_change_then_is_the_same(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    const scratch_path first = scratch_join(directory.text, "first");
    ranks_run *run = open_run(3, on_disk, NULL);
    for (int step = 0; step < 3; step++)
        take_step(run);
    save_run(run, first.text);
    take_step(run);
    const double next_loss = run->rank[0].loss;
    close_run(run);
    for (uint32_t from = 1; from <= RANKS_MAX; from++)
        for (uint32_t to = 1; to <= RANKS_MAX; to++) {
            char name[32];
            if (!is_full() && to != from % RANKS_MAX + 1)
                continue;
            snprintf(name, sizeof name, "%u-%u", from, to);
            const scratch_path middle = scratch_join(directory.text, name);
            snprintf(name, sizeof name, "%u-%u-again", from, to);
            const scratch_path again = scratch_join(directory.text, name);
            run = open_run(from, from % 2 ? on_host : on_disk, NULL);
            load_run(run, first.text);
            save_run(run, middle.text);
            close_run(run);
            run = open_run(to, to % 2 ? on_disk : on_host, NULL);
            load_run(run, middle.text);
            save_run(run, again.text);
            assert_true(are_files_equal(first.text, middle.text, 3));
            assert_true(are_files_equal(first.text, again.text, 3));
            take_step(run);
            assert_true(fabs(run->rank[0].loss / next_loss - 1) < 2e-6);
            if (to == 3)
                assert_true(run->rank[0].loss == next_loss);
            close_run(run);
        }
    scratch_close(&directory);
}

/* ---- initial values ---- */

static void initial_values_when_split_then_are_those_of_one_rank(void **state)
{
    (void)state;
    ranks_run *one = open_run(1, on_device, NULL);
    whole_model *expected = read_model(one, SL_GROUP_PARAM);
    for (uint32_t size = 2; size <= RANKS_MAX; size++) {
        ranks_run *many = open_run(size, on_host, NULL);
        whole_model *found = read_model(many, SL_GROUP_PARAM);
        assert_true(is_same(expected, found));
        free_model(found);
        close_run(many);
    }
    free_model(expected);
    close_run(one);
}

/* ---- one plan ---- */

static bool is_same_plan(const sl_plan *a, const sl_plan *b)
{
    return a->body_count == b->body_count && a->place_count == b->place_count &&
           a->wait_count == b->wait_count &&
           memcmp(a->body, b->body, a->body_count * sizeof *a->body) == 0 &&
           memcmp(a->places, b->places, a->place_count * sizeof *a->places) == 0 &&
           memcmp(a->waits, b->waits, a->wait_count * sizeof *a->waits) == 0;
}

/* Ranks differ in attributes alone, which a plan does not have. */
static void plans_of_ranks_when_compared_are_one(void **state)
{
    (void)state;
    for (int way = 0; way < WAY_COUNT; way++) {
        ranks_run *run = open_run(3, ways[way].settings, NULL);
        for (uint32_t rank = 1; rank < 3; rank++)
            assert_true(is_same_plan(run->rank[0].session->blueprint->plans[0],
                                     run->rank[rank].session->blueprint->plans[0]));
        close_run(run);
    }
}

/* What this rank does not have at hand, it refuses to run. */
static void session_when_there_are_no_other_ranks_then_is_refused(void **state)
{
    (void)state;
    sl_config config;
    sl_search search;
    sl_blueprint *blueprint;
    sl_session *session;
    sl_refusal refusal;
    const sl_engine_source source = {fill_rows, NULL};
    const sl_session_hooks hooks = {.source = &source};
    configure(&config, 2, on_device);
    assert_int_equal(sl_search_init(&config, SL_WORK_TRAIN, &shape, &search), SL_OK);
    assert_int_equal(sl_search_find(&search, &blueprint, &refusal), SL_OK);
    assert_int_equal(sl_session_open(blueprint, &hooks, &session), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "no other ranks"));
    sl_config_clear(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_values_when_split_then_are_those_of_one_rank),
        cmocka_unit_test(plans_of_ranks_when_compared_are_one),
        cmocka_unit_test(gradients_when_split_then_are_those_of_one_rank),
        cmocka_unit_test(gradients_when_from_a_later_state_then_are_those_of_one_rank),
        cmocka_unit_test(losses_over_fifty_steps_when_split_then_stay_together),
        cmocka_unit_test(policies_when_split_then_give_the_same_bits),
        cmocka_unit_test(traffic_when_counted_is_that_of_the_formula),
        cmocka_unit_test(faults_when_planted_then_are_found),
        cmocka_unit_test(bias_when_added_on_every_rank_then_is_found),
        cmocka_unit_test(checkpoint_when_ranks_change_then_is_the_same),
        cmocka_unit_test(session_when_there_are_no_other_ranks_then_is_refused),
    };
    disk = scratch_open();
    snprintf(disk_dir, sizeof disk_dir, "disk-dir=%s", disk.text);
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close(&disk);
    return failures;
}
