/* See encoding.h. Files are the same by device, inode, size and time of change, which the kernel
 * keeps: ranks of one machine see one file system. What a rank takes is compared with the others
 * like its own: tokenizer, options and samples of the ids (common_inputs.h). */
#define _GNU_SOURCE /* open_memstream */
#include "encoding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"

static void hash_files(const sl_data_files *files, sl_hash_stream *stream)
{
    for (uint32_t i = 0; i < files->paths.count; i++) {
        struct stat info = {0};
        if (stat(files->paths.items[i], &info) != 0)
            info.st_size = -1; /* the rank that encodes says why */
        const uint64_t words[] = {(uint64_t)info.st_dev,          (uint64_t)info.st_ino,
                                  (uint64_t)info.st_size,         (uint64_t)info.st_ctim.tv_sec,
                                  (uint64_t)info.st_ctim.tv_nsec, files->items[i]};
        sl_hash_update(stream, words, sizeof words);
    }
    sl_hash_update(stream, "", 1);
}

static sl_status find_key(const sl_trainer *trainer, sl_hash_value *out_key)
{
    sl_hash_stream *stream;
    SL_TRY(sl_hash_open(&stream));
    hash_files(&trainer->files, stream);
    hash_files(&trainer->eval_files, stream);
    *out_key = sl_hash_digest(stream);
    sl_hash_close(stream);
    return SL_OK;
}

static sl_status encode(sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    const sl_vocabulary *vocabulary = trainer->vocabulary;
    SL_TRY(sl_data_files_encode(config, vocabulary, &trainer->files, &trainer->tokens));
    return sl_data_files_encode(config, vocabulary, &trainer->eval_files, &trainer->eval_tokens);
}

/* The paths of both lists, each with its 0, and a 0 behind each list. */
static sl_status join_paths(const sl_trainer *trainer, char **out_text, uint64_t *out_bytes)
{
    const sl_file_list *lists[] = {&trainer->files.paths, &trainer->eval_files.paths};
    size_t bytes = 0;
    FILE *stream = open_memstream(out_text, &bytes);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the paths of %u files", lists[0]->count);
    for (int l = 0; l < 2; l++) {
        for (uint32_t i = 0; i < lists[l]->count; i++)
            fwrite(lists[l]->items[i], 1, strlen(lists[l]->items[i]) + 1, stream);
        fputc(0, stream);
    }
    if (fclose(stream) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the paths of %u files", lists[0]->count);
    *out_bytes = bytes;
    return SL_OK;
}

static sl_status split_paths(const char *text, uint64_t bytes, sl_file_list out_lists[2])
{
    int list = 0;
    for (const char *path = text; path < text + bytes && list < 2; path += strlen(path) + 1) {
        if (*path)
            SL_TRY(sl_file_list_append(&out_lists[list], path));
        else
            list++;
    }
    return SL_OK;
}

/* Encodes with the ids that another rank has made. */
static sl_status take(sl_trainer *trainer, const sl_file_list made[2])
{
    trainer->files.made = &made[0];
    trainer->eval_files.made = &made[1];
    const sl_status status = encode(trainer);
    trainer->files.made = trainer->eval_files.made = NULL;
    return status;
}

static sl_status share(sl_trainer *trainer, uint32_t maker)
{
    const bool is_maker = maker == trainer->ranks.table.rank;
    char *mine = NULL, *text = NULL;
    uint64_t bytes = 0;
    sl_file_list made[2] = {{0}};
    if (is_maker)
        SL_TRY(join_paths(trainer, &mine, &bytes));
    sl_status status = sl_ranks_give_text(&trainer->ranks, mine, bytes, maker, &text, &bytes);
    free(mine);
    SL_TRY(status);
    if (!is_maker)
        status = split_paths(text, bytes, made);
    if (status == SL_OK && !is_maker)
        status = take(trainer, made);
    sl_file_list_clear(&made[0]);
    sl_file_list_clear(&made[1]);
    free(text);
    return status;
}

sl_status sl_encoding_run(sl_trainer *trainer)
{
    sl_hash_value key;
    uint32_t maker;
    if (!trainer->ranks.world)
        return encode(trainer);
    SL_TRY(find_key(trainer, &key));
    SL_TRY(sl_ranks_choose_one(&trainer->ranks, key, &maker));
    if (maker == trainer->ranks.table.rank)
        SL_TRY(encode(trainer));
    return share(trainer, maker);
}
