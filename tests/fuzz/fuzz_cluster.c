/* A described cluster. What is accepted has rates that can be divided by, leaves memory of a GPU,
 * and is written and read again the same; 17 digits are kept of a number. */
#define _GNU_SOURCE
#include <math.h>

#include "fuzz.h"
#include "machine/cluster_file.h"

static void check_link(const sl_cluster_link *link)
{
    FUZZ_NEED(link->byte_rate >= 1 && isfinite(link->byte_rate));
    FUZZ_NEED(link->efficiency > 0 && link->efficiency <= 1);
    FUZZ_NEED(link->seconds >= 0 && link->seconds <= 10);
}

static void check_cluster(const sl_cluster *cluster)
{
    check_link(&cluster->host_link);
    if (cluster->node_gpus > 1 || cluster->link.byte_rate != 0)
        check_link(&cluster->link);
    if (cluster->node_gpus > 1 || cluster->network.byte_rate != 0)
        check_link(&cluster->network);
    FUZZ_NEED(sl_cluster_has_type(cluster, SL_TYPE_FP32));
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        FUZZ_NEED(!sl_cluster_has_type(cluster, (sl_type)type) ||
                  (cluster->flop_rate[type] >= 1 && isfinite(cluster->flop_rate[type])));
    FUZZ_NEED(cluster->gemm_efficiency > 0 && cluster->byte_efficiency > 0);
    FUZZ_NEED(cluster->host_byte_rate >= 1 && cluster->byte_rate >= 1);
    FUZZ_NEED(cluster->node_gpus >= 1 && cluster->node_cores >= 1);
    FUZZ_NEED(cluster->reserved_bytes < cluster->device_bytes);
    FUZZ_NEED(cluster->disk_bytes == 0 ||
              (cluster->disk_read_rate >= 1 && cluster->disk_write_rate >= 1));
    FUZZ_NEED(cluster->sums <= SL_CLUSTER_RING);
    FUZZ_NEED(memchr(cluster->name, '\0', sizeof cluster->name) != NULL);
}

static bool rewrite(sl_cluster *cluster)
{
    json_t *object = NULL;
    if (!fuzz_succeeds(sl_cluster_format(cluster, &object)))
        return false;
    char *text = json_dumps(object, JSON_REAL_PRECISION(17));
    json_decref(object);
    if (!text)
        return false;
    const scratch_path path = fuzz_write("again.json", (const uint8_t *)text, strlen(text));
    free(text);
    return fuzz_succeeds(sl_cluster_load(path.text, cluster));
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_cluster cluster, second;
    const scratch_path path = fuzz_write("cluster.json", data, bytes);
    if (!fuzz_accepts(sl_cluster_load(path.text, &cluster)))
        return;
    check_cluster(&cluster);
    if (!rewrite(&cluster))
        return;
    memcpy(&second, &cluster, sizeof second);
    if (rewrite(&cluster))
        FUZZ_NEED(memcmp(&second, &cluster, sizeof second) == 0);
}
