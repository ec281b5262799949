/* What could be wrong when a rank fails: the others wait for ever, or end without saying who was
 * missing and where; a rank that is suspended, or a whole job that is, is taken for dead too early;
 * so is one that works for longer than the deadline, as in a slow save, or one that waits for it; a
 * call that differs between ranks gives numbers, or a hang, in the place of a refusal; a failure is
 * forgotten and later calls go on. Each way to fail is done to a world of threads or processes, and
 * every survivor has to say the rank, the op and the step, in time. */
#define _GNU_SOURCE
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "comm_world.h"

static void expect_said(const answer *answers, uint32_t rank, const char *part)
{
    if (!strstr(answers[rank].text, part))
        fail_msg("rank %u says \"%s\", without \"%s\"", rank, answers[rank].text, part);
}

/* The status and message of what a rank met. */
static void tell(sl_status status, answer *out)
{
    snprintf(out->text, sizeof out->text, "%d: %s", status,
             status == SL_OK ? "fine" : sl_status_message());
}

/* ---- calls that differ ---- */

typedef struct difference {
    const char *what;
    void (*call)(sl_comm *world, bool is_odd, answer *out);
} difference;

static void merge_max(void *sum, const void *other)
{
    if (*(const uint32_t *)other > *(uint32_t *)sum)
        *(uint32_t *)sum = *(const uint32_t *)other;
}

static void differ_in_operation(sl_comm *world, bool is_odd, answer *out)
{
    float data[4] = {1, 2, 3, 4};
    tell(is_odd ? sl_comm_broadcast(world, 0, sizeof data, data)
                : sl_comm_all_reduce(world, SL_COMM_FP32, 4, data),
         out);
}

static void differ_in_count(sl_comm *world, bool is_odd, answer *out)
{
    float data[64] = {0};
    tell(sl_comm_all_reduce(world, SL_COMM_FP32, is_odd ? 63 : 64, data), out);
}

static void differ_in_type(sl_comm *world, bool is_odd, answer *out)
{
    float data[64] = {0};
    tell(sl_comm_all_reduce(world, is_odd ? SL_COMM_FP16 : SL_COMM_BF16, 64, data), out);
}

static void differ_in_root(sl_comm *world, bool is_odd, answer *out)
{
    uint32_t data = 7;
    tell(sl_comm_broadcast(world, is_odd, sizeof data, &data), out);
}

static void differ_in_order(sl_comm *world, bool is_odd, answer *out)
{
    uint32_t record = 1;
    float data[2] = {1, 2};
    sl_status status = SL_OK;
    for (int i = 0; i < 2 && status == SL_OK; i++)
        status = (i == 0) == is_odd ? sl_comm_merge(world, sizeof record, &record, merge_max)
                                    : sl_comm_all_reduce(world, SL_COMM_FP32, 2, data);
    tell(status, out);
}

static void differ_in_pieces(sl_comm *world, bool is_odd, answer *out)
{
    uint64_t starts[RANKS_MAX + 1] = {0};
    for (uint32_t i = 1; i <= sl_comm_size(world); i++)
        starts[i] = 10 * i - (is_odd && i == 1);
    float from[10 * RANKS_MAX] = {0}, to[16];
    const sl_comm_types types = {SL_COMM_FP32, SL_COMM_FP32};
    tell(sl_comm_reduce_scatter_pieces(world, types, starts, from, to), out);
}

static void skip_one(sl_comm *world, bool is_odd, answer *out)
{
    float data[2] = {1, 2};
    sl_status status = is_odd ? SL_OK : sl_comm_all_reduce(world, SL_COMM_FP32, 0, data);
    tell(status == SL_OK ? sl_comm_all_reduce(world, SL_COMM_FP32, 2, data) : status, out);
}

static const difference differences[] = {
    {"operation", differ_in_operation}, {"count", differ_in_count}, {"type", differ_in_type},
    {"root", differ_in_root},           {"order", differ_in_order}, {"pieces", differ_in_pieces},
    {"a call left out", skip_one},
};

static void run_difference(sl_comm *world, const void *argument, answer *out)
{
    const difference *it = argument;
    it->call(world, sl_comm_rank(world) == 1, out);
    if (sl_comm_barrier(world) == SL_OK)
        complain(out, "goes on after ranks differed in %s", it->what);
}

