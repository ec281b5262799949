/* Worlds that the processes of a run open one after the other and beside each other. What could be
 * wrong: a rank meets the others in another world than they are in; the end of one world ends
 * another; memory of communicators is not given back; a rank that has ended is waited for.
 */
#define _GNU_SOURCE
#include "comm_world.h"

static void sum_up(sl_comm *world, answer *out)
{
    float sum = 1;
    if (sl_comm_all_reduce(world, SL_COMM_FP32, 1, &sum) != SL_OK || sum != 3)
        complain(out, "the sum is %g: %s", (double)sum, sl_status_message());
}

/* Worlds beside the first one and one after the other, each with communicators of its own: all of
 * them together have more than one board has room for. */
static void open_again(sl_comm *world, const void *argument, answer *out)
{
    enum { WORLDS = 6, SPLITS = 4 };
    const uint32_t all[] = {0, 1, 2};
    (void)argument;
    for (int i = 0; i < WORLDS; i++) {
        sl_comm *second, *parts[SPLITS] = {NULL};
        if (sl_comm_open(0, &second) != SL_OK) {
            complain(out, "world %d: %s", i, sl_status_message());
            return;
        }
        for (int s = 0; s < SPLITS; s++)
            if (sl_comm_split(second, "tp", all, 3, &parts[s]) != SL_OK)
                complain(out, "world %d: %s", i, sl_status_message());
        sum_up(second, out);
        sum_up(parts[SPLITS - 1], out);
        sum_up(world, out);
        for (int s = 0; s < SPLITS; s++)
            sl_comm_close(parts[s]);
        if (i % 2 == 0)
            sl_comm_stop(second, "only this world ends");
        sl_comm_close(second);
    }
    sum_up(world, out);
}

static void world_when_opened_again_is_another_one(void **state)
{
    (void)state;
    run_right(&carriers[1], 3, open_again, NULL);
    run_right(&carriers[2], 3, open_again, NULL);
}

/* The last rank ends after the first world; the others open a second one, at once or after a while.
 * They wait for the last rank at most until its end is told, not for the world's 600 s. */
static void open_without_last(sl_comm *world, const void *argument, answer *out)
{
    const bool waits = *(const bool *)argument, is_last = sl_comm_rank(world) == 2;
    sl_comm *second;
    sl_comm_close(world);
    if (is_last)
        _exit(0);
    if (waits)
        sleep_ms(500);
    const sl_status status = sl_comm_open(0, &second);
    if (status != SL_ERROR_RANK || !strstr(sl_status_message(), "rank 2 of this machine"))
        complain(out, "status %d: %s", status, sl_status_message());
    _exit(0);
}

static void world_when_a_rank_has_ended_is_not_opened_again(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const bool waits = i == 1;
        const rank_run run = {.body = open_without_last, .argument = &waits};
        answer *answers = share_answers();
        pid_t ids[3];
        int file, state_of;
        const double start = now_s();
        assert_int_equal(sl_board_create(3, 3, &file), SL_OK);
        start_ranks(3, dup(file), &run, answers, ids);
        waitpid(ids[2], &state_of, 0);
        if (!waits)
            sleep_ms(300);
        assert_int_equal(sl_board_lose(file, 2, "ended with code 0"), SL_OK);
        wait_for_processes(2, ids, answers);
        close(file);
        expect_right(&carriers[1], 3, answers);
        assert_true(now_s() - start < 60);
        munmap(answers, RANKS_MAX * sizeof *answers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(world_when_opened_again_is_another_one),
        cmocka_unit_test(world_when_a_rank_has_ended_is_not_opened_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
