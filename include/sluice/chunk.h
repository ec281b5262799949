/* Layout, homes and the machine: what a plan is made from.
 *
 * layout  tensor -> (chunk, offset); the same for every group, for it counts elements
 * homes   (group, chunk) -> tier and offset there; where each chunk's AdamW runs
 * machine how fast each lane is
 */
#ifndef SLUICE_CHUNK_H
#define SLUICE_CHUNK_H

#include "sluice/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sl_tier { SL_TIER_DEVICE, SL_TIER_HOST, SL_TIER_DISK, SL_TIER_COUNT } sl_tier;

/* ---- layout ---- */

typedef struct sl_tensor_place {
    uint32_t chunk_index;
    uint64_t first_element; /* in the chunk, a multiple of SL_BLOCK_ELEMENTS */
} sl_tensor_place;

typedef struct sl_layout {
    uint64_t chunk_elements; /* a multiple of SL_BLOCK_ELEMENTS */
    uint32_t chunk_count;
    uint32_t tensor_count;
    sl_tensor_place *tensors;  /* [tensor_count] */
    uint32_t *chunk_of_tensor; /* [tensor_count], for sl_chunk_map */
    uint8_t *block_flags;      /* [chunk_count * chunk_elements / SL_BLOCK_ELEMENTS], 1: decay */
    uint64_t valid_elements;   /* elements of tensors, vocabulary padding included */
    double padding_fraction;   /* 1 - valid_elements / (chunk_count * chunk_elements) */
} sl_layout;

/* Packs the tensors of `program` in order, each on a block, none across chunks. chunk_elements 0:
 * searches the size that costs the least memory (after ColossalAI Gemini; chunk/chunk_size.c). A
 * given size is rounded up to whole blocks; one smaller than the largest tensor is SL_ERROR_USAGE
 * and says how large it must be. */
SL_API sl_status sl_layout_build(const sl_program *program, uint64_t chunk_elements,
                                 sl_layout **out_layout);
/* Frees a layout; NULL is fine. */
SL_API void sl_layout_close(sl_layout *layout);

/* The part of a layout that sl_program_derive_step wants; borrows its arrays. */
static inline sl_chunk_map sl_layout_chunk_map(const sl_layout *layout)
{
    sl_chunk_map map = {layout->chunk_count, layout->chunk_elements, layout->chunk_of_tensor};
    return map;
}

/* Bytes of one chunk of `group`; all groups are fp32 for now. */
SL_API uint64_t sl_layout_chunk_bytes(const sl_layout *layout, sl_group group);

/* ---- homes ---- */

typedef enum sl_policy {
    SL_POLICY_DEVICE,
    SL_POLICY_HOST,
    SL_POLICY_STATIC,
} sl_policy;

typedef enum sl_adam_place { SL_ADAM_AUTO, SL_ADAM_DEVICE, SL_ADAM_HOST } sl_adam_place;

typedef struct sl_policy_options {
    sl_policy policy;
    double host_fraction[SL_GROUP_COUNT]; /* STATIC: of each group's chunks, from the last down */
    sl_adam_place adam;
} sl_policy_options;

enum { SL_PERSISTENT_MAX = 512 };

/* What is permanent in each tier, at the bottom of its arena. Shared by all plans of a run. */
typedef struct sl_homes {
    uint32_t chunk_count;
    uint8_t *tier[SL_GROUP_COUNT];        /* [chunk_count], an sl_tier; NULL: no such group */
    uint64_t *offset[SL_GROUP_COUNT];     /* [chunk_count], bytes into the home tier's arena */
    uint8_t *adam_tier;                   /* [chunk_count], SL_TIER_DEVICE or SL_TIER_HOST */
    uint64_t flags_offset[SL_TIER_COUNT]; /* block flags, a byte a block, on device and host */
    uint64_t flags_bytes[SL_TIER_COUNT];  /* 0 on a tier where no AdamW runs */
    uint32_t persistent_count;
    uint64_t persistent_offset[SL_PERSISTENT_MAX]; /* device */
    uint64_t persistent_bytes[SL_PERSISTENT_MAX];
    uint64_t fixed_bytes[SL_TIER_COUNT]; /* end of the permanent part */
} sl_homes;

/* Gives every chunk of every group that `program` uses its home. Slots of different groups are
 * staggered so that an AdamW loop never reads arrays at equal offsets modulo a large power of 2. */
SL_API sl_status sl_homes_build(const sl_program *program, const sl_layout *layout,
                                const sl_policy_options *options, sl_homes **out_homes);
/* Frees homes; NULL is fine. */
SL_API void sl_homes_close(sl_homes *homes);

/* ---- machine ---- */

/* Rates of a machine, bytes and FLOP per second. */
typedef struct sl_machine {
    char name[64];
    double gemm_flops;   /* of the compute lane, fp32 */
    double device_bytes; /* memory traffic of memory-bound ops on the compute lane */
    double host_bytes;   /* memory traffic of AdamW on the host lane */
    double h2d_bytes, d2h_bytes;
    double op_seconds;   /* fixed cost of one op */
    double copy_seconds; /* fixed cost of one copy */
    bool shares_cores;   /* compute and host lane share the cores: their times add */
} sl_machine;

/* A plain guess for this kind of device with `worker_count` threads. */
SL_API sl_machine sl_machine_default(uint32_t worker_count);

#ifdef __cplusplus
}
#endif
#endif
