/* What could be wrong in taking memory: it is promised and not there, so that the system ends the
 * run in the middle of a step; more is taken than is free; two runs that start together take more
 * than there is between them; a forked child or a core dump gets a copy. Machines with little
 * memory are made up: what is free there is what pages of the mappings leave of it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/cpu.h"
#include "device/device.h"

#define MIB (UINT64_C(1) << 20)

enum { PAGE = 4096, RUNS = 2 };

static uint64_t count_pages(const void *memory, uint64_t bytes)
{
    unsigned char *seen = malloc(bytes / PAGE);
    uint64_t count = 0;
    assert_non_null(seen);
    assert_int_equal(mincore((void *)memory, bytes, seen), 0);
    for (uint64_t i = 0; i < bytes / PAGE; i++)
        count += seen[i] & 1;
    free(seen);
    return count;
}

/* ---- memory exists ---- */

static void memory_when_taken_then_exists(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {PAGE, 5 * MIB, 70 * MIB + 3 * PAGE};
    const sl_device_ops *ops = sl_device_ops_of(SL_DEVICE_CPU);
    sl_device *device = NULL;
    assert_int_equal(ops->open(0, NULL, &device), SL_OK);
    for (int i = 0; i < 3; i++) {
        void *memory = NULL;
        assert_int_equal(ops->map(device, sizes[i], SL_MAP_PLAIN, &memory), SL_OK);
        assert_int_equal(count_pages(memory, sizes[i]), sizes[i] / PAGE);
        ops->unmap(device, memory, sizes[i], SL_MAP_PLAIN);
    }
    ops->close(device);
}

/* Whether the mapping that holds `address` carries a flag, as /proc/self/smaps has it. */
static bool has_flag(const void *address, const char *flag)
{
    char line[512];
    unsigned long start, end;
    bool is_it = false, found = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            is_it = (uintptr_t)address >= start && (uintptr_t)address < end;
        else if (is_it && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line + 8, flag) != NULL;
    }
    fclose(file);
    return found;
}

static void memory_when_taken_then_is_left_out_of_forks_and_core_dumps(void **state)
{
    (void)state;
    const sl_device_ops *ops = sl_device_ops_of(SL_DEVICE_CPU);
    const int flags[] = {SL_MAP_PLAIN, SL_MAP_GUARDS};
    sl_device *device = NULL;
    assert_int_equal(ops->open(0, NULL, &device), SL_OK);
    for (int i = 0; i < 4; i++) {
        const bool is_host = i / 2;
        void *memory = NULL;
        assert_int_equal(
            (is_host ? ops->map_host : ops->map)(device, 3 * MIB, flags[i % 2], &memory), SL_OK);
        assert_true(has_flag(memory, " dc"));
        assert_true(has_flag(memory, " dd"));
        (is_host ? ops->unmap_host : ops->unmap)(device, memory, 3 * MIB, flags[i % 2]);
    }
    ops->close(device);
}

/* ---- a machine with little memory ---- */

typedef struct small_machine {
    uint64_t bytes;
    void *memory[RUNS];
    uint64_t mapped_bytes;
    pthread_mutex_t lock;
    pthread_cond_t has_changed;
    uint64_t most_taken;
    int takers;  /* that still take, and read together */
    int readers; /* of them, that wait for the others */
    uint64_t rounds, read_bytes;
} small_machine;

static uint64_t count_taken(small_machine *machine)
{
    uint64_t taken = 0;
    for (int i = 0; i < RUNS; i++)
        if (machine->memory[i])
            taken += count_pages(machine->memory[i], machine->mapped_bytes) * PAGE;
    if (taken > machine->most_taken)
        machine->most_taken = taken;
    return taken;
}

static uint64_t count_free(small_machine *machine)
{
    uint64_t taken = count_taken(machine);
    return taken < machine->bytes ? machine->bytes - taken : 0;
}

static sl_status read_small(void *context, uint64_t *out_bytes)
{
    *out_bytes = count_free(context);
    return SL_OK;
}

