/* Tiers, lanes, layout, homes and the machine: what a plan is made from.
 *
 *   tier    a kind of memory
 *   lane    a queue whose commands run in order, at the same time as those of other lanes
 *   layout  tensor -> (chunk, offset); the same for every group, because it counts elements
 *   homes   (group, chunk) -> tier and offset there; where each chunk is updated
 *   machine how fast each lane is
 */
#ifndef SL_CHUNK_CHUNK_H
#define SL_CHUNK_CHUNK_H

#include "program/program.h"

typedef enum sl_tier { SL_TIER_DEVICE, SL_TIER_HOST, SL_TIER_DISK, SL_TIER_COUNT } sl_tier;

/* "device", "host" or "disk". */
const char *sl_tier_name(sl_tier tier);

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
const char *sl_lane_name(sl_lane lane);

/* True for a lane that copies from one tier to another, false for one that runs ops. */
bool sl_lane_copies(sl_lane lane);

/* The lane that copies from one tier to another; SL_LANE_COUNT if there is none, as between device
 * and disk. */
sl_lane sl_lane_between(sl_tier from, sl_tier to);

/* ---- layout ---- */

/* What is said of a block, in one byte for each block: a part of tensor_flags. */
typedef enum sl_block_flag {
    SL_BLOCK_RATE = 127, /* index into `rates`: how the update changes the block */
    /* This rank adds the block to the gradient norm. Over all ranks each block of a gradient counts
     * once: tensor-parallel rank 0 counts replicated tensors, data-parallel rank 0 all blocks or,
     * with shards, each rank those of its shard. */
    SL_BLOCK_COUNTS = 128 /* written as 1 or 0 */
} sl_block_flag;

/* From what the keys of a tensor's blocks are made: its name, and where its elements are in the
 * whole tensor. */
typedef struct sl_draw_source {
    uint64_t name_hash;
    sl_run run;
} sl_draw_source;

typedef struct sl_layout {
    uint64_t chunk_elements;              /* the size of the rule with the largest chunks */
    uint64_t size_of_rule[SL_RULE_COUNT]; /* the most elements of a chunk of each rule */
    uint64_t largest_elements;            /* of the largest chunk */
    uint64_t block_count;                 /* of all chunks */
    uint32_t chunk_count;
    uint32_t tensor_count;
    sl_chunk *chunks;          /* [chunk_count] */
    uint32_t *chunk_of_tensor; /* [tensor_count] */
    uint64_t *first_element;   /* [tensor_count], in the tensor's chunk; a multiple of
                                  SL_BLOCK_ELEMENTS */
    uint64_t *tensor_blocks;   /* [tensor_count] */
    uint8_t *tensor_flags;     /* [tensor_count], the sl_block_flag values of the tensor's blocks */
    /* [tensor_count], where states are rounded stochastically: which numbers a tensor draws. NULL:
     * none does. */
    sl_draw_source *draws;
    sl_rate rates[SL_RATES_MAX];
    uint32_t rate_count;     /* 0: the two that each model has */
    bool has_counts;         /* false, with one rank: all blocks count */
    bool counts_shard_alone; /* blocks outside of this rank's shard do not count */
    sl_padding *padding;     /* of all chunks, ascending; none is empty */
    uint32_t *first_padding; /* [chunk_count + 1] into padding, by chunk; NULL: not known */
    sl_type group_type[SL_GROUP_COUNT]; /* of the group's elements */
    sl_states states;                   /* how states are stored */
    sl_frozen frozen;                   /* how matrices of SL_RULE_SMALL are stored */
    sl_master master;                   /* what is kept beside parameters in half precision */
    /* A chunk of a group is divided into so many shards of equal size, each of whole blocks; this
     * rank stores shard `shard_index`. 0, like 1: the rank stores whole chunks. */
    uint32_t shard_count[SL_GROUP_COUNT];
    uint32_t shard_index;
    uint64_t valid_elements; /* elements of tensors, vocabulary padding included */
    double padding_fraction; /* 1 - valid_elements / (block_count * SL_BLOCK_ELEMENTS) */
} sl_layout;

