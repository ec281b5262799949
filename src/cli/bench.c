/* sluice bench: measures the machine, prints its rates, and writes the profile that plan and train
 * find again by themselves. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "bench/bench.h"
#include "bench/rank_exchanges.h"
#include "bench_table.h"
#include "command.h"
#include "config/config.h"
#include "first_use.h"
#include "held_warnings.h"
#include "kernel_table.h"
#include "machine/algorithm_list.h"
#include "rank.h"
#include "report/page.h"
#include "session/ranks.h"
#include "sluice/version.h"
#include "terminal.h"

static void print_progress(void *user, const char *line)
{
    char text[128];
    (void)user;
    snprintf(text, sizeof text, "sluice: %s", line);
    sl_terminal_draw(stderr, text);
}

/* The disk is the same one beside every device. */
static void keep_disk_of_cpu(sl_profile *profile)
{
    char *path = NULL;
    if (profile->device != SL_DEVICE_CPU && sl_profile_find_path(SL_DEVICE_CPU, 0, &path) == SL_OK)
        sl_profile_keep_disk(profile, path);
    free(path);
}

/* ---- --only ---- */

/* Words may stand with commas between, or as items of their own. */
static sl_status add_figure(const char *word, size_t length, uint32_t *figures)
{
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1),
             word);
    sl_nearest nearest = sl_nearest_start(name);
    for (int figure = 0; figure < SL_BENCH_FIGURE_COUNT; figure++) {
        const char *known = sl_bench_figure_name((sl_bench_figure)figure);
        sl_nearest_offer(&nearest, known);
        if (strcmp(known, name) != 0)
            continue;
        *figures |= 1u << figure;
        return SL_OK;
    }
    char hint[96];
    sl_nearest_format(&nearest, "", hint, sizeof hint);
    SL_FAIL(SL_ERROR_USAGE,
            "--only: there is no figure \"%s\"%s; there are gemm, adamw, op, memory, copy, comm, "
            "disk, numa, product and attention",
            name, hint);
}

static sl_status parse_figures(const sl_config *config, uint32_t *out_figures)
{
    *out_figures = 0;
    for (uint32_t i = 0; i < config->only.count; i++)
        for (const char *word = config->only.items[i]; *word;) {
            size_t length = strcspn(word, ",");
            SL_TRY(add_figure(word, length, out_figures));
            word += length + (word[length] == ',');
        }
    if (*out_figures >> SL_BENCH_DISK & 1 && config->disk_dir.count == 0)
        SL_FAIL(SL_ERROR_USAGE, "--only disk needs a directory to measure: give --disk-dir DIR");
    if (config->match.count > 0 && !(*out_figures >> SL_BENCH_PROFILE_COUNT))
        SL_FAIL(SL_ERROR_USAGE, "--match picks rows of product and attention: give --only "
                                "product,attention too");
    return SL_OK;
}

/* ---- the profile ---- */

static sl_status find_path(const sl_config *config, sl_device_kind device, char **out_path)
{
    if (!config->output)
        return sl_profile_find_path(device, (uint32_t)config->threads, out_path);
    *out_path = strdup(config->output);
    if (!*out_path)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    return SL_OK;
}

/* Loads the profile that the new one would replace, if it is of this machine: its rates fill in
 * what
 * --only leaves out, and a quick bench does not replace a full profile. */
static bool load_base(const sl_config *config, const sl_bench_options *options, sl_profile *base)
{
    char *path = NULL;
    sl_device_info info = {0};
    bool is_gpu = options->device != SL_DEVICE_CPU;
    sl_profile_subject subject = {.device = options->device,
                                  .worker_count = options->thread_count,
                                  .info = is_gpu ? &info : NULL};
    sl_status status = is_gpu ? sl_config_query_device(config, &info) : SL_OK;
    if (status == SL_OK)
        status = find_path(config, options->device, &path);
    if (status == SL_OK)
        status = sl_profile_load(path, base);
    if (status == SL_OK)
        status = sl_profile_check(base, &subject);
    free(path);
    return status == SL_OK;
}

static sl_status save_profile(const sl_config *config, sl_bench *bench, const json_t *object)
{
    char *path = NULL;
    SL_TRY(find_path(config, bench->profile.device, &path));
    sl_profile_keep_disk(&bench->profile, path);
    keep_disk_of_cpu(&bench->profile);
    sl_status status = sl_profile_save(&bench->profile, path, object);
    if (status == SL_OK && !config->quiet)
        sl_terminal_say(SL_TERMINAL_PLAIN, "the machine profile is in %s", path);
    free(path);
    return status;
}

