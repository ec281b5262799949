/* Matrix products: a library's single-threaded call on tiles that follow from the shape alone.
 *
 * Which library is a choice of the build (gemm_library.h); the tiles are the same for all of them.
 */
#include "gemm.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "gemm_library.h"
#include "tiles.h"
#include "vector.h"

typedef struct tile_shape {
    uint64_t rows, columns;
} tile_shape;

enum {
    TILE_ROWS = 256,
    TILE_COLUMNS = 384,
    TILE_ROWS_MIN = 64,
    TILE_COLUMNS_MIN = 96,
    TILES_WANTED = 16, /* 32 would cost 3 % at 1024 rows */
    ROUND_TO = 16      /* floats of a cache line */
};

static uint64_t count_tiles(const sl_gemm *gemm, tile_shape tile)
{
    return sl_tiles_count(gemm->m, tile.rows) * sl_tiles_count(gemm->n, tile.columns);
}

/* `total` in equal parts of at most `most`, rounded up to whole cache lines. */
static uint64_t divide_evenly(uint64_t total, uint64_t most)
{
    uint64_t parts = sl_tiles_count(total, most);
    return sl_bits_round_up(sl_bits_divide_up(total, parts), ROUND_TO);
}

/* As large as the cache likes, then halved while there are too few for many workers: larger tiles
 * copy less inside the library, more tiles leave fewer workers idle. */
static tile_shape choose_tile(const sl_gemm *gemm)
{
    tile_shape tile = {TILE_ROWS, TILE_COLUMNS};
    while (count_tiles(gemm, tile) < TILES_WANTED) {
        if (tile.rows * TILE_COLUMNS_MIN >= tile.columns * TILE_ROWS_MIN &&
            tile.rows > TILE_ROWS_MIN)
            tile.rows /= 2;
        else if (tile.columns > TILE_COLUMNS_MIN)
            tile.columns /= 2;
        else
            break;
    }
    return (tile_shape){divide_evenly(gemm->m, tile.rows), divide_evenly(gemm->n, tile.columns)};
}

static uint64_t leading_a(const sl_gemm *gemm)
{
    return gemm->transpose_a ? gemm->m : gemm->k;
}

static uint64_t leading_b(const sl_gemm *gemm)
{
    return gemm->transpose_b ? gemm->k : gemm->n;
}

/* The one call of the library: `part` is rows x columns of `gemm` at its own addresses. */
static bool multiply(const sl_gemm *gemm, const sl_gemm *part)
{
    sl_gemm_tile tile = {.transpose_a = gemm->transpose_a,
                         .transpose_b = gemm->transpose_b,
                         .m = part->m,
                         .n = part->n,
                         .k = gemm->k,
                         .a = part->a,
                         .leading_a = leading_a(gemm),
                         .b = part->b,
                         .leading_b = leading_b(gemm),
                         .add = gemm->add,
                         .c = part->c,
                         .leading_c = gemm->n};
    return sl_gemm_library_multiply(&tile);
}

typedef struct gemm_job {
    const sl_gemm *gemm;
    tile_shape tile;
    uint64_t tiles_down;
    _Atomic bool failed;
    _Atomic uint32_t arrived; /* warm-up: workers that hold a tile */
    uint32_t worker_count;
} gemm_job;

/* While the tile is still in cache. */
static void finish_tile(const sl_gemm *gemm, sl_span rows, sl_span columns)
{
    if (gemm->bias == NULL && gemm->residual == NULL)
        return;
    const sl_vector *vector = sl_vector_current();
    for (uint64_t row = rows.first; row < rows.first + rows.count; row++) {
        uint64_t offset = row * gemm->n + columns.first;
        vector->bias_residual(gemm->c + offset, gemm->bias ? gemm->bias + columns.first : NULL,
                              gemm->residual ? gemm->residual + offset : NULL, columns.count);
    }
}

/* Tiles are numbered down the columns of C: neighbours in time share a panel of B. */
static void run_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    gemm_job *job = argument;
    const sl_gemm *gemm = job->gemm;
    const sl_span rows = sl_tiles_span(gemm->m, job->tile.rows, tile_index % job->tiles_down);
    const sl_span columns = sl_tiles_span(gemm->n, job->tile.columns, tile_index / job->tiles_down);
    const sl_gemm part = {
        .a = gemm->a + rows.first * (gemm->transpose_a ? 1 : gemm->k),
        .b = gemm->b + columns.first * (gemm->transpose_b ? gemm->k : 1),
        .c = gemm->c + rows.first * gemm->n + columns.first,
        .m = rows.count,
        .n = columns.count,
    };
    if (!multiply(gemm, &part))
        atomic_store(&job->failed, true);
    finish_tile(gemm, rows, columns);
}

static gemm_job prepare(const sl_gemm *gemm)
{
    gemm_job job = {.gemm = gemm, .tile = choose_tile(gemm)};
    job.tiles_down = sl_tiles_count(gemm->m, job.tile.rows);
    return job;
}

sl_status sl_gemm_run(const sl_gemm *gemm, sl_workers *workers)
{
    if (gemm->m == 0 || gemm->n == 0 || gemm->k == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product without rows, columns or terms");
    gemm_job job = prepare(gemm);
    sl_workers_run(workers, count_tiles(gemm, job.tile), run_tile, &job);
    if (atomic_load(&job.failed))
        SL_FAIL(SL_ERROR_SYSTEM, "%s failed in a matrix product: out of memory?",
                sl_gemm_library());
    return SL_OK;
}

/* Waits until every worker holds a tile, so that each gets exactly one. */
static void wait_for_all(gemm_job *job)
{
    atomic_fetch_add(&job->arrived, 1);
    while (atomic_load(&job->arrived) < job->worker_count)
        sched_yield();
}

static void warm_up_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)tile_index;
    (void)worker_index;
    gemm_job *job = argument;
    wait_for_all(job);
    const uint64_t m = job->tile.rows, n = job->tile.columns, k = job->gemm->k;
    float *a = calloc(m * k, sizeof *a);
    float *b = calloc(k * n, sizeof *b);
    float *c = calloc(m * n, sizeof *c);
    sl_gemm alone = *job->gemm;
    alone.a = a;
    alone.b = b;
    alone.c = c;
    alone.m = m;
    alone.n = n;
    if (a == NULL || b == NULL || c == NULL || !multiply(&alone, &alone))
        atomic_store(&job->failed, true);
    free(c);
    free(b);
    free(a);
}

sl_status sl_gemm_warm_up(const sl_gemm *gemm, sl_workers *workers)
{
    gemm_job job = prepare(gemm);
    job.worker_count = sl_workers_count(workers);
    sl_workers_run(workers, job.worker_count, warm_up_tile, &job);
    if (atomic_load(&job.failed))
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to warm up %s", sl_gemm_library());
    return SL_OK;
}

const char *sl_gemm_library(void)
{
    return sl_gemm_library_name();
}
