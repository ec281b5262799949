/* Opens the world, compares the ranks, and lends the engine their sums; see ranks.h. */
#include "ranks.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/stop.h"
#include "binding.h"
#include "comm/environment.h"
#include "comm/window.h"
#include "config/config_json.h"
#include "exchange_order.h"
#include "kernels/kernels.h"
#include "sluice/version.h"

_Static_assert((int)SL_TYPE_FP32 == (int)SL_COMM_FP32 && (int)SL_TYPE_BF16 == (int)SL_COMM_BF16 &&
                   (int)SL_TYPE_FP16 == (int)SL_COMM_FP16,
               "types of elements have the same numbers");

/* Fills in how many data-parallel ranks there are, where that was left open. */
static sl_status check(const sl_ranks *ranks, sl_config *config)
{
    const uint64_t size = ranks->world ? ranks->table.size : 1;
    const bool is_open = config->dp == SL_CONFIG_UNSET;
    const uint64_t model = config->tp * config->pp; /* ranks that hold one */
    const uint64_t data = is_open ? size / model : config->dp;
    if (size > 1 && config->pp > 1 && model * data != size)
        SL_FAIL(SL_ERROR_USAGE,
                "there are %" PRIu64 " ranks, --tp %" PRIu64 " and --pp %" PRIu64
                "%s: start a multiple of --tp times --pp, as many times as there are sets of rows "
                "(--dp)",
                size, config->tp, config->pp, is_open ? "" : " with a --dp that does not fit");
    if (size > 1 && model * data != size)
        SL_FAIL(SL_ERROR_USAGE,
                "there are %" PRIu64 " ranks and --tp %" PRIu64 "%s: start a multiple of --tp, "
                "which each hold their part of the tensors, as many times as there are sets of "
                "rows (--dp), or give --tp %" PRIu64 " without --dp",
                size, config->tp, is_open ? "" : " with a --dp that does not fit", size);
    if (size == 1 && config->pp > 1)
        SL_FAIL(SL_ERROR_USAGE,
                "--pp %" PRIu64
                " takes a rank for each stage, and this process is alone: start it by "
                "sluice launch -n %" PRIu64,
                config->pp, model * (is_open ? 1 : data));
    if (size == 1 && config->tp * (is_open ? 1 : data) > 1)
        SL_FAIL(SL_ERROR_USAGE,
                "--tp %" PRIu64 " and --dp %" PRIu64 " take as many ranks, and this process is "
                "alone: start it by sluice launch -n %" PRIu64,
                config->tp, is_open ? 1 : data, config->tp * (is_open ? 1 : data));
    config->dp = data ? data : 1;
    return SL_OK;
}

static sl_comm_types find_types(sl_type stored, sl_type wire)
{
    return (sl_comm_types){(sl_comm_type)stored, (sl_comm_type)wire};
}

static sl_status all_reduce(void *user, sl_type stored, sl_type type, uint64_t count, void *data)
{
    const sl_ranks_end *end = user;
    return sl_comm_all_reduce_stored(end->comm, find_types(stored, type), count, data);
}

static sl_status reduce_scatter(void *user, sl_type stored, sl_type type, uint64_t count,
                                const void *from, void *to)
{
    const sl_ranks_end *end = user;
    uint64_t starts[SL_COMM_RANKS_MAX + 1];
    SL_TRY(sl_comm_find_starts(sl_comm_size(end->comm), count, starts));
    return sl_comm_reduce_scatter_pieces(end->comm, find_types(stored, type), starts, from, to);
}

static sl_status all_gather(void *user, uint64_t bytes, const void *part, void *parts)
{
    const sl_ranks_end *end = user;
    return sl_comm_all_gather(end->comm, bytes, part, parts);
}

static sl_status exchange(void *user, uint32_t rank, uint64_t bytes, const void *given, void *taken)
{
    const sl_ranks_end *end = user;
    const sl_comm_exchange_args args = {.to = given ? rank : SL_COMM_NOBODY,
                                        .from = taken ? rank : SL_COMM_NOBODY,
                                        .send = given,
                                        .send_bytes = given ? bytes : 0,
                                        .receive = taken,
                                        .receive_bytes = taken ? bytes : 0};
    return sl_comm_exchange(end->comm, &args);
}

