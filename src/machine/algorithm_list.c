/* Lists are text: a line is found by how it begins, and copied as it is. Knows nothing of what an
 * algorithm is. */
#define _GNU_SOURCE /* open_memstream */
#include "algorithm_list.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "files/files.h"
#include "kernels/kernels.h"
#include "profile.h"

enum { FILE_BYTES_MAX = 1 << 20, HEAD_BYTES = 512 };

static const char file_name[] = "algorithms-cuda.txt";

/* Stands behind the name of a product, in lines that name an algorithm alone. */
static const char key_end[] = ": algorithm ";

/* Stands in the first line of every list. */
static const char head_mark[] = " multiprocessors; ";

static void write_head(const sl_device_info *info, char out_text[HEAD_BYTES])
{
    const sl_kernel_table *kernels = sl_kernels_cuda();
    snprintf(out_text, HEAD_BYTES, "%.120s, %u%s%.300s\n", info->name, info->multiprocessor_count,
             head_mark, kernels ? kernels->description() : "no kernels");
}

bool sl_algorithm_list_is_of(const char *list, const sl_device_info *info)
{
    char head[HEAD_BYTES];
    write_head(info, head);
    return strncmp(list, head, strlen(head)) == 0;
}

static sl_status find_path(char **out_path)
{
    char *profile = NULL;
    SL_TRY(sl_profile_find_path(SL_DEVICE_CUDA, 0, &profile));
    *strrchr(profile, '/') = '\0';
    const sl_status status = sl_files_join_path(profile, file_name, out_path);
    free(profile);
    return status;
}

/* An empty file is a list of nothing. */
static bool is_list(const sl_file *file, const char *text)
{
    const char *mark = strstr(text, head_mark);
    return strlen(text) == file->bytes &&
           (*text == '\0' || (mark != NULL && mark < text + strcspn(text, "\n")));
}

static sl_status read_file(const sl_file *file, char **out_list)
{
    char *list = NULL;
    SL_TRY(sl_files_read_text(file, FILE_BYTES_MAX, &list));
    if (!is_list(file, list)) {
        free(list);
        SL_FAIL(SL_ERROR_DATA, "%s: is no list of algorithms", sl_files_show(file->path).text);
    }
    *out_list = list;
    return SL_OK;
}

/* NULL: there is no file. SL_ERROR_MISSING: there is no place for one. */
static sl_status read_list(char **out_list)
{
    sl_file file;
    char *path = NULL;
    SL_TRY(find_path(&path));
    sl_status status = sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file);
    free(path);
    *out_list = NULL;
    if (status == SL_ERROR_MISSING)
        return SL_OK;
    SL_TRY(status);
    status = read_file(&file, out_list);
    sl_files_close(&file);
    return status;
}

sl_status sl_algorithm_list_load(const sl_device_info *info, char **out_list)
{
    char head[HEAD_BYTES], *list = NULL;
    const sl_status status = read_list(&list);
    if (status != SL_OK && status != SL_ERROR_MISSING)
        sl_log_write(SL_LOG_WARNING,
                     "matrix products take cuBLASLt's first algorithms, because the list of "
                     "algorithms cannot be read: %s",
                     sl_status_message());
    if (list != NULL && sl_algorithm_list_is_of(list, info)) {
        *out_list = list;
        return SL_OK;
    }
    free(list);
    write_head(info, head);
    *out_list = strdup(head);
    if (*out_list == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the list of algorithms");
    return SL_OK;
}

/* Writes what the file holds; NULL: nothing. */
static sl_status read_old(char **out_list)
{
    const sl_status status = read_list(out_list);
    return status == SL_OK || status == SL_ERROR_MISSING
               ? status
               : sl_status_prefix(status, "the list of algorithms stays as it is, and nothing is "
                                          "written into it: move it away, or make it readable");
}

sl_status sl_algorithm_list_check(void)
{
    char *list = NULL;
    SL_TRY(read_old(&list));
    free(list);
    return SL_OK;
}

/* ---- putting lines into the file ---- */

static const char *end_of_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end != NULL ? end + 1 : line + strlen(line);
}

/* The bytes of a line up to the end of key_end; 0: the line names no algorithm. */
static size_t key_length(const char *line)
{
    const char *end = strstr(line, key_end);
    return end != NULL && end < end_of_line(line) ? (size_t)(end - line) + strlen(key_end) : 0;
}

static bool has_key(const char *lines, const char *key, size_t length)
{
    for (const char *line = lines; *line; line = end_of_line(line))
        if (strncmp(line, key, length) == 0)
            return true;
    return false;
}

/* Appends the lines that name an algorithm for a product that `known` lacks; returns how many. */
static uint32_t append_lines(const char *lines, const char *known, FILE *stream)
{
    uint32_t count = 0;
    for (const char *line = lines; *line; line = end_of_line(line)) {
        const size_t length = key_length(line);
        if (length == 0 || has_key(known, line, length))
            continue;
        fwrite(line, 1, (size_t)(end_of_line(line) - line), stream);
        count++;
    }
    return count;
}

static sl_status merge(const sl_device_info *info, const char *lines, char **out_text,
                       uint32_t *out_count)
{
    char head[HEAD_BYTES], *old = NULL;
    size_t bytes = 0;
    SL_TRY(read_old(&old));
    FILE *stream = open_memstream(out_text, &bytes);
    if (stream != NULL) {
        write_head(info, head);
        fputs(head, stream);
        *out_count = append_lines(lines, "", stream);
        if (old != NULL && sl_algorithm_list_is_of(old, info))
            (void)append_lines(old, lines, stream);
    }
    free(old);
    if (stream == NULL || fclose(stream) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the list of algorithms");
    if (bytes > FILE_BYTES_MAX)
        SL_FAIL(SL_ERROR_DATA, "the list of algorithms would be larger than %d bytes",
                FILE_BYTES_MAX);
    return SL_OK;
}

sl_status sl_algorithm_list_keep(const sl_device_info *info, const char *lines, char **out_path)
{
    char *text = NULL, *path = NULL;
    uint32_t count = 0;
    *out_path = NULL;
    sl_status status = merge(info, lines, &text, &count);
    if (status == SL_OK && count > 0)
        status = find_path(&path);
    if (status == SL_OK && count > 0)
        status = sl_profile_save_text(path, text);
    free(text);
    if (status != SL_OK || count == 0) {
        free(path);
        return status;
    }
    *out_path = path;
    return SL_OK;
}
