/* `sluice plan --ranks N --cluster FILE`: options into a question, the answer as a table or JSON.
 */
#include "plan_cluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/plural.h"
#include "busy_line.h"
#include "cluster/job_rules.h"
#include "cluster/rank_counts.h"
#include "comm/comm.h"
#include "command.h"
#include "config/lora.h"
#include "report/cluster_page.h"
#include "report/page.h"
#include "run_config.h"
#include "search/search.h"
#include "terminal.h"

/* ---- the question ---- */

static int fixed_choice(const sl_config *config, uint32_t row, int value, int automatic)
{
    return config->given[row] && value != automatic ? value : SL_CLUSTER_OPEN;
}

static uint32_t fixed_count(const sl_config *config, uint32_t row, uint64_t value)
{
    return config->given[row] && value != SL_CONFIG_UNSET ? (uint32_t)value : 0;
}

static void fix_choices(const sl_config *config, sl_cluster_question *question)
{
    question->tensor = fixed_count(config, SL_CONFIG_ROW_tp, config->tp);
    question->data = fixed_count(config, SL_CONFIG_ROW_dp, config->dp);
    question->stages = fixed_count(config, SL_CONFIG_ROW_pp, config->pp);
    question->micro_batch = fixed_count(config, SL_CONFIG_ROW_micro_batch, config->micro_batch);
    question->zero = fixed_choice(config, SL_CONFIG_ROW_zero, (int)config->zero, SL_CLUSTER_OPEN);
    question->recompute = fixed_choice(config, SL_CONFIG_ROW_recompute, (int)config->recompute,
                                       SL_CONFIG_RECOMPUTE_AUTO);
    question->policy =
        fixed_choice(config, SL_CONFIG_ROW_policy, (int)config->policy, SL_CONFIG_POLICY_AUTO);
    question->accumulation = fixed_choice(config, SL_CONFIG_ROW_accumulation,
                                          (int)config->accumulation, SL_CONFIG_ACCUMULATION_AUTO);
    question->is_gpipe = fixed_choice(config, SL_CONFIG_ROW_schedule,
                                      config->schedule == SL_SCHEDULE_GPIPE, SL_CLUSTER_OPEN);
    question->plans = true;
}

/* The description says what there is, and the search chooses the rest. */
static sl_status refuse_unsearched(const sl_config *config)
{
    static const uint32_t rows[] = {SL_CONFIG_ROW_device_memory,
                                    SL_CONFIG_ROW_host_memory,
                                    SL_CONFIG_ROW_disk_space,
                                    SL_CONFIG_ROW_accumulate,
                                    SL_CONFIG_ROW_dropout,
                                    SL_CONFIG_ROW_frozen_type,
                                    SL_CONFIG_ROW_adapter,
                                    SL_CONFIG_ROW_offload_params,
                                    SL_CONFIG_ROW_offload_grads,
                                    SL_CONFIG_ROW_offload_optimizer,
                                    SL_CONFIG_ROW_offload_activations,
                                    SL_CONFIG_ROW_nvme_params,
                                    SL_CONFIG_ROW_nvme_grads,
                                    SL_CONFIG_ROW_nvme_optimizer,
                                    SL_CONFIG_ROW_nvme_activations,
                                    SL_CONFIG_ROW_split_layout,
                                    SL_CONFIG_ROW_stages,
                                    SL_CONFIG_ROW_chunk_size,
                                    SL_CONFIG_ROW_prefetch,
                                    SL_CONFIG_ROW_adam,
                                    SL_CONFIG_ROW_offload_updates};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (config->given[rows[i]])
            SL_FAIL(SL_ERROR_USAGE,
                    "--%s is not known to --cluster: leave it out; memory stands in the "
                    "description, and micro-batches follow from --global-batch and --micro-batch",
                    sl_config_rows()[rows[i]].name);
    return SL_OK;
}

