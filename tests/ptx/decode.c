/* From statements to ops: names become kinds and rows of arithmetic. An instruction, a suffix or an
 * operand that is not known is a fault. */
#include "decoder.h"

#include <stdlib.h>
#include <string.h>

/* ---- instructions of core ---- */

static bool has_part(const ptx_decoder *decoder, const char *text)
{
    for (uint32_t i = 1; i < decoder->part_count; i++)
        if (ptx_word_is(decoder->parts[i], text))
            return true;
    return false;
}

static void split_name(ptx_decoder *decoder)
{
    ptx_word rest = decoder->statement->name;
    decoder->part_count = 0;
    while (rest.bytes && decoder->part_count < 12) {
        uint32_t bytes = 0;
        while (bytes < rest.bytes && rest.at[bytes] != '.')
            bytes++;
        decoder->parts[decoder->part_count++] = (ptx_word){rest.at, bytes};
        bytes += bytes < rest.bytes;
        rest = (ptx_word){rest.at + bytes, rest.bytes - bytes};
    }
}

static const ptx_operand *operand(const ptx_decoder *decoder, uint32_t index)
{
    return &decoder->statement->operands[index];
}

static bool expect_operands(ptx_decoder *decoder, const char *kinds)
{
    const uint32_t count = (uint32_t)strlen(kinds);
    if (decoder->statement->operand_count != count)
        return ptx_refuse(decoder, "another number of operands than is handled");
    for (uint32_t i = 0; i < count; i++) {
        const ptx_operand_kind kind = operand(decoder, i)->kind;
        const bool fits = kinds[i] == '.'   ? kind == PTX_PLAIN && operand(decoder, i)->count == 1
                          : kinds[i] == '[' ? kind == PTX_ADDRESS
                          : kinds[i] == '{' ? kind == PTX_VECTOR
                                            : kind != PTX_ADDRESS;
        if (!fits || operand(decoder, i)->is_negated)
            return ptx_refuse(decoder, "an operand of another kind than is handled");
    }
    return true;
}

static bool set_type(ptx_decoder *decoder)
{
    ptx_op *op = decoder->op;
    op->element_bytes =
        (uint8_t)ptx_type_bytes(decoder->parts[decoder->part_count - 1], &op->is_signed);
    return op->element_bytes || ptx_refuse(decoder, "its type is not handled");
}

/* Takes the suffixes of an access: its space, its elements, and those that change nothing here. */
static bool set_access(ptx_decoder *decoder)
{
    static const struct {
        const char *name;
        ptx_space space;
    } spaces[] = {{"global", PTX_GLOBAL}, {"shared", PTX_SHARED}, {"local", PTX_LOCAL},
                  {"const", PTX_CONST},   {"param", PTX_PARAM},   {"shared::cta", PTX_SHARED}};
    ptx_op *op = decoder->op;
    EXPECT(set_type(decoder));
    op->elements = 1;
    for (uint32_t i = 1; i + 1 < decoder->part_count; i++) {
        const ptx_word part = decoder->parts[i];
        bool is_known = ptx_word_is(part, "weak") || ptx_word_is(part, "relaxed") ||
                        ptx_word_is(part, "cta") || ptx_word_is(part, "gpu") ||
                        ptx_word_is(part, "sys");
        is_known |= op->is_constant |= ptx_word_is(part, "nc");
        for (size_t k = 0; k < sizeof spaces / sizeof *spaces; k++)
            if (ptx_word_is(part, spaces[k].name)) {
                op->space = (uint8_t)spaces[k].space;
                is_known = true;
            }
        if (ptx_word_is(part, "v2") || ptx_word_is(part, "v4")) {
            op->elements = (uint8_t)(part.at[1] - '0');
            is_known = true;
        }
        if (!is_known && op->kind != PTX_OP_ATOMIC)
            return ptx_refuse(decoder, "a suffix is not handled");
    }
    return op->element_bytes * op->elements <= 16 ||
           ptx_refuse(decoder, "more than 16 bytes a lane");
}

