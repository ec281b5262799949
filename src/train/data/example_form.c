/* See example_form.h. */
#include "example_form.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/plural.h"
#include "files/files.h"

bool sl_examples_has_file(const sl_config *config)
{
    return config->template_file && strcmp(config->template_file, "none") != 0;
}

sl_status sl_examples_read_template(const sl_config *config, char **out_text)
{
    enum { TEMPLATE_BYTES_MAX = 1 << 20 };
    const char *path = config->template_file;
    sl_file file;
    *out_text = NULL;
    if (!sl_examples_has_file(config))
        return SL_OK;
    SL_TRY(sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file));
    const uint64_t bytes = file.bytes;
    const sl_status status = sl_files_read_text(&file, TEMPLATE_BYTES_MAX, out_text);
    sl_files_close(&file);
    SL_TRY(status);
    size_t length = strlen(*out_text);
    if (length < bytes)
        SL_FAIL(SL_ERROR_DATA, "--template %s: holds a NUL byte, and a template is text",
                sl_files_show(path).text);
    if (length > 0 && (*out_text)[length - 1] == '\n')
        length -= length > 1 && (*out_text)[length - 2] == '\r' ? 2 : 1;
    (*out_text)[length] = '\0';
    return SL_OK;
}

/* "none" asks for the default. */
static sl_status find_template(const sl_config *config, const char *known, char **out_text)
{
    if (config->template_file || !known ||
        sl_example_is_of_messages(known) != (config->messages_key != NULL))
        return sl_examples_read_template(config, out_text);
    *out_text = strdup(known);
    if (!*out_text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a template");
    return SL_OK;
}

sl_status sl_examples_open(const sl_config *config, const char *known, sl_examples *out_examples)
{
    *out_examples = (sl_examples){0};
    if (!sl_config_has_examples(config))
        return SL_OK;
    SL_TRY(find_template(config, known, &out_examples->template_text));
    out_examples->form = (sl_example_form){.prompt_key = config->prompt_key,
                                           .response_key = config->response_key,
                                           .messages_key = config->messages_key,
                                           .template_text = out_examples->template_text,
                                           .counts_all = config->loss == SL_CONFIG_LOSS_ALL};
    const sl_status status = sl_example_check_form(&out_examples->form);
    return status == SL_OK || !sl_examples_has_file(config)
               ? status
               : sl_status_prefix(status, "--template %s",
                                  sl_files_show(config->template_file).text);
}

void sl_examples_close(sl_examples *examples)
{
    free(examples->template_text);
    *examples = (sl_examples){0};
}

const sl_example_form *sl_examples_form(const sl_examples *examples)
{
    const sl_example_form *form = &examples->form;
    return form->prompt_key || form->messages_key ? form : NULL;
}

typedef struct suggestion {
    char text[48];
} suggestion;

/* Rows that are much longer than each example, and half empty. */
static suggestion suggest_length(uint64_t seq, uint64_t longest, double padding)
{
    static const double padding_min = 0.25;
    enum { UNIT = 64 };
    const uint64_t enough = (longest + UNIT - 1) / UNIT * UNIT;
    suggestion made = {""};
    if (padding >= padding_min && seq >= 2 * enough)
        snprintf(made.text, sizeof made.text, ": --seq %" PRIu64 " would hold it", enough);
    return made;
}

void sl_examples_tell(const sl_data_loader *loader, const char *what)
{
    sl_example_rows sum = {0};
    if (!loader->examples)
        return;
    for (uint32_t i = 0; i < loader->args.parts.count; i++) {
        const sl_example_rows *rows = &loader->examples[i];
        sum.example_count += rows->example_count;
        sum.row_count += rows->row_count;
        sum.token_count += rows->token_count;
        sum.cut_count += rows->cut_count;
        sum.dropped_count += rows->dropped_count;
        if (rows->longest > sum.longest)
            sum.longest = rows->longest;
    }
    const double padding =
        1 - fmin(1, (double)sum.token_count / ((double)sum.row_count * (loader->seq + 1.0)));
    sl_log_write(SL_LOG_NOTE,
                 "%s: %" PRIu64 " example%s in %" PRIu64 " row%s of %u tokens, %.0f%% of which are "
                 "padding; the longest has %" PRIu64 " token%s%s",
                 what, sum.example_count, sl_plural(sum.example_count), sum.row_count,
                 sl_plural(sum.row_count), loader->seq, 100 * padding, sum.longest,
                 sl_plural(sum.longest), suggest_length(loader->seq, sum.longest, padding).text);
    if (sum.cut_count > 0)
        sl_log_write(SL_LOG_WARNING,
                     "%" PRIu64 " of %" PRIu64
                     " examples are longer than a row and are cut; %" PRIu64
                     " of them have no response left and are left out: use longer rows (--seq)",
                     sum.cut_count, sum.example_count + sum.dropped_count, sum.dropped_count);
}
