/* What operands name: registers by scope, special registers, literals and symbols. */
#include "decoder.h"

#include <stdlib.h>
#include <string.h>

bool ptx_refuse(const ptx_decoder *decoder, const char *why)
{
    const ptx_statement *statement = decoder->statement;
    return ptx_fail(decoder->fault, "%s, line %u: `%.*s`: %s", decoder->kernel->name,
                    statement->line, (int)statement->text.bytes, statement->text.at, why);
}

static const char *const SPECIAL_NAMES[PTX_SPECIALS] = {
    "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
    "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "%warpid"};

/* ---- registers and constants ---- */

char ptx_letter_of_bytes(uint64_t bytes)
{
    return bytes == 8 ? 'd' : bytes == 4 ? 'w' : 'h';
}

/* Bytes of a type such as b32 or f16x2; 0: it is none; *out_is_signed. */
uint32_t ptx_type_bytes(ptx_word type, bool *out_is_signed)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } types[] = {{"b8", 1},  {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2},
                 {"s16", 2}, {"f16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4},
                 {"f32", 4}, {"b64", 8}, {"u64", 8}, {"s64", 8}, {"f64", 8}};
    *out_is_signed = type.bytes && type.at[0] == 's';
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (ptx_word_is(type, types[i].name))
            return types[i].bytes;
    return 0;
}

static uint32_t add_register(ptx_decoder *decoder, char letter)
{
    PTX_ADD(&decoder->registers)->letter = letter;
    return decoder->registers.count - 1;
}

bool ptx_declare(ptx_decoder *decoder, const ptx_register_words *words)
{
    bool is_signed;
    const ptx_word type = {words->type.at + 1, words->type.bytes - 1};
    const uint32_t bytes = ptx_type_bytes(type, &is_signed);
    const bool is_predicate = ptx_word_is(type, "pred");
    if (!is_predicate && bytes < 2)
        return ptx_fail(decoder->fault, "line %u: registers of type %.*s are not handled",
                        decoder->statement->line, (int)words->type.bytes, words->type.at);
    ptx_declared *one = PTX_ADD(&decoder->declared);
    *one = (ptx_declared){words->name, words->count, decoder->registers.count,
                          is_predicate ? 'p' : ptx_letter_of_bytes(bytes)};
    for (uint32_t i = 0; i < (words->count ? words->count : 1); i++)
        add_register(decoder, one->letter);
    return true;
}

static bool names_register(const ptx_declared *one, ptx_word word, uint32_t *out)
{
    uint64_t number = 0;
    if (one->count) {
        if (word.bytes <= one->name.bytes || memcmp(word.at, one->name.at, one->name.bytes) != 0)
            return false;
        const ptx_word digits = {word.at + one->name.bytes, word.bytes - one->name.bytes};
        if (!ptx_word_number(digits, &number) || number >= one->count)
            return false;
    } else if (!ptx_word_same(word, one->name))
        return false;
    *out = one->first + (uint32_t)number;
    return true;
}

/* The register that a word names here; the innermost scope wins. */
bool ptx_find_register(ptx_decoder *decoder, ptx_word word, uint32_t *out, char *out_letter)
{
    for (uint32_t i = decoder->declared.count; i-- > 0;)
        if (names_register(&decoder->declared.items[i], word, out)) {
            *out_letter = decoder->declared.items[i].letter;
            return true;
        }
    for (int i = 0; i < PTX_SPECIALS; i++)
        if (ptx_word_is(word, SPECIAL_NAMES[i])) {
            if (!decoder->special_register[i]) {
                decoder->special_register[i] = add_register(decoder, 'w') + 1;
                ptx_register *special = &decoder->registers.items[decoder->registers.count - 1];
                special->is_special = true;
                special->at = decoder->kernel->special_at[i] = decoder->kernel->file_bytes;
                decoder->kernel->file_bytes += ptx_letter_bytes('w');
            }
            *out = decoder->special_register[i] - 1;
            *out_letter = 'w';
            return true;
        }
    return false;
}

