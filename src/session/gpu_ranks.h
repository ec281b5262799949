/* The GPUs of a run's ranks: one a rank, by its place on its machine, and communicators of NCCL
 * over them, one for each set of ranks that the lane `comm` exchanges with. Knows of the engine
 * only the table that it asks (sl_engine_ranks), and of kernels those of collectives.
 *
 * They are opened before anything is planned, so that what NCCL takes of a GPU's memory is no
 * longer free when the arena is sized; it is outside of the plan, and told.
 */
#ifndef SL_SESSION_GPU_RANKS_H
#define SL_SESSION_GPU_RANKS_H

#include "comm/comm.h"
#include "device/device.h"
#include "engine/engine.h"
#include "sluice/device.h"

typedef struct sl_gpu_ranks sl_gpu_ranks;

enum { SL_GPU_GROUPS = 3 }; /* that tensors, rows and layers are shared among */

/* One set of ranks: its end that was split off the world, and where its table goes, which has a
 * `post` and its `user`. */
typedef struct sl_gpu_group {
    sl_comm *comm; /* NULL: there is no such set */
    const char *name;
    sl_engine_ranks *table; /* becomes one of device memory */
} sl_gpu_group;

typedef struct sl_gpu_ranks_args {
    sl_comm *world;
    int device_index; /* of the configuration: local rank 0's */
    sl_cuda_options cuda;
    double timeout_s;
    sl_gpu_group groups[SL_GPU_GROUPS]; /* in one order on all ranks */
} sl_gpu_ranks_args;

/* Which GPU this rank computes on: local rank r has number `first` + r. SL_ERROR_USAGE: the machine
 * has fewer. All ranks call it together. */
sl_status sl_gpu_ranks_choose(sl_comm *world, int first, int *out_index);

/* Opens this rank's GPU and all communicators; all ranks of the world call it together. A table
 * stays valid until the close. SL_ERROR_SYSTEM: no NCCL; others: as of nccl.h. */
sl_status sl_gpu_ranks_open(const sl_gpu_ranks_args *args, sl_gpu_ranks **out_gpus);

/* Behind the engine. NULL is fine. */
void sl_gpu_ranks_close(sl_gpu_ranks *gpus);

void sl_gpu_ranks_set_timeout(sl_gpu_ranks *gpus, double timeout_s);

/* This rank's GPU, and the stream in which the communicators met: for work before the engine opens.
 */
typedef struct sl_gpu_ranks_place {
    const sl_device_ops *ops;
    sl_device *device;
    sl_device_stream *stream;
} sl_gpu_ranks_place;

sl_gpu_ranks_place sl_gpu_ranks_place_of(const sl_gpu_ranks *gpus);

/* What opening took of the GPU's memory, as CUDA counts it. */
uint64_t sl_gpu_ranks_taken_bytes(const sl_gpu_ranks *gpus);

/* This rank's part of the windows through which ranks agree beside NCCL: of memory that no tier has
 * (sl_comm_share_bytes). */
uint64_t sl_gpu_ranks_share_bytes(const sl_gpu_ranks *gpus);

#endif
