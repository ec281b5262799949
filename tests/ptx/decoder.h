/* What a kernel's decoding knows, and how operands become registers and constants. */
#ifndef PTX_DECODER_H
#define PTX_DECODER_H

#include "kernel.h"

typedef struct ptx_declared {
    ptx_word name;
    uint32_t count, first; /* count 0: just that name */
    char letter;
} ptx_declared;

typedef struct ptx_label {
    ptx_word name;
    uint32_t op; /* the next one behind it */
} ptx_label;

/* A symbol's value where an operand names it: an address in its own space. */
typedef struct ptx_symbol {
    ptx_word name;
    uint64_t value;
} ptx_symbol;

typedef struct ptx_constant {
    char letter;
    uint64_t bits;
    uint32_t at;
} ptx_constant;

typedef struct ptx_decoder {
    const ptx_kernel_words *words;
    ptx_kernel *kernel;
    const ptx_statement *statement; /* the one being decoded */
    ptx_op *op;
    ptx_fault *fault;
    PTX_LIST(ptx_declared) declared;
    PTX_LIST(uint32_t) scopes; /* declared.count where each began */
    PTX_LIST(ptx_label) labels;
    PTX_LIST(ptx_symbol) symbols;
    PTX_LIST(ptx_constant) constants;
    PTX_LIST(ptx_register) registers;
    uint32_t special_register[PTX_SPECIALS]; /* + 1; 0: not used */
    uint32_t constant_bytes;
    ptx_word parts[12]; /* of the instruction's name */
    uint32_t part_count;
} ptx_decoder;

#define EXPECT(call)                                                                               \
    do {                                                                                           \
        if (!(call))                                                                               \
            return false;                                                                          \
    } while (0)

/* Names the instruction and returns false. */
bool ptx_refuse(const ptx_decoder *decoder, const char *why);

/* The letter (arithmetic.h) of a register of so many bytes. */
char ptx_letter_of_bytes(uint64_t bytes);

/* Bytes of a type such as b32; 0: it is none that is handled. */
uint32_t ptx_type_bytes(ptx_word type, bool *out_is_signed);

/* Enters registers into the innermost scope. */
bool ptx_declare(ptx_decoder *decoder, const ptx_register_words *words);

/* The register that a word names here; the innermost scope wins. */
bool ptx_find_register(ptx_decoder *decoder, ptx_word word, uint32_t *out, char *out_letter);

uint32_t ptx_add_constant(ptx_decoder *decoder, char letter, uint64_t bits);

/* A register, a literal or a symbol, as a source of that letter; 0: any, told in *letter. Literals
 * and symbols are then 64 bits. */
bool ptx_find_source(ptx_decoder *decoder, ptx_word word, char *letter, uint32_t *out);

/* The same, appended to the op's sources or results; `_` is a result that goes nowhere. */
bool ptx_add_source(ptx_decoder *decoder, ptx_word word, char letter);
bool ptx_add_result(ptx_decoder *decoder, ptx_word word, char letter);

/* Lays out the kernel's constants, once all operands are known. */
bool ptx_fill_constants(const ptx_decoder *decoder);

#endif
