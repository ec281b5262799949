/* What could be wrong here: a chunk is gathered too late, too often, or from the wrong shard; it is
 * read after its bytes were given on; a budget, an order of work or a chunk size that makes gathers
 * come elsewhere changes the numbers; a device that is short is refused though fewer gathered
 * chunks would fit; with room to spare chunks travel as often as without; chunks that stay whole
 * take more memory than they may; a plan with such a fault is accepted.
 *
 * Sessions as threads take steps at stages 2 and 3, each against stage 0 with everything on the
 * device, bit for bit. Stages 0 to 3 of test_data_parallel's layouts are tested there, and any of
 * them beside anything else, drawn at random, in test_rank_placement.
 */
#define _GNU_SOURCE
#include "rank_runs.h"

#define SMALL_CHUNKS "chunk-size=10240"

static sl_blueprint *plan_rank(uint32_t tp, uint32_t dp, const char *const *settings)
{
    ranks_run run = {.size = tp * dp, .tp = tp, .dp = dp, .factor = 1};
    sl_config config;
    sl_search search;
    sl_blueprint *blueprint;
    sl_refusal refusal;
    configure(&config, &run, settings);
    assert_int_equal(sl_search_init(&config, SL_WORK_TRAIN, &shape, &search), SL_OK);
    if (sl_search_find(&search, &blueprint, &refusal) != SL_OK)
        fail_msg("%s", sl_status_message());
    sl_config_clear(&config);
    return blueprint;
}

/* ---- how often ---- */

/* In a step, all repetitions counted. */
static uint64_t count_ops(const sl_program *program, sl_op_kind kind)
{
    uint64_t count = 0;
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        const sl_section section = sl_program_section(program, s);
        for (uint32_t o = section.first; o < section.first + section.count; o++)
            count += program->ops[o].kind == kind ? section.repeat : 0;
    }
    return count;
}

/* A step on one rank of four, before chunks are gathered. */
typedef struct shard_step {
    sl_program *program;
    sl_layout *layout;
} shard_step;

static shard_step derive_step(const sl_step_options *options, uint32_t stage_count)
{
    static const sl_model_shape deep = {6, 40, 5, 24, 600};
    const sl_model_options forward_options = {.batch = 2,
                                              .seq = 24,
                                              .tp_size = 1,
                                              .stage_count = stage_count,
                                              .type = SL_TYPE_FP32,
                                              .grad_type = SL_TYPE_FP32};
    sl_program *forward;
    shard_step step;
    assert_int_equal(sl_model_shape_emit(&deep, &forward_options, &forward), SL_OK);
    forward->dp_size = 4;
    forward->zero = 3;
    forward->has_whole_gradients = options->accumulation == SL_ACCUMULATE_MICRO;
    assert_int_equal(sl_layout_build(forward, 10240, &step.layout), SL_OK);
    const sl_chunk_map map = sl_layout_chunk_map(step.layout);
    if (sl_program_derive_step(forward, &map, options, &step.program) != SL_OK)
        fail_msg("%s", sl_status_message());
    sl_program_close(forward);
    return step;
}

static void close_step(shard_step *step)
{
    sl_program_close(step->program);
    sl_layout_close(step->layout);
}

/* The first op that has operand v; `out_last`: the last one, or the end of the section that it is
 * in where that is repeated and does not make v. */
static uint32_t find_life(const sl_program *program, uint32_t v, uint32_t *out_last)
{
    uint32_t first = SL_NONE;
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        const sl_section section = sl_program_section(program, s);
        for (uint32_t o = section.first; o < section.first + section.count; o++)
            for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
                const uint32_t operand = program->ops[o].operand[i];
                if (operand == SL_NONE ||
                    (operand != v && !(program->values[operand].kind == SL_VALUE_PART &&
                                       program->values[operand].whole == v)))
                    continue;
                first = first == SL_NONE ? o : first;
                const bool stays = section.repeat > 1 && first < section.first;
                *out_last = stays ? section.first + section.count - 1 : o;
            }
    }
    return first;
}

/* The most gathered chunks that live at one op. */
static uint32_t count_alive(const sl_program *program)
{
    uint32_t *alive = calloc(program->op_count, sizeof *alive), most = 0;
    assert_non_null(alive);
    for (uint32_t g = 0; g < program->op_count; g++) {
        uint32_t last = 0;
        if (program->ops[g].kind != SL_OP_ALL_GATHER_SHARD)
            continue;
        const uint32_t first = find_life(program, program->ops[g].operand[1], &last);
        for (uint32_t o = first; o <= last; o++)
            most = ++alive[o] > most ? alive[o] : most;
    }
    free(alive);
    return most;
}

