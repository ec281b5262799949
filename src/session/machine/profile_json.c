/* The profile as a file: one JSON object, its keys declared once for writing and reading.
 *
 * Rates are bytes or FLOPs a second, costs are seconds. Ops and types stand under their names, so a
 * file survives another order of the list; a name that does not exist is a fault, for then the file
 * is of a newer version.
 */
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/files.h"
#include "files/json_file.h"
#include "profile.h"

enum { FORMAT = 1, FILE_BYTES_MAX = 1 << 20, NUMBER_MAX = 4, THREADS_MAX = 65536 };

static const char *const device_names[SL_DEVICE_KIND_COUNT] = {"cpu", "cuda"};

typedef struct text_key {
    const char *name;
    size_t offset; /* of SL_PROFILE_TEXT_BYTES in sl_profile */
} text_key;

static const text_key texts[] = {
    {"host", offsetof(sl_profile, host)},       {"cpu", offsetof(sl_profile, cpu)},
    {"kernels", offsetof(sl_profile, kernels)}, {"version", offsetof(sl_profile, version)},
    {"date", offsetof(sl_profile, date)},       {"disk", offsetof(sl_profile, disk)},
};

enum { TEXT_COUNT = sizeof texts / sizeof texts[0] };

typedef struct number_key {
    const char *name;
    double *value;
    double low; /* the least it may be */
} number_key;

static const double no_rate = 1.0; /* a byte a second: less is no machine */

static void list_rate(sl_op_rate *rate, number_key keys[NUMBER_MAX])
{
    keys[0] = (number_key){"flop_rate", &rate->flop_rate, 0};
    keys[1] = (number_key){"byte_rate", &rate->byte_rate, 0};
    keys[2] = (number_key){"seconds", &rate->seconds, 0};
    keys[3] = (number_key){0};
}

static void list_copy(sl_machine *machine, int lane, number_key keys[NUMBER_MAX])
{
    keys[0] = (number_key){"byte_rate", &machine->copy_rate[lane], no_rate};
    keys[1] = (number_key){"seconds", &machine->copy_seconds[lane], 0};
    keys[2] = (number_key){"cores", &machine->copy_cores[lane], 0};
    keys[3] = (number_key){0};
}

static void list_machine(sl_machine *machine, number_key keys[NUMBER_MAX])
{
    keys[0] = (number_key){"op_seconds", &machine->op_seconds, 0};
    keys[1] = (number_key){"mixed_disk_rate", &machine->mixed_disk_rate, no_rate};
    keys[2] = (number_key){0};
}

/* ---- writing: jansson's setters take NULL and say so, so one look at the end is enough ---- */

static int set_numbers(json_t *object, const number_key *keys)
{
    int failed = 0;
    for (; keys->name; keys++)
        failed |= json_object_set_new(object, keys->name, json_real(*keys->value));
    return failed;
}

static int add_rates(json_t *parent, const char *name, sl_op_rate rates[SL_TYPE_COUNT])
{
    number_key keys[NUMBER_MAX];
    json_t *types = json_object();
    int failed = json_object_set_new(parent, name, types);
    for (int type = 0; type < SL_TYPE_COUNT && !failed; type++) {
        json_t *rate = json_object();
        list_rate(&rates[type], keys);
        failed |= json_object_set_new(types, sl_type_name((sl_type)type), rate);
        failed |= failed ? 1 : set_numbers(rate, keys);
    }
    return failed;
}

static int add_machine(json_t *root, sl_machine *machine)
{
    number_key keys[NUMBER_MAX];
    json_t *ops = json_object(), *copies = json_object();
    int failed = json_object_set_new(root, "ops", ops);
    failed |= json_object_set_new(root, "copies", copies);
    for (int kind = 0; kind < SL_OP_COUNT && !failed; kind++)
        failed |= add_rates(ops, sl_op_info_of((sl_op_kind)kind)->name, machine->op[kind]);
    for (int lane = 0; lane < SL_LANE_COUNT && !failed; lane++) {
        if (!sl_lane_copies((sl_lane)lane))
            continue;
        json_t *copy = json_object();
        list_copy(machine, lane, keys);
        failed |= json_object_set_new(copies, sl_lane_name((sl_lane)lane), copy);
        failed |= failed ? 1 : set_numbers(copy, keys);
    }
    list_machine(machine, keys);
    return failed || set_numbers(root, keys) || add_rates(root, "host_adamw", machine->host_adamw);
}