/* An address as the source after those there are. */
static bool add_address(ptx_decoder *decoder, const ptx_operand *address)
{
    ptx_op *op = decoder->op;
    char letter = 0;
    op->displacement[op->from_count] = address->displacement; /* the first or the second */
    if (address->count == 0)
        op->from[op->from_count] = ptx_add_constant(decoder, letter = 'd', 0);
    else
        EXPECT(ptx_find_source(decoder, address->words[0], &letter, &op->from[op->from_count]));
    if (letter != 'd' && letter != 'w')
        return ptx_refuse(decoder, "an address of another width than is handled");
    op->from_letters[op->from_count++] = letter;
    return true;
}

static bool has_elements(ptx_decoder *decoder, const ptx_operand *operand)
{
    const uint32_t count = decoder->op->elements;
    return (operand->kind == PTX_VECTOR) == (count > 1) && operand->count == count
               ? true
               : ptx_refuse(decoder, "another number of elements than its name says");
}

static bool is_wide_enough(ptx_decoder *decoder, char letter)
{
    const uint32_t bytes = letter == 'd' ? 8 : letter == 'w' ? 4 : letter == 'h' ? 2 : 0;
    return bytes >= decoder->op->element_bytes || ptx_refuse(decoder, "a register is too narrow");
}

static bool decode_load(ptx_decoder *decoder)
{
    ptx_op *op = decoder->op;
    op->kind = PTX_OP_LOAD;
    EXPECT(set_access(decoder));
    if (op->space == PTX_CONST)
        return ptx_refuse(decoder, "loads from constant memory are not handled");
    EXPECT(expect_operands(decoder, "*["));
    EXPECT(has_elements(decoder, operand(decoder, 0)));
    for (uint32_t i = 0; i < op->elements; i++) {
        EXPECT(ptx_add_result(decoder, operand(decoder, 0)->words[i], 0));
        EXPECT(is_wide_enough(decoder, op->to_letters[i]));
    }
    return add_address(decoder, operand(decoder, 1));
}

static bool decode_store(ptx_decoder *decoder)
{
    ptx_op *op = decoder->op;
    op->kind = PTX_OP_STORE;
    EXPECT(set_access(decoder));
    if (op->space == PTX_PARAM || op->space == PTX_CONST)
        return ptx_refuse(decoder, "stores to this space are not handled");
    if (decoder->statement->operand_count != 2 || operand(decoder, 0)->kind != PTX_ADDRESS)
        return ptx_refuse(decoder, "operands of another kind than is handled");
    EXPECT(has_elements(decoder, operand(decoder, 1)));
    EXPECT(add_address(decoder, operand(decoder, 0)));
    for (uint32_t i = 0; i < op->elements; i++) {
        EXPECT(ptx_add_source(decoder, operand(decoder, 1)->words[i], 0));
        EXPECT(is_wide_enough(decoder, op->from_letters[1 + i]));
    }
    return true;
}

/* atom and red: those that order nothing but themselves. */
static bool decode_atomic(ptx_decoder *decoder)
{
    static const struct {
        const char *name;
        ptx_action action;
    } actions[] = {{"add", PTX_ADDS},  {"exch", PTX_EXCHANGES}, {"cas", PTX_COMPARES},
                   {"and", PTX_ANDS},  {"or", PTX_ORS},         {"xor", PTX_XORS},
                   {"min", PTX_LEAST}, {"max", PTX_MOST}};
    static const char *const refused[] = {"acquire", "release", "acq_rel", "noftz", "inc", "dec"};
    ptx_op *op = decoder->op;
    const bool has_result = ptx_word_is(decoder->parts[0], "atom");
    bool is_known = false;
    op->kind = PTX_OP_ATOMIC;
    EXPECT(set_access(decoder));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (has_part(decoder, refused[i]))
            return ptx_refuse(decoder, "a suffix is not handled");
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (has_part(decoder, actions[i].name)) {
            op->action = (uint8_t)actions[i].action;
            is_known = true;
        }
    const ptx_word type = decoder->parts[decoder->part_count - 1];
    if (!is_known || op->elements != 1 || op->element_bytes < 4 || type.at[0] == 'f')
        return ptx_refuse(decoder, "this atomic operation is not handled");
    const uint32_t values = op->action == PTX_COMPARES ? 2 : 1;
    if (decoder->statement->operand_count != has_result + 1 + values ||
        operand(decoder, has_result)->kind != PTX_ADDRESS)
        return ptx_refuse(decoder, "operands of another kind than is handled");
    const char letter = ptx_letter_of_bytes(op->element_bytes);
    if (has_result)
        EXPECT(ptx_add_result(decoder, operand(decoder, 0)->words[0], letter));
    EXPECT(add_address(decoder, operand(decoder, has_result)));
    for (uint32_t i = 0; i < values; i++)
        EXPECT(ptx_add_source(decoder, operand(decoder, has_result + 1 + i)->words[0], letter));
    return true;
}

