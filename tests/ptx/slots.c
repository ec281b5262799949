/* Places of registers in a warp's file. nvcc writes each value to a register of its own, thousands
 * of them; those that never live at once share a place, so that a file stays in the cache.
 *
 * Live ranges by backward dataflow over basic blocks, then one walk that takes the first free place
 * (Poletto and Sarkar, "Linear scan register allocation", 1999). A range is one interval of ops
 * that covers all of its register's. Lanes that are apart do no harm: each has its own column. */
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

typedef struct live_flow {
    ptx_kernel *kernel;
    ptx_register *registers;
    uint32_t register_count, op_count, block_count, words; /* of a set of registers */
    uint32_t *block_first;                                 /* [block_count + 1] */
    uint32_t *block_of;                                    /* by op */
    uint64_t *live_in;                                     /* [block_count][words] */
} live_flow;

static bool is_register(const live_flow *flow, uint32_t operand)
{
    return operand < PTX_NO_OPERAND && !flow->registers[operand].is_special;
}

static void find_blocks(live_flow *flow)
{
    const ptx_op *ops = flow->kernel->ops;
    bool *begins = ptx_take(flow->op_count + 1, 1);
    begins[0] = true;
    for (uint32_t i = 0; i < flow->op_count; i++)
        if (ops[i].kind == PTX_OP_BRANCH || ops[i].kind == PTX_OP_END) {
            begins[i + 1] = true;
            if (ops[i].kind == PTX_OP_BRANCH)
                begins[ops[i].target] = true;
        }
    flow->block_first = ptx_take(flow->op_count + 1, sizeof *flow->block_first);
    flow->block_of = ptx_take(flow->op_count, sizeof *flow->block_of);
    for (uint32_t i = 0; i < flow->op_count; i++) {
        if (begins[i])
            flow->block_first[flow->block_count++] = i;
        flow->block_of[i] = flow->block_count - 1;
    }
    flow->block_first[flow->block_count] = flow->op_count;
    free(begins);
}

static uint64_t *live_in(const live_flow *flow, uint32_t block)
{
    return flow->live_in + (uint64_t)block * flow->words;
}

/* What lives after a block. */
static void find_live_out(const live_flow *flow, uint32_t block, uint64_t *live)
{
    const uint32_t last = flow->block_first[block + 1] - 1;
    const ptx_op *op = &flow->kernel->ops[last];
    memset(live, 0, flow->words * sizeof *live);
    if (op->kind == PTX_OP_BRANCH)
        memcpy(live, live_in(flow, flow->block_of[op->target]), flow->words * sizeof *live);
    const bool goes_on = (op->kind != PTX_OP_BRANCH && op->kind != PTX_OP_END) || op->is_guarded;
    if (goes_on && block + 1 < flow->block_count)
        for (uint32_t i = 0; i < flow->words; i++)
            live[i] |= live_in(flow, block + 1)[i];
}

static void use(const live_flow *flow, uint64_t *live, uint32_t operand)
{
    if (is_register(flow, operand))
        live[operand / 64] |= UINT64_C(1) << operand % 64;
}

/* From what lives after an op to what lives before it. */
static void pass_op(const live_flow *flow, const ptx_op *op, uint64_t *live)
{
    for (int i = 0; i < op->to_count; i++)
        if (!op->is_guarded && is_register(flow, op->to[i]))
            live[op->to[i] / 64] &= ~(UINT64_C(1) << op->to[i] % 64);
    for (int i = 0; i < op->from_count; i++)
        use(flow, live, op->from[i]);
    for (int i = 0; op->is_guarded && i < op->to_count; i++)
        use(flow, live, op->to[i]);
    if (op->is_guarded)
        use(flow, live, op->guard);
    if (op->waits == PTX_WAITS_FOR_MEMBERS)
        use(flow, live, op->members);
}

static void find_live(live_flow *flow)
{
    uint64_t *live = ptx_take(flow->words, sizeof *live);
    flow->live_in = ptx_take((uint64_t)flow->block_count * flow->words, sizeof *flow->live_in);
    for (bool changes = true; changes;) {
        changes = false;
        for (uint32_t block = flow->block_count; block-- > 0;) {
            find_live_out(flow, block, live);
            for (uint32_t i = flow->block_first[block + 1]; i-- > flow->block_first[block];)
                pass_op(flow, &flow->kernel->ops[i], live);
            if (memcmp(live, live_in(flow, block), flow->words * sizeof *live) != 0) {
                memcpy(live_in(flow, block), live, flow->words * sizeof *live);
                changes = true;
            }
        }
    }
    free(live);
}

static void cover(const live_flow *flow, uint32_t operand, uint32_t op)
{
    if (!is_register(flow, operand))
        return;
    ptx_register *one = &flow->registers[operand];
    one->first = op < one->first ? op : one->first;
    one->last = op > one->last ? op : one->last;
}

