/* Who watches the launches of this program: the shadow (shadow.h), told of device memory by the
 * stand-in's runtime. SL_PTX_UNWATCHED: nobody does. */
#ifndef SL_PTX_STANDIN_WATCH_H
#define SL_PTX_STANDIN_WATCH_H

#include "shadow.h"

/* To be called before any device memory is taken. */
void standin_watch_open(void);

/* To be given to launches; NULL: nobody watches. */
const ptx_watch *standin_watch(void);

/* What an instruction did to memory so far, where SL_PTX_TRAFFIC is set; all zero elsewhere. */
ptx_traffic standin_watch_traffic(const ptx_kernel *kernel, uint32_t instruction);

/* After a launch, in its thread: what it touched of global memory must lie in what its op was given
 * (stream_order.h), by which the order between launches is judged. */
void standin_watch_tell_touched(void);

#endif
