/* What could be wrong here: a tensor is read or written at the place of another, a panel or a chunk
 * border shifts the initial values, padding is not zero, a number in half precision is rounded
 * wrongly or loses its master, or a choice is called fitting that is not (suggestions:
 * test_suggestion.c). Tensors are compared with plain arrays beside the session;
 * initial values with the draw of their element, worked out from name, row and column of the whole
 * tensor.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/hash.h"
#include "base/rng.h"
#include "scratch_dir.h"
#include "search/search.h"
#include "session/runtime.h"

static const sl_model_shape small = {2, 48, 4, 32, 1000}; /* wte has several panels */

static const sl_model_shape wide = {1, 384, 4, 16,
                                    300}; /* mlp.c_fc has more elements than a piece */
static const sl_model_shape *shape = &small;

static uint64_t read_seed(void)
{
    const char *given = getenv("SL_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    return seed;
}

/* A configuration with `settings`, which end with NULL. */
static void configure(sl_config *fresh, const char *const *settings)
{
    assert_int_equal(sl_config_init(fresh), SL_OK);
    assert_int_equal(sl_config_assign(fresh, SL_CONFIG_TRAIN, "data=x"), SL_OK);
    assert_int_equal(sl_config_assign(fresh, SL_CONFIG_TRAIN, "device=cpu"), SL_OK);
    for (; *settings; settings++)
        assert_int_equal(sl_config_assign(fresh, SL_CONFIG_TRAIN, *settings), SL_OK);
    if (sl_config_check(fresh, SL_CONFIG_TRAIN) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_int_equal(sl_config_fit_model(fresh, shape), SL_OK);
}

/* The last configuration: what is planned from it borrows its directories. */
static sl_config config;
static bool has_config;

static void start_search(sl_search *search, const char *const *settings)
{
    if (has_config)
        sl_config_clear(&config);
    has_config = true;
    configure(&config, settings);
    assert_int_equal(sl_search_init(&config, SL_WORK_TRAIN, shape, search), SL_OK);
}

static sl_status find(const char *const *settings, sl_blueprint **out_blueprint,
                      sl_refusal *out_refusal)
{
    sl_search search;
    start_search(&search, settings);
    return sl_search_find(&search, out_blueprint, out_refusal);
}

/* Nobody steps here. */
static sl_status fill_nothing(void *user, const sl_engine_fill *what, void *memory)
{
    (void)user, (void)what, (void)memory;
    return SL_ERROR_INTERNAL;
}

static sl_runtime *open_session(const char *const *settings)
{
    sl_blueprint *blueprint;
    sl_runtime *runtime;
    sl_refusal refusal;
    if (find(settings, &blueprint, &refusal) != SL_OK)
        fail_msg("%s", sl_status_message());
    const sl_engine_source nothing = {fill_nothing, NULL};
    const sl_runtime_hooks hooks = {.source = &nothing};
    if (sl_runtime_open(blueprint, &hooks, &runtime) != SL_OK)
        fail_msg("%s", sl_status_message());
    return runtime;
}

static const char *const on_device[] = {"policy=device", NULL};
static const char *const on_host[] = {"policy=host", "threads=1", NULL};
static const char *const spread[] = {
    "policy=static",    "offload-params=0.5", "offload-optimizer=0.3",
    "chunk-size=40000", "threads=3",          NULL};
static scratch_path disk;
static char disk_dir[SCRATCH_PATH_BYTES + 16]; /* "disk-dir=..." */
static const char *const on_disk[] = {"policy=nvme", disk_dir, "nvme-params=1", "nvme-grads=1",
                                      NULL};
static const char *const bf16_on_disk[] = {"precision=bf16", "policy=nvme",      disk_dir,
                                           "nvme-params=1",  "chunk-size=40000", NULL};
static const char *const fp16_spread[] = {
    "precision=fp16",     "policy=static",      disk_dir,           "nvme-params=0.4",
    "nvme-optimizer=0.5", "offload-params=0.3", "chunk-size=40000", NULL};
static const char *const bf16_on_device[] = {"precision=bf16", "policy=device", NULL};
static const char *const *const ways[] = {on_device,    on_host,     spread,        on_disk,
                                          bf16_on_disk, fp16_spread, bf16_on_device};

enum { WAY_COUNT = sizeof ways / sizeof ways[0] };

static void initial_values_when_placed_in_any_way_then_depend_on_name_and_position(void **state)
{
    (void)state;
    for (int way = 0; way < WAY_COUNT; way++) {
        sl_runtime *runtime = open_session(ways[way]);
        assert_int_equal(sl_runtime_initialise(runtime, 42, SL_INITIALISE_ALL), SL_OK);
        uint32_t panels = 0;
        for (uint32_t i = 0; i < runtime->tensor_count; i++) {
            const sl_tensor_spec *tensor = &runtime->tensors[i];
            float *data = malloc(tensor->element_count * sizeof *data);
            uint64_t stream = sl_hash_64(tensor->name, strlen(tensor->name));
            panels += strcmp(tensor->name, "wte.weight") == 0;
            assert_int_equal(runtime->io.read(runtime->io.user, SL_GROUP_PARAM, i, 0,
                                              tensor->element_count, data),
                             SL_OK);
            for (uint64_t row = 0; row < tensor->shape[0]; row++)
                for (uint64_t column = 0; column < tensor->shape[1]; column++) {
                    uint64_t whole = (tensor->first_row + row) * tensor->whole_shape[1] + column;
                    float expected = tensor->init_mean;
                    if (tensor->init_deviation != 0)
                        expected += tensor->init_deviation * sl_rng_normal(42, stream, whole);
                    if (tensor->first_row + row >= tensor->whole_shape[0])
                        expected = 0;
                    assert_true(data[row * tensor->shape[1] + column] == expected);
                }
            free(data);
        }
        assert_true(panels > 1);
        sl_runtime_close(runtime);
    }
}

static void initial_values_when_drawn_then_are_spread_as_asked(void **state)
{
    (void)state;
    sl_runtime *runtime = open_session(on_device);
    assert_int_equal(sl_runtime_initialise(runtime, 7, SL_INITIALISE_ALL), SL_OK);
    double sum = 0, squares = 0;
    uint64_t count = 0;
    for (uint32_t i = 0; i < runtime->tensor_count; i++) {
        const sl_tensor_spec *tensor = &runtime->tensors[i];
        if (strcmp(tensor->name, "wte.weight") != 0)
            continue;
        uint64_t elements = tensor->valid_rows * tensor->shape[1];
        float *data = malloc(elements * sizeof *data);
        assert_int_equal(runtime->io.read(runtime->io.user, SL_GROUP_PARAM, i, 0, elements, data),
                         SL_OK);
        for (uint64_t k = 0; k < elements; k++) {
            sum += data[k];
            squares += (double)data[k] * data[k];
        }
        count += elements;
        free(data);
    }
    assert_int_equal(count, 48000);
    double mean = sum / (double)count, deviation = sqrt(squares / (double)count);
    /* Five standard errors: 0.02 / sqrt(48000) for the mean, by sqrt(2) less for the deviation. */
    assert_true(fabs(mean) < 5 * 0.02 / sqrt(48000.0));
    assert_true(fabs(deviation - 0.02) < 5 * 0.02 / sqrt(2 * 48000.0));
    sl_runtime_close(runtime);
}

/* What a number comes back as from a group of this type. */
static float round_to(sl_type type, float value)
{
    return type == SL_TYPE_BF16   ? sl_half_from_bf16(sl_half_to_bf16(value))
           : type == SL_TYPE_FP16 ? sl_half_from_fp16(sl_half_to_fp16(value))
                                  : value;
}

/* The same of a group of a session: parameters come back as their masters. */
static float expect_back(const sl_runtime *runtime, uint32_t group, float value)
{
    if (group == SL_GROUP_PARAM && runtime->has_state[SL_GROUP_MASTER])
        return value;
    return round_to(runtime->blueprint->layout->group_type[group], value);
}

/* Plain arrays of what should be in every tensor of every group. */
typedef struct shadow {
    float **data; /* [SL_GROUP_COUNT * tensor_count], NULL where there is no such group */
} shadow;

static void write_random_runs(sl_runtime *runtime, shadow *expected, uint64_t seed)
{
    for (uint64_t i = 0; i < 400; i++) {
        uint32_t group = (uint32_t)sl_rng_below(seed, 1, i, SL_GROUP_COUNT);
        uint32_t tensor = (uint32_t)sl_rng_below(seed, 2, i, runtime->tensor_count);
        if (!runtime->has_state[group] || group == SL_GROUP_MASTER)
            continue;
        uint64_t elements = runtime->tensors[tensor].element_count;
        uint64_t first = sl_rng_below(seed, 3, i, elements);
        uint64_t count = 1 + sl_rng_below(seed, 4, i, elements - first);
        float *target = expected->data[group * runtime->tensor_count + tensor] + first;
        for (uint64_t k = 0; k < count; k++)
            target[k] = sl_rng_normal(seed, 5 + i, k);
        assert_int_equal(
            runtime->io.write(runtime->io.user, (sl_group)group, tensor, first, count, target),
            SL_OK);
        if (group == SL_GROUP_PARAM && runtime->has_state[SL_GROUP_MASTER])
            memcpy(expected->data[SL_GROUP_MASTER * runtime->tensor_count + tensor] + first, target,
                   count * sizeof *target);
        for (uint64_t k = 0; k < count; k++)
            target[k] = expect_back(runtime, group, target[k]);
    }
}

static void tensors_when_written_in_runs_then_read_back_and_leave_others_alone(void **state)
{
    (void)state;
    uint64_t seed = read_seed();
    for (int way = 0; way < WAY_COUNT; way++) {
        sl_runtime *runtime = open_session(ways[way]);
        shadow expected = {calloc(SL_GROUP_COUNT * (size_t)runtime->tensor_count, sizeof(float *))};
        for (uint32_t i = 0; i < SL_GROUP_COUNT * runtime->tensor_count; i++)
            expected.data[i] =
                calloc(runtime->tensors[i % runtime->tensor_count].element_count, sizeof(float));
        write_random_runs(runtime, &expected, seed + (uint64_t)way);
        for (uint32_t i = 0; i < SL_GROUP_COUNT * runtime->tensor_count; i++) {
            uint32_t group = i / runtime->tensor_count, tensor = i % runtime->tensor_count;
            uint64_t elements = runtime->tensors[tensor].element_count;
            float *data = malloc(elements * sizeof *data);
            if (runtime->has_state[group]) {
                assert_int_equal(
                    runtime->io.read(runtime->io.user, (sl_group)group, tensor, 0, elements, data),
                    SL_OK);
                assert_memory_equal(data, expected.data[i], elements * sizeof *data);
            }
            free(data);
            free(expected.data[i]);
        }
        free(expected.data);
        sl_runtime_close(runtime);
    }
}

/* In the chunk itself stands what the program computes with: the master, rounded. */
static void parameters_when_in_half_precision_then_are_their_masters_rounded(void **state)
{
    (void)state;
    static const char *const *const halves[] = {bf16_on_disk, fp16_spread, bf16_on_device};
    for (int way = 0; way < 3; way++) {
        sl_runtime *runtime = open_session(halves[way]);
        const sl_layout *layout = runtime->blueprint->layout;
        sl_type type = layout->group_type[SL_GROUP_PARAM];
        uint16_t *chunk = malloc(layout->largest_elements * sizeof *chunk);
        float *data = malloc(layout->largest_elements * sizeof *data);
        assert_int_equal(sl_runtime_initialise(runtime, 3, SL_INITIALISE_ALL), SL_OK);
        for (uint32_t i = 0; i < runtime->tensor_count; i++) {
            uint64_t count = runtime->tensors[i].element_count;
            uint32_t index = layout->chunk_of_tensor[i];
            uint64_t bytes = layout->chunks[index].elements * sizeof *chunk;
            assert_int_equal(
                sl_engine_read_chunk(runtime->engine, SL_GROUP_PARAM, index, 0, bytes, chunk),
                SL_OK);
            assert_int_equal(runtime->io.read(runtime->io.user, SL_GROUP_MASTER, i, 0, count, data),
                             SL_OK);
            for (uint64_t k = 0; k < count; k++) {
                uint16_t found = chunk[layout->first_element[i] + k];
                assert_int_equal(found, type == SL_TYPE_BF16 ? sl_half_to_bf16(data[k])
                                                             : sl_half_to_fp16(data[k]));
            }
        }
        free(chunk);
        free(data);
        sl_runtime_close(runtime);
    }
}

/* Half precision goes through a buffer of 2^19 elements. */
static void tensors_when_larger_than_a_piece_then_are_whole(void **state)
{
    (void)state;
    static const char *const settings[] = {"precision=bf16", "policy=device", NULL};
    shape = &wide;
    sl_runtime *runtime = open_session(settings);
    shape = &small;
    uint32_t count = 0;
    for (uint32_t i = 0; i < runtime->tensor_count; i++) {
        uint64_t elements = runtime->tensors[i].element_count;
        if (elements <= 1 << 19)
            continue;
        count++;
        float *data = malloc(elements * sizeof *data), *back = malloc(elements * sizeof *back);
        for (uint64_t k = 0; k < elements; k++)
            data[k] = (float)(k * 2654435761u % 251);
        assert_int_equal(runtime->io.write(runtime->io.user, SL_GROUP_GRAD, i, 0, elements, data),
                         SL_OK);
        assert_int_equal(runtime->io.read(runtime->io.user, SL_GROUP_GRAD, i, 0, elements, back),
                         SL_OK);
        assert_memory_equal(back, data, elements * sizeof *data); /* small integers are exact */
        free(data);
        free(back);
    }
    assert_true(count > 0);
    assert_int_equal(runtime->blueprint->layout->group_type[SL_GROUP_GRAD], SL_TYPE_BF16);
    sl_runtime_close(runtime);
}

static void tensors_when_reached_beyond_their_end_then_fail(void **state)
{
    (void)state;
    sl_runtime *runtime = open_session(on_host);
    float data[4];
    uint64_t elements = runtime->tensors[0].element_count;
    assert_int_equal(runtime->io.read(runtime->io.user, SL_GROUP_PARAM, 0, elements - 3, 4, data),
                     SL_ERROR_INTERNAL);
    assert_int_equal(runtime->io.write(runtime->io.user, SL_GROUP_PARAM, 0, UINT64_MAX, 2, data),
                     SL_ERROR_INTERNAL);
    assert_int_equal(
        runtime->io.read(runtime->io.user, SL_GROUP_PARAM, runtime->tensor_count, 0, 1, data),
        SL_ERROR_INTERNAL);
    sl_runtime_close(runtime);
}

static void padding_when_a_session_opens_then_is_zero(void **state)
{
    (void)state;
    sl_runtime *runtime = open_session(spread);
    assert_int_equal(sl_runtime_initialise(runtime, 1, SL_INITIALISE_ALL), SL_OK);
    const sl_layout *layout = runtime->blueprint->layout;
    uint8_t *is_used = calloc(layout->block_count, SL_BLOCK_ELEMENTS);
    float *chunk = malloc(layout->largest_elements * sizeof *chunk);
    for (uint32_t i = 0; i < layout->tensor_count; i++)
        memset(is_used +
                   layout->chunks[layout->chunk_of_tensor[i]].first_block * SL_BLOCK_ELEMENTS +
                   layout->first_element[i],
               1, runtime->tensors[i].element_count);
    for (uint32_t i = 0; i < layout->chunk_count; i++) {
        const sl_chunk *it = &layout->chunks[i];
        assert_int_equal(sl_engine_read_chunk(runtime->engine, SL_GROUP_PARAM, i, 0,
                                              it->elements * sizeof *chunk, chunk),
                         SL_OK);
        for (uint64_t k = 0; k < it->elements; k++)
            assert_true(is_used[it->first_block * SL_BLOCK_ELEMENTS + k] || chunk[k] == 0);
    }
    free(chunk);
    free(is_used);
    sl_runtime_close(runtime);
}

/* ---- search ---- */

static void search_when_budgets_shrink_then_states_leave_the_device(void **state)
{
    (void)state;
    sl_blueprint *blueprint;
    sl_refusal refusal;
    const char *const roomy[] = {"device-memory=1G", "host-memory=1G", NULL};
    assert_int_equal(find(roomy, &blueprint, &refusal), SL_OK);
    assert_int_equal(blueprint->choice.placement.policy, SL_POLICY_DEVICE);
    assert_int_equal(blueprint->choice.recompute, SL_RECOMPUTE_NONE);
    uint64_t all = sl_blueprint_peak_bytes(blueprint, SL_TIER_DEVICE);
    sl_blueprint_close(blueprint);
    uint64_t host_before = 0;
    for (uint64_t share = 95; share >= 75; share -= 10) {
        char device[64];
        snprintf(device, sizeof device, "device-memory=%llu",
                 (unsigned long long)(all / 100 * share));
        const char *const tight[] = {device, "host-memory=1G", NULL};
        assert_int_equal(find(tight, &blueprint, &refusal), SL_OK);
        assert_true(sl_blueprint_peak_bytes(blueprint, SL_TIER_DEVICE) <= all / 100 * share);
        uint64_t host = sl_blueprint_peak_bytes(blueprint, SL_TIER_HOST);
        assert_true(host >= host_before);
        assert_int_not_equal(blueprint->choice.placement.policy, SL_POLICY_DEVICE);
        host_before = host;
        sl_blueprint_close(blueprint);
    }
}

static void missing_bytes_when_added_to_the_budget_then_are_enough(void **state)
{
    (void)state;
    for (uint64_t kib = 300; kib < 560; kib += 20) {
        char text[64];
        snprintf(text, sizeof text, "device-memory=%lluK", (unsigned long long)kib);
        const char *const settings[] = {text, "host-memory=1G", "policy=host", NULL};
        sl_blueprint *blueprint = NULL;
        sl_refusal refusal;
        sl_status status = find(settings, &blueprint, &refusal);
        sl_blueprint_close(blueprint);
        if (status == SL_OK)
            continue;
        assert_int_equal(status, SL_ERROR_FIT);
        snprintf(text, sizeof text, "device-memory=%llu",
                 (unsigned long long)(kib * 1024 + refusal.failure.shortage.missing_bytes));
        if (find(settings, &blueprint, &refusal) != SL_OK)
            fail_msg("%s: %s", text, sl_status_message());
        sl_blueprint_close(blueprint);
    }
}

static void budgets_when_unset_then_share_what_is_there(void **state)
{
    (void)state;
    for (int way = 0; way < WAY_COUNT; way++) {
        sl_search search;
        sl_blueprint *blueprint;
        sl_refusal refusal;
        start_search(&search, ways[way]);
        assert_int_equal(sl_search_find(&search, &blueprint, &refusal), SL_OK);
        const uint64_t *budget = blueprint->budget_bytes;
        assert_true(budget[SL_TIER_DEVICE] + budget[SL_TIER_HOST] <= search.task.shared_bytes);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            assert_true(sl_blueprint_peak_bytes(blueprint, (sl_tier)tier) <= budget[tier]);
        uint64_t device = sl_blueprint_peak_bytes(blueprint, SL_TIER_DEVICE);
        uint64_t host = sl_blueprint_peak_bytes(blueprint, SL_TIER_HOST);
        sl_blueprint_close(blueprint);
        /* With hardly more than that in all it still fits; with less than its least it does not. */
        search.task.shared_bytes = device + host;
        assert_int_equal(sl_search_find(&search, &blueprint, &refusal), SL_OK);
        sl_blueprint_close(blueprint);
        search.task.shared_bytes = host / 2 + 4096;
        assert_int_equal(sl_search_find(&search, &blueprint, &refusal), SL_ERROR_FIT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_values_when_placed_in_any_way_then_depend_on_name_and_position),
        cmocka_unit_test(initial_values_when_drawn_then_are_spread_as_asked),
        cmocka_unit_test(tensors_when_written_in_runs_then_read_back_and_leave_others_alone),
        cmocka_unit_test(parameters_when_in_half_precision_then_are_their_masters_rounded),
        cmocka_unit_test(tensors_when_larger_than_a_piece_then_are_whole),
        cmocka_unit_test(tensors_when_reached_beyond_their_end_then_fail),
        cmocka_unit_test(padding_when_a_session_opens_then_is_zero),
        cmocka_unit_test(search_when_budgets_shrink_then_states_leave_the_device),
        cmocka_unit_test(missing_bytes_when_added_to_the_budget_then_are_enough),
        cmocka_unit_test(budgets_when_unset_then_share_what_is_there),
    };
    disk = scratch_open();
    snprintf(disk_dir, sizeof disk_dir, "disk-dir=%s", disk.text);
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1); /* no profile that this machine may have */
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    sl_config_clear(&config);
    scratch_close(&disk);
    return failures;
}
