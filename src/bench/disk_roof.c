/* Threads and pread, pwrite: as simple as it gets, and as many at once as the store has. The better
 * of two passes counts, for the first one finds the file's blocks new. */
#define _GNU_SOURCE
#include "disk_roof.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "offload/store_file.h"

enum { THREADS = 32, DIRECTORIES_MAX = 16, PASSES = 2 };

typedef struct raw_job {
    sl_store_file files[DIRECTORIES_MAX];
    uint32_t file_count;
    uint64_t piece_count;
    bool is_write;
    _Atomic uint64_t next_piece;
    _Atomic int error;
} raw_job;

static void *move_pieces(void *argument)
{
    raw_job *job = argument;
    uint8_t *piece = NULL;
    if (posix_memalign((void **)&piece, SL_STORE_ALIGNMENT, SL_STORE_PIECE_BYTES) != 0) {
        atomic_store(&job->error, ENOMEM);
        return NULL;
    }
    uint64_t state = (uintptr_t)piece | 1;
    for (size_t i = 0; i + 8 <= SL_STORE_PIECE_BYTES; i += 8) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        memcpy(piece + i, &state, 8);
    }
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

static sl_status run_threads(raw_job *job, double *out_rate)
{
    pthread_t threads[THREADS];
    uint32_t count = 0;
    atomic_store(&job->next_piece, 0);
    uint64_t start = sl_clock_now_ns();
    while (count < THREADS && pthread_create(&threads[count], NULL, move_pieces, job) == 0)
        count++;
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    double seconds = 1e-9 * (double)(sl_clock_now_ns() - start);
    int error = count == 0 ? EAGAIN : atomic_load(&job->error);
    if (error)
        SL_FAIL(SL_ERROR_IO, "%s: %s pieces of %d bytes failed: %s", job->files[0].directory,
                job->is_write ? "writing" : "reading", SL_STORE_PIECE_BYTES, strerror(error));
    *out_rate = (double)(job->piece_count * SL_STORE_PIECE_BYTES) / seconds;
    return SL_OK;
}

sl_status sl_disk_roof(const sl_bench_options *options, uint64_t bytes,
                       double out_rates[SL_STORE_LANE_COUNT])
{
    raw_job job = {.piece_count = bytes / SL_STORE_PIECE_BYTES};
    uint32_t wanted = options->disk_directory_count;
    wanted = wanted < DIRECTORIES_MAX ? wanted : DIRECTORIES_MAX;
    sl_status status = SL_OK;
    while (job.file_count < wanted && status == SL_OK) {
        status =
            sl_store_file_open(options->disk_directories[job.file_count],
                               bytes / wanted + SL_STORE_PIECE_BYTES, &job.files[job.file_count]);
        job.file_count += status == SL_OK;
    }
    for (int step = 0; step < 2 * PASSES && status == SL_OK; step++) {
        double rate = 0;
        job.is_write = step % 2 == 0;
        status = run_threads(&job, &rate);
        double *best = &out_rates[job.is_write ? SL_STORE_WRITE : SL_STORE_READ];
        *best = rate > *best ? rate : *best;
    }
    for (uint32_t i = 0; i < job.file_count; i++)
        sl_store_file_close(&job.files[i]);
    return status;
}
