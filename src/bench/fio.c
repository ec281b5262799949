/* Starts fio with the file as descriptor FILE_FD, which it opens anew by its name in /dev/fd, so a
 * file without a name will do, and nothing is left behind however it ends. */
#define _GNU_SOURCE
#include "fio.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files/json_file.h"

enum { FILE_FD = 100, WORD_BYTES = 64, OUTPUT_BYTES = 1 << 20 };

static sl_status read_output(int fd, char *text, size_t *out_count)
{
    size_t count = 0;
    while (count < OUTPUT_BYTES) {
        ssize_t got = read(fd, text + count, OUTPUT_BYTES - count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            SL_FAIL(SL_ERROR_SYSTEM, "fio cannot be read: %s", strerror(errno));
        if (got == 0)
            break;
        count += (size_t)got;
    }
    *out_count = count;
    return SL_OK;
}

static int add_actions(posix_spawn_file_actions_t *actions, const sl_fio_job *job, int output)
{
    int error = posix_spawn_file_actions_adddup2(actions, output, STDOUT_FILENO);
    if (!error)
        error = posix_spawn_file_actions_adddup2(actions, job->fd, FILE_FD);
    if (!error)
        error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_addopen(actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    return error;
}

static sl_status start_fio(const sl_fio_job *job, int output, pid_t *out_pid)
{
    char block[WORD_BYTES], depth[WORD_BYTES], runtime[WORD_BYTES], size[WORD_BYTES];
    snprintf(block, sizeof block, "--bs=%" PRIu32, job->block_bytes);
    snprintf(depth, sizeof depth, "--iodepth=%" PRIu32, job->depth);
    snprintf(runtime, sizeof runtime, "--runtime=%" PRIu32 "ms", job->milliseconds);
    snprintf(size, sizeof size, "--size=%" PRIu64, job->bytes);
    const char *words[] = {"fio",
                           "--output-format=json",
                           "--name=sluice",
                           job->is_write ? "--rw=write" : "--rw=read",
                           "--filename=/dev/fd/100",
                           "--ioengine=io_uring",
                           "--fixedbufs=1",
                           "--registerfiles=1",
                           "--direct=1",
                           "--thread",
                           "--overwrite=1",
                           "--time_based",
                           block,
                           depth,
                           runtime,
                           size,
                           NULL};
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (!error) {
        error = add_actions(&actions, job, output);
        if (!error)
            error = posix_spawnp(out_pid, "fio", &actions, NULL, (char *const *)words, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    if (error == ENOENT)
        SL_FAIL(SL_ERROR_MISSING, "fio is not installed");
    if (error)
        SL_FAIL(SL_ERROR_SYSTEM, "fio does not start: %s", strerror(error));
    return SL_OK;
}

/* Warnings may stand before the object. */
static sl_status find_rate(const sl_fio_job *job, const char *text, double *out_rate)
{
    const char *start = strchr(text, '{');
    json_t *root = NULL;
    if (!start)
        SL_FAIL(SL_ERROR_SYSTEM, "fio failed: %.60s", text);
    SL_TRY(sl_json_file_parse("fio", start, strlen(start), &root));
    const json_t *first = json_array_get(json_object_get(root, "jobs"), 0);
    const json_t *lane = json_object_get(first, job->is_write ? "write" : "read");
    double rate = json_number_value(json_object_get(lane, "bw_bytes"));
    json_decref(root);
    if (!(rate > 0))
        SL_FAIL(SL_ERROR_SYSTEM, "fio says no rate");
    *out_rate = rate;
    return SL_OK;
}

static sl_status collect(const sl_fio_job *job, int input, pid_t pid, double *out_rate)
{
    size_t count = 0;
    int state = 0;
    char *text = malloc(OUTPUT_BYTES + 1);
    sl_status status = text ? read_output(input, text, &count) : SL_ERROR_SYSTEM;
    close(input); /* a child that goes on writing ends by that */
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
        ;
    if (status == SL_OK && (!WIFEXITED(state) || WEXITSTATUS(state) != 0))
        status = sl_status_fail(SL_ERROR_SYSTEM, "fio failed with status %d",
                                WIFEXITED(state) ? WEXITSTATUS(state) : -1);
    if (status == SL_OK) {
        text[count] = '\0';
        status = find_rate(job, text, out_rate);
    }
    free(text);
    return status;
}

sl_status sl_fio_run(const sl_fio_job *job, double *out_rate)
{
    int ends[2];
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no pipe for fio: %s", strerror(errno));
    sl_status status = start_fio(job, ends[1], &pid);
    close(ends[1]);
    if (status != SL_OK) {
        close(ends[0]);
        return status;
    }
    return collect(job, ends[0], pid, out_rate);
}
