/* The tensors of saved checkpoints, compared file by file, and logs of runs whose sums differ.
 * Behind command_run.h. */
#ifndef SL_TESTS_SAVED_TENSORS_H
#define SL_TESTS_SAVED_TENSORS_H

#include <fcntl.h>
#include <fnmatch.h>

#include "files/safetensors.h"

static inline void shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

static inline sl_safetensors *open_file(const char *directory, const char *name)
{
    char path[PATH_BYTES];
    sl_safetensors *file = NULL;
    snprintf(path, sizeof path, "%s/%s.safetensors", directory, name);
    if (sl_safetensors_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file) != SL_OK)
        fail_msg("%s", sl_status_message());
    return file;
}

/* Without what stands before names in files of models. */
static inline const char *name_of(const sl_safetensors_tensor *tensor)
{
    static const char before[] = "transformer.";
    const bool has = strncmp(tensor->name, before, sizeof before - 1) == 0;
    return has ? tensor->name + sizeof before - 1 : tensor->name;
}

static inline bool is_among(const sl_safetensors_tensor *tensor, const char *pattern)
{
    return fnmatch(pattern, name_of(tensor), 0) == 0;
}

/* The caller frees the values. */
static inline float *read_tensor(const sl_safetensors *file, const sl_safetensors_tensor *tensor)
{
    float *values = calloc(tensor->element_count, sizeof *values);
    assert_non_null(values);
    assert_int_equal(sl_safetensors_read(file, tensor, 0, tensor->element_count, values), SL_OK);
    return values;
}

typedef float conversion(float value);

static inline float keep(float value)
{
    return value;
}

/* Whether a tensor of `left` is to the bit what `convert` makes of that of `right`. */
static inline bool is_same(const sl_safetensors *left, const sl_safetensors *right,
                           const sl_safetensors_tensor *tensor, conversion *convert)
{
    const sl_safetensors_tensor *other = sl_safetensors_find(right, tensor->name);
    assert_non_null(other);
    assert_int_equal(other->element_count, tensor->element_count);
    float *a = read_tensor(left, tensor), *b = read_tensor(right, other);
    for (uint64_t i = 0; i < tensor->element_count; i++)
        b[i] = convert(b[i]);
    const bool answer = memcmp(a, b, tensor->element_count * sizeof *a) == 0;
    free(a);
    free(b);
    return answer;
}

/* Tensors that match are not what `convert` makes of those of `right`, and the others are. */
static inline void assert_only_differ(const char *name, const char *left, const char *right,
                                      const char *pattern, conversion *convert)
{
    sl_safetensors *a = open_file(left, name), *b = open_file(right, name);
    for (uint32_t t = 0; t < a->tensor_count; t++) {
        const sl_safetensors_tensor *tensor = &a->tensors[t];
        if (is_same(a, b, tensor, convert) == is_among(tensor, pattern))
            fail_msg("%s of %s and %s: %s is %s", name, left, right, tensor->name,
                     is_among(tensor, pattern) ? "the same" : "another one");
    }
    sl_safetensors_close(a);
    sl_safetensors_close(b);
}

static inline void assert_holds_only(const char *directory, const char *name, const char *pattern,
                                     uint32_t count)
{
    sl_safetensors *file = open_file(directory, name);
    assert_int_equal(file->tensor_count, count);
    for (uint32_t t = 0; t < count; t++)
        if (!is_among(&file->tensors[t], pattern))
            fail_msg("%s of %s holds %s", name, directory, file->tensors[t].name);
    sl_safetensors_close(file);
}

static inline void assert_same_files(const char *left, const char *right)
{
    static const char *const names[] = {"model", "moment1", "moment2"};
    for (int i = 0; i < 3; i++) {
        char command[COMMAND_BYTES];
        snprintf(command, sizeof command, "cmp %s/%s.safetensors %s/%s.safetensors >&2", left,
                 names[i], right, names[i]);
        shell(command);
    }
}

static inline void assert_near(const char *name, const char *other, json_int_t last)
{
    json_t *a = read_log(name), *b = read_log(other);
    for (json_int_t step = 1; step <= last; step++) {
        const numbers left = find_step(a, step), right = find_step(b, step);
        if (!(fabs(left.loss / right.loss - 1) <= 2e-6 &&
              fabs(left.grad_norm / right.grad_norm - 1) <= 2e-5))
            fail_msg("%s and %s differ at step %lld: loss %.9g and %.9g, norm %.9g and %.9g", name,
                     other, (long long)step, left.loss, right.loss, left.grad_norm,
                     right.grad_norm);
    }
    json_decref(a);
    json_decref(b);
}

#endif
