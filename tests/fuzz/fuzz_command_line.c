/* The words of a command line. The first byte of an input says which command, the lines behind it
 * are the words; "@" at the end of one stands for the path of a configuration. What is accepted is
 * printed, and what was printed, read as a file, gives the same. */
#define _GNU_SOURCE
#include "cli/command_help.h"
#include "cli/options.h"
#include "fuzz.h"
#include "settings.h"

enum { WORDS_MAX = 64 };

void sl_command_help_print(const sl_command_entry *command, bool is_whole, FILE *stream)
{
    (void)command;
    (void)is_whole;
    (void)stream;
}

void sl_command_print_version(FILE *stream)
{
    fputs("version\n", stream);
}

static scratch_path config_path;

static void start(void)
{
    static const char file[] = "{\"seed\": 7, \"data\": [\"x\", \"y\"], \"quiet\": true}";
    if (config_path.text[0] != '\0')
        return;
    config_path = fuzz_write("a.json", file, sizeof file - 1);
    scratch_need(freopen("/dev/null", "w", stdout) != NULL, "stdout"); /* for the help */
}

/* One word in memory of its own, so that a sanitizer sees its end. */
static char *copy_word(const char *text, size_t bytes)
{
    bool names_config = bytes > 0 && text[bytes - 1] == '@';
    const char *path = names_config ? config_path.text : "";
    size_t front = bytes - names_config, capacity = front + strlen(path) + 1;
    char *word = malloc(capacity);
    if (word)
        snprintf(word, capacity, "%.*s%s", (int)front, text, path);
    return word;
}

static int split_words(const char *text, size_t bytes, char **out_words)
{
    int count = 0;
    out_words[count++] = copy_word("sluice", 6);
    for (size_t first = 0, end; first < bytes && count < WORDS_MAX; first = end + 1) {
        const char *line_end = memchr(text + first, '\n', bytes - first);
        end = line_end ? (size_t)(line_end - text) : bytes;
        out_words[count++] = copy_word(text + first, end - first);
    }
    return count;
}

static void parse(const uint8_t *data, size_t bytes, int word_count, char **words)
{
    const sl_config_command options = settings_command(data[0]);
    const bool takes_checkpoint = options & (SL_CONFIG_GENERATE | SL_CONFIG_EVAL);
    const sl_command_entry command = {.options = options,
                                      .name = "command",
                                      .arguments = takes_checkpoint ? "[CHECKPOINT]" : NULL,
                                      .doc = "A command."};
    sl_config config;
    bool is_answered = false;
    if (fuzz_accepts(sl_options_parse(&command, word_count, words, &config, &is_answered)) &&
        !is_answered)
        settings_print_and_read(&config, options, (const char *)data, bytes);
    sl_config_clear(&config);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    char *words[WORDS_MAX + 1] = {NULL};
    /* A path could lead to any file of the machine; a NUL ends a word. */
    if (bytes == 0 || memchr(data, '/', bytes) || memchr(data + 1, '\0', bytes - 1))
        return;
    start();
    int count = split_words((const char *)data + 1, bytes - 1, words);
    bool is_whole = true;
    for (int i = 0; i < count; i++)
        is_whole = is_whole && words[i];
    if (is_whole)
        parse(data, bytes, count, words);
    for (int i = 0; i < count; i++)
        free(words[i]);
}
