/* The self-test of what GPUs exchange over NCCL: before ranks train, every exchange of the engine
 * runs once on known numbers, and the ranks compare every bit of the result with what the hosts
 * make of the same numbers. Both sums are added in the order of ranks, so no difference is allowed.
 *
 * The first rank decides: by the record of machine/proof_record.h these GPUs are tested once with
 * each NCCL, driver, build and layout of ranks.
 */
#ifndef SL_SESSION_EXCHANGE_PROOF_H
#define SL_SESSION_EXCHANGE_PROOF_H

#include "ranks.h"

typedef struct sl_exchange_proof_args {
    uint32_t mode;           /* SL_CONFIG_SELF_TEST_... */
    bool is_quiet;           /* warnings alone */
    uint64_t small_elements; /* of the small exchanges; an odd number */
    uint64_t large_elements; /* of the large exchanges */
    bool is_exact; /* leaves out sums that round, in which one bit of a term can be lost */
} sl_exchange_proof_args;

sl_exchange_proof_args sl_exchange_proof_choose(const sl_config *config);

/* Tests the exchanges of ranks that are divided, where they are on GPUs; all ranks of the world
 * call it together, before the engine is opened. SL_ERROR_SYSTEM on all of them: an answer was
 * wrong; the message names the exchange, its size, ranks, GPUs and hosts. Others: as of nccl.h. Too
 * little memory is a warning. */
sl_status sl_exchange_proof_run(sl_ranks *ranks, const sl_exchange_proof_args *args);

#endif
