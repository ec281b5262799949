/* What could be wrong in what an instruction computes: an order of operands, a width, a sign, a
 * rounding, a NaN, a special value, another lane's value. Two judges that know nothing of our code:
 *
 *   the ISA's text   examples worked out by hand (instruction_cases.h), its algorithm of shuffles
 *   ptxas            folds instructions of constants: the examples, and as many random ones
 *
 * Every row of the table has examples. Those of which ptxas folds none are listed below: they are
 * compared with other arithmetic in test_ptx_arithmetic.c.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "arithmetic_list.h"
#include "ask_ptxas.h"
#include "instruction_cases.h"
#include "lanes_case.h"
#include "skip.h"

enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

#define NAME_OF(function, name, results, sources) name,
static const char *const NAMES[] = {PTX_ARITHMETIC_LIST(NAME_OF)};
enum { NAME_COUNT = sizeof NAMES / sizeof *NAMES };

/* The type's suffix says fp32 of the result: its NaNs are any. */
static bool gives_fp32(const char *name)
{
    return strstr(name, "f32") && !strstr(name, "setp") && !strstr(name, "selp") &&
           !strstr(name, "neg") && !strstr(name, "16") == !strstr(name, "cvt.rn") &&
           !strstr(name, "cvt.f64");
}

static bool is_same(const char *name, uint64_t left, uint64_t right)
{
    const bool both_nan = (left & 0x7fffffff) > INFINITE && (right & 0x7fffffff) > INFINITE;
    return left == right || (gives_fp32(name) && both_nan);
}

/* ---- the ISA's text ---- */

static void examples_give_what_the_isa_says(void **state)
{
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        const instruction_case *c = &CASES[i];
        lanes_call call;
        lanes_open(&call, c->name);
        for (int lane = 0; lane < 32; lane++)
            for (int k = 0; call.row->sources[k]; k++)
                lanes_set(&call, k, lane, c->source[k]);
        assert_int_equal(lanes_run(&call), 0);
        for (int lane = 0; lane < 32; lane++)
            if (!is_same(c->name, lanes_result(&call, 0, lane), c->result))
                fail_msg("%s, example %d: %#llx, not %#llx", c->name, i,
                         (unsigned long long)lanes_result(&call, 0, lane),
                         (unsigned long long)c->result);
    }
}

static bool crosses_lanes(const char *name)
{
    return strncmp(name, "shfl", 4) == 0 || strncmp(name, "mma", 3) == 0;
}

static void every_row_is_found_and_has_examples(void **state)
{
    (void)state;
    for (int i = 0; i < NAME_COUNT; i++) {
        const ptx_arithmetic_row *row = ptx_arithmetic_find(NAMES[i]);
        int examples = 0;
        if (!row || strcmp(row->name, NAMES[i]) != 0)
            fail_msg("%s is not found: is the list in order?", NAMES[i]);
        for (int k = 0; k < CASE_COUNT; k++)
            examples += strcmp(CASES[k].name, NAMES[i]) == 0;
        if (examples == 0 && !crosses_lanes(NAMES[i]))
            fail_msg("%s has no example", NAMES[i]);
    }
    assert_null(ptx_arithmetic_find("add.s31"));
    assert_null(ptx_arithmetic_find(""));
    assert_null(ptx_arithmetic_find("zzz"));
}

/* Of 1 and 2, 2 and 2, 2 and 1, in each third lane. */
static void comparisons_tell_less_equal_and_greater(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t truths; /* a bit for each of the three */
    } WORDS[] = {{".eq", 2}, {".ne", 5}, {".lt", 1}, {".le", 3}, {".gt", 4}, {".ge", 6}};
    for (int i = 0; i < NAME_COUNT * 6; i++) {
        const char *name = NAMES[i / 6];
        if (strncmp(name, "setp", 4) != 0 || !strstr(name, WORDS[i % 6].name))
            continue;
        const bool is_wide = strstr(name, ".f64"), is_float = strstr(name, ".f32");
        const uint64_t one = is_wide ? ONE_64 : is_float ? ONE : 1;
        const uint64_t two = is_wide ? TWO_64 : is_float ? TWO : 2;
        lanes_call call;
        lanes_open(&call, name);
        for (int lane = 0; lane < 32; lane++) {
            lanes_set(&call, 0, lane, lane % 3 ? two : one);
            lanes_set(&call, 1, lane, lane % 3 == 2 ? one : two);
        }
        lanes_run(&call);
        for (int lane = 0; lane < 32; lane++)
            if (lanes_result(&call, 0, lane) != (WORDS[i % 6].truths >> lane % 3 & 1))
                fail_msg("%s, lane %d", name, lane);
    }
}