static void open_machine(small_machine *machine, uint64_t bytes, uint64_t mapped_bytes)
{
    *machine = (small_machine){.bytes = bytes, .mapped_bytes = mapped_bytes};
    assert_int_equal(pthread_mutex_init(&machine->lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&machine->has_changed, NULL), 0);
    for (int i = 0; i < RUNS; i++)
        assert_int_equal(sl_cpu_memory_map(mapped_bytes, SL_MAP_PLAIN, &machine->memory[i]), SL_OK);
}

static void close_machine(small_machine *machine)
{
    for (int i = 0; i < RUNS; i++)
        sl_cpu_memory_unmap(machine->memory[i], machine->mapped_bytes, SL_MAP_PLAIN);
    pthread_cond_destroy(&machine->has_changed);
    pthread_mutex_destroy(&machine->lock);
}

/* One run alone: all that is planned, up to the reserve, and not a page beyond. */
static void memory_when_little_is_free_then_is_taken_up_to_the_reserve(void **state)
{
    (void)state;
    const uint64_t machine_bytes = 160 * MIB;
    const uint64_t most = machine_bytes - sl_device_host_reserve_bytes(machine_bytes);
    const uint64_t sizes[] = {PAGE, most / 2 / PAGE * PAGE, most, most + PAGE, 2 * most};
    for (int i = 0; i < 5; i++) {
        small_machine machine;
        open_machine(&machine, machine_bytes, sizes[i]);
        const sl_cpu_free free_there = {read_small, &machine};
        sl_status status = sl_cpu_memory_populate_within(machine.memory[0], sizes[i], &free_there);
        assert_int_equal(status, sizes[i] <= most ? SL_OK : SL_ERROR_FIT);
        assert_true(count_taken(&machine) <= most);
        if (status == SL_OK)
            assert_true(count_taken(&machine) == sizes[i]);
        else
            assert_non_null(strstr(sl_status_message(), "are still free"));
        close_machine(&machine);
    }
}

typedef struct taker {
    small_machine *machine;
    int index;
    sl_status status;
} taker;

/* The lock is held. All that still take are here, and each is told what is free now. */
static void end_round_if_all_are_here(small_machine *machine)
{
    if (machine->readers < machine->takers)
        return;
    machine->read_bytes = count_free(machine);
    machine->readers = 0;
    machine->rounds++;
    pthread_cond_broadcast(&machine->has_changed);
}

/* Nobody takes while another one reads, or before all have read. */
static sl_status read_together(void *context, uint64_t *out_bytes)
{
    small_machine *machine = context;
    pthread_mutex_lock(&machine->lock);
    const uint64_t round = machine->rounds;
    machine->readers++;
    end_round_if_all_are_here(machine);
    while (machine->rounds == round)
        pthread_cond_wait(&machine->has_changed, &machine->lock);
    *out_bytes = machine->read_bytes;
    pthread_mutex_unlock(&machine->lock);
    return SL_OK;
}

static void *take(void *argument)
{
    taker *self = argument;
    small_machine *machine = self->machine;
    const sl_cpu_free free_there = {read_together, machine};
    self->status = sl_cpu_memory_populate_within(machine->memory[self->index],
                                                 machine->mapped_bytes, &free_there);
    pthread_mutex_lock(&machine->lock);
    machine->takers--;
    if (machine->takers > 0)
        end_round_if_all_are_here(machine);
    pthread_mutex_unlock(&machine->lock);
    return NULL;
}

