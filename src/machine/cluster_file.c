/* The file of a cluster: rates are bytes or FLOPs a second, sizes bytes, costs seconds. */
#include "cluster_file.h"

#include <fcntl.h>
#include <string.h>

#include "base/nearest.h"
#include "files/fields.h"
#include "files/json_file.h"

enum { FORMAT = 1, FILE_BYTES_MAX = 1 << 20, NODE_GPUS_MAX = 1024, CORES_MAX = 65536 };

#define BYTES_MAX 0x1p50             /* a PiB, of one node */
#define RATE .low = 1, .high = 1e21  /* a second */
#define SHARE .low = 1e-3, .high = 1 /* of such a rate */
#define COST .low = 0, .high = 10    /* seconds */
#define SIZE_OF(name, member) SL_FIELD(name, sl_cluster, member, .low = 1, .high = BYTES_MAX)

static const sl_field node_fields[] = {
    SL_FIELD("gpus", sl_cluster, node_gpus, .low = 1, .high = NODE_GPUS_MAX),
    SL_FIELD("cores", sl_cluster, node_cores, .low = 1, .high = CORES_MAX),
    SIZE_OF("memory_bytes", host_bytes),
    SL_FIELD("byte_rate", sl_cluster, host_byte_rate, RATE),
    SL_FIELD("efficiency", sl_cluster, host_efficiency, SHARE),
    {0},
};

static const sl_field flop_rate = {.kind = SL_FIELD_F64, RATE, .flags = SL_FIELD_OPTIONAL};

static const sl_field gpu_fields[] = {
    SIZE_OF("memory_bytes", device_bytes),
    SL_FIELD("reserved_bytes", sl_cluster, reserved_bytes, .high = BYTES_MAX),
    SL_FIELD_AS(MAP, "flop_rate", sl_cluster, flop_rate, .names = "fp32|bf16|fp16",
                .stride = sizeof(double), .fields = &flop_rate, .flags = SL_FIELD_CLOSED),
    SL_FIELD("gemm_efficiency", sl_cluster, gemm_efficiency, SHARE),
    SL_FIELD("byte_rate", sl_cluster, byte_rate, RATE),
    SL_FIELD("byte_efficiency", sl_cluster, byte_efficiency, SHARE),
    SL_FIELD("op_seconds", sl_cluster, op_seconds, COST),
    {0},
};

static const sl_field link_fields[] = {
    SL_FIELD("byte_rate", sl_cluster_link, byte_rate, RATE),
    SL_FIELD("efficiency", sl_cluster_link, efficiency, SHARE),
    SL_FIELD("seconds", sl_cluster_link, seconds, COST),
    {0},
};

static const sl_field drive_fields[] = {
    SIZE_OF("bytes", disk_bytes),
    SL_FIELD("read_rate", sl_cluster, disk_read_rate, RATE),
    SL_FIELD("write_rate", sl_cluster, disk_write_rate, RATE),
    {0},
};

/* Objects whose members stand in the cluster itself begin where it does. */
#define PART(name, table, flag)                                                                    \
    {                                                                                              \
        .key = name, .kind = SL_FIELD_OBJECT, .fields = table, .flags = flag                       \
    }

static const sl_field cluster_fields[] = {
    SL_FIELD_AS(CHARS, "name", sl_cluster, name),
    PART("node", node_fields, 0),
    PART("gpu", gpu_fields, 0),
    SL_FIELD_AS(OBJECT, "host_link", sl_cluster, host_link, .fields = link_fields),
    SL_FIELD_AS(OBJECT, "link", sl_cluster, link, .fields = link_fields,
                .flags = SL_FIELD_OPTIONAL),
    SL_FIELD_AS(OBJECT, "network", sl_cluster, network, .fields = link_fields,
                .flags = SL_FIELD_OPTIONAL),
    PART("drives", drive_fields, SL_FIELD_OPTIONAL),
    SL_FIELD_AS(CHOICE, "sums", sl_cluster, sums, .names = "pairwise|ring",
                .flags = SL_FIELD_OPTIONAL),
    {0},
};

static const sl_field format_fields[] = {
    {.key = "sluice_cluster", .kind = SL_FIELD_U32, .low = FORMAT, .high = FORMAT},
    {0},
};

bool sl_cluster_has_type(const sl_cluster *cluster, sl_type type)
{
    return cluster->flop_rate[type] > 0;
}

/* ---- keys that mean nothing ---- */

static const sl_field *find_row(const sl_field *fields, const char *key)
{
    for (const sl_field *row = fields; row->key; row++)
        if (strcmp(row->key, key) == 0)
            return row;
    return NULL;
}

