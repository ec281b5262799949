/* The tiles of attention, and the scratch of one worker: which operands of a head lie where, in
 * words of 4 bytes. Their forms, laid, woven and turned, are those of simd/attention.h. */
#ifndef SL_KERNELS_CPU_ATTENTION_ROOM_H
#define SL_KERNELS_CPU_ATTENTION_ROOM_H

#include "base/bits.h"
#include "micro_kernel.h"

enum {
    SL_ATTENTION_QUERIES = 64, /* of one tile of scores */
    SL_ATTENTION_KEYS = 64,
    SL_ATTENTION_STRIP = 32, /* a multiple of every micro-kernel's columns */
    /* Tiles of queries that meet a tile of keys before the next one is read. A result does not
     * depend on it. */
    SL_ATTENTION_TILES = 4,
    SL_ATTENTION_BLOCK = SL_ATTENTION_TILES * SL_ATTENTION_QUERIES,
    /* Rows of attention_few at most (query heads of a key head times new tokens), and keys that it
     * reads at a time. */
    SL_ATTENTION_FEW = 16,
    SL_ATTENTION_FEW_KEYS = 512
};

/* A head's rows for a micro-kernel. */
typedef struct sl_attention_shape {
    const sl_micro_kernel *micro;
    sl_type type;          /* of q, k, v, y and their gradients in memory */
    uint64_t width;        /* features of a head */
    uint64_t padded_width; /* in whole strips */
    uint64_t row_words;    /* of a laid row: whole steps of features, in whole strips */
} sl_attention_shape;

static inline sl_attention_shape sl_attention_shape_of(const sl_micro_kernel *micro, sl_type type,
                                                       uint64_t width)
{
    const uint64_t steps = sl_bits_divide_up(width, micro->terms_per_step);
    return (sl_attention_shape){
        micro, type, width, sl_bits_round_up(width, SL_ATTENTION_STRIP),
        sl_bits_round_up(steps * micro->words_per_step, SL_ATTENTION_STRIP)};
}

/* Words of SL_ATTENTION_KEYS or _QUERIES rows in each form; of sums [width, rows]; of scores. */
typedef struct sl_attention_sizes {
    uint64_t laid, woven, turned, sums, scores, weights;
} sl_attention_sizes;

static inline sl_attention_sizes sl_attention_sizes_of(const sl_attention_shape *shape)
{
    const uint64_t rows = SL_ATTENTION_KEYS, terms = shape->micro->terms_per_step;
    const uint64_t row_steps = sl_bits_divide_up(rows, terms) * shape->micro->words_per_step;
    return (sl_attention_sizes){
        .laid = sl_bits_round_up(rows * shape->row_words, SL_GEMM_SLACK),
        .woven = row_steps * shape->padded_width + SL_GEMM_SLACK,
        .turned = shape->row_words * rows + SL_GEMM_SLACK,
        .sums = shape->padded_width * rows,
        .scores = rows * rows,
        .weights = row_steps * rows,
    };
}

/* True if a word is a pair of bf16. */
static inline bool sl_attention_has_pairs(const sl_attention_shape *shape)
{
    return shape->micro->terms_per_step > 1;
}

/* Tiles of queries that meet a tile of keys together. */
static inline uint64_t sl_attention_tiles_of(uint64_t seq)
{
    const uint64_t tiles = sl_bits_divide_up(seq, SL_ATTENTION_QUERIES);
    return tiles < SL_ATTENTION_TILES ? tiles : SL_ATTENTION_TILES;
}

/* Where things begin. Fields from `queries` on are those of query tile 0; tile i lies
 * i * tile_words behind. */
typedef struct sl_attention_room {
    uint64_t keys, values; /* laid, woven */
    uint64_t scores;       /* [KEYS, QUERIES] */
    uint64_t weights;      /* the same place where they are floats */
    uint64_t rescale;      /* [QUERIES]: of earlier sums, to a new base */
    uint64_t queries;      /* of a tile of queries: turned */
    uint64_t sums;         /* [width, QUERIES]: the weighted values */
    uint64_t base, weight; /* [QUERIES] */
    uint64_t tile_words, end;
} sl_attention_room;

