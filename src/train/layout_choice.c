/* See layout_choice.h. */
#include "layout_choice.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cluster/here.h"
#include "cluster/job_rules.h"
#include "config/batch.h"
#include "config/config_json.h"
#include "trainer.h"

enum { TP, PP, ZERO, MICRO_BATCH, NUMBER_COUNT };

static const uint32_t rows[NUMBER_COUNT] = {SL_CONFIG_ROW_tp, SL_CONFIG_ROW_pp, SL_CONFIG_ROW_zero,
                                            SL_CONFIG_ROW_micro_batch};

static uint64_t *number_of(sl_config *config, int index)
{
    uint64_t *const fields[NUMBER_COUNT] = {&config->tp, &config->pp, &config->zero,
                                            &config->micro_batch};
    return fields[index];
}

/* ---- what is open ---- */

/* The first option that is auto, for messages; NULL: none is. */
static const char *find_open(sl_config *config)
{
    for (int i = 0; i < MICRO_BATCH; i++)
        if (*number_of(config, i) == SL_CONFIG_UNSET)
            return sl_config_rows()[rows[i]].name;
    return NULL;
}

static bool has_open_groups(const sl_config *config)
{
    return config->tp == SL_CONFIG_UNSET || config->pp == SL_CONFIG_UNSET;
}

static void note_open(sl_config *config, sl_layout_choice *choice)
{
    *choice = (sl_layout_choice){.is_made = true};
    choice->is_chosen[MICRO_BATCH] = sl_batch_is_chosen(config);
    for (int i = 0; i < MICRO_BATCH; i++)
        choice->is_chosen[i] = *number_of(config, i) == SL_CONFIG_UNSET;
}

static uint32_t count_ranks(const sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    if (trainer->ranks.world)
        return trainer->ranks.table.size;
    const bool is_planned = trainer->command == SL_CONFIG_PLAN &&
                            config->ranks != SL_CONFIG_UNSET && config->ranks <= SL_COMM_RANKS_MAX;
    return is_planned ? (uint32_t)config->ranks : 1; /* more are refused with their number */
}

/* A choice must not change what is computed: only --global-batch says how many rows a step has,
 * whatever the layout. */
static sl_status check_rows(const sl_trainer *trainer, const char *open)
{
    const sl_config *config = trainer->config;
    if (!has_open_groups(config))
        return SL_OK;
    if (config->global_batch == SL_CONFIG_UNSET)
        SL_FAIL(SL_ERROR_USAGE,
                "--%s auto needs --global-batch N: the rows of a step, which stay as many for "
                "every choice",
                open);
    if (!sl_resume_frees_accumulate(&trainer->resume, config))
        SL_FAIL(SL_ERROR_USAGE,
                "--accumulate beside --%s auto: leave it out; it follows from --global-batch",
                open);
    return SL_OK;
}

static sl_status check_machines(const sl_trainer *trainer, const char *open)
{
    const sl_machines *machines = &trainer->layout_choice.machines;
    if (machines->ranks_each == 0)
        SL_FAIL(SL_ERROR_USAGE,
                "--%s auto needs as many ranks on each of the %u machines, and ranks of a machine "
                "that follow each other: share them out so (NAME slots=N in the file of --hosts, "
                "mpirun --map-by slot, srun -m block), or give numbers",
                open, machines->count);
    return SL_OK;
}

static sl_status check_request(const sl_trainer *trainer, const char *open)
{
    if (trainer->inputs.build)
        SL_FAIL(SL_ERROR_USAGE, "--%s auto: the model is the program's own: give a number", open);
    SL_TRY(check_machines(trainer, open));
    return check_rows(trainer, open);
}

/* ---- the layout of the checkpoint ---- */

static bool is_rank_count(uint64_t number)
{
    return number >= 1 && number <= SL_COMM_RANKS_MAX;
}

