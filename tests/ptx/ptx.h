/* Runs the PTX that nvcc writes, on the processor: tests execute the kernels that ship, inline
 * assembly included. It knows PTX and nothing of sluice, and it measures no time.
 *
 *   text -> module.c -> instructions as words    \
 *   ... -> decode.c -> a kernel: a flat list of ops, each operand an offset in a warp's file
 *   ... -> launch.c -> blocks of warps, by a schedule -> run.c -> one op for 32 lanes
 *            arithmetic.h: what an instruction computes, as a pure function of 32 lanes
 *            ptx_watch:    what a watcher (shadow.h) is told of memory and of order
 *
 * A warp's file holds everything that an operand can name, 32 lanes of it: registers, literals and
 * special registers, in the form that arithmetic.h states; a predicate is one word, a bit a lane.
 *
 * Each thread has its own program counter. Lanes at the same instruction run together or apart, as
 * the schedule says; a correct program gives the same result under any schedule. What a program may
 * not do, and what this interpreter does not know, is a fault, which ends the launch and names the
 * instruction: nothing is skipped.
 *
 * Addresses: global memory is the process's own. The shared and the local window are parts of the
 * generic address space that no process has (ptx_space_base); param memory is the launch's copy of
 * the arguments. Core checks alignment, and bounds of its own memory: shared, local, param. Bounds
 * of global memory, what was initialised, and order are the watcher's.
 *
 * Modules are read only once decoded but for their counts, which are added under a lock; any number
 * of host threads may launch at once.
 */
#ifndef PTX_H
#define PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PTX_LANES = 32, PTX_FAULT_BYTES = 768 };

/* Why something was refused, whole: kernel, block, thread, line of the text, the instruction. */
typedef struct ptx_fault {
    char text[PTX_FAULT_BYTES];
} ptx_fault;