/* Packs the tensors of `program` in order; each starts on a block, none straddles chunks, and those
 * of a chunk have one rule. A chunk is as long as its tensors, rounded up to a multiple of the
 * data-parallel ranks that own shards.
 * chunk_elements: the most elements of a chunk, rounded up to whole blocks and to such a multiple.
 * If tensors have several rules, the size is that of the rule with the largest chunks: those of
 * other rules are smaller in proportion. One smaller than the largest tensor is SL_ERROR_USAGE, and
 * the message says how large it must be. 0: searches the size that costs the least room for visits
 * (after ColossalAI Gemini). */
sl_status sl_layout_build(const sl_program *program, uint64_t chunk_elements,
                          sl_layout **out_layout);
/* Frees a layout; NULL is fine. */
void sl_layout_close(sl_layout *layout);

/* The chunk map for sl_program_derive_step; borrows the layout's arrays. */
static inline sl_chunk_map sl_layout_chunk_map(const sl_layout *layout)
{
    sl_chunk_map map = {layout->chunk_count, layout->chunks, layout->chunk_of_tensor};
    return map;
}

/* Writes one flag of each block, [block_count] bytes. */
void sl_layout_write_flags(const sl_layout *layout, sl_block_flag flag, uint8_t *out_flags);

/* The table of blocks, where updates run: the byte of SL_BLOCK_RATE of each and, if states are
 * rounded stochastically, from sl_layout_keys_offset on the key of each. A key depends on the
 * tensor's name and on the place of the block's first element in the whole tensor, and on nothing
 * else: so what a block draws depends neither on chunks nor on ranks. */
uint64_t sl_layout_table_bytes(const sl_layout *layout);
uint64_t sl_layout_keys_offset(const sl_layout *layout);

/* Writes the key of each block, [block_count]; 0 of padding. The layout has draws. */
void sl_layout_write_keys(const sl_layout *layout, uint64_t *out_keys);

typedef struct sl_stored {
    uint64_t first, count; /* elements, from element `first` of the chunk on */
} sl_stored;

/* The elements of a chunk of `group` that this rank stores: all, or those of its shard. */
sl_stored sl_layout_stored(const sl_layout *layout, sl_group group, uint32_t chunk_index);

/* The chunk whose first block is `block`; SL_NONE: none is. */
uint32_t sl_layout_find_chunk(const sl_layout *layout, uint64_t block);

/* Bytes of each block that this rank stores of a chunk of `group`; 0: it stores none. */
uint64_t sl_layout_block_bytes(const sl_layout *layout, sl_group group, uint32_t chunk_index);

/* Bytes that this rank stores of a chunk of `group`; 0: the chunk's rule stores nothing in it. */
uint64_t sl_layout_chunk_bytes(const sl_layout *layout, sl_group group, uint32_t chunk_index);

/* Bytes of a slot for the chunk in a tier that it visits: those of a chunk of the full size of its
 * rule, so that any chunk fits where another was. */
uint64_t sl_layout_slot_bytes(const sl_layout *layout, sl_group group, uint32_t chunk_index);

/* ---- homes ---- */

typedef enum sl_policy {
    SL_POLICY_DEVICE,
    SL_POLICY_HOST,
    SL_POLICY_STATIC,
    SL_POLICY_NVME
} sl_policy;

/* Where chunks are updated. */
typedef enum sl_update_place {
    SL_UPDATE_AUTO, /* where their states live; on the host if these live on disk */
    SL_UPDATE_DEVICE,
    SL_UPDATE_HOST,
    SL_UPDATE_SHARED /* as AUTO, but of the chunks whose states live off the device only the last
                        ones on the host: states of the others visit the device */
} sl_update_place;