/* Gathers of a step with so many idle chunks; `out_alive`: the most that live at one op. */
static uint64_t count_gathers(const shard_step *step, uint32_t idle_most, uint32_t *out_alive)
{
    const sl_gather_options options = {.idle_most = idle_most};
    const sl_chunk_map map = sl_layout_chunk_map(step->layout);
    sl_program *gathered;
    assert_int_equal(sl_program_gather_chunks(step->program, &map, &options, &gathered), SL_OK);
    const uint64_t count = count_ops(gathered, SL_OP_ALL_GATHER_SHARD);
    assert_int_equal(count_ops(gathered, SL_OP_ALL_GATHER_CHUNK), 0);
    *out_alive = count_alive(gathered);
    sl_program_close(gathered);
    return count;
}

static uint64_t count_gathers_without_idle(uint32_t micro_batches, sl_accumulation accumulation,
                                           uint32_t *out_chunks)
{
    const sl_step_options options = {.micro_batch_count = micro_batches,
                                     .accumulation = accumulation};
    shard_step step = derive_step(&options, 1);
    uint32_t alive;
    const uint64_t count = count_gathers(&step, 0, &alive);
    *out_chunks = step.layout->chunk_count;
    close_step(&step);
    return count;
}

/* Once for the forward and once for the backward pass; again for each micro-batch in micro order,
 * and once for all of them in layer order. */
static void gathers_when_no_chunk_stays_idle_then_are_two_a_chunk_and_pass(void **state)
{
    (void)state;
    uint32_t chunks;
    const uint64_t one = count_gathers_without_idle(1, SL_ACCUMULATE_MICRO, &chunks);
    print_message("%u chunks, %llu gathers\n", chunks, (unsigned long long)one);
    assert_true(chunks >= 8 && one > chunks && one <= 2 * (uint64_t)chunks);
    assert_int_equal(count_gathers_without_idle(2, SL_ACCUMULATE_MICRO, &chunks), 2 * one);
    assert_int_equal(count_gathers_without_idle(40, SL_ACCUMULATE_MICRO, &chunks), 40 * one);
    const uint64_t layered = count_gathers_without_idle(3, SL_ACCUMULATE_LAYER, &chunks);
    print_message("in layer order %llu\n", (unsigned long long)layered);
    assert_true(layered > chunks && layered <= 2 * (uint64_t)chunks);
    assert_int_equal(count_gathers_without_idle(40, SL_ACCUMULATE_LAYER, &chunks), layered);
}

/* With each idle chunk that may stay there are no more gathers than before, and no more chunks
 * alive than without idle ones and those; when all may, each chunk is gathered once a step. */
static void check_idle(const sl_step_options *options, uint32_t stage_count)
{
    shard_step step = derive_step(options, stage_count);
    const uint32_t chunks = step.layout->chunk_count;
    uint32_t alive, alive_before;
    const uint64_t none = count_gathers(&step, 0, &alive_before);
    uint64_t before = none;
    for (uint32_t idle = 1; idle <= chunks; idle++) {
        const uint64_t count = count_gathers(&step, idle, &alive);
        if (count > before || alive > alive_before + idle)
            fail_msg("%u micro-batches, order %d, recompute %d, %u stages: with %u idle %llu "
                     "gathers after %llu, %u alive, %u without",
                     options->micro_batch_count, options->accumulation, options->recompute,
                     stage_count, idle, (unsigned long long)count, (unsigned long long)before,
                     alive, alive_before);
        before = count;
    }
    print_message("%u micro-batches, order %d, recompute %d, %u stages: %u chunks, %llu gathers, "
                  "%llu\n",
                  options->micro_batch_count, options->accumulation, options->recompute,
                  stage_count, chunks, (unsigned long long)none, (unsigned long long)before);
    assert_int_equal(before, chunks);
    close_step(&step);
}

