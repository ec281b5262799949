/* The options that a checkpoint keeps of its run, merged with present ones. An input is lines: the
 * resolved options and the given ones, as JSON, then present ones as for --set, or, where one
 * begins with a brace, as a file for --config has them. */
#define _GNU_SOURCE
#include "config/restore.h"
#include "fuzz.h"
#include "settings.h"

/* Cuts the next line off; NULL behind the last. */
static char *take_line(char **rest)
{
    return *rest ? strsep(rest, "\n") : NULL;
}

static sl_status assign_line(sl_config *config, const char *line)
{
    if (*line != '{')
        return sl_config_assign(config, SL_CONFIG_TRAIN, line);
    scratch_path path = fuzz_write("run.json", line, strlen(line));
    return sl_config_file_load(config, SL_CONFIG_TRAIN, path.text);
}

static bool assign_lines(sl_config *config, char *rest)
{
    for (char *line; (line = take_line(&rest));)
        if (*line && !fuzz_accepts(assign_line(config, line)))
            return false;
    return true;
}

static void restore(char *text)
{
    sl_config config;
    char *rest = text, *changes = NULL;
    const char *resolved = take_line(&rest), *given = take_line(&rest);
    const sl_config_record record = {resolved, given && *given ? given : NULL};
    if (!fuzz_succeeds(sl_config_init(&config)))
        return;
    if (assign_lines(&config, rest) &&
        fuzz_accepts(sl_config_restore(&config, &record, &changes)) &&
        fuzz_accepts(sl_config_check(&config, SL_CONFIG_TRAIN)) &&
        fuzz_accepts(sl_config_tell_followers(&config, &record, &changes)))
        FUZZ_NEED(changes != NULL);
    free(changes);
    sl_config_clear(&config);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    if (!text)
        return;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    restore(text);
    free(text);
}