/* bf16 where the described GPUs have it, else fp32, as on a device that is there. */
static sl_status choose_type(const sl_config *config, const sl_cluster *cluster, sl_type *out_type)
{
    const bool is_open = config->precision == SL_CONFIG_PRECISION_AUTO;
    const bool has_brain = sl_cluster_has_type(cluster, SL_TYPE_BF16);
    const bool has_half = sl_cluster_has_type(cluster, SL_TYPE_FP16);
    const sl_type type = !is_open    ? (sl_type)config->precision
                         : has_brain ? SL_TYPE_BF16
                                     : SL_TYPE_FP32;
    if (!sl_cluster_has_type(cluster, type))
        SL_FAIL(SL_ERROR_USAGE,
                "--precision %s: the GPUs of %s have no %s, by their flop_rate: use %s",
                sl_type_name(type), config->cluster, sl_type_name(type),
                has_brain  ? "bf16 or fp32"
                : has_half ? "fp16 or fp32"
                           : "fp32");
    if (is_open && !has_brain && has_half)
        sl_log_write(
            SL_LOG_NOTE,
            "the GPUs of %s have no bf16: planned in fp32; --precision fp16 has %.1f times its "
            "rate",
            config->cluster, cluster->flop_rate[SL_TYPE_FP16] / cluster->flop_rate[SL_TYPE_FP32]);
    *out_type = type;
    return SL_OK;
}

static sl_status make_question(sl_config *config, const sl_cluster *cluster,
                               sl_cluster_question *out_question)
{
    const sl_lora no_adapters = {.rank = 0};
    sl_cluster_question question = {.job = {.cluster = cluster}};
    sl_cluster_job *job = &question.job;
    if (config->global_batch == SL_CONFIG_UNSET)
        SL_FAIL(SL_ERROR_USAGE, "--cluster plans for a number of rows a step: give --global-batch");
    if (config->ranks != SL_CONFIG_UNSET && config->ranks > cluster->node_gpus &&
        cluster->network.byte_rate <= 0)
        SL_FAIL(SL_ERROR_USAGE,
                "--ranks %" PRIu64
                ": %s describes one machine of one GPU: describe the network that "
                "joins more of them, or give --ranks 1",
                config->ranks, config->cluster);
    SL_TRY(refuse_unsearched(config));
    SL_TRY(sl_config_use_one_spelling(config));
    SL_TRY(
        sl_config_shape(config, NULL, sl_architecture_ids(SL_ARCHITECTURE_OF_SIZES), &job->shape));
    if (config->seq == SL_CONFIG_UNSET)
        config->seq = sl_config_default_seq(&job->shape);
    if (config->seq > job->shape.context)
        SL_FAIL(SL_ERROR_USAGE, "--seq %" PRIu64 " is beyond the model's context of %u tokens",
                config->seq, job->shape.context);
    SL_TRY(choose_type(config, cluster, &job->type));
    job->seq = (uint32_t)config->seq;
    job->ranks = config->ranks == SL_CONFIG_UNSET ? 0 : (uint32_t)config->ranks;
    job->global_batch = config->global_batch;
    job->sequence_parallel = config->sequence_parallel;
    job->partition_activations = config->partition_activations;
    job->lora_dropout = (float)config->lora_dropout;
    SL_TRY(sl_config_take_lora(config, &no_adapters, &job->shape));
    job->rules = sl_update_rules_of(config);
    SL_TRY(sl_cluster_check_rules(job));
    fix_choices(config, &question);
    *out_question = question;
    return SL_OK;
}

/* ---- words ---- */

static const char *describe_order(const sl_cluster_candidate *candidate)
{
    if (candidate->layout.stages > 1)
        return candidate->is_gpipe ? "gpipe" : "1f1b";
    return candidate->accumulation == SL_ACCUMULATE_LAYER ? "layer order" : "micro order";
}

static void describe_policy(const sl_policy_options *placement, char *out_text, size_t capacity)
{
    const sl_choice choice = {.placement = *placement, .prefetch = SL_PREFETCH_AUTO};
    sl_command_describe_choice(&choice, out_text, capacity);
    char *end = strstr(out_text, ", recompute");
    if (end)
        *end = '\0';
}

