/* A program outside of sluice: lays GPT-2 out and prints what it got. */
#include <stdio.h>

#include <model/architecture.h>
#include <sluice/chunk.h>
#include <sluice/device.h>
#include <sluice/version.h>

int main(void)
{
    sl_model_shape shape;
    sl_model_options options = {.batch = 1, .seq = 64, .tp_size = 1};
    sl_program *program = NULL;
    sl_layout *layout = NULL;
    sl_device_info info; /* of a device, for which the whole backend is linked */
    if (sl_architecture_named("gpt2", &shape) != SL_OK ||
        sl_model_shape_emit(&shape, &options, &program) != SL_OK ||
        sl_layout_build(program, 0, &layout) != SL_OK ||
        sl_device_query(SL_DEVICE_CPU, 0, &info) != SL_OK) {
        fprintf(stderr, "%s\n", sl_status_message());
        return 1;
    }
    printf("sluice %s: %u chunks\n", sl_version_text(), (unsigned)layout->chunk_count);
    sl_layout_close(layout);
    sl_program_close(program);
    return 0;
}
