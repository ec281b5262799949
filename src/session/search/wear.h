/* How fast a run wears the drives of its disk tier: flash endures so many bytes written. */
#ifndef SL_SESSION_SEARCH_WEAR_H
#define SL_SESSION_SEARCH_WEAR_H

#include <stdint.h>

typedef struct sl_wear {
    double step_bytes; /* written a step */
    double day_bytes;  /* in a day of such steps */
    double years;      /* until `endurance` bytes are written; INFINITY: not known, or never */
} sl_wear;

/* `endurance_bytes` 0: not known. */
sl_wear sl_wear_project(double step_bytes, double step_seconds, uint64_t endurance_bytes);

#endif