static void gathers_when_chunks_stay_idle_then_are_fewer(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 2, 3, 4, 9};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int recompute = SL_RECOMPUTE_NONE; recompute <= SL_RECOMPUTE_FULL; recompute += 2)
            for (int order = SL_ACCUMULATE_MICRO; order <= SL_ACCUMULATE_LAYER; order++)
                for (uint32_t stages = 1; stages <= 2; stages++) {
                    const sl_step_options options = {.micro_batch_count = counts[c],
                                                     .accumulation = (sl_accumulation)order,
                                                     .recompute = (sl_recompute)recompute,
                                                     .schedule = order == SL_ACCUMULATE_LAYER
                                                                     ? SL_SCHEDULE_GPIPE
                                                                     : SL_SCHEDULE_1F1B};
                    check_idle(&options, stages);
                }
}

/* ---- how much ---- */

/* Bytes that a rank of 64 keeps of a model's parameters, gradients and states. */
static double count_kept_bytes(uint32_t zero, double *out_elements)
{
    static const sl_model_shape large = {36, 4096, 32, 1024, 50257};
    const sl_model_options options = {
        .batch = 1, .seq = 1024, .tp_size = 1, .type = SL_TYPE_BF16, .grad_type = SL_TYPE_BF16};
    sl_program *program;
    sl_layout *layout;
    double bytes = 0;
    assert_int_equal(sl_model_shape_emit(&large, &options, &program), SL_OK);
    program->dp_size = 64;
    program->zero = zero;
    assert_int_equal(sl_layout_build(program, 0, &layout), SL_OK);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t c = 0; c < layout->chunk_count; c++)
            bytes += (double)sl_layout_chunk_bytes(layout, (sl_group)group, c);
    *out_elements = (double)sl_model_shape_parameters(&large);
    sl_layout_close(layout);
    sl_program_close(program);
    return bytes;
}

/* ZeRO's table (Rajbhandari et al. 2020), for 7.5 billion parameters on 64 ranks: 120, 31.4, 16.6
 * and 1.9 GB; 2 bytes of a parameter, 2 of its gradient, 12 of states. Chunks have 1 % of padding
 * at most, and are rounded up to 64 shards. */
static void bytes_when_counted_then_are_those_of_the_formula(void **state)
{
    (void)state;
    static const double whole[] = {16, 4, 2, 0};
    for (uint32_t zero = 0; zero < 4; zero++) {
        double elements;
        const double kept = count_kept_bytes(zero, &elements);
        const double formula = elements * (whole[zero] + (16 - whole[zero]) / 64);
        print_message("stage %u: %.2f GB of %.3g parameters\n", zero, kept * 1e-9, elements);
        assert_true(kept >= formula && kept <= 1.015 * formula);
    }
}

/* ---- bits ---- */

/* Two steps of `settings` against stage 0 on the device. */
static void check_same_bits(uint32_t tp, uint32_t dp, const char *const *plain,
                            const char *const *settings, const char *what)
{
    compare_same_runs(open_layout(tp, dp, plain, 1, NULL), open_layout(tp, dp, settings, 1, NULL),
                      2, what);
}

/* ---- a device that is short ---- */

static void device_when_it_holds_few_gathered_chunks_then_gathers_more_often(void **state)
{
    (void)state;
    static const char *const plain[] = {"policy=device", "zero=0", "precision=fp32", NULL};
    static const char *const roomy[] = {"policy=host",    "zero=3",     "precision=fp32",
                                        "recompute=full", SMALL_CHUNKS, NULL};
    char budget[48];
    snprintf(budget, sizeof budget, "device-memory=%llu",
             (unsigned long long)find_needed_device(1, 4, roomy));
    const char *const tight[] = {
        "policy=host", "zero=3", "precision=fp32", "recompute=full", SMALL_CHUNKS, budget, NULL};
    sl_blueprint *wide = plan_rank(1, 4, roomy), *narrow = plan_rank(1, 4, tight);
    const uint64_t often = count_ops(narrow->programs[0], SL_OP_ALL_GATHER_SHARD);
    const uint64_t seldom = count_ops(wide->programs[0], SL_OP_ALL_GATHER_SHARD);
    print_message("%s: %llu gathers, at most %u chunks at once, for %llu\n", budget,
                  (unsigned long long)often, narrow->gathers.most, (unsigned long long)seldom);
    assert_true(often > seldom && narrow->gathers.most > 0 && narrow->gathers.most <= 4);
    sl_blueprint_close(wide);
    sl_blueprint_close(narrow);
    check_same_bits(1, 4, plain, tight, budget);
}

