/* Sums over ranks, timed between two ranks that are threads of this process: they exchange through
 * memory, as ranks of one machine do. */
#ifndef SL_BENCH_RANK_SUMS_H
#define SL_BENCH_RANK_SUMS_H

#include "comm/comm.h"
#include "samples.h"

enum { SL_RANK_SUMS_RANKS = 2, SL_RANK_SUMS_CASES = 6 };

typedef struct sl_rank_sums_case {
    sl_type type;
    uint64_t element_count;
    sl_samples seconds;      /* of one sum */
    sl_samples copy_seconds; /* of a plain copy of as many bytes by one thread, beside it */
} sl_rank_sums_case;

typedef struct sl_rank_sums {
    sl_comm *ends[SL_RANK_SUMS_RANKS];
    void *data[SL_RANK_SUMS_RANKS], *copy;
    sl_rank_sums_case cases[SL_RANK_SUMS_CASES];
    uint32_t count;
} sl_rank_sums;

/* `is_quick`: without the largest. Zeros are closed. */
sl_status sl_rank_sums_open(bool is_quick, sl_rank_sums *out_sums);
void sl_rank_sums_close(sl_rank_sums *sums);

/* One more sample of each case. */
sl_status sl_rank_sums_sample(sl_rank_sums *sums);

/* Sets the rates of all collectives; an op costs machine->op_seconds beside. */
void sl_rank_sums_fit(const sl_rank_sums *sums, sl_machine *machine);

#endif
