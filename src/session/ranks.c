/* Opens the world, compares the ranks, and lends the engine their sums; see ranks.h. */
#include "ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "comm/environment.h"
#include "kernels/kernels.h"
#include "sluice/version.h"

_Static_assert((int)SL_TYPE_FP32 == (int)SL_COMM_FP32 && (int)SL_TYPE_BF16 == (int)SL_COMM_BF16 &&
                   (int)SL_TYPE_FP16 == (int)SL_COMM_FP16,
               "types of elements have the same numbers");

static sl_status all_reduce(void *user, sl_type type, uint64_t element_count, void *data)
{
    const sl_ranks *ranks = user;
    return sl_comm_all_reduce(ranks->world, (sl_comm_type)type, element_count, data);
}

static sl_status all_gather(void *user, uint64_t bytes, const void *part, void *parts)
{
    const sl_ranks *ranks = user;
    return sl_comm_all_gather(ranks->world, bytes, part, parts);
}

sl_status sl_ranks_open(sl_ranks *out_ranks)
{
    const sl_comm_options options = {.kind = SL_COMM_AUTO};
    sl_environment environment;
    sl_comm *world;
    *out_ranks = (sl_ranks){0};
    SL_TRY(sl_environment_read(&environment));
    if (environment.kind == SL_COMM_SELF)
        return SL_OK; /* alone: needs nothing of the system */
    SL_TRY(sl_comm_open(&options, &world));
    if (sl_comm_size(world) == 1) {
        sl_comm_close(world);
        return SL_OK;
    }
    out_ranks->world = world;
    out_ranks->table = (sl_engine_ranks){.size = sl_comm_size(world),
                                         .rank = sl_comm_rank(world),
                                         .all_reduce = all_reduce,
                                         .all_gather = all_gather,
                                         .user = out_ranks};
    return SL_OK;
}

void sl_ranks_close(sl_ranks *ranks, sl_status status)
{
    if (ranks->world && status != SL_OK)
        sl_comm_abort(ranks->world, sl_status_message());
    sl_comm_close(ranks->world);
    *ranks = (sl_ranks){0};
}

sl_status sl_ranks_check(const sl_ranks *ranks, const sl_config *config)
{
    const uint32_t size = ranks->world ? ranks->table.size : 1;
    if (config->tp != size && size > 1)
        SL_FAIL(SL_ERROR_USAGE,
                "there are %u ranks and --tp %" PRIu64
                ": every rank holds its part of the tensors, "
                "so give --tp %u, or start %" PRIu64 " ranks; data-parallel ranks come with a "
                "later version",
                size, config->tp, size, config->tp);
    if (config->tp > 1 && size == 1)
        SL_FAIL(SL_ERROR_USAGE,
                "--tp %" PRIu64 " takes as many ranks, and this process is alone: sluice launch "
                "-n %" PRIu64 " -- train …",
                config->tp, config->tp);
    if (size > 1 && strcmp(config->device, "cpu") != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "%u ranks on --device %s: ranks exchange on the cpu device alone, in this version",
                size, config->device);
    return SL_OK;
}

/* ---- what is shared ---- */

/* What each rank found, which all plan with the least of. */
typedef struct means {
    uint64_t shared_bytes, device_bytes, disk_bytes, worker_count;
} means;

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static sl_status find_least(const sl_ranks *ranks, means *it)
{
    means all[SL_COMM_RANKS_MAX];
    SL_TRY(sl_comm_all_gather(ranks->world, sizeof *it, it, all));
    for (uint32_t rank = 0; rank < ranks->table.size; rank++) {
        it->shared_bytes = smaller(it->shared_bytes, all[rank].shared_bytes);
        it->device_bytes = smaller(it->device_bytes, all[rank].device_bytes);
        it->disk_bytes = smaller(it->disk_bytes, all[rank].disk_bytes);
        it->worker_count = smaller(it->worker_count, all[rank].worker_count);
    }
    return SL_OK;
}

