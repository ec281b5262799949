/* See saved_rules.h. */
#include "saved_rules.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "files/files.h"
#include "files/word_map.h"
#include "foreign/weights.h"
#include "manifest.h"

static bool is_listed(sl_rule_id rule)
{
    return rule != SL_RULE_ADAMW && !sl_rule_is_frozen(rule);
}

static sl_status list_rules(const sl_full_tensors *list, sl_word_map *map)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (is_listed(list->items[i].rule))
            SL_TRY(
                sl_word_map_set(map, list->items[i].name, sl_rule_of(list->items[i].rule)->name));
    return SL_OK;
}

sl_status sl_saved_rules_format(const sl_full_tensors *list, char **out_text)
{
    sl_word_map *map = NULL;
    *out_text = NULL;
    SL_TRY(sl_word_map_open(&map));
    sl_status status = list_rules(list, map);
    if (status == SL_OK && sl_word_map_count(map) > 0)
        status = sl_word_map_format(map, out_text);
    sl_word_map_close(map);
    return status;
}

/* The rule's name; "none": it was frozen. */
static const char *find_saved(const sl_word_map *saved, const sl_safetensors *moments,
                              const char *name)
{
    char stored[SL_WEIGHTS_NAME_BYTES];
    const char *rule = sl_word_map_find(saved, name);
    snprintf(stored, sizeof stored, "%s%s", SL_WEIGHTS_PREFIX, name);
    if (rule)
        return rule;
    return moments && sl_safetensors_find(moments, stored) ? "adamw" : "none";
}

static sl_status compare_rules(const char *path, const sl_word_map *saved,
                               const sl_safetensors *moments, const sl_full_tensors *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_full_tensor *full = &list->items[i];
        const char *then = find_saved(saved, moments, full->name);
        const char *now = sl_rule_of(full->rule)->name;
        if (sl_rule_is_frozen(full->rule) || strcmp(then, "none") == 0 || strcmp(then, now) == 0)
            continue;
        SL_FAIL(SL_ERROR_USAGE,
                "%s: tensor \"%s\" was updated by %s there and is by %s now, which would take the "
                "states for something else: leave --optimizer, --momentum and --rule as they were, "
                "or begin anew with these weights: --init %s and another --save",
                sl_files_show(path).text, full->name, sl_files_show(then).text, now,
                sl_files_show(path).text);
    }
    return SL_OK;
}

sl_status sl_saved_rules_check(const char *path, const char *text, const sl_safetensors *moments,
                               const sl_full_tensors *list)
{
    sl_word_map *saved = NULL;
    SL_TRY(text ? sl_word_map_parse(path, text, &saved) : sl_word_map_open(&saved));
    const sl_status status = compare_rules(path, saved, moments, list);
    sl_word_map_close(saved);
    return status;
}

/* NULL where it is not there: all rules are without states then, or the file was removed. */
static sl_status open_moments(const char *path, sl_safetensors **out_moments)
{
    const char *name = sl_manifest_file_name(SL_MANIFEST_MOMENT1);
    int directory;
    bool is_there;
    *out_moments = NULL;
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &directory));
    sl_status status = sl_files_exists(directory, path, name, &is_there);
    if (status == SL_OK && is_there)
        status = sl_safetensors_open(directory, path, name, SL_LINKS_REFUSE, out_moments);
    close(directory);
    return status;
}

sl_status sl_saved_rules_find_trained(const char *path, const char *text,
                                      const sl_tensor_spec *tensors, uint32_t count,
                                      bool *out_trained)
{
    sl_word_map *saved = NULL;
    sl_safetensors *moments;
    SL_TRY(open_moments(path, &moments));
    const sl_status status =
        text ? sl_word_map_parse(path, text, &saved) : sl_word_map_open(&saved);
    for (uint32_t i = 0; status == SL_OK && i < count; i++)
        out_trained[i] = strcmp(find_saved(saved, moments, tensors[i].name), "none") != 0;
    sl_word_map_close(saved);
    sl_safetensors_close(moments);
    return status;
}