typedef struct sl_policy_options {
    sl_policy policy;
    /* STATIC and NVME: fractions of each group's slots. The last chunks live on disk, those before
     * them on the host, the rest on the device (STATIC) or on the host (NVME). */
    double disk_fraction[SL_GROUP_COUNT], host_fraction[SL_GROUP_COUNT];
    sl_update_place update;
    /* SHARED: the fraction, by elements, that the host updates of the chunks whose states live off
     * the device. */
    double host_updates;
} sl_policy_options;

/* The disk tier keeps one checksum for each SL_DISK_ALIGNMENT bytes, so everything on disk starts
 * on a multiple of that. Direct I/O needs sizes and memory addresses that are multiples of
 * SL_DIRECT_ALIGNMENT. SL_PIECE_BYTES is the stripe of several drives, and the unit in which a
 * chunk on disk is read and written in the boundary state. */
enum {
    SL_DIRECT_ALIGNMENT = SL_CHUNK_ALIGNMENT,
    SL_DISK_ALIGNMENT = 1 << 16,
    SL_PIECE_BYTES = 1 << 20
};

/* Two pieces: the disk reads or writes one while the other is filled or emptied. */
enum { SL_BOUNCE_PIECES = 2, SL_BOUNCE_BYTES = SL_BOUNCE_PIECES * SL_PIECE_BYTES };

/* What stays in each tier for the whole run, at the bottom of its arena. Shared by all plans of a
 * run. */
typedef struct sl_homes {
    uint32_t chunk_count;
    uint8_t *tier[SL_GROUP_COUNT];    /* [chunk_count], an sl_tier; of a chunk of 0 bytes
                                         (sl_layout_chunk_bytes) the device. NULL: the program has
                                         no such group */
    uint64_t *offset[SL_GROUP_COUNT]; /* [chunk_count], bytes into the home tier's arena */
    uint8_t *update_tier; /* [chunk_count], SL_TIER_DEVICE or SL_TIER_HOST (also for disk homes) */
    uint64_t flags_offset[SL_TIER_COUNT]; /* the table of blocks, on device and host */
    uint64_t flags_bytes[SL_TIER_COUNT];  /* 0 on a tier where no update runs */
    uint64_t counted_offset;              /* on the device: SL_BLOCK_COUNTS of all blocks */
    uint64_t counted_bytes;               /* 0 where the layout has none */
    uint32_t persistent_count;
    uint64_t *persistent_offset;          /* [persistent_count], bytes into the device's arena */
    uint64_t *persistent_bytes;           /* [persistent_count] */
    uint64_t bounce_offset, bounce_bytes; /* host: SL_BOUNCE_BYTES for parts of chunks on disk */
                                          /* at the boundary; 0 bytes if no chunk lives on disk */
    uint64_t fixed_bytes[SL_TIER_COUNT];  /* end of what stays */
} sl_homes;

/* Gives every chunk of every group that `program` uses its home. Homes of different groups are
 * staggered so that the loop of an update never reads arrays at equal offsets modulo a large power
 * of 2. SL_ERROR_USAGE: the number of a persistent slot is not below the number of values. */
sl_status sl_homes_build(const sl_program *program, const sl_layout *layout,
                         const sl_policy_options *options, sl_homes **out_homes);
/* Frees homes; NULL is fine. */
void sl_homes_close(sl_homes *homes);

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

/* Of an op that updates: bytes of traffic a second, by how states are stored; 0: not measured. */
typedef struct sl_update_rates {
    bool is_measured;
    double device[SL_STATES_COUNT][SL_TYPE_COUNT], host[SL_STATES_COUNT][SL_TYPE_COUNT];
} sl_update_rates;

