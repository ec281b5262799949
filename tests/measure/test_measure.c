/* What could be wrong with what is measured: a write beyond the plan that nobody sees; a wait that
 * is charged to the wrong command or counted twice; the warm-up counted; sums over repetitions
 * lost; resident memory of the wrong owner; objects that are not those of the peak; a slow disk
 * that is not named. Sums are compared with events made up here, with what a plan written by hand
 * does, and with files made up as the kernel writes them. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine_steps.h"
#include "measure/accounts.h"
#include "measure/bytes.h"
#include "offload/store_double.h"
#include "scratch_dir.h"

/* ---- painted arenas ---- */

static const sl_engine *planted_engine;
static uint64_t planted_offset; /* in the device's arena; 0: nothing is planted */

static sl_status finish_and_plant(const sl_kernel_call *call)
{
    const unsigned char *device = sl_engine_arena(planted_engine, SL_TIER_DEVICE);
    if (planted_offset)
        ((unsigned char *)(uintptr_t)device)[planted_offset] = 1;
    return fake_finish(call);
}

static void run_painted(uint64_t offset, sl_engine_paint paints[SL_ARENA_COUNT])
{
    world w;
    uint64_t out;
    sl_kernel_table kernels = fake_kernels;
    world_init(&w);
    kernels.row[SL_OP_NORM_FINISH] = (sl_kernel_row){finish_and_plant};
    w.parts.kernels = &kernels;
    w.options.paint_arenas = true;
    sl_engine *engine = open_world(&w);
    planted_engine = engine;
    planted_offset = offset;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(step(engine, TRAIN_PLAN, i, i, &out), SL_OK);
    for (int tier = 0; tier < SL_ARENA_COUNT; tier++)
        assert_int_equal(sl_engine_measure_arena(engine, (sl_tier)tier, &paints[tier]), SL_OK);
    assert_int_equal(fakes.wrong, 0); /* homes are zero though all was painted */
    sl_engine_close(engine);
}

static void paint_when_a_plan_is_kept_then_its_peak_is_found(void **state)
{
    (void)state;
    sl_engine_paint paints[SL_ARENA_COUNT];
    run_painted(0, paints);
    const sl_engine_paint *device = &paints[SL_TIER_DEVICE], *host = &paints[SL_TIER_HOST];
    assert_int_equal(device->arena_bytes, DEVICE_PEAK);
    assert_int_equal(device->peak_bytes, DEVICE_PEAK); /* the workspace is filled to its end */
    assert_true(device->painted_bytes >= DEVICE_PEAK + SL_PAINT_BEYOND_BYTES);
    assert_int_equal(device->changed_bytes, DEVICE_PEAK);
    assert_in_range(host->peak_bytes, HOST_OUTPUT, HOST_OUTPUT + 8);
    assert_true(host->changed_bytes <= HOST_PEAK);
}

static void paint_when_a_kernel_writes_beyond_the_plan_then_it_shows(void **state)
{
    (void)state;
    static const uint64_t beyond[] = {0, 100, 4096, SL_PAINT_BEYOND_BYTES - 1};
    sl_engine_paint paints[SL_ARENA_COUNT];
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        run_painted(DEVICE_PEAK + beyond[i], paints);
        assert_int_equal(paints[SL_TIER_DEVICE].peak_bytes, DEVICE_PEAK + beyond[i] + 1);
        assert_int_equal(paints[SL_TIER_DEVICE].changed_bytes, DEVICE_PEAK);
    }
}

static void paint_when_it_was_not_asked_for_then_refused(void **state)
{
    (void)state;
    world w;
    sl_engine_paint paint;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    assert_int_equal(sl_engine_measure_arena(engine, SL_TIER_HOST, &paint), SL_ERROR_INTERNAL);
    sl_engine_close(engine);
}

/* ---- waits, by command ---- */

static struct {
    const sl_plan *plan;
    _Atomic uint64_t count, wait_ns[SL_LANE_COUNT], cause_ns[SL_LANE_COUNT];
} seen_waits;

static void note_nothing(void *user, const sl_engine_event *event)
{
    (void)user, (void)event;
}

