/* Two divisions and the length of a day. */
#include "wear.h"

#include <math.h>

static const double day_seconds = 86400, year_days = 365.25;

sl_wear sl_wear_project(double step_bytes, double step_seconds, uint64_t endurance_bytes)
{
    sl_wear wear = {.step_bytes = step_bytes, .years = INFINITY};
    if (step_seconds > 0)
        wear.day_bytes = step_bytes / step_seconds * day_seconds;
    if (endurance_bytes > 0 && wear.day_bytes > 0)
        wear.years = (double)endurance_bytes / wear.day_bytes / year_days;
    return wear;
}