static bool decode_move(ptx_decoder *decoder)
{
    ptx_op *op = decoder->op;
    if (decoder->part_count != 2)
        return ptx_refuse(decoder, "a suffix is not handled");
    EXPECT(expect_operands(decoder, "**"));
    const bool is_predicate = ptx_word_is(decoder->parts[1], "pred");
    if (!is_predicate)
        EXPECT(set_type(decoder));
    const char letter = is_predicate ? 'p' : ptx_letter_of_bytes(op->element_bytes);
    const ptx_operand *to = operand(decoder, 0), *from = operand(decoder, 1);
    op->kind = to->kind == PTX_VECTOR     ? PTX_OP_UNPACK
               : from->kind == PTX_VECTOR ? PTX_OP_PACK
                                          : PTX_OP_MOVE;
    op->elements = (uint8_t)(to->kind == PTX_VECTOR ? to->count : from->count);
    const char part = ptx_letter_of_bytes(op->element_bytes / op->elements);
    const bool fits =
        op->kind == PTX_OP_MOVE || (!is_predicate && op->element_bytes / op->elements >= 2 &&
                                    op->element_bytes % op->elements == 0);
    if (!fits || (to->kind == PTX_VECTOR && from->kind == PTX_VECTOR))
        return ptx_refuse(decoder, "this form of mov is not handled");
    for (uint32_t i = 0; i < to->count; i++)
        EXPECT(ptx_add_result(decoder, to->words[i], op->kind == PTX_OP_UNPACK ? part : letter));
    for (uint32_t i = 0; i < from->count; i++)
        EXPECT(ptx_add_source(decoder, from->words[i], op->kind == PTX_OP_PACK ? part : letter));
    return true;
}

static bool decode_convert_address(ptx_decoder *decoder)
{
    static const struct {
        const char *name;
        ptx_space space;
    } spaces[] = {{"global", PTX_GLOBAL}, {"shared", PTX_SHARED}, {"local", PTX_LOCAL}};
    ptx_op *op = decoder->op;
    op->kind = PTX_OP_CONVERT_ADDRESS;
    EXPECT(expect_operands(decoder, ".."));
    const bool is_to = has_part(decoder, "to");
    if (decoder->part_count != (is_to ? 4u : 3u) || !has_part(decoder, "u64"))
        return ptx_refuse(decoder, "this form of cvta is not handled");
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (ptx_word_is(decoder->parts[is_to ? 2 : 1], spaces[i].name)) {
            const uint64_t base = ptx_space_base(spaces[i].space);
            op->displacement[0] = (int64_t)(is_to ? 0 - base : base);
            EXPECT(ptx_add_result(decoder, operand(decoder, 0)->words[0], 'd'));
            return ptx_add_source(decoder, operand(decoder, 1)->words[0], 'd');
        }
    return ptx_refuse(decoder, "this form of cvta is not handled");
}

