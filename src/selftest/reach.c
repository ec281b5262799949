#include "reach.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/half.h"

/* TOKENS rows are looked up: the last ones of the table. */
enum { WIDTH = 1016, TOKENS = 24, ALIGNMENT = 4096 };

typedef struct reach {
    sl_timed_device *device;
    uint64_t rows;              /* of the table */
    unsigned char *there;       /* the table, tokens, x */
    unsigned char *sent, *came; /* tail of the table, tokens, x; x */
    sl_op_attrs attrs;
} reach;

static const uint64_t row_bytes = WIDTH * sizeof(uint16_t);
static const uint64_t tail_bytes = (uint64_t)TOKENS * WIDTH * sizeof(uint16_t);

static uint64_t count_rows(uint64_t elements)
{
    return elements / WIDTH + (uint64_t)2 * TOKENS;
}

static uint64_t tokens_at(const reach *self)
{
    return sl_bits_round_up(self->rows * row_bytes, ALIGNMENT);
}

static uint64_t x_at(const reach *self)
{
    return tokens_at(self) + ALIGNMENT;
}

uint64_t sl_reach_bytes(uint64_t elements)
{
    const reach it = {.rows = count_rows(elements)};
    return x_at(&it) + sl_bits_round_up(tail_bytes, ALIGNMENT);
}

static uint16_t element_at(uint64_t row, uint64_t column)
{
    return sl_half_to_bf16((float)(1 + (row * 31 + column) % 120));
}

static sl_status look_up(void *argument)
{
    const reach *self = argument;
    sl_kernel run;
    const sl_kernel_call call = {
        .attrs = &self->attrs,
        .operand = {self->there + tokens_at(self), self->there, self->there + x_at(self)},
        .workers = self->device->workers,
        .library = self->device->library,
        .stream = self->device->ops->stream_native(self->device->streams[0].stream)};
    SL_TRY(sl_kernels_find(self->device->kernels, SL_OP_EMBED_TOKENS, &run));
    return run(&call);
}

static void fill(const reach *self)
{
    uint16_t *tail = (uint16_t *)(void *)self->sent;
    int32_t *tokens = (int32_t *)(void *)(self->sent + tail_bytes);
    for (uint64_t r = 0; r < TOKENS; r++) {
        tokens[r] = (int32_t)(self->rows - 1 - r);
        for (uint64_t c = 0; c < WIDTH; c++)
            tail[r * WIDTH + c] = element_at(self->rows - TOKENS + r, c);
    }
}

static void judge(const reach *self, sl_fault *fault)
{
    const uint16_t *x = (const uint16_t *)(const void *)self->came;
    for (uint64_t r = 0; r < TOKENS; r++)
        for (uint64_t c = 0; c < WIDTH && !*fault->text; c++)
            if (x[r * WIDTH + c] != element_at(self->rows - 1 - r, c))
                snprintf(fault->text, sizeof fault->text,
                         "embed_tokens in bf16 (ids %llu, in %d): element %llu of the table is "
                         "read as %.9g, and is %.9g",
                         (unsigned long long)self->rows, WIDTH,
                         (unsigned long long)((self->rows - 1 - r) * WIDTH + c),
                         (double)sl_half_from_bf16(x[r * WIDTH + c]),
                         (double)sl_half_from_bf16(element_at(self->rows - 1 - r, c)));
}

static sl_status move(reach *self, sl_fault *fault)
{
    double seconds;
    const sl_timed_copy copies[] = {
        {self->there + (self->rows - TOKENS) * row_bytes, self->sent, tail_bytes},
        {self->there + tokens_at(self), self->sent + tail_bytes, TOKENS * sizeof(int32_t)},
        {self->there + x_at(self), self->sent + tail_bytes + ALIGNMENT, tail_bytes}};
    const sl_timed_copy back = {self->came, self->there + x_at(self), tail_bytes};
    const sl_kernel_call shapes = {.attrs = &self->attrs};
    if (self->device->kernels->prepare)
        SL_TRY(self->device->kernels->prepare(self->device->library, SL_OP_EMBED_TOKENS, &shapes));
    for (int i = 0; i < 3; i++)
        SL_TRY(sl_timed_device_copy(self->device, &copies[i], 1, &seconds));
    SL_TRY(sl_timed_device_run(self->device, look_up, self, &seconds));
    SL_TRY(sl_timed_device_copy(self->device, &back, 1, &seconds));
    judge(self, fault);
    return SL_OK;
}

sl_status sl_reach_prove(sl_timed_device *device, uint64_t elements, sl_fault *out_fault)
{
    const sl_device_ops *ops = device->ops;
    const uint64_t bytes = sl_reach_bytes(elements);
    const uint64_t host_bytes = 2 * tail_bytes + ALIGNMENT; /* x is zero before */
    reach self = {.device = device, .rows = count_rows(elements)};
    void *there = NULL, *sent = NULL, *came = NULL;
    *out_fault = (sl_fault){0};
    self.attrs = (sl_op_attrs){
        .batch = 1, .seq = TOKENS, .in = WIDTH, .id_count = self.rows, .type = SL_TYPE_BF16};
    SL_TRY(ops->map(device->handle, bytes, SL_MAP_PLAIN, &there));
    sl_status status = ops->map_host(device->handle, host_bytes, SL_MAP_PLAIN, &sent);
    if (status == SL_OK)
        status = ops->map_host(device->handle, tail_bytes, SL_MAP_PLAIN, &came);
    self.there = there;
    self.sent = sent;
    self.came = came;
    if (status == SL_OK) {
        fill(&self);
        status = move(&self, out_fault);
    }
    if (device->is_stuck)
        return status;
    if (came)
        ops->unmap_host(device->handle, came, tail_bytes, SL_MAP_PLAIN);
    if (sent)
        ops->unmap_host(device->handle, sent, host_bytes, SL_MAP_PLAIN);
    ops->unmap(device->handle, there, bytes, SL_MAP_PLAIN);
    return status;
}
