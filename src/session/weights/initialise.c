/* Initial parameters: each element is a function of (seed, tensor name, row, column), so panels,
 * chunks, ranks and threads cannot change it. The arithmetic is shared among threads. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "base/workers.h"
#include "session/session.h"

enum { BUFFER_ELEMENTS = 1 << 18, TILE_ELEMENTS = 1 << 12 };

/* A run of elements of one tensor that is being made. */
typedef struct fill_job {
    const sl_tensor_spec *tensor;
    uint64_t seed, stream;
    uint64_t first_element, element_count;
    float *data;
} fill_job;

/* `count` elements from `first` on, none of them padding. */
static void draw_elements(const fill_job *job, uint64_t first, uint64_t count, float *data)
{
    const sl_tensor_spec *tensor = job->tensor;
    uint64_t index = tensor->first_row * tensor->whole_shape[1] + first; /* rows are full */
    if (tensor->init_deviation == 0.0f)
        memset(data, 0, count * sizeof *data);
    else
        sl_rng_fill_normal(job->seed, job->stream, index, count, data);
    for (uint64_t i = 0; i < count; i++)
        data[i] = tensor->init_mean + tensor->init_deviation * data[i];
}

static void fill_tile(void *user, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const fill_job *job = user;
    uint64_t done = tile_index * TILE_ELEMENTS, first = job->first_element + done;
    uint64_t left = job->element_count - done;
    uint64_t count = left < TILE_ELEMENTS ? left : TILE_ELEMENTS;
    uint64_t valid_end = job->tensor->valid_rows * job->tensor->shape[1];
    uint64_t valid = first < valid_end ? valid_end - first : 0;
    valid = valid < count ? valid : count;
    draw_elements(job, first, valid, job->data + done);
    memset(job->data + done + valid, 0, (count - valid) * sizeof *job->data);
}

static sl_status initialise_tensor(const sl_session *session, uint32_t tensor_index, fill_job *job,
                                   sl_workers *workers)
{
    const sl_tensor_spec *tensor = &session->tensors[tensor_index];
    if (tensor->shape[1] != tensor->whole_shape[1])
        SL_FAIL(SL_ERROR_INTERNAL, "%s: a tensor split over ranks cannot be initialised yet",
                tensor->name);
    job->tensor = tensor;
    job->stream = sl_hash_64(tensor->name, strlen(tensor->name));
    for (uint64_t first = 0; first < tensor->element_count; first += BUFFER_ELEMENTS) {
        uint64_t left = tensor->element_count - first;
        job->first_element = first;
        job->element_count = left < BUFFER_ELEMENTS ? left : BUFFER_ELEMENTS;
        uint64_t tile_count = (job->element_count + TILE_ELEMENTS - 1) / TILE_ELEMENTS;
        sl_workers_run(workers, tile_count, fill_tile, job);
        SL_TRY(session->io.write(session->io.user, SL_GROUP_PARAM, tensor_index, first,
                                 job->element_count, job->data));
    }
    return SL_OK;
}

sl_status sl_session_initialise(sl_session *session, uint64_t seed)
{
    sl_workers *workers = NULL;
    fill_job job = {.seed = seed, .data = malloc(BUFFER_ELEMENTS * sizeof(float))};
    if (!job.data)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to initialise parameters");
    sl_status status = sl_workers_open(session->blueprint->task.target.worker_count, &workers);
    for (uint32_t i = 0; i < session->tensor_count && status == SL_OK; i++)
        status = initialise_tensor(session, i, &job, workers);
    sl_workers_close(workers);
    free(job.data);
    return status;
}
