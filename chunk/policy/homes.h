/* What makers of homes share: arrays, and offsets once every tier is chosen. */
#ifndef SL_CHUNK_POLICY_HOMES_H
#define SL_CHUNK_POLICY_HOMES_H

#include "chunk/chunk.h"

/* Makes arrays of zeros. */
sl_status sl_homes_open(const sl_program *program, uint32_t chunk_count, sl_homes **out_homes);

/* Fills all but `tier` and `update_tier`, which are chosen. */
sl_status sl_homes_place(const sl_program *program, const sl_layout *layout, sl_homes *homes);

#endif
