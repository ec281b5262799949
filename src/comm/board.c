/* The shared table of ranks: who is here, what each does, and how a wait ends. Knows nothing of
 * what is sent.
 *
 * Invariants:
 *   the boards of a file lie one behind the other and are equally large; all heads begin with the
 *     same bytes, and the rest of a new board is zeros: so ranks that make a board at the same time
 *     write the same bytes
 *   an entry is written by its own rank; `state` last, so who sees HERE sees the rest
 *   `verdict` goes from NONE to WRITING once, by the rank that won it, and then to GIVEN; the text
 *     does not change after that
 *   a board gives out memory upwards and takes no single window back: the system gets all of them
 *     when the last rank has left the board
 *   what a rank does is copied word by word, without a lock: it may be torn, and is only shown
 *   `progress` of the head is the largest progress number of this machine's ranks and of those that
 *     they have heard of; the numbers of the entries are not above it, and never decrease
 *
 * A wait is cut into ticks. At the end of each the sleeper looks whether the run has ended; it
 * counts its own ticks and not the clock, so a job that was suspended and goes on has waited for
 * two ticks. Deaths are noticed by the watch (watch.h).
 */
#define _GNU_SOURCE
#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/workers.h"
#include "window.h"

enum {
    OP_BYTES = SL_BOARD_OP_BYTES,
    OP_WORDS = OP_BYTES / 8, /* 63 bytes of text */
    REASON_BYTES = SL_STATUS_MESSAGE_BYTES,
    PAGE_BYTES = 4096,
    LOCAL_RANKS_MAX = 256,
    WINDOWS = 16, /* as large as the world's that fit: each rank is in a handful of communicators */
    SPINS = 2000, /* before a sleep: some tens of microseconds */
    SPINS_FEW = 40, /* less than a sleep costs */
    NS_A_TICK = 50000000,
    DEFAULT_TIMEOUT_S = 600,
    DEFAULT_HEARTBEAT_S = 60
};

static const uint64_t board_magic = 0x6472616f62636c73; /* "slcboard", least byte first */

/* In the order in which a rank has them. */
typedef enum rank_state { RANK_ABSENT, RANK_HERE, RANK_LEFT } rank_state;
typedef enum verdict_state { VERDICT_NONE, VERDICT_WRITING, VERDICT_GIVEN } verdict_state;

typedef struct board_entry {
    _Alignas(128) _Atomic uint32_t state; /* a rank_state */
    int32_t process;
    uint32_t world_rank;
    uint64_t process_space; /* in which `process` is a number */
    _Atomic uint64_t progress, beats;
    _Atomic uint64_t step;
    _Atomic uint64_t op[OP_WORDS];
    /* used in the first board of a file alone: */
    _Atomic uint32_t opened_count; /* boards that the rank has opened */
    _Atomic uint32_t has_ended;    /* the rank's process has */
    _Atomic uint32_t is_left[SL_BOARD_TEXTS];
    char texts[SL_BOARD_TEXTS][REASON_BYTES];
} board_entry;

typedef struct board_head {
    uint64_t magic, bytes; /* all before `arrived` is the same in the boards of a file */
    uint32_t rank_count, world_size;
    sl_board_bell arrived; /* rings whenever a rank joins */
    _Atomic uint64_t used; /* bytes given out, behind the world's window */
    _Atomic uint64_t progress;
    _Atomic uint32_t verdict;
    int32_t verdict_status;
    char verdict_text[REASON_BYTES];
    board_entry entries[];
} board_head;

typedef struct board_mapping {
    board_head *head;
    uint64_t start, bytes; /* in the file */
    int file;
    _Atomic uint32_t user_count;
} board_mapping;

/* ---- making ---- */

static uint64_t head_bytes(uint32_t rank_count)
{
    return sl_bits_round_up(sizeof(board_head) + rank_count * sizeof(board_entry), PAGE_BYTES);
}

static uint64_t board_bytes(uint32_t rank_count, uint32_t world_size)
{
    return sl_bits_round_up(head_bytes(rank_count) + WINDOWS * sl_window_bytes(world_size),
                            PAGE_BYTES);
}

/* Makes board `index` of the file, if no other rank has. The file never shrinks, and its size is
 * that of whole boards. */
