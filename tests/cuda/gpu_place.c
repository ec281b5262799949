/* Slots of device memory that are kept as long as they have the right size. */
#include "gpu_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "shim_control.h"

enum { WORKSPACE = SL_OPERAND_MAX, FLAGS, KEYS, SLOT_COUNT };

typedef struct gpu_slot {
    void *memory;        /* on the device */
    uint64_t bytes;      /* guards included; 0: none */
    unsigned char *host; /* where its content comes from and goes to, guards included */
} gpu_slot;

typedef struct gpu_place {
    const sl_device_ops *ops;
    const sl_kernel_table *kernels;
    sl_device *device;
    sl_device_stream *stream;
    sl_kernel_library *library;
    unsigned char *staging;
    uint64_t staging_bytes;
    gpu_slot slots[SLOT_COUNT];
} gpu_place;

static gpu_place place;

/* On a GPU nobody chooses the order of threads: the runs of a case show that it does not matter. */
#ifdef SL_TEST_GPU_REAL
void sl_shim_choose_order(sl_shim_order order, uint64_t seed)
{
    (void)order, (void)seed;
}

uint64_t sl_shim_turn_count(void)
{
    return 0;
}
#endif

static sl_status open_parts(void)
{
    place.ops = sl_device_ops_of(SL_DEVICE_CUDA);
    place.kernels = sl_kernels_of(SL_DEVICE_CUDA);
    if (place.ops == NULL || place.kernels == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "this build has no CUDA");
    SL_TRY(place.ops->open(0, NULL, &place.device));
    SL_TRY(place.ops->stream_open(place.device, SL_STREAM_DEVICE, "test", NULL, &place.stream));
    return place.kernels->open(0, NULL, &place.library);
}

bool gpu_place_open(void)
{
    if (open_parts() == SL_OK)
        return true;
    fprintf(stderr, "skipped: no GPU opens here: %s\n", sl_status_message());
    return false;
}

static void drop_slot(gpu_slot *slot)
{
    if (slot->bytes > 0)
        place.ops->unmap(place.device, slot->memory, slot->bytes, SL_MAP_PLAIN);
    *slot = (gpu_slot){0};
}

void gpu_place_close(void)
{
    for (int i = 0; i < SLOT_COUNT; i++)
        drop_slot(&place.slots[i]);
    if (place.staging_bytes > 0)
        place.ops->unmap_host(place.device, place.staging, place.staging_bytes, SL_MAP_PLAIN);
    place.kernels->close(place.library);
    place.ops->stream_close(place.stream);
    place.ops->close(place.device);
    place = (gpu_place){0};
}

/* ---- copies, each through locked memory, and waited for ---- */

static sl_status take_staging(uint64_t bytes)
{
    if (bytes <= place.staging_bytes)
        return SL_OK;
    if (place.staging_bytes > 0)
        place.ops->unmap_host(place.device, place.staging, place.staging_bytes, SL_MAP_PLAIN);
    place.staging_bytes = 0;
    SL_TRY(place.ops->map_host(place.device, bytes, SL_MAP_PLAIN, (void **)&place.staging));
    place.staging_bytes = bytes;
    return SL_OK;
}

static sl_status send(const gpu_slot *slot)
{
    SL_TRY(take_staging(slot->bytes));
    memcpy(place.staging, slot->host, slot->bytes);
    SL_TRY(place.ops->copy(place.stream, 0, slot->memory, place.staging, slot->bytes));
    return place.ops->stream_finish(place.stream);
}

static sl_status fetch(const gpu_slot *slot)
{
    SL_TRY(place.ops->copy(place.stream, 0, place.staging, slot->memory, slot->bytes));
    SL_TRY(place.ops->stream_finish(place.stream));
    memcpy(slot->host, place.staging, slot->bytes);
    return SL_OK;
}

/* ---- one call ---- */

/* A tool watches what is read and written. */
static bool is_watched(void)
{
    return getenv("SL_TEST_SANITIZER") != NULL;
}