/* Shown to the others if this rank is missed. */
static void post(void *user, const char *op)
{
    const sl_ranks_end *end = user;
    sl_comm_post(end->ranks->world, atomic_load(&end->ranks->step), op);
}

static sl_status poll(void *user)
{
    const sl_ranks_end *end = user;
    return sl_comm_poll(end->comm);
}

sl_engine_ranks sl_ranks_make_table(sl_ranks_end *end)
{
    return (sl_engine_ranks){.size = sl_comm_size(end->comm),
                             .rank = sl_comm_rank(end->comm),
                             .user = end,
                             .all_reduce = all_reduce,
                             .reduce_scatter = reduce_scatter,
                             .all_gather = all_gather,
                             .exchange = exchange,
                             .post = post,
                             .poll = poll};
}

void sl_ranks_adopt(sl_comm *world, sl_ranks *out_ranks)
{
    *out_ranks = (sl_ranks){.world = world};
    out_ranks->end[SL_COMM_WORLD] = (sl_ranks_end){out_ranks, world};
    out_ranks->table = sl_ranks_make_table(&out_ranks->end[SL_COMM_WORLD]);
}

sl_status sl_ranks_open(double timeout_s, sl_ranks *out_ranks)
{
    sl_environment environment;
    sl_comm *world;
    *out_ranks = (sl_ranks){0};
    SL_TRY(sl_environment_read(&environment));
    if (environment.kind == SL_COMM_SELF)
        return SL_OK; /* alone: needs nothing of the system */
    SL_TRY(sl_comm_open(timeout_s, &world));
    if (sl_comm_size(world) == 1) {
        sl_comm_close(world);
        return SL_OK;
    }
    sl_ranks_adopt(world, out_ranks);
    return SL_OK;
}

/* ---- before the first step ---- */

static sl_status fail_stopped(void)
{
    SL_FAIL(SL_ERROR_STOPPED, "leaving: the work had not begun, and nothing is lost");
}

static sl_status hear(void *user)
{
    const sl_ranks *ranks = user;
    if (ranks->world)
        sl_comm_advance(ranks->world);
    if (ranks->is_at_work && ranks->world)
        SL_TRY(sl_comm_poll(ranks->world));
    return ranks->stop && sl_stop_is_set(ranks->stop) ? fail_stopped() : SL_OK;
}

void sl_ranks_hear(sl_ranks *ranks)
{
    if (!ranks->listens)
        ranks->heard_before = sl_heartbeat_listen((sl_heartbeat){hear, ranks});
    ranks->listens = true;
}

void sl_ranks_unhear(sl_ranks *ranks)
{
    if (ranks->listens)
        (void)sl_heartbeat_listen(ranks->heard_before);
    ranks->listens = false;
}

/* Long work is ended on one machine alone: a job of MPI that is not whole at its end has an exit
 * code of MPI's choice. */
void sl_ranks_listen(sl_ranks *ranks, const volatile sig_atomic_t *stop)
{
    uint32_t index, count = 0;
    if (ranks->world)
        sl_comm_local(ranks->world, &index, &count);
    ranks->asked = stop;
    ranks->stop = count == ranks->table.size ? stop : NULL;
    sl_ranks_set_work(ranks, true);
    sl_ranks_hear(ranks);
}

static void add_flag(void *sum, const void *other)
{
    *(uint32_t *)sum |= *(const uint32_t *)other;
}

sl_status sl_ranks_vote(const sl_ranks *ranks, bool is_asked, bool *out_is_asked)
{
    uint32_t flag = is_asked;
    if (ranks->world)
        SL_TRY(sl_comm_merge(ranks->world, sizeof flag, &flag, add_flag));
    *out_is_asked = flag != 0;
    return SL_OK;
}

sl_status sl_ranks_begin(sl_ranks *ranks)
{
    bool is_asked = ranks->asked && sl_stop_is_set(ranks->asked);
    ranks->asked = ranks->stop = NULL;
    if (!ranks->world) {
        sl_ranks_unhear(ranks);
        return is_asked ? fail_stopped() : SL_OK;
    }
    SL_TRY(sl_ranks_vote(ranks, is_asked, &is_asked));
    sl_ranks_set_work(ranks, false);
    ranks->has_stopped = is_asked;
    return is_asked ? fail_stopped() : SL_OK;
}

