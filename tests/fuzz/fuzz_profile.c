/* A machine profile. What is accepted is finite, can be planned with, and is written and read again
 * the same; 9 digits are kept of a number, so what is compared are the second and the third file.
 */
#define _GNU_SOURCE
#include <math.h>

#include "fuzz.h"
#include "machine/profile.h"

static void check_machine(const sl_machine *machine)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        FUZZ_NEED(!sl_lane_copies((sl_lane)lane) || machine->copy_rate[lane] >= 1);
    FUZZ_NEED(machine->mixed_disk_rate >= 1 && isfinite(machine->mixed_disk_rate));
    FUZZ_NEED(machine->op_seconds >= 0);
    FUZZ_NEED(machine->host_memory_rate >= 0 && isfinite(machine->host_memory_rate));
    FUZZ_NEED(machine->worker_count >= 1 && machine->worker_count <= 65536);
    FUZZ_NEED(machine->core_count >= machine->worker_count && machine->core_count <= 65536);
    FUZZ_NEED(memchr(machine->name, '\0', sizeof machine->name) != NULL);
}

enum { WHOLE_BYTES = 16384 }; /* of a profile that names every op, as every written one does */

static bool rewrite(sl_profile *profile, scratch_path *out_path)
{
    *out_path = scratch_join(fuzz_directory(), "again.json");
    fuzz_allow(WHOLE_BYTES);
    return fuzz_succeeds(sl_profile_save(profile, out_path->text, NULL)) &&
           fuzz_succeeds(sl_profile_load(out_path->text, profile));
}

static void keep_disk(const char *path, const sl_profile *from)
{
    sl_profile profile = {.host = ""};
    memcpy(profile.host, from->host, sizeof profile.host);
    sl_profile_keep_disk(&profile, path);
    FUZZ_NEED(strcmp(profile.disk, from->disk) == 0 || fuzz_refuses_memory);
}

/* Whose it is may be anything; asking must not fail otherwise. */
static void ask_for(const char *path, sl_device_kind device)
{
    sl_machine machine;
    char note[SL_PROFILE_NOTE_BYTES];
    const sl_profile_subject subject = {.device = device, .worker_count = 2};
    if (fuzz_accepts(sl_profile_find_machine(path, &subject, &machine, note)))
        FUZZ_NEED(memchr(note, '\0', sizeof note) != NULL);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_profile profile, second;
    scratch_path path = fuzz_write("machine.json", data, bytes), again;
    if (!fuzz_accepts(sl_profile_load(path.text, &profile)))
        return;
    check_machine(&profile.machine);
    keep_disk(path.text, &profile);
    ask_for(path.text, SL_DEVICE_CPU);
    ask_for(path.text, SL_DEVICE_CUDA);
    if (!rewrite(&profile, &again))
        return;
    memcpy(&second, &profile, sizeof second);
    if (rewrite(&profile, &again))
        FUZZ_NEED(memcmp(&second, &profile, sizeof second) == 0);
}
