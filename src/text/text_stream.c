/* Plain, gzip or Zstandard, by the first bytes; see text_stream.h. The one file that knows zlib and
 * libzstd. */
#include "text_stream.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "files/files.h"
#ifdef SL_HAS_ZLIB
#include <zlib.h>
#endif
#ifdef SL_HAS_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

enum {
    PACKED_BYTES = 64 << 10,
    MAGIC_BYTES = 4,
    GZIP_WINDOW = 15 + 16,
    ZSTD_WINDOW_LOG_MIN = 25, /* any file may ask for 32 MiB; zstd -19 asks for 8 */
    ZSTD_WINDOW_LOG_MAX = 27, /* 128 MiB: the limit of unzstd */
    ZSTD_WINDOW_TIMES = 16    /* between these limits: times the bytes of the file */
};

struct sl_text_stream {
    sl_file file;
    sl_packing packing;
    uint64_t place;        /* of the file, behind what is in `packed` */
    bool is_in_frame;      /* a packed part has begun and not ended */
    uint64_t first, count; /* what is left of `packed` */
#ifdef SL_HAS_ZLIB
    z_stream gzip;
#endif
#ifdef SL_HAS_ZSTD
    ZSTD_DStream *zstd;
#endif
    unsigned char packed[PACKED_BYTES];
};

static sl_status fail_packed(const sl_text_stream *self, const char *why)
{
    SL_FAIL(SL_ERROR_DATA, "%s: cannot be unpacked near byte %llu: %s",
            sl_files_show(self->file.path).text, (unsigned long long)(self->place - self->count),
            sl_files_show(why).text);
}

/* Makes sure that some packed bytes are there; at the end of the file none are. */
static sl_status fill_packed(sl_text_stream *self)
{
    uint64_t left = self->file.bytes - self->place;
    if (self->count > 0 || left == 0)
        return SL_OK;
    self->first = 0;
    self->count = left < PACKED_BYTES ? left : PACKED_BYTES;
    SL_TRY(sl_files_read_at(&self->file, self->place, self->count, self->packed));
    self->place += self->count;
    return SL_OK;
}

/* ---- gzip ---- */

#ifdef SL_HAS_ZLIB
static sl_status open_gzip(sl_text_stream *self)
{
    if (inflateInit2(&self->gzip, GZIP_WINDOW) != Z_OK)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to unpack %s", sl_files_show(self->file.path).text);
    return SL_OK;
}

static void close_gzip(sl_text_stream *self)
{
    inflateEnd(&self->gzip);
}

static sl_status end_gzip_part(sl_text_stream *self)
{
    self->is_in_frame = false;
    return inflateReset(&self->gzip) == Z_OK ? SL_OK : fail_packed(self, "the parts do not join");
}

/* One call of zlib; it may give nothing yet. */
static sl_status unpack_gzip(sl_text_stream *self, uint64_t capacity, void *data,
                             uint64_t *out_bytes)
{
    z_stream *gzip = &self->gzip;
    uInt room = capacity < PACKED_BYTES ? (uInt)capacity : PACKED_BYTES;
    gzip->next_in = self->packed + self->first;
    gzip->avail_in = (uInt)self->count;
    gzip->next_out = data;
    gzip->avail_out = room;
    self->is_in_frame = true;
    int result = inflate(gzip, Z_NO_FLUSH);
    self->first += self->count - gzip->avail_in;
    self->count = gzip->avail_in;
    *out_bytes = room - gzip->avail_out;
    if (result == Z_STREAM_END)
        return end_gzip_part(self);
    if (result == Z_MEM_ERROR)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to unpack %s", sl_files_show(self->file.path).text);
    if (result == Z_OK || result == Z_BUF_ERROR)
        return SL_OK;
    return fail_packed(self, gzip->msg ? gzip->msg : "it is not what its start says");
}
#else
static sl_status open_gzip(sl_text_stream *self)
{
    SL_FAIL(SL_ERROR_SYSTEM,
            "%s: is packed by gzip, which this build does not read: install zlib1g-dev and build "
            "again, or unpack it by gunzip",
            sl_files_show(self->file.path).text);
}

static void close_gzip(sl_text_stream *self)
{
    (void)self;
}

static sl_status unpack_gzip(sl_text_stream *self, uint64_t capacity, void *data,
                             uint64_t *out_bytes)
{
    (void)capacity, (void)data, (void)out_bytes;
    return open_gzip(self);
}
#endif

/* ---- Zstandard ---- */

#ifdef SL_HAS_ZSTD
static void close_zstd(sl_text_stream *self)
{
    ZSTD_freeDStream(self->zstd);
}

/* Returns the log2 of the largest window: ZSTD_WINDOW_TIMES the file's bytes, rounded down to a
 * power of 2, but at least 32 and at most 128 MiB. */
static int choose_window(const sl_text_stream *self)
{
    int log = ZSTD_WINDOW_LOG_MIN;
    while (log < ZSTD_WINDOW_LOG_MAX && UINT64_C(2) << log <= ZSTD_WINDOW_TIMES * self->file.bytes)
        log++;
    return log;
}

