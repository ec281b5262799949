/* See run_config.h. */
#define _GNU_SOURCE /* open_memstream */
#include "run_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "config/config_json.h"
#include "files/json_file.h"
#include "files/output_file.h"
#include "search/search.h"
#include "terminal.h"

enum { NAME_BYTES = 4096, DATA_BYTES = 16 };

/* A file that somebody else wrote, data for example, is not replaced. */
static const sl_output_file_kind configuration_kind = {"--write-config", "configuration of plan",
                                                       "{\n  // sluice plan", false};

sl_status sl_run_config_check(const char *path)
{
    return sl_output_file_check(&configuration_kind, path);
}

/* ---- what was chosen ---- */

typedef struct share {
    uint32_t row;
    double value;
} share;

/* Shares of nothing are the default, but for the states of nvme. */
static int set_shares(const sl_choice *choice, json_t *object)
{
    const sl_policy_options *placement = &choice->placement;
    const double *host = placement->host_fraction, *disk = placement->disk_fraction;
    const share shares[] = {{SL_CONFIG_ROW_offload_params, host[SL_GROUP_PARAM]},
                            {SL_CONFIG_ROW_offload_grads, host[SL_GROUP_GRAD]},
                            {SL_CONFIG_ROW_offload_optimizer, host[SL_GROUP_STATE1]},
                            {SL_CONFIG_ROW_offload_activations, choice->host_activations},
                            {SL_CONFIG_ROW_nvme_params, disk[SL_GROUP_PARAM]},
                            {SL_CONFIG_ROW_nvme_grads, disk[SL_GROUP_GRAD]},
                            {SL_CONFIG_ROW_nvme_optimizer, disk[SL_GROUP_STATE1]},
                            {SL_CONFIG_ROW_nvme_activations, choice->disk_activations}};
    int failed = 0;
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        char key[64];
        const bool is_implied =
            shares[i].row == SL_CONFIG_ROW_nvme_optimizer && placement->policy == SL_POLICY_NVME;
        sl_config_format_key(shares[i].row, key, sizeof key);
        if (shares[i].value > 0 || is_implied)
            failed |= json_object_set_new(object, key, json_real(shares[i].value));
    }
    return failed;
}

json_t *sl_run_config_format(const sl_choice *choice)
{
    static const char *const adam_names[] = {"auto", "device", "host"};
    json_t *object =
        json_pack("{s:s, s:s, s:s}", "policy", sl_search_policy_name(choice->placement.policy),
                  "recompute", sl_search_recompute_name(choice->recompute), "accumulation",
                  sl_search_accumulation_name(choice->accumulation));
    int failed = object ? set_shares(choice, object) : 1;
    if (choice->placement.update != SL_UPDATE_AUTO)
        failed |=
            json_object_set_new(object, "adam", json_string(adam_names[choice->placement.update]));
    if (choice->chunk_elements > 0)
        failed |= json_object_set_new(object, "chunk_size",
                                      json_integer((json_int_t)choice->chunk_elements));
    if (choice->prefetch != SL_PREFETCH_AUTO)
        failed |= json_object_set_new(object, "prefetch", json_integer(choice->prefetch));
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* ---- the commands that run it ---- */

static void name_commands(const sl_run_config_args *args, char *out_launch, char *out_slurm,
                          size_t capacity)
{
    char name[NAME_BYTES];
    const char *data = args->config->data.count == 0 ? " --data PATH" : "";
    const uint32_t node_ranks = args->node_ranks ? args->node_ranks : args->ranks;
    const uint32_t nodes = (args->ranks + node_ranks - 1) / node_ranks;
    sl_command_quote(args->config->write_config, name, sizeof name);
    if (args->ranks == 1)
        snprintf(out_launch, capacity, "sluice train --config %s%s", name, data);
    else
        snprintf(out_launch, capacity, "sluice launch -n %u%s -- train --config %s%s", args->ranks,
                 nodes > 1 ? " --hosts FILE" : "", name, data);
    snprintf(out_slurm, capacity,
             "srun -N %u -n %u --ntasks-per-node=%u --mpi=pmix sluice train --config %s%s", nodes,
             args->ranks, args->ranks < node_ranks ? args->ranks : node_ranks, name, data);
}

static void print_commands(const sl_run_config_args *args)
{
    enum { COMMAND_BYTES = NAME_BYTES + 128 };
    char launch[COMMAND_BYTES], slurm[COMMAND_BYTES];
    if (args->config->json)
        return;
    name_commands(args, launch, slurm, sizeof launch);
    printf("\nrun     %s\n", launch);
    if (args->ranks > 1)
        printf("Slurm   %s\n", slurm);
}

/* ---- the file ---- */

/* What a plan of a described cluster does not ask for, and its run needs. */
static sl_status check_places(const sl_run_config_args *args, const json_t *object)
{
    const char *policy = json_string_value(json_object_get(object, "policy"));
    const json_t *places = json_object_get(object, "disk_dir");
    if (policy && strcmp(policy, "nvme") == 0 && json_array_size(places) == 0)
        SL_FAIL(SL_ERROR_USAGE,
                "--write-config %s: the plan keeps states on drives: add --disk-dir DIR, where "
                "each machine has them, or --policy device or host to plan without drives",
                args->config->write_config);
    return SL_OK;
}

/* Options that are plan's own answers, though train takes them too. */
static sl_status make_options(const sl_run_config_args *args, json_t **out_object)
{
    json_t *object = NULL;
    SL_TRY(sl_config_print_given(args->config, SL_CONFIG_TRAIN, &object));
    json_object_del(object, "report");
    sl_status status = json_object_update(object, args->chosen) == 0
                           ? check_places(args, object)
                           : sl_status_fail(SL_ERROR_SYSTEM, "no memory for the configuration");
    if (status != SL_OK) {
        json_decref(object);
        return status;
    }
    *out_object = object;
    return SL_OK;
}

/* So many digits are those of a number that somebody typed. Comments stand behind the brace. */
static sl_status spell(const sl_run_config_args *args, const json_t *object, char **out_text)
{
    enum { COMMAND_BYTES = NAME_BYTES + 128 };
    char launch[COMMAND_BYTES], slurm[COMMAND_BYTES];
    size_t bytes;
    char *json = sl_json_file_dump(object, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    FILE *stream = json ? open_memstream(out_text, &bytes) : NULL;
    name_commands(args, launch, slurm, sizeof launch);
    if (stream)
        fprintf(stream, "{\n  // sluice plan: %s\n  // %s\n  // %s\n%s", args->note, launch, slurm,
                json + strlen("{\n"));
    free(json);
    if (!stream || fclose(stream) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the configuration");
    return SL_OK;
}

sl_status sl_run_config_write(const sl_run_config_args *args)
{
    json_t *object = NULL;
    char *text = NULL;
    SL_TRY(make_options(args, &object));
    sl_status status = spell(args, object, &text);
    json_decref(object);
    if (status == SL_OK)
        status = sl_output_file_write_text(&configuration_kind, args->config->write_config, text);
    free(text);
    if (status == SL_OK)
        print_commands(args);
    return status;
}
