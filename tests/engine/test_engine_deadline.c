/* What could be wrong when a lane never ends what it does: a step, a drain or the closing hangs;
 * the failure does not say which op, on which lane and for how long, or is forgotten; memory that
 * the lane still uses is given back; the control thread hangs where it issues and not where it
 * waits; and the other way round, work that is slow but moves is ended.
 *
 * One body over the devices (engine_devices.h). A lane is held by a semaphore; once the engine is
 * gone it goes on, and computes on its memory. The limit is half a second where the default is
 * ten minutes.
 */
#define _GNU_SOURCE
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine_devices.h"

/* Some tenths of a second are what a busy machine may keep a lane from running. */
enum { REPEAT = 50, HELD_AT = 7, LIMIT_MS = 500, SLOW_LIMIT_MS = 800 };
enum { PAUSE_MS = 2 * SL_QUEUE_ASK_MS }; /* so that each wait is asked about */
enum { HANG_SECONDS = 250, TICKS = 6 };

/* What holds up a lane; written while no engine is open. */
static struct {
    const sl_op *ops;  /* of the plan that runs */
    uint32_t tick;     /* whose op is held, in micro-batch HELD_AT; TICKS: none */
    uint32_t pause_ms; /* that each addition takes on the compute lane */
    sem_t may_go_on;
    _Atomic uint32_t held, gone_on;
} hold;

static void stay(void *unused)
{
    (void)unused;
    atomic_fetch_add(&hold.held, 1);
    while (sem_wait(&hold.may_go_on) != 0) {
    }
    atomic_fetch_add(&hold.gone_on, 1);
}

static void pause_briefly(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = hold.pause_ms * 1000000L}, NULL);
}

/* In the lane, before what is launched next. */
static void run_before(const sl_kernel_call *call, void (*function)(void *unused))
{
#ifdef SL_TEST_STANDIN
    if (call->stream) {
        assert_int_equal(standin_queue(call->stream, "what holds up", function, NULL), 0);
        return;
    }
#endif
    (void)call;
    function(NULL);
}

static sl_status add(const sl_kernel_call *call)
{
    const sl_kernel_table *table = call->stream ? sl_kernels_of(device_kind) : sl_kernels_cpu();
    const bool is_held = hold.tick < TICKS && call->attrs == &hold.ops[hold.tick].attrs;
    const bool is_slow = hold.pause_ms > 0 && call->attrs == &hold.ops[3].attrs;
    if (is_held && call->micro_batch == HELD_AT)
        run_before(call, stay); /* what holds up others is written anew meanwhile */
    if (is_slow)
        run_before(call, pause_briefly);
    return table->row[SL_OP_ADD].run(call);
}

static sl_status fill_or_stay(void *user, const sl_engine_fill *what, void *memory)
{
    if (hold.tick == 1 && what->micro_batch == HELD_AT)
        stay(NULL);
    return fill(user, what, memory);
}

static sl_kernel_table table;

/* The stand-in is not started over: what a lane is held in stays live. */
static void make_held_plan(made_plan *p, int way, uint32_t tick, uint32_t limit_ms)
{
    make_plan(p, REPEAT);
    p->options.target.cuda.no_wait_value = way > 0;
    table = *sl_kernels_of(device_kind);
    table.row[SL_OP_ADD].run = add;
    p->parts.kernels = &table;
    p->source.fill = fill_or_stay;
    p->options.timeout_s = limit_ms / 1e3;
    hold.ops = p->ops;
    hold.tick = tick;
    hold.pause_ms = 0;
    hold.held = hold.gone_on = 0;
}

static bool is_mapped(const void *memory)
{
    unsigned char is_resident;
    return mincore((void *)(uintptr_t)memory, 1, &is_resident) == 0;
}

static void check_message(const char *const *parts)
{
    for (size_t i = 0; parts[i]; i++)
        if (!strstr(sl_status_message(), parts[i]))
            fail_msg("\"%s\" is not in \"%s\"", parts[i], sl_status_message());
}

static void check_fails(sl_engine *engine, const char *const *parts)
{
    const sl_step_scalars scalars = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sl_engine_step(engine, 0, &scalars), SL_ERROR_RANK);
        check_message(parts);
    }
    assert_int_equal(sl_engine_drain(engine), SL_ERROR_RANK);
    check_message(parts);
    assert_int_equal(atomic_load(&hold.held), 1);
}

/* Neither arena is given back, and the lane may go on in them. */
static void check_closing(sl_engine *engine)
{
    const void *host = sl_engine_arena(engine, SL_TIER_HOST);
    const void *device = sl_engine_arena(engine, SL_TIER_DEVICE);
    assert_false(sl_engine_close(engine));
    assert_true(is_mapped(host));
    assert_true(is_mapped(device));
    assert_int_equal(sem_post(&hold.may_go_on), 0);
    while (atomic_load(&hold.gone_on) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void hold_and_check(int way, uint32_t tick, const char *const *parts)
{
    static made_plan plans[2 * TICKS]; /* a lane that goes on may read its plan */
    made_plan *p = &plans[2 * tick + (uint32_t)way];
    make_held_plan(p, way, tick, LIMIT_MS);
    sl_engine *engine = open_engine(p);
    check_fails(engine, parts);
    check_closing(engine);
}

#define COMMON "no lane has got on", "stays taken until this process ends", "--rank-timeout"

static void op_of_the_compute_lane_when_it_never_ends_ends_the_run(void **state)
{
    (void)state;
    static const char *const parts[] = {"op 3 (add", "compute lane has not ended", COMMON, NULL};
    for (int way = 0; way < WAYS; way++)
        hold_and_check(way, 3, parts);
}

static void op_of_the_host_lane_when_it_never_ends_ends_the_run(void **state)
{
    (void)state;
    static const char *const parts[] = {"op 4 (add", "host lane has not ended", COMMON, NULL};
    for (int way = 0; way < WAYS; way++)
        hold_and_check(way, 4, parts);
}

static void source_when_it_never_answers_ends_the_run(void **state)
{
    (void)state;
    static const char *const parts[] = {"op 1 (input", "input lane has not ended", COMMON, NULL};
    for (int way = 0; way < WAYS; way++)
        hold_and_check(way, 1, parts);
}

/* Many commands that together take longer than the limit. */
static void step_when_it_is_slow_but_moves_is_not_ended(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        made_plan p;
        const sl_step_scalars scalars = {0};
        make_held_plan(&p, way, TICKS, SLOW_LIMIT_MS);
        hold.pause_ms = PAUSE_MS;
        sl_engine *engine = open_engine(&p);
        const uint64_t start_ns = sl_clock_now_ns();
        if (sl_engine_step(engine, 0, &scalars) != SL_OK)
            fail_msg("%s", sl_status_message());
        assert_true(sl_clock_now_ns() - start_ns > SLOW_LIMIT_MS * UINT64_C(1000000));
        assert_true(sl_engine_close(engine));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_when_it_is_slow_but_moves_is_not_ended),
        cmocka_unit_test(op_of_the_compute_lane_when_it_never_ends_ends_the_run),
        cmocka_unit_test(op_of_the_host_lane_when_it_never_ends_ends_the_run),
        cmocka_unit_test(source_when_it_never_answers_ends_the_run),
    };
    alarm(HANG_SECONDS);
    assert_int_equal(sem_init(&hold.may_go_on, 0, 0), 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
