/* Stacks and switches of fibers; the sanitizers are told of each. */
#include "shim_fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#ifndef __x86_64__
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 256 << 10 }; /* red zones around every variable */
#else
enum { STACK_BYTES = 64 << 10 };
#endif

#ifdef __x86_64__
typedef void *context; /* the stack pointer; the registers that calls keep lie above it */
#else
typedef ucontext_t context;
#endif

typedef struct fiber {
    context at;
    char *stack;
    void *fake_stack; /* the sanitizer's */
    bool is_started;
} fiber;

static fiber fibers[SHIM_THREADS_MOST];
static fiber *current;
static context outside;
static void (*run_function)(void);

#if defined(__SANITIZE_ADDRESS__)
static const void *outside_stack;
static size_t outside_bytes;

/* To a fiber, or outside where `to` is NULL. */
static void announce_switch(void **out_fake_stack, const fiber *to)
{
    __sanitizer_start_switch_fiber(out_fake_stack, to ? to->stack : outside_stack,
                                   to ? (size_t)STACK_BYTES : outside_bytes);
}

static void announce_arrival(void *fake_stack, bool is_fiber)
{
    if (is_fiber)
        __sanitizer_finish_switch_fiber(fake_stack, &outside_stack, &outside_bytes);
    else
        __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
}

static void clean_stack(const fiber *f)
{
    __asan_unpoison_memory_region(f->stack, STACK_BYTES);
}
#else
static void announce_switch(void **, const fiber *)
{
}

static void announce_arrival(void *, bool)
{
}

static void clean_stack(const fiber *)
{
}
#endif

#ifdef __x86_64__

/* shim_fiber_switch(save, load): pushes what a call must keep, leaves the stack pointer in *save,
 * and continues at the one in `load`. */
extern "C" void shim_fiber_switch(context *save, context load);
asm(".text\n"
    ".globl shim_fiber_switch\n"
    ".hidden shim_fiber_switch\n"
    ".type shim_fiber_switch, @function\n"
    "shim_fiber_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    retq\n"
    ".size shim_fiber_switch, . - shim_fiber_switch\n");

static void switch_context(context *save, context *load)
{
    shim_fiber_switch(save, *load);
}

/* Six registers, then where the switch returns to; a function starts 8 below a multiple of 16. */
static void start_context(fiber *f, void (*start)(void))
{
    void **top = (void **)(f->stack + STACK_BYTES) - 2;
    *top = (void *)start;
    top -= 6;
    for (int i = 0; i < 6; i++)
        top[i] = NULL;
    f->at = top;
}

#else

static void switch_context(context *save, context *load)
{
    swapcontext(save, load);
}

static void start_context(fiber *f, void (*start)(void))
{
    getcontext(&f->at);
    f->at.uc_stack.ss_sp = f->stack;
    f->at.uc_stack.ss_size = STACK_BYTES;
    f->at.uc_link = NULL;
    makecontext(&f->at, start, 0);
}

#endif

static void run_for_ever(void)
{
    announce_arrival(NULL, true);
    for (;;) {
        run_function();
        shim_fiber_pause();
    }
}

bool shim_fiber_open(void (*run)(void))
{
    run_function = run;
    if (fibers[0].stack != NULL)
        return true;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), each = STACK_BYTES + page;
    char *memory = (char *)mmap(NULL, SHIM_THREADS_MOST * each, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    for (uint32_t i = 0; i < SHIM_THREADS_MOST; i++) {
        if (mprotect(memory + i * each, page, PROT_NONE) != 0)
            return false;
        fibers[i].stack = memory + i * each + page;
    }
    return true;
}

void shim_fiber_resume(uint32_t index)
{
    void *fake_stack = NULL;
    current = &fibers[index];
    if (!current->is_started) {
        start_context(current, run_for_ever);
        current->is_started = true;
    }
    announce_switch(&fake_stack, current);
    switch_context(&outside, &current->at);
    announce_arrival(fake_stack, false);
}

void shim_fiber_pause(void)
{
    fiber *self = current;
    announce_switch(&self->fake_stack, NULL);
    switch_context(&self->at, &outside);
    announce_arrival(self->fake_stack, true);
}

void shim_fiber_reset(void)
{
    for (uint32_t i = 0; i < SHIM_THREADS_MOST; i++)
        if (fibers[i].is_started) {
            clean_stack(&fibers[i]);
            fibers[i].is_started = false;
        }
}
