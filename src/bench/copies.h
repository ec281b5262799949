/* Copies between the host and a device, as the lanes h2d and d2h make them: each way alone, both at
 * once, within the device, and so small that only their fixed cost is left. On the cpu device they
 * are memcpy in a thread. */
#ifndef SL_BENCH_COPIES_H
#define SL_BENCH_COPIES_H

#include "memory.h"
#include "samples.h"

typedef enum sl_copies_kind {
    SL_COPIES_H2D,
    SL_COPIES_D2H,
    SL_COPIES_H2D_BOTH, /* while the other way runs */
    SL_COPIES_D2H_BOTH,
    SL_COPIES_WITHIN,
    SL_COPIES_H2D_SMALL,
    SL_COPIES_D2H_SMALL,
    SL_COPIES_COUNT
} sl_copies_kind;

typedef struct sl_copies_case {
    const char *name;
    uint64_t bytes; /* of one copy */
    sl_samples seconds;
} sl_copies_case;

typedef struct sl_copies {
    sl_timed_device *device;
    uint8_t *host_slots, *device_slots; /* as many of each, taken round and round */
    uint64_t mapped_bytes, slot_bytes;
    uint32_t next_slot;
    sl_copies_case cases[SL_COPIES_COUNT];
} sl_copies;

/* Takes memory on both sides of `device`, borrowed until the close. */
sl_status sl_copies_open(sl_timed_device *device, bool is_quick, sl_copies *out_copies);

/* A zeroed one is fine. */
void sl_copies_close(sl_copies *copies);

/* Takes one sample of every kind. */
sl_status sl_copies_sample(sl_copies *copies);

/* Writes the rates and fixed costs of the lanes h2d and d2h; `least_seconds` is what a copy costs
 * at least. */
void sl_copies_set_machine(const sl_copies *copies, double least_seconds, sl_machine *machine);

#endif
