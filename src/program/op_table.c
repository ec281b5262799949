/* Answers questions about ops from the rows of op_list.h.
 *
 * Sizes are products that saturate at UINT64_MAX. No value has so many bytes, so the check of an
 * op's operands (sl_build_append_op) rejects an overflow.
 */
#include <stddef.h>

#include "base/bits.h"
#include "build.h"

/* The words that rows of op_list.h use. */
enum { CHEAP = 1, UPDATES = 2, ON_COMM = 4, ON_INPUT = 8 };
enum { OPTIONAL = 1, MASTER = 2, FROM_MASTER = 4, AT_LEAST = 8, ROW_RANGE = 16, LOOKUP = 32 };
enum { PADDING = 64, IF_NEEDED = 128, SEPARATE = 256 };
enum {
    TYPE = 0,
    GRAD = UINT16_MAX,
    STATE = UINT16_MAX - 1,
    FROZEN = UINT16_MAX - 2,
    KEPT = UINT16_MAX - 3,
    F32 = 4,
    I32 = 4,
    F64 = 8,
    NORM_SUM = sizeof(sl_norm_sum),
    CONTROL = sizeof(sl_step_control)
};
enum { B = 16, T, R, I, O, H, P, E, K, F, Q, S, N }; /* dimensions; a number below 16 is a size */

enum { DIMENSION_MAX = 5 };

typedef struct operand {
    uint16_t how;
    uint16_t element;                 /* bytes of an element, or a word such as TYPE */
    uint8_t dimension[DIMENSION_MAX]; /* up to the first 0 */
} operand;

typedef struct row {
    operand operands[SL_OPERAND_MAX];
    uint8_t flops[DIMENSION_MAX];
} row;

/* clang-format off */
#define OP(mode_, name_, how_, ...) \
    {.name = #name_, \
     .mode = SL_MODE_##mode_, \
     .is_optional = ((how_) & (OPTIONAL | IF_NEEDED | MASTER | SEPARATE)) != 0}
#define X(NAME, name_, flags_, flops_, ...) \
    [SL_OP_##NAME] = { \
        .name = #name_, \
        .operand_count = sizeof((sl_operand_info[]){__VA_ARGS__}) / sizeof(sl_operand_info), \
        .operand = {__VA_ARGS__}, \
        .is_cheap = ((flags_) & CHEAP) != 0, \
        .updates_chunk = ((flags_) & UPDATES) != 0, \
        .is_collective = ((flags_) & ON_COMM) != 0, \
        .is_input = ((flags_) & ON_INPUT) != 0, \
    },
static const sl_op_info infos[SL_OP_COUNT] = {SL_OP_LIST(X)};
#undef X
#undef OP

#define OP(mode_, name_, how_, element_, ...) {how_, element_, {__VA_ARGS__}}
#define FLOPS(...) {__VA_ARGS__}
#define NO_FLOPS {0}
#define X(NAME, name_, flags_, flops_, ...) [SL_OP_##NAME] = {{__VA_ARGS__}, flops_},
static const row table[SL_OP_COUNT] = {SL_OP_LIST(X)};
#undef X
#undef NO_FLOPS
#undef FLOPS
#undef OP
/* clang-format on */

const sl_op_info *sl_op_info_of(sl_op_kind kind)
{
    return &infos[kind];
}

/* ---- what is read and written ---- */

bool sl_op_reads(const sl_op *op, uint32_t operand_index)
{
    const uint16_t how = table[op->kind].operands[operand_index].how;
    switch (infos[op->kind].operand[operand_index].mode) {
    case SL_MODE_READ:
        return true;
    case SL_MODE_WRITE:
        return false;
    case SL_MODE_UPDATE:
        return !(how & FROM_MASTER) || op->attrs.type == SL_TYPE_FP32 ||
               op->attrs.master_type == SL_MASTER_LOW;
    case SL_MODE_GRADIENT:
        return op->attrs.adds_gradient;
    case SL_MODE_ADD:
        break;
    }
    /* An op on a later row range keeps the rows that ops on earlier ranges wrote. */
    return op->attrs.adds_output || ((how & ROW_RANGE) && op->attrs.first_row > 0);
}

bool sl_op_writes(const sl_op *op, uint32_t operand_index)
{
    return infos[op->kind].operand[operand_index].mode != SL_MODE_READ;
}

bool sl_op_has(const sl_op *op, uint32_t operand_index)
{
    const uint16_t how = table[op->kind].operands[operand_index].how;
    if (how & SEPARATE)
        return op->attrs.is_separate;
    return op->operand[operand_index] != SL_NONE;
}

/* ---- sizes ---- */