static void note_wait(void *user, const sl_engine_wait *wait)
{
    uint64_t parts_ns = 0;
    (void)user;
    seen_waits.count++;
    world_check(wait->plan_index == TRAIN_PLAN && wait->command < seen_waits.plan->body_count);
    world_check(seen_waits.plan->body[wait->command].lane == wait->waited_for);
    world_check(wait->lane != wait->waited_for && wait->start_ns <= wait->end_ns);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        parts_ns += wait->cause_ns[lane];
        if (wait->lane == SL_LANE_COMPUTE)
            seen_waits.cause_ns[lane] += wait->cause_ns[lane];
    }
    /* times are doubles on their way: parts may lose some units in the last place */
    world_check(parts_ns <= wait->end_ns - wait->start_ns + 4096);
    seen_waits.wait_ns[wait->lane] += wait->end_ns - wait->start_ns;
}

static void waits_when_told_name_the_command_and_add_up_to_the_stalls(void **state)
{
    (void)state;
    world w;
    uint64_t out;
    sl_engine_statistics statistics;
    const sl_engine_observer observer = {note_nothing, NULL, note_wait};
    world_init(&w);
    update_on_host_only(&w);
    memset(&seen_waits, 0, sizeof seen_waits);
    seen_waits.plan = w.options.plans[TRAIN_PLAN].plan;
    w.options.observer = &observer;
    sl_engine *engine = open_world(&w);
    fakes.sleep_us[SL_OP_ADAMW] = 2000;
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(step(engine, TRAIN_PLAN, i, i, &out), SL_OK);
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        assert_int_equal(seen_waits.cause_ns[lane], statistics.stall_ns[lane]);
    assert_true(seen_waits.count > 0 && seen_waits.wait_ns[SL_LANE_COMPUTE] > 0);
    assert_int_equal(fakes.wrong, 0);
    sl_engine_close(engine);
}

/* ---- the record, by made-up events ---- */

enum { REPEAT = 512, COMPUTE_NS = 100, COPY_NS = 30, WAIT_NS = 7, GAP_NS = 2, STEPS = 3 };

/* Commands: 0 a copy, 1 an op; repeated: 2 a copy, 3 an op; 4 an op. */
static sl_command made_up_body[] = {{.kind = SL_COMMAND_COPY, .lane = SL_LANE_H2D},
                                    {.lane = SL_LANE_COMPUTE},
                                    {.kind = SL_COMMAND_COPY, .lane = SL_LANE_H2D},
                                    {.lane = SL_LANE_COMPUTE},
                                    {.lane = SL_LANE_COMPUTE}};
static sl_section made_up_sections[] = {{0, 2, 0, 1}, {2, 2, 0, REPEAT}, {4, 1, 0, 1}};

typedef struct story {
    const sl_engine_observer *observer;
    uint64_t now[SL_LANE_COUNT];
} story;

static void tell_run(story *of, uint32_t command, uint32_t repetition, uint64_t ns)
{
    sl_lane lane = made_up_body[command].lane;
    const sl_engine_event event = {0, command, repetition, lane, of->now[lane], of->now[lane] + ns};
    of->now[lane] += ns;
    of->observer->ran(of->observer->user, &event);
}

static void tell_wait(story *of, uint32_t command, uint64_t ns, sl_lane cause)
{
    sl_engine_wait wait = {.command = command,
                           .lane = SL_LANE_COMPUTE,
                           .waited_for = SL_LANE_H2D,
                           .start_ns = of->now[SL_LANE_COMPUTE],
                           .end_ns = of->now[SL_LANE_COMPUTE] + ns};
    wait.cause_ns[cause] = ns;
    of->now[SL_LANE_COMPUTE] += ns;
    of->observer->waited(of->observer->user, &wait);
}

/* Waits: for 0 before 1, caused by the disk; for 2 before 3, each longer than the one before. */
static void tell_step(story *of, uint64_t scale)
{
    tell_run(of, 0, 0, COPY_NS);
    tell_wait(of, 0, scale * 50 * WAIT_NS, SL_LANE_READ);
    tell_run(of, 1, 0, COMPUTE_NS);
    for (uint32_t r = 0; r < REPEAT; r++) {
        tell_run(of, 2, r, COPY_NS);
        tell_wait(of, 2, WAIT_NS + r, SL_LANE_H2D);
        of->now[SL_LANE_COMPUTE] += GAP_NS;
        tell_run(of, 3, r, COMPUTE_NS);
    }
    tell_run(of, 4, 0, COMPUTE_NS);
}