static void a_division_by_zero_is_told_of_its_lanes_alone(void **state)
{
    (void)state;
    static const char *const DIVISIONS[] = {"div.u16", "div.u32", "div.u64", "rem.u32", "rem.u64"};
    for (int i = 0; i < 5; i++) {
        lanes_call call;
        lanes_open(&call, DIVISIONS[i]);
        for (int lane = 0; lane < 32; lane++) {
            lanes_set(&call, 0, lane, 100);
            lanes_set(&call, 1, lane, lane % 5 == 2 ? 0 : 7);
        }
        const uint32_t undefined = lanes_run(&call);
        for (int lane = 0; lane < 32; lane++) {
            assert_int_equal(undefined >> lane & 1, lane % 5 == 2);
            if (lane % 5 != 2)
                assert_int_equal(lanes_result(&call, 0, lane), DIVISIONS[i][0] == 'd' ? 14 : 2);
        }
    }
}

/* The text's algorithm, in its words, of signed numbers. */
static int source_lane(const char *mode, int lane, uint32_t b, uint32_t c, bool *out_in_range)
{
    const int bval = b & 0x1f, cval = c & 0x1f, mask = c >> 8 & 0x1f;
    const int max_lane = (lane & mask) | (cval & ~mask & 0x1f), min_lane = lane & mask;
    int j = 0;
    if (strcmp(mode, "up") == 0) {
        j = lane - bval;
        *out_in_range = j >= max_lane;
    } else {
        j = strcmp(mode, "down") == 0   ? lane + bval
            : strcmp(mode, "bfly") == 0 ? lane ^ bval
                                        : (min_lane | (bval & ~mask & 0x1f));
        *out_in_range = j <= max_lane;
    }
    return *out_in_range ? j : lane;
}

static void check_shuffle(const char *mode, const uint32_t *b, const uint32_t *c, uint32_t lanes)
{
    char name[64];
    lanes_call call;
    snprintf(name, sizeof name, "shfl.sync.%s.b32", mode);
    lanes_open(&call, name);
    call.call.lanes = lanes;
    for (int lane = 0; lane < 32; lane++) {
        lanes_set(&call, 0, lane, 1000u + (uint32_t)lane);
        lanes_set(&call, 1, lane, b[lane]);
        lanes_set(&call, 2, lane, c[lane]);
    }
    const uint32_t undefined = lanes_run(&call);
    for (int lane = 0; lane < 32; lane++) {
        bool in_range = false;
        const int from = source_lane(mode, lane, b[lane], c[lane], &in_range);
        assert_int_equal(lanes_result(&call, 0, lane), 1000 + from);
        assert_int_equal(lanes_result(&call, 1, lane), in_range);
        assert_int_equal(undefined >> lane & 1, !(lanes >> from & 1));
    }
}

static void shuffles_follow_the_isa(void **state)
{
    (void)state;
    static const char *const MODES[] = {"up", "down", "bfly", "idx"};
    uint64_t seed = scratch_seed("shuffles", 1);
    for (int round = 0; round < 2000; round++) {
        uint32_t b[32], c[32];
        const uint32_t width_mask = 32 - (1u << lanes_draw(&seed) % 6);
        for (int lane = 0; lane < 32; lane++) { /* as __shfl_* of a width, and anything */
            b[lane] = (uint32_t)lanes_draw(&seed) % (round % 2 ? 33 : 4);
            c[lane] =
                round % 3 ? width_mask << 8 | (round % 4 ? 0x1f : 0) : (uint32_t)lanes_draw(&seed);
        }
        for (int mode = 0; mode < 4; mode++)
            check_shuffle(MODES[mode], b, c, round % 5 ? 0xffffffff : (uint32_t)lanes_draw(&seed));
    }
}

