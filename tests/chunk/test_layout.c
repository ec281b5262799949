/* The layout: what could be wrong is a tensor off its block, across chunks, over another one or out
 * of order; a decay flag on the wrong block; a size search that misses the best size, takes too
 * long or pads more than promised. An element-by-element walk checks every layout built here, and
 * the search is compared with one that tries every size of the documented range.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "chunk/chunk.h"
#include "chunk/layout/layout.h"
#include "model/architecture.h"
#include "spec_programs.h"

#define BLOCK ((uint64_t)SL_BLOCK_ELEMENTS)

static const spec_shape gpt2_shapes[] = {
    {"gpt2", 12, 768, 1024, 50257},
    {"gpt2-medium", 24, 1024, 1024, 50257},
    {"gpt2-large", 36, 1280, 1024, 50257},
    {"gpt2-xl", 48, 1600, 1024, 50257},
};

static uint64_t count_blocks(const sl_tensor_spec *spec)
{
    return (spec->element_count + BLOCK - 1) / BLOCK;
}

/* The next padding is [from, to) of the chunk, or there is none because nothing is between. */
static void assert_padding(const sl_layout *layout, uint32_t chunk, uint64_t from, uint64_t to,
                           uint32_t *next)
{
    if (from == to)
        return;
    assert_in_range(*next, layout->first_padding[chunk], layout->first_padding[chunk + 1] - 1);
    assert_int_equal(layout->padding[*next].first, from);
    assert_int_equal(layout->padding[*next].count, to - from);
    ++*next;
}

/* What no tensor has, chunk by chunk. */
static void assert_padding_is_the_rest(const sl_program *program, const sl_layout *layout)
{
    uint32_t next = 0;
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
        uint64_t end = 0;
        assert_int_equal(layout->first_padding[chunk], next);
        for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++) {
            if (layout->chunk_of_tensor[tensor] != chunk)
                continue;
            assert_padding(layout, chunk, end, layout->first_element[tensor], &next);
            end = layout->first_element[tensor] + program->tensors[tensor].element_count;
        }
        assert_padding(layout, chunk, end, layout->chunks[chunk].elements, &next);
    }
    assert_int_equal(layout->first_padding[layout->chunk_count], next);
}

/* A chunk is as long as its tensors, rounded up to equal shards. `used`: elements of its tensors.
 */
static void assert_chunk_is_trimmed(const sl_program *program, const sl_layout *layout,
                                    uint32_t chunk, uint64_t used)
{
    const uint64_t unit = BLOCK * (sl_program_has_shards(program) ? program->dp_size : 1);
    const uint64_t first = layout->chunks[chunk].first_block;
    assert_int_equal(layout->chunks[chunk].elements, (used + unit - 1) / unit * unit);
    assert_true(layout->chunks[chunk].elements <= layout->largest_elements);
    /* Where it visits, a chunk takes the slot of a full one. */
    assert_int_equal(sl_layout_slot_bytes(layout, SL_GROUP_PARAM, chunk) *
                         layout->chunks[chunk].elements,
                     sl_layout_chunk_bytes(layout, SL_GROUP_PARAM, chunk) * layout->chunk_elements);
    assert_int_equal(sl_layout_find_chunk(layout, first), chunk);
    if (layout->chunks[chunk].elements > BLOCK)
        assert_int_equal(sl_layout_find_chunk(layout, first + 1), SL_NONE);
    if (chunk > 0)
        assert_int_equal(layout->chunks[chunk - 1].first_block +
                             layout->chunks[chunk - 1].elements / BLOCK,
                         first);
}

