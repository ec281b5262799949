/* The bytes of one file in order, unpacked where its content says that it is gzip (RFC 1952) or
 * Zstandard (RFC 8878); several packed parts, one behind the other, are one text. Memory: some
 * 100 KiB, and for Zstandard the window that the file asks for. A file is refused if its window is
 * above 16 times its size (but 32 MiB are always allowed) or above 128 MiB. */
#ifndef SL_TEXT_TEXT_STREAM_H
#define SL_TEXT_TEXT_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_text_stream sl_text_stream;

/* Statuses of sl_files_open. SL_ERROR_SYSTEM: it is packed in a way that this build was made
 * without; names the package. */
sl_status sl_text_stream_open(const char *path, sl_text_stream **out_stream);

/* NULL is fine. */
void sl_text_stream_close(sl_text_stream *stream);

/* Reads at most `capacity` >= 1 bytes; *out_bytes is 0 at the end alone. SL_ERROR_DATA: what is
 * packed is broken or cut. SL_ERROR_IO. */
sl_status sl_text_stream_read(sl_text_stream *stream, uint64_t capacity, void *data,
                              uint64_t *out_bytes);

/* True if the file is packed. */
bool sl_text_stream_is_packed(const sl_text_stream *stream);

/* Bytes of the file that were read so far, packed as they are, and all of them. */
uint64_t sl_text_stream_place(const sl_text_stream *stream);
uint64_t sl_text_stream_file_bytes(const sl_text_stream *stream);

#endif
