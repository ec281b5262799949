/* Large calls through the store, as the read and write lanes move chunks: written first, then read
 * back, then both at once. A call is larger than the queue, the file larger than any cache of a
 * drive, the data random, and each byte is touched once a pass.
 *
 * The roof is the same file system without a store: as many threads as the store has transfers,
 * with pread and pwrite past the page cache. What the disk costs in cores is the process's CPU time
 * over the time.
 */
#define _GNU_SOURCE
#include "disk.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "fio.h"
#include "offload/store_file.h"

enum { SMALL_CALLS = 64, SMALL_CALL_BYTES = 64 << 10, DEPTH_DEFAULT = 0, PASSES_MAX = 2 };
enum { ROOF_THREADS = 32, ROOF_DIRECTORIES_MAX = 16, ROOF_ROUNDS = 2, MIXED_ROUNDS = 3 };
enum { FIO_DEPTH = 32, FIO_ROUNDS = 3, FIO_MS = 1000, FIO_QUICK_MS = 200 }; /* the store's depth */

typedef struct disk_size {
    uint64_t file_bytes, call_bytes;
} disk_size;

static const disk_size full_size = {UINT64_C(1) << 30, UINT64_C(32) << 20};
static const disk_size quick_size = {UINT64_C(32) << 20, UINT64_C(4) << 20};

typedef struct measurement {
    const sl_bench_options *options;
    sl_bench *bench;
    const disk_size *size;
    sl_store *store;
    uint8_t *buffer; /* of two calls: one for each lane */
    bool is_in_use;  /* by requests that never came back */
    double roof[SL_STORE_LANE_COUNT];
} measurement;

/* ---- passes ---- */

static double read_cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static sl_status run_pass(sl_disk_pass *pass)
{
    double cpu = read_cpu_seconds();
    uint64_t start = sl_clock_now_ns(), last = start;
    while (pass->moved_bytes < pass->range_bytes) {
        uint64_t at = pass->first_byte + pass->moved_bytes;
        if (pass->lane == SL_STORE_READ)
            SL_TRY(sl_store_read(pass->store, at, pass->buffer, pass->call_bytes));
        else
            SL_TRY(sl_store_write(pass->store, at, pass->buffer, pass->call_bytes));
        uint64_t now = sl_clock_now_ns();
        sl_samples_add(&pass->seconds, 1e-9 * (double)(now - last));
        pass->moved_bytes += pass->call_bytes;
        pass->total_seconds = 1e-9 * (double)(now - start);
        last = now;
    }
    pass->cpu_seconds = read_cpu_seconds() - cpu;
    return SL_OK;
}

static void *run_pass_thread(void *argument)
{
    sl_disk_pass *pass = argument;
    pass->status = run_pass(pass);
    if (pass->status != SL_OK)
        snprintf(pass->message, sizeof pass->message, "%s", sl_status_message());
    return NULL;
}

sl_status sl_disk_run(sl_disk_pass *passes, uint32_t count)
{
    pthread_t threads[PASSES_MAX];
    uint32_t started = 1;
    while (started < count && started < PASSES_MAX &&
           pthread_create(&threads[started], NULL, run_pass_thread, &passes[started]) == 0)
        started++;
    sl_status status = started == count ? run_pass(&passes[0]) : SL_OK;
    for (uint32_t i = 1; i < started; i++)
        pthread_join(threads[i], NULL);
    SL_TRY(status);
    if (started < count)
        SL_FAIL(SL_ERROR_SYSTEM, "cannot start a thread that uses the disk");
    for (uint32_t i = 1; i < count; i++)
        if (passes[i].status != SL_OK)
            SL_FAIL(passes[i].status, "%s", passes[i].message);
    return SL_OK;
}

void sl_disk_fill(void *address, uint64_t bytes, uint64_t seed)
{
    uint64_t state = seed, *words = address;
    for (uint64_t i = 0; i < bytes / sizeof *words; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i] = state ^ state >> 31;
    }
}

/* ---- the roof ---- */

typedef struct roof_job {
    sl_store_file files[ROOF_DIRECTORIES_MAX];
    uint32_t file_count;
    uint64_t piece_count;
    bool is_write;
    _Atomic uint64_t next_piece;
    _Atomic int error;
} roof_job;

