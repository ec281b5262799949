/* Names are resolved once, links followed, so that what a link names is replaced and not the link.
 */
#define _GNU_SOURCE
#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/interruptions.h"

enum { BUFFER_BYTES = 1 << 16, START_BYTES_MAX = 256, LINKS_MAX = 16 };

/* ---- names ---- */

static char *join(const char *directory, size_t directory_bytes, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%.*s%s", (int)directory_bytes, directory, name) < 0)
        return NULL;
    return path;
}

/* Bytes of a path before its last name, the slash included. */
static size_t parent_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* What a link without a file behind it names; NULL: it is no link, or no memory. */
static char *read_link(const char *path)
{
    char target[PATH_MAX];
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    if (bytes <= 0)
        return NULL;
    target[bytes] = '\0';
    return join(path, target[0] == '/' ? 0 : parent_bytes(path), target);
}

/* The only spelling of a path whose last name may be missing; the path itself where its directory
 * is not there. NULL: no memory. */
static char *resolve(const char *path)
{
    char *now = strdup(path), *next;
    for (int links = 0; now && links < LINKS_MAX && (next = read_link(now)); links++) {
        free(now);
        now = next;
    }
    if (!now)
        return NULL;
    size_t bytes = parent_bytes(now);
    char *parent = bytes ? strndup(now, bytes) : strdup("."), *whole = NULL;
    char *directory = parent ? realpath(parent, NULL) : NULL;
    if (directory && asprintf(&whole, "%s/%s", directory, now + bytes) < 0)
        whole = NULL;
    bool is_there = directory != NULL;
    free(directory);
    free(parent);
    if (!is_there && errno != ENOMEM)
        return now;
    free(now);
    return whole;
}

bool sl_output_file_is_same(const char *a, const char *b)
{
    struct stat left, right;
    if (!a || !b)
        return false;
    bool has_left = stat(a, &left) == 0, has_right = stat(b, &right) == 0;
    if (has_left && has_right)
        return S_ISREG(left.st_mode) && left.st_dev == right.st_dev && left.st_ino == right.st_ino;
    if (has_left || has_right)
        return false;
    char *first = resolve(a), *second = resolve(b);
    bool is_same = first && second && strcmp(first, second) == 0;
    free(first);
    free(second);
    return is_same;
}

/* ---- what is there ---- */

