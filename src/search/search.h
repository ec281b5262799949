/* Finds a choice that fits: resolves what is "auto", and says what would fit when nothing does.
 *
 * What sl_search_find gives was planned and verified; choices on the way there were planned, and so
 * was every suggestion.
 */
#ifndef SL_SEARCH_SEARCH_H
#define SL_SEARCH_SEARCH_H

#include "blueprint.h"
#include "config/config.h"

enum { SL_SEARCH_SUGGESTION_BYTES = 256 };

/* Of what is free on a GPU, left to what libraries load for themselves while a run goes on; an
 * eighth where that is less. */
enum { SL_SEARCH_RESERVE_BYTES = 256 << 20 };

/* Choices that were planned within the budgets of one search and do not fit; when it is full, later
 * ones are planned again. */
enum { SL_SEARCH_REFUSED = 64 };

typedef struct sl_search_refused {
    struct {
        sl_choice choice;
        sl_fit_failure failure;
    } items[SL_SEARCH_REFUSED];
    uint32_t count;
} sl_search_refused;

/* A choice that was planned and simulated on the way. */
typedef struct sl_search_candidate {
    sl_choice choice;
    double seconds;
    double lane_seconds[SL_LANE_COUNT]; /* each at work in a step */
    uint64_t peak_bytes[SL_TIER_COUNT], link_bytes, disk_bytes;
    double host_bytes; /* through host memory in a step */
} sl_search_candidate;

enum { SL_SEARCH_CANDIDATES = 3 };

/* The fastest of them, the first one first. A change must be worth 2 %: so the choice that is taken
 * may be one behind the first. */
typedef struct sl_search_candidates {
    sl_search_candidate best[SL_SEARCH_CANDIDATES];
    uint32_t count, planned_count;
} sl_search_candidates;

/* What a configuration leaves open and what it fixes. */
typedef struct sl_search {
    sl_task task;
    sl_choice fixed; /* fields below that are not auto, and all others */
    bool auto_recompute;
    bool auto_accumulation;
    bool auto_policy;
    bool auto_update;                 /* updates of what lives on the host may run on the device */
    uint64_t disk_free_bytes;         /* what a disk tier may take at most by default */
    bool auto_activations;            /* they may live on the host or the disk */
    sl_search_refused *refused;       /* of this search so far, or NULL */
    sl_search_candidates *candidates; /* filled by sl_search_find; the caller's, or NULL */
} sl_search;

/* Holds --rule, --freeze and the like to the tensors of the model; sl_update_rules_check. */
sl_status sl_search_check_rules(const sl_config *config, const sl_model_shape *shape);

/* The search that a checked configuration asks for. `task` is filled in but for `seq`,
 * `piece` and `cache_rows` of GENERATE and `by_token`.
 * A GPU is opened, asked and closed; a plan for one that is not here needs --device-memory. */
sl_status sl_search_init(const sl_config *config, sl_work work, const sl_model_shape *shape,
                         sl_search *out_search);

/* Builds the first choice that fits. Without recomputation first, then with selective and with full
 * one; within each: everything on the device, then shares of moments, gradients and parameters on
 * the host, then everything on the host, then, where there is a directory for it, shares on disk.
 * SL_ERROR_FIT fills *out_failure with the last, most frugal attempt. */
sl_status sl_search_run(const sl_search *search, sl_blueprint **out_blueprint,
                        sl_fit_failure *out_failure);

/* As sl_search_run, but faster: *out_failure may name fewer bytes than are needed. */
sl_status sl_search_try(const sl_search *search, sl_blueprint **out_blueprint,
                        sl_fit_failure *out_failure);

/* A change that was planned and fits. */
typedef struct sl_suggestion {
    char options[SL_SEARCH_SUGGESTION_BYTES]; /* as on the command line */
    double seconds; /* predicted for the rows that were asked for; INFINITY: a larger budget */
    bool is_beyond_machine; /* needs more memory or disk than this machine has free */
} sl_suggestion;

enum { SL_SEARCH_SUGGESTIONS = 3 };
enum { SL_SEARCH_SUGGESTIONS_BYTES = SL_SEARCH_SUGGESTIONS * (SL_SEARCH_SUGGESTION_BYTES + 64) };

/* What a command prints when nothing fits. Suggestions within the budgets come first, sorted by
 * predicted time; larger budgets follow. */
typedef struct sl_refusal {
    sl_fit_failure failure;
    sl_suggestion suggestions[SL_SEARCH_SUGGESTIONS];
    uint32_t suggestion_count;
} sl_refusal;

/* sl_search_run, then the fastest choice that a bounded number of simulations finds; when nothing
 * fits, looks for what would: SL_ERROR_FIT fills *out_refusal and leaves one message with tier, op,
 * bytes and the options that fit. */
sl_status sl_search_find(const sl_search *search, sl_blueprint **out_blueprint,
                         sl_refusal *out_refusal);

/* Writes the suggestions as a refusal's message has them: "; this fits: A; or B; or C". */
void sl_search_format_suggestions(const sl_refusal *refusal,
                                  char out_text[SL_SEARCH_SUGGESTIONS_BYTES]);

/* Builds the choice of a failure with as much more memory as it needs, for people to look at.
 * Writes the budgets that were asked for. SL_ERROR_FIT where no budget was found that holds it. */
sl_status sl_search_overflow(const sl_search *search, const sl_fit_failure *failure,
                             sl_blueprint **out_blueprint, uint64_t out_budgets[SL_TIER_COUNT]);

/* What sl_search_find would find, to compare: its plans are not verified, and where nothing fits,
 * nothing is suggested and the bytes that *out_failure names may be too few. */
sl_status sl_search_probe(const sl_search *search, sl_blueprint **out_blueprint,
                          sl_fit_failure *out_failure);

/* sl_blueprint_build of a probe that remembers what does not fit (first.c). */
sl_status sl_search_build(const sl_search *search, const sl_task *task, const sl_choice *choice,
                          sl_blueprint **out_blueprint, sl_fit_failure *out_failure);

/* Puts a faster blueprint in the place of one that fits, if there is one among the choices that are
 * left open: homes, where updates run, recomputation, order of accumulation and where activations
 * live (fastest.c); of sl_search_find. */
sl_status sl_search_improve(const sl_search *search, sl_blueprint **blueprint);

/* Fills in the suggestions of a refusal whose failure is known (suggest.c); of sl_search_find. */
sl_status sl_search_suggest(const sl_search *search, sl_refusal *refusal);

/* The budget of a tier in a choice. */
uint64_t *sl_search_budget(sl_choice *choice, sl_tier tier);

/* The name of a placement for people: device, host, static or nvme. */
const char *sl_search_policy_name(sl_policy policy);
const char *sl_search_recompute_name(sl_recompute recompute);
const char *sl_search_accumulation_name(sl_accumulation accumulation);

#endif