/* Keeps the list beside the profile that runs find by themselves; so not if --output is given. */
static sl_status keep_algorithms(const sl_config *config, const sl_bench *bench)
{
    sl_device_info info;
    char *path = NULL;
    if (!bench->algorithms || config->output)
        return SL_OK;
    SL_TRY(sl_config_query_device(config, &info));
    SL_TRY(sl_algorithm_list_keep(&info, bench->algorithms, &path));
    if (path && !config->quiet)
        sl_terminal_say(SL_TERMINAL_PLAIN, "the list of algorithms is in %s", path);
    free(path);
    return SL_OK;
}

/* ---- the run ---- */

static sl_status check_outputs(const sl_config *config)
{
    if (config->report)
        SL_TRY(sl_report_check(config->report, SL_PAGE_BENCH));
    return config->output ? sl_profile_check_output(config->output) : SL_OK;
}

static sl_status print_bench(const sl_config *config, const sl_bench *bench, const json_t *object)
{
    if (config->report)
        SL_TRY(sl_report_write_bench(config->report, object));
    if (config->json)
        return sl_command_print_json(object, 9);
    if (config->verbose)
        sl_bench_table_print(bench);
    sl_kernel_table_print(bench);
    sl_bench_table_summarize(bench);
    if (!config->verbose)
        sl_terminal_print(stdout, 2, "all %u rows: --verbose, or --report FILE as bars",
                          bench->row_count);
    return SL_OK;
}

/* Returns why no profile is written; NULL: one is written. A profile with only some rates would be
 * mistaken for a complete one, and a quick bench is less exact than a full one. A profile
 * that the user names by --output may be replaced. */
static const char *find_objection(const sl_config *config, const sl_bench_options *options,
                                  const sl_profile *old)
{
    if (options->figures && !(options->figures & ((1u << SL_BENCH_PROFILE_COUNT) - 1)))
        return "product and attention are no part of one";
    if (options->figures && !options->base)
        return "no profile of this machine has the rates that --only leaves out";
    if (config->quick && !config->output && old && !old->is_quick)
        return "a full one of this machine exists and stays; --output FILE keeps this quick one";
    return NULL;
}

static sl_status finish_bench(const sl_config *config, const sl_bench_options *options,
                              const sl_profile *old, sl_bench *bench)
{
    json_t *object = NULL;
    if (config->against)
        SL_TRY(sl_bench_compare(bench, config->against));
    /* The old rates that --only keeps may be those of a quick bench. */
    bench->profile.is_quick = config->quick || (options->base && old && old->is_quick);
    SL_TRY(sl_bench_format(bench, &object));
    sl_status status = SL_OK;
    const char *objection = find_objection(config, options, old);
    if (!objection)
        status = save_profile(config, bench, object);
    else if (!config->quiet)
        sl_terminal_say(SL_TERMINAL_PLAIN, "no machine profile is written: %s", objection);
    if (status == SL_OK)
        status = keep_algorithms(config, bench);
    if (status == SL_OK)
        status = print_bench(config, bench, object);
    json_decref(object);
    return status;
}

static sl_status measure_machine(const sl_config *config)
{
    sl_device_kind device;
    int index;
    sl_profile old;
    sl_bench bench = {0};
    SL_TRY(sl_config_parse_device(config->device, &device, &index));
    sl_bench_options options = {.device = device,
                                .device_index = index,
                                .cuda = sl_config_cuda(config),
                                .disk_directories = (const char *const *)config->disk_dir.items,
                                .disk_directory_count = config->disk_dir.count,
                                .thread_count = (uint32_t)config->threads,
                                .match = (const char *const *)config->match.items,
                                .match_count = config->match.count,
                                .is_quick = config->quick,
                                .progress = config->quiet ? NULL : print_progress};
    SL_TRY(parse_figures(config, &options.figures));
    SL_TRY(check_outputs(config)); /* wrong files are said before a minute has passed */
    if (device == SL_DEVICE_CUDA && !config->quick && !config->output)
        SL_TRY(sl_algorithm_list_check());
    if (config->against)
        SL_TRY(sl_bench_compare(&bench, config->against));
    SL_TRY(sl_command_prove_device(config, NULL));
    const bool has_old = load_base(config, &options, &old);
    if (options.figures && has_old)
        options.base = &old.machine;
    bench = (sl_bench){0};
    sl_status status = sl_bench_run(&options, &bench);
    sl_terminal_end_line();
    SL_TRY(status);
    status = finish_bench(config, &options, has_old ? &old : NULL, &bench);
    sl_bench_close(&bench);
    return status;
}

