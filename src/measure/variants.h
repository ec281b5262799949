/* What more or less memory would do: the same options are planned again with another budget of one
 * tier, and simulated. Nothing is run.
 */
#ifndef SL_MEASURE_VARIANTS_H
#define SL_MEASURE_VARIANTS_H

#include "search/search.h"

enum { SL_VARIANTS_COUNT = 2 * SL_TIER_COUNT, SL_VARIANTS_TEXT_BYTES = 200 };

typedef enum sl_variant_outcome {
    SL_VARIANT_SAME, /* the same plan would run */
    SL_VARIANT_OTHER,
    SL_VARIANT_DOES_NOT_FIT
} sl_variant_outcome;

typedef struct sl_variant {
    sl_tier tier;
    bool is_more;
    uint64_t change_bytes; /* 1 GiB; of less, a quarter of what the tier holds if that is below 2 */
    uint64_t budget_bytes; /* of the tier, that was tried */
    sl_variant_outcome outcome;
    double step_seconds;    /* predicted; of SAME that of the plan that runs; NAN: does not fit */
    uint64_t missing_bytes; /* of DOES_NOT_FIT, in the tier that is then short */
    char change[SL_VARIANTS_TEXT_BYTES]; /* what would be another: "recompute none, ..."; or "" */
} sl_variant;

/* Tries each tier that holds 256 KiB with less than it holds now, and those whose budget was set
 * (`search` has it) with more than that: a tier without a budget takes what it needs. Budgets of
 * other tiers stay those of `blueprint`, which `search` found. All are simulated with `machine`,
 * which may have better rates than the one that plans are made for, where that is a guess. Writes
 * the variants and how many. */
sl_status sl_variants_find(const sl_search *search, const sl_blueprint *blueprint,
                           const sl_machine *machine, sl_variant out_variants[SL_VARIANTS_COUNT],
                           uint32_t *out_count);

#endif
