/* Checksums: XXH3 of 64 and 128 bits, through libxxhash. */
#ifndef SL_BASE_HASH_H
#define SL_BASE_HASH_H

#include <stdint.h>

#include "status.h"

/* XXH3-64 of `bytes` bytes at `data`, seed 0. */
uint64_t sl_hash_64(const void *data, uint64_t bytes);

typedef struct sl_hash_value {
    uint64_t high, low;
} sl_hash_value;

/* XXH3-128, seed 0. */
sl_hash_value sl_hash_128(const void *data, uint64_t bytes);

/* A running XXH3-128. */
typedef struct sl_hash_stream sl_hash_stream;

sl_status sl_hash_open(sl_hash_stream **out_stream);
void sl_hash_update(sl_hash_stream *stream, const void *data, uint64_t bytes);
sl_hash_value sl_hash_digest(const sl_hash_stream *stream);
void sl_hash_close(sl_hash_stream *stream);

/* XXH3-64 over a stream. sl_hash_begin_64 starts a new hash and drops the one that was running, of
 * either width; a stream computes one hash at a time. */
void sl_hash_begin_64(sl_hash_stream *stream);
void sl_hash_update_64(sl_hash_stream *stream, const void *data, uint64_t bytes);
uint64_t sl_hash_digest_64(const sl_hash_stream *stream);

#endif
