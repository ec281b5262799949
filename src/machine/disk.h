/* The drives of the disk tier: how much is free in their directories before anything is made there,
 * and how fast a run wears them (flash endures so many bytes written). */
#ifndef SL_MACHINE_DISK_H
#define SL_MACHINE_DISK_H

#include <stdint.h>

#include "base/status.h"

/* Bytes that a disk tier over these directories can take: equal parts in each, and what several of
 * them have on one file system is shared. SL_ERROR_MISSING, SL_ERROR_IO: names the directory. */
sl_status sl_disk_free_bytes(const char *const *directories, uint32_t directory_count,
                             uint64_t *out_bytes);

typedef struct sl_wear {
    double step_bytes; /* written a step */
    double day_bytes;  /* in a day of such steps */
    double years;      /* until `endurance` bytes are written; INFINITY: not known, or never */
} sl_wear;

/* `endurance_bytes` 0: not known. */
sl_wear sl_wear_project(double step_bytes, double step_seconds, uint64_t endurance_bytes);

#endif
