/* Messages are encoded by hand: there are six of them, with few fields each.
 *
 *   Event      1 wall_time (double)  2 step (int64)  3 file_version (string)  5 summary (Summary)
 *              7 session_log (SessionLog)
 *   Summary    1 value (Value, repeated)
 *   Value      1 tag (string)  2 simple_value (float)  9 metadata (SummaryMetadata)
 *   SummaryMetadata  1 plugin_data (PluginData)  3 summary_description (string)
 *   PluginData 1 plugin_name (string)
 *   SessionLog 1 status (1: START)
 *
 * A field is a key, number << 3 | type, and its value: type 0 a varint, 1 eight bytes, 2 a length
 * and so many bytes, 5 four bytes; all of it little-endian.
 */
#include "event_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "files.h"

enum { TYPE_VARINT = 0, TYPE_8_BYTES = 1, TYPE_BYTES = 2, TYPE_4_BYTES = 5 };
enum { HOST_BYTES = 256, VALUE_BYTES = 1024, VARINT_BYTES = 10, TRIES = 16 };
enum { FRAME_BYTES = 12 /* before the content */, CHECKSUM_BYTES = 4 };
enum { RECORD_BYTES = SL_EVENT_BYTES + 64 };

static const char name_start[] = "events.out.tfevents.";

/* ---- messages ---- */

typedef struct message {
    unsigned char *bytes;
    size_t used, capacity;
    bool is_too_large;
} message;

static void add_bytes(message *to, const void *data, size_t bytes)
{
    if (bytes > to->capacity - to->used) {
        to->is_too_large = true;
        return;
    }
    memcpy(to->bytes + to->used, data, bytes);
    to->used += bytes;
}

/* The lowest `bytes` bytes of a number, the lowest first. */
static void add_number(message *to, uint64_t number, size_t bytes)
{
    unsigned char text[8];
    for (size_t i = 0; i < bytes; i++)
        text[i] = (unsigned char)(number >> 8 * i & 0xFF);
    add_bytes(to, text, bytes);
}

static void add_varint(message *to, uint64_t number)
{
    unsigned char text[VARINT_BYTES];
    size_t count = 0;
    for (; number >= 0x80; number >>= 7)
        text[count++] = (unsigned char)(number & 0x7F) | 0x80;
    text[count++] = (unsigned char)number;
    add_bytes(to, text, count);
}

static void add_key(message *to, uint32_t field, uint32_t type)
{
    add_varint(to, field << 3 | type);
}

static void add_varint_field(message *to, uint32_t field, uint64_t number)
{
    add_key(to, field, TYPE_VARINT);
    add_varint(to, number);
}

static void add_bytes_field(message *to, uint32_t field, const void *data, size_t bytes)
{
    add_key(to, field, TYPE_BYTES);
    add_varint(to, bytes);
    add_bytes(to, data, bytes);
}

static void add_message_field(message *to, uint32_t field, const message *inner)
{
    to->is_too_large = to->is_too_large || inner->is_too_large;
    add_bytes_field(to, field, inner->bytes, inner->used);
}

static void add_float_field(message *to, uint32_t field, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    add_key(to, field, TYPE_4_BYTES);
    add_number(to, bits, sizeof bits);
}

static void add_double_field(message *to, uint32_t field, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    add_key(to, field, TYPE_8_BYTES);
    add_number(to, bits, sizeof bits);
}

/* ---- records ---- */

/* CRC-32C: the reflected polynomial of Castagnoli, bit by bit: an event has some thousand bytes. */
static uint32_t find_crc(const unsigned char *data, size_t bytes)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
    }
    return ~crc;
}

/* A checksum of data that hold checksums themselves is turned and shifted. */
static uint32_t find_masked_crc(const unsigned char *data, size_t bytes)
{
    uint32_t crc = find_crc(data, bytes);
    return (crc >> 15 | crc << 17) + UINT32_C(0xA282EAD8);
}