/* Takes it, if it is of as many ranks and of the options that are given. */
static sl_status find_recorded(sl_trainer *trainer, sl_layout_choice *choice)
{
    sl_config *config = trainer->config;
    uint64_t numbers[MICRO_BATCH], data;
    if (!trainer->resume.checkpoint)
        return SL_OK;
    for (int i = 0; i < MICRO_BATCH; i++) {
        SL_TRY(sl_resume_recorded_number(&trainer->resume, rows[i], &numbers[i]));
        const uint64_t given = *number_of(config, i);
        if (given != SL_CONFIG_UNSET && i != ZERO && given != numbers[i])
            return SL_OK;
    }
    SL_TRY(sl_resume_recorded_number(&trainer->resume, SL_CONFIG_ROW_dp, &data));
    if (!is_rank_count(numbers[TP]) || !is_rank_count(numbers[PP]) || !is_rank_count(data) ||
        numbers[TP] * numbers[PP] * data != choice->rank_count || numbers[ZERO] > 3)
        return SL_OK;
    const bool has_other_data = config->dp != SL_CONFIG_UNSET && config->dp != data;
    if (has_other_data || (config->global_batch != SL_CONFIG_UNSET &&
                           config->global_batch % (config->micro_batch * data) != 0))
        return SL_OK;
    memcpy(choice->numbers, numbers, sizeof numbers);
    choice->numbers[MICRO_BATCH] = config->micro_batch;
    choice->is_recorded = true;
    return SL_OK;
}

/* ---- the search ---- */

static void drop_line(void *user, sl_log_level level, const char *line)
{
    (void)level;
    (void)line;
    (void)user;
}

/* What one rank has of this machine. What is logged on the way comes again with the plan. */
static sl_status find_share(sl_trainer *trainer, uint32_t rank_count, sl_search *out_search)
{
    static const sl_log_receiver nobody = {drop_line, NULL};
    sl_config config = *trainer->config; /* a copy that owns nothing, of one rank */
    SL_LOG_ENTER(&nobody);
    config.tp = config.pp = config.dp = config.zero = 1;
    SL_TRY(sl_search_init(&config, SL_WORK_TRAIN, &trainer->shape, out_search));
    if (!trainer->ranks.world)
        trainer->ranks.layout = (sl_comm_layout){1, rank_count, 1};
    return sl_ranks_share(&trainer->ranks, out_search);
}

static uint32_t fixed_number(uint64_t value)
{
    return value == SL_CONFIG_UNSET ? 0 : (uint32_t)value;
}

static int fixed_choice(uint64_t value, uint64_t automatic)
{
    return value == automatic ? SL_CLUSTER_OPEN : (int)value;
}

/* Stages in layer order send all micro-batches forward first, which estimates do not know. */
static void fix_choices(const sl_config *config, sl_cluster_question *question)
{
    const bool is_by_layer = config->accumulation == SL_ACCUMULATE_LAYER;
    question->tensor = fixed_number(config->tp);
    question->data = fixed_number(config->dp);
    question->stages = config->pp == SL_CONFIG_UNSET && is_by_layer ? 1 : fixed_number(config->pp);
    question->micro_batch = sl_batch_is_chosen(config) ? 0 : (uint32_t)config->micro_batch;
    question->zero = fixed_choice(config->zero, SL_CONFIG_UNSET);
    question->recompute = fixed_choice(config->recompute, SL_CONFIG_RECOMPUTE_AUTO);
    question->policy = fixed_choice(config->policy, SL_CONFIG_POLICY_AUTO);
    question->accumulation = fixed_choice(config->accumulation, SL_CONFIG_ACCUMULATION_AUTO);
    question->is_gpipe = config->schedule == SL_SCHEDULE_GPIPE;
}

static uint64_t count_step_rows(const sl_config *config, uint32_t rank_count)
{
    if (config->global_batch != SL_CONFIG_UNSET)
        return config->global_batch;
    return config->micro_batch * config->accumulate * (rank_count / (config->tp * config->pp));
}

