/* A plan in words: why it is as it is, what binds it, what would make it faster; and what the usual
 * rules of thumb say beside it. What binds is the resource that would need the most time alone.
 */
#ifndef SL_REPORT_EXPLAIN_H
#define SL_REPORT_EXPLAIN_H

#include "account.h"
#include "search/blueprint.h"

enum { SL_EXPLAIN_LINES = 8, SL_EXPLAIN_BYTES = 512, SL_EXPLAIN_THUMBS = 4 };

typedef struct sl_explanation {
    char lines[SL_EXPLAIN_LINES][SL_EXPLAIN_BYTES];
    uint32_t count;
} sl_explanation;

/* A rule of thumb, and what the plan has. */
typedef struct sl_thumb {
    const char *rule; /* valid for ever */
    double says, planned;
    bool is_bytes; /* else a number */
} sl_thumb;

/* Plain sentences, the most important ones first. */
void sl_explain_plan(const sl_blueprint *blueprint, const sl_account *account,
                     sl_explanation *out_explanation);

/* "bound by disk; to be faster: …", without a line end. */
void sl_explain_bound(const sl_blueprint *blueprint, const sl_account *account,
                      char out_line[SL_EXPLAIN_BYTES]);

/* Of a training step. Returns how many there are: some rules are of GPT-2's blocks alone. */
int sl_explain_thumbs(const sl_blueprint *blueprint, const sl_account *account,
                      sl_thumb out_thumbs[SL_EXPLAIN_THUMBS]);

#endif