/* ---- a device with room to spare ---- */

/* Everything lives on the device, so nothing else takes the room: where they fit all chunks stay
 * whole. Returns the peak of the device. */
static uint64_t check_all_idle(const char *const *settings)
{
    sl_blueprint *blueprint = plan_rank(1, 4, settings);
    const uint64_t peak = sl_blueprint_peak_bytes(blueprint, SL_TIER_DEVICE);
    const uint32_t chunks = blueprint->layout->chunk_count;
    assert_int_equal(blueprint->gathers.idle_most, chunks);
    assert_int_equal(count_ops(blueprint->programs[0], SL_OP_ALL_GATHER_SHARD), chunks);
    sl_blueprint_close(blueprint);
    return peak;
}

/* Takes room away, a block at a time, until some chunks stay whole and some do not. */
static void find_some_idle(const char **settings, char *budget, size_t budget_bytes, uint64_t peak)
{
    for (uint64_t bytes = peak;; bytes -= SL_BLOCK_ELEMENTS * sizeof(float)) {
        snprintf(budget, budget_bytes, "device-memory=%llu", (unsigned long long)bytes);
        sl_blueprint *blueprint = plan_rank(1, 4, settings);
        const uint32_t idle = blueprint->gathers.idle_most, chunks = blueprint->layout->chunk_count;
        const uint64_t count = count_ops(blueprint->programs[0], SL_OP_ALL_GATHER_SHARD);
        assert_in_range(sl_blueprint_peak_bytes(blueprint, SL_TIER_DEVICE), 1, bytes);
        sl_blueprint_close(blueprint);
        if (idle == chunks)
            continue;
        print_message("%s: %u of %u chunks idle, %llu gathers\n", budget, idle, chunks,
                      (unsigned long long)count);
        assert_true(idle > 0 && count > chunks);
        return;
    }
}

static void check_idle_chunks(const char *accumulate, const char *order)
{
    char budget[48] = "device-memory=64M";
    const char *const plain[] = {"policy=device", "zero=0", "precision=fp32",
                                 accumulate,      order,    NULL};
    const char *const chosen[] = {"zero=3", "precision=fp32", SMALL_CHUNKS, accumulate, order,
                                  NULL};
    const char *settings[] = {"policy=device",
                              "zero=3",
                              "precision=fp32",
                              "recompute=none",
                              SMALL_CHUNKS,
                              accumulate,
                              order,
                              budget,
                              NULL};
    const uint64_t peak = check_all_idle(settings);
    assert_int_equal(check_all_idle(chosen), peak);
    check_same_bits(1, 4, plain, settings, accumulate);
    find_some_idle(settings, budget, sizeof budget, peak);
    check_same_bits(1, 4, plain, settings, budget);
}

static void device_when_it_has_room_then_chunks_stay_whole(void **state)
{
    (void)state;
    check_idle_chunks("accumulate=1", "accumulation=micro");
    check_idle_chunks("accumulate=5", "accumulation=micro");
    check_idle_chunks("accumulate=4", "accumulation=layer");
}

/* ---- planted faults: plans ---- */

static const char *const planned[] = {"policy=host",    "zero=3",     "precision=bf16",
                                      "recompute=none", SMALL_CHUNKS, NULL};

/* A plan without room for idle chunks: some tensors are gathered twice. */
static sl_blueprint *plan_without_idle(void)
{
    char budget[48];
    const char *short_of_room[] = {planned[0], planned[1], planned[2], planned[3],
                                   planned[4], budget,     NULL};
    snprintf(budget, sizeof budget, "device-memory=%llu",
             (unsigned long long)find_needed_device(1, 4, planned));
    return plan_rank(1, 4, short_of_room);
}

/* The operand of an op that is a part; NULL: none. */
static uint32_t *find_part(sl_program *program, uint32_t tick)
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        uint32_t *operand = &program->ops[tick].operand[i];
        if (*operand != SL_NONE && program->values[*operand].kind == SL_VALUE_PART &&
            program->values[*operand].group == SL_GROUP_PARAM)
            return operand;
    }
    return NULL;
}

