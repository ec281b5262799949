/* The memory that measured ops read and write: random numbers, never zeros, taken round and round.
 *
 * Weights, their gradients and chunks come from rings larger than a cache. Activations come from a
 * ring as small as what passes between two neighbouring ops of a step: a step finds them in the
 * outer cache where there is one, and a prediction of a step must too. On a GPU, whose ops are
 * larger, such a ring is as large as its largest operands ask, and smaller operands go round in a
 * part of it.
 *
 * The numbers are 16-bit patterns that are ordinary numbers as bf16, as fp16 and, in pairs, as
 * fp32. What is written is kept apart by type, for a number of one type may be a denormal, and
 * slow, in another.
 */
#ifndef SL_BENCH_MEMORY_H
#define SL_BENCH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "program/op_list.h"
#include "timed_device.h"

typedef struct sl_memory_ring {
    uint8_t *base;
    uint64_t bytes, next;
    uint64_t part_bytes; /* the part for operands that are small enough; `bytes`: all of it */
} sl_memory_ring;

typedef struct sl_memory {
    sl_memory_ring source[2];                /* read only: warm, cold */
    sl_memory_ring target[2][SL_TYPE_COUNT]; /* by type of elements: warm, cold */
    sl_timed_device *device;
    void *mapping;
    uint64_t mapping_bytes;
} sl_memory;

typedef struct sl_memory_request {
    uint64_t bytes;
    bool is_cold;
    bool is_written;
    sl_type type;
} sl_memory_request;

/* The largest operand of each ring; 0: nothing takes from the ring. */
typedef struct sl_memory_need {
    uint64_t source[2], target[2][SL_TYPE_COUNT]; /* bytes, as the rings of sl_memory */
} sl_memory_need;

/* Notes one more operand. */
void sl_memory_note(sl_memory_need *need, sl_memory_request request);

/* Takes device memory of `device`, borrowed until the close, and fills it; `is_quick` takes about
 * an eighth, a GPU with little free memory less. SL_ERROR_SYSTEM. */
sl_status sl_memory_open(sl_timed_device *device, bool is_quick, sl_memory *out_memory);

/* The same with rings that hold the operands of `need`, however large: rings for small ones are as
 * large as above. */
sl_status sl_memory_open_for(sl_timed_device *device, const sl_memory_need *need,
                             sl_memory *out_memory);

/* A zeroed one is fine. */
void sl_memory_close(sl_memory *memory);

/* True if a ring has room for such operands. */
bool sl_memory_fits(sl_memory *memory, sl_memory_request request);

/* The next operand of a ring, 256-byte aligned and staggered against the one before. Operands of
 * one op never overlap as long as they, and the largest of them once more, are together smaller
 * than the ring. SL_ERROR_INTERNAL: one that is larger than a quarter of it. */
sl_status sl_memory_take(sl_memory *memory, sl_memory_request request, void **out_address);

/* Ordinary numbers of either sign into host memory. */
void sl_memory_fill(void *address, uint64_t bytes);

#endif
