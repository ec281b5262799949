/* What `sluice doctor` finds: each thing in a line, whether it is as it could be, what it costs
 * where it is not, and what mends that. */
#ifndef SL_CLI_DOCTOR_FINDINGS_H
#define SL_CLI_DOCTOR_FINDINGS_H

#include "cli/command.h"

enum { SL_FINDING_MAX = 64, SL_FINDING_NAME_BYTES = 24, SL_FINDING_TEXT_BYTES = 640 };

typedef enum sl_finding_state {
    SL_FINDING_OK,
    SL_FINDING_DEGRADED, /* it works, and something is slower or not guarded */
    SL_FINDING_MISSING,  /* something cannot be done */
    SL_FINDING_STATE_COUNT
} sl_finding_state;

typedef struct sl_finding {
    char name[SL_FINDING_NAME_BYTES];
    sl_finding_state state;
    char value[SL_FINDING_TEXT_BYTES];
    char cost[SL_FINDING_TEXT_BYTES]; /* "" where the state is OK */
    char mend[SL_FINDING_TEXT_BYTES]; /* a command, or what else helps; "": nothing does */
} sl_finding;

typedef struct sl_findings {
    sl_finding items[SL_FINDING_MAX];
    uint32_t count;
} sl_findings;

/* Appends what was found, as OK; beyond SL_FINDING_MAX the last one is replaced. */
sl_finding *sl_findings_add(sl_findings *all, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Gives a finding its state and what that costs. */
void sl_finding_cost(sl_finding *one, sl_finding_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Says what mends it. */
void sl_finding_mend(sl_finding *one, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- the rooms of a machine, each in the file of its name ---- */

/* machine.c: processors, memory and what the system lets a process have of them. */
void sl_findings_add_machine(sl_findings *all);

/* storage.c: how the disk tier reaches disks, the drives there are, and --disk-dir. */
void sl_findings_add_storage(sl_findings *all, const sl_config_list *directories);

/* devices.c: what computes, and what was measured of it. */
void sl_findings_add_devices(sl_findings *all, uint32_t thread_count);

/* proof.c: what the self-test of each GPU found, or of the cpu device where there is none.
 * SL_ERROR_SYSTEM: a device gave a wrong answer, or could not be tested; the message says where. */
sl_status sl_findings_add_proofs(sl_findings *all, const sl_config_list *directories);

#endif
