/* What stands between a model's logits and the text that is printed. What could be wrong here: a
 * stop text is missed because its parts come in different tokens, or depends on how they come; text
 * is held back for ever, or a part of a character given out; a penalty hits the wrong ids. Random
 * texts of an alphabet so small that stop texts overlap come in random parts, and what is given out
 * is compared with a plain scan of the whole text.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "checkpoint/checkpoint_case.h"
#include "train/generate/decoder.h"
#include "train/generate/held_text.h"
#include "train/generate/sampler.h"

enum { TEXT_MAX = 256, STOPS_MAX = 3, STOP_MAX = 6 };

/* ---- held text ---- */

typedef struct given {
    char bytes[TEXT_MAX];
    uint64_t count;
    bool wants_whole; /* each part must end with a character */
} given;

static bool ends_whole(const char *bytes, uint64_t count)
{
    uint64_t back = 1;
    while (back < count && ((unsigned char)bytes[count - back] & 0xc0) == 0x80)
        back++;
    const unsigned char lead = (unsigned char)bytes[count - back];
    return back == (lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4);
}

static sl_status take(void *user, const char *bytes, uint64_t byte_count)
{
    given *to = user;
    assert_true(byte_count > 0 && to->count + byte_count <= TEXT_MAX);
    memcpy(to->bytes + to->count, bytes, byte_count);
    to->count += byte_count;
    if (to->wants_whole && !ends_whole(bytes, byte_count))
        fail_msg("a part of a character was given out");
    return SL_OK;
}

typedef struct text_case {
    char text[TEXT_MAX];
    uint64_t count;
    char stops[STOPS_MAX][4 * STOP_MAX + 1];
    const char *stop_list[STOPS_MAX];
    uint32_t stop_count;
} text_case;

static uint64_t draw_below(uint64_t seed, uint64_t *index, uint64_t bound)
{
    return sl_rng_below(seed, 7, (*index)++, bound);
}

