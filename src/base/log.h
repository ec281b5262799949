/* Writing notes and warnings; include/sluice/log.h says who receives them. */
#ifndef SL_BASE_LOG_H
#define SL_BASE_LOG_H

#include "sluice/log.h"

void sl_log_write(sl_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