static sl_cluster_job make_job(const sl_trainer *trainer, uint32_t rank_count)
{
    const sl_config *config = trainer->config;
    return (sl_cluster_job){.shape = trainer->shape,
                            .type = (sl_type)config->precision,
                            .seq = (uint32_t)config->seq,
                            .ranks = rank_count,
                            .global_batch = count_step_rows(config, rank_count),
                            .sequence_parallel = config->sequence_parallel,
                            .partition_activations = config->partition_activations,
                            .lora_dropout = (float)config->lora_dropout,
                            .rules = sl_update_rules_of(config)};
}

static void take_candidate(const sl_cluster_candidate *it, sl_layout_choice *choice)
{
    const uint64_t numbers[NUMBER_COUNT] = {it->layout.tensor, it->layout.stages, it->zero,
                                            it->micro_batch};
    memcpy(choice->numbers, numbers, sizeof numbers);
}

/* By estimate nothing may fit that fits all the same: the plan of what misses least decides. */
static void take_answer(const sl_cluster_answer *answer, sl_layout_choice *choice)
{
    choice->considered = answer->considered;
    choice->fitting = answer->fitting;
    choice->count = answer->count;
    memcpy(choice->best, answer->best, sizeof choice->best);
    take_candidate(answer->count > 0 ? &answer->best[0].candidate : &answer->miss.candidate,
                   choice);
}

static sl_status search_here(const sl_trainer *trainer, const sl_search *share,
                             sl_layout_choice *choice)
{
    sl_cluster cluster;
    sl_cluster_rank rank;
    sl_cluster_question question = {.job = make_job(trainer, choice->rank_count)};
    sl_cluster_answer answer;
    question.job.cluster = &cluster;
    const sl_machines *machines = &choice->machines;
    const bool has_others = machines->count > 1;
    sl_cluster_here(share, has_others ? machines->ranks_each : choice->rank_count,
                    has_others ? &machines->network : NULL, &rank, &cluster);
    snprintf(choice->basis, sizeof choice->basis, "%s", sl_machine_basis(&share->task.machine));
    SL_TRY(sl_cluster_check_rules(&question.job));
    fix_choices(trainer->config, &question);
    const sl_status status = sl_cluster_choose(&question, &answer);
    if (status != SL_ERROR_FIT)
        SL_TRY(status);
    take_answer(&answer, choice);
    return SL_OK;
}

/* ---- words ---- */

static void describe_layout(const sl_layout_choice *choice, const uint64_t numbers[NUMBER_COUNT],
                            char *out_text, size_t capacity)
{
    const uint64_t data = choice->rank_count / (numbers[TP] * numbers[PP]);
    const int used = snprintf(out_text, capacity,
                              "--tp %" PRIu64 " --pp %" PRIu64 " --dp %" PRIu64 " --zero %" PRIu64,
                              numbers[TP], numbers[PP], data, numbers[ZERO]);
    if (choice->is_chosen[MICRO_BATCH] && used > 0 && (size_t)used < capacity)
        snprintf(out_text + used, capacity - (size_t)used, " --micro-batch %" PRIu64,
                 numbers[MICRO_BATCH]);
}

/* "compute 0.700, bubble 0.112" */
static void describe_shares(const sl_cluster_estimate *it, char *out_text, size_t capacity)
{
    size_t used = 0;
    *out_text = '\0';
    for (int i = 0; i < SL_CLUSTER_SHARE_COUNT && used < capacity; i++)
        if (it->share_seconds[i] >= 5e-4 * it->step_seconds)
            used += (size_t)snprintf(
                out_text + used, capacity - used, "%s%s %.3g", used > 0 ? ", " : "",
                sl_cluster_share_name((sl_cluster_share)i), it->share_seconds[i]);
}

enum { LAYOUT_BYTES = 96, SHARES_BYTES = 160, PLACE_BYTES = 32 };

static void describe_place(const sl_layout_choice *choice, char out_text[PLACE_BYTES])
{
    if (choice->machines.count > 1)
        snprintf(out_text, PLACE_BYTES, "%u machines", choice->machines.count);
    else
        snprintf(out_text, PLACE_BYTES, "this machine");
}

