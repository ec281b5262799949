/* A small training by the engine, once on the device alone, once with its states on the host and
 * once with them on disk: the same bits, or something on the way is wrong. Private to the room. */
#ifndef SL_SELFTEST_PLACEMENTS_H
#define SL_SELFTEST_PLACEMENTS_H

#include "lockstep.h"
#include "sluice/device.h"

/* `disk_directory` NULL: without the disk. */
sl_status sl_placements_prove(sl_device_kind kind, int index, const char *disk_directory,
                              sl_fault *out_fault);

#endif
