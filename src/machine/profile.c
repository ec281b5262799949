/* The machine profile: its file, where it lies, and whose rates a plan is made with.
 *
 * In the file rates are bytes or FLOPs a second, costs are seconds. Ops and types stand under their
 * names, so a file survives another order of the list; a name that does not exist is a fault, for
 * then the file is of a newer version.
 */
#define _GNU_SOURCE /* asprintf */
#include "profile.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/plural.h"
#include "base/workers.h"
#include "exchange_cost.h"
#include "files/fields.h"
#include "files/files.h"
#include "files/json_file.h"
#include "files/output_file.h"
#include "kernels/kernels.h"
#include "sluice/version.h"

/* ---- the file ---- */

enum { FORMAT = 1, FILE_BYTES_MAX = 1 << 20, THREADS_MAX = 65536 };

/* Behind it stands the number of the format (format_profile). */
#define PROFILE_START "{\n \"sluice_machine\": "

enum { RATE_MIN = 1 }; /* a byte a second: less is no machine */

static const sl_field format_fields[] = {
    {.key = "sluice_machine", .kind = SL_FIELD_U32, .low = FORMAT, .high = FORMAT},
    {0},
};

/* Whose rates they are. The first two keys came with the second kind of device: a file without
 * "device" is of the first. */
enum { DEVICE_FIELD_COUNT = 2 };

static const sl_field subject_fields[] = {
    SL_FIELD_AS(CHOICE, "device", sl_profile, device, .names = "cpu|cuda"),
    SL_FIELD_AS(CHARS, "gpu", sl_profile, gpu),
    SL_FIELD_AS(CHARS, "host", sl_profile, host),
    SL_FIELD_AS(CHARS, "cpu", sl_profile, cpu),
    SL_FIELD_AS(CHARS, "kernels", sl_profile, kernels),
    SL_FIELD_AS(CHARS, "version", sl_profile, version),
    SL_FIELD_AS(CHARS, "date", sl_profile, date),
    SL_FIELD_AS(CHARS, "disk", sl_profile, disk),
    SL_FIELD("core_count", sl_profile, core_count, .low = 1, .high = THREADS_MAX),
    SL_FIELD("thread_count", sl_profile, thread_count, .low = 1, .high = THREADS_MAX),
    SL_FIELD("quick", sl_profile, is_quick, .flags = SL_FIELD_OPTIONAL),
    {0},
};

static const sl_field rate_fields[] = {
    SL_FIELD("flop_rate", sl_op_rate, flop_rate),
    SL_FIELD("byte_rate", sl_op_rate, byte_rate),
    SL_FIELD("seconds", sl_op_rate, seconds),
    {0},
};

static const sl_field rate = {.kind = SL_FIELD_OBJECT, .fields = rate_fields};

static const sl_field rates_of_op = {.kind = SL_FIELD_MAP,
                                     .names = "fp32|bf16|fp16",
                                     .stride = sizeof(sl_op_rate),
                                     .fields = &rate,
                                     .flags = SL_FIELD_OPTIONAL};

static const sl_field adding_fields[] = {
    SL_FIELD_AS(MAP, "rates", sl_adding_rates, rate, .names = "fp32|bf16|fp16",
                .stride = sizeof(sl_op_rate), .fields = &rate),
    {0},
};

static const sl_field adding_rates = {
    .kind = SL_FIELD_OBJECT, .fields = adding_fields, .flags = SL_FIELD_OPTIONAL | SL_FIELD_LISTED};

static const sl_field number = {.kind = SL_FIELD_F64, .flags = SL_FIELD_OPTIONAL};

static const sl_field rates_of_states = {.kind = SL_FIELD_MAP,
                                         .names = "fp32|bf16|fp16",
                                         .stride = sizeof(double),
                                         .fields = &number,
                                         .flags = SL_FIELD_OPTIONAL};

/* Bytes a second, by how states are stored and by compute type. */
static const sl_field update_fields[] = {
    SL_FIELD_AS(MAP, "device", sl_update_rates, device, .names = "fp32|bf16|int8",
                .stride = sizeof(double[SL_TYPE_COUNT]), .fields = &rates_of_states),
    SL_FIELD_AS(MAP, "host", sl_update_rates, host, .names = "fp32|bf16|int8",
                .stride = sizeof(double[SL_TYPE_COUNT]), .fields = &rates_of_states),
    {0},
};

static const sl_field update_rates = {
    .kind = SL_FIELD_OBJECT, .fields = update_fields, .flags = SL_FIELD_OPTIONAL | SL_FIELD_LISTED};

