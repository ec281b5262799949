/* One op on a device: operands with guards around them go there, the kernel runs, and all comes
 * back. Private to the room. */
#ifndef SL_SELFTEST_OP_ON_DEVICE_H
#define SL_SELFTEST_OP_ON_DEVICE_H

#include "bench/timed_device.h"
#include "program/program.h"

/* A room on the device, and two images of it in host memory: what goes there, and what comes back.
 * The images belong to a caller between two runs. */
typedef struct sl_op_room {
    sl_timed_device *device; /* borrowed */
    unsigned char *there, *sent, *came;
    uint64_t bytes;  /* of each */
    bool has_copies; /* behind `there`, `sent` and `came` is as much again for copies alone */
} sl_op_room;

/* Where an operand lies in the room. */
typedef struct sl_op_stretch {
    uint64_t offset, bytes; /* bytes 0: absent */
} sl_op_stretch;

/* Operands, then the block flags of an update, then the workspace. */
enum { SL_OP_FLAGS = SL_OPERAND_MAX, SL_OP_WORKSPACE, SL_OP_STRETCHES };

sl_status sl_op_room_open(sl_timed_device *device, uint64_t bytes, bool has_copies,
                          sl_op_room *out_room);
void sl_op_room_close(sl_op_room *room);

/* Gives each stretch, whose bytes are set, its offset, and fills `sent` with guards and poison; the
 * caller then writes what operands hold. SL_ERROR_INTERNAL: the room is too small. */
sl_status sl_op_room_lay_out(sl_op_room *room, sl_op_stretch stretches[SL_OP_STRETCHES]);

/* Runs `call`, whose operands are set from the stretches, and brings everything back. */
sl_status sl_op_room_run(sl_op_room *room, sl_op_kind kind, const sl_kernel_call *call,
                         const sl_op_stretch stretches[SL_OP_STRETCHES]);

/* The same while copies run both ways in another stream; the room has copies. */
sl_status sl_op_room_run_beside_copies(sl_op_room *room, sl_op_kind kind,
                                       const sl_kernel_call *call,
                                       const sl_op_stretch stretches[SL_OP_STRETCHES]);

/* The first byte beside all stretches that did not come back as it was sent; UINT64_MAX: none. */
uint64_t sl_op_room_find_overrun(const sl_op_room *room,
                                 const sl_op_stretch stretches[SL_OP_STRETCHES]);

#endif
