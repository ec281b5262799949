/* Running the built command in a directory of its own, and looking at what a user would see. For
 * the test programs of the command; each defines _GNU_SOURCE first and includes this once. */
#ifndef SL_TESTS_COMMAND_RUN_H
#define SL_TESTS_COMMAND_RUN_H

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

/* Where the command is: so many levels up from this program, and its name there. */
#ifndef COMMAND_NAME
#define COMMAND_LEVELS 2
#define COMMAND_NAME "/sluice"
#endif

enum { PATH_BYTES = 512, TEXT_BYTES = 1 << 16, COMMAND_BYTES = 4096 };

static char work_directory[] = "/tmp/sluice-command-XXXXXX";
static char binary[PATH_BYTES];
static char output[TEXT_BYTES], complaint[TEXT_BYTES]; /* of the last command */
static char speed[128];        /* what generate says of it, which is no complaint */
static unsigned limit_s = 250; /* of a command; one that takes longer leaves with 124 */

/* A model of 2 layers that takes milliseconds a step. */
#define TINY "--layers 2 --width 32 --heads 2 --context 32 --micro-batch 2 "

static void read_text(const char *name, char *text)
{
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, TEXT_BYTES - 1, file);
    text[length] = '\0';
    fclose(file);
}

/* The last line of what generate says is its speed. */
static inline void take_speed(void)
{
    char *line = strstr(complaint, "sluice: prompt ");
    *speed = '\0';
    if (!line || !strstr(line, " token"))
        return;
    snprintf(speed, sizeof speed, "%s", line);
    *line = '\0';
}

/* What a run said, without that another one of the machine takes memory just now: that is no
 * complaint about this one, and depends on what runs beside the test. */
static inline void read_complaint(const char *name)
{
    static const char note[] = "sluice: another run, or rank of this one, is taking its memory";
    char *line;
    read_text(name, complaint);
    while ((line = strstr(complaint, note)) != NULL) {
        const char *end = strchr(line, '\n');
        if (!end)
            end = line + strlen(line) - 1;
        memmove(line, end + 1, strlen(end + 1) + 1);
    }
}