static double read_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Writes an Event with one field beside its time and step: `content` under number `field`. */
static sl_status write_event(const sl_event_file *file, uint64_t step, uint32_t field,
                             const message *content)
{
    unsigned char record[FRAME_BYTES + RECORD_BYTES + CHECKSUM_BYTES];
    message frame = {.bytes = record, .capacity = FRAME_BYTES};
    message event = {.bytes = record + FRAME_BYTES, .capacity = RECORD_BYTES};
    add_double_field(&event, 1, read_time());
    add_varint_field(&event, 2, step);
    add_message_field(&event, field, content);
    if (event.is_too_large)
        SL_FAIL(SL_ERROR_INTERNAL, "%s: an event is too large", file->file.path);
    add_number(&frame, event.used, 8);
    add_number(&frame, find_masked_crc(record, 8), CHECKSUM_BYTES);
    message end = {.bytes = event.bytes + event.used, .capacity = CHECKSUM_BYTES};
    add_number(&end, find_masked_crc(event.bytes, event.used), CHECKSUM_BYTES);
    return sl_log_file_write(&file->file, record, FRAME_BYTES + event.used + CHECKSUM_BYTES);
}

/* What a reader of the second version of these files looks for: which version it is, and from which
 * step on older files do not count. */
static sl_status write_head(const sl_event_file *file, uint64_t first_step)
{
    static const char version[] = "brain.Event:2";
    unsigned char bytes[sizeof version], start[4];
    message text = {.bytes = bytes, .capacity = sizeof bytes};
    message log = {.bytes = start, .capacity = sizeof start};
    add_bytes(&text, version, sizeof version - 1);
    add_varint_field(&log, 1, 1);
    SL_TRY(write_event(file, 0, 3, &text));
    return write_event(file, first_step, 7, &log);
}

/* ---- files ---- */

/* The time in the name of an event file; 0: another file. */
static uint64_t parse_time(const char *name)
{
    size_t length = sizeof name_start - 1;
    if (strncmp(name, name_start, length) != 0)
        return 0;
    uint64_t time = strtoull(name + length, NULL, 10);
    return time > 9999999999 ? 0 : time; /* ten digits */
}

/* The latest time in the names of a directory; 0: none. */
static sl_status find_newest(const char *path, DIR *stream, uint64_t *out_time)
{
    uint64_t newest = 0;
    struct dirent *entry;
    while (errno = 0, (entry = readdir(stream)) != NULL) {
        uint64_t time = parse_time(entry->d_name);
        newest = time > newest ? time : newest;
    }
    if (errno != 0)
        SL_FAIL(SL_ERROR_IO, "%s: %s", path, strerror(errno));
    *out_time = newest;
    return SL_OK;
}

/* A second after the newest file of a directory, at least now. */
static sl_status choose_time(const char *directory, uint64_t *out_time)
{
    uint64_t newest = 0, now = (uint64_t)read_time();
    int fd;
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, directory, SL_LINKS_FOLLOW, &fd));
    DIR *stream = fdopendir(fd);
    if (!stream) {
        int error = errno;
        close(fd);
        SL_FAIL(SL_ERROR_IO, "%s: %s", directory, strerror(error));
    }
    sl_status status = find_newest(directory, stream, &newest);
    closedir(stream);
    *out_time = newest >= now ? newest + 1 : now;
    return status;
}

/* Makes "events.out.tfevents.TIME.HOST.PID.0.RUN"; SL_ERROR_USAGE: it is there. */
static sl_status create_file(const sl_log_target *target, sl_log_file *out_file)
{
    char host[HOST_BYTES] = "", name[HOST_BYTES + 128], *path;
    uint64_t time;
    SL_TRY(choose_time(target->path, &time));
    if (gethostname(host, sizeof host - 1) != 0 || strchr(host, '/'))
        snprintf(host, sizeof host, "localhost");
    snprintf(name, sizeof name, "%s%010" PRIu64 ".%s.%ld.0.%.64s", name_start, time, host,
             (long)getpid(), target->run);
    SL_TRY(sl_files_join_path(target->path, name, &path));
    const sl_log_target file = {.path = path, .mode = SL_LOG_FILE_NEW};
    sl_status status = sl_log_file_open(&file, NULL, out_file);
    free(path);
    return status;
}