static void calls_when_they_differ_between_ranks_are_refused_by_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++) {
        const carrier *on = &carriers[i % CARRIER_COUNT];
        answer *answers = share_answers();
        on->run(3, run_difference, &differences[i], answers);
        expect_right(on, 3, answers);
        for (uint32_t rank = 0; rank < 3; rank++) {
            expect_said(answers, rank, "-5: "); /* SL_ERROR_INTERNAL */
            expect_said(answers, rank, "ranks call different things in world");
        }
        munmap(answers, RANKS_MAX * sizeof *answers);
    }
}

static void exchange_too_little(sl_comm *world, const void *argument, answer *out)
{
    (void)argument;
    char send[100] = {0}, receive[100];
    uint32_t other = 1 - sl_comm_rank(world);
    const sl_comm_exchange_args args = {other, other, send, 100 - other, receive, 100};
    tell(sl_comm_exchange(world, &args), out);
}

static void exchange_when_sizes_differ_is_refused(void **state)
{
    (void)state;
    for (int on = 0; on < CARRIER_COUNT; on++) {
        answer *answers = share_answers();
        carriers[on].run(2, exchange_too_little, NULL, answers);
        for (uint32_t rank = 0; rank < 2; rank++) {
            expect_said(answers, rank, "exchange of 99 elements");
            expect_said(answers, rank, "exchange of 100 elements");
        }
        munmap(answers, RANKS_MAX * sizeof *answers);
    }
}

/* ---- ranks that are missing ---- */

/* The deadline of ranks that wait for one that does not come, which is not to pass while the others
 * of a busy machine come. What needs no deadline ends long before LONG_S. */
enum { LATE_MS = 1000, LONG_S = 60 };

typedef enum fate { FATE_LATE, FATE_LEAVES, FATE_ABORTS, FATE_KILLED, FATE_STOPPED } fate;

static void meet_fate(sl_comm *world, fate it)
{
    if (it == FATE_ABORTS)
        sl_comm_abort(world, "the disk is full");
    if (it == FATE_KILLED)
        raise(SIGKILL);
    if (it == FATE_STOPPED)
        raise(SIGSTOP);
    if (it == FATE_LATE)
        sleep_ms(3 * LATE_MS);
}

/* Rank 1 meets its fate in step 12; the others sum. */
static void run_fate(sl_comm *world, const void *argument, answer *out)
{
    fate it = *(const fate *)argument;
    float data[2] = {1, 2};
    double start = now_s();
    sl_status status = SL_OK;
    sl_comm_set_timeout(world, 2 * LONG_S);
    for (uint64_t step = 10; step < 13 && status == SL_OK; step++) {
        if (step == 12 && (it == FATE_LATE || it == FATE_STOPPED)) /* all have started */
            sl_comm_set_timeout(world, 1e-3 * LATE_MS);
        sl_comm_post(world, step, step == 12 ? "h.3.mlp sum" : "h.0.mlp sum");
        if (sl_comm_rank(world) == 1 && step == 12) {
            meet_fate(world, it);
            return;
        }
        status = sl_comm_all_reduce(world, SL_COMM_FP32, 2, data);
    }
    tell(status, out);
    if (now_s() - start > LONG_S)
        complain(out, "waited for %.1f s", now_s() - start);
    if (sl_comm_poll(world) != SL_ERROR_RANK ||
        sl_comm_broadcast(world, 0, 8, data) != SL_ERROR_RANK)
        complain(out, "goes on after a rank was lost");
}

static const struct expectation {
    fate fate;
    const char *says;
    enum { BY_THREADS, BY_PROCESSES, BY_MACHINES } carrier;
} expectations[] = {
    {FATE_LATE, "did not come to all_reduce of world within 1 s (--rank-timeout)", BY_THREADS},
    {FATE_LEAVES, "has ended, but is needed by all_reduce of world", BY_THREADS},
    {FATE_LEAVES, "has ended, but is needed by all_reduce of world", BY_PROCESSES},
    {FATE_ABORTS, "gave up: the disk is full", BY_THREADS},
    {FATE_ABORTS, "gave up: the disk is full", BY_PROCESSES},
    {FATE_KILLED, "a rank has died: rank 1 (process", BY_PROCESSES},
    {FATE_STOPPED, "stopped by a signal", BY_PROCESSES},
    {FATE_LATE, "did not come to all_reduce of world within 1 s (--rank-timeout)", BY_MACHINES},
    {FATE_LEAVES, "has ended, but is needed by all_reduce of world", BY_MACHINES},
    {FATE_ABORTS, "gave up: the disk is full", BY_MACHINES},
};