static void tell_network(const sl_layout_choice *choice)
{
    const sl_machines *machines = &choice->machines;
    if (machines->count > 1)
        sl_log_write(SL_LOG_NOTE,
                     "auto measured what joins the %u machines: %.3g GB/s each way of a machine's "
                     "%u ranks together, %.3g ms before the first byte",
                     machines->count, 1e-9 * machines->network.byte_rate, machines->ranks_each,
                     1e3 * machines->network.seconds);
}

static void tell_others(const sl_layout_choice *choice)
{
    char layout[LAYOUT_BYTES], shares[SHARES_BYTES];
    for (uint32_t i = 1; i < choice->count; i++) {
        sl_layout_choice other = *choice;
        take_candidate(&choice->best[i].candidate, &other);
        describe_layout(&other, other.numbers, layout, sizeof layout);
        describe_shares(&choice->best[i], shares, sizeof shares);
        sl_log_write(SL_LOG_NOTE, "slower: %s, %.3g s (%s)", layout, choice->best[i].step_seconds,
                     shares);
    }
}

static void tell(const sl_trainer *trainer)
{
    const sl_layout_choice *choice = &trainer->layout_choice;
    char layout[LAYOUT_BYTES], shares[SHARES_BYTES], place[PLACE_BYTES];
    if (trainer->config->quiet || !sl_ranks_is_first(&trainer->ranks) || choice->rank_count == 1)
        return;
    describe_layout(choice, choice->numbers, layout, sizeof layout);
    if (choice->is_recorded) {
        sl_log_write(SL_LOG_NOTE, "auto keeps the checkpoint's layout: %s", layout);
        return;
    }
    describe_place(choice, place);
    tell_network(choice);
    if (choice->count == 0) {
        sl_log_write(SL_LOG_NOTE,
                     "auto takes %s, which misses least memory by estimate: none of %" PRIu64
                     " combinations fits on %u ranks of %s",
                     layout, choice->considered, choice->rank_count, place);
        return;
    }
    describe_shares(&choice->best[0], shares, sizeof shares);
    sl_log_write(SL_LOG_NOTE,
                 "auto takes %s: by %s the fastest of %" PRIu64
                 " combinations that fit on %u ranks of %s, %.3g s a step (%s)",
                 layout, choice->basis, choice->fitting, choice->rank_count, place,
                 choice->best[0].step_seconds, shares);
    tell_others(choice);
}

/* ---- the choice ---- */

/* One rank has nothing to share; and numbers that do not divide the ranks are refused later. */
static bool has_choice(const sl_config *config, uint32_t rank_count)
{
    return rank_count > 1 &&
           (has_open_groups(config) || rank_count % (config->tp * config->pp) == 0);
}

static void take_defaults(const sl_config *config, sl_layout_choice *choice)
{
    const uint64_t numbers[NUMBER_COUNT] = {1, 1, 1, config->micro_batch};
    memcpy(choice->numbers, numbers, sizeof numbers);
}

static sl_status choose_as_first(sl_trainer *trainer, const sl_search *share, const char *open)
{
    sl_layout_choice *choice = &trainer->layout_choice;
    SL_TRY(find_recorded(trainer, choice));
    if (choice->is_recorded)
        return SL_OK;
    SL_TRY(check_request(trainer, open));
    const sl_status status = search_here(trainer, share, choice);
    return status == SL_ERROR_USAGE ? sl_status_prefix(status, "--%s auto", open) : status;
}

static sl_status choose(sl_trainer *trainer, const char *open)
{
    sl_search share;
    sl_layout_choice *choice = &trainer->layout_choice;
    SL_TRY(find_share(trainer, choice->rank_count, &share));
    SL_TRY(sl_machines_measure(&trainer->ranks, &choice->machines));
    if (sl_ranks_is_first(&trainer->ranks))
        SL_TRY(choose_as_first(trainer, &share, open));
    return sl_ranks_take_first(&trainer->ranks, choice->numbers, NUMBER_COUNT);
}