static bool is_for_people(const char *key)
{
    return strcmp(key, "source") == 0 || strcmp(key, "comment") == 0;
}

static sl_status refuse_key(const char *path, const sl_field *fields, const char *key)
{
    char hint[128];
    sl_nearest nearest = sl_nearest_start(key);
    for (const sl_field *row = fields; row->key; row++)
        sl_nearest_offer(&nearest, row->key);
    sl_nearest_format(&nearest, "", hint, sizeof hint);
    SL_FAIL(SL_ERROR_DATA, "%s: key \"%.64s\" means nothing here%s", path, key, hint);
}

/* `fields` and, on the first level, the format's key. */
static sl_status check_keys(const char *path, const json_t *object, const sl_field *fields,
                            const sl_field *also)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const sl_field *row = find_row(fields, key);
        if (!row && !is_for_people(key) && !(also && find_row(also, key)))
            SL_TRY(refuse_key(path, fields, key));
        if (row && row->kind == SL_FIELD_OBJECT && json_is_object(value))
            SL_TRY(check_keys(path, value, row->fields, NULL));
    }
    return SL_OK;
}

/* ---- reading and writing ---- */

static sl_status check_cluster(const char *path, const sl_cluster *cluster)
{
    if (!sl_cluster_has_type(cluster, SL_TYPE_FP32))
        SL_FAIL(SL_ERROR_DATA, "%s: gpu: flop_rate: fp32 is missing; every GPU has this type",
                path);
    if (cluster->reserved_bytes >= cluster->device_bytes)
        SL_FAIL(SL_ERROR_DATA, "%s: reserved_bytes leave nothing of a GPU's memory_bytes", path);
    if (cluster->node_gpus > 1 && (cluster->link.byte_rate <= 0 || cluster->network.byte_rate <= 0))
        SL_FAIL(SL_ERROR_DATA, "%s: key \"%s\" is missing; only a node of one GPU may lack it",
                path, cluster->link.byte_rate <= 0 ? "link" : "network");
    return SL_OK;
}

static sl_status read_cluster(const char *path, const json_t *root, sl_cluster *out_cluster)
{
    uint32_t format;
    sl_cluster cluster = {.sums = SL_CLUSTER_PAIRWISE};
    SL_TRY(sl_fields_read(path, root, format_fields, &format));
    SL_TRY(check_keys(path, root, cluster_fields, format_fields));
    SL_TRY(sl_fields_read(path, root, cluster_fields, &cluster));
    SL_TRY(check_cluster(path, &cluster));
    *out_cluster = cluster;
    return SL_OK;
}

sl_status sl_cluster_load(const char *path, sl_cluster *out_cluster)
{
    json_t *root = NULL;
    SL_TRY(sl_json_file_read(AT_FDCWD, NULL, path, FILE_BYTES_MAX, &root));
    sl_status status = read_cluster(path, root, out_cluster);
    json_decref(root);
    return status;
}

sl_status sl_cluster_recognise(const char *path, bool *out_is_description)
{
    json_t *root = NULL;
    SL_TRY(sl_json_file_read(AT_FDCWD, NULL, path, FILE_BYTES_MAX, &root));
    *out_is_description = json_object_get(root, format_fields[0].key) != NULL;
    json_decref(root);
    return SL_OK;
}

/* Removes the types that the GPUs lack: a file does not name them. */
static void remove_types(const sl_cluster *cluster, json_t *root)
{
    static const char *const names[SL_TYPE_COUNT] = {"fp32", "bf16", "fp16"}; /* as gpu_fields */
    json_t *rates = json_object_get(json_object_get(root, "gpu"), "flop_rate");
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        if (!sl_cluster_has_type(cluster, (sl_type)type))
            (void)json_object_del(rates, names[type]);
}

static sl_status fill_root(const sl_cluster *cluster, json_t *root)
{
    static const uint32_t format = FORMAT;
    SL_TRY(sl_fields_write(format_fields, &format, root));
    SL_TRY(sl_fields_write(cluster_fields, cluster, root));
    remove_types(cluster, root);
    if (cluster->link.byte_rate <= 0)
        (void)json_object_del(root, "link");
    if (cluster->network.byte_rate <= 0)
        (void)json_object_del(root, "network");
    if (cluster->disk_bytes == 0)
        (void)json_object_del(root, "drives");
    return SL_OK;
}

sl_status sl_cluster_format(const sl_cluster *cluster, json_t **out_object)
{
    json_t *root = json_object();
    sl_status status = fill_root(cluster, root);
    if (status != SL_OK) {
        json_decref(root);
        return status;
    }
    *out_object = root;
    return SL_OK;
}
