/* The architecture of docs/add-a-model.md: try_pages.sh applies the page's patch to a copy of the
 * tree, and builds and runs this there. In this tree there is no SL_ARCHITECTURE_GEMMA.
 *
 * What could be wrong: the page is out of date; something asks for Llama by name and not the row; a
 * factor, an offset or a gate has the numbers of Llama. The oracle is transformers
 * (program/saved_model.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "program/saved_model.h"

static void gemma_when_named_then_as_many_parameters_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t parameters;
    } rows[] = {{"gemma-2b", 2506172416}, {"gemma-7b", 8537680896}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_model_shape shape;
        must_be_ok(sl_architecture_named(rows[i].name, &shape));
        must_be_ok(sl_model_shape_check(&shape, 1));
        assert_int_equal(sl_model_shape_parameters(&shape), rows[i].parameters);
    }
}

/* Ranks that the check of the shape accepts are those that the build function can divide it
 * among: more than its one key head, too. */
static void gemma_when_on_more_ranks_than_key_heads_then_they_share_them(void **state)
{
    (void)state;
    sl_model_shape shape;
    must_be_ok(sl_architecture_named("gemma-2b", &shape));
    for (uint32_t ranks = 1; ranks <= shape.heads; ranks *= 2) {
        const sl_model_options options = {
            .batch = 1, .seq = 8, .tp_size = ranks, .tp_rank = ranks - 1};
        sl_program *forward;
        assert_true(sl_model_shape_may_split(&shape, ranks));
        must_be_ok(sl_model_shape_emit(&shape, &options, &forward));
        sl_program_close(forward);
    }
}

/* One key head, a head wider than width / heads, tied. */
static void gemma_when_run_then_as_transformers(void **state)
{
    (void)state;
    check_all("gemma");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemma_when_named_then_as_many_parameters_as_published),
        cmocka_unit_test(gemma_when_on_more_ranks_than_key_heads_then_they_share_them),
        cmocka_unit_test(gemma_when_run_then_as_transformers),
    };
    return cmocka_run_group_tests_name("gemma", tests, NULL, NULL);
}