static void describe_candidate(const sl_cluster_candidate *it, char *out_text, size_t capacity)
{
    char policy[256];
    describe_policy(&it->placement, policy, sizeof policy);
    snprintf(out_text, capacity,
             "--tp %u x --dp %u x --pp %u, --zero %u, %u micro-batch%s of %u row%s, %s, recompute "
             "%s, %s",
             it->layout.tensor, it->layout.data, it->layout.stages, it->zero, it->accumulate,
             it->accumulate == 1 ? "" : "es", it->micro_batch, sl_plural(it->micro_batch),
             describe_order(it), sl_search_recompute_name(it->recompute), policy);
}

static sl_cluster_resource find_binding(const sl_cluster_estimate *estimate)
{
    int most = 0;
    for (int i = 1; i < SL_CLUSTER_RESOURCE_COUNT; i++)
        if (estimate->busy_seconds[i] > estimate->busy_seconds[most])
            most = i;
    return (sl_cluster_resource)most;
}

/* Of the model, in a step. */
static double count_flops(const sl_cluster_job *job)
{
    return (double)job->global_batch * job->seq * job->token_flops;
}

static const char *describe_state(const sl_cluster_estimate *estimate)
{
    const bool is_runnable = sl_cluster_is_runnable(&estimate->candidate);
    if (estimate->is_planned)
        return is_runnable ? "planned as a whole and verified"
                           : "planned as a whole and verified; more ranks than train takes";
    return is_runnable ? "put together from planned layers"
                       : "put together from planned layers; more ranks than train takes";
}

/* ---- as text ---- */

static void print_assumptions(const sl_cluster_job *job)
{
    const sl_cluster *cluster = job->cluster;
    printf("assumed of %s:\n", cluster->name);
    sl_terminal_print(
        stdout, 4,
        "  a GPU: %.1f TFLOP/s in %s x %.3f, %.0f GB/s x %.2f, %s less %s that is reserved",
        1e-12 * cluster->flop_rate[job->type], sl_type_name(job->type), cluster->gemm_efficiency,
        1e-9 * cluster->byte_rate, cluster->byte_efficiency,
        sl_command_format_size(cluster->device_bytes).text,
        sl_command_format_size(cluster->reserved_bytes).text);
    sl_terminal_print(stdout, 4,
                      "  a node: %u GPUs, %s of memory at %.0f GB/s x %.2f, drives of %s",
                      cluster->node_gpus, sl_command_format_size(cluster->host_bytes).text,
                      1e-9 * cluster->host_byte_rate, cluster->host_efficiency,
                      sl_command_format_size(cluster->disk_bytes).text);
    sl_terminal_print(
        stdout, 4,
        "  each way: %.0f GB/s x %.2f between GPUs of a node, %.0f x %.2f from a node to the "
        "others, %.1f x %.2f from host to GPU",
        1e-9 * cluster->link.byte_rate, cluster->link.efficiency, 1e-9 * cluster->network.byte_rate,
        cluster->network.efficiency, 1e-9 * cluster->host_link.byte_rate,
        cluster->host_link.efficiency);
    sl_terminal_print(
        stdout, 4,
        "  sums: %s; a product takes its FLOPs and its bytes at these rates, one after the "
        "other",
        cluster->sums == SL_CLUSTER_RING ? "a ring" : "pairwise, in the order of ranks");
}

static void print_stages(const sl_cluster_job *job, const sl_cluster_candidate *candidate)
{
    const sl_comm_layout *layout = &candidate->layout;
    const uint32_t a_stage = layout->tensor * layout->data;
    if (layout->stages == 1)
        return;
    printf("stages (rank = (stage x %u + data) x %u + tensor):\n", layout->data, layout->tensor);
    for (uint32_t s = 0; s < layout->stages; s++) {
        uint32_t first, count;
        if (layout->stages > 8 && s == 3) {
            printf("  ...\n");
            s = layout->stages - 1;
        }
        sl_cluster_stage_layers(job->shape.layers, layout->stages, s, &first, &count);
        printf("  stage %-3u ranks %u-%u, layers %u-%u%s\n", s, s * a_stage, (s + 1) * a_stage - 1,
               first, first + count - 1,
               s == 0                    ? ", embedding"
               : s + 1 == layout->stages ? ", head"
                                         : "");
    }
}

