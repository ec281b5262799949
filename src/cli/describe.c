/* A choice in words: shares are named where they are part of the policy. */
#include "command.h"
#include "train/setup/search.h"

void sl_command_describe_choice(const sl_choice *choice, char *out_text, size_t capacity)
{
    const double *share = choice->placement.host_fraction;
    char shares[96] = "";
    if (choice->placement.policy == SL_POLICY_STATIC)
        snprintf(shares, sizeof shares, " (host: params %.0f%%, grads %.0f%%, moments %.0f%%)",
                 100 * share[SL_GROUP_PARAM], 100 * share[SL_GROUP_GRAD],
                 100 * share[SL_GROUP_MOMENT1]);
    snprintf(out_text, capacity, "policy %s%s, recompute %s, accumulation %s",
             sl_search_policy_name(choice->placement.policy), shares,
             sl_search_recompute_name(choice->recompute),
             sl_search_accumulation_name(choice->accumulation));
}