/* The text's example: a sum of all lanes by a butterfly. */
static void a_butterfly_adds_up_all_lanes(void **state)
{
    (void)state;
    uint32_t sum[32];
    for (uint32_t lane = 0; lane < 32; lane++)
        sum[lane] = lane * lane;
    for (uint32_t distance = 16; distance > 0; distance /= 2) {
        lanes_call call;
        lanes_open(&call, "shfl.sync.bfly.b32");
        for (int lane = 0; lane < 32; lane++) {
            lanes_set(&call, 0, lane, sum[lane]);
            lanes_set(&call, 1, lane, distance);
            lanes_set(&call, 2, lane, 0x1f);
        }
        assert_int_equal(lanes_run(&call), 0);
        for (int lane = 0; lane < 32; lane++)
            sum[lane] += (uint32_t)lanes_result(&call, 0, lane);
    }
    for (int lane = 0; lane < 32; lane++)
        assert_int_equal(sum[lane], 31 * 32 * 63 / 6);
}

/* ---- ptxas ---- */

/* One that ptxas is asked of: sources of a lane and what we say the result is. */
typedef struct question {
    const ptx_arithmetic_row *row;
    uint64_t source[4], result;
} question;

static void write_operand(FILE *body, char letter, int index, uint64_t bits)
{
    if (letter == 'p')
        fprintf(body, "mov.b32 %%w7, %u;\nsetp.ne.b32 %%p%d, %%w7, 0;\n", (unsigned)bits, index);
    else
        fprintf(body, "mov.b%d %%%c%d, 0x%llx;\n",
                letter == 'd'   ? 64
                : letter == 'w' ? 32
                                : 16,
                letter, index, (unsigned long long)bits);
}

static void ask(ask_text *text, const question *q)
{
    char *body = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&body, &length);
    const char result = q->row->results[0];
    for (int i = 0; q->row->sources[i]; i++)
        write_operand(stream, q->row->sources[i], i, q->source[i]);
    fprintf(stream, "%s %%%c6", q->row->name, result);
    for (int i = 0; q->row->sources[i]; i++)
        fprintf(stream, ", %%%c%d", q->row->sources[i], i);
    fputs(";\n", stream);
    if (result == 'p')
        fprintf(stream, "selp.b32 %%w6, 1, 0, %%p6;\n");
    fprintf(stream, "setp.ne.b%d %%differs, %%%c6, 0x%llx;\n",
            result == 'd'   ? 64
            : result == 'h' ? 16
                            : 32,
            result == 'p' ? 'w' : result, (unsigned long long)q->result);
    fclose(stream);
    ask_entry(text, body);
    free(body);
}

static void ask_all(const question *questions, uint32_t count, ask_answer *answers)
{
    ask_text text;
    ask_begin(&text);
    for (uint32_t i = 0; i < count; i++)
        ask(&text, &questions[i]);
    ask_compile(&text, answers);
}

static void need_ptxas(void)
{
    if (!ask_program())
        skip_because("no ptxas: SL_PTXAS names one");
}

static void ptxas_is_asked_what_can_be_answered_either_way(void **state)
{
    (void)state;
    need_ptxas();
    question questions[2] = {{ptx_arithmetic_find("add.s32"), {5, 7}, 12},
                             {ptx_arithmetic_find("add.s32"), {5, 7}, 13}};
    ask_answer answers[2];
    ask_all(questions, 2, answers);
    assert_int_equal(answers[0], ASK_EQUAL);
    assert_int_equal(answers[1], ASK_OTHER);
}

/* By row of the list: how many answers of each kind. */
typedef struct tally {
    uint32_t of[3];
} tally;