sl_status sl_ranks_meet(const sl_ranks *ranks, const char *op)
{
    if (!ranks->world)
        return SL_OK;
    sl_comm_post(ranks->world, atomic_load(&ranks->step), op);
    return sl_comm_barrier(ranks->world);
}

/* ---- groups ---- */

/* A set of one rank needs no communicator. */
static sl_status split(sl_ranks *ranks, sl_comm_group group, sl_engine_ranks *out_table)
{
    const uint32_t size = sl_comm_group_size(&ranks->layout, group);
    uint32_t members[SL_COMM_RANKS_MAX];
    sl_ranks_end *end = &ranks->end[group];
    *out_table = (sl_engine_ranks){0};
    if (size <= 1)
        return SL_OK;
    sl_comm_group_members(&ranks->layout, group, ranks->table.rank, members);
    SL_TRY(sl_comm_split(ranks->world, sl_comm_group_name(group), members, size, &end->comm));
    end->ranks = ranks;
    *out_table = sl_ranks_make_table(end);
    return SL_OK;
}

static sl_gpu_group find_gpu_group(sl_ranks *ranks, sl_comm_group group, sl_engine_ranks *table)
{
    return (sl_gpu_group){
        .comm = ranks->end[group].comm, .name = sl_comm_group_name(group), .table = table};
}

/* On GPUs what the lanes exchange goes through NCCL. */
static sl_status open_gpus(sl_ranks *ranks, const sl_config *config)
{
    sl_device_kind kind;
    sl_gpu_ranks_args args = {
        .world = ranks->world, .cuda = sl_config_cuda(config), .timeout_s = config->rank_timeout};
    SL_TRY(sl_config_parse_device(config->device, &kind, &args.device_index));
    const char *name = kind == SL_DEVICE_CPU ? "cpu" : "cuda";
    SL_TRY(sl_comm_agree(ranks->world, &(sl_comm_fact){"option --device", name}, 1));
    if (kind == SL_DEVICE_CPU)
        return SL_OK;
    args.groups[0] = find_gpu_group(ranks, SL_COMM_TENSOR, &ranks->tensor);
    args.groups[1] = find_gpu_group(ranks, SL_COMM_DATA, &ranks->data);
    args.groups[2] = find_gpu_group(ranks, SL_COMM_STAGES, &ranks->stages);
    return sl_gpu_ranks_open(&args, &ranks->gpus);
}

sl_status sl_ranks_agree_on_groups(const sl_ranks *ranks, const sl_config *config)
{
    const uint64_t sizes[] = {config->tp, config->pp, config->dp, config->zero};
    static const char *const names[] = {"option --tp", "option --pp", "option --dp",
                                        "option --zero"};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    char texts[COUNT][24];
    sl_comm_fact facts[COUNT];
    for (int i = 0; i < COUNT; i++) {
        snprintf(texts[i], sizeof texts[i], "%" PRIu64, sizes[i]);
        facts[i] = (sl_comm_fact){names[i], sizes[i] == SL_CONFIG_UNSET ? "auto" : texts[i]};
    }
    return sl_ranks_agree_on(ranks, facts, COUNT);
}

sl_status sl_ranks_take_first(const sl_ranks *ranks, uint64_t *numbers, uint32_t count)
{
    const uint64_t bytes = (uint64_t)count * sizeof *numbers;
    return ranks->world ? sl_comm_broadcast(ranks->world, 0, bytes, numbers) : SL_OK;
}

sl_status sl_ranks_divide(sl_ranks *ranks, sl_config *config)
{
    SL_TRY(check(ranks, config));
    ranks->layout =
        (sl_comm_layout){(uint32_t)config->tp, (uint32_t)config->dp, (uint32_t)config->pp};
    if (!ranks->world)
        return SL_OK;
    ranks->place = sl_comm_place_of(&ranks->layout, ranks->table.rank);
    SL_TRY(split(ranks, SL_COMM_TENSOR, &ranks->tensor));
    SL_TRY(split(ranks, SL_COMM_DATA, &ranks->data));
    SL_TRY(split(ranks, SL_COMM_STAGES, &ranks->stages));
    return open_gpus(ranks, config);
}

void sl_ranks_plan(sl_ranks *ranks, const sl_config *config)
{
    ranks->layout =
        (sl_comm_layout){(uint32_t)config->tp, (uint32_t)config->dp, (uint32_t)config->pp};
}

