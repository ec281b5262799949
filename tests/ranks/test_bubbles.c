/* What could be wrong here: stages wait longer than their order asks for, because the engine makes
 * them: a lane that waits for more than it needs, an exchange that is issued too late, a step that
 * ends before its last pass.
 *
 * The engine runs whole steps, ranks as threads, with kernels that compute nothing: attention takes
 * a while, 1 forward and 2 backward a layer, and all other ops none.
 *
 * In virtual time, which no busy machine changes: an op begins when the one before it on its lane
 * is over, what it reads is there, and what it writes over was read; an exchange when both stages
 * have come to it. The clock is kept beside the bytes of the arena, so what counts is what the
 * engine's lanes really did, in the order in which they did it.
 *
 * With SL_TEST_FULL the kernels sleep, which needs no core, and a clock measures: a step is never
 * shorter than its order allows, for no sleep is; how much longer it is, is printed.
 */
#define _GNU_SOURCE
#define RANK_RUNS_LAYERS 12 /* even on 2, 3 and 4 stages */
#include "rank_runs.h"

#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "kernels/kernels.h"

enum { STAGES_MAX = 4, GRAIN_BYTES = 256, LAYER_TICKS = 100, ACTIVATION_BYTES = 2 * 24 * 40 * 4 };

static const uint64_t layer_ns = 2000000;

typedef struct stage_clock {
    const sl_program *program; /* NULL: the stage is not open */
    const unsigned char *arena;
    uint64_t grain_count;
    _Atomic uint64_t *written, *read; /* [grain_count], when last */
    uint64_t compute, comm;           /* each of its lane's thread */
    uint64_t slept_ns;
} stage_clock;

static stage_clock clocks[STAGES_MAX];
static bool sleeps;
static uint64_t exchange_ticks;

/* ---- the clock beside the arena ---- */

typedef struct grains {
    uint64_t first, end;
} grains;

static grains find_grains(const stage_clock *it, const void *memory, uint64_t bytes)
{
    const uint64_t offset = (uint64_t)((uintptr_t)memory - (uintptr_t)it->arena);
    if (memory == NULL || offset >= it->grain_count * GRAIN_BYTES)
        return (grains){0, 0};
    const uint64_t end = (offset + bytes + GRAIN_BYTES - 1) / GRAIN_BYTES;
    return (grains){offset / GRAIN_BYTES, end < it->grain_count ? end : it->grain_count};
}

static uint64_t latest(const _Atomic uint64_t *times, grains range, uint64_t time)
{
    for (uint64_t i = range.first; i < range.end; i++) {
        const uint64_t other = atomic_load(&times[i]);
        time = other > time ? other : time;
    }
    return time;
}

/* Two lanes may read the same at once. */
static void raise_to(_Atomic uint64_t *times, grains range, uint64_t time)
{
    for (uint64_t i = range.first; i < range.end; i++) {
        uint64_t old = atomic_load(&times[i]);
        while (old < time && !atomic_compare_exchange_weak(&times[i], &old, time))
            continue;
    }
}

static uint64_t ready_to_write(const stage_clock *it, grains range, uint64_t time)
{
    return latest(it->written, range, latest(it->read, range, time));
}

/* ---- kernels ---- */

static uint64_t ticks_of(sl_op_kind kind)
{
    return kind == SL_OP_ATTENTION            ? LAYER_TICKS
           : kind == SL_OP_ATTENTION_BACKWARD ? 2 * LAYER_TICKS
                                              : 0;
}

/* Attributes are those of the program's op; NULL: of another program. */
static const sl_op *find_op(const sl_kernel_call *call, stage_clock **out_clock)
{
    for (uint32_t s = 0; s < STAGES_MAX; s++) {
        const sl_program *program = clocks[s].program;
        if (program == NULL)
            continue;
        const uintptr_t offset = (uintptr_t)call->attrs - (uintptr_t)&program->ops[0].attrs;
        if (offset >= program->op_count * sizeof *program->ops)
            continue;
        *out_clock = &clocks[s];
        return &program->ops[offset / sizeof *program->ops];
    }
    return NULL;
}

static void sleep_for(stage_clock *it, uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    const uint64_t start = sl_clock_now_ns();
    if (ns > 0)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    it->slept_ns += sl_clock_now_ns() - start;
}

static void advance(stage_clock *it, const sl_op *op, const sl_kernel_call *call)
{
    grains ranges[SL_OPERAND_MAX] = {{0}};
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        if (op->operand[i] == SL_NONE)
            continue;
        ranges[i] = find_grains(it, call->operand[i], it->program->values[op->operand[i]].bytes);
        if (sl_op_reads(op, i))
            it->compute = latest(it->written, ranges[i], it->compute);
        if (sl_op_writes(op, i))
            it->compute = ready_to_write(it, ranges[i], it->compute);
    }
    it->compute += ticks_of(op->kind);
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        if (op->operand[i] == SL_NONE)
            continue;
        if (sl_op_reads(op, i))
            raise_to(it->read, ranges[i], it->compute);
        if (sl_op_writes(op, i))
            raise_to(it->written, ranges[i], it->compute);
    }
}