static void print_time(const sl_cluster_job *job, const sl_cluster_estimate *it)
{
    sl_terminal_print(
        stdout, 2,
        "a step takes %.3f s, %.0f tokens a second; %.1f TFLOP/s a GPU; the %s%s%s binds "
        "(busy %.3f s)",
        it->step_seconds, (double)job->global_batch * job->seq / it->step_seconds,
        1e-12 * count_flops(job) / it->step_seconds / job->ranks,
        sl_terminal_begin(stdout, SL_TERMINAL_BOUND), sl_cluster_resource_name(find_binding(it)),
        sl_terminal_begin(stdout, SL_TERMINAL_PLAIN), it->busy_seconds[find_binding(it)]);
    for (int i = 0; i < SL_CLUSTER_SHARE_COUNT; i++)
        if (it->share_seconds[i] > 0)
            printf("  %-16s %9.3f s %5.1f %%\n", sl_cluster_share_name((sl_cluster_share)i),
                   it->share_seconds[i], 100 * it->share_seconds[i] / it->step_seconds);
}

static void print_bytes(const sl_cluster_estimate *it)
{
    printf("  %-12s %14s %14s %14s\n", "bytes a rank", "device", "host", "disk");
    printf("  %-12s %14s %14s %14s%s%u\n", "peak",
           sl_command_format_size(it->bytes[SL_TIER_DEVICE]).text,
           sl_command_format_size(it->bytes[SL_TIER_HOST]).text,
           sl_command_format_size(it->bytes[SL_TIER_DISK]).text, "  of stage ", it->fullest_stage);
    printf("  %-12s %14s %14s %14s\n", "budget",
           sl_command_format_size(it->budget[SL_TIER_DEVICE]).text,
           sl_command_format_size(it->budget[SL_TIER_HOST]).text,
           sl_command_format_size(it->budget[SL_TIER_DISK]).text);
}

/* Why so many GPUs; nothing where --ranks gives them. */
static void print_counts(const sl_cluster_job *job, const sl_cluster_counts *counts)
{
    if (counts->count == 0)
        return;
    printf("  %6s %12s %12s %14s %14s\n", "GPUs", "a step", "tokens/s", "of a GPU", "GPU time");
    for (uint32_t i = 0; i < counts->count; i++) {
        const sl_cluster_count *it = &counts->items[i];
        const double rate = (double)job->global_batch * job->seq / it->best.step_seconds;
        printf("%s %6u %10.3f s %12.0f %14.1f %12.3f s\n", i == counts->chosen ? ">" : " ",
               it->ranks, it->best.step_seconds, rate, rate / it->ranks,
               it->ranks * it->best.step_seconds);
    }
    sl_terminal_print(stdout, 2,
                      "%u GPU%s: the most whose GPU time of a step is within a twentieth of the "
                      "least",
                      job->ranks, sl_plural(job->ranks));
    putchar('\n');
}

