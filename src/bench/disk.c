/* Whole stretches through the store, as the read and write lanes move chunks: written first, then
 * read back, then both at once. A stretch is larger than the queue, the file larger than any cache
 * of a drive, the data random, and each stretch is touched once a pass.
 *
 * The roof is the same file system without a store: threads that read or write pieces of a file
 * past the page cache. What the disk costs in cores is the process's CPU time over the time.
 */
#include "disk.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "disk_roof.h"
#include "offload/store.h"

enum { STRETCH_MAX = 64, DEPTH_DEFAULT = 0 };

typedef struct disk_size {
    uint64_t file_bytes, stretch_bytes;
} disk_size;

static const disk_size whole = {UINT64_C(1) << 30, UINT64_C(32) << 20};
static const disk_size quick = {UINT64_C(32) << 20, UINT64_C(4) << 20};

typedef struct disk_meter {
    const sl_bench_options *options;
    sl_bench *bench;
    const disk_size *size;
    sl_store *store;
    uint8_t *buffer; /* two stretches: one for each lane */
    double roof[SL_STORE_LANE_COUNT];
} disk_meter;

typedef struct disk_pass {
    disk_meter *meter;
    sl_store_lane lane;
    uint64_t first_byte, bytes; /* of the file: what the pass goes through */
    uint64_t block_bytes;       /* of one call */
    double seconds[STRETCH_MAX];
    double total_seconds, cpu_seconds;
    uint32_t count;
    sl_status status;
    char message[256]; /* of a failure in another thread */
} disk_pass;

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static sl_status move_block(const disk_pass *pass, uint64_t offset)
{
    disk_meter *m = pass->meter;
    if (pass->lane == SL_STORE_READ)
        return sl_store_read(m->store, offset, m->buffer, pass->block_bytes);
    return sl_store_write(m->store, offset, m->buffer + m->size->stretch_bytes, pass->block_bytes);
}

static sl_status run_pass(disk_pass *pass)
{
    double cpu = cpu_seconds();
    uint64_t start = sl_clock_now_ns(), last = start;
    pass->count = 0;
    for (uint64_t done = 0; done < pass->bytes && pass->count < STRETCH_MAX;
         done += pass->block_bytes) {
        SL_TRY(move_block(pass, pass->first_byte + done));
        uint64_t now = sl_clock_now_ns();
        pass->seconds[pass->count++] = 1e-9 * (double)(now - last);
        last = now;
    }
    pass->total_seconds = 1e-9 * (double)(last - start);
    pass->cpu_seconds = cpu_seconds() - cpu;
    return SL_OK;
}

static void *run_thread(void *argument)
{
    disk_pass *pass = argument;
    pass->status = run_pass(pass);
    if (pass->status != SL_OK)
        snprintf(pass->message, sizeof pass->message, "%s", sl_status_message());
    return NULL;
}

static sl_status add_row(disk_meter *m, const char *name, disk_pass *pass)
{
    sl_bench_row row = {.group = "disk", .type = "", .roof = m->roof[pass->lane]};
    sl_spread seconds = sl_spread_of(pass->seconds, pass->count);
    snprintf(row.name, sizeof row.name, "%s", name);
    row.rate = sl_spread_rate(seconds, (double)pass->block_bytes);
    row.seconds = seconds.median;
    return sl_bench_add(m->bench, &row);
}

/* Both lanes at once, each over its half; the time of the slower one counts. */
static sl_status measure_mixed(disk_meter *m, double *out_rate)
{
    uint64_t half = m->size->file_bytes / 2;
    disk_pass read = {m, SL_STORE_READ, 0, half, m->size->stretch_bytes};
    disk_pass write = {m, SL_STORE_WRITE, half, half, m->size->stretch_bytes};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_thread, &write) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "cannot start a thread that writes to the disk");
    sl_status status = run_pass(&read);
    pthread_join(thread, NULL);
    SL_TRY(status);
    if (write.status != SL_OK)
        SL_FAIL(write.status, "%s", write.message);
    double seconds =
        read.total_seconds > write.total_seconds ? read.total_seconds : write.total_seconds;
    *out_rate = 2.0 * (double)half / seconds;
    sl_bench_row row = {.group = "disk", .type = "", .name = "read and write at once, together"};
    row.rate = (sl_spread){*out_rate, *out_rate, *out_rate};
    row.roof = m->roof[0] > m->roof[1] ? m->roof[0] : m->roof[1];
    return sl_bench_add(m->bench, &row);
}

/* ---- one store after the other, for a store has one depth ---- */

static sl_status open_store(disk_meter *m, uint32_t depth)
{
    sl_store_options options = {.directories = m->options->disk_directories,
                                .directory_count = m->options->disk_directory_count,
                                .bytes = m->size->file_bytes,
                                .buffer = m->buffer,
                                .buffer_bytes = 2 * m->size->stretch_bytes,
                                .depth = depth};
    return sl_store_open(&options, &m->store);
}

