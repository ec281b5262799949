/* What the targets of settings share: commands, and the way of a configuration through its print.
 */
#ifndef SL_TESTS_FUZZ_SETTINGS_H
#define SL_TESTS_FUZZ_SETTINGS_H

#include "config/config_json.h"
#include "foreign/deepspeed/config_file.h"
#include "fuzz.h"

enum { SETTINGS_COMMAND_COUNT = 8 };

static inline sl_config_command settings_command(uint8_t byte)
{
    return (sl_config_command)(1u << byte % SETTINGS_COMMAND_COUNT);
}

static inline const char *settings_name(sl_config_command command)
{
    static const char *const names[] = {"train",  "plan",  "generate", "eval",
                                        "doctor", "bench", "tokenize", "convert"};
    return names[__builtin_ctz(command)];
}

static inline void settings_compare(const json_t *printed, const sl_config *again,
                                    sl_config_command command)
{
    json_t *object = NULL;
    if (!fuzz_succeeds(sl_config_format(again, command, &object)))
        return;
    if (!json_equal(printed, object) && !fuzz_refuses_memory) {
        json_dumpf(printed, stderr, 0);
        json_dumpf(object, stderr, 0);
        fuzz_fail("a printed configuration gives the same", __FILE__, __LINE__);
    }
    json_decref(object);
}

/* The shape that a configuration of training names, and the row that has to fit it. */
static inline void settings_find_shape(sl_config *config, sl_config_command command)
{
    const sl_model_shape base = {2, 64, 4, 32, 257};
    sl_model_shape shape;
    if (!(command & (SL_CONFIG_TRAIN | SL_CONFIG_PLAN)))
        return;
    bool is_named = fuzz_accepts(sl_config_shape(config, NULL, 257, &shape));
    if (!is_named && !fuzz_accepts(sl_config_shape(config, &base, 257, &shape)))
        return;
    FUZZ_NEED(shape.width % shape.heads == 0);
    if (fuzz_accepts(sl_config_fit_model(config, &shape)))
        FUZZ_NEED(config->seq <= shape.context);
}

/* What was given is a part of what is printed. */
static inline void settings_check_given(const sl_config *config, sl_config_command command,
                                        const json_t *printed)
{
    json_t *given = NULL, *value;
    const char *key;
    if (!fuzz_succeeds(sl_config_format_given(config, command, &given)))
        return;
    json_object_foreach(given, key, value)
    {
        FUZZ_NEED(fuzz_refuses_memory || json_equal(value, json_object_get(printed, key)));
    }
    json_decref(given);
}

/* Prints a checked configuration, and reads what was printed into a new one. Texts that are not
 * UTF-8 have no JSON spelling, so `text` has to be ASCII. */
static inline void settings_print_and_read(const sl_config *config, sl_config_command command,
                                           const char *text, size_t bytes)
{
    json_t *printed = NULL;
    sl_config again;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] >= 0x80)
            return;
    if (!fuzz_succeeds(sl_config_format(config, command, &printed)))
        return;
    settings_check_given(config, command, printed);
    /* Under the command's name, for not every option may stand beside those of other commands. */
    json_t *file = json_pack("{s:O}", settings_name(command), printed);
    char *dump = json_dumps(file, JSON_REAL_PRECISION(17));
    json_decref(file);
    scratch_path path = fuzz_write("printed.json", dump ? dump : "{}", dump ? strlen(dump) : 2);
    if (dump && fuzz_succeeds(sl_config_init(&again))) {
        if (fuzz_succeeds(sl_config_file_load(&again, command, path.text)) &&
            fuzz_succeeds(sl_config_check(&again, command)))
            settings_compare(printed, &again, command);
        sl_config_clear(&again);
    }
    free(dump);
    json_decref(printed);
}

#endif
