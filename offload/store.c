/* Opens the disk store: files, checksums, and one pipe per lane over the first transport that
 * works. */
#define _GNU_SOURCE /* strdup */

#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "store_file.h"
#include "store_pipe.h"
#include "store_sums.h"
#include "transport.h"

enum {
    DEPTH_DEFAULT = 32,
    DEPTH_MAX = 1024,
    MEMORY_UNIT = 512, /* file unit if a transport owns the files: the smallest sector of a disk */
    LIMIT_DEFAULT_MS = 120000,
    WAITS_A_LIMIT = 16, /* a wait lasts a 16th of the limit of a request at most, and at most: */
    WAIT_MOST_MS = 1000,
    PROBE_DEPTH = 2,
    WORDS_BYTES = 256
};

struct sl_store {
    uint64_t bytes;
    uint32_t depth, limit_ms;
    char *directories; /* their names, for messages */
    sl_store_file *files;
    int *descriptors;
    uint32_t file_count; /* opened so far */
    sl_store_sums *sums;
    sl_store_pipe *pipes[SL_STORE_LANE_COUNT];
    char *description;
};

/* ---- ways to the disks ---- */

/* The transports in the order of preference. */
static const sl_transport_ops *const transports[] = {&sl_transport_uring, &sl_transport_threads};

enum { TRANSPORT_COUNT = sizeof transports / sizeof transports[0] };

const char *sl_store_probe(void)
{
    static _Thread_local char words[WORDS_BYTES];
    int no_file = -1;
    sl_transport_options options = {
        .files = &no_file, .file_count = 1, .depth = PROBE_DEPTH, .wait_ms = WAIT_MOST_MS};
    sl_transport *transport;
    if (sl_transport_uring.open(&options, &transport) == SL_OK) {
        sl_transport_uring.close(transport);
        snprintf(words, sizeof words, "%s", sl_transport_uring.name);
    } else {
        snprintf(words, sizeof words, "%s (%s: %s)", sl_transport_threads.name,
                 sl_transport_uring.name, sl_status_message());
    }
    return words;
}

/* Opens a pipe over its own transport, which becomes the sibling of the next one. */
static sl_status open_pipe(const sl_store *store, const sl_transport_ops *ops,
                           sl_transport_options *options, sl_store_lane lane,
                           sl_store_pipe **out_pipe)
{
    sl_store_pipe_options pipe_options = {.ops = ops,
                                          .files = store->files,
                                          .file_count = store->file_count,
                                          .sums = store->sums,
                                          .depth = store->depth,
                                          .limit_ms = store->limit_ms,
                                          .wait_ms = options->wait_ms,
                                          .lane = lane};
    SL_TRY(ops->open(options, &pipe_options.transport));
    sl_status status = sl_store_pipe_open(&pipe_options, out_pipe);
    if (status != SL_OK)
        ops->close(pipe_options.transport);
    options->sibling = pipe_options.transport;
    return status;
}

/* Returns how many requests were abandoned. */
static uint32_t close_pipes(sl_store *store)
{
    uint32_t abandoned_count = 0;
    for (int lane = 0; lane < SL_STORE_LANE_COUNT; lane++) {
        abandoned_count += sl_store_pipe_close(store->pipes[lane]);
        store->pipes[lane] = NULL;
    }
    return abandoned_count;
}

static uint32_t find_wait_ms(uint32_t limit_ms)
{
    uint32_t share_ms = sl_bits_divide_up(limit_ms, WAITS_A_LIMIT);
    return share_ms < WAIT_MOST_MS ? share_ms : WAIT_MOST_MS;
}

static bool has_cached_file(const sl_store *store)
{
    bool is_cached = false;
    for (uint32_t i = 0; i < store->file_count; i++)
        is_cached = is_cached || !store->files[i].is_direct;
    return is_cached;
}

static sl_status open_pipes(sl_store *store, const sl_transport_ops *ops,
                            const sl_store_options *options)
{
    sl_transport_options transport_options = {
        .files = ops->owns_files ? NULL : store->descriptors,
        .file_count = store->file_count,
        .file_bytes =
            sl_bits_divide_up(options->bytes, (uint64_t)SL_STORE_PIECE_BYTES * store->file_count) *
            SL_STORE_PIECE_BYTES,
        .is_cached = has_cached_file(store),
        .depth = store->depth,
        .wait_ms = find_wait_ms(store->limit_ms),
        .buffer = options->buffer,
        .buffer_bytes = options->buffer_bytes};
    sl_status status = SL_OK;
    for (int lane = 0; lane < SL_STORE_LANE_COUNT && status == SL_OK; lane++)
        status =
            open_pipe(store, ops, &transport_options, (sl_store_lane)lane, &store->pipes[lane]);
    if (status != SL_OK)
        (void)close_pipes(store);
    return status;
}

