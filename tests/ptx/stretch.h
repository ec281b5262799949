/* One instruction's addresses as few stretches of memory: most groups of lanes touch one piece,
 * lane after lane, or all the same bytes. What checks and counts walks stretches instead of lanes.
 */
#ifndef PTX_STRETCH_H
#define PTX_STRETCH_H

#include "ptx.h"

typedef struct ptx_stretch {
    uint64_t address;
    uint32_t bytes;
    uint32_t lane;   /* of the first byte; each further lane has the next lane_bytes */
    bool is_by_many; /* all bytes are read by several lanes: `lane` is one of them */
} ptx_stretch;

/* Cuts an access into at most PTX_LANES stretches; returns how many. Lanes that read the same bytes
 * one after another are one stretch; lanes that write them never are. */
uint32_t ptx_stretch_cut(const ptx_access *access, ptx_stretch *out);

#endif