static void expect_fate(const struct expectation *it, uint32_t size, const answer *answers)
{
    for (uint32_t rank = 0; rank < size; rank++) {
        if (rank == 1)
            continue;
        if (answers[rank].is_wrong)
            fail_msg("rank %u: %s", rank, answers[rank].text);
        expect_said(answers, rank, "-8: "); /* SL_ERROR_RANK */
        expect_said(answers, rank, it->says);
        expect_said(answers, rank, "rank 1");
        /* Of one elsewhere it is known what it told last. */
        expect_said(answers, rank, it->carrier == BY_MACHINES ? "in step 1" : "step 12 at h.3.mlp");
    }
}

/* Waits for all but rank 1, which is then killed if it has not ended. */
static void end_processes(const pid_t *ids, uint32_t size)
{
    int state;
    for (uint32_t i = 0; i < size; i++)
        if (i != 1)
            waitpid(ids[i], &state, 0);
    kill(ids[1], SIGKILL);
    waitpid(ids[1], &state, 0);
}

static void ranks_when_one_is_missing_name_it_with_op_and_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof expectations / sizeof expectations[0]; i++) {
        const struct expectation *it = &expectations[i];
        answer *answers = share_answers();
        pid_t ids[RANKS_MAX];
        const rank_run run = {.body = run_fate, .argument = &it->fate};
        if (it->carrier == BY_PROCESSES) {
            start_processes(3, &run, answers, ids);
            end_processes(ids, 3);
        } else if (it->carrier == BY_MACHINES) {
            run_machines(3, run_fate, &it->fate, answers);
        } else {
            run_threads(3, run_fate, &it->fate, answers);
        }
        expect_fate(it, 3, answers);
        munmap(answers, RANKS_MAX * sizeof *answers);
    }
}

/* ---- ranks that work for longer than the deadline ---- */

enum { DEADLINE_MS = 800, WORK_MS = 2 * DEADLINE_MS };

static void work(sl_comm *world)
{
    for (int ms = 0; ms < WORK_MS; ms += 20) {
        sl_comm_advance(world);
        sleep_ms(20);
    }
}

static sl_status receive_from(sl_comm *world, uint32_t rank)
{
    char byte;
    return sl_comm_exchange(
        world, &(sl_comm_exchange_args){
                   .to = SL_COMM_NOBODY, .from = rank, .receive = &byte, .receive_bytes = 1});
}

static sl_status send_to(sl_comm *world, uint32_t rank)
{
    return sl_comm_exchange(
        world,
        &(sl_comm_exchange_args){.to = rank, .from = SL_COMM_NOBODY, .send = "x", .send_bytes = 1});
}

/* Rank 0 waits for the last one, which works, and the others wait for rank 0. */
static void wait_for_work(sl_comm *world, const void *argument, answer *out)
{
    (void)argument;
    const uint32_t last = sl_comm_size(world) - 1, rank = sl_comm_rank(world);
    sl_status status = SL_OK;
    sl_comm_set_timeout(world, 1e-3 * DEADLINE_MS);
    if (rank == last) {
        work(world);
        status = send_to(world, 0);
    } else if (rank > 0) {
        status = receive_from(world, 0);
    } else {
        status = receive_from(world, last);
        for (uint32_t i = 1; i < last && status == SL_OK; i++)
            status = send_to(world, i);
    }
    if (status == SL_OK && rank == last)
        work(world);
    if (status == SL_OK)
        status = sl_comm_barrier(world);
    if (status != SL_OK)
        complain(out, "%s", sl_status_message());
}

static void ranks_when_one_works_for_longer_than_the_deadline_wait(void **state)
{
    (void)state;
    for (int on = 0; on < CARRIER_COUNT; on++)
        run_right(&carriers[on], 3, wait_for_work, NULL);
}

/* One piece of work takes several deadlines; ranks that are at work and wait for each other make no
 * progress. */
