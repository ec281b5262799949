/* The one file that includes xxhash.h. Where libxxhash can choose its instruction set at run time,
 * that variant is used: the hashes are the same, at two to four times the speed. */
#include "hash.h"

#include <xxhash.h>

#ifdef SL_HAS_XXH_DISPATCH
XXH_errorcode XXH3_128bits_update_dispatch(XXH3_state_t *state, const void *data, size_t bytes);
XXH64_hash_t XXH3_64bits_dispatch(const void *data, size_t bytes);
XXH_errorcode XXH3_64bits_update_dispatch(XXH3_state_t *state, const void *data, size_t bytes);
#else
#define XXH3_64bits_update_dispatch XXH3_64bits_update
#define XXH3_128bits_update_dispatch XXH3_128bits_update
#define XXH3_64bits_dispatch XXH3_64bits
#endif

uint64_t sl_hash_64(const void *data, uint64_t bytes)
{
    return XXH3_64bits_dispatch(data, bytes);
}

static sl_hash_value value_of(XXH128_hash_t hash)
{
    return (sl_hash_value){.high = hash.high64, .low = hash.low64};
}

sl_hash_value sl_hash_128(const void *data, uint64_t bytes)
{
    return value_of(XXH3_128bits(data, bytes));
}

sl_status sl_hash_open(sl_hash_stream **out_stream)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state || XXH3_128bits_reset(state) != XXH_OK) {
        XXH3_freeState(state);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a checksum");
    }
    *out_stream = (sl_hash_stream *)state;
    return SL_OK;
}

void sl_hash_update(sl_hash_stream *stream, const void *data, uint64_t bytes)
{
    XXH3_128bits_update_dispatch((XXH3_state_t *)stream, data, bytes);
}

sl_hash_value sl_hash_digest(const sl_hash_stream *stream)
{
    return value_of(XXH3_128bits_digest((const XXH3_state_t *)stream));
}

void sl_hash_close(sl_hash_stream *stream)
{
    XXH3_freeState((XXH3_state_t *)stream);
}

void sl_hash_begin_64(sl_hash_stream *stream)
{
    XXH3_64bits_reset((XXH3_state_t *)stream);
}

void sl_hash_update_64(sl_hash_stream *stream, const void *data, uint64_t bytes)
{
    XXH3_64bits_update_dispatch((XXH3_state_t *)stream, data, bytes);
}

uint64_t sl_hash_digest_64(const sl_hash_stream *stream)
{
    return XXH3_64bits_digest((const XXH3_state_t *)stream);
}