/* Fills a fault by printf's rules and returns false. */
bool ptx_fail(ptx_fault *fault, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- modules ---- */

typedef struct ptx_module ptx_module;
typedef struct ptx_kernel ptx_kernel;

/* Parses and decodes a whole text; it is copied. False: out_fault names the line. */
bool ptx_module_open(const char *text, uint64_t bytes, ptx_module **out, ptx_fault *out_fault);
void ptx_module_close(ptx_module *module);

uint32_t ptx_module_kernel_count(const ptx_module *module);
ptx_kernel *ptx_module_kernel_at(const ptx_module *module, uint32_t index);

/* The kernel of that (mangled) name; NULL: none. */
ptx_kernel *ptx_module_kernel(const ptx_module *module, const char *name);

/* A variable of the module in global or const space; NULL: none. */
void *ptx_module_variable(const ptx_module *module, const char *name, uint64_t *out_bytes);

enum { PTX_PARAMS_MAX = 16 };

/* What a launch has to know. Argument i is argument_bytes[i] at argument_offset[i] of
 * param_bytes. */
typedef struct ptx_kernel_facts {
    const char *name;
    uint32_t param_count, param_bytes;
    uint32_t argument_offset[PTX_PARAMS_MAX], argument_bytes[PTX_PARAMS_MAX];
    uint32_t static_shared_bytes, local_bytes; /* a block; a thread */
    uint32_t threads_max;                      /* .maxntid; 0: not given */
    uint32_t instruction_count;
} ptx_kernel_facts;

ptx_kernel_facts ptx_kernel_tell(const ptx_kernel *kernel);

/* ---- what is counted, of each static instruction over all launches so far ---- */

typedef struct ptx_instruction {
    const char *text;       /* as in the PTX, with its operands */
    uint32_t line;          /* of the PTX text, from 1 */
    uint64_t groups, lanes; /* groups of lanes that came to it together; lanes in all of them */
} ptx_instruction;

/* Instruction `index` < instruction_count. Lanes whose guard is false count: they came to it. */
ptx_instruction ptx_kernel_instruction(const ptx_kernel *kernel, uint32_t index);
void ptx_kernel_forget_counts(ptx_kernel *kernel);

/* ---- schedules ---- */

typedef enum ptx_order {
    PTX_TOGETHER, /* lanes that are behind run first, so that lanes meet again early */
    PTX_APART,    /* some lanes at a time, drawn by seed, until they have to wait for others */
} ptx_order;

typedef enum ptx_landing { PTX_LANDS_AT_ISSUE, PTX_LANDS_AT_WAIT } ptx_landing;

/* All zero: together, blocks and warps one after another in order, copies land at issue. */
typedef struct ptx_schedule {
    ptx_order lanes;
    /* When an asynchronous copy reads and writes. At its wait: the target has noise until then. */
    ptx_landing copies;
    /* 0 or 1: a block ends before the next begins. More: so many are under way at once; they are
     * drawn by seed, and after each stretch of instructions another warp of any of them runs. */
    uint32_t blocks_at_once;
    uint64_t seed; /* of all that is drawn, and of what is not initialised */
} ptx_schedule;

/* ---- what a watcher is told ---- */

typedef enum ptx_space {
    PTX_GENERIC,
    PTX_GLOBAL,
    PTX_SHARED,
    PTX_LOCAL,
    PTX_CONST,
    PTX_PARAM
} ptx_space;

/* The generic address of offset 0 of shared or local memory; 0 for the other spaces. */
static inline uint64_t ptx_space_base(ptx_space space)
{
    return space == PTX_SHARED  ? UINT64_C(0x4000000000000000)
           : space == PTX_LOCAL ? UINT64_C(0x5000000000000000)
                                : 0;
}

/* A warp of a block that is under way. `slot` < blocks_at_once (at least 1) tells the blocks under
 * way apart and is used again; `block` is the linear index in the grid, never used again. */
typedef struct ptx_place {
    uint64_t block;
    uint32_t slot, warp;
} ptx_place;

typedef enum ptx_access_kind {
    PTX_READ,
    PTX_READ_CONSTANT, /* ld.global.nc: what nobody writes during the launch */
    PTX_READ_MATRIX,   /* ldmatrix: what each lane points at is read by all lanes of the warp */
    PTX_WRITE,
    PTX_ATOMIC, /* relaxed: orders nothing */
} ptx_access_kind;

/* One instruction's access by a group of lanes. */
typedef struct ptx_access {
    ptx_place place;
    const ptx_kernel *kernel;
    uint32_t instruction; /* index in the kernel */
    ptx_space space;      /* PTX_GLOBAL, PTX_SHARED or PTX_LOCAL; generic addresses are resolved */
    ptx_access_kind kind;
    uint32_t lanes; /* which take part: at least one */
    uint32_t bytes; /* of each lane's access, all of its vector: 1, 2, 4, 8 or 16; aligned to it */
    /* [32], those of `lanes` are valid. Global: the address. Shared: the offset in the block's
     * memory. Local: the offset in the thread's. */
    const uint64_t *address;
} ptx_access;

/* One launch, as a watcher sees it when it begins. */
typedef struct ptx_launch_shape {
    const ptx_kernel *kernel;
    uint64_t block_count;
    uint32_t slot_count, warps_per_block, threads_per_block;
    uint32_t shared_bytes, local_bytes; /* a block; a thread */
} ptx_launch_shape;

/* The calls come in the order of execution, from the thread that called ptx_launch. `run` is what
 * launch_begin gave. Those that return bool refuse: they fill the fault with what is wrong, without
 * the place, which core puts before it, and return false; the launch ends. Any call may be NULL.
 *
 *   access      before the memory is touched, so that nothing wild is
 *   warp_join   the lanes waited for each other, and see what each wrote: bar.warp.sync alone; the
 *               ISA gives shuffles, votes and products of matrices no such order
 *   block_join  the threads waited for each other at a barrier: lanes[w] of each warp
 *   copy_begin  an asynchronous copy (cp.async) was issued: an agent of its own, begun by each
 *               lane, which reads `from` and writes `to` at any time up to its end. The lanes of
 *               `to` that `from` lacks write zeros. Tickets grow. `from` is
 *               NULL where no lane reads.
 *   copy_end    these lanes waited for their parts of that copy: once for each lane, never for one
 *               that ends without waiting
 */
typedef struct ptx_watch {
    void *watcher;
    bool (*launch_begin)(void *watcher, const ptx_launch_shape *shape, void **out_run,
                         ptx_fault *out_fault);
    bool (*block_begin)(void *run, const ptx_place *place, ptx_fault *out_fault); /* warp 0 */
    bool (*access)(void *run, const ptx_access *access, ptx_fault *out_fault);
    void (*warp_join)(void *run, const ptx_place *place, uint32_t lanes);
    void (*block_join)(void *run, const ptx_place *place, const uint32_t *lanes);
    bool (*copy_begin)(void *run, uint64_t ticket, const ptx_access *from, const ptx_access *to,
                       ptx_fault *out_fault);
    void (*copy_end)(void *run, const ptx_place *place, uint64_t ticket, uint32_t lanes);
    bool (*block_end)(void *run, const ptx_place *place, ptx_fault *out_fault);
    bool (*launch_end)(void *run, ptx_fault *out_fault); /* also after a fault; frees `run` */
} ptx_watch;

/* ---- launches ---- */

typedef struct ptx_launch_args {
    ptx_kernel *kernel;
    uint32_t grid[3], block[3]; /* x, y, z */
    uint32_t dynamic_shared_bytes;
    void *const *arguments; /* [param_count], as cudaLaunchKernel takes them */
    ptx_schedule schedule;
    uint64_t arithmetic_seed;    /* of approximate results; 0: the nearest (arithmetic.h) */
    bool truncates_mma;          /* sums of mma are cut to fewer bits (arithmetic.h) */
    const ptx_watch *watch;      /* NULL: nobody watches */
    uint64_t group_instructions; /* at most; more is a fault: a loop without end. 0: 2^40 */
} ptx_launch_args;

typedef struct ptx_launch_counts {
    uint64_t groups, lanes; /* instructions run: by groups of lanes; by lanes */
    uint64_t divergences;   /* branches that lanes of one group left both ways */
    uint64_t barriers;      /* of blocks */
} ptx_launch_counts;

/* Runs a whole grid and returns when it ended; out_counts may be NULL. False: a fault. */
bool ptx_launch(const ptx_launch_args *args, ptx_launch_counts *out_counts, ptx_fault *out_fault);

#ifdef __cplusplus
}
#endif
#endif
