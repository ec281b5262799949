/* A cluster that need not exist: what its file says of nodes, GPUs and what joins them.
 *
 * Knows the file and nothing of plans. Every rate is what a data sheet promises, times the share of
 * it that a program is taken to reach (`efficiency`); both stand in the file, so that a reader sees
 * which of them is a guess. Keys that no table names are refused, but for "source" and "comment",
 * which are for people and may stand in every object. A node of one GPU may lack `link` and
 * `network`: then it is a machine that stands alone.
 */
#ifndef SL_MACHINE_CLUSTER_FILE_H
#define SL_MACHINE_CLUSTER_FILE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "chunk/chunk.h"

/* One way between two places, in each direction. */
typedef struct sl_cluster_link {
    double byte_rate;  /* a second, as promised */
    double efficiency; /* of it that is reached, above 0, at most 1 */
    double seconds;    /* before the first byte arrives */
} sl_cluster_link;

/* Who adds up what ranks exchange, and so over which ways how many bytes go. */
typedef enum sl_cluster_sums {
    SL_CLUSTER_PAIRWISE, /* each rank sends each other one its share, as sluice does */
    SL_CLUSTER_RING      /* partial sums go round, as NCCL does */
} sl_cluster_sums;

/* A rank of a machine that is there, as plans know it: no file says it. */
typedef struct sl_cluster_rank {
    sl_machine machine;
    uint64_t budget[SL_TIER_COUNT];
    uint64_t shared_bytes; /* of device and host together; UINT64_MAX: each has its own */
} sl_cluster_rank;

typedef struct sl_cluster {
    const sl_cluster_rank *rank; /* borrowed; stands for the figures of a rank; NULL: these count */
    char name[64];
    uint32_t node_gpus;  /* GPUs of a node, one rank each */
    uint32_t node_cores; /* of its processors, shared by its ranks */
    uint64_t host_bytes; /* memory of a node */
    double host_byte_rate, host_efficiency;
    uint64_t device_bytes, reserved_bytes; /* of a GPU, and what of it is not for plans */
    double flop_rate[SL_TYPE_COUNT];       /* of matrix products, as promised; 0: no such type */
    double gemm_efficiency;                /* of it, of a product whose operands cost nothing */
    double byte_rate, byte_efficiency;     /* of a GPU's memory */
    double op_seconds;                     /* fixed cost of one op */
    sl_cluster_link host_link;             /* host and one GPU */
    sl_cluster_link link;    /* one GPU and the others of its node; byte_rate 0: there are none */
    sl_cluster_link network; /* a whole node and the others; byte_rate 0: there are none */
    uint64_t disk_bytes;     /* of a node's drives; 0: it has none */
    double disk_read_rate, disk_write_rate;
    uint32_t sums; /* an sl_cluster_sums */
} sl_cluster;

/* Reads a file. SL_ERROR_DATA names file, key and what is wrong; SL_ERROR_MISSING, SL_ERROR_IO,
 * SL_ERROR_SYSTEM. */
sl_status sl_cluster_load(const char *path, sl_cluster *out_cluster);

/* Whether the file at `path` is a description, by its first key, sound or not. Statuses as above.
 */
sl_status sl_cluster_recognise(const char *path, bool *out_is_description);

/* Whether the GPUs compute in that type: a description has a FLOP rate for each type they have. */
bool sl_cluster_has_type(const sl_cluster *cluster, sl_type type);

/* What stands in the file, without its words for people, as a new object. SL_ERROR_SYSTEM: no
 * memory. */
sl_status sl_cluster_format(const sl_cluster *cluster, json_t **out_object);

#endif