uint32_t ptx_add_constant(ptx_decoder *decoder, char letter, uint64_t bits)
{
    bits &= letter == 'd' ? UINT64_MAX : letter == 'h' ? 0xffff : letter == 'p' ? 1 : UINT32_MAX;
    letter = letter == 'h' ? 'w' : letter;
    for (uint32_t i = 0; i < decoder->constants.count; i++) {
        const ptx_constant *one = &decoder->constants.items[i];
        if (one->letter == letter && one->bits == bits)
            return one->at | PTX_IS_CONSTANT;
    }
    const uint32_t at = decoder->constant_bytes;
    *PTX_ADD(&decoder->constants) = (ptx_constant){letter, bits, at};
    decoder->constant_bytes += letter == 'p' ? 64 : ptx_letter_bytes(letter);
    return at | PTX_IS_CONSTANT;
}

/* A register, a literal or a symbol, as a source of that letter; 0: any, told in *letter. Literals
 * and symbols are then 64 bits. */
bool ptx_find_source(ptx_decoder *decoder, ptx_word word, char *letter, uint32_t *out)
{
    uint64_t bits;
    char found;
    if (ptx_find_register(decoder, word, out, &found)) {
        if (*letter && *letter != found)
            return ptx_refuse(decoder, "a register of another width than is handled");
        *letter = found;
        return true;
    }
    bool is_known = ptx_word_number(word, &bits);
    for (uint32_t i = 0; !is_known && i < decoder->symbols.count; i++)
        if (ptx_word_same(word, decoder->symbols.items[i].name)) {
            bits = decoder->symbols.items[i].value;
            is_known = true;
        }
    if (!is_known)
        return ptx_refuse(decoder, "an operand is unknown");
    *letter = *letter ? *letter : 'd';
    *out = ptx_add_constant(decoder, *letter, *letter == 'p' ? bits != 0 : bits);
    return true;
}

bool ptx_add_source(ptx_decoder *decoder, ptx_word word, char letter)
{
    ptx_op *op = decoder->op;
    if (op->from_count == PTX_SOURCES_MAX)
        return ptx_refuse(decoder, "too many sources");
    EXPECT(ptx_find_source(decoder, word, &letter, &op->from[op->from_count]));
    op->from_letters[op->from_count++] = letter;
    return true;
}

/* A result; letter 0: any. */
bool ptx_add_result(ptx_decoder *decoder, ptx_word word, char letter)
{
    ptx_op *op = decoder->op;
    char found = letter ? letter : 'w';
    uint32_t operand = PTX_NO_OPERAND;
    if (op->to_count == PTX_RESULTS_MAX)
        return ptx_refuse(decoder, "too many results");
    if (!ptx_word_is(word, "_")) {
        if (!ptx_find_register(decoder, word, &operand, &found) ||
            decoder->registers.items[operand].is_special)
            return ptx_refuse(decoder, "a result is no register");
        if (letter && found != letter)
            return ptx_refuse(decoder, "a result of another width than is handled");
    }
    op->to[op->to_count] = operand;
    op->to_letters[op->to_count++] = found;
    return true;
}

bool ptx_fill_constants(const ptx_decoder *decoder)
{
    const size_t bytes = ptx_round_up((uint64_t)decoder->constant_bytes + 1, 64);
    uint8_t *constants = decoder->kernel->constants = aligned_alloc(64, bytes);
    if (!constants)
        return ptx_fail(decoder->fault, "%s: no memory for its constants", decoder->kernel->name);
    for (uint32_t i = 0; i < decoder->constants.count; i++) {
        const ptx_constant *one = &decoder->constants.items[i];
        void *at = constants + one->at;
        if (one->letter == 'p')
            *(uint32_t *)at = one->bits ? UINT32_MAX : 0;
        for (int lane = 0; lane < PTX_LANES && one->letter != 'p'; lane++)
            if (one->letter == 'd')
                ((uint64_t *)at)[lane] = one->bits;
            else
                ((uint32_t *)at)[lane] = (uint32_t)one->bits;
    }
    return true;
}