static sl_status make_board(int file, uint32_t index, uint32_t rank_count, uint32_t world_size)
{
    const uint64_t bytes = board_bytes(rank_count, world_size), start = index * bytes;
    const board_head head = {
        .magic = board_magic, .bytes = bytes, .rank_count = rank_count, .world_size = world_size};
    const size_t common = offsetof(board_head, arrived);
    if (pwrite(file, "", 1, (off_t)(start + bytes - 1)) != 1 ||
        fallocate(file, 0, (off_t)start, (off_t)head_bytes(rank_count)) != 0 ||
        pwrite(file, &head, common, (off_t)start) != (ssize_t)common)
        SL_FAIL(SL_ERROR_SYSTEM, "no shared memory for %u ranks: %s%s", rank_count, strerror(errno),
                errno == EFBIG ? ": raise the limit of a file's size (ulimit -f)" : "");
    return SL_OK;
}

sl_status sl_board_create(uint32_t rank_count, uint32_t world_size, int *out_file)
{
    if (rank_count == 0 || rank_count > LOCAL_RANKS_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%u ranks on one machine: 1 to %d can share its memory", rank_count,
                LOCAL_RANKS_MAX);
    int file = memfd_create("sluice-ranks", MFD_CLOEXEC);
    if (file < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no shared memory for %u ranks: memfd_create: %s", rank_count,
                strerror(errno));
    sl_status status = make_board(file, 0, rank_count, world_size);
    if (status != SL_OK)
        close(file);
    else
        *out_file = file;
    return status;
}

/* The file came from another process: nothing in it is believed before it was looked at. */
static sl_status check_file(int file, board_head *out_head, uint32_t *out_board_count)
{
    struct stat info;
    if (fstat(file, &info) != 0 || pread(file, out_head, sizeof *out_head, 0) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "cannot read the ranks' shared memory: %s", strerror(errno));
    uint32_t ranks = out_head->rank_count, world = out_head->world_size;
    bool is_board = info.st_size > (off_t)sizeof *out_head && out_head->magic == board_magic &&
                    ranks > 0 && ranks <= LOCAL_RANKS_MAX && world >= ranks &&
                    world <= SL_COMM_RANKS_MAX && out_head->bytes == board_bytes(ranks, world);
    if (!is_board || (uint64_t)info.st_size % out_head->bytes != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "descriptor %d is no shared memory of this build's ranks: start all "
                "ranks with the same sluice",
                file);
    *out_board_count = (uint32_t)((uint64_t)info.st_size / out_head->bytes);
    return SL_OK;
}

static sl_status map_board(int file, uint32_t index, board_mapping **out_mapping)
{
    board_head head;
    uint32_t board_count;
    SL_TRY(check_file(file, &head, &board_count));
    if (index >= board_count)
        SL_FAIL(SL_ERROR_INTERNAL, "board %u of %u", index, board_count);
    board_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a communicator");
    mapping->start = index * head.bytes;
    mapping->bytes = head.bytes;
    mapping->file = fcntl(file, F_DUPFD_CLOEXEC, 3);
    void *memory = mapping->file < 0
                       ? MAP_FAILED
                       : mmap(NULL, mapping->bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_NORESERVE, mapping->file, (off_t)mapping->start);
    if (memory == MAP_FAILED) {
        int error = errno;
        if (mapping->file >= 0)
            close(mapping->file);
        free(mapping);
        SL_FAIL(SL_ERROR_SYSTEM, "cannot map the ranks' shared memory: %s", strerror(error));
    }
    mapping->head = memory;
    mapping->user_count = 1;
    *out_mapping = mapping;
    return SL_OK;
}

static void release_mapping(board_mapping *mapping)
{
    if (atomic_fetch_sub(&mapping->user_count, 1) > 1)
        return;
    munmap(mapping->head, mapping->bytes);
    close(mapping->file);
    free(mapping);
}

/* A waiting thread spins for long only if each rank has two cores: one for it, one for the rank's
 * work. */
static uint32_t choose_spins(uint32_t core_count, uint32_t rank_count)
{
    return core_count / 2 >= rank_count ? SPINS : SPINS_FEW;
}

static sl_status open_view(board_mapping *mapping, uint32_t local_index, sl_board **out_board)
{
    sl_board *board = calloc(1, sizeof *board);
    if (!board)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a communicator");
    board->mapping = mapping;
    board->head = mapping->head;
    board->rank_count = mapping->head->rank_count;
    board->local_index = local_index;
    board->spins = choose_spins(sl_workers_usable_cpu_count(), board->rank_count);
    board->timeout_s = DEFAULT_TIMEOUT_S;
    board->heartbeat_s = DEFAULT_HEARTBEAT_S;
    atomic_fetch_add(&mapping->user_count, 1);
    *out_board = board;
    return SL_OK;
}

