/* How much of memory's width each instruction takes: sectors of global memory, wavefronts of shared
 * memory (ptx_traffic states the rules). */
#ifndef PTX_TRAFFIC_H
#define PTX_TRAFFIC_H

#include "shadow.h"
#include "stretch.h"

/* Adds one access, cut into its stretches. */
void ptx_traffic_add(ptx_traffic *traffic, const ptx_access *access, const ptx_stretch *stretch,
                     uint32_t stretch_count);

#endif
