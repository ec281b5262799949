#include "products.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/half.h"
#include "base/rng.h"

enum { ALIGNMENT = 256, SIDES = SL_TIMED_DEVICE_STREAMS, SEED = 11 };

/* Rows, and features read and written: a multiple of 16 bytes, and not. */
static const uint64_t sizes[][3] = {{128, 192, 256}, {65, 72, 40}, {33, 35, 51}};

/* The operands that are present, as bits. */
static const struct {
    sl_op_kind kind;
    uint32_t present;
} kinds[] = {
    {SL_OP_LINEAR, 0x17},                /* bias */
    {SL_OP_LINEAR, 0x1f},                /* bias and residual */
    {SL_OP_LINEAR_INPUT_BACKWARD, 0x0f}, /* the gradient of a GELU */
    {SL_OP_LINEAR_INPUT_BACKWARD, 0x07},
    {SL_OP_LINEAR_WEIGHT_BACKWARD, 0x0f}, /* and of the bias */
};

enum {
    KINDS = sizeof kinds / sizeof kinds[0],
    SIZES = sizeof sizes / sizeof sizes[0],
    PRODUCTS = KINDS * SIZES
};

typedef struct product {
    sl_op_kind kind;
    sl_op_attrs attrs;
    uint64_t offset[SL_OPERAND_MAX], bytes[SL_OPERAND_MAX]; /* in a side; bytes 0: absent */
    uint64_t workspace;                                     /* offset */
} product;

/* Each of the two streams has a side of its own: the same operands, and its results. */
typedef struct bench {
    sl_timed_device *device;
    product products[PRODUCTS];
    unsigned char *there, *came; /* [SIDES * bytes] */
    unsigned char *sent, *alone; /* [bytes]: operands, and what each product leaves by itself */
    uint64_t bytes;              /* of a side */
    sl_fault *fault;
} bench;

/* ---- operands ---- */

static void lay_out(bench *self, sl_type type)
{
    for (uint32_t p = 0; p < PRODUCTS; p++) {
        product *it = &self->products[p];
        const uint64_t *size = sizes[p / KINDS];
        it->kind = kinds[p % KINDS].kind;
        it->attrs = (sl_op_attrs){.row_count = size[0],
                                  .in = size[1],
                                  .out = size[2],
                                  .type = (uint16_t)type,
                                  .grad_type = (uint16_t)type};
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const bool is_present = kinds[p % KINDS].present >> i & 1;
            it->bytes[i] = is_present ? sl_op_least_bytes(it->kind, &it->attrs, i) : 0;
            it->offset[i] = self->bytes;
            self->bytes += sl_bits_round_up(it->bytes[i], ALIGNMENT);
        }
        it->workspace = self->bytes;
        self->bytes +=
            sl_bits_round_up(sl_kernels_workspace_bytes(self->device->kernels, it->kind, &it->attrs,
                                                        self->device->worker_count),
                             ALIGNMENT);
    }
}

static void draw(const bench *self, sl_type type)
{
    for (uint64_t i = 0; i < self->bytes / sl_type_bytes(type); i++) {
        const float value = 0.25f * sl_rng_normal(SEED, 1, i);
        if (type == SL_TYPE_FP32)
            ((float *)(void *)self->sent)[i] = value;
        else
            ((uint16_t *)(void *)self->sent)[i] =
                type == SL_TYPE_BF16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
    }
}

