/* What a disk may hold after a power failure. A trace records what saves do to files and names; a
 * state is what is left of the calls before some moment.
 *
 * What is certain: writes before an fsync of their file, and names that were made, renamed or
 * unlinked before an fsync of their directory. Everything else is dropped or kept one by one, in
 * any combination: so later calls may be there without earlier ones. A write may also be torn: cut
 * or with holes, at 512 or 4096 bytes; a file that was reserved is zeros where nothing was written.
 * That is more than journalling file systems allow. Renames are atomic, as POSIX has it.
 *
 * To be included once in a test program, after faulty_calls.h.
 */
#ifndef SL_TESTS_CRASH_MODEL_H
#define SL_TESTS_CRASH_MODEL_H

#include <sys/mman.h>

#include "base/hash.h"
#include "faulty_calls.h"
#include "scratch_dir.h"

enum {
    CRASH_OPS_MAX = 3000,
    CRASH_NODES_MAX = 1000,
    CRASH_NAME_BYTES = 64,
    CRASH_ENTRIES_MAX = 64,
    CRASH_FILE_BYTES = 1 << 16,
    CRASH_BLOB_BYTES = 8 << 20
};

typedef enum crash_kind {
    CRASH_WRITE,    /* node: the file */
    CRASH_GROW,     /* to `bytes`, if it is smaller */
    CRASH_CUT,      /* to nothing */
    CRASH_SYNC,     /* node: a file or a directory */
    CRASH_BIND,     /* node: the directory; name: target */
    CRASH_UNBIND,   /* name */
    CRASH_RENAME,   /* name goes, to: target */
    CRASH_EXCHANGE, /* name: other, to: target */
    CRASH_BEGIN,    /* of save number `target` */
    CRASH_RETURN    /* of save number `target`, which said that all was well */
} crash_kind;

typedef struct crash_op {
    crash_kind kind;
    uint32_t node, target, other;
    char name[CRASH_NAME_BYTES], to[CRASH_NAME_BYTES];
    uint64_t offset, bytes, data; /* data: where in the blob */
} crash_op;

typedef struct crash_node {
    uint64_t device, inode;
    int is_directory;
} crash_node;

/* Node 0 is the directory above all. */
typedef struct crash_trace {
    uint32_t op_count, node_count;
    uint64_t blob_bytes;
    crash_op ops[CRASH_OPS_MAX];
    crash_node nodes[CRASH_NODES_MAX];
    unsigned char blob[CRASH_BLOB_BYTES];
} crash_trace;

/* ---- recording ---- */

static crash_trace *crash_recorder; /* shared with child processes */

