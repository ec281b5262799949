/* Settings: a file for --config, or lines for --set. The first byte of an input says for which
 * command, and with the bit AS_LINES which of the two. A configuration that is accepted is printed,
 * and what was printed, read as a file, gives the same. */
#define _GNU_SOURCE
#include "fuzz.h"
#include "settings.h"

enum { AS_LINES = 8, LINE_BYTES = 512 };

static bool assign_lines(sl_config *config, sl_config_command command, const char *data,
                         size_t bytes)
{
    char line[LINE_BYTES];
    for (size_t first = 0, end; first < bytes; first = end + 1) {
        for (end = first; end < bytes && data[end] != '\n'; end++)
            continue;
        if (end - first >= sizeof line)
            return false;
        memcpy(line, data + first, end - first);
        line[end - first] = '\0';
        if (!fuzz_accepts(sl_config_assign(config, command, line)))
            return false;
    }
    return true;
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_config config;
    if (bytes == 0)
        return;
    const char *text = (const char *)data + 1;
    sl_config_command command = settings_command(data[0]);
    scratch_path path = fuzz_write("run.json", text, bytes - 1);
    if (!fuzz_succeeds(sl_config_init(&config)))
        return;
    bool is_read = data[0] & AS_LINES
                       ? assign_lines(&config, command, text, bytes - 1)
                       : fuzz_accepts(sl_config_file_load(&config, command, path.text));
    if (is_read && fuzz_accepts(sl_config_check(&config, command))) {
        if (command == SL_CONFIG_TRAIN)
            (void)fuzz_accepts(sl_config_check_recorded(&config, command));
        settings_print_and_read(&config, command, text, bytes - 1);
        settings_find_shape(&config, command);
    }
    sl_config_clear(&config);
}