/* cp.async.ca|cg.shared.global [to], [from], bytes[, bytes to read] */
static bool decode_copy(ptx_decoder *decoder)
{
    ptx_op *op = decoder->op;
    uint64_t bytes = 0;
    if (ptx_word_is(decoder->statement->name, "cp.async.wait_all")) {
        op->kind = PTX_OP_COPY_WAIT;
        return expect_operands(decoder, "");
    }
    op->kind = PTX_OP_COPY;
    const bool is_known = ptx_word_is(decoder->statement->name, "cp.async.ca.shared.global") ||
                          ptx_word_is(decoder->statement->name, "cp.async.cg.shared.global");
    const bool has_size = decoder->statement->operand_count == 4;
    if (!is_known)
        return ptx_refuse(decoder, "this form of cp.async is not handled");
    EXPECT(expect_operands(decoder, has_size ? "[[.." : "[[."));
    const ptx_word size = operand(decoder, 2)->words[0];
    if (!ptx_word_number(size, &bytes) || (bytes != 4 && bytes != 8 && bytes != 16))
        return ptx_refuse(decoder, "a copy of other than 4, 8 or 16 bytes");
    op->element_bytes = (uint8_t)bytes;
    op->elements = 1;
    EXPECT(add_address(decoder, operand(decoder, 0)));
    EXPECT(add_address(decoder, operand(decoder, 1)));
    return ptx_add_source(decoder, has_size ? operand(decoder, 3)->words[0] : size, 'w');
}

static bool decode_matrices(ptx_decoder *decoder)
{
    ptx_op *op = decoder->op;
    op->kind = PTX_OP_LOAD_MATRICES;
    op->waits = PTX_WAITS_FOR_WARP;
    op->space = PTX_SHARED;
    op->element_bytes = 16;
    op->is_transposed = has_part(decoder, "trans");
    op->elements = has_part(decoder, "x4") ? 4 : has_part(decoder, "x2") ? 2 : 1;
    const uint32_t parts = 7 + op->is_transposed;
    if (decoder->part_count != parts || !has_part(decoder, "m8n8") || !has_part(decoder, "sync") ||
        !has_part(decoder, "aligned") || !has_part(decoder, "shared") || !has_part(decoder, "b16"))
        return ptx_refuse(decoder, "this form of ldmatrix is not handled");
    EXPECT(expect_operands(decoder, "{["));
    if (operand(decoder, 0)->count != op->elements)
        return ptx_refuse(decoder, "another number of matrices than its name says");
    for (uint32_t i = 0; i < op->elements; i++)
        EXPECT(ptx_add_result(decoder, operand(decoder, 0)->words[i], 'w'));
    return add_address(decoder, operand(decoder, 1));
}

static bool decode_branch(ptx_decoder *decoder)
{
    ptx_op *op = decoder->op;
    op->kind = PTX_OP_BRANCH;
    op->is_uniform = has_part(decoder, "uni");
    if (decoder->part_count != 1u + op->is_uniform)
        return ptx_refuse(decoder, "a suffix is not handled");
    EXPECT(expect_operands(decoder, "."));
    for (uint32_t i = 0; i < decoder->labels.count; i++)
        if (ptx_word_same(decoder->labels.items[i].name, operand(decoder, 0)->words[0])) {
            op->target = decoder->labels.items[i].op;
            return op->target < decoder->kernel->facts.instruction_count ||
                   ptx_refuse(decoder, "its label is the end of the kernel");
        }
    return ptx_refuse(decoder, "its label is unknown");
}

static bool decode_end(ptx_decoder *decoder)
{
    decoder->op->kind = PTX_OP_END;
    return (decoder->part_count == 1 && decoder->statement->operand_count == 0) ||
           ptx_refuse(decoder, "this form is not handled");
}

static bool decode_trap(ptx_decoder *decoder)
{
    decoder->op->kind = PTX_OP_TRAP;
    return true;
}

/* bar.sync a; bar.red.op.type r, a, p; bar.warp.sync members */
static bool decode_barrier(ptx_decoder *decoder)
{
    ptx_op *op = decoder->op;
    const ptx_word name = decoder->statement->name;
    char letter = 'w';
    if (ptx_word_is(name, "bar.warp.sync")) {
        op->kind = PTX_OP_WARP_BARRIER;
        op->waits = PTX_WAITS_FOR_MEMBERS;
        EXPECT(expect_operands(decoder, "."));
        return ptx_find_source(decoder, operand(decoder, 0)->words[0], &letter, &op->members);
    }
    op->kind = PTX_OP_BARRIER;
    op->waits = PTX_WAITS_FOR_LIVE;
    if (ptx_word_is(name, "bar.sync") || ptx_word_is(name, "barrier.sync.aligned")) {
        EXPECT(expect_operands(decoder, "."));
        return ptx_add_source(decoder, operand(decoder, 0)->words[0], 'w');
    }
    const bool counts = ptx_word_is(name, "bar.red.popc.u32");
    if (!counts && !ptx_word_is(name, "bar.red.or.pred") && !ptx_word_is(name, "bar.red.and.pred"))
        return ptx_refuse(decoder, "this barrier is not handled");
    op->action = counts ? PTX_COUNTS : has_part(decoder, "or") ? PTX_ORS : PTX_ANDS;
    EXPECT(expect_operands(decoder, "..."));
    EXPECT(ptx_add_result(decoder, operand(decoder, 0)->words[0], counts ? 'w' : 'p'));
    EXPECT(ptx_add_source(decoder, operand(decoder, 1)->words[0], 'w'));
    return ptx_add_source(decoder, operand(decoder, 2)->words[0], 'p');
}

