/* A cuBLASLt for tests, on the processor: the calls of include/cublasLt.h over plain loops. It
 * knows nothing of sluice but its promises of numbers.
 *
 * It is stricter than the library: an algorithm must be the one that the heuristic named for the
 * very same descriptors; pointers must be as aligned as the heuristic was told; C and D of
 * different layouts, an epilogue that would round twice, a scheme or a kind of number that would
 * change what is promised of results are refused. Each refusal is counted as a fault, with its
 * reason. Products run in their stream, later than the call, and leave rubbish in their workspace.
 */
#ifndef SL_STANDIN_CUBLASLT_CONTROL_H
#define SL_STANDIN_CUBLASLT_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Forgets faults, counts and everything set below; what is live then counts as a fault. */
void standin_blas_reset(void);

/* Whether the library can be loaded from now on (blas_standin.c); never with STANDIN_NO_BLAS in the
 * environment. */
void standin_blas_hide(bool is_hidden);
bool standin_blas_is_hidden(void);

/* Lets the call number `nth` from now (1: the next) of a function return `status`, not work. */
void standin_blas_fail_call(const char *name, uint64_t nth, int status);

/* The heuristic finds nothing, from now on, for matrices with an odd leading dimension. */
void standin_blas_refuse_odd(bool refuses);

/* The heuristic finds nothing, from now on, that passes a GELU. */
void standin_blas_refuse_gelu(bool refuses);

/* From now on the heuristic names at most `count` algorithms for a product, and no more than it is
 * asked for. `count` is 8 at most; without this call it is STANDIN_BLAS_OFFERS of the environment,
 * or
 * 1. Sums of algorithm i are larger by i 2^-18. */
void standin_blas_offer(uint32_t count);

/* What is wrong with algorithm `index` from now on. */
typedef enum standin_blas_fault {
    STANDIN_BLAS_SOUND,
    STANDIN_BLAS_REFUSES,      /* is not launched */
    STANDIN_BLAS_CHANGES_BITS, /* sums differ from launch to launch */
    STANDIN_BLAS_IS_OFF,       /* sums are a tenth too large */
    STANDIN_BLAS_TAKES_MORE,   /* wants more workspace than the preference allows */
    STANDIN_BLAS_ADDS_IN_PLACE /* adds its parts in C, in no fixed order */
} standin_blas_fault;
void standin_blas_plant(uint32_t index, standin_blas_fault fault);

/* From now on all algorithms but `index` take milliseconds longer; UINT32_MAX: none does. Without
 * this call `index` is STANDIN_BLAS_FASTEST of the environment. */
void standin_blas_prefer(uint32_t index);

/* Calls of one function since the last reset. */
uint64_t standin_blas_calls(const char *name);

/* Handles, descriptors, layouts and preferences that are open. */
uint64_t standin_blas_live(void);

/* Faults since the last reset; *out_first (may be NULL): the first one's text. */
uint64_t standin_blas_faults(const char **out_first);

#ifdef __cplusplus
}
#endif
#endif
