/* What instructions compute: pure functions of 32 lanes, one row for each variant that occurs.
 *
 * Not here: what moves (mov in all its forms, ld, st, cvta), what waits or branches, atomics. Core
 * (run.c) does those, decides which lanes take part and writes results only to them. Math may have
 * to know which lanes take part only where an instruction crosses lanes (shfl, vote, mma).
 *
 * The decoder looks a row up by the instruction's whole name as the text has it ("fma.rn.f32",
 * "setp.lt.and.s32", "cvt.rn.bf16x2.f32", "shfl.sync.bfly.b32"). No row: a fault of the decoder
 * that names the instruction.
 *
 * Operands are lanes, a letter each in the order of the text, the elements of a vector operand {…}
 * one after another:
 *
 *   p  uint32_t: a predicate, a bit a lane          w  uint32_t[32]: 32 bits (also f32, b16x2)
 *   h  uint32_t[32]: 16 bits, the upper half zero   d  uint64_t[32]: 64 bits (also f64)
 *
 *   add.s32              w <- ww        setp.lt.s32         p <- ww
 *   selp.b32             w <- wwp       setp.lt.and.s32     p <- wwp
 *   mul.wide.s32         d <- ww        cvt.u32.u16         w <- h
 *   shfl.sync.bfly.b32   wp <- www      vote.sync.ballot.b32  w <- p
 *   mma.…m16n8k16…       wwww <- wwwwwwwwww
 *
 * Literals are lanes like any other source. A row has all results that the instruction can have:
 * one that the text leaves out (the predicate of shfl) or names `_` goes to scratch. The mask of
 * members of shfl and vote, their last operand, is core's and not among the sources.
 */
#ifndef PTX_ARITHMETIC_H
#define PTX_ARITHMETIC_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PTX_RESULTS_MAX = 4, PTX_SOURCES_MAX = 10 };

/* The same for a whole launch. */
typedef struct ptx_arithmetic_mode {
    /* Draws where in its documented error an approximate result lies; 0: the nearest to the exact
     * one. A result is a pure function of seed, instruction and sources, as on any one GPU. */
    uint64_t seed;
    bool truncates_mma; /* sums of mma keep fewer bits, as documented there */
} ptx_arithmetic_mode;

/* Results overlap no source and no other result; all lanes are 64-byte aligned. */
typedef struct ptx_arithmetic_call {
    void *to[PTX_RESULTS_MAX];
    const void *from[PTX_SOURCES_MAX];
    uint32_t lanes; /* which take part */
    const ptx_arithmetic_mode *mode;
} ptx_arithmetic_call;

/* Computes all 32 lanes, those too that take no part, whose sources may be anything (a division by
 * zero there must not trap). Returns the lanes whose result the ISA leaves undefined (a shuffle
 * from a lane that takes no part, an integer division by zero): a fault where such a lane takes
 * part. */
typedef uint32_t (*ptx_arithmetic_function)(const ptx_arithmetic_call *call);

typedef struct ptx_arithmetic_row {
    const char *name, *results, *sources; /* "fma.rn.f32", "w", "www" */
    ptx_arithmetic_function run;
} ptx_arithmetic_row;

/* The row of that name; NULL: there is none. Quick enough for each instruction of each module. */
const ptx_arithmetic_row *ptx_arithmetic_find(const char *name);

/* ldmatrix.sync.aligned.m8n8.x{count}[.trans].shared.b16: rows[8 i + r] is row r of matrix i, 16
 * bytes that core has read; to[i] gets lanes of matrix i. */
void ptx_arithmetic_load_matrices(uint32_t *const *to, const uint8_t (*rows)[16], uint32_t count,
                                  bool transposes);

#ifdef __cplusplus
}
#endif
#endif