/* What is written as it is. */
static bool is_stream(const char *path)
{
    struct stat info;
    if (strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0)
        return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

static sl_status fail_replace(const sl_output_file_kind *kind, const char *path, const char *what)
{
    SL_FAIL(SL_ERROR_USAGE,
            "%s is %s: %s does not replace it; name another file, or move this one away",
            sl_files_show(path).text, what, kind->option);
}

static sl_status fail_io(const char *path, int error)
{
    SL_FAIL(SL_ERROR_IO, "%s: %s", sl_files_show(path).text, strerror(error));
}

static sl_status check_start(const sl_output_file_kind *kind, const char *path)
{
    char found[START_BYTES_MAX], what[64];
    size_t bytes = strlen(kind->start) < sizeof found ? strlen(kind->start) : sizeof found;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? SL_OK : fail_io(path, errno);
    ssize_t count = pread(fd, found, bytes, 0);
    int error = errno;
    close(fd);
    if (count < 0)
        return fail_io(path, error);
    if (count == 0 || ((size_t)count == bytes && memcmp(found, kind->start, bytes) == 0))
        return SL_OK;
    snprintf(what, sizeof what, "there and is no %s", kind->noun);
    return fail_replace(kind, path, what);
}

static sl_status check_there(const sl_output_file_kind *kind, const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return fail_replace(kind, path, "no plain file");
    return check_start(kind, path);
}

/* ---- opening ---- */

static sl_status open_target(sl_output_file *output, bool is_direct, int *out_fd)
{
    if (is_direct) {
        *out_fd = open(output->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    } else { /* the caller frees the path: NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        SL_TRY(sl_files_create_unseen_shared(output->path, &output->file));
        *out_fd = fcntl(output->file.fd, F_DUPFD_CLOEXEC, 0);
    }
    return *out_fd >= 0 ? SL_OK : fail_io(output->path, errno);
}

/* A stream of a descriptor forgets why a write failed as soon as another call succeeds. */
struct sl_output_sink {
    int fd;
    int error; /* of the first write that failed; 0: none did */
};

static ssize_t write_sink(void *cookie, const char *bytes, size_t byte_count)
{
    struct sl_output_sink *sink = cookie;
    size_t done = 0;
    uint32_t interruptions = 0;
    while (done < byte_count) {
        const ssize_t count = write(sink->fd, bytes + done, byte_count - done);
        if (count < 0 && sl_interruptions_allow(&interruptions))
            continue;
        if (count <= 0) {
            if (sink->error == 0)
                sink->error = count < 0 ? errno : EIO;
            return 0; /* as a stream wants to hear of a failure */
        }
        done += (size_t)count;
    }
    return (ssize_t)byte_count;
}

static int close_sink(void *cookie)
{
    struct sl_output_sink *sink = cookie;
    const int result = close(sink->fd);
    if (result != 0 && sink->error == 0)
        sink->error = errno;
    return result;
}

static sl_status open_stream(sl_output_file *output, int fd)
{
    static const cookie_io_functions_t calls = {.write = write_sink, .close = close_sink};
    output->sink = calloc(1, sizeof *output->sink);
    output->buffer = malloc(BUFFER_BYTES);
    if (output->sink) {
        output->sink->fd = fd;
        output->stream = fopencookie(output->sink, "w", calls);
    }
    if (!output->stream)
        close(fd);
    if (!output->stream || !output->buffer)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a %s", output->kind->noun);
    setvbuf(output->stream, output->buffer, _IOFBF, BUFFER_BYTES);
    return SL_OK;
}

sl_status sl_output_file_open(const sl_output_file_kind *kind, const char *path,
                              sl_output_file *out_output)
{
    int fd = -1;
    const bool is_direct = kind->takes_streams && is_stream(path);
    sl_output_file output = {.kind = kind, .file = {.fd = -1}};
    if (!is_direct)
        SL_TRY(check_there(kind, path));
    output.path = is_direct ? strdup(path) : resolve(path);
    if (!output.path)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    sl_status status = open_target(&output, is_direct, &fd);
    if (status == SL_OK)
        status = open_stream(&output, fd);
    if (status != SL_OK) {
        sl_output_file_discard(&output);
        return status;
    }
    *out_output = output;
    return SL_OK;
}

sl_status sl_output_file_check(const sl_output_file_kind *kind, const char *path)
{
    sl_output_file output;
    if (kind->takes_streams && is_stream(path)) /* opening a pipe waits for its reader */
        return SL_OK;
    SL_TRY(sl_output_file_open(kind, path, &output));
    sl_output_file_discard(&output);
    return SL_OK;
}

/* ---- the end ---- */

static sl_status close_stream(sl_output_file *output)
{
    bool has_failed = ferror(output->stream) != 0;
    has_failed = fclose(output->stream) != 0 || has_failed;
    output->stream = NULL;
    const int error = output->sink->error;
    if (has_failed || error)
        SL_FAIL(SL_ERROR_IO, "%s: %s; it is not whole", sl_files_show(output->path).text,
                strerror(error ? error : EIO));
    return SL_OK;
}

sl_status sl_output_file_publish(sl_output_file *output)
{
    bool is_file = output->file.path != NULL;
    sl_status status = close_stream(output);
    if (status == SL_OK && is_file)
        status = check_there(output->kind, output->path);
    if (status == SL_OK && is_file)
        status = sl_files_publish(&output->file, output->path);
    sl_output_file_discard(output);
    return status;
}

void sl_output_file_discard(sl_output_file *output)
{
    if (output->stream)
        fclose(output->stream);
    if (output->file.path)
        sl_files_discard(&output->file);
    free(output->sink);
    free(output->buffer);
    free(output->path);
    *output = (sl_output_file){0};
}

sl_status sl_output_file_write_text(const sl_output_file_kind *kind, const char *path,
                                    const char *text)
{
    sl_output_file output;
    SL_TRY(sl_output_file_open(kind, path, &output));
    (void)fputs(text, output.stream); /* a failure is seen when it is closed */
    return sl_output_file_publish(&output);
}