static void record_when_told_of_steps_then_sums_are_exact_and_the_warm_up_is_left_out(void **state)
{
    (void)state;
    const sl_plan plan = {
        .body = made_up_body, .body_count = 5, .sections = made_up_sections, .section_count = 3};
    const sl_engine_plan step = {NULL, &plan};
    sl_record *record = NULL;
    assert_int_equal(sl_record_open(&step, 1, &record), SL_OK);
    story of = {.observer = sl_record_observer(record, NULL)};
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        of.now[lane] = 1000;
    tell_step(&of, 1000); /* a slow warm-up */
    uint64_t started = of.now[SL_LANE_COMPUTE];
    for (int i = 0; i < STEPS; i++)
        tell_step(&of, 1);
    const sl_record_lane *compute = &sl_record_lanes(record)[SL_LANE_COMPUTE];
    const sl_record_command *commands = sl_record_commands(record);
    uint64_t read_ns = STEPS * 50 * WAIT_NS;
    uint64_t h2d_ns = STEPS * (REPEAT * WAIT_NS + REPEAT * (REPEAT - 1) / 2);
    assert_int_equal(compute->step_count, STEPS + 1);
    assert_int_equal(compute->run_count, STEPS * (REPEAT + 2));
    assert_int_equal(compute->busy_ns, STEPS * (REPEAT + 2) * COMPUTE_NS);
    assert_int_equal(compute->wait_ns[SL_LANE_READ], read_ns);
    assert_int_equal(compute->wait_ns[SL_LANE_H2D], h2d_ns);
    assert_int_equal(compute->start_ns, started);
    assert_int_equal(compute->end_ns - started,
                     compute->busy_ns + read_ns + h2d_ns + STEPS * REPEAT * GAP_NS);
    assert_int_equal(sl_record_lanes(record)[SL_LANE_H2D].busy_ns, STEPS * (REPEAT + 1) * COPY_NS);
    assert_int_equal(commands[1].wait_ns, read_ns);
    assert_int_equal(commands[1].cause_ns[SL_LANE_READ], read_ns);
    assert_int_equal(commands[3].wait_count, STEPS * REPEAT);
    assert_int_equal(commands[3].wait_ns, h2d_ns);
    assert_int_equal(commands[3].longest_wait_ns, WAIT_NS + REPEAT - 1);
    assert_int_equal(commands[3].longest_wait_command, 2);
    assert_int_equal(commands[4].wait_ns, 0);
    sl_record_close(record);
}

/* ---- the resident set ---- */

static void write_file(const scratch_path *directory, const char *name, const char *text)
{
    char path[2 * SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory->text, name);
    FILE *file = fopen(path, "w");
    scratch_need(file && fputs(text, file) >= 0 && fclose(file) == 0, path);
}