/* Processes may be bound to a core each: of the whole machine's there have to be enough. */
static uint32_t count_cores(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return sl_limits_cpu_count("", online > 0 ? (uint32_t)online : 1);
}

/* Which board of the file this rank opens: the n-th time the n-th one, as every other rank does.
 * Makes that board if no other rank has. */
static sl_status take_next(int file, const board_mapping *first, uint32_t local_index,
                           uint32_t *out_index)
{
    board_head *head = first->head;
    *out_index = atomic_fetch_add(&head->entries[local_index].opened_count, 1);
    if (*out_index == 0)
        return SL_OK;
    SL_TRY(make_board(file, *out_index, head->rank_count, head->world_size));
    for (uint32_t i = 0; i < head->rank_count; i++)
        if (atomic_load(&head->entries[i].has_ended))
            SL_FAIL(SL_ERROR_RANK, "rank %u of this machine has ended, and opens no more worlds",
                    i);
    return SL_OK;
}

static sl_status find_board(int file, uint32_t local_index, bool is_of_processes,
                            uint32_t *out_index)
{
    board_mapping *first;
    sl_status status = SL_OK;
    *out_index = 0;
    SL_TRY(map_board(file, 0, &first));
    if (local_index >= first->head->rank_count)
        status = sl_status_fail(SL_ERROR_USAGE, "rank %u of %u on this machine", local_index,
                                first->head->rank_count);
    else if (is_of_processes)
        status = take_next(file, first, local_index, out_index);
    release_mapping(first);
    return status;
}

sl_status sl_board_open(int file, uint32_t local_index, bool is_of_processes, sl_board **out_board)
{
    board_mapping *mapping;
    sl_board *board;
    uint32_t index;
    SL_TRY(find_board(file, local_index, is_of_processes, &index));
    SL_TRY(map_board(file, index, &mapping));
    const sl_status status = open_view(mapping, local_index, &board);
    release_mapping(mapping);
    SL_TRY(status);
    if (is_of_processes)
        board->spins = choose_spins(count_cores(), board->rank_count);
    board->is_of_processes = is_of_processes;
    *out_board = board;
    return SL_OK;
}

sl_status sl_board_share(sl_board *first, uint32_t local_index, sl_board **out_board)
{
    return open_view(first->mapping, local_index, out_board);
}

/* A view that did not enter may be the second one of a rank that is here. */
void sl_board_leave(sl_board *board)
{
    uint32_t absent = RANK_ABSENT;
    _Atomic uint32_t *state = &board->head->entries[board->local_index].state;
    if (board->has_entered)
        atomic_store(state, RANK_LEFT);
    else
        atomic_compare_exchange_strong(state, &absent, RANK_LEFT);
}

/* Gives the windows back to the system once all ranks have left; the head stays. */
static void give_back(const sl_board *board)
{
    const board_mapping *it = board->mapping;
    const uint64_t kept = head_bytes(board->rank_count);
    for (uint32_t i = 0; i < board->rank_count; i++)
        if (atomic_load(&board->head->entries[i].state) != RANK_LEFT)
            return;
    (void)fallocate(it->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(it->start + kept),
                    (off_t)(it->bytes - kept));
}

void sl_board_close(sl_board *board)
{
    if (!board)
        return;
    sl_board_leave(board);
    if (board->is_of_processes)
        give_back(board);
    release_mapping(board->mapping);
    free(board);
}

/* ---- memory ---- */

sl_status sl_board_take(sl_board *board, uint64_t offset, uint64_t bytes)
{
    const uint64_t start = board->mapping->start + offset;
    if (bytes > 0 && fallocate(board->mapping->file, 0, (off_t)start, (off_t)bytes) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %llu bytes that ranks share: %s",
                (unsigned long long)bytes, strerror(errno));
    return SL_OK;
}

uint64_t sl_board_world_window(const sl_board *board)
{
    return head_bytes(board->rank_count);
}

sl_status sl_board_reserve(sl_board *board, uint64_t bytes, uint64_t *out_offset)
{
    const uint64_t first = sl_board_world_window(board) + sl_window_bytes(board->head->world_size);
    uint64_t rounded = sl_bits_round_up(bytes, PAGE_BYTES);
    uint64_t offset = first + atomic_fetch_add(&board->head->used, rounded);
    if (offset + rounded > board->mapping->bytes)
        SL_FAIL(SL_ERROR_SYSTEM, "more communicators than the ranks' shared memory has room for");
    *out_offset = offset;
    return SL_OK;
}

