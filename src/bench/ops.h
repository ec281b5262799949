/* The ops of GPT-2 training steps, one by one: which there are, and how long each takes.
 *
 * The list is gathered from real steps (the model's own forward program and what is derived from
 * it), so it has the shapes that training has and no kind can be forgotten. Ops that differ only in
 * where they start count as one; chunks are cut to a size that says the same; what is too large for
 * the memory to measure in is left out.
 */
#ifndef SL_BENCH_OPS_H
#define SL_BENCH_OPS_H

#include "bench.h"
#include "memory.h"
#include "model/architecture.h"
#include "samples.h"

typedef enum sl_ops_list {
    SL_OPS_OF_STEPS, /* all of them */
    SL_OPS_ADAMW,    /* and the updates of other rules, of the host beside a GPU */
    SL_OPS_GIVEN,    /* the selection's own */
    SL_OPS_ROOFS     /* of a GPU: the largest square product of each type, and next to nothing */
} sl_ops_list;

/* Which ops: fewer and of smaller steps if `is_quick`, of one short step of `small_shape` alone if
 * that is given. */
typedef struct sl_ops_selection {
    sl_ops_list list;
    uint32_t figures; /* a set of 1 << sl_bench_figure, of which GEMM, ADAMW and OP have ops */
    bool is_quick;
    const sl_model_shape *small_shape;
    const struct sl_ops_case *given; /* SL_OPS_GIVEN: [given_count] */
    uint32_t given_count;
} sl_ops_selection;

typedef struct sl_ops_case {
    sl_op_kind kind;
    sl_op_attrs attrs;
    bool is_bare;       /* without bias, residual, gelu and the like */
    uint32_t calls;     /* in one sample */
    sl_samples seconds; /* of one op */
} sl_ops_case;

typedef struct sl_ops {
    sl_memory *memory;
    sl_timed_device *device;
    sl_ops_case *cases;
    uint32_t count, capacity;
    uint32_t figures;               /* of the selection */
    bool is_quick;                  /* of the selection */
    sl_kernel_call *calls;          /* of one sample */
    struct sl_ops_scratch *scratch; /* device memory: operands that are no plain numbers */
    uint64_t scratch_bytes;
} sl_ops;

/* The figure whose op this is. */
sl_bench_figure sl_ops_figure(sl_op_kind kind);

/* Notes the operands of a case, so that memory is opened that holds them (sl_memory_open_for). */
void sl_ops_note_memory(const sl_ops_case *one, sl_memory_need *need);

/* Bytes of the case's largest operand. */
uint64_t sl_ops_largest_operand(const sl_ops_case *one);

/* True for an op that writes, or adds to, the gradient of a parameter. */
bool sl_ops_makes_gradient(sl_op_kind kind);

/* Gathers the selected ops for every type. They run in `memory`, borrowed until the close. */
sl_status sl_ops_open(sl_memory *memory, const sl_ops_selection *selection, sl_ops *out_ops);

/* A zeroed one is fine. */
void sl_ops_close(sl_ops *ops);

/* Runs every case until it is warm and decides how many calls make a sample. */
sl_status sl_ops_warm_up(sl_ops *ops);

/* Takes one sample of every case. */
sl_status sl_ops_sample(sl_ops *ops);

/* Takes one sample of case `index`. */
sl_status sl_ops_sample_case(sl_ops *ops, uint32_t index);

/* Writes the rates that fit the cases into `machine`; kinds without a case get those of a kind that
 * works alike, or keep theirs. `op_seconds` is what the machine counts for every op. */
sl_status sl_ops_fit(const sl_ops *ops, sl_machine *machine);

/* The same for updates on the host lane; on the cpu device its rates are those of the compute lane.
 */
sl_status sl_ops_fit_host(const sl_ops *ops, sl_machine *machine);

#endif
