/* The first rank reads and writes the list for all. */
#define _GNU_SOURCE /* strdup */
#include "algorithms.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "machine/algorithm_list.h"

/* ---- the list of a run ---- */

static int first_line(const char *list)
{
    return (int)strcspn(list, "\n");
}

/* The checkpoint's list, if it names the same GPU and library; else the machine's. */
static sl_status find_list(const char *saved, const sl_device_info *info, char **out_list)
{
    if (!saved)
        return sl_algorithm_list_load(info, out_list);
    if (!sl_algorithm_list_is_of(saved, info)) {
        SL_TRY(sl_algorithm_list_load(info, out_list));
        sl_log_write(SL_LOG_WARNING,
                     "the checkpoint's list of algorithms is of another GPU or library, so last "
                     "bits may differ from those of a run without a stop: the list is of %.*s; "
                     "this run has %.*s",
                     first_line(saved), saved, first_line(*out_list), *out_list);
        return SL_OK;
    }
    *out_list = strdup(saved);
    if (!*out_list)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the list of algorithms");
    return SL_OK;
}

/* Replaces the string of each rank by that of rank `from`; NULL counts as "". */
static sl_status share(const sl_ranks *ranks, uint32_t from, char **text)
{
    char *shared = NULL;
    uint64_t bytes = 0;
    if (!ranks->world)
        return SL_OK;
    SL_TRY(sl_ranks_give_text(ranks, *text ? *text : "", *text ? strlen(*text) : 0, from, &shared,
                              &bytes));
    shared[bytes] = '\0'; /* a byte of room is behind every text */
    free(*text);
    *text = shared;
    return SL_OK;
}

static bool uses_cublas(const sl_blueprint *blueprint)
{
    const sl_engine_target *target = &blueprint->task.target;
    return target->device == SL_DEVICE_CUDA && !target->cuda.own_products;
}

sl_status sl_algorithms_choose(const sl_ranks *ranks, const char *saved, sl_blueprint *blueprint,
                               char **out_list)
{
    sl_cuda_options *cuda = &blueprint->task.target.cuda;
    *out_list = NULL;
    if (!uses_cublas(blueprint) && cuda->times_algorithms)
        SL_FAIL(SL_ERROR_USAGE, "--time-algorithms times those of cuBLASLt: give --device cuda and "
                                "--cuda-products auto, or leave out --time-algorithms");
    if (!uses_cublas(blueprint))
        return SL_OK;
    if (sl_ranks_is_first(ranks) && cuda->times_algorithms)
        SL_TRY(sl_algorithm_list_check());
    if (sl_ranks_is_first(ranks))
        SL_TRY(find_list(saved, &blueprint->task.device_info, out_list));
    SL_TRY(share(ranks, 0, out_list));
    cuda->algorithms = *out_list;
    return SL_OK;
}

/* ---- what was timed ---- */

static sl_status keep(const sl_runtime *runtime, const char *lines)
{
    char *path = NULL;
    SL_TRY(sl_algorithm_list_keep(&runtime->blueprint->task.device_info, lines, &path));
    if (path)
        sl_log_write(SL_LOG_NOTE, "the list of algorithms is in %s", path);
    free(path);
    return SL_OK;
}

/* The ranks of a stage have the same products: the lines of its first rank count. */
sl_status sl_algorithms_keep(const sl_ranks *ranks, const sl_runtime *runtime)
{
    const uint32_t stages = ranks->world ? ranks->layout.stages : 1;
    sl_status status = SL_OK;
    for (uint32_t stage = 0; stage < stages && status == SL_OK; stage++) {
        char *lines = NULL;
        status = sl_engine_list_algorithms(runtime->engine, "", "\n", &lines);
        if (status == SL_OK)
            status = share(ranks, stage * ranks->layout.tensor * ranks->layout.data, &lines);
        if (status == SL_OK && sl_ranks_is_first(ranks))
            status = keep(runtime, lines);
        free(lines);
    }
    return status;
}