static void work_in_one_piece(sl_comm *world, const void *argument, answer *out)
{
    const uint32_t rank = sl_comm_rank(world);
    const bool in_a_circle = *(const bool *)argument;
    sl_comm_set_timeout(world, 1); /* several beats of a busy machine */
    sl_comm_set_work(world, true);
    if (rank == 0 && !in_a_circle)
        sleep_ms(2500);
    const sl_status status = in_a_circle ? receive_from(world, 1 - rank) : sl_comm_barrier(world);
    sl_comm_set_work(world, false);
    if ((status != SL_OK) != in_a_circle)
        complain(out, "%s", status == SL_OK ? "waits for ever" : sl_status_message());
}

static void rank_at_work_when_it_waits_for_nobody_is_waited_for(void **state)
{
    (void)state;
    for (int in_a_circle = 0; in_a_circle < 2; in_a_circle++)
        for (int on = 1; on < CARRIER_COUNT; on++) { /* threads have no watch */
            const bool argument = in_a_circle;
            run_right(&carriers[on], 2, work_in_one_piece, &argument);
        }
}

/* Rank 1 hangs, and rank 2 waits for it; rank 0 works meanwhile. */
static void work_beside_a_hang(sl_comm *world, const void *argument, answer *out)
{
    enum { LOOKS_MOST = LONG_S * 1000 / 20 };
    (void)argument;
    sl_comm_set_timeout(world, 1e-3 * DEADLINE_MS);
    if (sl_comm_rank(world) == 2) {
        tell(receive_from(world, 1), out);
        return;
    }
    for (int i = 0; i < LOOKS_MOST && sl_comm_poll(world) == SL_OK; i++) {
        sleep_ms(20);
        if (sl_comm_rank(world) == 0)
            sl_comm_advance(world);
    }
    tell(sl_comm_poll(world), out);
}

static void rank_that_hangs_when_another_one_works_is_named(void **state)
{
    (void)state;
    for (int on = 0; on < CARRIER_COUNT; on++) {
        answer *answers = share_answers();
        carriers[on].run(3, work_beside_a_hang, NULL, answers);
        for (uint32_t rank = 0; rank < 3; rank++) {
            expect_said(answers, rank, "rank 1");
            expect_said(answers, rank, "did not come to exchange of world");
        }
        munmap(answers, RANKS_MAX * sizeof *answers);
    }
}

/* Each waits for the next. */
static void wait_in_a_circle(sl_comm *world, const void *argument, answer *out)
{
    (void)argument;
    sl_comm_set_timeout(world, 1e-3 * DEADLINE_MS);
    sl_comm_post(world, 1, "a step");
    sl_comm_advance(world);
    tell(receive_from(world, (sl_comm_rank(world) + 1) % sl_comm_size(world)), out);
}

static void ranks_when_they_wait_in_a_circle_end(void **state)
{
    (void)state;
    for (int on = 0; on < CARRIER_COUNT; on++) {
        answer *answers = share_answers();
        carriers[on].run(4, wait_in_a_circle, NULL, answers);
        for (uint32_t rank = 0; rank < 4; rank++)
            expect_said(answers, rank, "did not come to exchange of world");
        munmap(answers, RANKS_MAX * sizeof *answers);
    }
}

/* ---- ranks that give no sign of life ---- */

/* The last rank is stopped, by threads of several machines only for the others. */
static void wait_without_a_call(sl_comm *world, const void *argument, answer *out)
{
    enum { LOOKS_MOST = LONG_S * 1000 / 20 };
    const bool is_of_processes = *(const bool *)argument;
    const uint32_t rank = sl_comm_rank(world);
    sl_comm_set_heartbeat(world, 1);
    sl_comm_post(world, 12, "h.3.mlp sum");
    sl_status status = sl_comm_barrier(world);
    if (rank == 2 && is_of_processes)
        raise(SIGSTOP);
    if (rank == 2)
        post_lost_rank = 2;
    for (int i = 0; i < LOOKS_MOST && status == SL_OK; i++) {
        sleep_ms(20);
        status = sl_comm_poll(world);
    }
    tell(status, out);
}