static sl_status open_zstd(sl_text_stream *self)
{
    self->zstd = ZSTD_createDStream();
    if (!self->zstd)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to unpack %s", sl_files_show(self->file.path).text);
    size_t result = ZSTD_DCtx_setParameter(self->zstd, ZSTD_d_windowLogMax, choose_window(self));
    if (!ZSTD_isError(result))
        return SL_OK;
    close_zstd(self);
    return fail_packed(self, ZSTD_getErrorName(result));
}

static sl_status unpack_zstd(sl_text_stream *self, uint64_t capacity, void *data,
                             uint64_t *out_bytes)
{
    ZSTD_inBuffer in = {self->packed + self->first, self->count, 0};
    ZSTD_outBuffer out = {data, capacity, 0};
    size_t result = ZSTD_decompressStream(self->zstd, &out, &in);
    self->first += in.pos;
    self->count -= in.pos;
    *out_bytes = out.pos;
    if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
        SL_FAIL(
            SL_ERROR_DATA,
            "%s: cannot be unpacked: it asks for a window above 2^%d bytes, too much for a packed "
            "file of this size; unpack it by unzstd --long=31",
            sl_files_show(self->file.path).text, choose_window(self));
    if (ZSTD_isError(result))
        return fail_packed(self, ZSTD_getErrorName(result));
    self->is_in_frame = result != 0;
    return SL_OK;
}
#else
static sl_status open_zstd(sl_text_stream *self)
{
    SL_FAIL(SL_ERROR_SYSTEM,
            "%s: is packed by zstd, which this build does not read: install libzstd-dev and build "
            "again, or unpack it by unzstd",
            sl_files_show(self->file.path).text);
}

static void close_zstd(sl_text_stream *self)
{
    (void)self;
}

static sl_status unpack_zstd(sl_text_stream *self, uint64_t capacity, void *data,
                             uint64_t *out_bytes)
{
    (void)capacity, (void)data, (void)out_bytes;
    return open_zstd(self);
}
#endif

/* ---- any ---- */

static sl_status start(sl_text_stream *self)
{
    uint64_t bytes = self->file.bytes < MAGIC_BYTES ? self->file.bytes : MAGIC_BYTES;
    SL_TRY(sl_files_read_at(&self->file, 0, bytes, self->packed));
    sl_packing found = sl_files_packing(self->packed, bytes);
    if (found == SL_PACKING_GZIP)
        SL_TRY(open_gzip(self));
    if (found == SL_PACKING_ZSTD)
        SL_TRY(open_zstd(self));
    self->packing = found;
    return SL_OK;
}

sl_status sl_text_stream_open(const char *path, sl_text_stream **out_stream)
{
    sl_text_stream *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to read %s", sl_files_show(path).text);
    sl_status status = sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &self->file);
    if (status == SL_OK)
        status = start(self);
    if (status != SL_OK) {
        sl_text_stream_close(self);
        return status;
    }
    *out_stream = self;
    return SL_OK;
}

void sl_text_stream_close(sl_text_stream *stream)
{
    if (!stream)
        return;
    if (stream->packing == SL_PACKING_GZIP)
        close_gzip(stream);
    if (stream->packing == SL_PACKING_ZSTD)
        close_zstd(stream);
    sl_files_close(&stream->file);
    free(stream);
}

static sl_status read_plain(sl_text_stream *self, uint64_t capacity, void *data,
                            uint64_t *out_bytes)
{
    uint64_t left = self->file.bytes - self->place;
    uint64_t bytes = left < capacity ? left : capacity;
    SL_TRY(sl_files_read_at(&self->file, self->place, bytes, data));
    self->place += bytes;
    *out_bytes = bytes;
    return SL_OK;
}

static sl_status unpack(sl_text_stream *self, uint64_t capacity, void *data, uint64_t *out_bytes)
{
    return self->packing == SL_PACKING_GZIP ? unpack_gzip(self, capacity, data, out_bytes)
                                            : unpack_zstd(self, capacity, data, out_bytes);
}

sl_status sl_text_stream_read(sl_text_stream *stream, uint64_t capacity, void *data,
                              uint64_t *out_bytes)
{
    if (stream->packing == SL_PACKING_NONE)
        return read_plain(stream, capacity, data, out_bytes);
    *out_bytes = 0;
    while (*out_bytes == 0) {
        SL_TRY(fill_packed(stream));
        bool is_end = stream->count == 0;
        if (is_end && !stream->is_in_frame)
            return SL_OK;
        SL_TRY(unpack(stream, capacity, data, out_bytes));
        if (is_end && *out_bytes == 0 && stream->is_in_frame)
            return fail_packed(stream, "it is cut");
    }
    return SL_OK;
}

bool sl_text_stream_is_packed(const sl_text_stream *stream)
{
    return stream->packing != SL_PACKING_NONE;
}

uint64_t sl_text_stream_place(const sl_text_stream *stream)
{
    return stream->place - stream->count;
}

uint64_t sl_text_stream_file_bytes(const sl_text_stream *stream)
{
    return stream->file.bytes;
}