/* ---- the description ---- */

/* Appends `word` after ", ". */
static void append_word(char *text, size_t bytes, const char *word)
{
    size_t length = strlen(text);
    if (word[0] != '\0')
        snprintf(text + length, bytes - length, "%s%s", length > 0 ? ", " : "", word);
}

/* Appends the notes of both lanes' transports; once if they are equal. */
static void append_notes(const sl_store *store, char *text, size_t bytes)
{
    const char *read = sl_store_pipe_note(store->pipes[SL_STORE_READ]);
    const char *write = sl_store_pipe_note(store->pipes[SL_STORE_WRITE]);
    char words[WORDS_BYTES];
    if (strcmp(read, write) == 0) {
        append_word(text, bytes, read);
        return;
    }
    snprintf(words, sizeof words, "reading: %.100s", read);
    append_word(text, bytes, words);
    snprintf(words, sizeof words, "writing: %.100s", write);
    append_word(text, bytes, words);
}

static void append_locked_bytes(const sl_store *store, char *text, size_t bytes)
{
    char words[WORDS_BYTES];
    uint64_t locked_bytes = 0;
    for (int lane = 0; lane < SL_STORE_LANE_COUNT; lane++)
        locked_bytes += sl_store_pipe_locked_bytes(store->pipes[lane]);
    if (locked_bytes == 0)
        return;
    snprintf(words, sizeof words, "%.3g MiB locked", (double)locked_bytes / 0x1p20);
    append_word(text, bytes, words);
}