static bool is_of_run(const char *name, const char *run)
{
    const size_t length = strlen(name), run_length = strlen(run);
    return parse_time(name) > 0 && length > run_length && name[length - run_length - 1] == '.' &&
           strcmp(name + length - run_length, run) == 0;
}

bool sl_event_file_is_own(const char *directory, const char *run)
{
    bool is_own = false;
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    if (!stream && fd >= 0)
        close(fd);
    while (stream && !is_own && (entry = readdir(stream)) != NULL)
        is_own = is_of_run(entry->d_name, run);
    if (stream)
        closedir(stream);
    return is_own;
}

static sl_status open_place(const sl_log_target *target)
{
    const char *directory = target->path;
    if (target->mode == SL_LOG_FILE_OWN && !sl_event_file_is_own(directory, target->run))
        SL_FAIL(SL_ERROR_IO, "%s: holds no event files of this run", sl_files_show(directory).text);
    if (target->mode == SL_LOG_FILE_NEW && mkdir(directory, 0777) != 0)
        SL_FAIL(SL_ERROR_IO, "%s: the directory cannot be made: %s", sl_files_show(directory).text,
                strerror(errno));
    return target->mode == SL_LOG_FILE_EMPTY || target->mode == SL_LOG_FILE_APPEND
               ? sl_files_make_directories(directory)
               : SL_OK;
}

/* A process that has the same host and number, in another container, may make the same name. */
sl_status sl_event_file_open(const sl_log_target *target, uint64_t first_step,
                             sl_event_file *out_file)
{
    sl_log_file created = {.fd = -1};
    SL_TRY(open_place(target));
    sl_status status = SL_ERROR_USAGE;
    for (int i = 0; i < TRIES && status == SL_ERROR_USAGE; i++)
        status = create_file(target, &created);
    SL_TRY(status);
    *out_file = (sl_event_file){.file = created};
    status = write_head(out_file, first_step);
    if (status != SL_OK)
        sl_event_file_close(out_file);
    return status;
}

void sl_event_file_close(sl_event_file *file)
{
    sl_log_file_close(&file->file);
}

/* ---- events ---- */

void sl_event_file_begin(sl_event_file *file, uint64_t step)
{
    file->value_bytes = 0;
    file->is_too_large = false;
    file->step = step;
}

/* What a tag is: of the scalars' dashboard, and what it means. */
static void add_metadata(message *to, const char *meaning)
{
    static const char plugin[] = "\n\7scalars"; /* a PluginData: key, length, name */
    unsigned char bytes[VALUE_BYTES];
    message metadata = {.bytes = bytes, .capacity = sizeof bytes};
    add_bytes_field(&metadata, 1, plugin, sizeof plugin - 1);
    add_bytes_field(&metadata, 3, meaning, strlen(meaning));
    add_message_field(to, 9, &metadata);
}

void sl_event_file_add(sl_event_file *file, const char *tag, float value, const char *meaning)
{
    unsigned char bytes[VALUE_BYTES];
    message entry = {.bytes = bytes, .capacity = sizeof bytes};
    message summary = {.bytes = file->values,
                       .used = file->value_bytes,
                       .capacity = SL_EVENT_BYTES,
                       .is_too_large = file->is_too_large};
    add_bytes_field(&entry, 1, tag, strlen(tag));
    add_float_field(&entry, 2, value);
    if (meaning)
        add_metadata(&entry, meaning);
    add_message_field(&summary, 1, &entry);
    file->value_bytes = summary.used;
    file->is_too_large = summary.is_too_large;
}

sl_status sl_event_file_end(sl_event_file *file)
{
    const message summary = {
        .bytes = file->values, .used = file->value_bytes, .is_too_large = file->is_too_large};
    return write_event(file, file->step, 5, &summary);
}