/* Everything chunk.h promises of a layout, tensor by tensor and block by block. */
static void assert_layout_holds(const sl_program *program, const sl_layout *layout)
{
    const uint64_t all_blocks = layout->block_count;
    uint64_t valid = 0, end = 0;
    uint8_t *owners = calloc(all_blocks, 1), *flags = calloc(all_blocks, 1);
    assert_int_equal(layout->chunk_elements % BLOCK, 0);
    assert_int_equal(layout->tensor_count, program->tensor_count);
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const uint32_t chunk = layout->chunk_of_tensor[t];
        const uint64_t first = layout->first_element[t];
        const uint64_t blocks = count_blocks(&program->tensors[t]);
        assert_int_equal(first % BLOCK, 0);
        assert_true(chunk < layout->chunk_count);
        assert_true(first + blocks * BLOCK <= layout->chunks[chunk].elements);
        assert_true(first + blocks * BLOCK <= layout->chunk_elements);
        for (uint64_t b = 0; b < blocks; b++) {
            uint64_t block = layout->chunks[chunk].first_block + first / BLOCK + b;
            owners[block]++;
            flags[block] = program->tensors[t].decay;
        }
        valid += program->tensors[t].element_count;
        if (t == 0 || chunk == layout->chunk_of_tensor[t - 1]) {
            assert_int_equal(first, end);
        } else { /* in order, none skipped, and only because it did not fit */
            assert_int_equal(chunk, layout->chunk_of_tensor[t - 1] + 1);
            assert_int_equal(first, 0);
            assert_true(end + blocks * BLOCK > layout->chunk_elements);
            assert_chunk_is_trimmed(program, layout, chunk - 1, end);
        }
        end = first + blocks * BLOCK;
    }
    assert_chunk_is_trimmed(program, layout, layout->chunk_count - 1, end);
    for (uint64_t block = 0; block < all_blocks; block++)
        assert_true(owners[block] <= 1);
    uint8_t *written = malloc(all_blocks);
    sl_layout_write_flags(layout, SL_BLOCK_RATE, written);
    assert_memory_equal(flags, written, all_blocks);
    free(written);
    assert_int_equal(layout->chunk_of_tensor[program->tensor_count - 1] + 1, layout->chunk_count);
    assert_int_equal(valid, layout->valid_elements);
    assert_padding_is_the_rest(program, layout);
    /* two divisions and one subtraction of doubles near 1: a few ulp */
    double fraction = 1.0 - (double)valid / ((double)all_blocks * (double)BLOCK);
    assert_true(fabs(fraction - layout->padding_fraction) <= 4e-16);
    free(owners);
    free(flags);
}

/* ---- the search against every size ---- */

static uint64_t count_chunks_plainly(const uint64_t *blocks, uint32_t count, uint64_t size)
{
    uint64_t chunks = 1, left = size;
    for (uint32_t t = 0; t < count; t++) {
        if (blocks[t] > left) {
            chunks++;
            left = size;
        }
        left -= blocks[t];
    }
    return chunks;
}

/* The documented rule, for each size in turn: least (chunks + 1) * size, ties to the smaller. */
static uint64_t search_plainly(const uint64_t *blocks, uint32_t count)
{
    uint64_t largest = 0, total = 0, best = UINT64_MAX, best_size = 0;
    for (uint32_t t = 0; t < count; t++) {
        largest = blocks[t] > largest ? blocks[t] : largest;
        total += blocks[t];
    }
    uint64_t last = largest + (32 << 20) / BLOCK;
    for (uint64_t size = largest; size <= last && size <= total; size++) {
        uint64_t score = (count_chunks_plainly(blocks, count, size) + 1) * size;
        if (score < best) {
            best = score;
            best_size = size;
        }
    }
    return best_size;
}

static void search_on_random_tensors_agrees_with_trying_every_size(void **state)
{
    (void)state;
    uint64_t random = spec_seed(1);
    uint32_t larger_count = 0;
    for (uint32_t round = 0; round < spec_count(400, 10000); round++) {
        uint64_t blocks[200];
        uint32_t count = 1 + (uint32_t)spec_random(&random, 200);
        uint64_t bound = 1 + spec_random(&random, 1 + spec_random(&random, 60));
        for (uint32_t t = 0; t < count; t++)
            blocks[t] = 1 + spec_random(&random, bound);
        uint64_t expected = search_plainly(blocks, count);
        assert_int_equal(sl_layout_find_chunk_blocks(blocks, count), expected);
        uint64_t largest = 0;
        for (uint32_t t = 0; t < count; t++)
            largest = blocks[t] > largest ? blocks[t] : largest;
        larger_count += expected > largest;
    }
    assert_true(larger_count > 0); /* the first size did not always win, or this shows nothing */
}