static sl_status format_profile(const sl_profile *profile, const json_t *report, char **out_text)
{
    sl_profile copy = *profile;
    json_t *root = json_object();
    int failed = json_object_set_new(root, "sluice_machine", json_integer(FORMAT));
    failed |= json_object_set_new(root, "device", json_string(device_names[copy.device]));
    failed |= json_object_set_new(root, "gpu", json_string(copy.gpu));
    for (int i = 0; i < TEXT_COUNT; i++)
        failed |= json_object_set_new(root, texts[i].name,
                                      json_string((const char *)&copy + texts[i].offset));
    failed |= json_object_set_new(root, "core_count", json_integer(copy.core_count));
    failed |= json_object_set_new(root, "thread_count", json_integer(copy.thread_count));
    failed |= add_machine(root, &copy.machine);
    if (report)
        failed |= json_object_set_new(root, "report", json_deep_copy(report));
    *out_text = failed ? NULL : json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (!*out_text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the text of a machine profile");
    return SL_OK;
}

static sl_status replace_file(int directory, const char *directory_path, const char *name,
                              const char *text)
{
    char temporary[64];
    snprintf(temporary, sizeof temporary, ".machine-%ld.tmp", (long)getpid());
    unlinkat(directory, temporary, 0); /* of a process that had this number and was killed */
    sl_status status =
        sl_files_write_text(directory, directory_path, temporary, text, strlen(text));
    if (status == SL_OK) {
        int error = sl_files_rename(directory, temporary, name, SL_RENAME_REPLACE);
        if (error)
            status = sl_status_fail(SL_ERROR_IO, "%s/%s: cannot be replaced: %s",
                                    sl_files_show(directory_path).text, sl_files_show(name).text,
                                    strerror(error));
    }
    if (status != SL_OK)
        unlinkat(directory, temporary, 0);
    else
        status = sl_files_sync_directory(directory, directory_path);
    return status;
}

static sl_status save_text(const char *path, const char *text)
{
    char *folder = strdup(path);
    if (!folder)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    const char *name = slash ? path + (strrchr(path, '/') - path) + 1 : path;
    const char *parent = slash ? folder : ".";
    int directory = -1;
    sl_status status = sl_files_make_directories(parent);
    if (status == SL_OK)
        status = sl_files_open_directory(AT_FDCWD, NULL, parent, SL_LINKS_FOLLOW, &directory);
    if (status == SL_OK)
        status = replace_file(directory, parent, name, text);
    if (directory >= 0)
        close(directory);
    free(folder);
    return status;
}

sl_status sl_profile_save(const sl_profile *profile, const char *path, const json_t *report)
{
    char *text = NULL;
    SL_TRY(format_profile(profile, report, &text));
    sl_status status = save_text(path, text);
    free(text);
    return status;
}

/* ---- reading ---- */

static sl_status read_numbers(const char *path, const json_t *object, const char *what,
                              const number_key *keys)
{
    for (; keys->name; keys++) {
        const json_t *value = json_object_get(object, keys->name);
        double number = json_number_value(value);
        if (!json_is_number(value) || !isfinite(number) || number < keys->low)
            SL_FAIL(SL_ERROR_DATA, "%s: \"%s\" of %s is not a number from %g up",
                    sl_files_show(path).text, keys->name, sl_files_show(what).text, keys->low);
        *keys->value = number;
    }
    return SL_OK;
}

static sl_status read_rates(const char *path, const json_t *types, const char *what,
                            sl_op_rate rates[SL_TYPE_COUNT])
{
    number_key keys[NUMBER_MAX];
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        list_rate(&rates[type], keys);
        SL_TRY(read_numbers(path, json_object_get(types, sl_type_name((sl_type)type)), what, keys));
    }
    return SL_OK;
}

static int find_op(const char *name)
{
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        if (strcmp(sl_op_info_of((sl_op_kind)kind)->name, name) == 0)
            return kind;
    return SL_OP_COUNT;
}