static int index_of(const char *name)
{
    for (int i = 0; i < NAME_COUNT; i++)
        if (strcmp(NAMES[i], name) == 0)
            return i;
    fail_msg("%s is not in the list", name);
    return 0;
}

static void compare_all(const question *questions, uint32_t count, tally *tallies)
{
    ask_answer *answers = calloc(count, sizeof *answers);
    assert_non_null(answers);
    ask_all(questions, count, answers);
    for (uint32_t i = 0; i < count; i++) {
        const question *q = &questions[i];
        tallies[index_of(q->row->name)].of[answers[i]]++;
        if (answers[i] == ASK_OTHER)
            print_error("%s %#llx %#llx %#llx %#llx: ptxas says other than %#llx\n", q->row->name,
                        (unsigned long long)q->source[0], (unsigned long long)q->source[1],
                        (unsigned long long)q->source[2], (unsigned long long)q->source[3],
                        (unsigned long long)q->result);
    }
    free(answers);
}

/* No answer is another one, at least so many are ours; what is never folded is named. */
static void expect_agreement(const char *what, const tally *tallies, uint32_t least)
{
    uint32_t sum[3] = {0};
    print_message("%s; never folded:", what);
    for (int i = 0; i < NAME_COUNT; i++) {
        for (int k = 0; k < 3; k++)
            sum[k] += tallies[i].of[k];
        if (tallies[i].of[ASK_NOT_FOLDED] && !tallies[i].of[ASK_EQUAL])
            print_message(" %s", NAMES[i]);
    }
    print_message("\nptxas agrees with %u, differs in %u, folds %u not\n", sum[ASK_EQUAL],
                  sum[ASK_OTHER], sum[ASK_NOT_FOLDED]);
    assert_int_equal(sum[ASK_OTHER], 0);
    assert_true(sum[ASK_EQUAL] >= least);
}

static void ptxas_agrees_with_the_examples(void **state)
{
    (void)state;
    need_ptxas();
    question questions[CASE_COUNT];
    tally tallies[NAME_COUNT] = {0};
    for (int i = 0; i < CASE_COUNT; i++) {
        questions[i] = (question){.row = ptx_arithmetic_find(CASES[i].name)};
        memcpy(questions[i].source, CASES[i].source, sizeof CASES[i].source);
        questions[i].result = CASES[i].result;
    }
    compare_all(questions, CASE_COUNT, tallies);
    expect_agreement("examples", tallies, 210);
}

/* Bits of a register that an instruction treats in some special way, and any others. */
static uint64_t draw_source(char letter, uint64_t *seed)
{
    static const uint32_t WORDS[] = {0,          1,       31,         32,        0x7f, 0x80, 0xff,
                                     0x8000,     ONE,     TWO,        TOP,       TINY, MOST, LEAST,
                                     SIGNALLING, ANY_NAN, INFINITE,   HALF,      ULP,  ALL,  63,
                                     64,         THIRD,   0x477ff000, 0x33000000};
    static const uint64_t WIDES[] = {0,      1,       TOP_64,      ALL_64,   ONE_64,    TWO_64,
                                     NAN_64, TINY_64, INFINITE_64, THIRD_64, 1ULL << 32};
    const uint64_t kind = lanes_draw(seed) % 8, bits = lanes_draw(seed);
    const uint64_t pick = lanes_draw(seed);
    if (letter == 'p')
        return bits & 1;
    if (letter == 'd')
        return kind == 0 ? WIDES[pick % 11] : kind == 1 ? bits >> pick % 64 : bits;
    const uint32_t word = kind == 0   ? WORDS[pick % 25] ^ (uint32_t)(bits & TOP)
                          : kind == 1 ? (uint32_t)bits >> pick % 32
                          : kind == 2 ? ONE + (uint32_t)(bits % 0x1000000) - 0x800000
                          : kind == 3 ? 0x38000000 + (uint32_t)(bits % 0x1000) * 0x800
                                      : (uint32_t)bits;
    return letter == 'h' ? word & 0xffff : word;
}

