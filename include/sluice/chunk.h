/* Tiers, lanes, layout, homes and the machine: what a plan is made from.
 *
 * tier    a kind of memory
 * lane    what works in order, beside the others: ops within a tier, or copies between two
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

/* "device", "host" or "disk". */
SL_API const char *sl_tier_name(sl_tier tier);

/* Ops run on COMPUTE, HOST, COMM and INPUT, copies on the four lanes that join two tiers. */
typedef enum sl_lane {
    SL_LANE_COMPUTE,
    SL_LANE_H2D,
    SL_LANE_D2H,
    SL_LANE_HOST,
    SL_LANE_READ,
    SL_LANE_WRITE,
    SL_LANE_COMM,
    SL_LANE_INPUT,
    SL_LANE_COUNT
} sl_lane;

/* "compute", "h2d", ... */
SL_API const char *sl_lane_name(sl_lane lane);

/* True for a lane that copies from one tier to another, false for one that runs ops. */
SL_API bool sl_lane_copies(sl_lane lane);

/* The lane that copies from one tier to another; SL_LANE_COUNT where none does: nothing is copied
 * between device and disk directly. */
SL_API sl_lane sl_lane_between(sl_tier from, sl_tier to);

/* ---- layout ---- */

typedef struct sl_layout {
    uint64_t chunk_elements; /* a multiple of SL_BLOCK_ELEMENTS */
    uint32_t chunk_count;
    uint32_t tensor_count;
    uint32_t *chunk_of_tensor; /* [tensor_count] */
    uint64_t *first_element;   /* [tensor_count] in its chunk, a multiple of SL_BLOCK_ELEMENTS */
    uint8_t *block_flags;      /* [chunk_count * chunk_elements / SL_BLOCK_ELEMENTS], 1: decay */
    /* Likewise, 1: the block's gradient counts in the norm on this rank; NULL where there are no
     * other ranks: all count. Those of replicated tensors count on tensor rank 0 alone, all of them
     * on data rank 0 alone. */
    uint8_t *counted_flags;
    sl_type group_type[SL_GROUP_COUNT]; /* of elements, by the program's types */
    /* Elements of a chunk that this rank stores: the chunk's (also where it says 0), or those of
     * its shard, which begins at shard_first in it and is of whole blocks. */
    uint64_t group_elements[SL_GROUP_COUNT];
    uint64_t shard_first, shard_elements; /* 0 and the chunk's where there are no shards */
    uint64_t valid_elements;              /* elements of tensors, vocabulary padding included */
    double padding_fraction;              /* 1 - valid_elements / (chunk_count * chunk_elements) */
} sl_layout;

/* Packs the tensors of `program` in order, each on a block, none across chunks. chunk_elements 0:
 * searches the size that costs the least memory (after ColossalAI Gemini). A given size is rounded
 * up to whole blocks, and to a multiple of the data-parallel ranks that own shards; one smaller
 * than the largest tensor is SL_ERROR_USAGE and says how large it must be. */
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

/* Bytes of one chunk of `group`. */
SL_API uint64_t sl_layout_chunk_bytes(const sl_layout *layout, sl_group group);

/* ---- homes ---- */

typedef enum sl_policy {
    SL_POLICY_DEVICE,
    SL_POLICY_HOST,
    SL_POLICY_STATIC,
    SL_POLICY_NVME
} sl_policy;

typedef enum sl_adam_place { SL_ADAM_AUTO, SL_ADAM_DEVICE, SL_ADAM_HOST } sl_adam_place;

typedef struct sl_policy_options {
    sl_policy policy;
    /* STATIC and NVME: shares of each group's chunks; the disk's from the last chunk down, then the
     * host's. What is left lives on the device under STATIC, on the host under NVME. */
    double disk_fraction[SL_GROUP_COUNT], host_fraction[SL_GROUP_COUNT];
    sl_adam_place adam;
} sl_policy_options;

/* The disk tier keeps a checksum for each SL_DISK_ALIGNMENT of its address space, so whatever lives
 * there starts on a multiple of that. It is a multiple of SL_DIRECT_ALIGNMENT long, and the memory
 * that it is copied from and to starts on one. Where it is cut between drives, and into parts at
 * the boundary, is at multiples of SL_PIECE_BYTES. */
enum { SL_DIRECT_ALIGNMENT = 4096, SL_DISK_ALIGNMENT = 1 << 16, SL_PIECE_BYTES = 1 << 20 };

/* Two pieces, so that the disk is at work on one while the other is filled or emptied. */
enum { SL_BOUNCE_PIECES = 2, SL_BOUNCE_BYTES = SL_BOUNCE_PIECES * SL_PIECE_BYTES };