/* Of at most SL_ATTENTION_BLOCK of `seq` queries. */
static inline sl_attention_room sl_attention_room_of(const sl_attention_shape *shape, uint64_t seq)
{
    const sl_attention_sizes size = sl_attention_sizes_of(shape);
    sl_attention_room room = {.keys = 0, .values = size.laid};
    room.scores = room.values + size.woven;
    room.weights = room.scores;
    room.rescale = room.scores + size.scores;
    if (sl_attention_has_pairs(shape)) {
        room.weights = room.rescale;
        room.rescale += size.weights;
    }
    room.queries = room.rescale + SL_ATTENTION_QUERIES;
    room.sums = room.queries + size.turned;
    room.base = room.sums + size.sums;
    room.weight = room.base + SL_ATTENTION_QUERIES;
    room.tile_words = room.weight + SL_ATTENTION_QUERIES - room.queries;
    room.end = room.queries + sl_attention_tiles_of(seq) * room.tile_words;
    return room;
}

/* Of a few queries: rows of each. */
typedef struct sl_attention_few_room {
    uint64_t queries; /* laid */
    uint64_t scores;  /* score_row floats a row */
    uint64_t weights; /* laid, SL_ATTENTION_FEW_KEYS words a row */
    uint64_t sums;    /* sum_row floats a row: the weighted values */
    uint64_t score_row, sum_row, end;
} sl_attention_few_room;

static inline sl_attention_few_room sl_attention_few_room_of(const sl_attention_shape *shape)
{
    sl_attention_few_room room = {
        .score_row = SL_ATTENTION_FEW_KEYS + SL_GEMM_SLACK,
        .sum_row = shape->padded_width + SL_GEMM_SLACK,
    };
    room.scores = SL_ATTENTION_FEW * shape->row_words;
    room.weights = room.scores + SL_ATTENTION_FEW * room.score_row;
    room.sums = room.weights + (uint64_t)SL_ATTENTION_FEW * SL_ATTENTION_FEW_KEYS;
    room.end = room.sums + SL_ATTENTION_FEW * room.sum_row;
    return room;
}

typedef struct sl_attention_backward_room {
    uint64_t keys, values;                   /* laid */
    uint64_t woven_keys;                     /* the same as keys where they are floats */
    uint64_t p, ds;                          /* [KEYS, QUERIES] floats */
    uint64_t laid_p, laid_ds, woven_ds;      /* the same as p and ds where they are floats */
    uint64_t dk, dv;                         /* [seq, padded_width], seq in whole tiles */
    uint64_t turned_q, turned_dy, q, dy, dq; /* of a tile of queries: turned, woven; sums */
    uint64_t lse, d;                         /* [QUERIES] */
    uint64_t tile_words, end;
} sl_attention_backward_room;

static inline sl_attention_backward_room sl_attention_backward_room_of(
    const sl_attention_shape *shape, uint64_t seq)
{
    const sl_attention_sizes size = sl_attention_sizes_of(shape);
    const uint64_t key_sums = sl_bits_round_up(seq, SL_ATTENTION_KEYS) * shape->padded_width;
    sl_attention_backward_room room = {.keys = 0, .values = size.laid};
    room.p = room.values + size.laid;
    room.ds = room.p + size.scores;
    room.dk = room.ds + size.scores;
    room.woven_keys = room.keys;
    room.laid_p = room.p;
    room.laid_ds = room.woven_ds = room.ds;
    if (sl_attention_has_pairs(shape)) {
        room.woven_keys = room.dk;
        room.laid_p = room.woven_keys + size.woven;
        room.laid_ds = room.laid_p + size.weights;
        room.woven_ds = room.laid_ds + size.weights;
        room.dk = room.woven_ds + size.weights;
    }
    room.dv = room.dk + key_sums;
    room.turned_q = room.dv + key_sums;
    room.turned_dy = room.turned_q + size.turned;
    room.q = room.turned_dy + size.turned;
    room.dy = room.q + size.woven;
    room.dq = room.dy + size.woven;
    room.lse = room.dq + size.sums;
    room.d = room.lse + SL_ATTENTION_QUERIES;
    room.tile_words = room.d + SL_ATTENTION_QUERIES - room.turned_q;
    room.end = room.turned_q + sl_attention_tiles_of(seq) * room.tile_words;
    return room;
}

#endif