static uint64_t multiply_saturated(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Of five steps: A = X X^T, A A, and B X, each multiply-add 2 (the head of op_list.h: N). */
static uint64_t count_newton_schulz(uint64_t in, uint64_t out)
{
    const uint64_t least = in < out ? in : out, most = in < out ? out : in;
    const uint64_t sides = add_saturated(multiply_saturated(2, most), least);
    return multiply_saturated(multiply_saturated(10, sides), multiply_saturated(least, least));
}

static uint64_t find_dimension(uint8_t dimension, const sl_op_attrs *attrs)
{
    switch (dimension) {
    case B:
        return attrs->batch;
    case T:
        return attrs->seq;
    case R:
        return attrs->row_count;
    case I:
        return attrs->in;
    case O:
        return attrs->out;
    case H:
        return attrs->heads;
    case P:
        return attrs->id_count;
    case E:
        return attrs->element_count;
    case K:
        return attrs->cache_rows;
    case F:
        return attrs->row_flops;
    case S:
        return attrs->is_separate ? attrs->out : 0;
    case Q:
        if (attrs->is_separate)
            return attrs->in;
        return add_saturated(attrs->in, multiply_saturated(2, attrs->out));
    case N:
        return count_newton_schulz(attrs->in, attrs->out);
    default:
        return dimension;
    }
}

static uint64_t multiply_dimensions(uint64_t product, const uint8_t *dimension,
                                    const sl_op_attrs *attrs)
{
    for (int i = 0; i < DIMENSION_MAX && dimension[i] != 0; i++)
        product = multiply_saturated(product, find_dimension(dimension[i], attrs));
    return product;
}

static uint64_t find_element_bytes(uint16_t element, const sl_op_attrs *attrs)
{
    if (element == TYPE)
        return sl_type_bytes((sl_type)attrs->type);
    if (element == KEPT)
        return sl_master_bytes((sl_master)attrs->master_type);
    return element == GRAD ? sl_type_bytes((sl_type)attrs->grad_type) : element;
}

static uint64_t find_blocks_bytes(const sl_op_attrs *attrs, uint64_t block_bytes)
{
    const uint64_t blocks = sl_bits_divide_up(attrs->element_count, SL_BLOCK_ELEMENTS);
    uint64_t unused;
    return __builtin_mul_overflow(blocks + 2, block_bytes, &unused)
               ? UINT64_MAX
               : sl_chunk_bytes(blocks, block_bytes);
}

/* In fp32 also of elements that are not whole blocks: bench has such. */
static uint64_t find_state_bytes(const sl_op_attrs *attrs)
{
    if (attrs->state_type == SL_STATES_FP32)
        return multiply_saturated(4, attrs->element_count);
    return find_blocks_bytes(attrs, sl_states_block_bytes((sl_states)attrs->state_type));
}

uint64_t sl_op_least_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t operand_index)
{
    const operand *it = &table[kind].operands[operand_index];
    if (it->element == STATE)
        return find_state_bytes(attrs);
    if (it->element == FROZEN)
        return find_blocks_bytes(attrs, sl_frozen_block_bytes((sl_frozen)attrs->frozen_type));
    return multiply_dimensions(find_element_bytes(it->element, attrs), it->dimension, attrs);
}

uint64_t sl_op_operand_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t operand_index)
{
    if (table[kind].operands[operand_index].how & AT_LEAST)
        return 0;
    return sl_op_least_bytes(kind, attrs, operand_index);
}

/* ---- row ranges ---- */

void sl_op_find_rows(const sl_op *op, uint32_t operand_index, uint64_t *out_first,
                     uint64_t *out_end)
{
    const sl_op_attrs *attrs = &op->attrs;
    const uint64_t all = multiply_saturated(attrs->batch, attrs->seq);
    *out_first = 0;
    *out_end = UINT64_MAX;
    if (!(table[op->kind].operands[operand_index].how & ROW_RANGE))
        return;
    *out_first = attrs->first_row;
    if (attrs->first_row > all || attrs->row_count != all - attrs->first_row)
        *out_end = attrs->first_row + attrs->row_count;
}

/* ---- costs ---- */

uint64_t sl_op_flops(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const uint8_t *flops = table[kind].flops;
    return flops[0] == 0 ? 0 : multiply_dimensions(1, flops, attrs);
}

/* Bytes of the op's smallest LOOKUP operand. */
static uint64_t find_lookup_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < infos[kind].operand_count; i++) {
        const uint64_t bytes = sl_op_least_bytes(kind, attrs, i);
        if ((table[kind].operands[i].how & LOOKUP) && bytes < least)
            least = bytes;
    }
    return least;
}

/* Bytes of operand i that the op uses: all of them, unless the operand is ROW_RANGE, LOOKUP or
 * PADDING. */
static uint64_t count_touched_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t i)
{
    const uint16_t how = table[kind].operands[i].how;
    sl_op_attrs touched = *attrs;
    const bool is_made = infos[kind].operand[i].mode == SL_MODE_ADD && !attrs->adds_output;
    if ((how & LOOKUP) && !is_made)
        return find_lookup_bytes(kind, attrs);
    if (how & ROW_RANGE) {
        touched.batch = 1;
        touched.seq = attrs->row_count;
    }
    if (how & PADDING)
        touched.element_count = attrs->row_count;
    return sl_op_least_bytes(kind, &touched, i);
}

/* OPTIONAL operands do not count: attributes do not say which of them are present. */
static bool counts_as_traffic(const operand *it, const sl_op_attrs *attrs)
{
    return !(it->how & OPTIONAL) && (!(it->how & MASTER) || attrs->type != SL_TYPE_FP32);
}

uint64_t sl_op_traffic_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const sl_op op = {.kind = kind, .attrs = *attrs};
    uint64_t total = 0;
    for (uint32_t i = 0; i < infos[kind].operand_count; i++) {
        if (!counts_as_traffic(&table[kind].operands[i], attrs))
            continue;
        const uint64_t bytes = count_touched_bytes(kind, attrs, i);
        if (sl_op_reads(&op, i))
            total = add_saturated(total, bytes);
        if (sl_op_writes(&op, i))
            total = add_saturated(total, bytes);
    }
    /* Sets of ranks gather N terms, where a sum of all sends what two of N terms take. */
    if (kind == SL_OP_ALL_REDUCE_TENSOR && attrs->batch > 0)
        total = multiply_saturated(total, attrs->batch * attrs->heads) / 2;
    return total;
}