static bool decode_active_mask(ptx_decoder *decoder)
{
    decoder->op->kind = PTX_OP_ACTIVE_MASK;
    EXPECT(expect_operands(decoder, "."));
    return ptx_add_result(decoder, operand(decoder, 0)->words[0], 'w');
}

/* ---- arithmetic ---- */

static bool add_sources(ptx_decoder *decoder, const ptx_arithmetic_row *row, uint32_t first,
                        uint32_t end)
{
    ptx_op *op = decoder->op;
    for (uint32_t i = first; i < end; i++) {
        const ptx_operand *one = operand(decoder, i);
        if (one->kind == PTX_ADDRESS || one->is_negated ||
            (one->kind == PTX_PLAIN && one->count != 1))
            return ptx_refuse(decoder, "an operand of another kind than is handled");
        for (uint32_t k = 0; k < one->count; k++) {
            if (!row->sources[op->from_count])
                return ptx_refuse(decoder, "more sources than its row of arithmetic");
            EXPECT(ptx_add_source(decoder, one->words[k], row->sources[op->from_count]));
        }
    }
    return !row->sources[op->from_count] ||
           ptx_refuse(decoder, "fewer sources than its row of arithmetic");
}

/* What the text leaves out of a row's results goes nowhere. */
static bool add_results(ptx_decoder *decoder, const ptx_arithmetic_row *row)
{
    const ptx_operand *to = operand(decoder, 0);
    if (to->kind == PTX_ADDRESS || to->is_negated || to->count > strlen(row->results))
        return ptx_refuse(decoder, "more results than its row of arithmetic");
    for (uint32_t i = 0; i < to->count; i++)
        EXPECT(ptx_add_result(decoder, to->words[i], row->results[i]));
    for (uint32_t i = to->count; row->results[i]; i++)
        EXPECT(ptx_add_result(decoder, (ptx_word){"_", 1}, row->results[i]));
    return true;
}

static bool decode_arithmetic(ptx_decoder *decoder)
{
    ptx_op *op = decoder->op;
    char name[96];
    const ptx_word word = decoder->statement->name;
    uint32_t end = decoder->statement->operand_count;
    if (word.bytes >= sizeof name || end < 1)
        return ptx_refuse(decoder, "it is not known");
    memcpy(name, word.at, word.bytes);
    name[word.bytes] = 0;
    const ptx_arithmetic_row *row = ptx_arithmetic_find(name);
    if (!row)
        return ptx_refuse(decoder, "it is not known");
    op->kind = PTX_OP_ARITHMETIC;
    op->run = row->run;
    const bool has_members =
        ptx_word_begins(word, "shfl.sync.") || ptx_word_begins(word, "vote.sync.");
    if (has_members) {
        char letter = 'w';
        const ptx_operand *members = operand(decoder, --end);
        if (members->kind != PTX_PLAIN || members->count != 1)
            return ptx_refuse(decoder, "its members are of another kind than is handled");
        op->waits = PTX_WAITS_FOR_MEMBERS;
        EXPECT(ptx_find_source(decoder, members->words[0], &letter, &op->members));
    } else if (has_part(decoder, "aligned"))
        op->waits = PTX_WAITS_FOR_WARP;
    else if (has_part(decoder, "sync"))
        return ptx_refuse(decoder, "for whom it waits is not handled");
    EXPECT(add_results(decoder, row));
    return add_sources(decoder, row, 1, end);
}