static sl_status open_bench(bench *self, sl_type type)
{
    const sl_device_ops *ops = self->device->ops;
    void *there = NULL, *came = NULL, *sent = NULL;
    lay_out(self, type);
    self->alone = malloc(self->bytes);
    if (self->alone == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a self-test");
    SL_TRY(ops->map(self->device->handle, SIDES * self->bytes, SL_MAP_PLAIN, &there));
    self->there = there;
    SL_TRY(ops->map_host(self->device->handle, SIDES * self->bytes, SL_MAP_PLAIN, &came));
    self->came = came;
    SL_TRY(ops->map_host(self->device->handle, self->bytes, SL_MAP_PLAIN, &sent));
    self->sent = sent;
    draw(self, type);
    return SL_OK;
}

static void close_bench(const bench *self)
{
    const sl_device_ops *ops = self->device->ops;
    free(self->alone);
    if (self->device->is_stuck)
        return;
    if (self->sent)
        ops->unmap_host(self->device->handle, self->sent, self->bytes, SL_MAP_PLAIN);
    if (self->came)
        ops->unmap_host(self->device->handle, self->came, SIDES * self->bytes, SL_MAP_PLAIN);
    if (self->there)
        ops->unmap(self->device->handle, self->there, SIDES * self->bytes, SL_MAP_PLAIN);
}

/* ---- products ---- */

typedef struct launch {
    bench *self;
    const product *it;
    uint32_t side;
} launch;

static sl_status run_product(void *argument)
{
    const launch *what = argument;
    const bench *self = what->self;
    unsigned char *base = self->there + what->side * self->bytes;
    sl_kernel run;
    sl_kernel_call call = {
        .attrs = &what->it->attrs,
        .workspace = base + what->it->workspace,
        .workers = self->device->workers,
        .library = self->device->library,
        .stream = self->device->ops->stream_native(self->device->streams[what->side].stream)};
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        if (what->it->bytes[i] > 0)
            call.operand[i] = base + what->it->offset[i];
    SL_TRY(sl_kernels_find(self->device->kernels, what->it->kind, &run));
    return run(&call);
}

static sl_status prepare(const bench *self)
{
    const sl_kernel_table *kernels = self->device->kernels;
    for (uint32_t p = 0; kernels->prepare && p < PRODUCTS; p++) {
        const sl_kernel_call shapes = {.attrs = &self->products[p].attrs};
        SL_TRY(kernels->prepare(self->device->library, self->products[p].kind, &shapes));
    }
    return SL_OK;
}

/* On side s product p + 7 s: so that different ones run at a time. The device of the cpu has one
 * pool of workers, which takes one product at a time. */
static sl_status issue_all(bench *self, uint32_t sides)
{
    const sl_device_ops *ops = self->device->ops;
    for (uint32_t s = 0; s < sides; s++)
        SL_TRY(ops->copy(self->device->streams[s].stream, 0, self->there + s * self->bytes,
                         self->sent, self->bytes));
    for (uint32_t p = 0; p < PRODUCTS; p++)
        for (uint32_t s = 0; s < sides; s++) {
            const launch what = {self, &self->products[(p + 7 * s) % PRODUCTS], s};
            SL_TRY(
                ops->launch(self->device->streams[s].stream, 0, run_product, &what, sizeof what));
        }
    for (uint32_t s = 0; s < sides; s++)
        SL_TRY(ops->copy(self->device->streams[s].stream, 0, self->came + s * self->bytes,
                         self->there + s * self->bytes, self->bytes));
    return SL_OK;
}

static sl_status run_all(bench *self, uint32_t sides)
{
    sl_status status = issue_all(self, sides);
    for (uint32_t s = 0; s < sides; s++) {
        const sl_status finished =
            self->device->ops->stream_finish(self->device->streams[s].stream);
        status = status == SL_OK ? finished : status;
    }
    return status;
}

static void compare(const bench *self, uint32_t round, uint32_t side)
{
    for (uint32_t p = 0; p < PRODUCTS && !*self->fault->text; p++) {
        const product *it = &self->products[p];
        for (uint32_t i = 0; i < SL_OPERAND_MAX && !*self->fault->text; i++)
            if (it->bytes[i] > 0 &&
                memcmp(self->alone + it->offset[i], self->came + side * self->bytes + it->offset[i],
                       it->bytes[i]) != 0)
                snprintf(self->fault->text, sizeof self->fault->text,
                         "%s in %s (rows %llu, in %llu, out %llu): %s has other bits on stream %u "
                         "of two, in round %u, than alone",
                         sl_op_info_of(it->kind)->name, sl_type_name((sl_type)it->attrs.type),
                         (unsigned long long)it->attrs.row_count, (unsigned long long)it->attrs.in,
                         (unsigned long long)it->attrs.out,
                         sl_op_info_of(it->kind)->operand[i].name, side + 1, round + 1);
    }
}

static bool is_late(const sl_products_args *args)
{
    return args->end_ns != 0 && sl_clock_now_ns() > args->end_ns;
}

static sl_status prove_type(const sl_products_args *args, sl_type type, sl_fault *fault,
                            uint64_t *products)
{
    bench self = {.device = args->device, .fault = fault};
    const uint32_t sides = args->device->workers ? 1 : SIDES;
    sl_status status = open_bench(&self, type);
    if (status == SL_OK)
        status = prepare(&self);
    if (status == SL_OK)
        status = run_all(&self, 1);
    if (status == SL_OK)
        memcpy(self.alone, self.came, self.bytes);
    for (uint32_t r = 0; r < args->rounds && status == SL_OK && !*fault->text && !is_late(args);
         r++) {
        status = run_all(&self, sides);
        for (uint32_t s = 0; s < sides && status == SL_OK; s++)
            compare(&self, r, s);
        *products += (uint64_t)sides * PRODUCTS;
    }
    close_bench(&self);
    return status;
}

sl_status sl_products_prove(const sl_products_args *args, sl_fault *out_fault,
                            uint64_t *out_products)
{
    *out_fault = (sl_fault){0};
    *out_products = 0;
    for (int t = 0; t < SL_TYPE_COUNT && !*out_fault->text; t++)
        SL_TRY(prove_type(args, (sl_type)t, out_fault, out_products));
    return SL_OK;
}