/* How fast a machine runs one op or one copy alone, and how many of its cores that takes. */
typedef struct sl_machine {
    char name[96];
    sl_op_rate op[SL_OP_COUNT][SL_TYPE_COUNT]; /* by compute type, on the compute lane */
    /* Of an op that adds to its output (sl_op_adds); if not measured, the rates in `op` count. */
    sl_adding_rates adding_op[SL_OP_COUNT];
    sl_op_rate host_update[SL_TYPE_COUNT]; /* updates on the host lane */
    /* Of updates, by type of the master; where a rate is not measured, that of the same update
     * beside a master in fp32 counts, then that of ADAMW with states in fp32: its `op`, or
     * `host_update`. */
    sl_update_rates update[SL_MASTER_COUNT][SL_OP_COUNT];
    double copy_rate[SL_LANE_COUNT]; /* bytes a second of each lane that copies, alone */
    double mixed_disk_rate; /* bytes a second, read plus written, when both lanes of the disk run */
    /* Bytes a second that copies and updates together move through host memory; 0: no limit. */
    double host_memory_rate;
    double op_seconds;                  /* fixed cost of one op */
    double copy_seconds[SL_LANE_COUNT]; /* fixed cost of one copy */
    double core_count;   /* lanes that together need more cores slow each other; 0: no limit */
    double worker_count; /* compute workers, one core each; 0: one per core */
    double copy_cores[SL_LANE_COUNT]; /* cores that a copy keeps busy: 1 for memcpy */
    bool shares_cores;                /* compute and host lane share the cores: their times add */
    bool is_measured;                 /* false: the rates are described, or a guess */
    bool is_described;                /* by a file, from data sheets and assumptions */
    bool is_quick;                    /* measured with few rounds and few shapes */
    bool is_scaled;                   /* scaled from another number of workers or ranks */
} sl_machine;

/* A plain guess for the cpu device with `worker_count` threads. */
sl_machine sl_machine_default(uint32_t worker_count);

/* The same for a GPU of `multiprocessor_count` (0: that of a large one) beside a host whose lane
 * has `worker_count` threads. */
sl_machine sl_machine_default_gpu(uint32_t multiprocessor_count, uint32_t worker_count);

/* Scales measured rates to one process of several: it has `worker_count` >= 1 compute workers, and
 * `rank_count` >= 1 ranks share cores, memory and drive. FLOP rates scale with the number of cores;
 * byte rates too, but only up to the number of cores that saturates memory; an update's, up to what
 * AdamW reaches where it saturates memory; the drive is shared
 * evenly, and so is the rate of host memory; exchanges between ranks keep their rates. Of a machine
 * with a GPU only the rates of the host and the drive are scaled. Changes nothing if one rank has
 * as many workers as were measured.
 */
void sl_machine_scale(sl_machine *machine, uint32_t worker_count, uint32_t rank_count);

/* Where the rates come from, as a phrase to follow "by": "a guess", "described rates", "measured
 * rates" or "a quick bench"; ends in ", scaled" if the rates were scaled. */
const char *sl_machine_basis(const sl_machine *machine);

/* True if the rates were neither measured nor described. */
bool sl_machine_is_guess(const sl_machine *machine);

/* Sets the rates of the ops that exchange data between ranks from that of an all-reduce. TAKE_ROWS
 * and TAKE_COLUMNS keep their rates: they copy in a rank's own memory. A reduce-scatter and an
 * all-gather of a chunk are half of an all-reduce each, but count the same bytes, because they work
 * in place: their byte rate is twice that of the all-reduce. */
void sl_machine_set_exchanges(sl_machine *machine, sl_type type, sl_op_rate all_reduce);

/* The kind whose rates an op has; of updates without rates of their own that is ADAMW, because
 * memory bounds most of them. */
sl_op_kind sl_machine_rate_kind(sl_op_kind kind);

/* Seconds of one op alone, on the compute lane or, for updates, on the host lane. */
double sl_machine_op_seconds(const sl_machine *machine, sl_op_kind kind, const sl_op_attrs *attrs,
                             bool on_host);

#endif