static sl_status run_op(const sl_kernel_call *call)
{
    stage_clock *it;
    const sl_op *op = find_op(call, &it);
    if (op == NULL)
        return SL_OK;
    if (sleeps)
        sleep_for(it, ticks_of(op->kind) * layer_ns / LAYER_TICKS);
    else
        advance(it, op, call);
    return SL_OK;
}

const sl_kernel_table *__real_sl_kernels_cpu(void);
const sl_kernel_table *__wrap_sl_kernels_cpu(void);
const sl_kernel_table *__wrap_sl_kernels_cpu(void)
{
    static sl_kernel_table table; /* the first call is of one thread */
    if (table.open == NULL) {
        table = *__real_sl_kernels_cpu();
        for (int op = 0; op < SL_OP_COUNT; op++)
            if (table.row[op].run != NULL)
                table.row[op].run = run_op;
    }
    return &table;
}

/* ---- exchanges ---- */

sl_status __real_sl_comm_exchange(sl_comm *comm, const sl_comm_exchange_args *args);
sl_status __wrap_sl_comm_exchange(sl_comm *comm, const sl_comm_exchange_args *args);

static sl_status exchange_times(sl_comm *comm, uint32_t peer, uint64_t mine, uint64_t *out_theirs)
{
    const sl_comm_exchange_args args = {.to = peer,
                                        .from = peer,
                                        .send = &mine,
                                        .send_bytes = sizeof mine,
                                        .receive = out_theirs,
                                        .receive_bytes = sizeof *out_theirs};
    return __real_sl_comm_exchange(comm, &args);
}

sl_status __wrap_sl_comm_exchange(sl_comm *comm, const sl_comm_exchange_args *args)
{
    stage_clock *it = &clocks[sl_comm_rank(comm)];
    if (sleeps || it->program == NULL)
        return __real_sl_comm_exchange(comm, args);
    const grains given = find_grains(it, args->send, args->send_bytes);
    const grains taken = find_grains(it, args->receive, args->receive_bytes);
    uint64_t ready = latest(it->written, given, it->comm), theirs = 0;
    ready = ready_to_write(it, taken, ready);
    SL_TRY(
        exchange_times(comm, args->to != SL_COMM_NOBODY ? args->to : args->from, ready, &theirs));
    SL_TRY(__real_sl_comm_exchange(comm, args));
    const bool is_tied = args->send_bytes > 0 && args->send_bytes != ACTIVATION_BYTES;
    it->comm = (ready > theirs ? ready : theirs) + (is_tied ? 0 : exchange_ticks);
    raise_to(it->read, given, it->comm);
    raise_to(it->written, taken, it->comm);
    return SL_OK;
}

/* ---- runs ---- */

static const char *const schedules[] = {"schedule=1f1b", "schedule=gpipe"};

static ranks_run *open_clocked(uint32_t stages, uint32_t micro_batches, int schedule)
{
    char accumulate[32];
    const char *const settings[] = {"policy=device",     "precision=fp32", "recompute=none",
                                    schedules[schedule], accumulate,       NULL};
    snprintf(accumulate, sizeof accumulate, "accumulate=%u", micro_batches);
    ranks_run *run = open_stages(1, 1, stages, settings, 1, NULL);
    for (uint32_t s = 0; s < stages; s++) {
        const sl_runtime *runtime = run->rank[s].runtime;
        const uint64_t bytes = sl_blueprint_peak_bytes(runtime->blueprint, SL_TIER_DEVICE);
        stage_clock *it = &clocks[s];
        *it = (stage_clock){.program = runtime->blueprint->programs[PLAN_STEP],
                            .arena = sl_engine_arena(runtime->engine, SL_TIER_DEVICE),
                            .grain_count = bytes / GRAIN_BYTES};
        it->written = calloc(it->grain_count, sizeof *it->written);
        it->read = calloc(it->grain_count, sizeof *it->read);
        assert_true(it->written != NULL && it->read != NULL);
    }
    return run;
}

static void close_clocked(ranks_run *run)
{
    for (uint32_t s = 0; s < STAGES_MAX; s++) {
        free((void *)clocks[s].written);
        free((void *)clocks[s].read);
        clocks[s] = (stage_clock){0};
    }
    close_run(run);
}