static sl_status write_description(sl_store *store, const sl_transport_ops *ops,
                                   const char *why_not)
{
    size_t bytes = 4 * (size_t)WORDS_BYTES + store->file_count * sizeof store->files[0].note;
    char words[WORDS_BYTES];
    store->description = calloc(1, bytes);
    if (store->description == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a description");
    append_word(store->description, bytes, ops->name);
    if (why_not[0] != '\0') {
        snprintf(words, sizeof words, " (%s)", why_not);
        snprintf(store->description + strlen(store->description),
                 bytes - strlen(store->description), "%s", words);
    }
    snprintf(words, sizeof words, "%u x %d MiB", store->depth, SL_STORE_PIECE_BYTES >> 20);
    append_word(store->description, bytes, words);
    append_notes(store, store->description, bytes);
    append_locked_bytes(store, store->description, bytes);
    for (uint32_t i = 0; i < store->file_count; i++)
        append_word(store->description, bytes, store->files[i].note);
    return SL_OK;
}

/* Takes the transport of `options`, else the first that works; keeps why an earlier one does
 * not. */
static sl_status choose_transport(sl_store *store, const sl_store_options *options)
{
    char why_not[WORDS_BYTES / 2] = "";
    if (options->transport != NULL) {
        SL_TRY(open_pipes(store, options->transport, options));
        return write_description(store, options->transport, why_not);
    }
    for (int i = 0; i < TRANSPORT_COUNT; i++) {
        sl_status status = open_pipes(store, transports[i], options);
        if (status == SL_OK)
            return write_description(store, transports[i], why_not);
        if (status != SL_ERROR_SYSTEM)
            return status;
        snprintf(why_not, sizeof why_not, "%s: %.80s", transports[i]->name, sl_status_message());
    }
    SL_FAIL(SL_ERROR_SYSTEM, "no way to the disks: %s", sl_status_message());
}

/* ---- files ---- */

/* Bytes of file `file_index`: of the pieces n with n % file_count == file_index. The last piece may
 * be short. */
static uint64_t bytes_of_file(uint64_t bytes, uint32_t file_index, uint32_t file_count)
{
    uint64_t piece_count = sl_bits_divide_up(bytes, SL_STORE_PIECE_BYTES);
    uint64_t own_count = sl_bits_divide_up(piece_count - file_index, file_count);
    uint64_t own_bytes = own_count * SL_STORE_PIECE_BYTES;
    bool has_last = (piece_count - 1) % file_count == file_index;
    return has_last ? own_bytes - (piece_count * SL_STORE_PIECE_BYTES - bytes) : own_bytes;
}

/* If a transport owns the files, their entries have no descriptor. */
static sl_status open_file(sl_store *store, uint32_t file_index, uint32_t file_count,
                           const char *directory, bool is_owned)
{
    sl_store_file *file = &store->files[file_index];
    *file =
        (sl_store_file){.fd = -1, .directory = directory, .is_direct = true, .unit = MEMORY_UNIT};
    if (!is_owned)
        SL_TRY(sl_store_file_open(directory, bytes_of_file(store->bytes, file_index, file_count),
                                  file));
    store->descriptors[file_index] = file->fd;
    store->file_count = file_index + 1;
    return SL_OK;
}

/* Copies the names, because messages need them as long as the store lives. */
static sl_status copy_names(sl_store *store, const char *const *directories, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += strlen(directories[i]) + 1;
    store->directories = malloc(bytes);
    if (store->directories == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the names of %u directories", count);
    char *next = store->directories;
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(directories[i]) + 1;
        memcpy(next, directories[i], length);
        next += length;
    }
    return SL_OK;
}

static sl_status open_files(sl_store *store, const sl_store_options *options)
{
    uint64_t piece_count = sl_bits_divide_up(options->bytes, SL_STORE_PIECE_BYTES);
    uint32_t count = options->directory_count;
    if (count > piece_count)
        count = (uint32_t)piece_count; /* more would be empty */
    store->files = calloc(count, sizeof *store->files);
    store->descriptors = calloc(count, sizeof *store->descriptors);
    if (store->files == NULL || store->descriptors == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u files of the disk tier", count);
    SL_TRY(copy_names(store, options->directories, count));
    bool is_owned = options->transport != NULL && options->transport->owns_files;
    const char *directory = store->directories;
    for (uint32_t i = 0; i < count; i++) {
        SL_TRY(open_file(store, i, count, directory, is_owned));
        directory += strlen(directory) + 1;
    }
    return SL_OK;
}

/* ---- the store ---- */

static sl_status check_options(const sl_store_options *options)
{
    if (options->directory_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "the disk tier needs a directory");
    if (options->bytes == 0 || options->bytes % SL_STORE_ALIGNMENT != 0 ||
        options->bytes > INT64_MAX - SL_STORE_PIECE_BYTES)
        SL_FAIL(SL_ERROR_INTERNAL, "a disk tier of %llu bytes", (unsigned long long)options->bytes);
    if (options->depth > DEPTH_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%u requests in flight on the disk tier; %d at most",
                options->depth, DEPTH_MAX);
    return SL_OK;
}

static sl_status open_store_parts(sl_store *store, const sl_store_options *options)
{
    SL_TRY(open_files(store, options));
    SL_TRY(sl_store_sums_open(options->bytes, &store->sums));
    return choose_transport(store, options);
}

sl_status sl_store_open(const sl_store_options *options, sl_store **out_store)
{
    SL_TRY(check_options(options));
    sl_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the disk tier");
    store->bytes = options->bytes;
    store->depth = options->depth != 0 ? options->depth : DEPTH_DEFAULT;
    store->limit_ms = options->limit_ms != 0 ? options->limit_ms : LIMIT_DEFAULT_MS;
    sl_status status = open_store_parts(store, options);
    if (status != SL_OK) {
        (void)sl_store_close(store); /* no request was made */
        return status;
    }
    *out_store = store;
    return SL_OK;
}

uint32_t sl_store_close(sl_store *store)
{
    if (store == NULL)
        return 0;
    uint32_t abandoned_count = close_pipes(store);
    sl_store_sums_close(store->sums);
    for (uint32_t i = 0; i < store->file_count; i++)
        sl_store_file_close(&store->files[i]);
    free(store->description);
    free(store->descriptors);
    free(store->files);
    free(store->directories);
    free(store);
    return abandoned_count;
}

static sl_status move_range(sl_store *store, sl_store_lane lane, uint64_t offset, void *data,
                            uint64_t bytes)
{
    if (offset % SL_STORE_RECORD_BYTES != 0 ||
        ((bytes | (uintptr_t)data) % SL_STORE_ALIGNMENT) != 0 || bytes > store->bytes ||
        offset > store->bytes - bytes)
        SL_FAIL(SL_ERROR_INTERNAL,
                "%llu bytes at %llu of a disk tier of %llu, memory at %p: outside or not aligned",
                (unsigned long long)bytes, (unsigned long long)offset,
                (unsigned long long)store->bytes, data);
    return sl_store_pipe_move(store->pipes[lane], offset, data, bytes);
}

sl_status sl_store_read(sl_store *store, uint64_t offset, void *data, uint64_t bytes)
{
    return move_range(store, SL_STORE_READ, offset, data, bytes);
}

/* The cast is safe: a write only reads the memory of its request. */
sl_status sl_store_write(sl_store *store, uint64_t offset, const void *data, uint64_t bytes)
{
    return move_range(store, SL_STORE_WRITE, offset, (void *)(uintptr_t)data, bytes);
}

const char *sl_store_description(const sl_store *store)
{
    return store->description;
}

sl_store_counts sl_store_count(const sl_store *store)
{
    sl_store_counts counts = {0};
    for (int lane = 0; lane < SL_STORE_LANE_COUNT; lane++)
        sl_store_pipe_count(store->pipes[lane], &counts);
    return counts;
}