static double read_cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const double search_seconds = 5;
#else
static const double search_seconds = 1; /* some 0.03 where nothing else runs */
#endif

static void search_on_many_different_tensors_stays_in_time(void **state)
{
    (void)state;
    static uint64_t blocks[SPEC_TENSORS_MAX];
    uint64_t random = spec_seed(2), largest = 0;
    for (uint32_t t = 0; t < SPEC_TENSORS_MAX; t++) {
        blocks[t] = 1 + spec_random(&random, 5000);
        largest = blocks[t] > largest ? blocks[t] : largest;
    }
    double before = read_cpu_seconds();
    uint64_t size = sl_layout_find_chunk_blocks(blocks, SPEC_TENSORS_MAX);
    double seconds = read_cpu_seconds() - before;
    printf("%d different tensors: %.1f ms\n", SPEC_TENSORS_MAX, 1e3 * seconds);
    assert_true(seconds < search_seconds);
    assert_true(size >= largest && size <= largest + (32 << 20) / BLOCK);
}

static sl_program *emit_model(const char *name)
{
    sl_model_shape shape;
    sl_model_options options = {.batch = 1, .tp_size = 1, .mode = SL_MODEL_LOSS};
    sl_program *program = NULL;
    assert_int_equal(sl_architecture_named(name, &shape), SL_OK);
    options.seq = shape.context < 4096 ? shape.context : 4096;
    assert_int_equal(sl_model_shape_emit(&shape, &options, &program), SL_OK);
    return program;
}

/* The shape that goes by a name: as published, or, where none is written down above, the model's.
 */
static spec_shape find_shape(const char *name)
{
    for (size_t i = 0; i < sizeof gpt2_shapes / sizeof gpt2_shapes[0]; i++)
        if (strcmp(gpt2_shapes[i].name, name) == 0)
            return gpt2_shapes[i];
    sl_model_shape shape;
    assert_int_equal(sl_architecture_named(name, &shape), SL_OK);
    return (spec_shape){name, shape.layers, shape.width, shape.context, shape.vocab};
}

/* The model's own tensors, in its order, are those that the published shape of a GPT-2 has. */
static void assert_published(const char *name, const sl_program *program)
{
    const spec_shape shape = find_shape(name);
    sl_program *expected = spec_program_gpt2(&shape);
    assert_int_equal(program->tensor_count, expected->tensor_count);
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        assert_int_equal(program->tensors[t].element_count, expected->tensors[t].element_count);
        assert_int_equal(program->tensors[t].decay, expected->tensors[t].decay);
    }
    spec_program_close(expected);
}

/* At most 0.3 % of a group is padding from 100 M parameters up: what tensors leave of their last
 * blocks. */
static void layout_of_a_named_model_pads_only_blocks(void **state)
{
    (void)state;
    size_t count = 0;
    for (const char *const *name = sl_architecture_names(); *name != NULL; name++) {
        sl_model_shape shape;
        sl_program *program = emit_model(*name);
        assert_int_equal(sl_architecture_named(*name, &shape), SL_OK);
        const bool is_gpt2 = shape.architecture == SL_ARCHITECTURE_GPT2;
        if (is_gpt2)
            assert_published(*name, program);
        count += is_gpt2;
        sl_layout *layout;
        double before = read_cpu_seconds();
        assert_int_equal(sl_layout_build(program, 0, &layout), SL_OK);
        double seconds = read_cpu_seconds() - before;
        printf("%-12s %10llu elements, %3u chunks of %8llu, %.3f %% padding, %.2f ms\n", *name,
               (unsigned long long)layout->valid_elements, layout->chunk_count,
               (unsigned long long)layout->largest_elements, 100 * layout->padding_fraction,
               1e3 * seconds);
        assert_layout_holds(program, layout);
        assert_true(layout->padding_fraction <= 0.003);
        assert_true(layout->chunk_count >= 16);
        /* beside the search, a flag a block is written, to fresh pages: at 250 MB/s at least */
        double blocks = (double)layout->block_count;
        assert_true(seconds < search_seconds + blocks / 250e6);
        sl_layout_close(layout);
        sl_program_close(program);
    }
    assert_true(count > sizeof gpt2_shapes / sizeof gpt2_shapes[0]);
}