static void draw_characters(uint64_t seed, uint64_t *index, uint64_t count, char *out)
{
    static const char *const letters[] = {"a", "b", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (uint64_t i = 0; i < count; i++) {
        const char *letter = letters[draw_below(seed, index, 2 + 3 * (seed % 2))];
        const size_t length = strlen(letter);
        memcpy(out, letter, length);
        out += length;
    }
    *out = '\0';
}

static void draw_case(uint64_t seed, uint64_t *index, text_case *out)
{
    memset(out, 0, sizeof *out);
    draw_characters(seed, index, draw_below(seed, index, 40), out->text);
    out->count = strlen(out->text);
    out->stop_count = (uint32_t)draw_below(seed, index, STOPS_MAX + 1);
    for (uint32_t i = 0; i < out->stop_count; i++) {
        draw_characters(seed, index, 1 + draw_below(seed, index, STOP_MAX), out->stops[i]);
        out->stop_list[i] = out->stops[i];
    }
}

/* Bytes before the stop text that ends first, the longest of those. */
static uint64_t scan(const text_case *it)
{
    for (uint64_t end = 1; end <= it->count; end++) {
        uint64_t longest = 0;
        for (uint32_t i = 0; i < it->stop_count; i++) {
            uint64_t length = strlen(it->stops[i]);
            if (length > longest && length <= end &&
                memcmp(it->text + end - length, it->stops[i], length) == 0)
                longest = length;
        }
        if (longest > 0)
            return end - longest;
    }
    return it->count;
}

static void check_case(uint64_t seed, uint64_t *index, const text_case *it)
{
    given to = {.wants_whole = true};
    const sl_held_sink sink = {take, &to};
    sl_held_text held = {.stops = it->stop_list, .stop_count = it->stop_count};
    for (uint64_t done = 0; done < it->count;) {
        uint64_t part = 1 + draw_below(seed, index, 5);
        part = part < it->count - done ? part : it->count - done;
        assert_int_equal(sl_held_text_add(&held, it->text + done, part, &sink), SL_OK);
        done += part;
        if (it->stop_count == 0)
            assert_true(to.count + 3 >= done); /* no more than a part of a character is held */
    }
    assert_int_equal(sl_held_text_end(&held, &sink), SL_OK);
    uint64_t expected = scan(it);
    assert_int_equal(to.count, expected);
    assert_memory_equal(to.bytes, it->text, expected);
    assert_int_equal(held.is_stopped, expected < it->count);
    sl_held_text_close(&held);
}

static void held_when_text_comes_in_parts_then_stops_as_if_it_were_whole(void **state)
{
    (void)state;
    const char *from = getenv("SL_TEST_SEED");
    uint64_t first = from ? strtoull(from, NULL, 10) : 1;
    uint64_t count = getenv("SL_TEST_FULL") ? 200000 : 4000;
    print_message("seeds %llu to %llu\n", (unsigned long long)first,
                  (unsigned long long)(first + count - 1));
    for (uint64_t seed = first; seed < first + count; seed++) {
        text_case it;
        uint64_t index = 0;
        draw_case(seed, &index, &it);
        check_case(seed, &index, &it);
    }
}

/* No UTF-8: given out as it is, at the latest at the end. */
static void held_when_bytes_are_no_characters_then_all_are_given(void **state)
{
    (void)state;
    static const char bytes[] = "\x80\xff\xc3z\xe2\x82\xf5\xc1\xbf\xf0\x9f";
    given to = {0};
    const sl_held_sink sink = {take, &to};
    sl_held_text held = {0};
    for (size_t i = 0; i + 1 < sizeof bytes; i++) {
        assert_int_equal(sl_held_text_add(&held, bytes + i, 1, &sink), SL_OK);
        assert_true(to.count + 3 >= i + 1);
    }
    assert_int_equal(to.count, sizeof bytes - 1 - 2); /* the last two begin a character */
    assert_int_equal(sl_held_text_end(&held, &sink), SL_OK);
    assert_int_equal(to.count, sizeof bytes - 1);
    assert_memory_equal(to.bytes, bytes, sizeof bytes - 1);
    sl_held_text_clear(&held);
    assert_int_equal(sl_held_text_add(&held, "x", 1, &sink), SL_OK);
    assert_int_equal(to.count, sizeof bytes);
    sl_held_text_close(&held);
}

/* ---- penalty ---- */

static void penalty_when_ids_were_seen_then_only_they_become_less_likely(void **state)
{
    (void)state;
    float logits[] = {2.0f, -2.0f, 2.0f, -2.0f, 0.0f, 3.0f};
    const uint8_t seen[] = {1, 1, 0, 0, 1, 1};
    const float expected[] = {2.0f / 1.5f, -2.0f * 1.5f, 2.0f, -2.0f, 0.0f, 2.0f};
    sl_sampler_penalise(logits, seen, 6, 1.5);
    assert_memory_equal(logits, expected, sizeof logits);
    sl_sampler_penalise(logits, seen, 6, 1.0);
    assert_memory_equal(logits, expected, sizeof logits);
}

/* ---- what fits ---- */

static void prompt_when_longer_than_the_context_then_its_end_leaves_room(void **state)
{
    (void)state;
    const sl_model_shape shape = {.context = 32}, narrow = {.context = 1};
    assert_int_equal(sl_decoder_fitting(&shape, 5, 100), 5);
    assert_int_equal(sl_decoder_fitting(&shape, 32, 100), 32);
    assert_int_equal(sl_decoder_fitting(&shape, 33, 4), 28);
    assert_int_equal(sl_decoder_fitting(&shape, 1000000, 4), 28);
    assert_int_equal(sl_decoder_fitting(&shape, 33, 100), 16); /* half of it at least */
    assert_int_equal(sl_decoder_fitting(&narrow, 9, 100), 1);
}

/* ---- stopping ---- */

enum { LONG_TEXT = 24 };

static void configure(sl_config *config)
{
    static const char *const assignments[] = {"checkpoint=" SL_TEST_SOURCE_DIRECTORY "/golden/fp32",
                                              "samples=8", "device=cpu", "threads=1",
                                              "precision=fp32"};
    assert_int_equal(sl_config_init(config), SL_OK);
    for (size_t i = 0; i < sizeof assignments / sizeof assignments[0]; i++)
        assert_int_equal(sl_config_assign(config, SL_CONFIG_GENERATE, assignments[i]), SL_OK);
    assert_int_equal(sl_config_check(config, SL_CONFIG_GENERATE), SL_OK);
}

/* The logits of row 0 behind a text of pieces. The first read is asked to stop before its first
 * piece, if any is; the next one goes on. */
static void read_text(const sl_decoder_args *args, bool stops, float *out_logits)
{
    volatile sig_atomic_t stop = stops;
    int32_t text[LONG_TEXT];
    sl_decoder *decoder = NULL;
    bool is_whole;
    for (int32_t i = 0; i < LONG_TEXT; i++)
        text[i] = 'a' + i;
    assert_int_equal(sl_decoder_open(args, &decoder), SL_OK);
    sl_decoder_start(decoder, text, LONG_TEXT, 1);
    assert_int_equal(sl_decoder_read(decoder, &stop, &is_whole), SL_OK);
    assert_int_equal(is_whole, !stops);
    assert_int_equal(sl_decoder_read_count(decoder), stops ? 0 : LONG_TEXT);
    stop = 0;
    if (stops)
        assert_int_equal(sl_decoder_read(decoder, &stop, &is_whole), SL_OK);
    assert_true(is_whole);
    assert_int_equal(sl_decoder_drain(decoder), SL_OK);
    memcpy(out_logits, sl_decoder_logits(decoder, 0), args->source->shape.vocab * sizeof(float));
    sl_decoder_close(decoder);
}

static void reading_when_stopped_then_no_piece_is_read_and_it_can_go_on(void **state)
{
    (void)state;
    sl_config config;
    sl_model_directory source;
    configure(&config);
    assert_int_equal(sl_model_directory_open(config.checkpoint, false, 0, &source), SL_OK);
    sl_ranks alone = {0};
    const sl_decoder_args args = {
        .config = &config, .source = &source, .ranks = &alone, .new_count = 1};
    float *whole = calloc(source.shape.vocab, sizeof *whole);
    float *stopped = calloc(source.shape.vocab, sizeof *stopped);
    assert_true(whole && stopped && source.shape.context > LONG_TEXT);
    read_text(&args, false, whole);
    read_text(&args, true, stopped);
    assert_memory_equal(whole, stopped, source.shape.vocab * sizeof *whole);
    free(whole);
    free(stopped);
    sl_model_directory_close(&source);
    sl_config_clear(&config);
}

/* Where it is not known how much is needed, a rotary model gets fewer positions than it could have:
 * what fits is counted by them. */
static void decoder_when_open_ended_then_its_context_is_shorter(void **state)
{
    (void)state;
    static const sl_model_shape shape = {.layers = 1,
                                         .width = 8,
                                         .heads = 2,
                                         .context = 9000,
                                         .vocab = 257,
                                         .architecture = SL_ARCHITECTURE_LLAMA,
                                         .kv_heads = 2,
                                         .head = 4,
                                         .ffn = 8,
                                         .norm_epsilon = 1e-5,
                                         .rope.base = 1e4};
    sl_config config;
    sl_model_directory source;
    scratch_path scratch = scratch_open();
    tiny_model *model = tiny_open(shape);
    assert_int_equal(case_save_model(scratch.text, 7, 0, model), SL_OK);
    tiny_close(model);
    configure(&config);
    assert_int_equal(sl_model_directory_open(scratch.text, false, 0, &source), SL_OK);
    for (uint64_t prompt = 0; prompt < 2; prompt++) {
        sl_ranks alone = {0};
        const sl_decoder_args args = {.config = &config,
                                      .source = &source,
                                      .ranks = &alone,
                                      .prompt_count = prompt,
                                      .new_count = 1};
        sl_decoder *decoder = NULL;
        assert_int_equal(sl_decoder_open(&args, &decoder), SL_OK);
        assert_int_equal(sl_decoder_shape(decoder)->context, prompt ? 9000 : 8192);
        sl_decoder_close(decoder);
    }
    sl_model_directory_close(&source);
    sl_config_clear(&config);
    scratch_close(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_when_text_comes_in_parts_then_stops_as_if_it_were_whole),
        cmocka_unit_test(held_when_bytes_are_no_characters_then_all_are_given),
        cmocka_unit_test(penalty_when_ids_were_seen_then_only_they_become_less_likely),
        cmocka_unit_test(prompt_when_longer_than_the_context_then_its_end_leaves_room),
        cmocka_unit_test(reading_when_stopped_then_no_piece_is_read_and_it_can_go_on),
        cmocka_unit_test(decoder_when_open_ended_then_its_context_is_shorter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