/* ---- ranks ---- */

/* Kernels, memory and disk are one machine's, whatever number of ranks is on it. */
static sl_status check_ranks(const sl_config *config, const sl_bench_options *options)
{
    if (options->figures != 1u << SL_BENCH_COMM)
        SL_FAIL(SL_ERROR_USAGE, "on ranks bench measures their exchanges alone: add --only comm, "
                                "or leave out sluice launch");
    if (options->device != SL_DEVICE_CPU)
        SL_FAIL(SL_ERROR_USAGE,
                "--device %s: on ranks bench measures exchanges through memory of "
                "the host: --device cpu",
                config->device);
    if (config->output)
        SL_FAIL(SL_ERROR_USAGE, "--output: what ranks exchange is no part of a machine profile: "
                                "leave it out; --json prints all numbers");
    return SL_OK;
}

static sl_status agree(const sl_ranks *ranks, const sl_config *config)
{
    const sl_comm_fact facts[] = {{"the version", sl_version_text()},
                                  {"the commit", sl_version_commit()},
                                  {"option --quick", config->quick ? "true" : "false"}};
    return sl_ranks_agree_on(ranks, facts, sizeof facts / sizeof facts[0]);
}

static sl_status tell_exchanges(const sl_config *config, sl_bench *bench)
{
    json_t *object = NULL;
    if (config->against)
        SL_TRY(sl_bench_compare(bench, config->against));
    bench->profile.is_quick = config->quick;
    SL_TRY(sl_bench_format(bench, &object));
    sl_status status = config->report ? sl_report_write_bench(config->report, object) : SL_OK;
    if (status == SL_OK && config->json)
        status = sl_command_print_json(object, 9);
    else if (status == SL_OK) {
        sl_bench_table_print(bench);
        sl_bench_table_compare(bench);
    }
    json_decref(object);
    return status;
}

static sl_status measure_ranks(const sl_config *config, const sl_ranks *ranks)
{
    sl_bench bench = {0};
    int index;
    sl_bench_options options = {.thread_count = (uint32_t)config->threads,
                                .is_quick = config->quick,
                                .progress = config->quiet ? NULL : print_progress};
    SL_TRY(sl_config_parse_device(config->device, &options.device, &index));
    SL_TRY(parse_figures(config, &options.figures));
    SL_TRY(check_ranks(config, &options));
    if (sl_ranks_is_first(ranks))
        SL_TRY(check_outputs(config));
    SL_TRY(agree(ranks, config));
    sl_bench_warn_of_load(&options);
    sl_profile_init(&bench.profile, &(sl_profile_subject){.device = options.device,
                                                          .worker_count = options.thread_count});
    sl_status status = sl_rank_exchanges_measure(&options, ranks->world, &bench);
    sl_terminal_end_line();
    if (status == SL_OK)
        status = sl_held_warnings_compare(ranks->world);
    if (status == SL_OK && sl_ranks_is_first(ranks))
        status = tell_exchanges(config, &bench);
    sl_bench_close(&bench);
    return status;
}

static int bench(sl_config *config)
{
    sl_ranks ranks = {0};
    sl_environment environment;
    sl_status status = sl_command_begin_rank(config, &environment);
    if (status == SL_OK)
        status = sl_ranks_open(config->rank_timeout, &ranks);
    if (status == SL_OK)
        status = ranks.world ? measure_ranks(config, &ranks) : measure_machine(config);
    const int code = sl_command_end_rank(status);
    sl_ranks_leave(&ranks, status);
    sl_ranks_close(&ranks);
    return code;
}

const sl_command_entry sl_command_bench = {
    .options = SL_CONFIG_BENCH,
    .task = SL_COMMAND_MACHINE,
    .name = "bench",
    .summary = "measure the machine; plan and train use its rates",
    .doc = "Measures a device in about a minute: matrix products, AdamW and all other ops by type "
           "and shape, copies, host memory and, with --disk-dir, the disk; each beside its roof, "
           "measured in the same run, and the disk also beside fio where that is installed. Prints "
           "a summary (--verbose: every row). Writes "
           "the machine profile, one for the cpu and one for "
           "GPUs, by which plan predicts and auto chooses. With --only product,attention it prints "
           "instead how fast the kernels of known models are (some minutes). On ranks --only comm "
           "times what they exchange. Leave the machine "
           "alone meanwhile.",
    .page = "docs/machine.md",
    .takes_ranks = true,
    .run = bench};