/* 124,439,808 is the published count; 47 rows of 768 pad the vocabulary from 50257 to 50304. */
static void layout_of_gpt2_counts_the_published_elements(void **state)
{
    (void)state;
    sl_program *program = spec_program_gpt2(&gpt2_shapes[0]);
    sl_layout *layout;
    assert_int_equal(sl_layout_build(program, 0, &layout), SL_OK);
    assert_int_equal(layout->valid_elements, 124439808 + 47 * 768);
    sl_layout_close(layout);
    spec_program_close(program);
}

/* ---- keys of blocks ---- */

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The keys of the tensors' blocks, tensor by tensor; owned by the caller. */
static uint64_t *list_keys(const sl_program *program, uint64_t chunk_elements, uint64_t *out_count)
{
    sl_layout *layout;
    assert_int_equal(sl_layout_build(program, chunk_elements, &layout), SL_OK);
    assert_int_equal(sl_layout_table_bytes(layout),
                     (layout->block_count + 7) / 8 * 8 + 8 * layout->block_count);
    uint64_t *all = calloc(layout->block_count, sizeof *all);
    uint64_t *keys = calloc(layout->block_count, sizeof *keys);
    assert_true(all != NULL && keys != NULL);
    sl_layout_write_keys(layout, all);
    *out_count = 0;
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        const uint64_t first = layout->chunks[layout->chunk_of_tensor[t]].first_block +
                               layout->first_element[t] / BLOCK;
        for (uint64_t b = 0; b < layout->tensor_blocks[t]; b++)
            keys[(*out_count)++] = all[first + b];
    }
    free(all);
    sl_layout_close(layout);
    return keys;
}

static void keys_of_blocks_depend_on_tensors_alone(void **state)
{
    (void)state;
    sl_program *program = emit_model("gpt2");
    uint64_t count, same;
    program->states = SL_STATES_BF16;
    uint64_t *keys = list_keys(program, 0, &count), *others = list_keys(program, 5 << 20, &same);
    assert_int_equal(same, count);
    assert_memory_equal(keys, others, count * sizeof *keys);
    free(others);
    program->dp_size = 2;
    program->zero = 2;
    program->dp_rank = 1;
    others = list_keys(program, 0, &same);
    assert_memory_equal(keys, others, count * sizeof *keys);
    free(others);
    qsort(keys, count, sizeof *keys, compare_keys);
    const uint64_t padding = 47 * 768 / BLOCK; /* blocks behind the vocabulary */
    for (uint64_t i = 0; i < count; i++)
        assert_true(i < padding ? keys[i] == 0 : i == 0 || keys[i] != keys[i - 1]);
    assert_true(keys[padding] != 0);
    free(keys);
    sl_program_close(program);
}

/* A chunk of codes is no multiple of what direct I/O needs, and is rounded up. */
static void chunks_of_small_states_are_of_their_blocks(void **state)
{
    (void)state;
    static const uint64_t block_bytes[] = {8192, 4096, 2080};
    sl_program *program = emit_model("gpt2");
    for (int states = 0; states < SL_STATES_COUNT; states++) {
        sl_layout *layout;
        program->states = (sl_states)states;
        assert_int_equal(sl_layout_build(program, 0, &layout), SL_OK);
        assert_true((layout->draws != NULL) == (states == SL_STATES_BF16));
        for (uint32_t c = 0; c < layout->chunk_count; c++) {
            const uint64_t bytes = sl_layout_chunk_bytes(layout, SL_GROUP_STATE1, c);
            const uint64_t blocks = layout->chunks[c].elements / BLOCK;
            assert_int_equal(bytes % SL_DIRECT_ALIGNMENT, 0);
            assert_in_range(bytes, blocks * block_bytes[states],
                            blocks * block_bytes[states] + SL_DIRECT_ALIGNMENT - 1);
            assert_int_equal(sl_layout_chunk_bytes(layout, SL_GROUP_PARAM, c), blocks * 8192);
        }
        sl_layout_close(layout);
    }
    sl_program_close(program);
}

/* ---- packing ---- */

