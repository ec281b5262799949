/* A program outside of sluice: trains a small GPT-2 on rows of its own for two steps. C and C++. */
#include <stdio.h>

#include <sluice/device.h>
#include <sluice/log.h>
#include <sluice/session.h>
#include <sluice/version.h>

static sl_status give_rows(void *user, uint64_t first_row, uint32_t row_count, uint32_t token_count,
                           int32_t *out_tokens)
{
    (void)user;
    for (uint32_t i = 0; i < row_count * token_count; i++)
        out_tokens[i] = (int32_t)((first_row + i / token_count + i % token_count) % 257);
    return SL_OK;
}

int main(void)
{
    const char *const settings[] = {
        "layers",      "2",   "width",       "32", "heads", "2", "context",       "16",
        "vocab",       "257", "micro-batch", "2",  "steps", "2", "device-memory", "64M",
        "host-memory", "64M", "threads",     "1",  NULL};
    sl_options *options = NULL;
    sl_session *session = NULL;
    sl_step_result step;
    sl_tensor_info tensor;
    sl_device_info info; /* of a device, for which the whole backend is linked */
    uint32_t count = 0;
    step.size = sizeof step;
    tensor.size = sizeof tensor;
    if (sl_options_open(&options) != SL_OK || sl_options_set_all(options, settings) != SL_OK ||
        sl_device_query(SL_DEVICE_CPU, 0, &info) != SL_OK) {
        fprintf(stderr, "%s\n", sl_status_message());
        return 1;
    }
    sl_log_set_callback(NULL, NULL);
    sl_options_set_rows(options, give_rows, NULL);
    if (sl_session_open(options, &session) != SL_OK || sl_session_step(session, NULL) != SL_OK ||
        sl_session_step(session, &step) != SL_OK) {
        fprintf(stderr, "%s\n", sl_status_message());
        return 1;
    }
    while (sl_session_tensor(session, count, &tensor))
        count++;
    printf("sluice %s: %u tensors, %u steps\n", sl_version_text(), (unsigned)count,
           (unsigned)step.step);
    sl_session_close(session);
    sl_options_close(options);
    return 0;
}
