/* Directories wait in a list of their own while their files are found; see file_list.h. */
#define _GNU_SOURCE
#include "file_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "files.h"

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
}

/* Takes the path over, also on failure. */
static sl_status append_owned(sl_file_list *list, char *path)
{
    sl_status status = SL_ARRAY_GROW(list->items, list->count, list->room, "a list of files");
    if (status == SL_OK)
        list->items[list->count++] = path;
    else
        free(path);
    return status;
}

sl_status sl_file_list_append(sl_file_list *list, const char *path)
{
    char *copy = strdup(path);
    return copy ? append_owned(list, copy) : no_memory();
}

void sl_file_list_clear(sl_file_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (sl_file_list){0};
}

/* ---- directories ---- */

static sl_status fail_listing(const char *path, int error)
{
    const sl_status status = error == ENOMEM ? SL_ERROR_SYSTEM : SL_ERROR_IO;
    SL_FAIL(status, "%s: cannot be listed: %s", sl_files_show(path).text, strerror(error));
}

/* A file or a directory goes to its list. */
static sl_status sort_entry(const char *directory, const char *name, sl_file_list *files,
                            sl_file_list *directories)
{
    struct stat info;
    char *path = NULL;
    size_t length = strlen(directory);
    bool ends_in_slash = length > 0 && directory[length - 1] == '/';
    if (*name == '.')
        return SL_OK;
    if (asprintf(&path, "%s%s%s", directory, ends_in_slash ? "" : "/", name) < 0)
        return no_memory();
    if (lstat(path, &info) != 0) {
        sl_status status = fail_listing(path, errno);
        free(path);
        return status;
    }
    if (S_ISREG(info.st_mode))
        return append_owned(files, path);
    if (S_ISDIR(info.st_mode))
        return append_owned(directories, path);
    free(path);
    return SL_OK;
}

static sl_status list_directory(const char *directory, sl_file_list *files,
                                sl_file_list *directories)
{
    DIR *stream = opendir(directory);
    sl_status status = SL_OK;
    if (!stream)
        return fail_listing(directory, errno);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry && errno != 0)
            status = fail_listing(directory, errno);
        if (!entry || status != SL_OK)
            break;
        status = sort_entry(directory, entry->d_name, files, directories);
    }
    closedir(stream);
    return status;
}

static int compare_paths(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* True if the .bin of an .idx is in the sorted list. */
static bool has_bin(const sl_file_list *files, char *path)
{
    size_t length = strlen(path);
    if (!sl_files_name_ends(path, ".idx"))
        return false;
    memcpy(path + length - 4, ".bin", 4);
    bool is_there = bsearch(&path, files->items, files->count, sizeof path, compare_paths) != NULL;
    memcpy(path + length - 4, ".idx", 4);
    return is_there;
}

static sl_status append_files(sl_file_list *list, sl_file_list *files, const char *path)
{
    uint32_t before = list->count;
    if (files->count > 1)
        qsort(files->items, files->count, sizeof *files->items, compare_paths);
    for (uint32_t i = 0; i < files->count; i++) {
        char *copy = strdup(files->items[i]);
        if (!copy)
            return no_memory();
        bool is_index = has_bin(files, copy);
        if (is_index)
            free(copy);
        else
            SL_TRY(append_owned(list, copy));
    }
    if (list->count == before)
        SL_FAIL(SL_ERROR_MISSING, "%s: is a directory without a file in it",
                sl_files_show(path).text);
    return SL_OK;
}

sl_status sl_file_list_add(sl_file_list *list, const char *path)
{
    struct stat info;
    sl_file_list files = {0}, directories = {0};
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return sl_file_list_append(list, path);
    sl_status status = sl_file_list_append(&directories, path);
    for (uint32_t i = 0; status == SL_OK && i < directories.count; i++)
        status = list_directory(directories.items[i], &files, &directories);
    if (status == SL_OK)
        status = append_files(list, &files, path);
    sl_file_list_clear(&files);
    sl_file_list_clear(&directories);
    return status;
}
