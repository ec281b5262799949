/* Messages of CUDA's failures. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

sl_status sl_cuda_fail(cudaError_t error, const char *call, const char *lane)
{
    sl_cuda_forget();
    SL_FAIL(SL_ERROR_SYSTEM, "%.*s%s%s%s: %s (%s)", (int)strcspn(call, "("), call,
            lane ? " on the " : "", lane ? lane : "", lane ? " lane" : "",
            cudaGetErrorString(error), cudaGetErrorName(error));
}

void sl_cuda_forget(void)
{
    (void)cudaGetLastError();
}

bool sl_cuda_is_broken(sl_device *device)
{
    cudaError_t error = cudaStreamQuery(device->stream);
    if (error != cudaSuccess)
        sl_cuda_forget();
    return error != cudaSuccess && error != cudaErrorNotReady;
}

/* Writes "compute 12 to 40, h2d 7 to 9": calls and copies that nobody has seen end. */
static void list_suspects(const sl_device *device, char *out_text, size_t text_bytes)
{
    size_t used = 0;
    out_text[0] = '\0';
    for (const sl_device_stream *stream = device->streams; stream; stream = stream->next) {
        if (stream->issued == stream->known || used >= text_bytes)
            continue;
        int length =
            snprintf(out_text + used, text_bytes - used, "%s%s %" PRIu64 " to %" PRIu64,
                     used > 0 ? ", " : "", stream->name, stream->known + 1, stream->issued);
        used += length > 0 ? (size_t)length : 0;
    }
}

static bool launches_block(void)
{
    const char *text = getenv("CUDA_LAUNCH_BLOCKING");
    return text && strcmp(text, "1") == 0;
}

sl_status sl_cuda_explain(sl_device *device, sl_status status)
{
    char suspects[256], message[SL_CUDA_MESSAGE_BYTES];
    if (launches_block() || !sl_cuda_is_broken(device))
        return status;
    list_suspects(device, suspects, sizeof suspects);
    snprintf(message, sizeof message, "%s", sl_status_message());
    SL_FAIL(
        status,
        "%s; CUDA reports a failure late: it happened in one of the items issued since the last "
        "check (%s, counted from the start), and with CUDA_LAUNCH_BLOCKING=1 in the "
        "environment the op that fails is named",
        message, suspects[0] ? suspects : "none of ours");
}

sl_status sl_cuda_keep(sl_device_stream *stream, sl_status status)
{
    if (stream->status != SL_OK)
        return status;
    status = sl_cuda_explain(stream->device, status);
    snprintf(stream->message, sizeof stream->message, "%s", sl_status_message());
    stream->status = status;
    return status;
}
