/* Reads the text of a module: one token after another, no look-ahead but by a copy of the reader.
 */
#include "text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_reader {
    const char *at, *end; /* behind the next token */
    uint32_t line;        /* of the next token */
    ptx_word word;        /* the next token; empty at the end */
    ptx_fault *fault;
} text_reader;

#define EXPECT(call)                                                                               \
    do {                                                                                           \
        if (!(call))                                                                               \
            return false;                                                                          \
    } while (0)

/* ---- tokens ---- */

static void skip_space(text_reader *reader)
{
    while (reader->at < reader->end) {
        const char *at = reader->at;
        const bool has_next = at + 1 < reader->end;
        if (*at == '/' && has_next && at[1] == '/') {
            while (reader->at < reader->end && *reader->at != '\n')
                reader->at++;
        } else if (*at == '/' && has_next && at[1] == '*') {
            for (reader->at += 2;
                 reader->at + 1 < reader->end && !(reader->at[0] == '*' && reader->at[1] == '/');
                 reader->at++)
                reader->line += *reader->at == '\n';
            reader->at += 2;
        } else if (isspace((unsigned char)*at)) {
            reader->line += *at == '\n';
            reader->at++;
        } else
            return;
    }
}

static bool is_word_byte(char byte)
{
    return isalnum((unsigned char)byte) || byte == '_' || byte == '.' || byte == '$' || byte == '%';
}

/* Where a name, a number with its sign, a string with its quotes or one character ends. */
static const char *token_end(const char *at, const char *end)
{
    const char *from = at;
    if (*at == '"') {
        for (at++; at < end && *at != '"'; at++)
            ;
        return at + (at < end);
    }
    at += *at == '-' && at + 1 < end && isdigit((unsigned char)at[1]);
    while (at < end && is_word_byte(*at))
        at++;
    return at + (at == from);
}

static void read_token(text_reader *reader)
{
    skip_space(reader);
    reader->word = (ptx_word){reader->at, 0};
    if (reader->at >= reader->end)
        return;
    reader->at = token_end(reader->at, reader->end);
    reader->word.bytes = (uint32_t)(reader->at - reader->word.at);
}

static ptx_word peek(const text_reader *reader)
{
    return reader->word;
}

static ptx_word next(text_reader *reader)
{
    const ptx_word word = reader->word;
    read_token(reader);
    return word;
}

static bool accept(text_reader *reader, const char *text)
{
    if (!ptx_word_is(peek(reader), text))
        return false;
    next(reader);
    return true;
}

static bool refuse(text_reader *reader, const char *what)
{
    const ptx_word word = peek(reader);
    return ptx_fail(reader->fault, "line %u: %s, not \"%.*s\"", reader->line, what, (int)word.bytes,
                    word.at);
}

static bool expect(text_reader *reader, const char *text)
{
    if (accept(reader, text))
        return true;
    const ptx_word word = peek(reader);
    return ptx_fail(reader->fault, "line %u: expected \"%s\", not \"%.*s\"", reader->line, text,
                    (int)word.bytes, word.at);
}

static bool read_name(text_reader *reader, ptx_word *out)
{
    *out = peek(reader);
    if (out->bytes == 0 || !is_word_byte(out->at[0]))
        return refuse(reader, "expected a name");
    next(reader);
    return true;
}

static bool read_number(text_reader *reader, uint64_t *out)
{
    if (!ptx_word_number(peek(reader), out))
        return refuse(reader, "expected a number");
    next(reader);
    return true;
}

/* ---- declarations ---- */

/* The bytes of an element of a type such as .b32; 0: none. */
static uint64_t type_bytes(ptx_word type)
{
    static const struct {
        const char *digits;
        uint64_t bytes;
    } widths[] = {{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}};
    if (type.bytes < 3 || type.at[0] != '.' || !strchr("busf", type.at[1]))
        return 0;
    for (int i = 0; i < 4; i++)
        if (ptx_word_is((ptx_word){type.at + 2, type.bytes - 2}, widths[i].digits))
            return widths[i].bytes;
    return 0;
}

static bool read_values(text_reader *reader, ptx_variable_words *variable)
{
    EXPECT(expect(reader, "{"));
    do
        EXPECT(read_number(reader, PTX_ADD(&variable->values)));
    while (accept(reader, ","));
    return expect(reader, "}");
}

static bool accept_space(text_reader *reader, ptx_space *out)
{
    static const struct {
        const char *name;
        ptx_space space;
    } spaces[] = {{".global", PTX_GLOBAL},
                  {".shared", PTX_SHARED},
                  {".local", PTX_LOCAL},
                  {".const", PTX_CONST}};
    for (int i = 0; i < 4; i++)
        if (accept(reader, spaces[i].name)) {
            *out = spaces[i].space;
            return true;
        }
    return false;
}

