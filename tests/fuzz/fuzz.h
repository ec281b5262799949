/* What the fuzz targets have in common. A target, fuzz_*.c, gives one input to one reader; fuzz.c
 * holds every reader to this, for any input:
 *
 *   - a failure says why, without a byte that a terminal obeys
 *   - what is alive of the heap at once stays below FUZZ_FIXED_BYTES + FUZZ_FACTOR * bytes of input
 *   - what a reader accepts is written back where there is a writer, and read again equal
 *
 * A broken rule aborts. The same targets are linked with libFuzzer, and with replay.c, which gives
 * them the kept inputs of corpus/.
 */
#ifndef SL_TESTS_FUZZ_FUZZ_H
#define SL_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "scratch_dir.h"

/* jansson makes some 80 bytes of each of the worst, "{},"; with an allocator's rounding 128. */
enum { FUZZ_FIXED_BYTES = 256 << 10, FUZZ_FACTOR = 128 };

/* The target: one input. Files are made by fuzz_write alone, which takes nothing from the heap. */
void fuzz_input(const uint8_t *data, size_t bytes);

/* The directory of this process for files. */
const char *fuzz_directory(void);

/* Writes a file into it, in the place of an old one, and returns its path. */
scratch_path fuzz_write(const char *name, const void *data, size_t bytes);

/* Lets a reader take as much memory as for so many bytes of input more. */
void fuzz_allow(uint64_t bytes);

/* True if a reader accepted an input; a refusal is held to the rules above. */
bool fuzz_accepts(sl_status status);

/* As fuzz_accepts of a call that has to succeed, but for memory that replay.c refused. */
bool fuzz_succeeds(sl_status status);

/* Aborts unless it holds. */
#define FUZZ_NEED(condition)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fuzz_fail(#condition, __FILE__, __LINE__);                                             \
    } while (0)

_Noreturn void fuzz_fail(const char *what, const char *file, int line);

/* What libFuzzer calls, and replay.c. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* True while a target runs; replay.c refuses memory only then, and says that it does. */
extern bool fuzz_is_running, fuzz_refuses_memory;

#endif
