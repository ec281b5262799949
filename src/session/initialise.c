/* Initial parameters: each element is a function of (seed, tensor name, row, column), so panels,
 * chunks, ranks and threads cannot change it. The arithmetic is shared among threads. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/heartbeat.h"
#include "base/rng.h"
#include "base/workers.h"
#include "session/runtime.h"

enum { BUFFER_ELEMENTS = 1 << 18, TILE_ELEMENTS = 1 << 12 };

/* Elements of one tensor that are being made. */
typedef struct fill_job {
    const sl_tensor_spec *tensor;
    sl_run run;
    uint64_t seed, stream;
    uint64_t first_element, element_count;
    float *data;
} fill_job;

static void draw_uniform(const fill_job *job, const sl_run_piece *piece, float *data)
{
    const double bound = job->tensor->init_bound;
    for (uint64_t i = 0; i < piece->count; i++)
        data[i] =
            (float)(bound * (2 * sl_rng_uniform(job->seed, job->stream, piece->whole + i) - 1));
}

static void draw_piece(const fill_job *job, const sl_run_piece *piece, float *data)
{
    const sl_tensor_spec *tensor = job->tensor;
    if (tensor->init_bound != 0 && !piece->is_padding) {
        draw_uniform(job, piece, data);
        return;
    }
    if (piece->is_padding || tensor->init_deviation == 0.0f)
        memset(data, 0, piece->count * sizeof *data);
    else
        sl_rng_fill_normal(job->seed, job->stream, piece->whole, piece->count, data);
    for (uint64_t i = 0; i < piece->count && !piece->is_padding; i++)
        data[i] = tensor->init_mean + tensor->init_deviation * data[i];
}

static void fill_tile(void *user, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const fill_job *job = user;
    uint64_t done = tile_index * TILE_ELEMENTS, left = job->element_count - done;
    uint64_t end = job->first_element + done + (left < TILE_ELEMENTS ? left : TILE_ELEMENTS);
    for (uint64_t at = job->first_element + done; at < end;) {
        const sl_run_piece piece = sl_run_piece_at(&job->run, at, end);
        draw_piece(job, &piece, job->data + (at - job->first_element));
        at += piece.count;
    }
}

/* The elements of a tensor that this rank stores: all, or, of parameters in shards, its own; of
 * another stage's none. */
static void find_stored(const sl_runtime *runtime, uint32_t tensor_index, uint64_t *out_first,
                        uint64_t *out_end)
{
    const sl_layout *layout = runtime->blueprint->layout;
    const uint32_t own = runtime->own[tensor_index];
    *out_first = *out_end = 0;
    if (own == SL_NONE)
        return;
    const uint64_t start = layout->first_element[own];
    const sl_stored stored = sl_layout_stored(layout, SL_GROUP_PARAM, layout->chunk_of_tensor[own]);
    const uint64_t stored_end = stored.first + stored.count;
    *out_end = runtime->tensors[tensor_index].element_count;
    *out_first = stored.first > start ? stored.first - start : 0;
    if (stored_end < start + *out_end)
        *out_end = stored_end > start ? stored_end - start : 0;
}

static sl_status initialise_tensor(const sl_runtime *runtime, uint32_t tensor_index, fill_job *job,
                                   sl_workers *workers)
{
    const sl_tensor_spec *tensor = &runtime->tensors[tensor_index];
    job->tensor = tensor;
    job->run = sl_run_of_tensor(tensor);
    job->stream = sl_hash_64(tensor->name, strlen(tensor->name));
    uint64_t first, end;
    find_stored(runtime, tensor_index, &first, &end);
    for (; first < end; first += BUFFER_ELEMENTS) {
        uint64_t left = end - first;
        job->first_element = first;
        job->element_count = left < BUFFER_ELEMENTS ? left : BUFFER_ELEMENTS;
        uint64_t tile_count = (job->element_count + TILE_ELEMENTS - 1) / TILE_ELEMENTS;
        sl_workers_run(workers, tile_count, fill_tile, job);
        SL_TRY(runtime->io.write(runtime->io.user, SL_GROUP_PARAM, tensor_index, first,
                                 job->element_count, job->data));
        SL_TRY(sl_heartbeat_give());
    }
    return SL_OK;
}

sl_status sl_runtime_initialise(sl_runtime *runtime, uint64_t seed, sl_initialise what)
{
    sl_workers *workers = NULL;
    fill_job job = {.seed = seed, .data = malloc(BUFFER_ELEMENTS * sizeof(float))};
    if (!job.data)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to initialise parameters");
    sl_status status = sl_workers_open(runtime->blueprint->task.target.worker_count, &workers);
    for (uint32_t i = 0; i < runtime->tensor_count && status == SL_OK; i++)
        if (what == SL_INITIALISE_ALL || runtime->tensors[i].is_adapter)
            status = initialise_tensor(runtime, i, &job, workers);
    sl_workers_close(workers);
    free(job.data);
    return status;
}