/* .ptr [.space] [.align n]: what a parameter points at, a hint. */
static bool skip_pointee(text_reader *reader)
{
    ptx_space space;
    uint64_t align;
    if (!accept(reader, ".ptr"))
        return true;
    accept_space(reader, &space);
    return !accept(reader, ".align") || read_number(reader, &align);
}

/* [.align n] .type [.ptr …] name [ [length] ] [= {values}], after its state space. */
static bool read_variable(text_reader *reader, ptx_space space, ptx_variable_words *variable)
{
    uint64_t length = 1;
    variable->space = space;
    if (accept(reader, ".align"))
        EXPECT(read_number(reader, &variable->align));
    variable->element_bytes = type_bytes(peek(reader));
    if (variable->element_bytes == 0)
        return refuse(reader, "expected the type of a variable");
    next(reader);
    EXPECT(skip_pointee(reader));
    if (variable->align == 0)
        variable->align = variable->element_bytes;
    EXPECT(read_name(reader, &variable->name));
    if (accept(reader, "[")) {
        length = 0;
        if (!ptx_word_is(peek(reader), "]"))
            EXPECT(read_number(reader, &length));
        EXPECT(expect(reader, "]"));
    }
    variable->bytes = length * variable->element_bytes;
    if (accept(reader, "="))
        EXPECT(read_values(reader, variable));
    if (variable->values.count > length)
        return refuse(reader, "more values than elements");
    return true;
}

/* ---- statements ---- */

static bool add_word(text_reader *reader, ptx_operand *operand)
{
    if (operand->count == PTX_WORDS_MAX)
        return refuse(reader, "expected at most 4 elements");
    return read_name(reader, &operand->words[operand->count++]);
}

static bool read_address(text_reader *reader, ptx_operand *operand)
{
    uint64_t displacement = 0;
    operand->kind = PTX_ADDRESS;
    if (!ptx_word_number(peek(reader), &displacement)) {
        EXPECT(add_word(reader, operand));
        if (accept(reader, "+"))
            EXPECT(read_number(reader, &displacement));
    } else
        next(reader);
    operand->displacement = (int64_t)displacement;
    return expect(reader, "]");
}

static bool read_operand(text_reader *reader, ptx_operand *operand)
{
    if (accept(reader, "["))
        return read_address(reader, operand);
    if (accept(reader, "{")) {
        operand->kind = PTX_VECTOR;
        do
            EXPECT(add_word(reader, operand));
        while (accept(reader, ","));
        return expect(reader, "}");
    }
    operand->is_negated = accept(reader, "!");
    if (ptx_word_number(peek(reader), &(uint64_t){0})) {
        operand->words[operand->count++] = next(reader);
        return true;
    }
    EXPECT(add_word(reader, operand));
    return !accept(reader, "|") || add_word(reader, operand);
}

static bool read_instruction(text_reader *reader, ptx_statement *statement)
{
    const char *from = peek(reader).at;
    if (accept(reader, "@")) {
        statement->guard_is_negated = accept(reader, "!");
        EXPECT(read_name(reader, &statement->guard));
    }
    EXPECT(read_name(reader, &statement->name));
    if (statement->name.at[0] == '.')
        return ptx_fail(reader->fault, "line %u: the directive \"%.*s\" is not handled",
                        statement->line, (int)statement->name.bytes, statement->name.at);
    while (!ptx_word_is(peek(reader), ";")) {
        if (statement->operand_count == PTX_OPERANDS_MAX)
            return refuse(reader, "expected at most 6 operands");
        EXPECT(read_operand(reader, &statement->operands[statement->operand_count++]));
        if (!accept(reader, ","))
            break;
    }
    statement->text = (ptx_word){from, (uint32_t)(peek(reader).at + 1 - from)};
    return expect(reader, ";");
}

static ptx_statement *add_statement(const text_reader *reader, ptx_kernel_words *kernel,
                                    ptx_statement_kind kind)
{
    ptx_statement *statement = PTX_ADD(&kernel->statements);
    statement->kind = kind;
    statement->line = reader->line;
    return statement;
}

static bool read_registers(text_reader *reader, ptx_kernel_words *kernel)
{
    const ptx_word type = next(reader);
    do {
        ptx_register_words *registers = &add_statement(reader, kernel, PTX_REGISTERS)->registers;
        uint64_t count = 0;
        registers->type = type;
        EXPECT(read_name(reader, &registers->name));
        if (accept(reader, "<")) {
            EXPECT(read_number(reader, &count));
            EXPECT(expect(reader, ">"));
        }
        registers->count = (uint32_t)count;
    } while (accept(reader, ","));
    return expect(reader, ";");
}

/* .loc file line column[, …] and .file have no end but the line's. */
static void skip_line(text_reader *reader)
{
    for (const uint32_t line = reader->line; reader->line == line && peek(reader).bytes;)
        next(reader);
}

