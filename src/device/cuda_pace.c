/* How far the control thread may be ahead of a stream of the device.
 *
 * A stream of CUDA's takes about a thousand pieces of work that have not run. Who issues more waits
 * inside of that call until one has, and nothing says that calls of other threads get through
 * meanwhile. Threads of host streams make such calls, to learn whether the GPU is done; the stream
 * may be waiting for what they do next, and then nobody would ever go on. So no stream is filled:
 * one mark follows every PIECES pieces, and the control thread waits for the last mark but one
 * before it sets another, in a call that is made for waiting.
 *
 * Invariant: of a stream, less than 3 * PIECES pieces are issued and have not run. A piece is a
 * call, which may be several kernels, a copy, a record or a wait.
 */
#include "cuda_internal.h"

enum { PIECES = 64 };

/* The mark is as it was made until it is first set, which CUDA takes for passed. */
static sl_status await_mark(sl_device_stream *stream, cudaEvent_t mark)
{
    cudaError_t error = cudaEventQuery(mark);
    if (error == cudaErrorNotReady) {
        sl_cuda_forget();
        error = cudaEventSynchronize(mark);
        sl_cuda_times_tell(stream->device);
    }
    return error == cudaSuccess ? SL_OK : sl_cuda_fail(error, "waiting for the GPU", stream->name);
}

sl_status sl_cuda_pace_keep(sl_device_stream *stream)
{
    uint64_t number = stream->pieces++;
    if (number % PIECES > 0)
        return SL_OK;
    cudaEvent_t mark = stream->marks[number / PIECES % SL_CUDA_MARKS];
    SL_TRY(await_mark(stream, mark));
    SL_CUDA_TRY(stream->name, cudaEventRecord(mark, stream->stream));
    return SL_OK;
}

sl_status sl_cuda_pace_open(sl_device_stream *stream)
{
    for (int i = 0; i < SL_CUDA_MARKS; i++)
        SL_CUDA_TRY(stream->name,
                    cudaEventCreateWithFlags(&stream->marks[i],
                                             cudaEventDisableTiming | cudaEventBlockingSync));
    return SL_OK;
}

void sl_cuda_pace_close(sl_device_stream *stream)
{
    for (int i = 0; i < SL_CUDA_MARKS; i++) {
        if (stream->marks[i] && cudaEventDestroy(stream->marks[i]) != cudaSuccess)
            sl_cuda_forget();
    }
}