/* In ticks. */
static uint64_t play(uint32_t stages, uint32_t micro_batches, int schedule)
{
    ranks_run *run = open_clocked(stages, micro_batches, schedule);
    uint64_t end = 0;
    take_step(run);
    for (uint32_t s = 0; s < stages; s++)
        end = clocks[s].compute > end ? clocks[s].compute : end;
    close_clocked(run);
    return end;
}

/* Of a step in which no stage waits. */
static uint64_t ideal_ticks(uint32_t stages, uint32_t micro_batches)
{
    return (uint64_t)micro_batches * (RANK_RUNS_LAYERS / stages) * 3 * LAYER_TICKS;
}

static void steps_when_stages_are_equal_then_wait_for_p_minus_1_of_m_of_the_ideal(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 7, 12, 13, 32};
    exchange_ticks = 0;
    for (uint32_t p = 2; p <= STAGES_MAX; p++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
            for (int schedule = 0; schedule < 2; schedule++) {
                const uint32_t m = counts[i];
                if (!is_full() && (i + p + (uint32_t)schedule) % 2 != 0)
                    continue;
                const uint64_t took = play(p, m, schedule);
                const uint64_t expected = ideal_ticks(p, m) / m * (m + p - 1);
                if (took != expected)
                    fail_msg("%u stages, %u micro-batches, %s: %llu ticks, expected %llu", p, m,
                             schedules[schedule], (unsigned long long)took,
                             (unsigned long long)expected);
            }
}

/* In exchanges, of a step of many micro-batches. gpipe: two each way, one after the other, but for
 * what the first and the last stage take ahead. 1f1b: what is exchanged at once counts once. */
static void exchanges_when_they_take_time_then_cost_a_micro_batch_no_more_than_this(void **state)
{
    (void)state;
    static const uint64_t cost[2][STAGES_MAX + 1] = {{0, 0, 1, 2, 2}, {0, 0, 1, 4, 4}};
    enum { FEW = 24, MANY = 36 };
    exchange_ticks = 60;
    for (uint32_t p = 2; p <= STAGES_MAX; p++)
        for (int schedule = 0; schedule < 2; schedule++) {
            const uint64_t took = play(p, MANY, schedule) - play(p, FEW, schedule);
            const uint64_t more = took - ideal_ticks(p, MANY - FEW);
            if (more != cost[schedule][p] * (MANY - FEW) * exchange_ticks)
                fail_msg("%u stages, %s: %llu ticks more of %d micro-batches", p,
                         schedules[schedule], (unsigned long long)more, MANY - FEW);
        }
    exchange_ticks = 0;
}

/* ---- on a clock ---- */

typedef struct measured {
    double took, slept; /* seconds; slept: of a stage, the mean */
} measured;

static measured measure(uint32_t stages, uint32_t micro_batches, int schedule)
{
    measured it = {0};
    ranks_run *run = open_clocked(stages, micro_batches, schedule);
    take_step(run); /* the first one is not measured */
    for (uint32_t s = 0; s < stages; s++)
        clocks[s].slept_ns = 0;
    const uint64_t start = sl_clock_now_ns();
    take_step(run);
    it.took = 1e-9 * (double)(sl_clock_now_ns() - start);
    for (uint32_t s = 0; s < stages; s++)
        it.slept += 1e-9 * (double)clocks[s].slept_ns / stages;
    close_clocked(run);
    return it;
}

static void steps_when_kernels_sleep_then_are_not_shorter_than_their_order(void **state)
{
    (void)state;
    sleeps = true;
    print_message("stages  micro-batches  order  ideal s  took s  idle of ideal  (p - 1)/m\n");
    for (uint32_t p = 2; p <= STAGES_MAX; p++)
        for (uint32_t m = is_full() ? p : 8; m <= (is_full() ? 32u : 8u); m = m < 8 ? 8 : 2 * m)
            for (int schedule = 0; schedule < 2; schedule++) {
                const measured it = measure(p, m, schedule);
                const double ideal =
                    1e-9 * (double)layer_ns * (double)ideal_ticks(p, m) / LAYER_TICKS;
                print_message("%u %9u %20s %8.4f %8.4f %8.4f %8.4f\n", p, m,
                              schedules[schedule] + 9, ideal, it.took, it.took / it.slept - 1,
                              (p - 1.0) / m);
                assert_true(it.took >= ideal * (1 + (p - 1.0) / m));
            }
    sleeps = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_when_stages_are_equal_then_wait_for_p_minus_1_of_m_of_the_ideal),
        cmocka_unit_test(exchanges_when_they_take_time_then_cost_a_micro_batch_no_more_than_this),
        cmocka_unit_test(steps_when_kernels_sleep_then_are_not_shorter_than_their_order),
    };
    (void)disk, (void)disk_dir, (void)bf16_bound; /* all is on the device */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
