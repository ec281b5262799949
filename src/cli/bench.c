/* sluice bench: measures the machine, prints each rate beside its roof, and writes the profile that
 * plan and train find again by themselves. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "command.h"
#include "session/config/config.h"

static void print_progress(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "sluice: %s\n", line);
}

static void print_row(const sl_bench_row *row)
{
    double unit = 1e9;
    printf("  %-5s %-40s %8.1f  %8.1f .. %8.1f %s", row->type, row->name, row->rate.median / unit,
           row->rate.p10 / unit, row->rate.p90 / unit, row->is_flops ? "GFLOP/s" : "GB/s   ");
    if (row->roof > 0)
        printf(" %5.1f%%", 100 * row->rate.median / row->roof);
    putchar('\n');
}

/* In the order of the table. */
static const struct group {
    const char *name, *title[SL_DEVICE_KIND_COUNT];
} groups[] = {
    {"gemm",
     {"matrix products, against multiply-adds from registers",
      "matrix products, against the largest square one"}},
    {"adamw",
     {"AdamW, against a loop that reads four arrays and writes three",
      "AdamW on the device, against a copy within it"}},
    {"host_adamw", {NULL, "AdamW on the host, against a loop that reads four and writes three"}},
    {"op",
     {"other ops of a step, on data as warm as a step leaves it",
      "other ops of a step, on data as warm as a step leaves it"}},
    {"memory", {"host memory, all workers", "host memory, all workers"}},
    {"copy", {"copies, one thread each", "copies, from and to locked memory"}},
    {"disk", {"disk", "disk, through the same locked memory"}},
};

static void print_group(const sl_bench *bench, const struct group *group)
{
    bool is_first = true;
    for (uint32_t i = 0; i < bench->row_count; i++) {
        const sl_bench_row *row = &bench->rows[i];
        if (strcmp(group->name, row->group) != 0)
            continue;
        if (is_first)
            printf("\n%s\n", group->title[bench->profile.device]);
        is_first = false;
        print_row(row);
    }
}

static void print_table(const sl_bench *bench)
{
    const sl_profile *profile = &bench->profile;
    if (*profile->gpu)
        printf("%s beside ", profile->gpu);
    printf("%s, %u workers of %u cores; %s\n", profile->cpu, profile->thread_count,
           profile->core_count, profile->kernels);
    printf("median, slow and fast end (p10, p90), share of the roof in the same run\n");
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        print_group(bench, &groups[i]);
    if (*bench->disk_note)
        printf("\ndisk: %s, %s\n", profile->disk, bench->disk_note);
    else if (*profile->disk)
        printf("\nthe disk was not measured; its rates of before stay: %s\n", profile->disk);
    else
        printf("\nthe disk was not measured: give --disk-dir\n");
}

/* The disk is the same one beside every device. */
static void keep_disk_of_cpu(sl_profile *profile)
{
    char *path = NULL;
    if (profile->device != SL_DEVICE_CPU && sl_profile_find_path(SL_DEVICE_CPU, &path) == SL_OK)
        sl_profile_keep_disk(profile, path);
    free(path);
}

static sl_status save_profile(const sl_config *config, sl_bench *bench, const json_t *object)
{
    char *found = NULL;
    if (!config->output)
        SL_TRY(sl_profile_find_path(bench->profile.device, &found));
    const char *path = config->output ? config->output : found;
    sl_profile_keep_disk(&bench->profile, path);
    keep_disk_of_cpu(&bench->profile);
    sl_status status = sl_profile_save(&bench->profile, path, object);
    if (status == SL_OK && !config->quiet)
        fprintf(stderr, "sluice: the machine profile is in %s\n", path);
    free(found);
    return status;
}

static sl_status measure_machine(const sl_config *config)
{
    sl_device_kind device;
    int index;
    SL_TRY(sl_config_parse_device(config->device, &device, &index));
    sl_bench_options options = {.device = device,
                                .device_index = index,
                                .cuda = sl_config_cuda(config),
                                .disk_directories = (const char *const *)config->disk_dir.items,
                                .disk_directory_count = config->disk_dir.count,
                                .thread_count = (uint32_t)config->threads,
                                .is_quick = config->quick,
                                .progress = config->quiet ? NULL : print_progress};
    sl_bench bench = {0};
    json_t *object = NULL;
    SL_TRY(sl_bench_run(&options, &bench));
    sl_status status = sl_bench_format(&bench, &object);
    if (status == SL_OK)
        status = save_profile(config, &bench, object);
    if (status == SL_OK && config->json)
        status = sl_command_print_json(object, 9);
    else if (status == SL_OK)
        print_table(&bench);
    json_decref(object);
    sl_bench_close(&bench);
    return status;
}

static int bench(sl_config *config)
{
    return sl_command_end(measure_machine(config));
}

const sl_command_entry sl_command_bench = {
    .options = SL_CONFIG_BENCH,
    .name = "bench",
    .summary = "measure the machine; plan and train use its rates",
    .doc = "Measures a device in about a minute: matrix products, AdamW and all other ops by type "
           "and shape, copies, host memory and, with --disk-dir, the disk; each beside its roof, "
           "measured in the same run. Writes the machine profile, one for the cpu and one for "
           "GPUs, by which plan predicts and auto chooses. Leave the machine alone meanwhile.",
    .run = bench};
