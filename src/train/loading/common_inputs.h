/* What a rank begins with, as facts to compare between ranks: files of data, the vocabulary, and
 * the weights that a run starts or goes on with, or reads. A rank has its own copies, perhaps, and
 * nothing else would notice that one of them is another file. */
#ifndef SL_TRAIN_COMMON_INPUTS_H
#define SL_TRAIN_COMMON_INPUTS_H

#include "checkpoint/model_directory.h"
#include "comm/comm.h"
#include "files/tokens.h"
#include "text/vocabulary.h"

typedef struct sl_common_inputs_args {
    const sl_tokens *tokens, *eval_tokens; /* before text became ids; NULL: there are none */
    const sl_vocabulary *vocabulary;       /* likewise */
    const sl_model_directory *source;      /* of source_option; empty: none */
    const char *source_option;             /* "--init", "--checkpoint" */
    const char *checkpoint;                /* that the run goes on from; NULL: it does not */
    const char *template_text;             /* of examples; NULL: none is given */
} sl_common_inputs_args;

typedef struct sl_common_inputs {
    sl_comm_fact *facts; /* [count]: how many files there are of a kind stands before these */
    uint32_t count;
    char *texts; /* of the facts */
} sl_common_inputs;

/* Reads samples of the data, and of the source every weight: each rank reads that anyway. What is
 * listed is freed also after a failure. */
sl_status sl_common_inputs_list(const sl_common_inputs_args *args, sl_common_inputs *out_beginning);

void sl_common_inputs_free(sl_common_inputs *beginning);

#endif
