/* One mapping, cut into rings. */
#include "memory.h"

#include <string.h>

#include "base/bits.h"

enum {
    ALIGNMENT = 256,
    STAGGER = 68 * 1024,
    OPERANDS = 4,      /* a ring holds this many of any size */
    PART_OPERANDS = 6, /* of a size that go round in a part of a ring */
    PART_MIB = 32,     /* that part on a GPU: its outer cache holds some of them */
    SHRINK_MAX = 5,    /* a GPU's rings are halved until half of the free memory holds them */
    STAGING_MIB = 16,  /* random numbers that are copied to a GPU again and again */
    RINGS = 2 + 2 * SL_TYPE_COUNT
};

static const uint64_t MIB = UINT64_C(1) << 20;

typedef struct ring_size {
    uint64_t full, quick, gpu; /* MiB; of a GPU four squares of 8192 x 8192 floats, staggered */
} ring_size;

static const ring_size warm_size = {64, 16, 1088}, cold_size = {512, 64, 1088},
                       cold_half_size = {128, 32, 544};

static uint64_t random_word(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 32;
}

/* bf16 from 2^-7 to 1/4, fp16 from 1 to 1.6; targets are positive, for there are variances among
 * them. */
static void fill_random(void *address, uint64_t bytes, bool is_positive, uint64_t *state)
{
    uint16_t *words = address;
    for (uint64_t i = 0; i < bytes / 2; i++) {
        uint64_t random = random_word(state);
        uint64_t sign = is_positive ? 0 : random & 0x8000;
        words[i] = (uint16_t)(sign | (0x3c00 + (random >> 16) % 0x280));
    }
}

void sl_memory_fill(void *address, uint64_t bytes)
{
    uint64_t state = (uintptr_t)address | 1;
    fill_random(address, bytes, false, &state);
}

static bool is_cpu(const sl_memory *memory)
{
    return memory->device->ops->kind == SL_DEVICE_CPU;
}

static uint64_t size_ring(const sl_memory *memory, ring_size size, bool is_quick, int shrinks)
{
    if (is_quick)
        return size.quick * MIB;
    return is_cpu(memory) ? size.full * MIB : size.gpu * MIB >> shrinks;
}

/* Index i of the rings: the sources, then the warm targets, then the cold ones. */
static bool is_warm_ring(int i)
{
    return i == 0 || (i >= 2 && i < 2 + SL_TYPE_COUNT);
}

static ring_size find_size(int i)
{
    const bool is_half = i > 2 + SL_TYPE_COUNT;
    return is_warm_ring(i) ? warm_size : is_half ? cold_half_size : cold_size;
}

static void list_rings(sl_memory *memory, sl_memory_ring *out_rings[RINGS])
{
    out_rings[0] = &memory->source[0];
    out_rings[1] = &memory->source[1];
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        out_rings[2 + type] = &memory->target[0][type];
        out_rings[2 + SL_TYPE_COUNT + type] = &memory->target[1][type];
    }
}

static uint64_t size_rings(const sl_memory *memory, bool is_quick, int shrinks,
                           sl_memory_ring *const rings[RINGS])
{
    uint64_t total = 0;
    for (int i = 0; i < RINGS; i++) {
        const uint64_t bytes = size_ring(memory, find_size(i), is_quick, shrinks);
        bool has_no_part = !is_warm_ring(i) || is_cpu(memory) || bytes < PART_MIB * MIB;
        rings[i]->bytes = bytes;
        rings[i]->part_bytes = has_no_part ? bytes : PART_MIB * MIB;
        total += bytes;
    }
    return total;
}

/* Through a staging buffer, for the processor does not reach a GPU's memory. */
static sl_status fill_through_staging(sl_memory *memory, sl_memory_ring *const rings[RINGS],
                                      void *staging)
{
    uint64_t state = 0x9e3779b97f4a7c15u, piece = STAGING_MIB * MIB;
    for (int i = 0; i < RINGS; i++) {
        if (i == 0 || i == 2)
            fill_random(staging, piece, i == 2, &state);
        for (uint64_t done = 0; done < rings[i]->bytes; done += piece) {
            uint64_t left = rings[i]->bytes - done;
            double seconds;
            const sl_timed_copy copy = {rings[i]->base + done, staging,
                                        left < piece ? left : piece};
            SL_TRY(sl_timed_device_copy(memory->device, &copy, 1, &seconds));
        }
    }
    return SL_OK;
}