static void rank_when_it_gives_no_sign_of_life_is_named_without_a_call(void **state)
{
    (void)state;
    for (int is_of_processes = 0; is_of_processes < 2; is_of_processes++) {
        answer *answers = share_answers();
        pid_t ids[RANKS_MAX];
        const bool argument = is_of_processes;
        const rank_run run = {.body = wait_without_a_call, .argument = &argument};
        int state_of;
        if (is_of_processes)
            start_processes(3, &run, answers, ids);
        else
            run_machines(3, wait_without_a_call, &argument, answers);
        for (int i = 0; is_of_processes && i < 3; i++) {
            if (i == 2)
                kill(ids[i], SIGKILL);
            waitpid(ids[i], &state_of, 0);
        }
        post_lost_rank = UINT32_MAX;
        for (uint32_t rank = 0; rank < 2; rank++) {
            expect_said(answers, rank, "-8: rank 2");
            expect_said(answers, rank, "has given no sign of life for 1 s (--heartbeat-timeout)");
            expect_said(answers, rank, "h.3.mlp sum");
        }
        munmap(answers, RANKS_MAX * sizeof *answers);
    }
}

/* ---- ranks that never come ---- */

/* One that died after it had come is missed here. */
static void meet_once(sl_comm *world, const void *argument, answer *out)
{
    (void)argument;
    bool is_whole = sl_comm_barrier(world) == SL_OK;
    complain(out, "%s", is_whole ? "goes on without a rank" : sl_status_message());
}

/* Starts two of three ranks; the third one comes and dies, or does not come. */
static void start_without_one(bool has_come, int file, answer *answers, pid_t *ids)
{
    for (uint32_t i = 0; i < 2; i++) {
        const rank_run run = {.body = meet_once, .out = &answers[i]};
        ids[i] = fork();
        assert_true(ids[i] >= 0);
        if (ids[i] == 0)
            run_process(i, 3, file, &run);
    }
    ids[2] = fork();
    assert_true(ids[2] >= 0);
    if (ids[2] > 0)
        return;
    sl_board *board;
    if (has_come && sl_board_open(file, 2, true, &board) == SL_OK)
        sl_board_enter(board, 2);
    raise(SIGKILL);
}

static void ranks_when_one_dies_before_the_start_end_at_once(void **state)
{
    (void)state;
    for (int has_come = 0; has_come < 2; has_come++) {
        answer *answers = share_answers();
        pid_t ids[3];
        int file, state_of;
        assert_int_equal(sl_board_create(3, 3, &file), SL_OK);
        double start = now_s();
        start_without_one(has_come, file, answers, ids);
        waitpid(ids[2], &state_of, 0);
        if (!has_come)
            assert_int_equal(sl_board_lose(file, 2, "was ended by signal 9"), SL_OK);
        waitpid(ids[0], &state_of, 0);
        waitpid(ids[1], &state_of, 0);
        close(file);
        for (int i = 0; i < 2; i++)
            if (!strstr(answers[i].text, has_come ? "a rank has died: rank 2 (process"
                                                  : "rank 2 of this machine was ended by signal 9 "
                                                    "before all ranks had come"))
                fail_msg("rank %d says \"%s\"", i, answers[i].text);
        assert_true(now_s() - start < LONG_S);
        munmap(answers, RANKS_MAX * sizeof *answers);
    }
}

/* ---- ranks that meet at a socket, as mpirun's do ---- */

static void bind_name(const char *name, int *out_socket)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", name);
    *out_socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(*out_socket >= 0);
    assert_int_equal(bind(*out_socket, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))),
                     0);
    assert_int_equal(listen(*out_socket, 8), 0);
}

static void meet_and_part(sl_comm *world, const void *argument, answer *out)
{
    (void)argument;
    if (sl_comm_barrier(world) != SL_OK)
        complain(out, "%s", sl_status_message());
}

/* What anybody can know of the ranks' name has been taken, with a 0 in the place of the secret too.
 */
static void ranks_when_the_name_of_user_and_parent_is_taken_meet(void **state)
{
    (void)state;
    static const char *const endings[] = {"", "-0"};
    int taken[2];
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "sluice-ranks-%u-%d-0%s", (unsigned)geteuid(), (int)getpid(),
                 endings[i]);
        bind_name(name, &taken[i]);
    }
    run_right(&carriers[2], 2, meet_and_part, NULL);
    for (int i = 0; i < 2; i++)
        close(taken[i]);
}

/* The name at which children of this process listen; "" if none does yet. */
static void find_name(char name[108])
{
    char line[256], wanted[64];
    FILE *file = fopen("/proc/net/unix", "r");
    snprintf(wanted, sizeof wanted, "@sluice-ranks-%u-%d-", (unsigned)geteuid(), (int)getpid());
    name[0] = '\0';
    while (file && !name[0] && fgets(line, sizeof line, file)) {
        const char *found = strstr(line, wanted);
        if (found)
            snprintf(name, 108, "%.*s", (int)strcspn(found + 1, "\n"), found + 1);
    }
    if (file)
        fclose(file);
}