static void layout_of_random_tensors_holds_at_any_size(void **state)
{
    (void)state;
    uint64_t random = spec_seed(3);
    for (uint32_t round = 0; round < spec_count(300, 5000); round++) {
        sl_program *program = spec_program_open();
        uint64_t largest = 0, valid = 0;
        uint32_t count = 1 + (uint32_t)spec_random(&random, 60);
        for (uint32_t t = 0; t < count; t++) {
            uint64_t rows = 1 + spec_random(&random, 9000);
            spec_program_add(program, "t", rows, 1 + spec_random(&random, 3));
            uint64_t elements = program->tensors[t].element_count;
            largest = elements > largest ? elements : largest;
            valid += elements;
        }
        if (round % 4 > 0) {
            program->dp_size = 3;
            program->zero = round % 4;
        }
        uint64_t wanted = spec_random(&random, 3) == 0 ? 0 : largest + spec_random(&random, 50000);
        sl_layout *layout;
        assert_int_equal(sl_layout_build(program, wanted, &layout), SL_OK);
        assert_layout_holds(program, layout);
        const uint64_t shards = sl_program_has_shards(program) ? 3 : 1;
        const uint64_t unit = BLOCK * shards;
        if (wanted != 0 && wanted <= valid)
            assert_int_equal(layout->chunk_elements, (wanted + unit - 1) / unit * unit);
        assert_int_equal(sl_layout_chunk_bytes(layout, SL_GROUP_STATE2, 0),
                         4 * layout->chunks[0].elements / shards);
        sl_layout_close(layout);
        spec_program_close(program);
    }
}

/* The tensors of one rule lie as they lie in a program that has no others, but for the ends of
 * chunks, which are cut off. */
static void assert_rule_is_packed_alone(const sl_program *program, const sl_layout *layout,
                                        sl_rule_id rule)
{
    sl_program *own = spec_program_open();
    sl_layout *alone;
    uint32_t chunk_of[64] = {0}, next = 0;
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (program->tensors[t].rule == rule)
            spec_program_add(own, "t", program->tensors[t].shape[0], program->tensors[t].shape[1]);
    assert_int_equal(sl_layout_build(own, 0, &alone), SL_OK);
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        if (program->tensors[t].rule != rule)
            continue;
        const uint32_t chunk = layout->chunk_of_tensor[t], in_own = alone->chunk_of_tensor[next];
        assert_int_equal(layout->first_element[t], alone->first_element[next]);
        assert_int_equal(layout->chunks[chunk].rule, rule);
        if (alone->first_element[next] == 0)
            chunk_of[in_own] = chunk;
        assert_int_equal(chunk, chunk_of[in_own]);
        next++;
    }
    sl_layout_close(alone);
    spec_program_close(own);
}

/* Chunks are numbered by their first tensors, one behind the other, each as long as its tensors. */
static void assert_chunks_hold_their_tensors(const sl_program *program, const sl_layout *layout)
{
    uint64_t filled[64] = {0}, blocks = 0;
    uint32_t opened = 0;
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const uint32_t chunk = layout->chunk_of_tensor[t];
        assert_true(chunk <= opened);
        opened += chunk == opened;
        assert_int_equal(layout->first_element[t], filled[chunk] * BLOCK);
        filled[chunk] += count_blocks(&program->tensors[t]);
    }
    assert_int_equal(opened, layout->chunk_count);
    for (uint32_t c = 0; c < layout->chunk_count; c++) {
        assert_int_equal(layout->chunks[c].elements, filled[c] * BLOCK);
        assert_int_equal(layout->chunks[c].first_block, blocks);
        assert_int_equal(sl_layout_chunk_bytes(layout, SL_GROUP_STATE1, c) > 0,
                         layout->chunks[c].rule != SL_RULE_NONE);
        blocks += filled[c];
    }
    assert_int_equal(layout->block_count, blocks);
}