static void *transfer_pieces(void *argument)
{
    roof_job *job = argument;
    void *piece = NULL;
    if (posix_memalign(&piece, SL_STORE_ALIGNMENT, SL_STORE_PIECE_BYTES) != 0) {
        atomic_store(&job->error, ENOMEM);
        return NULL;
    }
    sl_disk_fill(piece, SL_STORE_PIECE_BYTES, (uintptr_t)piece);
    for (;;) {
        uint64_t index = atomic_fetch_add(&job->next_piece, 1);
        if (index >= job->piece_count || atomic_load(&job->error))
            break;
        int fd = job->files[index % job->file_count].fd;
        off_t offset = (off_t)(index / job->file_count * SL_STORE_PIECE_BYTES);
        ssize_t moved = job->is_write ? pwrite(fd, piece, SL_STORE_PIECE_BYTES, offset)
                                      : pread(fd, piece, SL_STORE_PIECE_BYTES, offset);
        if (moved != SL_STORE_PIECE_BYTES)
            atomic_store(&job->error, moved < 0 ? errno : EIO);
    }
    free(piece);
    return NULL;
}

static sl_status time_pieces(roof_job *job, double *out_rate)
{
    pthread_t threads[ROOF_THREADS];
    uint32_t count = 0;
    atomic_store(&job->next_piece, 0);
    uint64_t start = sl_clock_now_ns();
    while (count < ROOF_THREADS && pthread_create(&threads[count], NULL, transfer_pieces, job) == 0)
        count++;
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    double seconds = 1e-9 * (double)(sl_clock_now_ns() - start);
    int error = count == 0 ? EAGAIN : atomic_load(&job->error);
    bool is_refused = error == ENOMEM || error == EAGAIN; /* memory, or all threads */
    if (error)
        SL_FAIL(is_refused ? SL_ERROR_SYSTEM : SL_ERROR_IO, "%s: %s pieces of %d bytes failed: %s",
                job->files[0].directory, job->is_write ? "writing" : "reading",
                SL_STORE_PIECE_BYTES, strerror(error));
    *out_rate = (double)(job->piece_count * SL_STORE_PIECE_BYTES) / seconds;
    return SL_OK;
}

/* ---- fio, on the file of the roof, which is written by then ---- */

static sl_status run_fio(const measurement *m, int fd, bool is_write, sl_samples *rates)
{
    const sl_fio_job job = {.fd = fd,
                            .bytes = m->size->file_bytes,
                            .is_write = is_write,
                            .block_bytes = SL_STORE_PIECE_BYTES,
                            .depth = FIO_DEPTH,
                            .milliseconds = m->options->is_quick ? FIO_QUICK_MS : FIO_MS};
    double rate = 0;
    SL_TRY(sl_fio_run(&job, &rate));
    sl_samples_add(rates, rate);
    return SL_OK;
}

static sl_status add_fio_rows(const measurement *m, const sl_samples rates[SL_STORE_LANE_COUNT])
{
    static const char *const names[] = {"fio: read 1 MiB, 32 at a time",
                                        "fio: write 1 MiB, 32 at a time"};
    for (int lane = 0; lane < SL_STORE_LANE_COUNT; lane++) {
        sl_bench_row row = {.group = "disk", .type = "", .roof = m->roof[lane]};
        row.rate = sl_samples_percentiles(&rates[lane]);
        snprintf(row.name, sizeof row.name, "%s", names[lane]);
        SL_TRY(sl_bench_add(m->bench, &row));
    }
    return SL_OK;
}

/* It is a second opinion: where it is missing or fails the disk was measured all the same. */
static sl_status measure_fio(const measurement *m, const roof_job *roof)
{
    sl_samples rates[SL_STORE_LANE_COUNT] = {0};
    sl_status status = SL_OK;
    if (m->options->small_shape || roof->file_count != 1) {
        snprintf(m->bench->fio_note, sizeof m->bench->fio_note, "several directories");
        return SL_OK;
    }
    for (int round = 0; round < FIO_ROUNDS && status == SL_OK; round++) {
        status = run_fio(m, roof->files[0].fd, false, &rates[SL_STORE_READ]);
        if (status == SL_OK)
            status = run_fio(m, roof->files[0].fd, true, &rates[SL_STORE_WRITE]);
    }
    if (status == SL_OK)
        return add_fio_rows(m, rates);
    snprintf(m->bench->fio_note, sizeof m->bench->fio_note, "%.120s", sl_status_message());
    return SL_OK;
}

