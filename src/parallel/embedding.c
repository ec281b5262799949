/* The embedding of a team: rows of a table of which each rank has some rows, some columns, or all.
 */
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "ids.h"
#include "team.h"

typedef struct embedding {
    sl_parallel_embedding_args args;
    sl_team_activation y, dy;
    sl_op_attrs attrs; /* of this rank's part of the table */
    uint64_t width;    /* of the columns of that part */
} embedding;

static sl_status take_args(const sl_parallel_team *team, const sl_parallel_embedding_args *given,
                           size_t bytes, embedding *out)
{
    sl_parallel_embedding_args *args = &out->args;
    SL_TRY(sl_sized_take("sl_parallel_embedding_args", given, bytes, args, sizeof *args));
    SL_TRY(sl_team_check_product(args->rows, args->width, "y of a parallel embedding"));
    SL_TRY(sl_team_check_product(args->ids, args->width, "the table of a parallel embedding"));
    if (args->split > SL_PARALLEL_ROWS || !args->tokens)
        SL_FAIL(SL_ERROR_USAGE, "a parallel embedding: its split is %u, or tokens are missing",
                (unsigned)args->split);
    SL_TRY(sl_ids_check(args->tokens, args->rows, args->ids, "token"));
    const bool is_split = args->is_y_split != 0;
    const sl_team_part ids = sl_team_own(team, args->ids, args->split == SL_PARALLEL_ROWS);
    out->y = (sl_team_activation){args->rows, args->width, is_split, args->y};
    out->dy = (sl_team_activation){args->rows, args->width, is_split, args->dy};
    out->width = sl_team_own(team, args->width, args->split == SL_PARALLEL_COLUMNS).count;
    out->attrs = (sl_op_attrs){.batch = 1,
                               .seq = args->rows,
                               .in = out->width,
                               .first_id = ids.first,
                               .id_count = ids.count,
                               .adds_output = args->adds_gradients != 0};
    return SL_OK;
}

sl_status sl_parallel_embedding_forward_sized(sl_parallel_team *team,
                                              const sl_parallel_embedding_args *args, size_t bytes)
{
    embedding it;
    float *y;
    SL_TRY(take_args(team, args, bytes, &it));
    const sl_team_form form = sl_team_form_of(it.args.split);
    if (!it.args.table || !it.args.y)
        SL_FAIL(SL_ERROR_USAGE, "a parallel embedding needs table and y");
    SL_TRY(sl_team_place(team, &it.y, form, &y));
    memset(y, 0, it.args.rows * it.width * sizeof *y);
    if (it.width > 0)
        SL_TRY(sl_team_compute(team, SL_OP_EMBED_TOKENS, &it.attrs,
                               (const void *[SL_OPERAND_MAX]){it.args.tokens, it.args.table, y}));
    return sl_team_give(team, &it.y, form, y);
}

sl_status sl_parallel_embedding_backward_sized(sl_parallel_team *team,
                                               const sl_parallel_embedding_args *args, size_t bytes)
{
    embedding it;
    const float *dy;
    SL_TRY(take_args(team, args, bytes, &it));
    if (!it.args.dy || !it.args.dtable)
        SL_FAIL(SL_ERROR_USAGE, "a parallel embedding needs dy and dtable");
    SL_TRY(
        sl_team_bring(team, SL_TEAM_GRADIENT, &it.dy, it.args.split == SL_PARALLEL_COLUMNS, &dy));
    if (it.width == 0)
        return SL_OK;
    return sl_team_compute(team, SL_OP_EMBED_TOKENS_BACKWARD, &it.attrs,
                           (const void *[SL_OPERAND_MAX]){it.args.tokens, dy, it.args.dtable});
}
