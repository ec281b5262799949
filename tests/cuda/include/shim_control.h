/* What a test, and the stand-in's runtime, say in C to whatever runs kernels on the processor: the
 * shim (shim.h), or the interpreter of PTX (tests/ptx). */
#ifndef SL_TESTS_CUDA_SHIM_CONTROL_H
#define SL_TESTS_CUDA_SHIM_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sl_shim_order { SL_SHIM_IN_ORDER, SL_SHIM_REVERSED, SL_SHIM_SHUFFLED } sl_shim_order;

/* The order in which the threads of a block take turns, and blocks follow each other, in the grids
 * that run from now on; `seed` shuffles. */
void sl_shim_choose_order(sl_shim_order order, uint64_t seed);

/* Turns of threads since the process started. */
uint64_t sl_shim_turn_count(void);

/* Launches, since the process started, of kernels that nobody had loaded before. */
uint64_t sl_shim_unloaded_count(void);

/* From now on launches are checked and told to `note`, and not run: their operands may be addresses
 * that nobody follows. NULL: they run again. Of the shim alone. */
typedef void (*sl_shim_note)(void *user, const char *kernel);
void sl_shim_tell_launches(sl_shim_note note, void *user);

/* The architecture for which the loaded code was made, as 90 (standin_machine.image). */
int standin_image(void);

/* More than 48 KiB of dynamic shared memory have to be asked for, as on a GPU. */
void sl_shim_allow_shared(const void *kernel, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
