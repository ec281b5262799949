/* The schedule of a step: which micro-batch goes through which segments when. Private to the room.
 *
 * A schedule is a table of rows, and an order of micro-batches (micro, layer, gpipe, 1f1b) is a
 * function that writes such a table. The step copies the tape (tape.h) row by row.
 *
 * Rows stand in sections, which are run once or repeated; so the table of 512 micro-batches is as
 * long as that of few. Each micro-batch has a place. Micro-batches at one place never live at the
 * same time, so a value that they keep between sections has one name.
 */
#ifndef SL_PROGRAM_SCHEDULE_H
#define SL_PROGRAM_SCHEDULE_H

#include "tape.h"

typedef enum sl_direction {
    SL_DIRECTION_FORWARD,
    SL_DIRECTION_BACKWARD, /* from the last segment to the first */
    SL_DIRECTION_LOSS      /* segments that end in the loss: each forward and at once backward; the
                            * other directions leave those out */
} sl_direction;

/* A micro-batch of the first repetition of a section. */
typedef struct sl_placed {
    uint32_t micro_batch;
    uint32_t place;
    uint32_t serial; /* number of the micro-batch if each section ran once */
} sl_placed;

typedef struct sl_schedule_row {
    sl_direction direction;
    uint32_t section; /* index of the row's section */
    uint32_t first_segment, segment_end;
    uint32_t only_op; /* BACKWARD: this forward op alone; SL_NONE: all ops of the segments */
    sl_placed batch;
    /* The EXCHANGE that sends a value of the row also receives one, of this micro-batch; SL_NONE:
     * it only sends. */
    sl_placed returns;
    bool has_received; /* an EXCHANGE of an earlier row has received the row's value */
    bool refills;      /* from this row on, inputs are filled anew */
} sl_schedule_row;

typedef struct sl_schedule_table {
    sl_schedule_row *rows;
    uint32_t row_count, row_capacity;
    sl_section *sections; /* `first` and `count` are of rows */
    uint32_t section_count, section_capacity;
    uint32_t place_count;
    bool shares_inputs; /* ops of the forward phase fill one value for each input, ops of other
                           phases another */
} sl_schedule_table;

/* Writes the table for a forward program. `tape` says which uses of parameters are deferred. Close
 * with sl_schedule_close, also after a failure. */
sl_status sl_schedule_build(const sl_program *forward, const sl_tape *tape,
                            const sl_step_options *options, sl_schedule_table *out_schedule);

void sl_schedule_close(sl_schedule_table *schedule);

#endif