static bool read_statement(text_reader *reader, ptx_kernel_words *kernel, uint32_t *depth)
{
    ptx_space space;
    if (accept(reader, "{")) {
        ++*depth;
        add_statement(reader, kernel, PTX_SCOPE_BEGIN);
        return true;
    }
    if (accept(reader, "}")) {
        --*depth;
        if (*depth)
            add_statement(reader, kernel, PTX_SCOPE_END);
        return true;
    }
    if (accept(reader, ".reg"))
        return read_registers(reader, kernel);
    if (accept_space(reader, &space)) {
        EXPECT(read_variable(reader, space, PTX_ADD(&kernel->variables)));
        return expect(reader, ";");
    }
    if (accept(reader, ".pragma")) { /* hints for the optimizer */
        next(reader);
        return expect(reader, ";");
    }
    if (ptx_word_is(peek(reader), ".loc")) {
        skip_line(reader);
        return true;
    }
    struct text_reader ahead = *reader;
    const ptx_word name = next(&ahead);
    if (ptx_word_is(peek(&ahead), ":")) {
        add_statement(reader, kernel, PTX_LABEL)->name = name;
        *reader = ahead;
        return expect(reader, ":");
    }
    return read_instruction(reader, add_statement(reader, kernel, PTX_INSTRUCTION));
}

/* ---- kernels and modules ---- */

static bool read_params(text_reader *reader, ptx_kernel_words *kernel)
{
    if (!accept(reader, "("))
        return true;
    if (accept(reader, ")"))
        return true;
    do {
        EXPECT(expect(reader, ".param"));
        EXPECT(read_variable(reader, PTX_PARAM, PTX_ADD(&kernel->params)));
    } while (accept(reader, ","));
    return expect(reader, ")");
}

/* .maxntid x[, y[, z]] and others, which only limit the compiler. */
static bool read_performance(text_reader *reader, ptx_kernel_words *kernel)
{
    while (!ptx_word_is(peek(reader), "{")) {
        const ptx_word directive = next(reader);
        const bool is_limit =
            ptx_word_is(directive, ".maxntid") || ptx_word_is(directive, ".reqntid");
        if (!is_limit && !ptx_word_is(directive, ".minnctapersm") &&
            !ptx_word_is(directive, ".maxnreg"))
            return ptx_fail(reader->fault, "line %u: the directive \"%.*s\" is not handled",
                            reader->line, (int)directive.bytes, directive.at);
        uint64_t threads = 1;
        do {
            uint64_t number;
            EXPECT(read_number(reader, &number));
            threads *= number;
        } while (accept(reader, ","));
        if (is_limit)
            kernel->threads_max = (uint32_t)threads;
    }
    return true;
}

static bool read_kernel(text_reader *reader, ptx_kernel_words *kernel)
{
    uint32_t depth = 1;
    kernel->line = reader->line;
    EXPECT(read_name(reader, &kernel->name));
    EXPECT(read_params(reader, kernel));
    EXPECT(read_performance(reader, kernel));
    EXPECT(expect(reader, "{"));
    while (depth) {
        if (peek(reader).bytes == 0)
            return refuse(reader, "expected the end of a kernel");
        EXPECT(read_statement(reader, kernel, &depth));
    }
    return true;
}

static bool read_declaration(text_reader *reader, ptx_text *text)
{
    ptx_space space;
    if (accept(reader, ".version") || accept(reader, ".address_size")) {
        next(reader);
        return true;
    }
    if (accept(reader, ".target")) {
        do
            next(reader);
        while (accept(reader, ","));
        return true;
    }
    if (ptx_word_is(peek(reader), ".file")) {
        skip_line(reader);
        return true;
    }
    while (accept(reader, ".visible") || accept(reader, ".extern") || accept(reader, ".weak"))
        ;
    if (accept(reader, ".entry"))
        return read_kernel(reader, PTX_ADD(&text->kernels));
    if (!accept_space(reader, &space))
        return refuse(reader, "expected a kernel or a variable; nothing else is handled");
    EXPECT(read_variable(reader, space, PTX_ADD(&text->variables)));
    return expect(reader, ";");
}

bool ptx_text_read(const char *text, uint64_t bytes, ptx_text *out, ptx_fault *out_fault)
{
    text_reader reader = {.at = text, .end = text + bytes, .line = 1, .fault = out_fault};
    read_token(&reader);
    memset(out, 0, sizeof *out);
    while (peek(&reader).bytes)
        if (!read_declaration(&reader, out)) {
            ptx_text_forget(out);
            return false;
        }
    return true;
}

static void forget_variables(ptx_variable_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        free(list->items[i].values.items);
    free(list->items);
}

void ptx_text_forget(ptx_text *text)
{
    for (uint32_t i = 0; i < text->kernels.count; i++) {
        ptx_kernel_words *kernel = &text->kernels.items[i];
        forget_variables(&kernel->params);
        forget_variables(&kernel->variables);
        free(kernel->statements.items);
    }
    forget_variables(&text->variables);
    free(text->kernels.items);
    memset(text, 0, sizeof *text);
}