void *sl_board_memory(const sl_board *board, uint64_t offset)
{
    return (char *)board->head + offset;
}

/* ---- what a rank does ---- */

void sl_board_post(sl_board *board, uint64_t step, const char *op)
{
    board_entry *entry = &board->head->entries[board->local_index];
    uint64_t words[OP_WORDS] = {0};
    size_t length = strnlen(op, OP_BYTES - 1);
    memcpy(words, op, length);
    atomic_store_explicit(&entry->step, step, memory_order_relaxed);
    for (int i = 0; i < OP_WORDS; i++)
        atomic_store_explicit(&entry->op[i], words[i], memory_order_relaxed);
    sl_board_advance(board);
}

/* Word by word, as it was written: torn perhaps. */
static void read_post(const board_entry *entry, uint64_t *out_step, char out_op[OP_BYTES])
{
    uint64_t words[OP_WORDS];
    for (int i = 0; i < OP_WORDS; i++)
        words[i] = atomic_load_explicit(&entry->op[i], memory_order_relaxed);
    *out_step = atomic_load_explicit(&entry->step, memory_order_relaxed);
    memcpy(out_op, words, OP_BYTES);
    out_op[OP_BYTES - 1] = '\0';
}

void sl_board_last_post(const sl_board *board, uint64_t *out_step, char out_op[OP_BYTES])
{
    read_post(&board->head->entries[board->local_index], out_step, out_op);
}

/* "stopped" of a process that a signal holds; "" else. */
static const char *describe_process(int32_t process)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[length] = '\0';
    const char *end = strrchr(text, ')');
    return end && strncmp(end, ") T", 3) == 0 ? ", stopped by a signal" : "";
}

sl_board_name sl_board_describe(const sl_board *board, uint32_t local_index)
{
    const board_entry *entry = &board->head->entries[local_index];
    char process[64] = "", what[OP_BYTES + 48] = "", op[OP_BYTES];
    uint64_t step;
    sl_board_name name;
    if (atomic_load(&entry->state) < RANK_HERE) {
        snprintf(name.text, sizeof name.text, "rank %u of this machine, which never started",
                 local_index);
        return name;
    }
    read_post(entry, &step, op);
    if (*op)
        snprintf(what, sizeof what, ", last in step %llu at %s", (unsigned long long)step, op);
    if (board->is_of_processes)
        snprintf(process, sizeof process, " (process %d%s)", entry->process,
                 describe_process(entry->process));
    snprintf(name.text, sizeof name.text, "rank %u%s%s", entry->world_rank, process, what);
    return name;
}

/* ---- progress ---- */

static void raise_to(_Atomic uint64_t *word, uint64_t number)
{
    uint64_t before = atomic_load(word);
    while (before < number && !atomic_compare_exchange_weak(word, &before, number))
        ;
}

void sl_board_advance(sl_board *board)
{
    const uint64_t number = atomic_fetch_add(&board->head->progress, 1) + 1;
    raise_to(&board->head->entries[board->local_index].progress, number);
}

uint64_t sl_board_progress(const sl_board *board)
{
    return atomic_load(&board->head->entries[board->local_index].progress);
}

/* ---- signs of life ---- */

void sl_board_beat(sl_board *board)
{
    atomic_fetch_add(&board->head->entries[board->local_index].beats, 1);
}

bool sl_board_is_waiting(const sl_board *board)
{
    return atomic_load(&board->sleep_count) > 0;
}

uint64_t sl_board_process_space(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (uint64_t)info.st_ino : 0;
}

sl_board_rank sl_board_read_rank(const sl_board *board, uint32_t local_index)
{
    const board_entry *entry = &board->head->entries[local_index];
    if (atomic_load(&entry->state) != RANK_HERE)
        return (sl_board_rank){0};
    return (sl_board_rank){.is_here = true,
                           .process = entry->process,
                           .process_space = entry->process_space,
                           .beats = atomic_load(&entry->beats)};
}

/* ---- ending ---- */

void sl_board_end(sl_board *board, sl_status status, const char *format, ...)
{
    board_head *head = board->head;
    uint32_t none = VERDICT_NONE;
    va_list arguments;
    if (!atomic_compare_exchange_strong(&head->verdict, &none, VERDICT_WRITING))
        return;
    head->verdict_status = status;
    va_start(arguments, format);
    vsnprintf(head->verdict_text, REASON_BYTES, format, arguments);
    va_end(arguments);
    atomic_store(&head->verdict, VERDICT_GIVEN);
}