sl_status sl_ranks_share(const sl_ranks *ranks, sl_search *search)
{
    sl_task *task = &search->task;
    uint32_t index, count;
    if (!ranks->world)
        return SL_OK;
    sl_comm_local(ranks->world, &index, &count);
    const bool has_default_disk = search->fixed.disk_space == search->disk_free_bytes;
    means it = {task->shared_bytes / count, task->device_bytes, search->disk_free_bytes / count,
                task->target.worker_count};
    SL_TRY(find_least(ranks, &it));
    task->tp_rank = ranks->table.rank;
    task->shared_bytes = it.shared_bytes;
    task->device_bytes = it.device_bytes;
    task->target.worker_count = (uint32_t)it.worker_count;
    search->disk_free_bytes = it.disk_bytes;
    if (has_default_disk)
        search->fixed.disk_space = it.disk_bytes;
    return SL_OK;
}

/* ---- what is equal ---- */

enum { FACT_BYTES = 40 };

/* Field by field: structs have padding. */
static void add_place(sl_hash_stream *stream, const sl_place *place)
{
    const uint64_t words[] = {(uint64_t)place->tier, place->offset, place->bytes, place->stride,
                              place->slots};
    sl_hash_update(stream, words, sizeof words);
}

static void add_command(sl_hash_stream *stream, const sl_command *command)
{
    const uint64_t words[] = {(uint64_t)command->kind, (uint64_t)command->lane, command->tick,
                              command->first_wait, command->wait_count};
    sl_hash_update(stream, words, sizeof words);
    if (command->kind == SL_COMMAND_COPY) {
        add_place(stream, &command->from);
        add_place(stream, &command->to);
    }
}

static void add_plan(sl_hash_stream *stream, const sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->body_count; i++)
        add_command(stream, &plan->body[i]);
    for (uint32_t i = 0; i < plan->place_count; i++)
        add_place(stream, &plan->places[i]);
    sl_hash_update(stream, plan->peak_bytes, sizeof plan->peak_bytes);
}

static sl_status hash_plans(const sl_blueprint *blueprint, char out_text[FACT_BYTES])
{
    sl_hash_stream *stream;
    SL_TRY(sl_hash_open(&stream));
    sl_hash_update(stream, &blueprint->layout->chunk_elements,
                   sizeof blueprint->layout->chunk_elements);
    for (uint32_t i = 0; i < blueprint->program_count; i++)
        add_plan(stream, blueprint->plans[i]);
    const sl_hash_value hash = sl_hash_digest(stream);
    sl_hash_close(stream);
    snprintf(out_text, FACT_BYTES, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return SL_OK;
}

/* Of the options, those that change numbers and are no part of a plan. */
static void describe_options(const sl_config *config, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "seed %" PRIu64 ", steps %" PRIu64 ", lr %.9g to %.9g, decay %.9g, beta %.9g %.9g, "
             "eps %.9g, clip %.9g",
             config->seed, config->steps, config->lr, config->min_lr, config->weight_decay,
             config->beta1, config->beta2, config->eps, config->clip);
}

sl_status sl_ranks_agree(const sl_ranks *ranks, const sl_blueprint *blueprint,
                         const sl_config *config, const char *data)
{
    char plan[FACT_BYTES], options[512];
    if (!ranks->world)
        return SL_OK;
    SL_TRY(hash_plans(blueprint, plan));
    describe_options(config, options, sizeof options);
    const sl_comm_fact facts[] = {
        {"the version", sl_version_text()},
        {"the commit", sl_version_commit()},
        {"the kernels", sl_kernels_of(blueprint->task.target.device)->description()},
        {"the data", data},
        {"the options", options},
        {"the plan", plan},
    };
    return sl_comm_agree(ranks->world, facts, sizeof facts / sizeof facts[0]);
}
