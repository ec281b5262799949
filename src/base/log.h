/* Making remarks; include/sluice/log.h says where they go. */
#ifndef SL_BASE_LOG_H
#define SL_BASE_LOG_H

#include "sluice/log.h"

void sl_log_write(sl_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
