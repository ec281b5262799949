/* The programs that a device proves itself by: small training steps and passes with a cache, of the
 * architectures that between them use every op that has a kernel. Odd sizes find what goes wrong at
 * the edge of a tile, sizes of a real model what goes wrong inside. Private to the room. */
#ifndef SL_SELFTEST_PROGRAMS_H
#define SL_SELFTEST_PROGRAMS_H

#include "chunk/chunk.h"
#include "model/emit.h"

typedef struct sl_proof_program {
    const char *name; /* for people */
    sl_type type;
    uint32_t vocab;
    bool is_large; /* of the sizes of a real model */
    sl_program *program;
    sl_layout *layout;
} sl_proof_program;

/* How many there are; the most telling ones come first. */
uint32_t sl_proof_program_count(void);

/* Makes program `index`; close it, also after a failure. */
sl_status sl_proof_program_open(uint32_t index, sl_proof_program *out_program);
void sl_proof_program_close(sl_proof_program *program);

#endif