/* What is permanent in each tier, at the bottom of its arena. Shared by all plans of a run. */
typedef struct sl_homes {
    uint32_t chunk_count;
    uint8_t *tier[SL_GROUP_COUNT];    /* [chunk_count], an sl_tier; NULL: no such group */
    uint64_t *offset[SL_GROUP_COUNT]; /* [chunk_count], bytes into the home tier's arena */
    uint8_t *adam_tier; /* [chunk_count], SL_TIER_DEVICE or SL_TIER_HOST (also for disk homes) */
    uint64_t flags_offset[SL_TIER_COUNT]; /* block flags, a byte a block, on device and host */
    uint64_t flags_bytes[SL_TIER_COUNT];  /* 0 on a tier where no AdamW runs */
    uint64_t counted_offset;              /* on the device: counted_flags of the layout */
    uint64_t counted_bytes;               /* 0 where the layout has none */
    uint32_t persistent_count;
    uint64_t *persistent_offset;          /* [persistent_count], bytes into the device's arena */
    uint64_t *persistent_bytes;           /* [persistent_count] */
    uint64_t bounce_offset, bounce_bytes; /* host: SL_BOUNCE_BYTES for parts of chunks on disk */
                                          /* at the boundary; 0 bytes if no chunk lives on disk */
    uint64_t fixed_bytes[SL_TIER_COUNT];  /* end of the permanent part */
} sl_homes;

/* Gives every chunk of every group that `program` uses its home. Homes of different groups are
 * staggered so that an AdamW loop never reads arrays at equal offsets modulo a large power of 2.
 * Persistent slots are numbered densely: one not below the number of values is SL_ERROR_USAGE. */
SL_API sl_status sl_homes_build(const sl_program *program, const sl_layout *layout,
                                const sl_policy_options *options, sl_homes **out_homes);
/* Frees homes; NULL is fine. */
SL_API void sl_homes_close(sl_homes *homes);

/* ---- machine ---- */

/* How fast one kind of op runs: op_seconds + seconds + flops / flop_rate + traffic / byte_rate. */
typedef struct sl_op_rate {
    double flop_rate, byte_rate; /* a second; a term whose rate is 0 is left out */
    double seconds;              /* fixed cost beyond the machine's op_seconds */
} sl_op_rate;

typedef struct sl_adding_rates {
    bool is_measured;
    sl_op_rate rate[SL_TYPE_COUNT];
} sl_adding_rates;

/* What a machine does with one op or one copy at a time, and how much of it that takes. */
typedef struct sl_machine {
    char name[96];
    sl_op_rate op[SL_OP_COUNT][SL_TYPE_COUNT]; /* by compute type, on the compute lane */
    /* Of an op that adds to what is there (sl_op_adds); where none were measured the op's. */
    sl_adding_rates adding_op[SL_OP_COUNT];
    sl_op_rate host_adamw[SL_TYPE_COUNT]; /* AdamW on the host lane */
    double copy_rate[SL_LANE_COUNT];      /* bytes a second of each lane that copies, alone */
    double mixed_disk_rate; /* bytes a second, read and written together, when both lanes run */
    double op_seconds;      /* fixed cost of one op */
    double copy_seconds[SL_LANE_COUNT]; /* and of one copy */
    double core_count;   /* lanes that need more than these slow each other; 0: no limit */
    double worker_count; /* compute workers, each of which keeps a core busy; 0: one a core */
    double copy_cores[SL_LANE_COUNT]; /* cores that a copy keeps busy: 1 for memcpy */
    bool shares_cores;                /* compute and host lane share the cores: their times add */
    bool is_measured;                 /* false: the rates are described, or a guess */
    bool is_described;                /* by a file: data sheets and assumptions */
    bool is_quick;                    /* measured in few rounds of few shapes */
    bool is_scaled;                   /* scaled from another number of workers or ranks */
} sl_machine;

/* A plain guess for the cpu device with `worker_count` threads. */
SL_API sl_machine sl_machine_default(uint32_t worker_count);

/* The same for a GPU of `multiprocessor_count` (0: that of a large one) beside a host whose lane
 * has `worker_count` threads. */
SL_API sl_machine sl_machine_default_gpu(uint32_t multiprocessor_count, uint32_t worker_count);

/* Scales measured rates to the part of the machine that one process has: `worker_count` >= 1
 * compute workers, while `rank_count` >= 1 ranks share its cores, memory and drive. FLOP rates are
 * scaled with the number of cores; byte rates too, but only up to the number of cores that
 * saturates memory; the drive is shared evenly; exchanges between ranks keep their rates. Of a
 * machine with a GPU only the rates of the host and the drive are scaled. Changes nothing if one
 * rank has as many workers as were measured. */
SL_API void sl_machine_scale(sl_machine *machine, uint32_t worker_count, uint32_t rank_count);

/* Where the rates come from, as a phrase that stands behind "by": "a guess", "described rates",
 * "measured rates" or "a quick bench"; with ", scaled" behind it if the rates were scaled. */
SL_API const char *sl_machine_basis(const sl_machine *machine);

/* Whether nobody has measured or described the machine. */
SL_API bool sl_machine_is_guess(const sl_machine *machine);

/* Gives the ops that exchange data between ranks the rate of an all-reduce. Ops by which a rank
 * copies its part within its own memory keep their rates. A reduce-scatter and an all-gather of a
 * chunk are half of an all-reduce each, but count the same bytes, because they work in place: their
 * byte rate is twice that of the all-reduce. */
SL_API void sl_machine_set_exchanges(sl_machine *machine, sl_type type, sl_op_rate all_reduce);

/* Seconds of one op alone, on the compute lane or, for AdamW, on the host lane. */
SL_API double sl_machine_op_seconds(const sl_machine *machine, sl_op_kind kind,
                                    const sl_op_attrs *attrs, bool on_host);

#ifdef __cplusplus
}
#endif
#endif