void sl_ranks_leave(sl_ranks *ranks, sl_status status)
{
    if (!ranks->world || status == SL_OK || ranks->has_stopped)
        return;
    if (status == SL_ERROR_STOPPED)
        sl_comm_stop(ranks->world, sl_status_message());
    else
        sl_comm_abort(ranks->world, sl_status_message());
}

void sl_ranks_unite(sl_ranks *ranks)
{
    static const sl_comm_group groups[] = {SL_COMM_TENSOR, SL_COMM_DATA, SL_COMM_STAGES};
    sl_gpu_ranks_close(ranks->gpus);
    ranks->gpus = NULL;
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        sl_comm_close(ranks->end[groups[i]].comm);
        ranks->end[groups[i]] = (sl_ranks_end){0};
    }
    ranks->layout = (sl_comm_layout){0};
    ranks->place = (sl_comm_place){0};
    ranks->tensor = ranks->data = ranks->stages = (sl_engine_ranks){0};
}

void sl_ranks_close(sl_ranks *ranks)
{
    sl_ranks_unhear(ranks);
    sl_ranks_unite(ranks);
    sl_comm_close(ranks->world);
    *ranks = (sl_ranks){0};
}

/* `what`: the rank that failed did. */
static sl_status agree_on_failure(const sl_ranks *ranks, sl_status status, sl_status failure,
                                  const char *what)
{
    const uint32_t own = status == failure;
    uint32_t all[SL_COMM_RANKS_MAX] = {0};
    sl_first_failure found = {0};
    if (!ranks->world || (status != SL_OK && !own))
        return status;
    sl_first_failure_keep(&found, status);
    SL_TRY(sl_comm_all_gather(ranks->world, sizeof own, &own, all));
    SL_TRY(sl_first_failure_return(&found));
    for (uint32_t rank = 0; rank < ranks->table.size; rank++)
        if (all[rank])
            SL_FAIL(failure, "rank %u %s", rank, what);
    return SL_OK;
}

sl_status sl_ranks_agree_on_damage(const sl_ranks *ranks, sl_status status)
{
    return agree_on_failure(ranks, status, SL_ERROR_DAMAGED, "found damage in what it loaded");
}

sl_status sl_ranks_agree_on_fit(const sl_ranks *ranks, sl_status status)
{
    return agree_on_failure(ranks, status, SL_ERROR_FIT, "has no room for its part of the model");
}

sl_status sl_ranks_agree_on_usage(const sl_ranks *ranks, sl_status status)
{
    return agree_on_failure(ranks, status, SL_ERROR_USAGE, "refused what it was asked for");
}

double sl_ranks_find_patience(double timeout_s, double step_seconds)
{
    enum { STEPS = 10 };
    return timeout_s > STEPS * step_seconds ? timeout_s : STEPS * step_seconds;
}

void sl_ranks_set_patience(const sl_ranks *ranks, double seconds)
{
    if (ranks->world)
        sl_comm_set_timeout(ranks->world, seconds);
    if (ranks->gpus)
        sl_gpu_ranks_set_timeout(ranks->gpus, seconds);
}

void sl_ranks_set_work(sl_ranks *ranks, bool is_at_work)
{
    ranks->is_at_work = is_at_work;
    if (ranks->world)
        sl_comm_set_work(ranks->world, is_at_work);
}

void sl_ranks_set_heartbeat(const sl_ranks *ranks, double seconds)
{
    if (ranks->world)
        sl_comm_set_heartbeat(ranks->world, seconds);
}