static void make_directory(const scratch_path *directory, const char *name)
{
    char path[2 * SCRATCH_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", directory->text, name);
    scratch_need(mkdir(path, 0700) == 0, path);
}

#define ENTRY(range, flags, name, kib)                                                             \
    range " " flags " 00000000 00:00 0    " name "\nSize: 4 kB\nRss: " kib " kB\nPss: 1 kB\n"

static void resident_when_read_then_each_mapping_has_its_owner(void **state)
{
    (void)state;
    scratch_path root = scratch_open();
    sl_resident resident;
    const sl_resident_range arenas[] = {{(void *)0x10000000, 3 << 10}, {(void *)0x10001000, 4096}};
    make_directory(&root, "task");
    make_directory(&root, "task/7");
    make_directory(&root, "task/8");
    write_file(&root, "task/7/syscall", "202 0x1 0x2 0x3 0x4 0x5 0x6 0x20000800 0x7f\n");
    write_file(&root, "task/8/syscall", "running\n");
    write_file(&root, "smaps_rollup", "a-b ---p 0 00:00 0 [rollup]\nRss:   1234 kB\n");
    write_file(&root, "status", "Name: x\nVmHWM:  4000 kB\nVmPTE:   12 kB\n");
    write_file(&root, "smaps",
               ENTRY("10000000-10100000", "rw-p", "", "100") /* both arenas, and more */
               ENTRY("20000000-20002000", "rw-p", "", "5")   /* the stack of 7 */
               ENTRY("30000000-30001000", "r-xp", "/usr/lib/libx.so.1", "30")
                   ENTRY("30001000-30002000", "rw-p", "/usr/lib/libx.so.1", "2")
                       ENTRY("40000000-40001000", "r--s", "/data/tokens with space.bin", "40")
                           ENTRY("50000000-50001000", "rw-s", "anon_inode:[io_uring]", "6")
                               ENTRY("60000000-60001000", "rw-p", "[stack]", "3")
                                   ENTRY("70000000-70001000", "rw-p", "[heap]", "50")
                                       ENTRY("80000000-80001000", "r-xp", "[vdso]", "1"));
    assert_int_equal(sl_resident_read(root.text, arenas, 2, 60 << 10, &resident), SL_OK);
    const uint64_t kib[SL_RESIDENT_KIND_COUNT] = {[SL_RESIDENT_ARENAS] = 7,
                                                  [SL_RESIDENT_HEAP] = 60,
                                                  [SL_RESIDENT_STACKS] = 8,
                                                  [SL_RESIDENT_CODE] = 33,
                                                  [SL_RESIDENT_FILES] = 40,
                                                  [SL_RESIDENT_RINGS] = 6,
                                                  [SL_RESIDENT_UNEXPLAINED] = 100 - 7 + 50 - 60};
    uint64_t sum = 0;
    for (int kind = 0; kind < SL_RESIDENT_KIND_COUNT; kind++) {
        assert_int_equal(resident.kind_bytes[kind], kib[kind] << 10);
        sum += resident.kind_bytes[kind];
    }
    assert_int_equal(resident.total_bytes, sum);
    assert_int_equal(resident.rollup_bytes, 1234 << 10);
    assert_int_equal(resident.peak_bytes, 4000 << 10);
    assert_int_equal(resident.page_table_bytes, 12 << 10);
    assert_int_equal(resident.thread_count, 2);
    /* an allocator that claims more than there is explains no more than there is */
    assert_int_equal(sl_resident_read(root.text, arenas, 2, 1 << 30, &resident), SL_OK);
    assert_int_equal(resident.kind_bytes[SL_RESIDENT_UNEXPLAINED], 0);
    assert_int_equal(resident.total_bytes, sum);
    scratch_close(&root);
    assert_int_equal(sl_resident_read("/nowhere", arenas, 2, 0, &resident), SL_ERROR_SYSTEM);
}

/* The kernel counts the same, but for what this process takes between two readings. */
static void resident_when_of_this_process_then_the_kernel_agrees(void **state)
{
    (void)state;
    sl_resident resident;
    assert_int_equal(sl_resident_read(NULL, NULL, 0, 0, &resident), SL_OK);
    assert_true(resident.kind_bytes[SL_RESIDENT_CODE] > 0);
    assert_true(resident.kind_bytes[SL_RESIDENT_STACKS] > 0);
    assert_true(resident.thread_count >= 1);
    if (resident.rollup_bytes > 0)
        assert_true(fabs((double)resident.rollup_bytes - (double)resident.total_bytes) < 8 << 20);
}

static void cores_when_read_then_threads_are_added_up(void **state)
{
    (void)state;
    scratch_path root = scratch_open();
    make_directory(&root, "task");
    make_directory(&root, "task/1");
    make_directory(&root, "task/2");
    write_file(&root, "task/1/schedstat", "100 20 3\n");
    write_file(&root, "task/2/schedstat", "1000 200 30\n");
    sl_cores cores = sl_cores_read(root.text);
    assert_int_equal(cores.used_ns, 1100);
    assert_int_equal(cores.waited_ns, 220);
    scratch_close(&root);
    cores = sl_cores_read("/nowhere");
    assert_int_equal(cores.used_ns + cores.waited_ns, 0);
}

static void cores_when_read_twice_then_the_share_of_waits_is_of_the_time_between(void **state)
{
    (void)state;
    const sl_cores before = {1000, 500}, after = {1300, 600}, fewer = {900, 700};
    assert_float_equal(sl_cores_find_waited(&before, &after), 0.25, 1e-12);
    assert_float_equal(sl_cores_find_waited(&before, &before), 0, 0);
    assert_float_equal(sl_cores_find_waited(&before, &fewer), 0, 0);
}

/* ---- whole runs ---- */

static const sl_model_shape small = {2, 48, 4, 32, 1000};

static void configure(sl_config *config, const char *const *settings)
{
    assert_int_equal(sl_config_init(config), SL_OK);
    for (; *settings; settings++)
        if (sl_config_assign(config, SL_CONFIG_PROFILE, *settings) != SL_OK)
            fail_msg("%s", sl_status_message());
    if (sl_config_check(config, SL_CONFIG_PROFILE) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_int_equal(sl_config_fit_model(config, &small), SL_OK);
}

static sl_blueprint *find_blueprint(const sl_config *config, sl_search *search)
{
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    assert_int_equal(sl_search_init(config, SL_WORK_TRAIN, &small, search), SL_OK);
    if (sl_search_find(search, &blueprint, &refusal) != SL_OK)
        fail_msg("%s", sl_status_message());
    return blueprint;
}

/* Of a group of the model in fp32, all chunks. */
static void bytes_by_formula_when_on_the_host_are_those_of_the_text(void **state)
{
    (void)state;
    static const char *const settings[] = {"device=cpu",         "policy=host", "accumulate=3",
                                           "accumulation=micro", "adam=host",   NULL};
    sl_config config;
    sl_search search;
    uint64_t bytes[SL_LANE_COUNT];
    configure(&config, settings);
    sl_blueprint *blueprint = find_blueprint(&config, &search);
    uint64_t group = 0;
    for (uint32_t chunk = 0; chunk < blueprint->layout->chunk_count; chunk++)
        group += sl_layout_chunk_bytes(blueprint->layout, SL_GROUP_PARAM, chunk);
    sl_bytes_by_formula(blueprint, bytes);
    assert_int_equal(bytes[SL_LANE_H2D], (2 * 3 + 2) * group);
    assert_int_equal(bytes[SL_LANE_D2H], 3 * group);
    assert_int_equal(bytes[SL_LANE_READ] + bytes[SL_LANE_WRITE], 0);
    sl_blueprint_close(blueprint);
    sl_config_clear(&config);
}

/* Frozen parameters are fetched for the forward pass and never come back; so are those of the
 * first block here. */
static void bytes_by_formula_when_tensors_are_frozen_leave_out_what_does_not_move(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "device=cpu",      "policy=host", "accumulate=3", "accumulation=micro", "adam=host",
        "freeze=w*,h.0.*", NULL};
    sl_config config;
    sl_search search;
    uint64_t bytes[SL_LANE_COUNT], trained = 0, frozen = 0;
    configure(&config, settings);
    sl_blueprint *blueprint = find_blueprint(&config, &search);
    const sl_layout *layout = blueprint->layout;
    uint64_t head = 0; /* of the panels, which the head's backward reads */
    for (uint32_t c = 0; c < layout->chunk_count; c++) {
        const uint64_t chunk = sl_layout_chunk_bytes(layout, SL_GROUP_PARAM, c);
        bool has_panel = false;
        for (uint32_t t = 0; t < layout->tensor_count; t++)
            has_panel =
                has_panel || (layout->chunk_of_tensor[t] == c &&
                              strcmp(blueprint->programs[0]->tensors[t].name, "wte.weight") == 0);
        *(layout->chunks[c].rule != SL_RULE_NONE ? &trained : has_panel ? &head : &frozen) += chunk;
    }
    sl_bytes_by_formula(blueprint, bytes);
    assert_true(trained > 0 && head > 0);
    assert_int_equal(bytes[SL_LANE_H2D], (2 * 3 + 2) * trained + 2 * 3 * head + 3 * frozen);
    assert_int_equal(bytes[SL_LANE_D2H], 3 * trained);
    sl_blueprint_close(blueprint);
    sl_config_clear(&config);
}

/* ---- a disk that is slow ---- */

static sl_status fill_zeros(void *user, const sl_engine_fill *what, void *memory)
{
    (void)user;
    memset(memory, 0, what->bytes);
    return SL_OK;
}

enum { SLOW_STEPS = 3, SLOW_US = 3000 };

/* Steps over a disk whose requests take their time, with all that a trainer would have open. */
static void measure_slow_disk(const sl_config *config, const sl_search *search,
                              sl_blueprint *blueprint, sl_measured *measured)
{
    const sl_engine_plan step_plan = {blueprint->programs[0], blueprint->plans[0]};
    const sl_engine_source source = {fill_zeros, NULL};
    const sl_engine_parts parts = {.transport = &store_double_ops};
    sl_record *record = NULL;
    sl_engine_statistics statistics;
    sl_runtime runtime = {.blueprint = blueprint};
    assert_int_equal(sl_record_open(&step_plan, 1, &record), SL_OK);
    const sl_engine_options options = {.target = blueprint->task.target,
                                       .layout = blueprint->layout,
                                       .homes = blueprint->homes,
                                       .plans = &step_plan,
                                       .plan_count = 1,
                                       .disk_directories =
                                           (const char *const *)config->disk_dir.items,
                                       .disk_directory_count = config->disk_dir.count,
                                       .source = &source,
                                       .paint_arenas = true,
                                       .observer = sl_record_observer(record, NULL)};
    store_double_arm((store_double_plan){.seed = 1, .delay_us = SLOW_US});
    if (sl_engine_open_with(&options, &parts, &runtime.engine) != SL_OK)
        fail_msg("%s", sl_status_message());
    const sl_step_scalars scalars = {.loss_scale = 1, .bias1 = 1, .bias2_root = 1, .epsilon = 1};
    for (int i = 0; i < 1 + SLOW_STEPS; i++)
        assert_int_equal(sl_engine_step(runtime.engine, 0, &scalars), SL_OK);
    assert_int_equal(sl_engine_drain(runtime.engine), SL_OK);
    sl_engine_take_statistics(runtime.engine, &statistics);
    const sl_trainer trainer = {
        .config = (sl_config *)config, .shape = small, .search = *search, .runtime = &runtime};
    const sl_accounts_source from = {
        .trainer = &trainer, .record = record, .statistics = &statistics, .step_count = SLOW_STEPS};
    if (sl_accounts_fill(&from, measured) != SL_OK)
        fail_msg("%s", sl_status_message());
    sl_engine_close(runtime.engine);
    sl_record_close(record);
}

/* Nothing of the step takes as long as its reads, which come through the host: what is told is the
 * disk, and not the copy that stands between. */
static void verdict_when_the_disk_is_slow_names_it(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    char setting[SCRATCH_PATH_BYTES + 16];
    snprintf(setting, sizeof setting, "disk-dir=%s", directory.text);
    const char *const settings[] = {"device=cpu",        "policy=nvme", "nvme-params=1",
                                    "nvme-grads=1",      "threads=1",   setting,
                                    "micro-batch=1",     "prefetch=1",  "chunk-size=12000",
                                    "host-memory=2400K", NULL};
    sl_config config;
    sl_search search;
    sl_measured *measured = calloc(1, sizeof *measured);
    configure(&config, settings);
    sl_blueprint *blueprint = find_blueprint(&config, &search);
    measure_slow_disk(&config, &search, blueprint, measured);
    double disk_ms = measured->lanes[SL_LANE_COMPUTE].wait_ms[SL_LANE_READ] +
                     measured->lanes[SL_LANE_COMPUTE].wait_ms[SL_LANE_WRITE];
    print_message("%.1f of %.1f ms: %s\n", disk_ms, measured->step_ms, measured->bound_by);
    assert_true(disk_ms > 0.5 * measured->stall_ms);
    assert_true(measured->binding == SL_LANE_READ || measured->binding == SL_LANE_WRITE);
    assert_non_null(strstr(measured->bound_by, "disk"));
    assert_non_null(strstr(measured->to_be_faster, "drive"));
    assert_true(measured->stall_count > 0);
    assert_true(measured->stalls[0].cause == SL_LANE_READ ||
                measured->stalls[0].cause == SL_LANE_WRITE);
    double sum_ms = measured->compute_ms + measured->stall_ms + measured->gap_ms;
    assert_true(fabs(sum_ms - measured->step_ms) < 1e-6 * sum_ms);
    sl_blueprint_close(blueprint);
    sl_config_clear(&config);
    sl_measured_clear(measured);
    free(measured);
    scratch_close(&directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paint_when_a_plan_is_kept_then_its_peak_is_found),
        cmocka_unit_test(paint_when_a_kernel_writes_beyond_the_plan_then_it_shows),
        cmocka_unit_test(paint_when_it_was_not_asked_for_then_refused),
        cmocka_unit_test(waits_when_told_name_the_command_and_add_up_to_the_stalls),
        cmocka_unit_test(record_when_told_of_steps_then_sums_are_exact_and_the_warm_up_is_left_out),
        cmocka_unit_test(resident_when_read_then_each_mapping_has_its_owner),
        cmocka_unit_test(resident_when_of_this_process_then_the_kernel_agrees),
        cmocka_unit_test(cores_when_read_then_threads_are_added_up),
        cmocka_unit_test(cores_when_read_twice_then_the_share_of_waits_is_of_the_time_between),
        cmocka_unit_test(bytes_by_formula_when_on_the_host_are_those_of_the_text),
        cmocka_unit_test(bytes_by_formula_when_tensors_are_frozen_leave_out_what_does_not_move),
        cmocka_unit_test(verdict_when_the_disk_is_slow_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