sl_status sl_layout_choose(sl_trainer *trainer)
{
    sl_config *config = trainer->config;
    sl_layout_choice *choice = &trainer->layout_choice;
    const char *open = find_open(config);
    const bool is_first = !choice->is_made;
    if (!open)
        return SL_OK;
    note_open(config, choice);
    choice->rank_count = count_ranks(trainer);
    if (has_choice(config, choice->rank_count))
        SL_TRY(choose(trainer, open));
    else
        take_defaults(config, choice);
    for (int i = 0; i < NUMBER_COUNT; i++) {
        if (!choice->is_chosen[i])
            continue;
        *number_of(config, i) = choice->numbers[i];
        config->was_auto[rows[i]] = i != MICRO_BATCH;
    }
    if (choice->is_chosen[MICRO_BATCH])
        config->solves_micro_batch = false;
    if (is_first)
        tell(trainer);
    return SL_OK;
}

void sl_layout_reopen(const sl_trainer *trainer, sl_config *config)
{
    const sl_layout_choice *choice = &trainer->layout_choice;
    for (int i = 0; i < MICRO_BATCH; i++)
        if (choice->is_chosen[i] && *number_of(config, i) == choice->numbers[i])
            *number_of(config, i) = SL_CONFIG_UNSET;
}

/* ---- as JSON ---- */

static json_t *list_chosen(const sl_layout_choice *choice)
{
    char key[32];
    json_t *list = json_array();
    for (int i = 0; list && i < NUMBER_COUNT; i++) {
        sl_config_format_key(rows[i], key, sizeof key);
        if (choice->is_chosen[i] && json_array_append_new(list, json_string(key)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *format_estimate(const sl_cluster_estimate *it)
{
    const sl_cluster_candidate *candidate = &it->candidate;
    json_t *seconds = json_object();
    bool has_failed = !seconds;
    for (int i = 0; i < SL_CLUSTER_SHARE_COUNT && !has_failed; i++)
        has_failed = json_object_set_new(seconds, sl_cluster_share_name((sl_cluster_share)i),
                                         json_real(it->share_seconds[i])) != 0;
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:f, s:o}", "tp", (int)candidate->layout.tensor,
                     "dp", (int)candidate->layout.data, "pp", (int)candidate->layout.stages, "zero",
                     (int)candidate->zero, "micro_batch", (int)candidate->micro_batch,
                     "predicted_step_ms", 1e3 * it->step_seconds, "seconds", seconds);
}

static json_t *list_compared(const sl_layout_choice *choice)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < choice->count; i++)
        if (json_array_append_new(list, format_estimate(&choice->best[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Nothing of one machine. */
static sl_status add_machines(const sl_machines *machines, json_t *layout)
{
    if (machines->count <= 1)
        return SL_OK;
    json_t *network = json_pack("{s:f, s:f}", "byte_rate", machines->network.byte_rate, "seconds",
                                machines->network.seconds);
    const bool has_failed =
        json_object_set_new(layout, "machines", json_integer(machines->count)) != 0;
    if (json_object_set_new(layout, "network", network) != 0 || has_failed)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the layout as JSON");
    return SL_OK;
}

sl_status sl_layout_choice_add(const sl_layout_choice *choice, json_t *plan)
{
    if (!choice->is_made)
        return SL_OK;
    json_t *layout = json_pack(
        "{s:o, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "chosen", list_chosen(choice), "from",
        choice->is_recorded       ? "checkpoint"
        : choice->rank_count == 1 ? "one rank"
                                  : "search",
        "ranks", (int)choice->rank_count, "tp", (json_int_t)choice->numbers[TP], "pp",
        (json_int_t)choice->numbers[PP], "zero", (json_int_t)choice->numbers[ZERO], "micro_batch",
        (json_int_t)choice->numbers[MICRO_BATCH], "considered", (json_int_t)choice->considered,
        "fitting", (json_int_t)choice->fitting, "compared", list_compared(choice));
    if (!layout || json_object_set_new(plan, "layout", layout) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the layout as JSON");
    return add_machines(&choice->machines, layout);
}
