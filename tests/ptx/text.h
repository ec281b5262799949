/* The text of a PTX module as declarations and statements: words, no meaning. */
#ifndef PTX_TEXT_H
#define PTX_TEXT_H

#include <string.h>

#include "ptx.h"

/* A run of the text; bytes 0: nothing. */
typedef struct ptx_word {
    const char *at;
    uint32_t bytes;
} ptx_word;

static inline bool ptx_word_is(ptx_word word, const char *text)
{
    return word.bytes == strlen(text) && memcmp(word.at, text, word.bytes) == 0;
}

bool ptx_word_begins(ptx_word word, const char *text);
bool ptx_word_same(ptx_word left, ptx_word right);
char *ptx_word_copy(ptx_word word); /* from malloc */

/* A literal as bits: an integer, 0f… or 0d…; false: it is none. */
bool ptx_word_number(ptx_word word, uint64_t *out_bits);

/* An array that grows; a test that gets no memory ends the process. */
#define PTX_LIST(type)                                                                             \
    struct {                                                                                       \
        type *items;                                                                               \
        uint32_t count, room;                                                                      \
    }
#define PTX_ADD(list)                                                                              \
    (ptx_grow((void **)&(list)->items, &(list)->count, &(list)->room, sizeof *(list)->items),      \
     &(list)->items[(list)->count - 1])
void ptx_grow(void **items, uint32_t *count, uint32_t *room, size_t bytes); /* by a zeroed one */
void *ptx_take(uint64_t count, uint64_t bytes);                             /* zeroed */

enum { PTX_WORDS_MAX = 4, PTX_OPERANDS_MAX = 6 };

typedef enum ptx_operand_kind {
    PTX_PLAIN,   /* a; a|b has two words */
    PTX_VECTOR,  /* {a, b, …} */
    PTX_ADDRESS, /* [a+displacement]; [displacement] has no word */
} ptx_operand_kind;

typedef struct ptx_operand {
    ptx_operand_kind kind;
    bool is_negated; /* !a */
    uint32_t count;
    ptx_word words[PTX_WORDS_MAX];
    int64_t displacement;
} ptx_operand;

/* .reg .b32 name<count>; count 0: one register of just that name. */
typedef struct ptx_register_words {
    ptx_word type, name;
    uint32_t count;
} ptx_register_words;

/* A variable of a state space, of a module or of a kernel; also a parameter. */
typedef struct ptx_variable_words {
    ptx_space space;
    ptx_word name;
    uint64_t align, bytes; /* bytes 0: an array without a length, which is dynamic shared memory */
    uint64_t element_bytes;
    PTX_LIST(uint64_t) values; /* of its first elements */
} ptx_variable_words;

typedef enum ptx_statement_kind {
    PTX_INSTRUCTION,
    PTX_LABEL,
    PTX_REGISTERS,
    PTX_SCOPE_BEGIN,
    PTX_SCOPE_END,
} ptx_statement_kind;

typedef struct ptx_statement {
    ptx_statement_kind kind;
    uint32_t line;
    ptx_word text; /* of an instruction, whole */
    ptx_word name; /* of the instruction with all suffixes; of the label */
    ptx_word guard;
    bool guard_is_negated;
    uint32_t operand_count;
    ptx_operand operands[PTX_OPERANDS_MAX];
    ptx_register_words registers;
} ptx_statement;

typedef PTX_LIST(ptx_variable_words) ptx_variable_list;

typedef struct ptx_kernel_words {
    ptx_word name;
    uint32_t line, threads_max;
    ptx_variable_list params, variables;
    PTX_LIST(ptx_statement) statements;
} ptx_kernel_words;

typedef struct ptx_text {
    ptx_variable_list variables;
    PTX_LIST(ptx_kernel_words) kernels;
} ptx_text;

/* Words point into `text`, which has to outlive them. What it does not know is a fault. */
bool ptx_text_read(const char *text, uint64_t bytes, ptx_text *out, ptx_fault *out_fault);
void ptx_text_forget(ptx_text *text);

#endif
