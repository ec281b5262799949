/* One mapping, cut into rings. */
#include "memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ALIGNMENT = 256,
    STAGGER = 68 * 1024,
    OPERANDS = 4, /* a ring holds this many of any size */
    RINGS = 2 + 2 * SL_TYPE_COUNT
};

static const uint64_t MIB = UINT64_C(1) << 20;

typedef struct ring_size {
    uint64_t whole, quick; /* MiB */
} ring_size;

static const ring_size warm_size = {64, 16}, cold_size = {512, 64}, cold_half_size = {128, 32};

static uint64_t random_word(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 32;
}

/* bf16 from 2^-7 to 1/4, fp16 from 1 to 1.6; targets are positive, for there are variances among
 * them. */
static void fill(sl_memory_ring *ring, bool is_positive, uint64_t *state)
{
    uint16_t *words = (uint16_t *)(void *)ring->base;
    for (uint64_t i = 0; i < ring->bytes / 2; i++) {
        uint64_t random = random_word(state);
        uint64_t sign = is_positive ? 0 : random & 0x8000;
        words[i] = (uint16_t)(sign | (0x3c00 + (random >> 16) % 0x280));
    }
}

static uint64_t list_rings(sl_memory *memory, bool is_quick, sl_memory_ring *out_rings[RINGS])
{
    uint64_t total = 0;
    out_rings[0] = &memory->source[0];
    out_rings[1] = &memory->source[1];
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        out_rings[2 + type] = &memory->target[0][type];
        out_rings[2 + SL_TYPE_COUNT + type] = &memory->target[1][type];
    }
    for (int i = 0; i < RINGS; i++) {
        bool is_warm = i == 0 || (i >= 2 && i < 2 + SL_TYPE_COUNT);
        bool is_half = i > 2 + SL_TYPE_COUNT;
        ring_size size = is_warm ? warm_size : is_half ? cold_half_size : cold_size;
        out_rings[i]->bytes = (is_quick ? size.quick : size.whole) * MIB;
        total += out_rings[i]->bytes;
    }
    return total;
}

sl_status sl_memory_open(bool is_quick, sl_memory *out_memory)
{
    sl_memory memory = {0};
    sl_memory_ring *rings[RINGS];
    uint64_t state = 0x9e3779b97f4a7c15u, used = 0;
    memory.mapping_bytes = list_rings(&memory, is_quick, rings);
    memory.mapping = mmap(NULL, memory.mapping_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory.mapping == MAP_FAILED)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to measure in: %llu MiB: %s",
                (unsigned long long)(memory.mapping_bytes / MIB), strerror(errno));
    madvise(memory.mapping, memory.mapping_bytes, MADV_HUGEPAGE);
    for (int i = 0; i < RINGS; i++) {
        rings[i]->base = (uint8_t *)memory.mapping + used;
        used += rings[i]->bytes;
        fill(rings[i], i >= 2, &state);
    }
    *out_memory = memory;
    return SL_OK;
}

void sl_memory_close(sl_memory *memory)
{
    if (memory->mapping)
        munmap(memory->mapping, memory->mapping_bytes);
    *memory = (sl_memory){0};
}

sl_status sl_memory_take(sl_memory *memory, sl_memory_wish wish, void **out_address)
{
    sl_memory_ring *ring =
        wish.is_written ? &memory->target[wish.is_cold][wish.type] : &memory->source[wish.is_cold];
    uint64_t room = (wish.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + STAGGER;
    if (room > ring->bytes / OPERANDS)
        SL_FAIL(SL_ERROR_INTERNAL, "an operand of %llu bytes to measure, in a ring of %llu",
                (unsigned long long)wish.bytes, (unsigned long long)ring->bytes);
    if (ring->next + room > ring->bytes)
        ring->next = 0;
    *out_address = ring->base + ring->next;
    ring->next += room;
    return SL_OK;
}
