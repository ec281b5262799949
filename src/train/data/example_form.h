/* Which examples the options name, and what became of them in the rows of a loader. */
#ifndef SL_TRAIN_EXAMPLE_FORM_H
#define SL_TRAIN_EXAMPLE_FORM_H

#include "config/config.h"
#include "data_loader.h"
#include "text/example.h"

/* Zeros: the data are no examples. */
typedef struct sl_examples {
    sl_example_form form;
    char *template_text; /* of --template, or of the model; NULL: the default; owned */
} sl_examples;

/* Whether --template names a file. */
bool sl_examples_has_file(const sl_config *config);

/* The text of --template, or NULL where no file is named; release with free(). An editor's line end
 * behind it is not of it. SL_ERROR_DATA: it is no text. SL_ERROR_MISSING, SL_ERROR_IO. */
sl_status sl_examples_read_template(const sl_config *config, char **out_text);

/* Reads --template; where none is given, takes `known`, the template of the model's own examples,
 * if it is of the same form (NULL: none is known). On failure too the caller closes `out_examples`.
 * SL_ERROR_USAGE: the template lacks a mark. SL_ERROR_DATA: it is no text. SL_ERROR_MISSING,
 * SL_ERROR_IO. */
sl_status sl_examples_open(const sl_config *config, const char *known, sl_examples *out_examples);
void sl_examples_close(sl_examples *examples);

/* The form; NULL: the data are no examples. */
const sl_example_form *sl_examples_form(const sl_examples *examples);

/* Logs how many examples are in how many rows, and a warning if some were cut. `what`: "training"
 * or "evaluation". Of a loader without examples nothing. */
void sl_examples_tell(const sl_data_loader *loader, const char *what);

#endif