static sl_status read_ops(const char *path, json_t *root, sl_machine *machine)
{
    const char *name;
    json_t *types;
    json_object_foreach(json_object_get(root, "ops"), name, types)
    {
        int kind = find_op(name);
        if (kind == SL_OP_COUNT)
            SL_FAIL(SL_ERROR_DATA, "%s: there is no op \"%s\"; is it of a newer version?",
                    sl_files_show(path).text, sl_files_show(name).text);
        SL_TRY(read_rates(path, types, name, machine->op[kind]));
    }
    return read_rates(path, json_object_get(root, "host_adamw"), "host_adamw", machine->host_adamw);
}

static sl_status read_machine(const char *path, json_t *root, sl_machine *machine)
{
    number_key keys[NUMBER_MAX];
    SL_TRY(read_ops(path, root, machine));
    const json_t *copies = json_object_get(root, "copies");
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        const char *name = sl_lane_name((sl_lane)lane);
        if (!sl_lane_copies((sl_lane)lane))
            continue;
        list_copy(machine, lane, keys);
        SL_TRY(read_numbers(path, json_object_get(copies, name), name, keys));
    }
    list_machine(machine, keys);
    return read_numbers(path, root, "the machine", keys);
}

/* Both keys came with the second kind of device: a file without them is of the first. */
static sl_status read_device(const char *path, const json_t *root, sl_profile *profile)
{
    const char *name, *gpu = "";
    if (!json_object_get(root, "device"))
        return SL_OK;
    SL_TRY(sl_json_file_get_string(path, root, "device", &name));
    SL_TRY(sl_json_file_get_string(path, root, "gpu", &gpu));
    for (int kind = 0; kind < SL_DEVICE_KIND_COUNT; kind++) {
        if (strcmp(name, device_names[kind]) != 0)
            continue;
        profile->device = (sl_device_kind)kind;
        snprintf(profile->gpu, sizeof profile->gpu, "%.127s", sl_files_show(gpu).text);
        return SL_OK;
    }
    SL_FAIL(SL_ERROR_DATA, "%s: \"device\" is \"%s\", neither cpu nor cuda",
            sl_files_show(path).text, sl_files_show(name).text);
}

static sl_status read_texts(const char *path, json_t *root, sl_profile *profile)
{
    for (int i = 0; i < TEXT_COUNT; i++) {
        const char *text;
        SL_TRY(sl_json_file_get_string(path, root, texts[i].name, &text));
        snprintf((char *)profile + texts[i].offset, SL_PROFILE_TEXT_BYTES, "%.127s",
                 sl_files_show(text).text);
    }
    return SL_OK;
}

static void name_machine(sl_profile *profile)
{
    char *name = profile->machine.name;
    size_t capacity = sizeof profile->machine.name;
    if (profile->device == SL_DEVICE_CPU)
        snprintf(name, capacity, "cpu, %u workers, measured %.10s", profile->thread_count,
                 profile->date);
    else
        snprintf(name, capacity, "%.40s, measured %.10s", profile->gpu, profile->date);
}

static sl_status read_profile(const char *path, json_t *root, sl_profile *out_profile)
{
    uint64_t format, core_count, thread_count;
    const sl_json_range counts = {1, THREADS_MAX};
    SL_TRY(sl_json_file_get_integer(path, root, "sluice_machine", (sl_json_range){FORMAT, FORMAT},
                                    &format));
    SL_TRY(sl_json_file_get_integer(path, root, "core_count", counts, &core_count));
    SL_TRY(sl_json_file_get_integer(path, root, "thread_count", counts, &thread_count));
    sl_profile profile = {.core_count = (uint32_t)core_count,
                          .thread_count = (uint32_t)thread_count};
    SL_TRY(read_device(path, root, &profile));
    SL_TRY(read_texts(path, root, &profile));
    profile.machine = profile.device == SL_DEVICE_CPU
                          ? sl_machine_default(profile.thread_count)
                          : sl_machine_default_gpu(0, profile.thread_count);
    SL_TRY(read_machine(path, root, &profile.machine));
    profile.machine.is_measured = true;
    profile.machine.worker_count = profile.thread_count;
    profile.machine.core_count =
        profile.core_count > profile.thread_count ? profile.core_count : profile.thread_count;
    name_machine(&profile);
    *out_profile = profile;
    return SL_OK;
}

sl_status sl_profile_load(const char *path, sl_profile *out_profile)
{
    json_t *root = NULL;
    SL_TRY(sl_json_file_read(AT_FDCWD, NULL, path, FILE_BYTES_MAX, &root));
    sl_status status = read_profile(path, root, out_profile);
    json_decref(root);
    return status;
}