static sl_status fill_rings(sl_memory *memory, sl_memory_ring *const rings[RINGS])
{
    uint64_t state = 0x9e3779b97f4a7c15u, bytes = STAGING_MIB * MIB;
    const sl_timed_device *device = memory->device;
    void *staging;
    for (int i = 0; i < RINGS && is_cpu(memory); i++)
        fill_random(rings[i]->base, rings[i]->bytes, i >= 2, &state);
    if (is_cpu(memory))
        return SL_OK;
    SL_TRY(device->ops->map_host(device->handle, bytes, SL_MAP_PLAIN, &staging));
    sl_status status = fill_through_staging(memory, rings, staging);
    device->ops->unmap_host(device->handle, staging, bytes, SL_MAP_PLAIN);
    return status;
}

static sl_status map_rings(sl_memory *memory, sl_memory_ring *const rings[RINGS])
{
    const sl_timed_device *device = memory->device;
    uint64_t used = 0;
    SL_TRY(device->ops->map(device->handle, memory->mapping_bytes, SL_MAP_PLAIN, &memory->mapping));
    for (int i = 0; i < RINGS; i++) {
        rings[i]->base = (uint8_t *)memory->mapping + used;
        used += rings[i]->bytes;
    }
    sl_status status = fill_rings(memory, rings);
    if (status != SL_OK)
        sl_memory_close(memory);
    return status;
}

sl_status sl_memory_open(sl_timed_device *device, bool is_quick, sl_memory *out_memory)
{
    sl_memory memory = {.device = device};
    sl_memory_ring *rings[RINGS];
    int shrinks = 0;
    list_rings(&memory, rings);
    do
        memory.mapping_bytes = size_rings(&memory, is_quick, shrinks, rings);
    while (memory.mapping_bytes > device->info.free_bytes / 2 && shrinks++ < SHRINK_MAX);
    SL_TRY(map_rings(&memory, rings));
    *out_memory = memory;
    return SL_OK;
}

static uint64_t find_room(uint64_t operand_bytes)
{
    return sl_bits_round_up(operand_bytes, ALIGNMENT) + STAGGER;
}

void sl_memory_note(sl_memory_need *need, sl_memory_request request)
{
    uint64_t *most = request.is_written ? &need->target[request.is_cold][request.type]
                                        : &need->source[request.is_cold];
    *most = sl_bits_max(*most, request.bytes);
}

sl_status sl_memory_open_for(sl_timed_device *device, const sl_memory_need *need,
                             sl_memory *out_memory)
{
    sl_memory memory = {.device = device};
    sl_memory_ring *rings[RINGS];
    uint64_t most[RINGS] = {need->source[0], need->source[1]};
    memcpy(most + 2, need->target, sizeof need->target);
    list_rings(&memory, rings);
    for (int i = 0; i < RINGS; i++) {
        if (most[i] == 0)
            continue;
        const uint64_t least = find_size(i).full * MIB;
        rings[i]->bytes = sl_bits_round_up(sl_bits_max(least, OPERANDS * find_room(most[i])), MIB);
        rings[i]->part_bytes = is_warm_ring(i) ? least : rings[i]->bytes;
        memory.mapping_bytes += rings[i]->bytes;
    }
    SL_TRY(map_rings(&memory, rings));
    *out_memory = memory;
    return SL_OK;
}

void sl_memory_close(sl_memory *memory)
{
    if (memory->mapping)
        memory->device->ops->unmap(memory->device->handle, memory->mapping, memory->mapping_bytes,
                                   SL_MAP_PLAIN);
    *memory = (sl_memory){0};
}

static sl_memory_ring *find_ring(sl_memory *memory, sl_memory_request request)
{
    return request.is_written ? &memory->target[request.is_cold][request.type]
                              : &memory->source[request.is_cold];
}

bool sl_memory_fits(sl_memory *memory, sl_memory_request request)
{
    return find_room(request.bytes) <= find_ring(memory, request)->bytes / OPERANDS;
}

sl_status sl_memory_take(sl_memory *memory, sl_memory_request request, void **out_address)
{
    sl_memory_ring *ring = find_ring(memory, request);
    uint64_t room = find_room(request.bytes), end = PART_OPERANDS * room;
    if (!sl_memory_fits(memory, request))
        SL_FAIL(SL_ERROR_INTERNAL, "an operand of %llu bytes to measure, in a ring of %llu",
                (unsigned long long)request.bytes, (unsigned long long)ring->bytes);
    end = end < ring->part_bytes ? ring->part_bytes : end < ring->bytes ? end : ring->bytes;
    if (ring->next + room > end)
        ring->next = 0;
    *out_address = ring->base + ring->next;
    ring->next += room;
    return SL_OK;
}