static void layout_of_two_rules_keeps_them_apart(void **state)
{
    (void)state;
    uint64_t random = spec_seed(9);
    for (uint32_t round = 0; round < spec_count(200, 5000); round++) {
        sl_program *program = spec_program_open();
        const uint32_t count = 2 + (uint32_t)spec_random(&random, 60);
        for (uint32_t t = 0; t < count; t++) {
            spec_program_add(program, "t", 1 + spec_random(&random, 9000),
                             1 + spec_random(&random, 3));
            program->tensors[t].rule = t < 2 ? (sl_rule_id)t : (sl_rule_id)spec_random(&random, 2);
        }
        sl_layout *layout, *again;
        assert_int_equal(sl_layout_build(program, 0, &layout), SL_OK);
        assert_chunks_hold_their_tensors(program, layout);
        assert_padding_is_the_rest(program, layout);
        assert_rule_is_packed_alone(program, layout, SL_RULE_ADAMW);
        assert_rule_is_packed_alone(program, layout, SL_RULE_NONE);
        /* The size that was chosen, given by hand. */
        assert_int_equal(sl_layout_build(program, layout->chunk_elements, &again), SL_OK);
        assert_int_equal(again->chunk_count, layout->chunk_count);
        for (uint32_t c = 0; c < layout->chunk_count; c++)
            assert_int_equal(again->chunks[c].elements, layout->chunks[c].elements);
        sl_layout_close(again);
        sl_layout_close(layout);
        spec_program_close(program);
    }
}

static void layout_with_too_small_a_chunk_says_how_large_it_must_be(void **state)
{
    (void)state;
    sl_program *program = spec_program_open();
    spec_program_add(program, "small", 10, 1);
    spec_program_add(program, "h.3.big", 5000, 1); /* 3 blocks: 6144 elements */
    sl_layout *layout = NULL;
    assert_int_equal(sl_layout_build(program, 4096, &layout), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "h.3.big"));
    assert_non_null(strstr(sl_status_message(), "6144"));
    assert_null(layout);
    assert_int_equal(sl_layout_build(program, 6144, &layout), SL_OK);
    sl_layout_close(layout);
    spec_program_close(program);
}

static void layout_of_impossible_sizes_is_refused(void **state)
{
    (void)state;
    sl_layout *layout = NULL;
    sl_program *program = spec_program_open();
    assert_int_equal(sl_layout_build(program, 0, &layout), SL_ERROR_USAGE); /* no tensors */
    spec_program_add(program, "empty", 0, 1);
    assert_int_equal(sl_layout_build(program, 0, &layout), SL_ERROR_USAGE);
    program->tensors[0].element_count = UINT64_MAX;
    assert_int_equal(sl_layout_build(program, 0, &layout), SL_ERROR_USAGE);
    program->tensors[0].element_count = 100;
    assert_null(layout);
    assert_int_equal(sl_layout_build(program, UINT64_MAX, &layout), SL_OK); /* it has one block */
    assert_int_equal(layout->chunk_elements, BLOCK);
    sl_layout_close(layout);
    spec_program_close(program);
    sl_layout_close(NULL);
}

static void layout_of_one_tensor_is_one_chunk(void **state)
{
    (void)state;
    sl_program *program = spec_program_open();
    spec_program_add(program, "only", 2049, 1);
    sl_layout *layout;
    assert_int_equal(sl_layout_build(program, 0, &layout), SL_OK);
    assert_int_equal(layout->chunk_count, 1);
    assert_int_equal(layout->chunk_elements, 4096);
    assert_layout_holds(program, layout);
    sl_layout_close(layout);
    spec_program_close(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search_on_random_tensors_agrees_with_trying_every_size),
        cmocka_unit_test(search_on_many_different_tensors_stays_in_time),
        cmocka_unit_test(layout_of_a_named_model_pads_only_blocks),
        cmocka_unit_test(layout_of_gpt2_counts_the_published_elements),
        cmocka_unit_test(keys_of_blocks_depend_on_tensors_alone),
        cmocka_unit_test(chunks_of_small_states_are_of_their_blocks),
        cmocka_unit_test(layout_of_random_tensors_holds_at_any_size),
        cmocka_unit_test(layout_of_two_rules_keeps_them_apart),
        cmocka_unit_test(layout_with_too_small_a_chunk_says_how_large_it_must_be),
        cmocka_unit_test(layout_of_impossible_sizes_is_refused),
        cmocka_unit_test(layout_of_one_tensor_is_one_chunk),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
