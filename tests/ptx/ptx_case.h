/* Small kernels for tests of the interpreter: a body between a fixed head and tail, run under every
 * schedule. */
#ifndef PTX_CASE_H
#define PTX_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ptx.h"

#define PTX_HEAD ".version 9.0\n.target sm_90\n.address_size 64\n"

/* %rd1 is `out`, %rd2 `in`, %r1 the thread, %rd3 where the thread's word of `out` is. */
#define PTX_BEGIN                                                                                  \
    PTX_HEAD ".visible .entry kernel(.param .u64 kernel_out, .param .u64 kernel_in)\n{\n"          \
             ".reg .pred %p<8>;\n.reg .b16 %rs<16>;\n.reg .f32 %f<16>;\n.reg .b32 %r<32>;\n"       \
             ".reg .b64 %rd<32>;\n"                                                                \
             "ld.param.u64 %rd1, [kernel_out];\nld.param.u64 %rd2, [kernel_in];\n"                 \
             "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd3, %rd1, %rd3;\n"
#define PTX_END "\nret;\n}\n"

enum { OUT_WORDS = 2048, SCHEDULES = 5 };

static const ptx_schedule SCHEDULE[SCHEDULES] = {
    {.seed = 0},
    {.lanes = PTX_APART, .seed = 3},
    {.blocks_at_once = 4, .seed = 5},
    {.lanes = PTX_APART, .blocks_at_once = 3, .copies = PTX_LANDS_AT_WAIT, .seed = 7},
    {.copies = PTX_LANDS_AT_WAIT, .seed = 9},
};

typedef struct small_launch {
    uint32_t blocks, threads, dynamic_shared_bytes;
    ptx_schedule schedule;
    const ptx_watch *watch;
    uint64_t group_instructions;
} small_launch;

static uint32_t out_words[OUT_WORDS], in_words[OUT_WORDS];
static ptx_fault small_fault;

static ptx_module *open_small(const char *text)
{
    ptx_module *module;
    if (!ptx_module_open(text, strlen(text), &module, &small_fault))
        fail_msg("%s", small_fault.text);
    return module;
}

/* Runs the first kernel of a module over out_words, which begin as zeros, and in_words, which hold
 * their indices. False: small_fault. */
static bool launch_small(ptx_module *module, const small_launch *how, ptx_launch_counts *out)
{
    void *out_at = out_words, *in_at = in_words;
    void *arguments[] = {&out_at, &in_at};
    memset(out_words, 0, sizeof out_words);
    for (uint32_t i = 0; i < OUT_WORDS; i++)
        in_words[i] = i;
    const ptx_launch_args args = {.kernel = ptx_module_kernel_at(module, 0),
                                  .grid = {how->blocks ? how->blocks : 1, 1, 1},
                                  .block = {how->threads ? how->threads : 32, 1, 1},
                                  .dynamic_shared_bytes = how->dynamic_shared_bytes,
                                  .arguments = arguments,
                                  .schedule = how->schedule,
                                  .watch = how->watch,
                                  .group_instructions = how->group_instructions};
    return ptx_launch(&args, out, &small_fault);
}

#endif