void sl_ranks_begin_step(sl_ranks *ranks, uint64_t step)
{
    atomic_store(&ranks->step, step);
    if (ranks->world)
        sl_comm_post(ranks->world, step, "its start");
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

/* Of custom ops addresses differ from process to process, names do not. */
static void add_lists(sl_hash_stream *stream, const sl_program *program)
{
    sl_hash_update(stream, program->constants, program->constant_count * sizeof(sl_constant));
    for (uint32_t i = 0; i < program->custom_count; i++)
        sl_hash_update(stream, program->customs[i].name, strlen(program->customs[i].name) + 1);
}

static sl_status hash_plans(const sl_blueprint *blueprint, char out_text[FACT_BYTES])
{
    sl_hash_stream *stream;
    SL_TRY(sl_hash_open(&stream));
    for (uint32_t c = 0; c < blueprint->layout->chunk_count; c++) {
        const sl_chunk *chunk = &blueprint->layout->chunks[c];
        const uint64_t words[] = {chunk->elements, chunk->first_block, (uint64_t)chunk->rule};
        sl_hash_update(stream, words, sizeof words);
    }
    for (uint32_t i = 0; i < blueprint->program_count; i++) {
        add_lists(stream, blueprint->programs[i]);
        add_plan(stream, blueprint->plans[i]);
    }
    const sl_hash_value hash = sl_hash_digest(stream);
    sl_hash_close(stream);
    snprintf(out_text, FACT_BYTES, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return SL_OK;
}

/* ---- the options, one by one ---- */

enum { OPTION_BYTES = 160 };

/* What a rank may have in its own way: it changes no number, and no call that ranks make together.
 * Budgets are part of the plan, files of data are known by what is in them. */
static bool may_differ(uint32_t row)
{
    static const uint32_t own_rows[] = {SL_CONFIG_ROW_model,       SL_CONFIG_ROW_tokenizer,
                                        SL_CONFIG_ROW_cache_dir,   SL_CONFIG_ROW_device_memory,
                                        SL_CONFIG_ROW_host_memory, SL_CONFIG_ROW_disk_space,
                                        SL_CONFIG_ROW_disk_dir,    SL_CONFIG_ROW_disk_endurance,
                                        SL_CONFIG_ROW_machine,     SL_CONFIG_ROW_rank_timeout,
                                        SL_CONFIG_ROW_threads,     SL_CONFIG_ROW_keep,
                                        SL_CONFIG_ROW_resume,      SL_CONFIG_ROW_overwrite,
                                        SL_CONFIG_ROW_log_json,    SL_CONFIG_ROW_log_csv,
                                        SL_CONFIG_ROW_tensorboard, SL_CONFIG_ROW_timeline,
                                        SL_CONFIG_ROW_report,      SL_CONFIG_ROW_log_every,
                                        SL_CONFIG_ROW_quiet,       SL_CONFIG_ROW_heartbeat_timeout};
    for (size_t i = 0; i < sizeof own_rows / sizeof own_rows[0]; i++)
        if (own_rows[i] == row)
            return true;
    return false;
}

/* What each stage of a pipeline may decide for itself. */
static bool is_of_stage(uint32_t row)
{
    static const uint32_t rows[] = {SL_CONFIG_ROW_chunk_size,
                                    SL_CONFIG_ROW_recompute,
                                    SL_CONFIG_ROW_policy,
                                    SL_CONFIG_ROW_adam,
                                    SL_CONFIG_ROW_offload_updates,
                                    SL_CONFIG_ROW_offload_params,
                                    SL_CONFIG_ROW_offload_grads,
                                    SL_CONFIG_ROW_offload_optimizer,
                                    SL_CONFIG_ROW_offload_activations,
                                    SL_CONFIG_ROW_nvme_params,
                                    SL_CONFIG_ROW_nvme_grads,
                                    SL_CONFIG_ROW_nvme_optimizer,
                                    SL_CONFIG_ROW_nvme_activations};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i] == row)
            return true;
    return false;
}

static bool is_place(uint32_t row)
{
    return row == SL_CONFIG_ROW_init || row == SL_CONFIG_ROW_adapter || row == SL_CONFIG_ROW_save ||
           row == SL_CONFIG_ROW_checkpoint;
}

/* "2:,1:": what stands before the paths. */
static void describe_weights(const json_t *list, char text[OPTION_BYTES])
{
    size_t length = 0;
    for (size_t i = 0; i < json_array_size(list) && length < OPTION_BYTES - 1; i++) {
        const char *item = json_string_value(json_array_get(list, i));
        const size_t weight = item ? strspn(item, "0123456789.:") : 0;
        length += (size_t)snprintf(text + length, OPTION_BYTES - length, "%.*s,",
                                   weight < 32 ? (int)weight : 32, item ? item : "");
    }
}

