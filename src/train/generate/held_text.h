/* The text of a sample on its way out. Bytes come token by token; they are held back while they may
 * be the start of a text that ends the sample, or of a character that is not whole yet.
 *
 *   what was given out, then what is held, is all that came, but for a stop text and what is behind
 *   a byte that begins no character of UTF-8 is given out as it is
 */
#ifndef SL_TRAIN_HELD_TEXT_H
#define SL_TRAIN_HELD_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_held_text {
    const char *const *stops; /* [stop_count], none empty; borrowed */
    uint32_t stop_count;
    bool is_stopped; /* one of them came: it is dropped, and all that comes later */
    char *bytes;     /* owned: [count] are held */
    uint64_t count, capacity;
} sl_held_text;

/* Receives what is certain. */
typedef struct sl_held_sink {
    sl_status (*take)(void *user, const char *bytes, uint64_t byte_count);
    void *user;
} sl_held_sink;

/* Adds bytes and gives out what is certain by now. Statuses of the sink, SL_ERROR_SYSTEM. */
sl_status sl_held_text_add(sl_held_text *held, const char *bytes, uint64_t byte_count,
                           const sl_held_sink *sink);

/* Nothing more comes: gives out what is held. */
sl_status sl_held_text_end(sl_held_text *held, const sl_held_sink *sink);

/* Starts another text with the same stops. */
void sl_held_text_clear(sl_held_text *held);

/* Frees what is held; of a zeroed one too. */
void sl_held_text_close(sl_held_text *held);

#endif