static inline int run_with_input(const char *arguments, const char *input)
{
    char command[COMMAND_BYTES + 2 * PATH_BYTES + 64];
    snprintf(command, sizeof command, "timeout -k 1 %u '%s' %s >out 2>err <'%s'", limit_s, binary,
             arguments, input);
    int status = system(command);
    read_text("out", output);
    read_complaint("err");
    take_speed();
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Runs `sluice ARGUMENTS`; returns its exit code. */
static inline int __attribute__((format(printf, 1, 2))) sluice(const char *format, ...)
{
    char arguments[COMMAND_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    return run_with_input(arguments, "/dev/null");
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* One line on standard error, with the name in front. */
static inline void assert_one_complaint(const char *part)
{
    char *end = strchr(complaint, '\n');
    if (strncmp(complaint, "sluice: ", 8) != 0 || !end || end[1] != '\0')
        fail_msg("not one line: \"%s\"", complaint);
    assert_has(complaint, part);
}

static inline void assert_code(int code, int expected)
{
    if (code != expected)
        fail_msg("exit code %d, not %d: %s", code, expected, complaint);
}

/* Event `index` of a kind in a log; borrowed from *out_lines, which the caller releases. */
static json_t *read_log(const char *name)
{
    json_t *events = json_array();
    char line[1 << 14];
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *event = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (!event)
            fail_msg("%s: not JSON: %s", name, line);
        json_array_append_new(events, event);
    }
    fclose(file);
    return events;
}

static const char *kind_of(const json_t *event)
{
    return json_string_value(json_object_get(event, "event"));
}

/* The values that no placement may change, of step `step`. */
typedef struct numbers {
    double loss, grad_norm, lr;
} numbers;

static numbers find_step(const json_t *events, json_int_t step)
{
    size_t index;
    json_t *event;
    json_array_foreach((json_t *)events, index, event)
    {
        if (strcmp(kind_of(event), "step") == 0 &&
            json_integer_value(json_object_get(event, "step")) == step)
            return (numbers){json_number_value(json_object_get(event, "loss")),
                             json_number_value(json_object_get(event, "grad_norm")),
                             json_number_value(json_object_get(event, "lr"))};
    }
    fail_msg("no step %lld", (long long)step);
    return (numbers){0};
}

static inline void assert_same_steps(const char *name, const char *other, json_int_t first,
                                     json_int_t last)
{
    json_t *a = read_log(name), *b = read_log(other);
    for (json_int_t step = first; step <= last; step++) {
        numbers left = find_step(a, step), right = find_step(b, step);
        if (memcmp(&left, &right, sizeof left) != 0)
            fail_msg("%s and %s differ at step %lld: loss %.17g and %.17g", name, other,
                     (long long)step, left.loss, right.loss);
    }
    json_decref(a);
    json_decref(b);
}

/* The last event of a log with this name; the caller does not own it. */
static inline const json_t *find_last_event(const json_t *log, const char *name)
{
    size_t i;
    json_t *record, *found = NULL;
    json_array_foreach(log, i, record)
    {
        const char *event = json_string_value(json_object_get(record, "event"));
        if (event && strcmp(event, name) == 0)
            found = record;
    }
    assert_non_null(found);
    return found;
}

static inline void assert_peaks_as_planned(const json_t *log)
{
    static const char *const tiers[] = {"device", "host", "disk"};
    const json_t *all = json_object_get(find_last_event(log, "end"), "tiers");
    for (int i = 0; i < 3; i++) {
        json_int_t planned = -1, measured = -2;
        json_unpack(json_object_get(all, tiers[i]), "{s:I, s:I}", "planned_peak_bytes", &planned,
                    "measured_peak_bytes", &measured);
        assert_int_equal(planned, measured);
    }
}

/* ---- set-up ---- */

static void write_texts(void)
{
    static const char *const words[] = {"the", "lock",  "gate", "water", "rises",
                                        "and", "falls", "of",   "a",     "boat"};
    FILE *file = fopen("text", "w");
    unsigned draw = 12345;
    for (int i = 0; i < 3000; i++) {
        draw = draw * 1664525u + 1013904223u;
        fprintf(file, "%s%s", words[draw >> 16 & 7], i % 12 == 11 ? ".\n" : " ");
    }
    fclose(file);
    file = fopen("short", "w");
    fputs("too short", file);
    fclose(file);
    file = fopen("bad.json", "w");
    fputs("{\"steps\": 1, \"steps\": 2}", file);
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    ssize_t length = readlink("/proc/self/exe", binary, sizeof binary - 1);
    if (length < 0 || !mkdtemp(work_directory) || chdir(work_directory) != 0)
        return 1;
    binary[length] = '\0';
    for (int i = 0; i < COMMAND_LEVELS; i++)
        *strrchr(binary, '/') = '\0';
    strncat(binary, COMMAND_NAME, sizeof binary - strlen(binary) - 1);
    if (access(binary, X_OK) != 0) {
        print_message("skipped: %s was not built\n", binary);
        exit(77);
    }
    setenv("XDG_CACHE_HOME", work_directory, 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* the same runs whether or not there is a GPU */
    write_texts();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[PATH_BYTES];
    snprintf(command, sizeof command, "rm -rf %s", work_directory);
    return chdir("/") == 0 && system(command) == 0 ? 0 : 1;
}

/* Whether a process holds a file open that has no name any more, and whose name had `part`. */
static inline bool holds_deleted(pid_t child, const char *part)
{
    char path[64], target[PATH_BYTES];
    bool is_found = false;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)child);
    DIR *directory = opendir(path);
    for (struct dirent *entry = directory ? readdir(directory) : NULL; entry;
         entry = readdir(directory)) {
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        is_found = is_found || (strstr(target, "(deleted)") && strstr(target, part));
    }
    if (directory)
        closedir(directory);
    return is_found;
}

#endif
