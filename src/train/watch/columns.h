/* The columns of a run's records, in the order in which they are written: what a value is called in
 * the JSON log, in CSV and in TensorBoard, which member it is, and what it means. A new value is a
 * member of report.h and one row here. Names end in their unit.
 */
#ifndef SL_TRAIN_COLUMNS_H
#define SL_TRAIN_COLUMNS_H

#include "files/fields.h"
#include "report.h"

typedef struct sl_column {
    sl_field field;      /* its key and member; OPTIONAL: one that is not finite is not there */
    const char *group;   /* the JSON object in which it stands (CSV: group_key), or NULL */
    const char *tag;     /* of TensorBoard; of an evaluation behind its set; NULL: it has none */
    const char *meaning; /* in a few words */
} sl_column;

enum { SL_COLUMN_NAME_BYTES = 64 };

/* All end with a key that is NULL. Those of ranks are of a step, too, where there are several; they
 * are not in CSV, whose columns are the same for every run. */
const sl_column *sl_columns_of_step(void);
const sl_column *sl_columns_of_ranks(void);
const sl_column *sl_columns_of_eval(void);

/* Writes a record as text, `"key":value` with commas between, as sl_fields_print does. */
size_t sl_columns_print(const sl_column *columns, const void *report, char *out_text,
                        size_t capacity);

/* Writes `"lr_of":{"PATTERN":rate,...}`; nothing, where all tensors have the same learning rate. */
size_t sl_columns_print_rates(const sl_step_report *report, char *out_text, size_t capacity);

/* The name of a column where there are no groups. */
void sl_columns_name(const sl_column *column, char out_name[SL_COLUMN_NAME_BYTES]);

#endif
