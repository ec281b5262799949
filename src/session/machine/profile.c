/* The default path, and whose rates a plan is made with. */
#define _GNU_SOURCE /* asprintf */
#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/workers.h"
#include "kernels/kernels.h"
#include "sluice/version.h"

static const char *const device_names[SL_DEVICE_KIND_COUNT] = {"cpu", "cuda"};

sl_status sl_profile_find_path(sl_device_kind device, char **out_path)
{
    static const char *const files[SL_DEVICE_KIND_COUNT] = {"machine.json", "machine-cuda.json"};
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char *path;
    int length;
    if (config && config[0] == '/')
        length = asprintf(&path, "%s/sluice/%s", config, files[device]);
    else if (home && home[0] == '/')
        length = asprintf(&path, "%s/.config/sluice/%s", home, files[device]);
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
    return sl_machine_default_gpu(subject->info ? subject->info->multiprocessor_count : 0,
                                  subject->worker_count);
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

sl_status sl_profile_check(const sl_profile *profile, const sl_profile_subject *subject)
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
    if (profile->thread_count != subject->worker_count)
        SL_FAIL(SL_ERROR_DATA, "it was measured with %u compute workers, not %u",
                profile->thread_count, subject->worker_count);
    if (strcmp(profile->kernels, here.kernels) != 0)
        SL_FAIL(SL_ERROR_DATA, "it was measured with other kernels (%s; these are %s)",
                profile->kernels, here.kernels);
    return SL_OK;
}

void sl_profile_keep_disk(sl_profile *profile, const char *path)
{
    sl_profile old;
    if (*profile->disk || sl_profile_load(path, &old) != SL_OK || strcmp(old.host, profile->host))
        return;
    for (int lane = SL_LANE_READ; lane <= SL_LANE_WRITE; lane++) {
        profile->machine.copy_rate[lane] = old.machine.copy_rate[lane];
        profile->machine.copy_seconds[lane] = old.machine.copy_seconds[lane];
        profile->machine.copy_cores[lane] = old.machine.copy_cores[lane];
    }
    profile->machine.mixed_disk_rate = old.machine.mixed_disk_rate;
    memcpy(profile->disk, old.disk, sizeof old.disk);
}

/* A file that nobody named may be missing, damaged or foreign: then a guess does, with a note. */
static void find_default(const sl_profile_subject *subject, sl_machine *out_machine, char *out_note)
{
    sl_profile profile;
    char *path = NULL;
    sl_status status = sl_profile_find_path(subject->device, &path);
    if (status == SL_OK)
        status = sl_profile_load(path, &profile);
    bool is_sound = status == SL_OK;
    if (is_sound)
        status = sl_profile_check(&profile, subject);
    *out_machine = status == SL_OK ? profile.machine : guess_machine(subject);
    if (status == SL_ERROR_MISSING)
        snprintf(out_note, SL_PROFILE_NOTE_BYTES,
                 "this machine was not measured; sluice bench does that in a minute");
    else if (status != SL_OK)
        snprintf(out_note, SL_PROFILE_NOTE_BYTES,
                 "the machine profile is not used: %s%s%.300s; sluice bench makes a new one",
                 is_sound ? path : "", is_sound ? ": " : "", sl_status_message());
    free(path);
}

sl_status sl_profile_find_machine(const char *path, const sl_profile_subject *subject,
                                  sl_machine *out_machine, char *out_note)
{
    sl_profile profile;
    out_note[0] = '\0';
    if (!path || !*path) {
        find_default(subject, out_machine, out_note);
        return SL_OK;
    }
    SL_TRY(sl_profile_load(path, &profile));
    sl_status status = check_device(&profile, subject->device);
    if (status != SL_OK)
        return sl_status_prefix(status, "%s", path);
    if (sl_profile_check(&profile, subject) != SL_OK)
        snprintf(out_note, SL_PROFILE_NOTE_BYTES, "%.150s describes another machine: %.300s", path,
                 sl_status_message());
    *out_machine = profile.machine;
    return SL_OK;
}
