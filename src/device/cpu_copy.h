/* Copies of the cpu device between its two tiers. */
#ifndef SL_DEVICE_CPU_COPY_H
#define SL_DEVICE_CPU_COPY_H

#include <stdint.h>

/* As memcpy. Large copies pass by the caches, four pages side by side. */
void sl_cpu_copy(void *to, const void *from, uint64_t bytes);

#endif
