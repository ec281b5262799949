/* The declarations of src/comm/nccl.h against NCCL's own header, where there is one: compiled, and
 * never run. */
#include <nccl.h>
#include <stddef.h>

#include "comm/nccl.h"

#define SAME(a, b) _Static_assert((a) == (b), #a " is " #b)

SAME(sizeof(sl_nccl_id), sizeof(ncclUniqueId));
SAME((int)SL_NCCL_SUCCESS, (int)ncclSuccess);
SAME((int)SL_NCCL_IN_PROGRESS, (int)ncclInProgress);
SAME((int)SL_NCCL_INT8, (int)ncclInt8);
SAME(offsetof(sl_nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(sl_nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(sl_nccl_config, blocking), offsetof(ncclConfig_t, blocking));
_Static_assert(sizeof(sl_nccl_config) <= sizeof(ncclConfig_t), "a prefix of it");
SAME(sizeof(ncclResult_t), sizeof(int));
SAME(sizeof(ncclDataType_t), sizeof(int));
SAME(sizeof(ncclComm_t), sizeof(void *));

/* The calls with the arguments that are given to them. */
int sl_nccl_header_check(void);
int sl_nccl_header_check(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t error = ncclSuccess;
    cudaStream_t stream = NULL;
    char data[1];
    int sum = ncclGetUniqueId(&id) + ncclCommInitRankConfig(&comm, 2, id, 0, &config);
    sum += ncclCommGetAsyncError(comm, &error) + ncclCommFinalize(comm) + ncclCommDestroy(comm);
    sum += ncclCommAbort(comm) + ncclGroupStart() + ncclGroupEnd();
    sum += ncclSend(data, (size_t)1, ncclInt8, 1, comm, stream);
    sum += ncclRecv(data, (size_t)1, ncclInt8, 1, comm, stream);
    int version = 0;
    sum += ncclGetVersion(&version);
    return sum + (ncclGetErrorString(error) != NULL) + (config.magic != 0xcafebeef);
}