/* A hash of the items of a list that is no list of paths. */
static void describe_words(const json_t *list, char text[OPTION_BYTES])
{
    uint64_t all = json_array_size(list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        const sl_hash_value hash = sl_hash_128(item ? item : "", item ? strlen(item) : 0);
        all = 31 * all + (hash.low ^ hash.high);
    }
    snprintf(text, OPTION_BYTES, "%016" PRIx64, all);
}

/* Options whose words are patterns of names. */
static bool names_tensors(uint32_t row)
{
    return row == SL_CONFIG_ROW_freeze || row == SL_CONFIG_ROW_rule || row == SL_CONFIG_ROW_lr_of ||
           row == SL_CONFIG_ROW_decay_of || row == SL_CONFIG_ROW_lora_targets;
}

/* Of what is a place, whether there is one: the same bytes may lie elsewhere on another machine. */
static void describe_option(const json_t *options, uint32_t row, char text[OPTION_BYTES])
{
    char key[64];
    sl_config_format_key(row, key, sizeof key);
    const json_t *value = json_object_get(options, key);
    text[0] = '\0';
    if (json_is_array(value) && names_tensors(row))
        describe_words(value, text);
    else if (json_is_array(value))
        describe_weights(value, text);
    else if (json_is_string(value) && is_place(row))
        snprintf(text, OPTION_BYTES, "%s", strchr(json_string_value(value), '/') ? "DIR" : "none");
    else if (json_is_string(value))
        snprintf(text, OPTION_BYTES, "%s", json_string_value(value));
    else if (json_is_real(value))
        snprintf(text, OPTION_BYTES, "%.17g", json_real_value(value));
    else if (json_is_integer(value))
        snprintf(text, OPTION_BYTES, "%" PRId64, (int64_t)json_integer_value(value));
    else
        snprintf(text, OPTION_BYTES, "%s", json_is_true(value) ? "true" : "false");
}

typedef struct option_facts {
    sl_comm_fact facts[SL_CONFIG_ROW_COUNT];
    char names[SL_CONFIG_ROW_COUNT][64], values[SL_CONFIG_ROW_COUNT][OPTION_BYTES];
    uint32_t count;
} option_facts;

static void list_options(const sl_ranks_work *work, const json_t *options, option_facts *all)
{
    const bool has_stages = work->config->pp > 1;
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        const sl_config_row *it = &sl_config_rows()[row];
        const uint32_t at = all->count;
        if (!(it->commands & work->command) || may_differ(row) || (has_stages && is_of_stage(row)))
            continue;
        snprintf(all->names[at], sizeof all->names[at], "option --%.50s", it->name);
        describe_option(options, row, all->values[at]);
        all->facts[at] = (sl_comm_fact){all->names[at], all->values[at]};
        all->count++;
    }
}

sl_status sl_ranks_agree_on(const sl_ranks *ranks, const sl_comm_fact *facts, uint32_t count)
{
    return ranks->world ? sl_comm_agree(ranks->world, facts, count) : SL_OK;
}

/* A rank that works with other options gives other numbers, or calls what nobody else does. */
static sl_status agree_on_options(const sl_ranks *ranks, const sl_ranks_work *work)
{
    json_t *options;
    SL_TRY(sl_config_format(work->config, work->command, &options));
    option_facts *all = calloc(1, sizeof *all);
    if (!all) {
        json_decref(options);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to compare options");
    }
    list_options(work, options, all);
    const sl_status status = sl_ranks_agree_on(ranks, all->facts, all->count);
    json_decref(options);
    free(all);
    return status;
}

static void hash_layers(const sl_blueprint *blueprint, char out_text[FACT_BYTES])
{
    const sl_task *task = &blueprint->task;
    snprintf(out_text, FACT_BYTES, "%016" PRIx64,
             sl_hash_64(task->stage_ends, sizeof task->stage_ends));
}

