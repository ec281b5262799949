/* Calling one row of the table: sources and results of all lanes as 64-bit numbers, and draws. */
#ifndef PTX_LANES_CASE_H
#define PTX_LANES_CASE_H

#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"

/* The largest operand: 32 lanes of 8 bytes. */
typedef union lanes_operand {
    uint32_t word[32], predicate;
    uint64_t wide[32];
} lanes_operand;

typedef struct lanes_call {
    const ptx_arithmetic_row *row;
    ptx_arithmetic_call call;
    ptx_arithmetic_mode mode;
    _Alignas(64) lanes_operand to[PTX_RESULTS_MAX];
    _Alignas(64) lanes_operand from[PTX_SOURCES_MAX];
} lanes_call;

/* All lanes take part, sources are zero, results have noise. */
static inline void lanes_open(lanes_call *call, const char *name)
{
    memset(call, 0, sizeof *call);
    memset(call->to, 0xa5, sizeof call->to);
    call->row = ptx_arithmetic_find(name);
    assert_non_null(call->row);
    call->call.lanes = 0xffffffff;
    call->call.mode = &call->mode;
    for (int i = 0; i < PTX_RESULTS_MAX; i++)
        call->call.to[i] = &call->to[i];
    for (int i = 0; i < PTX_SOURCES_MAX; i++)
        call->call.from[i] = &call->from[i];
}

static inline void lanes_set(lanes_call *call, int source, int lane, uint64_t bits)
{
    lanes_operand *operand = &call->from[source];
    if (call->row->sources[source] == 'd')
        operand->wide[lane] = bits;
    else if (call->row->sources[source] == 'p')
        operand->predicate = (operand->predicate & ~(1u << lane)) | (uint32_t)(bits & 1) << lane;
    else
        operand->word[lane] = (uint32_t)bits;
}

static inline uint32_t lanes_run(lanes_call *call)
{
    return call->row->run(&call->call);
}

static inline uint64_t lanes_result(const lanes_call *call, int result, int lane)
{
    const lanes_operand *operand = &call->to[result];
    if (call->row->results[result] == 'd')
        return operand->wide[lane];
    if (call->row->results[result] == 'p')
        return operand->predicate >> lane & 1;
    return operand->word[lane];
}

/* splitmix64 (Steele, Lea, Flood 2014) */
static inline uint64_t lanes_draw(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

#endif
