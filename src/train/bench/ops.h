/* The ops of GPT-2 training steps, one by one: which there are, and how long each takes.
 *
 * The list is gathered from real steps (the model's own forward program and what is derived from
 * it), so it has the shapes that training has and no kind can be forgotten. Ops that differ only in
 * where they start count as one; chunks are cut to a size that says the same.
 */
#ifndef SL_TRAIN_OPS_H
#define SL_TRAIN_OPS_H

#include "base/workers.h"
#include "fit.h"
#include "memory.h"
#include "spread.h"

enum { SL_OPS_ROUND_MAX = 15 };

typedef struct sl_ops_case {
    sl_op_kind kind;
    sl_op_attrs attrs;
    uint32_t calls; /* in one sample */
    double samples[SL_OPS_ROUND_MAX];
    sl_spread seconds; /* of one op */
} sl_ops_case;

typedef struct sl_ops {
    sl_ops_case *cases;
    uint32_t count, capacity;
    void *workspace;
    uint64_t workspace_bytes;
    uint8_t *block_flags;
} sl_ops;

/* Gathers the ops of every type, of fewer and smaller steps if `is_quick`. */
sl_status sl_ops_open(bool is_quick, uint32_t worker_count, sl_ops *out_ops);

/* A zeroed one is fine. */
void sl_ops_close(sl_ops *ops);

/* Runs a case until it is warm and decides how many calls make a sample. */
sl_status sl_ops_warm_up(sl_ops *ops, sl_ops_case *one, sl_memory *memory, sl_workers *workers);

/* Takes sample `round` of a case. */
sl_status sl_ops_sample(sl_ops *ops, sl_ops_case *one, uint32_t round, sl_memory *memory,
                        sl_workers *workers);

/* Sums up `round_count` samples of every case. */
void sl_ops_finish(sl_ops *ops, uint32_t round_count);

/* Writes the rates that fit the cases into `machine`; kinds without a case get those of a kind that
 * works alike, or keep theirs. `op_seconds` is what the machine counts for every op. */
sl_status sl_ops_fit(const sl_ops *ops, sl_machine *machine);

#endif
