/* The program fio, where it is installed, on a file that is open here: another's word on a disk. */
#ifndef SL_BENCH_FIO_H
#define SL_BENCH_FIO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_fio_job {
    int fd;         /* of the file; it may have no name. All of it was written before */
    uint64_t bytes; /* of it that are read or written, again and again */
    bool is_write;
    uint32_t block_bytes, depth, milliseconds;
} sl_fio_job;

/* Writes bytes a second. SL_ERROR_MISSING: there is no fio; SL_ERROR_SYSTEM: it did not run, or
 * said what is not understood; the message says why. */
sl_status sl_fio_run(const sl_fio_job *job, double *out_rate);

#endif