static inline crash_trace *crash_open(void)
{
    crash_trace *trace = mmap(NULL, sizeof *trace, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    scratch_need(trace != MAP_FAILED, "memory for a trace");
    return trace;
}

static inline void crash_close(crash_trace *trace)
{
    munmap(trace, sizeof *trace);
}

static inline crash_op *crash_add(crash_kind kind, uint32_t node)
{
    scratch_need(crash_recorder->op_count < CRASH_OPS_MAX, "a trace is full");
    crash_op *op = &crash_recorder->ops[crash_recorder->op_count++];
    *op = (crash_op){.kind = kind, .node = node};
    return op;
}

static inline uint32_t crash_add_node(const struct stat *info)
{
    scratch_need(crash_recorder->node_count < CRASH_NODES_MAX, "a trace is full");
    crash_recorder->nodes[crash_recorder->node_count] =
        (crash_node){info->st_dev, info->st_ino, S_ISDIR(info->st_mode)};
    return crash_recorder->node_count++;
}

/* The newest node with this inode: numbers are used again. */
static inline uint32_t crash_find_node(const struct stat *info)
{
    for (uint32_t i = crash_recorder->node_count; i-- > 0;)
        if (crash_recorder->nodes[i].inode == info->st_ino &&
            crash_recorder->nodes[i].device == info->st_dev)
            return i;
    scratch_need(0, "a call on a file that was there before the trace");
    return 0;
}

static inline uint32_t crash_node_of_fd(int fd)
{
    struct stat info;
    scratch_need(fstat(fd, &info) == 0, "fstat");
    return crash_find_node(&info);
}

static inline struct stat crash_stat(int directory, const char *name)
{
    struct stat info;
    scratch_need(fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0, name);
    return info;
}

static inline const char *crash_last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The directory of a name: `fd`, or where the path leads. */
static inline uint32_t crash_parent(const fault_call *call)
{
    if (call->fd != AT_FDCWD)
        return crash_node_of_fd(call->fd);
    char parent[SCRATCH_PATH_BYTES];
    snprintf(parent, sizeof parent, "%.*s", (int)(crash_last_part(call->name) - call->name - 1),
             call->name);
    struct stat info = crash_stat(AT_FDCWD, parent);
    return crash_find_node(&info);
}

static inline void crash_listen_rename(const fault_call *call)
{
    bool swaps = (call->flags & RENAME_EXCHANGE) != 0;
    crash_op *op = crash_add(swaps ? CRASH_EXCHANGE : CRASH_RENAME, crash_parent(call));
    struct stat info = crash_stat(call->fd, call->to);
    op->target = crash_find_node(&info);
    if (swaps)
        info = crash_stat(call->fd, call->name);
    op->other = crash_find_node(&info);
    snprintf(op->name, sizeof op->name, "%s", call->name);
    snprintf(op->to, sizeof op->to, "%s", call->to);
}

static inline void crash_listen_name(const fault_call *call)
{
    bool goes = call->kind == FAULT_CALL_UNLINK;
    crash_op *op = crash_add(goes ? CRASH_UNBIND : CRASH_BIND, crash_parent(call));
    snprintf(op->name, sizeof op->name, "%s", crash_last_part(call->name));
    if (goes)
        return;
    struct stat info = crash_stat(call->fd, call->name);
    op->target = crash_add_node(&info);
}

static inline void crash_listen_write(const fault_call *call)
{
    crash_op *op = crash_add(CRASH_WRITE, crash_node_of_fd(call->fd));
    scratch_need(crash_recorder->blob_bytes + call->bytes <= CRASH_BLOB_BYTES, "a trace is full");
    op->offset = call->offset;
    op->bytes = call->bytes;
    op->data = crash_recorder->blob_bytes;
    memcpy(crash_recorder->blob + op->data, call->data, call->bytes);
    crash_recorder->blob_bytes += call->bytes;
}

static inline void crash_listen(const fault_call *call)
{
    switch (call->kind) {
    case FAULT_CALL_WRITE:
        crash_listen_write(call);
        break;
    case FAULT_CALL_RESERVE:
        crash_add(CRASH_GROW, crash_node_of_fd(call->fd))->bytes = call->bytes;
        break;
    case FAULT_CALL_SYNC:
        crash_add(CRASH_SYNC, crash_node_of_fd(call->fd));
        break;
    case FAULT_CALL_RENAME:
        crash_listen_rename(call);
        break;
    default:
        crash_listen_name(call);
    }
}

/* Starts an empty trace of what happens below `root`. */
static inline void crash_record(crash_trace *trace, const char *root)
{
    struct stat info = crash_stat(AT_FDCWD, root);
    trace->op_count = trace->node_count = 0;
    trace->blob_bytes = 0;
    crash_recorder = trace;
    crash_add_node(&info);
}

/* ---- states ---- */

typedef enum crash_fate { CRASH_DROPPED, CRASH_KEPT, CRASH_TORN_TAIL, CRASH_TORN_HOLES } crash_fate;

typedef struct crash_choice {
    crash_fate fate;
    uint32_t unit; /* 512 or 4096 */
    uint64_t draw; /* where it is torn */
} crash_choice;

typedef struct crash_item {
    char path[3 * CRASH_NAME_BYTES];
    int is_directory;
    uint64_t first, bytes; /* in the buffer */
} crash_item;

/* What can be reached from the root. */
typedef struct crash_state {
    uint32_t item_count;
    crash_item items[CRASH_ENTRIES_MAX * 6];
    uint64_t used;
    unsigned char buffer[CRASH_ENTRIES_MAX * CRASH_FILE_BYTES];
} crash_state;

static inline int crash_is_durable_kind(crash_kind kind)
{
    return kind != CRASH_SYNC && kind != CRASH_BEGIN && kind != CRASH_RETURN;
}

/* Writes to `out_ops` which calls before `end` no fsync before `end` covers. */
static inline uint32_t crash_list_unsynced(const crash_trace *trace, uint32_t end,
                                           uint32_t *out_ops)
{
    static unsigned char is_synced[CRASH_NODES_MAX];
    uint32_t count = 0;
    memset(is_synced, 0, sizeof is_synced);
    for (uint32_t i = end; i-- > 0;) {
        const crash_op *op = &trace->ops[i];
        if (op->kind == CRASH_SYNC)
            is_synced[op->node] = 1;
        else if (crash_is_durable_kind(op->kind) && !is_synced[op->node])
            out_ops[count++] = i;
    }
    for (uint32_t i = 0; i < count / 2; i++) { /* in the order of the trace */
        uint32_t kept = out_ops[i];
        out_ops[i] = out_ops[count - 1 - i];
        out_ops[count - 1 - i] = kept;
    }
    return count;
}

typedef struct crash_entry {
    char name[CRASH_NAME_BYTES];
    uint32_t target;
} crash_entry;

typedef struct crash_directory {
    crash_entry entries[CRASH_ENTRIES_MAX];
    uint32_t count;
} crash_directory;

static inline void crash_unbind(crash_directory *directory, const char *name)
{
    for (uint32_t i = 0; i < directory->count; i++)
        if (strcmp(directory->entries[i].name, name) == 0)
            directory->entries[i--] = directory->entries[--directory->count];
}

static inline void crash_bind(crash_directory *directory, const char *name, uint32_t target)
{
    crash_unbind(directory, name);
    scratch_need(directory->count < CRASH_ENTRIES_MAX, "too many names");
    crash_entry *entry = &directory->entries[directory->count++];
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->target = target;
}

static inline void crash_apply_name(const crash_op *op, crash_directory *directory)
{
    crash_unbind(directory, op->name);
    if (op->kind == CRASH_BIND)
        crash_bind(directory, op->name, op->target);
    if (op->kind == CRASH_EXCHANGE)
        crash_bind(directory, op->name, op->other);
    if (op->kind == CRASH_EXCHANGE || op->kind == CRASH_RENAME)
        crash_bind(directory, op->to, op->target);
}

/* The names in one directory. `choices` has one for every call of the trace. */
static inline void crash_list_names(const crash_trace *trace, uint32_t end,
                                    const crash_choice *choices, uint32_t node,
                                    crash_directory *out_directory)
{
    out_directory->count = 0;
    for (uint32_t i = 0; i < end; i++)
        if (trace->ops[i].node == node && trace->ops[i].kind >= CRASH_BIND &&
            trace->ops[i].kind <= CRASH_EXCHANGE && choices[i].fate != CRASH_DROPPED)
            crash_apply_name(&trace->ops[i], out_directory);
}

/* Copies those units of a write that its fate leaves. */
static inline void crash_apply_write(const crash_trace *trace, const crash_op *op,
                                     const crash_choice *choice, unsigned char *data)
{
    uint64_t unit = choice->unit ? choice->unit : 512, end = op->offset + op->bytes;
    uint64_t units = (end - 1) / unit - op->offset / unit + 1;
    for (uint64_t first = op->offset, u = 0; first < end; u++) {
        uint64_t next = (first / unit + 1) * unit;
        uint64_t bytes = (next < end ? next : end) - first;
        int is_kept = choice->fate == CRASH_KEPT ||
                      (choice->fate == CRASH_TORN_TAIL && u < choice->draw % units) ||
                      (choice->fate == CRASH_TORN_HOLES && (choice->draw >> u % 64 & 1));
        if (is_kept)
            memcpy(data + first, trace->blob + op->data + (first - op->offset), bytes);
        first += bytes;
    }
}

/* The content of one file into `data`; returns its size. */
static inline uint64_t crash_read_file(const crash_trace *trace, uint32_t end,
                                       const crash_choice *choices, uint32_t node,
                                       unsigned char *data)
{
    uint64_t bytes = 0;
    memset(data, 0, CRASH_FILE_BYTES);
    for (uint32_t i = 0; i < end; i++) {
        const crash_op *op = &trace->ops[i];
        if (op->node != node || choices[i].fate == CRASH_DROPPED || op->kind > CRASH_CUT)
            continue;
        uint64_t reached = op->kind == CRASH_WRITE ? op->offset + op->bytes : op->bytes;
        scratch_need(reached <= CRASH_FILE_BYTES, "a file is too large for the model");
        if (op->kind == CRASH_CUT) {
            memset(data, 0, CRASH_FILE_BYTES);
            bytes = 0;
        } else if (reached > bytes) {
            bytes = reached;
        }
        if (op->kind == CRASH_WRITE)
            crash_apply_write(trace, op, &choices[i], data);
    }
    return bytes;
}

static inline int crash_compare_entries(const void *a, const void *b)
{
    return strcmp(((const crash_entry *)a)->name, ((const crash_entry *)b)->name);
}

/* Builds the state at `end`, level by level. */
static inline void crash_build(const crash_trace *trace, uint32_t end, const crash_choice *choices,
                               crash_state *out_state)
{
    static uint32_t nodes[CRASH_ENTRIES_MAX * 6];
    static crash_directory directory;
    out_state->item_count = 1;
    out_state->used = 0;
    out_state->items[0] = (crash_item){.path = ".", .is_directory = 1};
    nodes[0] = 0;
    for (uint32_t i = 0; i < out_state->item_count; i++) {
        crash_item *item = &out_state->items[i];
        if (!item->is_directory) {
            scratch_need(out_state->used + CRASH_FILE_BYTES <= sizeof out_state->buffer,
                         "a state is too large");
            item->first = out_state->used;
            item->bytes =
                crash_read_file(trace, end, choices, nodes[i], out_state->buffer + out_state->used);
            out_state->used += item->bytes;
            continue;
        }
        char parent[sizeof item->path]; /* for snprintf may not read where it writes */
        memcpy(parent, item->path, sizeof parent);
        crash_list_names(trace, end, choices, nodes[i], &directory);
        qsort(directory.entries, directory.count, sizeof directory.entries[0],
              crash_compare_entries);
        for (uint32_t k = 0; k < directory.count; k++) {
            crash_item *child = &out_state->items[out_state->item_count];
            nodes[out_state->item_count++] = directory.entries[k].target;
            *child = (crash_item){.is_directory =
                                      trace->nodes[directory.entries[k].target].is_directory};
            snprintf(child->path, sizeof child->path, "%.120s/%s", parent,
                     directory.entries[k].name);
        }
    }
}

static inline uint64_t crash_hash(const crash_state *state)
{
    sl_hash_value content = sl_hash_128(state->buffer, state->used);
    uint64_t hash = content.low;
    for (uint32_t i = 0; i < state->item_count; i++) {
        const crash_item *item = &state->items[i];
        sl_hash_value name = sl_hash_128(item->path, strlen(item->path));
        hash = (hash ^ name.low) * 0x9E3779B97F4A7C15ull + item->bytes;
    }
    return hash;
}

/* Makes the state in an empty directory. */
static inline void crash_write(const crash_state *state, const char *root)
{
    for (uint32_t i = 1; i < state->item_count; i++) {
        const crash_item *item = &state->items[i];
        scratch_path path = scratch_join(root, item->path);
        if (item->is_directory) {
            scratch_need(mkdir(path.text, 0700) == 0, path.text);
            continue;
        }
        int fd = open(path.text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        scratch_need(fd >= 0, path.text);
        scratch_need(write(fd, state->buffer + item->first, item->bytes) == (ssize_t)item->bytes,
                     path.text);
        close(fd);
    }
}

#endif