/* One lane that copies: an element of each of three arrays of the machine. */
static const sl_field copy_fields[] = {
    SL_FIELD("byte_rate", sl_machine, copy_rate[0], .low = RATE_MIN),
    SL_FIELD("seconds", sl_machine, copy_seconds[0]),
    SL_FIELD("cores", sl_machine, copy_cores[0]),
    {0},
};

#define COPY(name, lane)                                                                           \
    {                                                                                              \
        .key = name, .kind = SL_FIELD_OBJECT, .offset = (lane) * sizeof(double),                   \
        .fields = copy_fields                                                                      \
    }

static const sl_field copies_fields[] = {
    COPY("h2d", SL_LANE_H2D),
    COPY("d2h", SL_LANE_D2H),
    COPY("read", SL_LANE_READ),
    COPY("write", SL_LANE_WRITE),
    {0},
};

#define OP_NAME(NAME, name, ...) #name "|"

static const sl_field machine_fields[] = {
    SL_FIELD_AS(MAP, "ops", sl_machine, op, .names = SL_OP_LIST(OP_NAME), .fields = &rates_of_op,
                .stride = sizeof((sl_machine *)NULL)->op[0],
                .flags = SL_FIELD_CLOSED | SL_FIELD_OPTIONAL),
    SL_FIELD_AS(MAP, "adding_ops", sl_machine, adding_op, .names = SL_OP_LIST(OP_NAME),
                .fields = &adding_rates, .stride = sizeof(sl_adding_rates),
                .flags = SL_FIELD_CLOSED | SL_FIELD_OPTIONAL),
    {.key = "copies", .kind = SL_FIELD_OBJECT, .fields = copies_fields},
    SL_FIELD("op_seconds", sl_machine, op_seconds),
    SL_FIELD("mixed_disk_rate", sl_machine, mixed_disk_rate, .low = RATE_MIN),
    SL_FIELD("host_memory_rate", sl_machine, host_memory_rate, .flags = SL_FIELD_OPTIONAL),
    SL_FIELD_AS(MAP, "host_adamw", sl_machine, host_update, .names = "fp32|bf16|fp16",
                .stride = sizeof(sl_op_rate), .fields = &rate),
    SL_FIELD_AS(MAP, "updates", sl_machine, update[SL_MASTER_FP32], .names = SL_OP_LIST(OP_NAME),
                .fields = &update_rates, .stride = sizeof(sl_update_rates),
                .flags = SL_FIELD_CLOSED | SL_FIELD_OPTIONAL),
    SL_FIELD_AS(MAP, "updates_of_halves", sl_machine, update[SL_MASTER_LOW],
                .names = SL_OP_LIST(OP_NAME), .fields = &update_rates,
                .stride = sizeof(sl_update_rates), .flags = SL_FIELD_CLOSED | SL_FIELD_OPTIONAL),
    {0},
};

/* ---- writing the file ---- */