/* ---- kernels ---- */

static const struct {
    const char *name; /* first part of the instruction's */
    bool (*decode)(ptx_decoder *decoder);
} CORE[] = {
    {"ld", decode_load},     {"st", decode_store},          {"mov", decode_move},
    {"atom", decode_atomic}, {"red", decode_atomic},        {"cvta", decode_convert_address},
    {"cp", decode_copy},     {"ldmatrix", decode_matrices}, {"bra", decode_branch},
    {"ret", decode_end},     {"exit", decode_end},          {"trap", decode_trap},
    {"bar", decode_barrier}, {"barrier", decode_barrier},   {"activemask", decode_active_mask},
};

static bool decode_instruction(ptx_decoder *decoder)
{
    const ptx_statement *statement = decoder->statement;
    ptx_op *op = decoder->op;
    op->line = statement->line;
    op->text = ptx_word_copy(statement->text);
    op->guard = op->members = PTX_NO_OPERAND;
    split_name(decoder);
    if (statement->guard.bytes) {
        char letter;
        if (!ptx_find_register(decoder, statement->guard, &op->guard, &letter) || letter != 'p')
            return ptx_refuse(decoder, "its guard is no predicate");
        op->is_guarded = true;
        op->guard_is_negated = statement->guard_is_negated;
    }
    for (size_t i = 0; i < sizeof CORE / sizeof *CORE; i++)
        if (ptx_word_is(decoder->parts[0], CORE[i].name))
            return CORE[i].decode(decoder);
    return decode_arithmetic(decoder);
}

static void leave_scope(ptx_decoder *decoder)
{
    decoder->declared.count = decoder->scopes.items[--decoder->scopes.count];
}

static bool decode_statements(ptx_decoder *decoder)
{
    const ptx_kernel_words *words = decoder->words;
    decoder->op = decoder->kernel->ops;
    for (uint32_t i = 0; i < words->statements.count; i++) {
        const ptx_statement *statement = decoder->statement = &words->statements.items[i];
        if (statement->kind == PTX_SCOPE_BEGIN)
            *PTX_ADD(&decoder->scopes) = decoder->declared.count;
        else if (statement->kind == PTX_SCOPE_END)
            leave_scope(decoder);
        else if (statement->kind == PTX_REGISTERS)
            EXPECT(ptx_declare(decoder, &statement->registers));
        else if (statement->kind == PTX_INSTRUCTION) {
            EXPECT(decode_instruction(decoder));
            decoder->op++;
        }
    }
    const ptx_op *last = decoder->op - 1;
    const bool ends =
        !last->is_guarded &&
        (last->kind == PTX_OP_END || last->kind == PTX_OP_BRANCH || last->kind == PTX_OP_TRAP);
    return ends || ptx_refuse(decoder, "the kernel runs on behind it");
}

static bool add_labels(ptx_decoder *decoder)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < decoder->words->statements.count; i++) {
        const ptx_statement *statement = &decoder->words->statements.items[i];
        count += statement->kind == PTX_INSTRUCTION;
        if (statement->kind != PTX_LABEL)
            continue;
        for (uint32_t k = 0; k < decoder->labels.count; k++)
            if (ptx_word_same(decoder->labels.items[k].name, statement->name))
                return ptx_fail(decoder->fault, "%s, line %u: the label %.*s stands there twice",
                                decoder->kernel->name, statement->line, (int)statement->name.bytes,
                                statement->name.at);
        *PTX_ADD(&decoder->labels) = (ptx_label){statement->name, count};
    }
    decoder->kernel->facts.instruction_count = count;
    return count > 0 || ptx_fail(decoder->fault, "%s has no instruction", decoder->kernel->name);
}

static void add_symbol(ptx_decoder *decoder, ptx_word name, uint64_t value)
{
    *PTX_ADD(&decoder->symbols) = (ptx_symbol){name, value};
}

static bool names_word(const ptx_kernel_words *words, ptx_word name)
{
    for (uint32_t i = 0; i < words->statements.count; i++) {
        const ptx_statement *statement = &words->statements.items[i];
        for (uint32_t k = 0; k < statement->operand_count; k++)
            if (statement->operands[k].count &&
                ptx_word_same(statement->operands[k].words[0], name))
                return true;
    }
    return false;
}