/* The better of two rounds counts, for the first one finds the file's blocks new. */
static sl_status measure_roof(measurement *m)
{
    const uint64_t bytes = m->size->file_bytes;
    roof_job job = {.piece_count = bytes / SL_STORE_PIECE_BYTES};
    uint32_t wanted = m->options->disk_directory_count;
    wanted = wanted < ROOF_DIRECTORIES_MAX ? wanted : ROOF_DIRECTORIES_MAX;
    sl_status status = SL_OK;
    while (job.file_count < wanted && status == SL_OK) {
        status =
            sl_store_file_open(m->options->disk_directories[job.file_count],
                               bytes / wanted + SL_STORE_PIECE_BYTES, &job.files[job.file_count]);
        job.file_count += status == SL_OK;
    }
    for (int step = 0; step < 2 * ROOF_ROUNDS && status == SL_OK; step++) {
        double rate = 0;
        job.is_write = step % 2 == 0;
        status = time_pieces(&job, &rate);
        double *best = &m->roof[job.is_write ? SL_STORE_WRITE : SL_STORE_READ];
        *best = rate > *best ? rate : *best;
    }
    if (status == SL_OK)
        status = measure_fio(m, &job);
    for (uint32_t i = 0; i < job.file_count; i++)
        sl_store_file_close(&job.files[i]);
    return status;
}

/* ---- one store after the other, for a store has one depth ---- */

static sl_status open_store(measurement *m, uint32_t depth)
{
    sl_store_options options = {.directories = m->options->disk_directories,
                                .directory_count = m->options->disk_directory_count,
                                .bytes = m->size->file_bytes,
                                .buffer = m->buffer,
                                .buffer_bytes = 2 * m->size->call_bytes,
                                .depth = depth};
    return sl_store_open(&options, &m->store);
}

static void close_store(measurement *m)
{
    m->is_in_use = sl_store_close(m->store) != 0 || m->is_in_use;
    m->store = NULL;
}

static sl_disk_pass make_pass(const measurement *m, sl_store_lane lane, uint64_t first_byte,
                              uint64_t range_bytes, uint64_t call_bytes)
{
    return (sl_disk_pass){.store = m->store,
                          .lane = lane,
                          .buffer = m->buffer + (lane == SL_STORE_WRITE ? m->size->call_bytes : 0),
                          .first_byte = first_byte,
                          .range_bytes = range_bytes,
                          .call_bytes = call_bytes};
}

/* Writes, then reads what was written with the same cuts, for checksums are of parts. */
static sl_status measure_pair(measurement *m, const char *what, uint64_t first_byte,
                              uint64_t range_bytes, uint64_t call_bytes,
                              sl_disk_pass passes[SL_STORE_LANE_COUNT])
{
    static const char *const names[] = {"read", "write"};
    static const sl_store_lane order[] = {SL_STORE_WRITE, SL_STORE_READ};
    for (int step = 0; step < 2; step++) {
        sl_store_lane lane = order[step];
        sl_disk_pass *pass = &passes[lane];
        sl_bench_row row = {.group = "disk", .type = "", .roof = m->roof[lane]};
        *pass = make_pass(m, lane, first_byte, range_bytes, call_bytes);
        SL_TRY(sl_disk_run(pass, 1));
        snprintf(row.name, sizeof row.name, "%s %s", names[lane], what);
        row.rate = sl_samples_rate(&pass->seconds, (double)call_bytes);
        row.seconds = sl_samples_median(&pass->seconds);
        SL_TRY(sl_bench_add(m->bench, &row));
    }
    return SL_OK;
}

/* Both lanes at once, each over its half; the time of the slower one counts. */
static sl_status time_mixed(const measurement *m, double *out_rate)
{
    uint64_t half = m->size->file_bytes / 2;
    sl_disk_pass passes[2] = {make_pass(m, SL_STORE_READ, 0, half, m->size->call_bytes),
                              make_pass(m, SL_STORE_WRITE, half, half, m->size->call_bytes)};
    SL_TRY(sl_disk_run(passes, 2));
    double read = passes[0].total_seconds, write = passes[1].total_seconds;
    *out_rate = 2.0 * (double)half / (read > write ? read : write);
    return SL_OK;
}

