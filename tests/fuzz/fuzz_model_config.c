/* Hugging Face's config.json. The shape of what is accepted is written as sluice writes it, and
 * read again equal. */
#define _GNU_SOURCE
#include "foreign/weights.h"
#include "fuzz.h"

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_model_shape shape = {0}, again = {0};
    char *text = NULL;
    fuzz_write("config.json", data, bytes);
    if (!fuzz_accepts(sl_weights_read_config(fuzz_directory(), &shape)))
        return;
    FUZZ_NEED(shape.layers && shape.width && shape.heads && shape.context && shape.vocab);
    FUZZ_NEED(sl_model_shape_is_llama(&shape) ? sl_model_shape_check(&shape, 1) == SL_OK
                                              : shape.width % shape.heads == 0);
    if (!fuzz_succeeds(sl_weights_format_config(&shape, "float32", shape.vocab - 1, &text)))
        return;
    fuzz_write("config.json", text, strlen(text));
    free(text);
    if (fuzz_succeeds(sl_weights_read_config(fuzz_directory(), &again)))
        FUZZ_NEED(sl_model_shape_is_same(&shape, &again));
}