static void print_answer(const sl_cluster_question *question, const sl_cluster_answer *answer)
{
    const sl_cluster_job *job = &question->job;
    char text[512];
    sl_terminal_print(stdout, 2,
                      "%" PRIu64 " parameters on %u GPU%s, %" PRIu64
                      " row%s of %u tokens a step, in %s",
                      job->parameters, job->ranks, sl_plural(job->ranks), job->global_batch,
                      sl_plural(job->global_batch), job->seq, sl_type_name(job->type));
    if (job->trained < job->parameters)
        sl_terminal_print(stdout, 2, "%" PRIu64 " of them are trained", job->trained);
    describe_candidate(&answer->best[0].candidate, text, sizeof text);
    sl_terminal_print(stdout, 2, "%s", text);
    sl_terminal_print(stdout, 2, "(%s)", describe_state(&answer->best[0]));
    putchar('\n');
    print_bytes(&answer->best[0]);
    putchar('\n');
    print_time(job, &answer->best[0]);
    print_stages(job, &answer->best[0].candidate);
    putchar('\n');
    sl_terminal_print(stdout, 2,
                      "%" PRIu64 " combinations of options were considered, %" PRIu64
                      " fit, %" PRIu64 " were simulated; the fastest of each layout:",
                      answer->considered, answer->fitting, answer->simulated);
    for (uint32_t i = 0; i < answer->count; i++) {
        const sl_cluster_estimate *it = &answer->best[i];
        describe_candidate(&it->candidate, text, sizeof text);
        sl_terminal_print(stdout, 15, "  %9.3f s  device %s, host %s, disk %s: %s (%s)",
                          it->step_seconds, sl_command_format_size(it->bytes[SL_TIER_DEVICE]).text,
                          sl_command_format_size(it->bytes[SL_TIER_HOST]).text,
                          sl_command_format_size(it->bytes[SL_TIER_DISK]).text, text,
                          describe_state(it));
    }
    putchar('\n');
    print_assumptions(job);
}

/* ---- as JSON ---- */