static sl_status measure_mixed(measurement *m, double *out_rate)
{
    sl_samples rates = {.count = 0};
    for (int round = 0; round < MIXED_ROUNDS; round++) {
        double rate = 0;
        SL_TRY(time_mixed(m, &rate));
        sl_samples_add(&rates, rate);
    }
    *out_rate = sl_samples_median(&rates);
    sl_bench_row row = {.group = "disk", .type = "", .name = "read and write at once, together"};
    row.rate = sl_samples_percentiles(&rates);
    row.roof = m->roof[0] > m->roof[1] ? m->roof[0] : m->roof[1];
    return sl_bench_add(m->bench, &row);
}

/* What one lane of the machine is, from a pass of large calls and one of small ones. */
static void set_lane(sl_machine *machine, sl_lane lane, const sl_disk_pass *large,
                     const sl_disk_pass *small)
{
    double rate = (double)large->moved_bytes / large->total_seconds;
    double each = small->total_seconds / small->seconds.count - (double)small->call_bytes / rate;
    double cores = large->cpu_seconds / large->total_seconds;
    machine->copy_rate[lane] = rate;
    machine->copy_seconds[lane] = each > 0 ? each : 0;
    machine->copy_cores[lane] = cores < 1 ? cores : 1;
}

static sl_status measure_default(measurement *m)
{
    sl_machine *machine = &m->bench->profile.machine;
    sl_disk_pass large[SL_STORE_LANE_COUNT], small[SL_STORE_LANE_COUNT];
    const uint64_t bytes = m->size->file_bytes; /* the first half stays as it was written */
    SL_TRY(measure_pair(m, "1 MiB, the depth of a lane", 0, bytes, m->size->call_bytes, large));
    SL_TRY(measure_pair(m, "64 KiB, 1 at a time", bytes / 2,
                        (uint64_t)SMALL_CALLS * SMALL_CALL_BYTES, SMALL_CALL_BYTES, small));
    set_lane(machine, SL_LANE_READ, &large[SL_STORE_READ], &small[SL_STORE_READ]);
    set_lane(machine, SL_LANE_WRITE, &large[SL_STORE_WRITE], &small[SL_STORE_WRITE]);
    snprintf(m->bench->disk_note, sizeof m->bench->disk_note, "%.120s",
             sl_store_description(m->store));
    return measure_mixed(m, &machine->mixed_disk_rate);
}

static sl_status measure_depth(measurement *m, uint32_t depth)
{
    sl_disk_pass passes[SL_STORE_LANE_COUNT];
    char what[32];
    snprintf(what, sizeof what, "1 MiB, %u at a time", depth);
    return measure_pair(m, what, 0, m->size->file_bytes / 4, m->size->call_bytes, passes);
}

static sl_status measure_stores(measurement *m)
{
    static const uint32_t depths[] = {DEPTH_DEFAULT, 1, 4, 16};
    SL_TRY(measure_roof(m));
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        SL_TRY(open_store(m, depths[i]));
        sl_status status = i == 0 ? measure_default(m) : measure_depth(m, depths[i]);
        close_store(m);
        SL_TRY(status);
    }
    return SL_OK;
}

static void name_directories(const sl_bench_options *options, char *out_text)
{
    size_t length = 0;
    for (uint32_t i = 0; i < options->disk_directory_count && length < SL_PROFILE_TEXT_BYTES; i++)
        length += (size_t)snprintf(out_text + length, SL_PROFILE_TEXT_BYTES - length, "%s%s",
                                   i ? ", " : "", options->disk_directories[i]);
}

sl_status sl_disk_measure(const sl_bench_options *options, const sl_timed_device *device,
                          sl_bench *bench)
{
    measurement m = {options, bench, options->is_quick ? &quick_size : &full_size};
    uint64_t bytes = 2 * m.size->call_bytes;
    if (options->disk_directory_count == 0)
        return SL_OK;
    if (options->progress)
        options->progress(options->user, "disk: write, read and both, by depth");
    SL_TRY(device->ops->map_host(device->handle, bytes, SL_MAP_PLAIN, (void **)&m.buffer));
    sl_disk_fill(m.buffer, bytes, 1);
    sl_status status = measure_stores(&m);
    if (!m.is_in_use) /* else the system may still write there */
        device->ops->unmap_host(device->handle, m.buffer, bytes, SL_MAP_PLAIN);
    if (status == SL_OK)
        name_directories(options, bench->profile.disk);
    return status;
}
