/* The machine profile: what `sluice bench` measured, as a file that is found again by itself.
 *
 * Knows the file and whether it belongs to this machine; knows nothing of how rates are measured.
 * A profile belongs to a device, a processor and a build's kernels: with another of these its rates
 * say nothing. It was measured with a number of compute workers; for another number, and for ranks
 * that share the machine, its rates are scaled, and its name says so.
 *
 * It lies at $XDG_CONFIG_HOME/sluice/machine.json, or under ~/.config, that of GPUs beside it as
 * machine-cuda.json. One of N workers that are not all cores lies beside it as machine-N.json, and
 * machine-cuda-N.json. A file is replaced in one step.
 */
#ifndef SL_SESSION_MACHINE_PROFILE_H
#define SL_SESSION_MACHINE_PROFILE_H

#include <jansson.h>

#include "base/status.h"
#include "sluice/chunk.h"
#include "sluice/device.h"

enum { SL_PROFILE_TEXT_BYTES = 128, SL_PROFILE_NOTE_BYTES = 512 };

/* Whose rates are meant. */
typedef struct sl_profile_subject {
    sl_device_kind device;
    uint32_t worker_count; /* compute workers: of the cpu device, or of the lane beside a GPU */
    const sl_device_info *info; /* of a GPU; NULL: of the cpu, or of a GPU that is not here */
    uint32_t rank_count;        /* ranks that compute beside each other on the machine; 0: one */
} sl_profile_subject;

typedef struct sl_profile {
    sl_device_kind device;
    char gpu[SL_PROFILE_TEXT_BYTES];     /* name, architecture, driver; "" on the cpu device */
    char host[SL_PROFILE_TEXT_BYTES];    /* name of the machine */
    char cpu[SL_PROFILE_TEXT_BYTES];     /* model of its processor */
    char kernels[SL_PROFILE_TEXT_BYTES]; /* what sl_kernel_table.description says */
    char version[SL_PROFILE_TEXT_BYTES]; /* of the sluice that measured */
    char date[SL_PROFILE_TEXT_BYTES];    /* ISO 8601, UTC */
    char disk[SL_PROFILE_TEXT_BYTES];    /* the directories measured; "": the disk is a guess */
    uint32_t core_count;                 /* that the process could use */
    uint32_t thread_count;               /* compute workers that were measured */
    bool is_quick;                       /* few rounds of few shapes */
    sl_machine machine;
} sl_profile;

/* Writes where the profile of a device and a number of compute workers belongs (0: of all cores
 * that this process may use); release with free(). SL_ERROR_MISSING: neither XDG_CONFIG_HOME nor
 * HOME is an absolute path. */
sl_status sl_profile_find_path(sl_device_kind device, uint32_t worker_count, char **out_path);

/* Fills in who this machine is, and a guess of its rates. */
void sl_profile_init(sl_profile *profile, const sl_profile_subject *subject);

/* Writes a file in one step, making its directory where it is missing. `report` (borrowed, or NULL)
 * is kept in it under "report" for people; it is not read back. */
sl_status sl_profile_save(const sl_profile *profile, const char *path, const json_t *report);

/* Takes the disk's rates over from the profile at `path`, if `profile` has none and that one is
 * sound and of the same machine; else changes nothing. */
void sl_profile_keep_disk(sl_profile *profile, const char *path);

/* Reads a file strictly. Ops that it does not name keep the guess of sl_machine_default, or of
 * sl_machine_default_gpu; one without "device" is of the cpu.
 * SL_ERROR_MISSING, SL_ERROR_DATA (names the key), SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_profile_load(const char *path, sl_profile *out_profile);

/* SL_ERROR_DATA says what keeps a profile from describing this machine: another kind of device,
 * another GPU or processor, other kernels, another number of workers. */
sl_status sl_profile_check(const sl_profile *profile, const sl_profile_subject *subject);

/* Writes the machine that plans of this process are made for. `path` (--machine) NULL: the file of
 * this number of workers, else that of all cores, scaled; where neither is sound and of this
 * machine, a guess. A file given by name must be sound and of the same kind of device, or its
 * failure is returned; one of another machine is taken as it is, for that may be the question.
 * out_note (SL_PROFILE_NOTE_BYTES) is "", or why a guess or a foreign machine is used; that no
 * profile exists is no note. */
sl_status sl_profile_find_machine(const char *path, const sl_profile_subject *subject,
                                  sl_machine *out_machine, char *out_note);

#endif