/* Runs one row for 32 lanes of draws and takes down what it says of `count` of them. */
static void draw_questions(const ptx_arithmetic_row *row, question *out, int count, uint64_t *seed)
{
    lanes_call call;
    lanes_open(&call, row->name);
    for (int lane = 0; lane < 32; lane++)
        for (int k = 0; row->sources[k]; k++) {
            const bool is_count = strncmp(row->name, "bfi", 3) == 0 && k >= 2; /* of 8 bits */
            const uint64_t bits =
                draw_source(row->sources[k], seed) & (is_count ? 255 : UINT64_MAX);
            lanes_set(&call, k, lane, bits);
            if (lane < count)
                out[lane].source[k] = bits;
        }
    lanes_run(&call);
    for (int lane = 0; lane < count; lane++) {
        out[lane].row = row;
        out[lane].result = lanes_result(&call, 0, lane);
    }
}

static bool is_asked(const char *name)
{
    return !crosses_lanes(name) && !strstr(name, "approx") && !strstr(name, "div.u") &&
           !strstr(name, "rem.");
}

static void ptxas_agrees_with_random_constants(void **state)
{
    (void)state;
    need_ptxas();
    const int count = (int)scratch_count(8, 32), rounds = (int)scratch_count(1, 8);
    uint64_t seed = scratch_seed("random constants", 2);
    tally tallies[NAME_COUNT] = {0};
    question *questions = calloc((size_t)NAME_COUNT * 32, sizeof *questions);
    assert_non_null(questions);
    for (int round = 0; round < rounds; round++) {
        uint32_t asked = 0;
        memset(questions, 0, (size_t)NAME_COUNT * 32 * sizeof *questions);
        for (int i = 0; i < NAME_COUNT; i++)
            if (is_asked(NAMES[i])) {
                draw_questions(ptx_arithmetic_find(NAMES[i]), questions + asked, count, &seed);
                asked += (uint32_t)count;
            }
        compare_all(questions, asked, tallies);
    }
    free(questions);
    expect_agreement("random constants", tallies, 70 * (uint32_t)(count * rounds));
}

/* The folded power lies within two of ours, which is the nearest. */
static void ptxas_folds_powers_of_two_within_the_documented_error(void **state)
{
    (void)state;
    need_ptxas();
    enum { POWERS = 16 };
    uint64_t seed = scratch_seed("powers", 3);
    question questions[POWERS * 5] = {0};
    ask_answer answers[POWERS * 5];
    for (int i = 0; i < POWERS; i++) {
        question nearest = {0};
        lanes_call call;
        lanes_open(&call, "ex2.approx.ftz.f32");
        nearest.row = call.row;
        nearest.source[0] =
            (lanes_draw(&seed) & TOP) | (0x3c000000 + lanes_draw(&seed) % 0x6000000);
        lanes_set(&call, 0, 0, nearest.source[0]);
        lanes_run(&call);
        for (int places = -2; places <= 2; places++) {
            nearest.result = lanes_result(&call, 0, 0) + (uint64_t)(int64_t)places;
            questions[5 * i + places + 2] = nearest;
        }
    }
    ask_all(questions, POWERS * 5, answers);
    for (int i = 0; i < POWERS; i++) {
        int equal = 0;
        for (int k = 0; k < 5; k++)
            equal += answers[5 * i + k] == ASK_EQUAL;
        if (equal != 1)
            fail_msg("2^x of %#llx: none of five", (unsigned long long)questions[5 * i].source[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_give_what_the_isa_says),
        cmocka_unit_test(every_row_is_found_and_has_examples),
        cmocka_unit_test(comparisons_tell_less_equal_and_greater),
        cmocka_unit_test(a_division_by_zero_is_told_of_its_lanes_alone),
        cmocka_unit_test(shuffles_follow_the_isa),
        cmocka_unit_test(a_butterfly_adds_up_all_lanes),
        cmocka_unit_test(ptxas_is_asked_what_can_be_answered_either_way),
        cmocka_unit_test(ptxas_agrees_with_the_examples),
        cmocka_unit_test(ptxas_agrees_with_random_constants),
        cmocka_unit_test(ptxas_folds_powers_of_two_within_the_documented_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