static sl_status write_fields(const sl_profile *profile, const json_t *report, json_t *root)
{
    static const uint32_t format = FORMAT;
    SL_TRY(sl_fields_write(format_fields, &format, root));
    SL_TRY(sl_fields_write(subject_fields, profile, root));
    SL_TRY(sl_fields_write(machine_fields, &profile->machine, root));
    if (report && json_object_set_new(root, "report", json_deep_copy(report)) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the report of a machine profile");
    return SL_OK;
}

static sl_status format_profile(const sl_profile *profile, const json_t *report, char **out_text)
{
    json_t *root = json_object();
    sl_status status = write_fields(profile, report, root);
    *out_text =
        status == SL_OK ? sl_json_file_dump(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    SL_TRY(status);
    if (!*out_text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the text of a machine profile");
    return SL_OK;
}

static sl_status replace_in(const char *parent, const char *name, const char *text)
{
    int directory;
    char temporary[64];
    snprintf(temporary, sizeof temporary, ".machine-%ld.tmp", (long)getpid());
    SL_TRY(sl_files_make_directories(parent));
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, parent, SL_LINKS_FOLLOW, &directory));
    sl_status status = sl_files_replace_text(directory, parent, name, temporary, text);
    close(directory);
    return status;
}

/* Splits a path; free *out_parent. */
static sl_status split_path(const char *path, char **out_parent, const char **out_name)
{
    const char *slash = strrchr(path, '/');
    const size_t parent_bytes = slash == path ? 1 : slash ? (size_t)(slash - path) : 0;
    *out_parent = slash ? strndup(path, parent_bytes) : strdup(".");
    if (!*out_parent)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    *out_name = slash ? slash + 1 : path;
    return SL_OK;
}

sl_status sl_profile_save_text(const char *path, const char *text)
{
    char *parent;
    const char *name;
    SL_TRY(split_path(path, &parent, &name));
    sl_status status = replace_in(parent, name, text);
    free(parent);
    return status;
}

sl_status sl_profile_check_output(const char *path)
{
    static const sl_output_file_kind kind = {
        .option = "--output", .noun = "machine profile", .start = PROFILE_START};
    char *parent;
    const char *name;
    SL_TRY(split_path(path, &parent, &name));
    sl_status status = sl_files_make_directories(parent);
    free(parent);
    return status == SL_OK ? sl_output_file_check(&kind, path) : status;
}

sl_status sl_profile_save(const sl_profile *profile, const char *path, const json_t *report)
{
    char *text = NULL;
    SL_TRY(format_profile(profile, report, &text));
    sl_status status = sl_profile_save_text(path, text);
    free(text);
    return status;
}

/* ---- reading the file ---- */

/* Writes the name: the device with its workers, how it was measured, and when. */
static void name_machine(const sl_profile *profile, uint32_t worker_count, uint32_t rank_count,
                         sl_machine *machine)
{
    char share[48] = "";
    if (rank_count > 1)
        snprintf(share, sizeof share, " in each of %u ranks", rank_count);
    else if (worker_count != profile->thread_count)
        snprintf(share, sizeof share, ", scaled from %u", profile->thread_count);
    if (profile->device == SL_DEVICE_CPU)
        snprintf(machine->name, sizeof machine->name, "cpu, %u worker%s%s, %s %.10s", worker_count,
                 sl_plural(worker_count), share, profile->is_quick ? "quick bench" : "measured",
                 profile->date);
    else
        snprintf(machine->name, sizeof machine->name, "%.40s, %s %.10s", profile->gpu,
                 profile->is_quick ? "quick bench" : "measured", profile->date);
}

/* What takes other ranks is not measured by one: there the guess stands. */
static void keep_guesses(const sl_machine *guess, sl_machine *machine)
{
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            if (sl_op_info_of((sl_op_kind)kind)->is_collective &&
                machine->op[kind][type].byte_rate <= 0)
                machine->op[kind][type] = guess->op[kind][type];
}

/* A file of an older version lacks the rate of host memory: the guess stands, or AdamW's rate where
 * that is higher. */
static void guess_host_memory(const json_t *root, sl_machine *machine)
{
    if (json_object_get(root, "host_memory_rate") || machine->host_memory_rate <= 0)
        return;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        machine->host_memory_rate =
            fmax(machine->host_memory_rate, machine->host_update[type].byte_rate);
}

static sl_status read_profile(const char *path, const json_t *root, sl_profile *out_profile)
{
    uint32_t format;
    sl_profile profile = {.device = SL_DEVICE_CPU};
    bool has_device = json_object_get(root, "device");
    SL_TRY(sl_fields_read(path, root, format_fields, &format));
    SL_TRY(sl_fields_read(path, root, subject_fields + (has_device ? 0 : DEVICE_FIELD_COUNT),
                          &profile));
    sl_machine *machine = &profile.machine;
    *machine = profile.device == SL_DEVICE_CPU ? sl_machine_default(profile.thread_count)
                                               : sl_machine_default_gpu(0, profile.thread_count);
    const sl_machine guess = *machine;
    SL_TRY(sl_fields_read(path, root, machine_fields, machine));
    keep_guesses(&guess, machine);
    guess_host_memory(root, machine);
    machine->is_measured = true;
    machine->is_quick = profile.is_quick;
    machine->worker_count = profile.thread_count;
    machine->core_count =
        profile.core_count > profile.thread_count ? profile.core_count : profile.thread_count;
    name_machine(&profile, profile.thread_count, 1, machine);
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

/* ---- which profile holds ---- */

static const char *const device_names[SL_DEVICE_KIND_COUNT] = {"cpu", "cuda"};

sl_status sl_profile_find_path(sl_device_kind device, uint32_t worker_count, char **out_path)
{
    static const char *const names[SL_DEVICE_KIND_COUNT] = {"machine", "machine-cuda"};
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char *path, workers[16] = "";
    int length;
    if (worker_count != 0 && worker_count != sl_workers_usable_cpu_count())
        snprintf(workers, sizeof workers, "-%u", worker_count);
    if (config && config[0] == '/')
        length = asprintf(&path, "%s/sluice/%s%s.json", config, names[device], workers);
    else if (home && home[0] == '/')
        length = asprintf(&path, "%s/.config/sluice/%s%s.json", home, names[device], workers);
    else
        SL_FAIL(SL_ERROR_MISSING, "there is no place for a machine profile: neither "
                                  "XDG_CONFIG_HOME nor HOME is an absolute path");
    if (length < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    *out_path = path;
    return SL_OK;
}

/* The first "model name" of /proc/cpuinfo; other architectures than x86 have none. */
static void find_cpu(char *out_text)
{
    char line[256];
    snprintf(out_text, SL_PROFILE_TEXT_BYTES, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(out_text, SL_PROFILE_TEXT_BYTES, "%.100s", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    if (file)
        fclose(file);
}

static sl_machine guess_machine(const sl_profile_subject *subject)
{
    if (subject->device == SL_DEVICE_CPU)
        return sl_machine_default(subject->worker_count);
    sl_machine machine = sl_machine_default_gpu(
        subject->info ? subject->info->multiprocessor_count : 0, subject->worker_count);
    if (subject->rank_count > 1) /* of the whole machine, whatever the workers of one rank */
        machine.host_memory_rate /= subject->rank_count;
    return machine;
}

void sl_profile_init(sl_profile *profile, const sl_profile_subject *subject)
{
    const sl_kernel_table *kernels = sl_kernels_of(subject->device);
    *profile = (sl_profile){.device = subject->device, .thread_count = subject->worker_count};
    if (subject->info)
        snprintf(profile->gpu, sizeof profile->gpu, "%.48s%s%.76s", subject->info->name,
                 *subject->info->detail ? ", " : "", subject->info->detail);
    if (gethostname(profile->host, sizeof profile->host) != 0)
        profile->host[0] = '\0';
    profile->host[sizeof profile->host - 1] = '\0';
    find_cpu(profile->cpu);
    snprintf(profile->kernels, sizeof profile->kernels, "%.120s",
             kernels ? kernels->description() : "none");
    snprintf(profile->version, sizeof profile->version, "%.60s %.60s", sl_version_text(),
             sl_version_commit());
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts))
        strftime(profile->date, sizeof profile->date, "%Y-%m-%dT%H:%M:%SZ", &parts);
    profile->core_count = sl_workers_usable_cpu_count();
    profile->machine = guess_machine(subject);
}

static sl_status check_device(const sl_profile *profile, sl_device_kind device)
{
    if (profile->device != device)
        SL_FAIL(SL_ERROR_DATA, "it describes device %s, not %s", device_names[profile->device],
                device_names[device]);
    return SL_OK;
}

/* SL_OK if the profile was measured on this machine, with any number of workers; else why not. */
static sl_status check_machine(const sl_profile *profile, const sl_profile_subject *subject)
{
    sl_profile here;
    SL_TRY(check_device(profile, subject->device));
    sl_profile_init(&here, subject);
    if (strcmp(profile->gpu, here.gpu) != 0)
        SL_FAIL(SL_ERROR_DATA, "it was measured on another GPU (%s; here is %s)", profile->gpu,
                *here.gpu ? here.gpu : "none");
    if (strcmp(profile->cpu, here.cpu) != 0)
        SL_FAIL(SL_ERROR_DATA, "it was measured on another processor (%s; this one is %s)",
                profile->cpu, here.cpu);
    if (strcmp(profile->kernels, here.kernels) != 0)
        SL_FAIL(SL_ERROR_DATA, "it was measured with other kernels (%s; these are %s)",
                profile->kernels, here.kernels);
    return SL_OK;
}

sl_status sl_profile_check(const sl_profile *profile, const sl_profile_subject *subject)
{
    SL_TRY(check_machine(profile, subject));
    if (profile->thread_count != subject->worker_count)
        SL_FAIL(SL_ERROR_DATA, "it was measured with %u compute workers, not %u",
                profile->thread_count, subject->worker_count);
    return SL_OK;
}

void sl_profile_keep_disk(sl_profile *profile, const char *path)
{
    sl_profile old;
    if (*profile->disk || sl_profile_load(path, &old) != SL_OK ||
        strcmp(old.host, profile->host) != 0)
        return;
    for (int lane = SL_LANE_READ; lane <= SL_LANE_WRITE; lane++) {
        profile->machine.copy_rate[lane] = old.machine.copy_rate[lane];
        profile->machine.copy_seconds[lane] = old.machine.copy_seconds[lane];
        profile->machine.copy_cores[lane] = old.machine.copy_cores[lane];
    }
    profile->machine.mixed_disk_rate = old.machine.mixed_disk_rate;
    memcpy(profile->disk, old.disk, sizeof old.disk);
}

/* The rates of a profile of this machine, for the subject's workers and ranks. */
static sl_machine scale_machine(const sl_profile *profile, const sl_profile_subject *subject)
{
    sl_machine machine = profile->machine;
    const uint32_t ranks = subject->rank_count ? subject->rank_count : 1;
    sl_machine_scale(&machine, subject->worker_count, ranks);
    name_machine(profile, subject->worker_count, ranks, &machine);
    return machine;
}

/* Loads the default file for a number of workers (0: all cores), if it is of this machine. */
static sl_status load_default(const sl_profile_subject *subject, uint32_t worker_count,
                              sl_profile *out_profile)
{
    char *path = NULL;
    SL_TRY(sl_profile_find_path(subject->device, worker_count, &path));
    sl_status status = sl_profile_load(path, out_profile);
    if (status == SL_OK) {
        status = check_machine(out_profile, subject);
        status = status == SL_OK ? SL_OK : sl_status_prefix(status, "%s", path);
    }
    free(path);
    return status;
}

/* The profile of this number of workers, else that of all cores. Where no file of all cores exists,
 * the first file counts again: it has other workers, or a failure to report. */
static sl_status find_profile(const sl_profile_subject *subject, sl_profile *out_profile)
{
    const sl_status own = load_default(subject, subject->worker_count, out_profile);
    if (own == SL_ERROR_SYSTEM ||
        (own == SL_OK && out_profile->thread_count == subject->worker_count))
        return own;
    const sl_status of_all = load_default(subject, 0, out_profile);
    if (of_all != SL_ERROR_MISSING || own == SL_ERROR_MISSING)
        return of_all;
    return load_default(subject, subject->worker_count, out_profile);
}

/* A default file may be missing, damaged or of another machine: then a guess takes its place, with
 * a note unless it is missing. Not where memory is short: a rank that guesses beside others that
 * have measured would plan otherwise. */
static sl_status find_default(const sl_profile_subject *subject, sl_machine *out_machine,
                              char *out_note)
{
    sl_profile profile;
    sl_status status = find_profile(subject, &profile);
    if (status == SL_ERROR_SYSTEM)
        return status;
    *out_machine = status == SL_OK ? scale_machine(&profile, subject) : guess_machine(subject);
    if (status != SL_OK && status != SL_ERROR_MISSING)
        snprintf(out_note, SL_PROFILE_NOTE_BYTES,
                 "the machine profile is not used: %.400s; sluice bench makes a new one",
                 sl_status_message());
    return SL_OK;
}

/* One rank of a described node. */
static sl_status describe_machine(const char *path, const sl_profile_subject *subject,
                                  sl_machine *out_machine)
{
    sl_cluster cluster;
    const sl_comm_layout alone = {.tensor = 1, .data = 1, .stages = 1};
    SL_TRY(sl_cluster_load(path, &cluster));
    if (subject->device != SL_DEVICE_CUDA)
        SL_FAIL(SL_ERROR_USAGE,
                "%s describes a GPU: plan with --device cuda, or leave out --machine", path);
    *out_machine = sl_cluster_machine(&cluster, &alone, sl_type_bytes(SL_TYPE_FP32));
    return SL_OK;
}

sl_status sl_profile_find_machine(const char *path, const sl_profile_subject *subject,
                                  sl_machine *out_machine, char *out_note)
{
    sl_profile profile;
    bool is_description;
    out_note[0] = '\0';
    if (!path || !*path)
        return find_default(subject, out_machine, out_note);
    SL_TRY(sl_cluster_recognise(path, &is_description));
    if (is_description)
        return describe_machine(path, subject, out_machine);
    SL_TRY(sl_profile_load(path, &profile));
    sl_status status = check_device(&profile, subject->device);
    if (status != SL_OK)
        return sl_status_prefix(status, "%s", path);
    bool is_foreign = check_machine(&profile, subject) != SL_OK;
    if (is_foreign)
        snprintf(out_note, SL_PROFILE_NOTE_BYTES, "%.150s describes another machine: %.300s", path,
                 sl_status_message());
    *out_machine = is_foreign ? profile.machine : scale_machine(&profile, subject);
    return SL_OK;
}
