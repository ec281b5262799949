/* Only lists files and asks for their sizes, so it takes no longer than `ls`. */
#include "recipe_data.h"

#include <math.h>
#include <sys/stat.h>

#include "files/files.h"
#include "text/text_files.h"

/* A token of a vocabulary is about 4 bytes of text, and text may be packed to half. */
enum { BYTES_OF_A_TOKEN = 8, TOKENS_OF_A_ROW = 1024 };

/* True if a file is text of one document. */
static bool is_one_document(const char *path)
{
    static const char *const others[] = {".jsonl", ".jsonl.gz", ".jsonl.zst", ".json",
                                         ".bin",   ".npy",      ".idx"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (sl_files_name_ends(path, others[i]))
            return false;
    return true;
}

static bool are_documents(const sl_file_list *paths)
{
    for (uint32_t i = 0; i < paths->count; i++)
        if (!is_one_document(paths->items[i]))
            return false;
    return true;
}

/* Of the files [first, end); a file whose size cannot be read counts as 0 bytes. */
static double sum_bytes(const sl_file_list *paths, uint32_t first, uint32_t end)
{
    double sum = 0;
    struct stat info;
    for (uint32_t i = first; i < end; i++)
        sum += stat(paths->items[i], &info) == 0 ? (double)info.st_size : 0;
    return sum;
}

/* Cuts at the nearest whole document, as training does. */
static bool has_rows(const sl_file_list *paths, const double shares[SL_CONFIG_SHARES],
                     double row_bytes)
{
    uint32_t first = 0, end;
    double to = 0;
    for (int share = 0; share < SL_CONFIG_SHARES; share++, first = end) {
        to += shares[share];
        end = (uint32_t)round(to * paths->count);
        if (shares[share] > 0 && sum_bytes(paths, first, end) < row_bytes)
            return false;
    }
    return true;
}

static sl_status add_paths(const sl_config_list *data, sl_file_list *paths, bool *out_has_weights)
{
    *out_has_weights = false;
    for (uint32_t i = 0; i < data->count; i++) {
        double weight;
        const char *path = sl_config_weigh(data->items[i], &weight);
        *out_has_weights = *out_has_weights || weight > 0;
        SL_TRY(sl_text_files_add(paths, path, SL_TEXT_OR_TOKENS));
    }
    return SL_OK;
}

sl_status sl_recipe_data_has_shares(const sl_config *config, bool *out_has_shares)
{
    sl_file_list paths = {0};
    double shares[SL_CONFIG_SHARES];
    bool has_weights;
    const double row_tokens =
        config->seq == SL_CONFIG_UNSET ? TOKENS_OF_A_ROW : (double)config->seq;
    SL_TRY(sl_config_split(config, shares));
    const sl_status status = add_paths(&config->data, &paths, &has_weights);
    *out_has_shares = has_weights || config->document_per == SL_CONFIG_PER_LINE;
    if (status == SL_OK && !*out_has_shares && paths.count > 0)
        *out_has_shares =
            !are_documents(&paths) ||
            (paths.count > 1 && has_rows(&paths, shares, BYTES_OF_A_TOKEN * row_tokens));
    sl_file_list_clear(&paths);
    return status;
}