void sl_board_end_quiet(sl_board *board, const char *who)
{
    sl_board_end(board, SL_ERROR_RANK,
                 "%s has given no sign of life for %.3g s (--heartbeat-timeout)", who,
                 board->heartbeat_s);
}

/* A verdict that is being written is waited for, a tenth of a second at most: its writer may have
 * died there. */
static uint32_t read_verdict(const sl_board *board)
{
    const struct timespec pause = {0, 100000};
    uint32_t verdict = atomic_load_explicit(&board->head->verdict, memory_order_acquire);
    for (int i = 0; verdict == VERDICT_WRITING && i < 1000; i++) {
        nanosleep(&pause, NULL);
        verdict = atomic_load_explicit(&board->head->verdict, memory_order_acquire);
    }
    return verdict;
}

sl_status sl_board_poll(const sl_board *board)
{
    uint32_t verdict = read_verdict(board);
    if (verdict == VERDICT_NONE)
        return SL_OK;
    if (verdict == VERDICT_WRITING)
        SL_FAIL(SL_ERROR_RANK, "another rank ended the run");
    return sl_status_fail((sl_status)board->head->verdict_status, "%.*s", REASON_BYTES - 1,
                          board->head->verdict_text);
}

/* ---- waiting ---- */

sl_status sl_board_end_wait(sl_board *board, const sl_board_wait *wait, const char *who,
                            bool has_left)
{
    const sl_board_name mine = sl_board_describe(board, board->local_index);
    if (has_left)
        sl_board_end(board, SL_ERROR_RANK, "%s has ended, but is needed by %s of %s in %s", who,
                     wait->op, wait->comm, mine.text);
    else
        sl_board_end(board, SL_ERROR_RANK,
                     "%s did not come to %s of %s within %.0f s (--rank-timeout); it was waited "
                     "for by %s",
                     who, wait->op, wait->comm, board->timeout_s, mine.text);
    return sl_board_poll(board);
}

static bool has_changed(const sl_board_wait *wait)
{
    return atomic_load(&wait->bell->word) != wait->seen;
}

void sl_board_heed(sl_board *board, sl_board_patience *patience, uint64_t progress)
{
    if (progress <= patience->progress)
        return;
    patience->progress = progress;
    patience->waited_ns = 0;
    raise_to(&board->head->progress, progress);
    raise_to(&board->head->entries[board->local_index].progress, progress);
}

/* Fails if waiting on has no sense. */
static sl_status check_wait(sl_board *board, sl_board_patience *patience, const sl_board_wait *wait)
{
    uint64_t now = sl_clock_now_ns();
    uint64_t passed = patience->last_ns ? now - patience->last_ns : 0;
    patience->last_ns = now;
    patience->waited_ns += passed < 2ull * NS_A_TICK ? passed : 2ull * NS_A_TICK;
    SL_TRY(sl_board_poll(board));
    if (wait->local_index >= board->rank_count)
        return SL_OK;
    const board_entry *awaited = &board->head->entries[wait->local_index];
    sl_board_heed(board, patience, atomic_load(&awaited->progress));
    /* Who has left came before: its state is looked at first. */
    bool has_left = atomic_load(&awaited->state) == RANK_LEFT;
    bool is_over = has_left || 1e-9 * (double)patience->waited_ns > board->timeout_s;
    if (!is_over || has_changed(wait))
        return SL_OK;
    return sl_board_end_wait(board, wait, sl_board_describe(board, wait->local_index).text,
                             has_left);
}

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

sl_status sl_board_sleep(sl_board *board, sl_board_patience *patience, const sl_board_wait *wait)
{
    static const struct timespec tick = {0, NS_A_TICK};
    while (patience->spins < board->spins) {
        patience->spins++;
        pause_briefly();
        if (atomic_load_explicit(&wait->bell->word, memory_order_acquire) != wait->seen)
            return SL_OK;
    }
    SL_TRY(sl_board_poll(board));
    if (patience->last_ns == 0)
        patience->last_ns = sl_clock_now_ns();
    atomic_fetch_add(&board->sleep_count, 1);
    atomic_fetch_add(&wait->bell->sleepers, 1);
    bool is_late = false;
    if (!has_changed(wait))
        is_late =
            syscall(SYS_futex, &wait->bell->word, FUTEX_WAIT, wait->seen, &tick, NULL, 0) != 0 &&
            errno == ETIMEDOUT;
    atomic_fetch_sub(&wait->bell->sleepers, 1);
    atomic_fetch_sub(&board->sleep_count, 1);
    return is_late ? check_wait(board, patience, wait) : SL_OK;
}

