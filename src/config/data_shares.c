/* Parses and checks the weights of --data ("0.3:PATH") and the shares of --split ("98,1,1"). */
#include "data_shares.h"

#include <math.h>
#include <string.h>

#include "units.h"

const char *sl_config_weigh(const char *item, double *out_weight)
{
    const char *colon = strchr(item, ':');
    char number[32];
    double weight;
    *out_weight = 0;
    size_t length = colon ? (size_t)(colon - item) : 0;
    if (length == 0 || length >= sizeof number || strspn(item, "0123456789.") == 0 ||
        strspn(item, "0123456789.eE+-") < length)
        return item;
    memcpy(number, item, length);
    number[length] = '\0';
    if (sl_units_parse_real(number, &weight) != SL_OK)
        return item;
    *out_weight = weight;
    return colon + 1;
}

/* Whether an item has a weight that is not above 0, or not finite. */
static bool is_weightless(const char *item)
{
    double weight;
    return sl_config_weigh(item, &weight) != item && !(weight > 0 && isfinite(weight));
}

static double add_weights(const sl_config_list *list)
{
    double weight, sum = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        (void)sl_config_weigh(list->items[i], &weight);
        sum += weight;
    }
    return sum;
}

static uint32_t count_weighted(const sl_config_list *list)
{
    uint32_t count = 0;
    double weight;
    for (uint32_t i = 0; i < list->count; i++)
        count += sl_config_weigh(list->items[i], &weight) != list->items[i];
    return count;
}

sl_status sl_data_shares_check(const sl_config *config, sl_config_command command)
{
    const sl_config_list *data = &config->data;
    uint32_t weighted = count_weighted(data);
    for (uint32_t i = 0; i < data->count; i++)
        if (is_weightless(data->items[i]))
            SL_FAIL(SL_ERROR_USAGE, "--data %s: a weight is above 0 (if this is a path: ./%s)",
                    data->items[i], data->items[i]);
    if (!isfinite(add_weights(data)))
        SL_FAIL(SL_ERROR_USAGE, "--data: the sum of the weights is too large to be a number: give "
                                "smaller ones, only their ratios count");
    if (weighted > 0 && command == SL_CONFIG_EVAL)
        SL_FAIL(SL_ERROR_USAGE, "weights in --data say which share of the rows of a training a "
                                "file has: leave them out for eval, which reads all of each");
    if (weighted > 0 && weighted < data->count)
        SL_FAIL(SL_ERROR_USAGE, "--data: %u of %u have a weight: give each one, or none", weighted,
                data->count);
    if (count_weighted(&config->eval_data) > 0)
        SL_FAIL(SL_ERROR_USAGE, "--eval-data takes no weights: all of each file is read");
    return SL_OK;
}

static sl_status fail_split(const char *text)
{
    SL_FAIL(SL_ERROR_USAGE,
            "--split %s: is not three shares with commas between, from 0 on, the first above 0, as "
            "in 98,1,1",
            text);
}

sl_status sl_config_split(const sl_config *config, double out_shares[SL_CONFIG_SHARES])
{
    const char *at = config->split ? config->split : "1,0,0";
    double sum = 0;
    for (int i = 0; i < SL_CONFIG_SHARES; i++) {
        char number[32];
        size_t length = strcspn(at, ",");
        bool has_next = at[length] == ',';
        if (length == 0 || length >= sizeof number || has_next != (i + 1 < SL_CONFIG_SHARES))
            return fail_split(config->split);
        memcpy(number, at, length);
        number[length] = '\0';
        if (sl_units_parse_real(number, &out_shares[i]) != SL_OK || !(out_shares[i] >= 0) ||
            !(out_shares[i] <= 1e9))
            return fail_split(config->split);
        sum += out_shares[i];
        at += length + has_next;
    }
    if (out_shares[0] == 0)
        return fail_split(config->split);
    for (int i = 0; i < SL_CONFIG_SHARES; i++)
        out_shares[i] /= sum;
    return SL_OK;
}