/* Two that plan four fifths of the same memory each, without a lock, and always read the same. */
static void memory_when_two_take_it_at_once_then_is_never_overdrawn(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        small_machine machine;
        open_machine(&machine, 160 * MIB, 128 * MIB);
        machine.takers = RUNS;
        taker takers[RUNS] = {{&machine, 0, SL_OK}, {&machine, 1, SL_OK}};
        pthread_t threads[RUNS];
        for (int i = 0; i < RUNS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, take, &takers[i]), 0);
        for (int i = 0; i < RUNS; i++)
            pthread_join(threads[i], NULL);
        count_taken(&machine);
        assert_true(machine.most_taken <= machine.bytes);
        for (int i = 0; i < RUNS; i++)
            assert_true(takers[i].status == SL_OK || takers[i].status == SL_ERROR_FIT);
        assert_true(takers[0].status == SL_ERROR_FIT || takers[1].status == SL_ERROR_FIT);
        close_machine(&machine);
    }
}

/* ---- claims ---- */

static void claim_when_more_is_needed_than_is_free_then_names_both(void **state)
{
    (void)state;
    const sl_host_need needs[] = {{.device_bytes = UINT64_C(1) << 50},
                                  {.host_bytes = UINT64_C(1) << 50},
                                  {.disk_bytes = UINT64_C(1) << 50}};
    for (int i = 0; i < 3; i++) {
        sl_host_claim claim = {{-1}};
        assert_int_equal(sl_host_claim_open(&needs[i], &claim), SL_ERROR_FIT);
        assert_int_equal(sl_status_exit_code(SL_ERROR_FIT), 69);
        assert_non_null(strstr(sl_status_message(), "1125899906842624 bytes"));
        assert_non_null(strstr(sl_status_message(), "--device-memory"));
    }
    const sl_host_need small = {.device_bytes = 1000, .host_bytes = 1000};
    for (int i = 0; i < 2; i++) { /* one that was refused left nothing locked */
        sl_host_claim claim = {{-1}};
        assert_int_equal(sl_host_claim_open(&small, &claim), SL_OK);
        assert_true(claim.lock.file >= 0);
        sl_host_claim_close(&claim);
    }
}

static _Atomic bool is_second_through;

/* Any user can lock what any user can open. */
static void claim_when_a_file_of_all_users_is_locked_then_does_not_wait(void **state)
{
    (void)state;
    const sl_host_need small = {.device_bytes = 1};
    sl_host_claim claim = {{-1}};
    int other = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    struct stat info;
    assert_true(other >= 0 && flock(other, LOCK_EX) == 0);
    assert_int_equal(sl_host_claim_open(&small, &claim), SL_OK);
    assert_true(claim.lock.file >= 0);
    assert_int_equal(fstat(claim.lock.file, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    sl_host_claim_close(&claim);
    close(other);
}

static void *claim_second(void *argument)
{
    const sl_host_need small = {.host_bytes = 1000};
    sl_host_claim claim = {{-1}};
    *(sl_status *)argument = sl_host_claim_open(&small, &claim);
    atomic_store(&is_second_through, true);
    sl_host_claim_close(&claim);
    return NULL;
}

static void claim_when_another_is_open_then_waits(void **state)
{
    (void)state;
    const sl_host_need small = {.host_bytes = 1000};
    const struct timespec pause = {.tv_nsec = 100000000};
    sl_host_claim claim = {{-1}};
    sl_status second = SL_ERROR_INTERNAL;
    pthread_t thread;
    assert_int_equal(sl_host_claim_open(&small, &claim), SL_OK);
    assert_int_equal(pthread_create(&thread, NULL, claim_second, &second), 0);
    nanosleep(&pause, NULL);
    assert_false(atomic_load(&is_second_through));
    sl_host_claim_close(&claim);
    pthread_join(thread, NULL);
    assert_int_equal(second, SL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_when_taken_then_exists),
        cmocka_unit_test(memory_when_taken_then_is_left_out_of_forks_and_core_dumps),
        cmocka_unit_test(memory_when_little_is_free_then_is_taken_up_to_the_reserve),
        cmocka_unit_test(memory_when_two_take_it_at_once_then_is_never_overdrawn),
        cmocka_unit_test(claim_when_more_is_needed_than_is_free_then_names_both),
        cmocka_unit_test(claim_when_another_is_open_then_waits),
        cmocka_unit_test(claim_when_a_file_of_all_users_is_locked_then_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
