/* From sums of commands and counters of the engine to what is told: adds up, sorts and compares
 * with the plan. Reads the arenas and the kernel's accounts; runs nothing.
 */
#ifndef SL_MEASURE_ACCOUNTS_H
#define SL_MEASURE_ACCOUNTS_H

#include "cores.h"
#include "measured.h"
#include "record.h"
#include "train/trainer.h"

typedef struct sl_accounts_source {
    const sl_trainer *trainer; /* whose session ran the steps; its lanes are idle */
    const sl_record *record;
    const sl_engine_statistics *statistics;   /* of the measured steps */
    uint32_t step_count;                      /* that were measured */
    sl_cores cores;                           /* while they were */
    uint64_t heap_bytes;                      /* for sl_resident_read */
    uint64_t sent_bytes[SL_COMM_GROUP_COUNT]; /* to other ranks, in the measured steps */
} sl_accounts_source;

/* Fills in all of it but warm_up_count and was_stopped. SL_ERROR_SYSTEM. */
sl_status sl_accounts_fill(const sl_accounts_source *source, sl_measured *out_measured);

/* Fills in bound_by and to_be_faster from the rest (verdict.c). */
void sl_verdict_write(const sl_blueprint *blueprint, const sl_account *account,
                      sl_measured *measured);

#endif