/* Places variables of shared and local memory; those of a module only where they are named. Dynamic
 * shared memory comes last. */
static void place_variables(ptx_decoder *decoder, const ptx_variable_list *list, bool is_module,
                            bool is_dynamic)
{
    ptx_kernel_facts *facts = &decoder->kernel->facts;
    for (uint32_t i = 0; i < list->count; i++) {
        const ptx_variable_words *variable = &list->items[i];
        uint32_t *bytes = variable->space == PTX_SHARED  ? &facts->static_shared_bytes
                          : variable->space == PTX_LOCAL ? &facts->local_bytes
                                                         : NULL;
        if (!bytes || (variable->bytes == 0) != is_dynamic ||
            (is_module && !names_word(decoder->words, variable->name)))
            continue;
        const uint64_t at = ptx_round_up(*bytes, variable->align);
        add_symbol(decoder, variable->name, at);
        *bytes = (uint32_t)(at + variable->bytes);
    }
}

static bool add_params(ptx_decoder *decoder)
{
    ptx_kernel_facts *facts = &decoder->kernel->facts;
    uint64_t at = 0;
    if (decoder->words->params.count > PTX_PARAMS_MAX)
        return ptx_fail(decoder->fault, "%s has more than %d parameters", facts->name,
                        PTX_PARAMS_MAX);
    for (uint32_t i = 0; i < decoder->words->params.count; i++) {
        const ptx_variable_words *param = &decoder->words->params.items[i];
        at = ptx_round_up(at, param->align);
        facts->argument_offset[i] = (uint32_t)at;
        facts->argument_bytes[i] = (uint32_t)param->bytes;
        add_symbol(decoder, param->name, at);
        at += param->bytes;
    }
    facts->param_count = decoder->words->params.count;
    facts->param_bytes = (uint32_t)at;
    return true;
}

static bool decode_kernel(ptx_decoder *decoder)
{
    ptx_kernel *kernel = decoder->kernel;
    EXPECT(add_labels(decoder));
    EXPECT(add_params(decoder));
    kernel->ops = ptx_take(kernel->facts.instruction_count, sizeof *kernel->ops);
    kernel->groups = ptx_take(kernel->facts.instruction_count, sizeof *kernel->groups);
    kernel->lanes = ptx_take(kernel->facts.instruction_count, sizeof *kernel->lanes);
    EXPECT(decode_statements(decoder));
    ptx_place_registers(kernel, decoder->registers.items, decoder->registers.count);
    return ptx_fill_constants(decoder);
}

bool ptx_decode(const ptx_kernel_words *words, const ptx_variable_list *variables,
                void *const *addresses, ptx_kernel *out, ptx_fault *out_fault)
{
    ptx_decoder decoder = {.words = words, .kernel = out, .fault = out_fault};
    memset(out, 0, sizeof *out);
    pthread_mutex_init(&out->lock, NULL);
    out->name = ptx_word_copy(words->name);
    out->facts.name = out->name;
    out->facts.threads_max = words->threads_max;
    out->file_bytes = PTX_FILE_FIRST;
    for (uint32_t i = 0; i < variables->count; i++)
        if (addresses[i])
            add_symbol(&decoder, variables->items[i].name, (uint64_t)(uintptr_t)addresses[i]);
    place_variables(&decoder, &words->variables, false, false);
    place_variables(&decoder, variables, true, false);
    place_variables(&decoder, variables, true, true);
    const bool is_good = decode_kernel(&decoder);
    free(decoder.declared.items);
    free(decoder.scopes.items);
    free(decoder.labels.items);
    free(decoder.symbols.items);
    free(decoder.constants.items);
    free(decoder.registers.items);
    return is_good;
}

void ptx_kernel_forget(ptx_kernel *kernel)
{
    for (uint32_t i = 0; kernel->ops && i < kernel->facts.instruction_count; i++)
        free(kernel->ops[i].text);
    free(kernel->ops);
    free(kernel->constants);
    free(kernel->groups);
    free(kernel->lanes);
    free(kernel->name);
    pthread_mutex_destroy(&kernel->lock);
}
