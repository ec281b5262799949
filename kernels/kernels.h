/* Kernels by device kind: a table with a row for every op of program/op_list.h. INPUT and the
 * collectives have no kernel: the engine runs them. The cpu alone runs custom ops.
 *
 * Contract of every kernel: it computes what op_list.h says, from call->operand in that order; it
 * allocates nothing, calls nothing that does, and touches only its operands and its workspace; its
 * result depends on shapes and inputs alone, not on addresses (256-byte aligned), workspace
 * content, or the number of workers. The updates of rules, BLOCK_NORM, NORM_FINISH, ROUND,
 * DEQUANTIZE, ADD and DROPOUT give the same bits in every table. It returns SL_ERROR_INTERNAL for a
 * shape that it does not cover.
 */
#ifndef SL_KERNELS_KERNELS_H
#define SL_KERNELS_KERNELS_H

#include "base/queue.h"
#include "base/status.h"
#include "base/workers.h"
#include "device/device.h"
#include "program/op_list.h"
#include "ranks.h"

/* State of the kernels of one open device: handles of libraries, the algorithm of each product. */
typedef struct sl_kernel_library sl_kernel_library;

typedef struct sl_kernel_call {
    const sl_op_attrs *attrs;
    void *operand[SL_OPERAND_MAX]; /* NULL where absent */
    void *workspace;               /* 256-byte aligned, as long as the op's row says */
    union {
        const uint8_t *block_flags; /* updates: the rate of each block of the whole group, a byte;
                                       BLOCK_NORM: blocks that count, NULL: all */
        const struct sl_custom_op *custom; /* CUSTOM, CUSTOM_BACKWARD: of sluice/custom.h */
    };
    const uint64_t *block_keys; /* updates that round states stochastically: of each block of the
                                   whole group, the key by which it draws */
    const sl_padding *padding;  /* CLEAR_PADDING: of the chunk, in host memory */
    uint64_t padding_count;
    const sl_rate *rates; /* updates: the table of block_flags, in host memory; NULL: of the two
                             rates that each model has */
    uint32_t rate_count;
    sl_workers *workers;        /* cpu only */
    void *stream;               /* cuda only: the cudaStream_t to launch into */
    sl_kernel_library *library; /* cuda only */
    sl_step_scalars scalars;
    uint32_t micro_batch; /* of the step */
} sl_kernel_call;

/* Computes; if call->stream is set, queues the computation. */
typedef sl_status (*sl_kernel)(const sl_kernel_call *call);

/* How one kind of device computes one op. */
typedef struct sl_kernel_row {
    sl_kernel run; /* NULL: not computed */
    /* Workspace bytes if `worker_count` workers run the op; NULL: always 0. */
    uint64_t (*workspace_bytes)(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t worker_count);
} sl_kernel_row;

/* The machine code of kernels that a driver has loaded; architectures as 90 for sm_90. */
typedef struct sl_kernel_image {
    uint32_t device; /* what the GPU is */
    uint32_t code;   /* for what the loaded code is */
    bool is_built;   /* the build compiled it; else the driver made it, from text in this program */
} sl_kernel_image;

/* The kernels of a device kind: cpu/table.c and cuda/table.c. */
typedef struct sl_kernel_table {
    sl_kernel_row row[SL_OP_COUNT];
    sl_kernel ranks[SL_RANK_KERNEL_COUNT]; /* of kernels/ranks.h; the cpu's table has no SUM */
    /* Opens the kernels' state on an open device (its index); `options` NULL: the defaults.
     * *out_library may become NULL. */
    sl_status (*open)(int device_index, const sl_cuda_options *options,
                      sl_kernel_library **out_library);
    void (*close)(sl_kernel_library *library); /* NULL is fine */
    /* Chooses and loads what one op's shapes need. Called once for each distinct op before the
     * first step, while no stream of the device has work. May allocate, so that the op's kernel
     * does not. Uses the attrs of `call`; if `call` has a workspace it also has operands and a
     * stream, on which libraries are launched once so that they load: operand contents do not
     * matter before, and are undefined afterwards. Returns when all is done. */
    sl_status (*prepare)(sl_kernel_library *library, sl_op_kind kind, const sl_kernel_call *call);
    /* Loads all kernels of `ranks`, for every type and width, on the current device; before the
     * first step, as above. NULL: nothing to load. */
    sl_status (*load_ranks)(void);
    /* Writes which code the driver has loaded on the current device. NULL: nothing is loaded. */
    sl_status (*image)(sl_kernel_image *out_image);
    /* The algorithm that prepare has chosen for a product, as text: number `index`; NULL from the
     * number of products on. */
    const char *(*algorithm)(const sl_kernel_library *library, uint64_t index);
    /* Runs `count` passes of a loop of independent multiply-adds from registers on the calling
     * thread, by the instruction that computes products of `type`; returns their FLOPs. NULL: the
     * device has no such loop. */
    double (*multiply_adds)(sl_type type, uint64_t count);
    const char *(*description)(void); /* of the instruction set, or of the libraries */
    const char *(*lack)(void);        /* a missing library and its cost; NULL: none is missing */
} sl_kernel_table;

const sl_kernel_table *sl_kernels_cpu(void);
const sl_kernel_table *sl_kernels_cuda(void); /* NULL in a build without CUDA */

/* The table of a device kind; NULL if this build has none. */
const sl_kernel_table *sl_kernels_of(sl_device_kind kind);

/* Writes the kernel of an op. SL_ERROR_INTERNAL: the table has none. */
sl_status sl_kernels_find(const sl_kernel_table *table, sl_op_kind kind, sl_kernel *out_kernel);

/* Workspace bytes of an op if `worker_count` workers run it. */
uint64_t sl_kernels_workspace_bytes(const sl_kernel_table *table, sl_op_kind kind,
                                    const sl_op_attrs *attrs, uint32_t worker_count);

/* Writes the algorithms that `library` has chosen, each with `before` in front of it and `behind`
 * behind it; the caller frees. "" where no library computes products. */
sl_status sl_kernels_list_algorithms(const sl_kernel_table *table, const sl_kernel_library *library,
                                     const char *before, const char *behind, char **out_text);

#endif