void sl_board_ring(sl_board_bell *bell)
{
    atomic_fetch_add(&bell->word, 1);
    if (atomic_load(&bell->sleepers) > 0)
        syscall(SYS_futex, &bell->word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- joining ---- */

/* The first rank that has not come; rank_count: all have. */
static uint32_t find_absent(const sl_board *board)
{
    uint32_t rank = 0;
    while (rank < board->rank_count && atomic_load(&board->head->entries[rank].state) >= RANK_HERE)
        rank++;
    return rank;
}

void sl_board_enter(sl_board *board, uint32_t world_rank)
{
    board_entry *entry = &board->head->entries[board->local_index];
    entry->process = (int32_t)getpid();
    entry->process_space = sl_board_process_space();
    entry->world_rank = world_rank;
    board->has_entered = true;
    atomic_store(&entry->state, RANK_HERE);
    sl_board_ring(&board->head->arrived);
}

sl_status sl_board_join(sl_board *board, uint32_t world_rank)
{
    sl_board_patience patience = {0};
    sl_board_enter(board, world_rank);
    for (;;) {
        uint32_t seen = atomic_load(&board->head->arrived.word), missing = find_absent(board);
        if (missing == board->rank_count)
            return SL_OK;
        sl_board_wait wait = {"world", "the start", missing, &board->head->arrived, seen};
        SL_TRY(sl_board_sleep(board, &patience, &wait));
    }
}

/* ---- for the process that started the ranks ---- */

sl_status sl_board_leave_text(int file, uint32_t local_index, bool is_last, const char *text,
                              bool *out_is_left)
{
    board_mapping *mapping;
    uint32_t index = is_last ? SL_BOARD_LAST_WORDS : 0;
    const uint32_t end = is_last ? SL_BOARD_TEXTS : SL_BOARD_REMARKS;
    SL_TRY(map_board(file, 0, &mapping));
    board_entry *entry = &mapping->head->entries[local_index];
    const bool is_rank = local_index < mapping->head->rank_count;
    while (is_rank && index < end && atomic_load(&entry->is_left[index]))
        index++;
    *out_is_left = is_rank && index < end;
    if (*out_is_left) {
        snprintf(entry->texts[index], REASON_BYTES, "%s", text);
        atomic_store(&entry->is_left[index], 1);
    }
    release_mapping(mapping);
    return SL_OK;
}

sl_status sl_board_read_text(int file, uint32_t local_index, uint32_t text_index,
                             char out_text[SL_STATUS_MESSAGE_BYTES])
{
    board_mapping *mapping;
    SL_TRY(map_board(file, 0, &mapping));
    const board_entry *entry = &mapping->head->entries[local_index];
    const bool is_left =
        local_index < mapping->head->rank_count && atomic_load(&entry->is_left[text_index]);
    snprintf(out_text, REASON_BYTES, "%.*s", REASON_BYTES - 1,
             is_left ? entry->texts[text_index] : "");
    release_mapping(mapping);
    return SL_OK;
}

static sl_status lose_on(int file, uint32_t index, uint32_t local_index, const char *how)
{
    board_mapping *mapping;
    SL_TRY(map_board(file, index, &mapping));
    sl_board view = {.head = mapping->head};
    if (atomic_load(&mapping->head->entries[local_index].state) < RANK_HERE)
        sl_board_end(&view, SL_ERROR_RANK, "rank %u of this machine %s before all ranks had come",
                     local_index, how);
    release_mapping(mapping);
    return SL_OK;
}

/* Notes the end before the boards are counted: a rank that makes a board later finds the note. */
static sl_status note_end(int file, uint32_t local_index, uint32_t *out_board_count)
{
    board_head head;
    board_mapping *first;
    SL_TRY(map_board(file, 0, &first));
    const bool is_rank = local_index < first->head->rank_count;
    if (is_rank)
        atomic_store(&first->head->entries[local_index].has_ended, 1);
    release_mapping(first);
    SL_TRY(check_file(file, &head, out_board_count));
    *out_board_count = is_rank ? *out_board_count : 0;
    return SL_OK;
}

sl_status sl_board_lose(int file, uint32_t local_index, const char *how)
{
    uint32_t board_count;
    SL_TRY(note_end(file, local_index, &board_count));
    for (uint32_t i = 0; i < board_count; i++)
        SL_TRY(lose_on(file, i, local_index, how));
    return SL_OK;
}