/* Connects, and says nothing. */
static void connect_silently(int *out_socket)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[108] = "";
    for (int i = 0; i < LONG_S * 1000 / 5 && !name[0]; i++) {
        sleep_ms(5);
        find_name(name);
    }
    assert_true(name[0] != '\0');
    memcpy(address.sun_path + 1, name, strlen(name));
    *out_socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    assert_true(*out_socket >= 0);
    assert_int_equal(connect(*out_socket, (struct sockaddr *)&address, bytes), 0);
}

static void start_met(uint32_t rank, answer *answers, pid_t *out_id)
{
    const rank_run run = {.body = meet_and_part, .out = &answers[rank]};
    *out_id = fork();
    assert_true(*out_id >= 0);
    if (*out_id == 0)
        run_process(rank, 2, -1, &run);
}

static void rank_when_somebody_connects_and_is_silent_meets_the_others(void **state)
{
    (void)state;
    enum { SILENT = 3 };
    answer *answers = share_answers();
    int silent[SILENT];
    pid_t ids[2];
    start_met(0, answers, &ids[0]);
    for (int i = 0; i < SILENT; i++)
        connect_silently(&silent[i]);
    start_met(1, answers, &ids[1]);
    wait_for_processes(2, ids, answers);
    expect_right(&carriers[2], 2, answers);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    munmap(answers, RANKS_MAX * sizeof *answers);
}

/* A host program is not to end with whoever started it. */
static void keep_own_end(sl_comm *world, const void *argument, answer *out)
{
    int number = -1;
    meet_and_part(world, argument, out);
    if (prctl(PR_GET_PDEATHSIG, &number) != 0 || number != 0)
        complain(out, "signal %d comes when the parent ends", number);
}

static void process_that_opens_a_world_does_not_end_with_its_parent(void **state)
{
    (void)state;
    for (int on = 0; on < CARRIER_COUNT; on++)
        run_right(&carriers[on], 2, keep_own_end, NULL);
}

/* ---- a job that is suspended ---- */

static void sum_for_a_while(sl_comm *world, const void *argument, answer *out)
{
    (void)argument;
    float data[2] = {1, 2};
    sl_comm_set_timeout(world, 1e-3 * DEADLINE_MS);
    double end = now_s() + 4e-3 * DEADLINE_MS;
    uint32_t is_over = 0;
    while (!is_over && !out->is_wrong) {
        is_over = now_s() > end;
        sleep_ms(sl_comm_rank(world) == 1 ? 20 : 0); /* the other is found waiting */
        if (sl_comm_all_reduce(world, SL_COMM_FP32, 2, data) != SL_OK ||
            sl_comm_merge(world, sizeof is_over, &is_over, merge_max) != SL_OK)
            complain(out, "%s", sl_status_message());
    }
}

static void job_when_suspended_for_two_deadlines_goes_on(void **state)
{
    (void)state;
    answer *answers = share_answers();
    pid_t ids[RANKS_MAX];
    const rank_run run = {.body = sum_for_a_while};
    start_processes(2, &run, answers, ids);
    sleep_ms(200);
    for (int i = 0; i < 2; i++)
        kill(ids[i], SIGSTOP);
    sleep_ms(2 * DEADLINE_MS + 100);
    for (int i = 0; i < 2; i++)
        kill(ids[i], SIGCONT);
    for (int i = 0; i < 2; i++) {
        int state_of;
        waitpid(ids[i], &state_of, 0);
    }
    expect_right(&carriers[1], 2, answers);
    munmap(answers, RANKS_MAX * sizeof *answers);
}

/* ---- an environment that is wrong ---- */