static void cover_set(const live_flow *flow, const uint64_t *live, uint32_t op)
{
    for (uint32_t i = 0; i < flow->words; i++)
        for (uint64_t left = live[i]; left; left &= left - 1)
            cover(flow, i * 64 + (uint32_t)__builtin_ctzll(left), op);
}

static void find_ranges(const live_flow *flow)
{
    uint64_t *live = ptx_take(flow->words, sizeof *live);
    for (uint32_t i = 0; i < flow->register_count; i++)
        flow->registers[i].first = UINT32_MAX;
    for (uint32_t block = 0; block < flow->block_count; block++) {
        cover_set(flow, live_in(flow, block), flow->block_first[block]);
        find_live_out(flow, block, live);
        cover_set(flow, live, flow->block_first[block + 1] - 1);
    }
    for (uint32_t i = 0; i < flow->op_count; i++) {
        const ptx_op *op = &flow->kernel->ops[i];
        for (int k = 0; k < op->to_count; k++)
            cover(flow, op->to[k], i);
        for (int k = 0; k < op->from_count; k++)
            cover(flow, op->from[k], i);
        if (op->is_guarded)
            cover(flow, op->guard, i);
        if (op->waits == PTX_WAITS_FOR_MEMBERS)
            cover(flow, op->members, i);
    }
    free(live);
}

/* ---- places ---- */

typedef PTX_LIST(uint32_t) number_list;

static int compare_first(const void *left, const void *right)
{
    const ptx_register *a = *(ptx_register *const *)left, *b = *(ptx_register *const *)right;
    return a->first != b->first ? (a->first > b->first) - (a->first < b->first) : (a > b) - (a < b);
}

static int size_class(char letter)
{
    return letter == 'd' ? 2 : letter == 'p' ? 0 : 1;
}

/* Gives back the places of registers whose last op lies before `op`. */
static void retire(ptx_register **active, uint32_t *count, uint32_t op, number_list *free_places)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *count; i++)
        if (active[i]->last < op)
            *PTX_ADD(&free_places[size_class(active[i]->letter)]) = active[i]->at;
        else
            active[kept++] = active[i];
    *count = kept;
}

static void take_places(const live_flow *flow)
{
    ptx_register **order = ptx_take(flow->register_count, sizeof *order);
    ptx_register **active = ptx_take(flow->register_count, sizeof *active);
    number_list free_places[3] = {0};
    uint32_t count = 0, active_count = 0;
    for (uint32_t i = 0; i < flow->register_count; i++)
        if (!flow->registers[i].is_special && flow->registers[i].first != UINT32_MAX)
            order[count++] = &flow->registers[i];
    qsort(order, count, sizeof(ptx_register *), compare_first);
    for (uint32_t i = 0; i < count; i++) {
        number_list *free_ones = &free_places[size_class(order[i]->letter)];
        if (i == 0 || order[i]->first != order[i - 1]->first)
            retire(active, &active_count, order[i]->first, free_places);
        if (free_ones->count)
            order[i]->at = free_ones->items[--free_ones->count];
        else {
            order[i]->at = flow->kernel->file_bytes;
            flow->kernel->file_bytes +=
                order[i]->letter == 'p' ? 64 : ptx_letter_bytes(order[i]->letter);
        }
        active[active_count++] = order[i];
    }
    for (int i = 0; i < 3; i++)
        free(free_places[i].items);
    free(active);
    free(order);
}

static void put(const ptx_register *registers, uint32_t *operand)
{
    if (*operand < PTX_NO_OPERAND)
        *operand = registers[*operand].at;
}

static bool overlaps(const ptx_op *op)
{
    for (int t = 0; t < op->to_count; t++)
        for (int f = 0; f < op->from_count; f++)
            if (op->to[t] == op->from[f])
                return true;
    return false;
}

void ptx_place_registers(ptx_kernel *kernel, ptx_register *registers, uint32_t count)
{
    live_flow flow = {.kernel = kernel,
                      .registers = registers,
                      .register_count = count,
                      .op_count = kernel->facts.instruction_count,
                      .words = (count + 63) / 64};
    find_blocks(&flow);
    find_live(&flow);
    find_ranges(&flow);
    take_places(&flow);
    for (uint32_t i = 0; i < flow.op_count; i++) {
        ptx_op *op = &kernel->ops[i];
        for (int k = 0; k < op->from_count; k++)
            put(registers, &op->from[k]);
        for (int k = 0; k < op->to_count; k++)
            if (op->to[k] == PTX_NO_OPERAND)
                op->to[k] = (uint32_t)k * PTX_SINK_BYTES;
            else
                put(registers, &op->to[k]);
        put(registers, &op->guard);
        put(registers, &op->members);
        op->is_direct = !overlaps(op);
    }
    free(flow.live_in);
    free(flow.block_of);
    free(flow.block_first);
}