static void close_store(disk_meter *m)
{
    sl_store_close(m->store);
    m->store = NULL;
}

/* What one lane of the machine is, from a pass of stretches and one of small blocks. */
static void set_lane(sl_machine *machine, sl_lane lane, const disk_pass *large,
                     const disk_pass *small)
{
    double rate = (double)large->bytes / large->total_seconds;
    double each = small->total_seconds / small->count - (double)small->block_bytes / rate;
    double cores = large->cpu_seconds / large->total_seconds;
    machine->copy_rate[lane] = rate;
    machine->copy_seconds[lane] = each > 0 ? each : 0;
    machine->copy_cores[lane] = cores < 1 ? cores : 1;
}

/* Writes, then reads what was written with the same cuts, for checksums are of parts. */
static sl_status measure_pair(disk_meter *m, const char *what, disk_pass passes[2])
{
    static const char *const names[] = {"read", "write"};
    static const sl_store_lane order[] = {SL_STORE_WRITE, SL_STORE_READ};
    for (int step = 0; step < 2; step++) {
        disk_pass *pass = &passes[order[step]];
        char name[64];
        pass->lane = order[step];
        SL_TRY(run_pass(pass));
        snprintf(name, sizeof name, "%s %s", names[pass->lane], what);
        SL_TRY(add_row(m, name, pass));
    }
    return SL_OK;
}

static sl_status measure_default(disk_meter *m)
{
    sl_machine *machine = &m->bench->profile.machine;
    const uint64_t bytes = m->size->file_bytes, small = UINT64_C(64) << 10;
    const disk_pass large_pass = {m, 0, 0, bytes, m->size->stretch_bytes};
    const disk_pass small_pass = {m, 0, bytes / 2, STRETCH_MAX * small, small};
    disk_pass large[2] = {large_pass, large_pass}, little[2] = {small_pass, small_pass};
    SL_TRY(measure_pair(m, "1 MiB, the depth of a lane", large));
    SL_TRY(measure_pair(m, "64 KiB, 1 at a time", little));
    set_lane(machine, SL_LANE_READ, &large[SL_STORE_READ], &little[SL_STORE_READ]);
    set_lane(machine, SL_LANE_WRITE, &large[SL_STORE_WRITE], &little[SL_STORE_WRITE]);
    snprintf(m->bench->disk_note, sizeof m->bench->disk_note, "%.120s",
             sl_store_description(m->store));
    return measure_mixed(m, &machine->mixed_disk_rate);
}

static sl_status measure_depth(disk_meter *m, uint32_t depth)
{
    const disk_pass pass = {m, 0, 0, m->size->file_bytes / 4, m->size->stretch_bytes};
    disk_pass passes[2] = {pass, pass};
    char what[32];
    snprintf(what, sizeof what, "1 MiB, %u at a time", depth);
    return measure_pair(m, what, passes);
}

static sl_status measure_depths(disk_meter *m)
{
    static const uint32_t depths[] = {1, 4, 16};
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        SL_TRY(open_store(m, depths[i]));
        sl_status status = measure_depth(m, depths[i]);
        close_store(m);
        SL_TRY(status);
    }
    return SL_OK;
}

static sl_status measure_all(disk_meter *m)
{
    SL_TRY(sl_disk_roof(m->options, m->size->file_bytes, m->roof));
    SL_TRY(open_store(m, DEPTH_DEFAULT));
    sl_status status = measure_default(m);
    close_store(m);
    SL_TRY(status);
    return measure_depths(m);
}

static void fill_buffer(uint8_t *buffer, uint64_t bytes)
{
    uint64_t state = 0x2545f4914f6cdd1du;
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(buffer + i, &state, 8);
    }
}

static void name_directories(const sl_bench_options *options, char *out_text)
{
    size_t length = 0;
    for (uint32_t i = 0; i < options->disk_directory_count && length < SL_PROFILE_TEXT_BYTES; i++)
        length += (size_t)snprintf(out_text + length, SL_PROFILE_TEXT_BYTES - length, "%s%s",
                                   i ? ", " : "", options->disk_directories[i]);
}

sl_status sl_disk_measure(const sl_bench_options *options, const sl_rig *rig, sl_bench *bench)
{
    disk_meter m = {options, bench, options->is_quick ? &quick : &whole};
    if (options->disk_directory_count == 0)
        return SL_OK;
    if (options->progress)
        options->progress(options->user, "disk: write, read and both, by depth");
    uint64_t bytes = 2 * m.size->stretch_bytes;
    SL_TRY(rig->ops->map_host(rig->device, bytes, SL_MAP_PLAIN, (void **)&m.buffer));
    fill_buffer(m.buffer, bytes);
    sl_status status = measure_all(&m);
    rig->ops->unmap_host(rig->device, m.buffer, bytes, SL_MAP_PLAIN);
    if (status == SL_OK)
        name_directories(options, bench->profile.disk);
    return status;
}