/* The first use of a part, and one of the same tensor in another gathered chunk. */
static void find_two_parts(sl_program *program, uint32_t **out_early, uint32_t **out_late)
{
    for (uint32_t o = 0; o < program->op_count; o++) {
        uint32_t *early = find_part(program, o);
        for (uint32_t p = o + 1; early && p < program->op_count; p++) {
            uint32_t *late = find_part(program, p);
            if (!late || program->values[*late].index != program->values[*early].index ||
                program->values[*late].whole == program->values[*early].whole)
                continue;
            *out_early = early;
            *out_late = late;
            return;
        }
    }
    fail_msg("no tensor is gathered twice");
}

static void use_before_gather(sl_program *program)
{
    uint32_t *early, *late;
    find_two_parts(program, &early, &late);
    *early = *late;
}

static void use_after_death(sl_program *program)
{
    uint32_t *early, *late;
    find_two_parts(program, &early, &late);
    *late = *early;
}

static void leave_out_gather(sl_program *program)
{
    uint32_t *early, *late;
    find_two_parts(program, &early, &late);
    const uint32_t whole = program->values[*early].whole, other = program->values[*late].whole;
    for (uint32_t o = 0; o < program->op_count; o++)
        if (program->ops[o].kind == SL_OP_ALL_GATHER_SHARD && program->ops[o].operand[1] == other)
            program->ops[o].operand[1] = whole;
}

static void name_another_tensor(sl_program *program)
{
    uint32_t *early, *late;
    find_two_parts(program, &early, &late);
    program->values[*late].index++;
}

static void overrun_chunk(sl_program *program)
{
    uint32_t *early, *late;
    find_two_parts(program, &early, &late);
    program->values[program->values[*late].whole].bytes = program->values[*late].bytes / 2;
}

static void plans_when_a_gather_is_wrong_then_are_rejected(void **state)
{
    (void)state;
    static void (*const faults[])(sl_program *) = {
        use_before_gather, use_after_death, leave_out_gather, name_another_tensor, overrun_chunk};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        sl_blueprint *blueprint = plan_without_idle();
        assert_int_equal(sl_blueprint_verify(blueprint), SL_OK);
        faults[i](blueprint->programs[0]);
        if (sl_blueprint_verify(blueprint) != SL_ERROR_INTERNAL)
            fail_msg("fault %zu is accepted", i);
        print_message("%s\n", sl_status_message());
        sl_blueprint_close(blueprint);
    }
}

/* ---- planted faults: runs ---- */

static void move_shard(sl_blueprint *blueprint, uint32_t rank)
{
    if (rank == 1)
        blueprint->layout->shard_index = 0;
}

static sl_op *find_first(const sl_blueprint *blueprint, sl_op_kind kind)
{
    const sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++)
        if (program->ops[o].kind == kind)
            return &program->ops[o];
    fail_msg("no %s", sl_op_info_of(kind)->name);
    return NULL;
}

/* Nothing is exchanged. */
static void skip_gather(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    find_first(blueprint, SL_OP_ALL_GATHER_SHARD)->attrs.element_count = 0;
}

static void skip_sum(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    find_first(blueprint, SL_OP_REDUCE_SCATTER_SHARD)->attrs.element_count = 0;
}

static double find_damage(damage plant)
{
    static const char *const one[] = {"policy=device", "precision=fp32", NULL};
    static const char *const many[] = {"policy=device", "precision=fp32", "zero=3", SMALL_CHUNKS,
                                       NULL};
    const char *name = "";
    return compare_runs(open_layout(1, 1, one, 2, NULL), open_layout(1, 2, many, 1, plant), NULL,
                        &name);
}

static void runs_when_a_fault_is_planted_then_differ(void **state)
{
    (void)state;
    assert_true(find_damage(NULL) <= fp32_bound);
    assert_true(find_damage(move_shard) > 100 * fp32_bound);
    assert_true(find_damage(skip_gather) > 100 * fp32_bound);
    assert_true(find_damage(skip_sum) > 100 * fp32_bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers_when_no_chunk_stays_idle_then_are_two_a_chunk_and_pass),
        cmocka_unit_test(gathers_when_chunks_stay_idle_then_are_fewer),
        cmocka_unit_test(bytes_when_counted_then_are_those_of_the_formula),
        cmocka_unit_test(device_when_it_holds_few_gathered_chunks_then_gathers_more_often),
        cmocka_unit_test(device_when_it_has_room_then_chunks_stay_whole),
        cmocka_unit_test(plans_when_a_gather_is_wrong_then_are_rejected),
        cmocka_unit_test(runs_when_a_fault_is_planted_then_differ),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
