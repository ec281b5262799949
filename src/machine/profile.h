/* The machine profile: what `sluice bench` measured, as a file that is found again by itself.
 *
 * Knows the file and whether it belongs to this machine; knows nothing of how rates are measured.
 * A profile belongs to a device, a processor and a build's kernels: its rates mean nothing for
 * others. It was measured with a number of compute workers; for another number of workers, and for
 * ranks that share the machine, its rates are scaled (sl_machine_scale), and sl_machine_basis says
 * that they were.
 *
 * The file of the cpu is $XDG_CONFIG_HOME/sluice/machine.json, or the same below ~/.config; that of
 * a GPU is machine-cuda.json beside it. A profile of N workers, where N is not the number of all
 * cores, is machine-N.json or machine-cuda-N.json. A file is replaced in one step.
 */
#ifndef SL_MACHINE_PROFILE_H
#define SL_MACHINE_PROFILE_H

#include <jansson.h>

#include "base/status.h"
#include "chunk/chunk.h"
#include "sluice/device.h"

enum { SL_PROFILE_TEXT_BYTES = 128, SL_PROFILE_NOTE_BYTES = 512 };

/* Whose rates are meant. */
typedef struct sl_profile_subject {
    sl_device_kind device;
    uint32_t worker_count; /* compute workers: of the cpu device, or of the lane beside a GPU */
    const sl_device_info *info; /* of a GPU; NULL: of the cpu, or of a GPU that is not here */
    uint32_t rank_count;        /* ranks that share the machine; 0: one */
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

/* Writes the default path of the profile of a device with a number of compute workers (0: all cores
 * that this process may use); release with free(). SL_ERROR_MISSING: neither XDG_CONFIG_HOME nor
 * HOME is an absolute path. */
sl_status sl_profile_find_path(sl_device_kind device, uint32_t worker_count, char **out_path);

/* Fills in who this machine is, and a guess of its rates. */
void sl_profile_init(sl_profile *profile, const sl_profile_subject *subject);

/* Whether a profile may be put at a path that a user gives by --output, before a minute goes into
 * measuring; makes its directory. SL_ERROR_USAGE: what is there is no profile, so it is not
 * replaced; SL_ERROR_IO. */
sl_status sl_profile_check_output(const char *path);

/* Writes a file in one step, making its directory where it is missing. `report` (borrowed, or NULL)
 * is kept in it under "report" for people; it is not read back. */
sl_status sl_profile_save(const sl_profile *profile, const char *path, const json_t *report);

/* The same with any text. */
sl_status sl_profile_save_text(const char *path, const char *text);

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

/* Writes the machine that plans of this process are made for. If `path` (--machine) is NULL, that
 * is the default file of this number of workers, else the default file of all cores, scaled; if
 * neither is sound and of this machine, a guess (SL_ERROR_SYSTEM: memory or descriptors are too few
 * to tell). A file at `path` must be sound and of the same
 * kind of device, or the failure is returned; a profile of another machine is used unscaled,
 * because the user may ask about that machine. The file may also be a description of a GPU and its
 * node (cluster_file.h): then the machine is one rank of the node, with its share of
 * the cores and without exchanges. out_note (SL_PROFILE_NOTE_BYTES) says why a guess or another
 * machine is used; it is "" if no profile exists, or there is nothing to say. */
sl_status sl_profile_find_machine(const char *path, const sl_profile_subject *subject,
                                  sl_machine *out_machine, char *out_note);

#endif