static void environment_when_it_contradicts_itself_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *rank, *size, *file, *says;
    } cases[] = {{"2", "2", "9", "SLUICE_RANK is \"2\""},
                 {"x", "2", "9", "SLUICE_RANK is \"x\""},
                 {"0", "0", "9", "SLUICE_RANKS is \"0\""},
                 {"0", "99999", "9", "SLUICE_RANKS"},
                 {"0", "2", "-1", "SLUICE_RANKS_FILE is \"-1\""},
                 {"0", "2", "400000", "shared memory"},
                 {"0", "2", "0", "shared memory"}};
    sl_comm *world;
    int kept = dup(STDIN_FILENO);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv(SL_ENVIRONMENT_RANK, cases[i].rank, 1);
        setenv(SL_ENVIRONMENT_SIZE, cases[i].size, 1);
        setenv(SL_ENVIRONMENT_FILE, cases[i].file, 1);
        assert_true(sl_comm_open(0, &world) != SL_OK);
        if (!strstr(sl_status_message(), cases[i].says))
            fail_msg("says \"%s\", without \"%s\"", sl_status_message(), cases[i].says);
    }
    unsetenv(SL_ENVIRONMENT_RANK);
    unsetenv(SL_ENVIRONMENT_SIZE);
    unsetenv(SL_ENVIRONMENT_FILE);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    assert_int_equal(sl_comm_open(0, &world), SL_OK);
    assert_int_equal(sl_comm_size(world), 1);
    sl_comm_close(world);
}

static void ranks_when_some_do_not_start_are_named(void **state)
{
    (void)state;
    sl_comm *world;
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1); /* nobody comes */
    assert_int_equal(sl_comm_open(0.2, &world), SL_ERROR_RANK);
    assert_non_null(strstr(sl_status_message(), "rank 1 has not started"));
    setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    assert_int_equal(sl_comm_open(0.2, &world), SL_ERROR_RANK);
    assert_non_null(strstr(sl_status_message(), "rank 0 has not started"));
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
}

static void arguments_when_impossible_are_refused(void **state)
{
    (void)state;
    sl_comm *world, *part, *other;
    float data[4] = {0};
    assert_int_equal(sl_comm_threads_open(1, &world), SL_OK);
    const sl_comm_types types = {SL_COMM_BF16, SL_COMM_FP32};
    assert_int_equal(sl_comm_all_reduce_stored(world, types, 4, data), SL_ERROR_INTERNAL);
    assert_int_equal(sl_comm_broadcast(world, 1, 4, data), SL_ERROR_INTERNAL);
    const sl_comm_exchange_args self = {.to = 0, .from = SL_COMM_NOBODY};
    assert_int_equal(sl_comm_exchange(world, &self), SL_ERROR_INTERNAL);
    assert_int_equal(sl_comm_split(world, "tp", (uint32_t[]){1}, 1, &part), SL_ERROR_INTERNAL);
    assert_int_equal(sl_comm_split(world, "tp", (uint32_t[]){0}, 1, &part), SL_OK);
    assert_int_equal(sl_comm_share_bytes(part), 0);
    assert_int_equal(sl_comm_barrier(part), SL_OK);
    assert_int_equal(sl_comm_split(part, "tp", (uint32_t[]){0}, 1, &other), SL_ERROR_INTERNAL);
    sl_comm_close(part);
    sl_comm_close(world);
    sl_comm_close(NULL);
    assert_int_equal(sl_comm_threads_open(100000, &world), SL_ERROR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_when_impossible_are_refused),
        cmocka_unit_test(environment_when_it_contradicts_itself_is_refused),
        cmocka_unit_test(ranks_when_some_do_not_start_are_named),
        cmocka_unit_test(calls_when_they_differ_between_ranks_are_refused_by_all),
        cmocka_unit_test(exchange_when_sizes_differ_is_refused),
        cmocka_unit_test(ranks_when_one_is_missing_name_it_with_op_and_step),
        cmocka_unit_test(ranks_when_one_works_for_longer_than_the_deadline_wait),
        cmocka_unit_test(rank_that_hangs_when_another_one_works_is_named),
        cmocka_unit_test(ranks_when_they_wait_in_a_circle_end),
        cmocka_unit_test(rank_when_it_gives_no_sign_of_life_is_named_without_a_call),
        cmocka_unit_test(rank_at_work_when_it_waits_for_nobody_is_waited_for),
        cmocka_unit_test(ranks_when_one_dies_before_the_start_end_at_once),
        cmocka_unit_test(process_that_opens_a_world_does_not_end_with_its_parent),
        cmocka_unit_test(ranks_when_the_name_of_user_and_parent_is_taken_meet),
        cmocka_unit_test(rank_when_somebody_connects_and_is_silent_meets_the_others),
        cmocka_unit_test(job_when_suspended_for_two_deadlines_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