/* Writes the device's address of the range that starts at `host`, behind its guard. */
static sl_status place_stretch(gpu_slot *slot, const void *host, uint64_t bytes,
                               uint64_t guard_bytes, void **out_address)
{
    const uint64_t whole = bytes + 2 * guard_bytes;
    if (slot->bytes != whole)
        drop_slot(slot);
    if (slot->bytes == 0)
        SL_TRY(place.ops->map(place.device, whole, SL_MAP_PLAIN, &slot->memory));
    slot->bytes = whole;
    slot->host = (unsigned char *)host - guard_bytes;
    *out_address = (unsigned char *)slot->memory + guard_bytes;
    return send(slot);
}

/* What nobody has written yet, for a tool that sees who reads it. */
static sl_status place_watched_workspace(gpu_slot *slot, uint64_t bytes, void **out_address)
{
    drop_slot(slot);
    SL_TRY(place.ops->map(place.device, bytes, SL_MAP_PLAIN, &slot->memory));
    slot->bytes = bytes;
    *out_address = slot->memory;
    return SL_OK;
}

/* The flags of all blocks up to the chunk's last. */
static uint64_t find_flag_bytes(const sl_op_attrs *attrs)
{
    return attrs->first_block + (attrs->element_count + SL_BLOCK_ELEMENTS - 1) / SL_BLOCK_ELEMENTS;
}

static sl_status place_call(sl_kernel_call *call, const uint64_t *operand_bytes,
                            uint64_t workspace_bytes, uint64_t guard_bytes, bool used[SLOT_COUNT])
{
    void *flags, *keys;
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        if (call->operand[i] != NULL && operand_bytes[i] > 0) {
            SL_TRY(place_stretch(&place.slots[i], call->operand[i], operand_bytes[i], guard_bytes,
                                 &call->operand[i]));
            used[i] = true;
        }
    if (workspace_bytes > 0 && is_watched()) {
        SL_TRY(place_watched_workspace(&place.slots[WORKSPACE], workspace_bytes, &call->workspace));
    } else if (workspace_bytes > 0) {
        SL_TRY(place_stretch(&place.slots[WORKSPACE], call->workspace, workspace_bytes, guard_bytes,
                             &call->workspace));
        used[WORKSPACE] = true;
    }
    if (call->block_flags != NULL) {
        SL_TRY(place_stretch(&place.slots[FLAGS], call->block_flags, find_flag_bytes(call->attrs),
                             0, &flags));
        call->block_flags = flags;
    }
    if (call->block_keys != NULL) {
        SL_TRY(place_stretch(&place.slots[KEYS], call->block_keys,
                             find_flag_bytes(call->attrs) * sizeof *call->block_keys, 0, &keys));
        call->block_keys = keys;
    }
    return SL_OK;
}

typedef struct gpu_launch {
    sl_kernel run;
    const sl_kernel_call *call;
} gpu_launch;

static sl_status launch(void *arguments)
{
    const gpu_launch *what = arguments;
    return what->run(what->call);
}

sl_status gpu_place_run(sl_op_kind kind, sl_kernel run, const sl_kernel_call *call,
                        const uint64_t operand_bytes[SL_OPERAND_MAX], uint64_t workspace_bytes,
                        uint64_t guard_bytes)
{
    sl_kernel_call there = *call;
    bool used[SLOT_COUNT] = {false};
    if (is_watched())
        guard_bytes = 0;
    if (there.library == NULL)
        there.library = place.library;
    const sl_kernel_call shapes = {.attrs = call->attrs};
    SL_TRY(place.kernels->prepare(there.library, kind, &shapes));
    SL_TRY(place_call(&there, operand_bytes, workspace_bytes, guard_bytes, used));
    there.stream = place.ops->stream_native(place.stream);
    const gpu_launch what = {run, &there};
    SL_TRY(place.ops->launch(place.stream, 0, launch, &what, sizeof what));
    SL_TRY(place.ops->stream_finish(place.stream));
    for (int i = 0; i < SLOT_COUNT; i++)
        if (used[i])
            SL_TRY(fetch(&place.slots[i]));
    return SL_OK;
}