static json_t *list_shares(const sl_cluster_estimate *it)
{
    json_t *object = json_object();
    for (int i = 0; i < SL_CLUSTER_SHARE_COUNT; i++)
        if (json_object_set_new(object, sl_cluster_share_name((sl_cluster_share)i),
                                json_real(it->share_seconds[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static json_t *list_bytes(const uint64_t bytes[SL_TIER_COUNT])
{
    return json_pack("{s:I, s:I, s:I}", "device", (json_int_t)bytes[SL_TIER_DEVICE], "host",
                     (json_int_t)bytes[SL_TIER_HOST], "disk", (json_int_t)bytes[SL_TIER_DISK]);
}

static json_t *format_candidate(const sl_cluster_estimate *it)
{
    const sl_cluster_candidate *candidate = &it->candidate;
    char policy[256];
    describe_policy(&candidate->placement, policy, sizeof policy);
    return json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:o, s:o, s:i, s:f, s:o, s:s, s:b, s:b}",
        "tp", (int)candidate->layout.tensor, "dp", (int)candidate->layout.data, "pp",
        (int)candidate->layout.stages, "zero", (int)candidate->zero, "micro_batch",
        (int)candidate->micro_batch, "accumulate", (int)candidate->accumulate, "order",
        describe_order(candidate), "recompute", sl_search_recompute_name(candidate->recompute),
        "placement", policy, "peak_bytes", list_bytes(it->bytes), "budget_bytes",
        list_bytes(it->budget), "fullest_stage", (int)it->fullest_stage, "predicted_step_ms",
        1e3 * it->step_seconds, "seconds", list_shares(it), "bound_by",
        sl_cluster_resource_name(find_binding(it)), "runnable",
        (int)sl_cluster_is_runnable(candidate), "drawn", (int)it->is_planned);
}

/* Empty where --ranks gives the number. NULL: no memory. */
static json_t *list_counts(const sl_cluster_counts *counts)
{
    json_t *list = json_array();
    bool has_failed = !list;
    for (uint32_t i = 0; i < counts->count && !has_failed; i++) {
        const sl_cluster_count *it = &counts->items[i];
        has_failed = json_array_append_new(list, json_pack("{s:i, s:f}", "ranks", (int)it->ranks,
                                                           "predicted_step_ms",
                                                           1e3 * it->best.step_seconds)) != 0;
    }
    if (has_failed) {
        json_decref(list);
        return NULL;
    }
    return list;
}

static sl_status format_answer(const sl_cluster_question *question, const sl_cluster_answer *answer,
                               const sl_cluster_counts *counts, json_t **out_object)
{
    json_t *cluster = NULL, *best = json_array();
    sl_status status = sl_cluster_format(question->job.cluster, &cluster);
    bool has_failed = !best || status != SL_OK;
    for (uint32_t i = 0; i < answer->count && !has_failed; i++)
        has_failed = json_array_append_new(best, format_candidate(&answer->best[i])) != 0;
    json_t *object =
        json_pack("{s:b, s:I, s:I, s:i, s:I, s:i, s:I, s:I, s:I, s:o, s:o, s:o}", "fits", 1,
                  "parameters", (json_int_t)question->job.parameters, "trained_parameters",
                  (json_int_t)question->job.trained, "ranks", (int)question->job.ranks,
                  "global_batch", (json_int_t)question->job.global_batch, "seq",
                  (int)question->job.seq, "considered", (json_int_t)answer->considered, "fitting",
                  (json_int_t)answer->fitting, "simulated", (json_int_t)answer->simulated, "best",
                  best, "counts", list_counts(counts), "assumed", cluster);
    SL_TRY(status);
    if (has_failed || !object) {
        json_decref(object);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the plan as JSON");
    }
    *out_object = object;
    return SL_OK;
}

/* ---- what does not fit ---- */

/* The fewest of twice, four, ... times the ranks that hold it; 0: not even sixteen times, or as
 * many as can be asked for. */
static uint32_t find_enough_ranks(const sl_cluster_question *question)
{
    sl_cluster_question larger = *question;
    sl_cluster_answer *answer = calloc(1, sizeof *answer);
    uint32_t found = 0;
    larger.data = 0;
    const uint64_t most = (uint64_t)sl_config_rows()[SL_CONFIG_ROW_ranks].high;
    for (uint32_t times = 2; answer && times <= 16 && found == 0; times *= 2) {
        const uint64_t ranks = (uint64_t)question->job.ranks * times;
        if (ranks > most)
            break;
        larger.job.ranks = (uint32_t)ranks;
        if (sl_cluster_choose(&larger, answer) == SL_OK)
            found = larger.job.ranks;
    }
    free(answer);
    return found;
}

static sl_status refuse(const sl_cluster_question *question, const sl_cluster_answer *answer)
{
    char text[512], way_out[96] = "";
    const sl_cluster_miss *miss = &answer->miss;
    describe_candidate(&miss->candidate, text, sizeof text);
    const uint32_t enough = find_enough_ranks(question);
    if (enough > 0)
        snprintf(way_out, sizeof way_out, "; --ranks %u would hold it", enough);
    SL_FAIL(SL_ERROR_FIT,
            "no way to share it fits: the nearest misses %s of the %s's %s a rank "
            "(%s)%s",
            sl_command_format_size(miss->missing_bytes).text, sl_tier_name(miss->tier),
            sl_command_format_size(miss->budget_bytes).text, text, way_out);
}

/* ---- a configuration for train ---- */

static sl_choice make_choice(const sl_cluster_candidate *it)
{
    return (sl_choice){.prefetch = SL_PREFETCH_AUTO,
                       .recompute = it->recompute,
                       .accumulation = it->accumulation,
                       .placement = it->placement};
}

static int set_number(json_t *object, const char *key, uint64_t number)
{
    return json_object_set_new(object, key, json_integer((json_int_t)number));
}

/* NULL: no memory. */
static json_t *format_chosen(const sl_cluster_job *job, const sl_cluster_candidate *it)
{
    const sl_choice choice = make_choice(it);
    json_t *object = sl_run_config_format(&choice);
    if (!object)
        return NULL;
    int failed = set_number(object, "tp", it->layout.tensor);
    failed |= set_number(object, "pp", it->layout.stages);
    failed |= set_number(object, "zero", it->zero);
    failed |= set_number(object, "micro_batch", it->micro_batch);
    failed |= set_number(object, "global_batch", job->global_batch);
    failed |= set_number(object, "seq", job->seq);
    failed |= json_object_set_new(object, "precision", json_string(sl_type_name(job->type)));
    if (it->layout.stages > 1)
        failed |=
            json_object_set_new(object, "schedule", json_string(it->is_gpipe ? "gpipe" : "1f1b"));
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static sl_status write_config(const sl_config *config, const sl_cluster_question *question,
                              const sl_cluster_estimate *best)
{
    char note[256];
    const sl_cluster *cluster = question->job.cluster;
    json_t *chosen = format_chosen(&question->job, &best->candidate);
    if (!chosen)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the configuration");
    snprintf(note, sizeof note, "%u GPU%s of %s; a step is predicted to take %.3g s",
             question->job.ranks, sl_plural(question->job.ranks), cluster->name,
             best->step_seconds);
    const sl_status status = sl_run_config_write(
        &(sl_run_config_args){config, chosen, note, question->job.ranks, cluster->node_gpus});
    json_decref(chosen);
    return status;
}

static sl_status check_write_config(const sl_config *config)
{
    if (!config->write_config)
        return SL_OK;
    if (config->ranks != SL_CONFIG_UNSET && config->ranks > SL_COMM_RANKS_MAX)
        SL_FAIL(SL_ERROR_USAGE, "--write-config: train takes at most %d ranks, not %" PRIu64,
                SL_COMM_RANKS_MAX, config->ranks);
    return sl_run_config_check(config->write_config);
}

/* ---- the command ---- */

typedef struct result {
    sl_cluster_answer answer;
    sl_cluster_counts counts; /* empty where --ranks gives the number */
} result;

static sl_status tell(const sl_config *config, const sl_cluster_question *question,
                      const result *found)
{
    json_t *object = NULL;
    SL_TRY(format_answer(question, &found->answer, &found->counts, &object));
    sl_status status = SL_OK;
    if (config->json)
        status = sl_command_print_json(object, 17);
    else {
        print_counts(&question->job, &found->counts);
        print_answer(question, &found->answer);
    }
    if (status == SL_OK && config->report)
        status = sl_report_write_cluster(config->report, question, &found->answer, object);
    json_decref(object);
    return status;
}

/* The fastest of --ranks. Where that is open, of the number that is worth it; one whose whole plan
 * does not fit is passed over, though it fits by estimate. */
static sl_status find(sl_cluster_question *question, result *out)
{
    sl_cluster_counts *counts = &out->counts;
    if (question->job.ranks > 0)
        return sl_cluster_choose(question, &out->answer);
    sl_status status = sl_cluster_count_ranks(question, SL_COMM_RANKS_MAX, counts);
    question->job.ranks = counts->too_few;
    if (status == SL_ERROR_FIT)
        return sl_cluster_choose(question, &out->answer); /* for what it misses */
    SL_TRY(status);
    do {
        question->job.ranks = counts->items[counts->chosen].ranks;
        status = sl_cluster_choose(question, &out->answer);
    } while (status == SL_ERROR_FIT && ++counts->chosen < counts->count);
    return status;
}

static sl_status answer(const sl_config *config, sl_cluster_question *question, result *out)
{
    sl_busy_line line;
    sl_busy_line_begin(&line, config, "planning", NULL);
    sl_status status = find(question, out);
    if (status == SL_ERROR_FIT)
        status = refuse(question, &out->answer);
    sl_busy_line_end(&line);
    if (status == SL_OK)
        status = tell(config, question, out);
    if (status == SL_OK && config->write_config)
        status = write_config(config, question, &out->answer.best[0]);
    return status;
}

sl_status sl_plan_cluster(sl_config *config)
{
    sl_cluster cluster;
    sl_cluster_question question;
    SL_TRY(sl_cluster_load(config->cluster, &cluster));
    SL_TRY(make_question(config, &cluster, &question));
    SL_TRY(check_write_config(config));
    if (config->report)
        SL_TRY(sl_report_check(config->report, SL_PAGE_CLUSTER));
    SL_TRY(sl_cluster_samples_open(&question.samples));
    result *found = calloc(1, sizeof *found);
    const sl_status status = found ? answer(config, &question, found)
                                   : sl_status_fail(SL_ERROR_SYSTEM, "no memory for a plan");
    free(found);
    sl_cluster_samples_close(question.samples);
    return status;
}