/* The plans of a stage are equal; those of others are not, yet all take as many micro-batches. */
static sl_status agree_on_plans(const sl_ranks *ranks, const sl_blueprint *blueprint,
                                const char plan[FACT_BYTES])
{
    char rows[FACT_BYTES], layers[FACT_BYTES], (*plans)[FACT_BYTES];
    const uint32_t size = ranks->table.size, ranks_a_stage = size / ranks->layout.stages;
    sl_status status;
    if (ranks->layout.stages == 1)
        return sl_comm_agree(ranks->world, &(sl_comm_fact){"the plan", plan}, 1);
    snprintf(rows, sizeof rows, "%u x %u", blueprint->choice.accumulate,
             blueprint->choice.micro_batch);
    hash_layers(blueprint, layers);
    const sl_comm_fact facts[] = {{"the micro-batches", rows}, {"the layers of stages", layers}};
    SL_TRY(sl_comm_agree(ranks->world, facts, sizeof facts / sizeof facts[0]));
    plans = calloc(size, sizeof *plans);
    if (!plans)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to compare plans");
    status = sl_comm_all_gather(ranks->world, FACT_BYTES, plan, plans);
    for (uint32_t rank = 0; rank < size && status == SL_OK; rank++) {
        const uint32_t first = rank / ranks_a_stage * ranks_a_stage;
        if (strcmp(plans[rank], plans[first]) != 0)
            status = sl_status_fail(SL_ERROR_USAGE,
                                    "ranks %u and %u have one stage and differ in the plan: %s and "
                                    "%s",
                                    first, rank, plans[first], plans[rank]);
    }
    free(plans);
    return status;
}

/* The lists of all ranks, of `most` entries each: one of each stage is looked at, whose others have
 * the same plan. */
static sl_status check_lists(const sl_ranks *ranks, const sl_exchange_order_op *all,
                             const uint32_t *counts, uint32_t most)
{
    sl_exchange_order_list stages[SL_COMM_RANKS_MAX];
    const uint32_t ranks_a_stage = ranks->table.size / ranks->layout.stages;
    for (uint32_t s = 0; s < ranks->layout.stages; s++) {
        const uint32_t rank = s * ranks_a_stage;
        stages[s] = (sl_exchange_order_list){all + (uint64_t)rank * most, counts[rank]};
    }
    return sl_exchange_order_check(stages, ranks->layout.stages);
}

static sl_status gather_lists(const sl_ranks *ranks, const sl_exchange_order_op *mine,
                              uint32_t count)
{
    uint32_t counts[SL_COMM_RANKS_MAX], most = 1;
    const uint32_t size = ranks->table.size;
    SL_TRY(sl_comm_all_gather(ranks->world, sizeof count, &count, counts));
    for (uint32_t rank = 0; rank < size; rank++)
        most = counts[rank] > most ? counts[rank] : most;
    sl_exchange_order_op *all = calloc((uint64_t)size * most + 1, sizeof *all);
    sl_exchange_order_op *own = calloc(most, sizeof *own);
    sl_status status = SL_OK;
    if (all == NULL || own == NULL) {
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for what %u ranks exchange", size);
        goto free_both;
    }
    memcpy(own, mine, count * sizeof *own);
    status = sl_comm_all_gather(ranks->world, most * sizeof *own, own, all);
    if (status == SL_OK)
        status = check_lists(ranks, all, counts, most);
free_both:
    free(own);
    free(all);
    return status;
}

/* What stages exchange in a step comes to its end, in every plan's order. */
static sl_status check_drain(const sl_ranks *ranks, const sl_blueprint *blueprint)
{
    sl_exchange_order_op *ops;
    uint32_t count;
    if (ranks->layout.stages == 1)
        return SL_OK;
    SL_TRY(sl_exchange_order_find(blueprint->programs[0], &ops, &count));
    const sl_status status = gather_lists(ranks, ops, count);
    free(ops);
    return status;
}

sl_status sl_ranks_agree(const sl_ranks *ranks, const sl_ranks_work *work)
{
    const sl_blueprint *blueprint = work->blueprint;
    char plan[FACT_BYTES];
    if (!ranks->world)
        return SL_OK;
    SL_TRY(hash_plans(blueprint, plan));
    const sl_comm_fact before[] = {
        {"the version", sl_version_text()},
        {"the commit", sl_version_commit()},
        {"the kernels", sl_kernels_of(blueprint->task.target.device)->description()},
        {"the GPU",
         blueprint->task.target.device == SL_DEVICE_CPU ? "" : blueprint->task.device_info.name},
        {"the step", work->position},
    };
    SL_TRY(sl_comm_agree(ranks->world, before, sizeof before / sizeof before[0]));
    SL_TRY(agree_on_options(ranks, work));
    SL_TRY(agree_on_plans(ranks, blueprint, plan));
    return check_drain(ranks, blueprint);
}
