/* Asking ptxas what an instruction of constants computes. It folds constants: an entry that stores
 * only if the result is not the expected one is then compiled to nothing, to the very code of an
 * entry that does nothing; and if the result is another one, to the code of one that always stores.
 * Nothing has to be disassembled: the machine code of the entries is compared.
 *
 *   ask_begin(&text), ask_entry(&text, name, body)…, ask_compile(&text, answers)
 *
 * An answer is by the order of the entries.
 */
#ifndef PTX_ASK_PTXAS_H
#define PTX_ASK_PTXAS_H

#include <elf.h>
#include <stdarg.h>
#include <stdbool.h>

#include "scratch_dir.h"

typedef enum ask_answer { ASK_EQUAL, ASK_OTHER, ASK_NOT_FOLDED } ask_answer;

typedef struct ask_text {
    char *text;
    size_t length;
    FILE *stream;
    uint32_t count;
} ask_text;

static inline void ask_body(ask_text *ask, const char *name, const char *body)
{
    fprintf(ask->stream,
            ".visible .entry %s(.param .u64 P)\n{\n.reg .b64 %%to, %%d<8>; .reg .b32 %%w<8>; "
            ".reg .b16 %%h<8>; .reg .pred %%p<8>, %%differs;\nld.param.u64 %%to, [P];\n%s"
            "ret;\n}\n",
            name, body);
}

static inline void ask_begin(ask_text *ask)
{
    *ask = (ask_text){0};
    ask->stream = open_memstream(&ask->text, &ask->length);
    scratch_need(ask->stream != NULL, "open_memstream");
    fputs(".version 7.8\n.target sm_90\n.address_size 64\n", ask->stream);
    ask_body(ask, "never", "");
    ask_body(ask, "always", "st.global.u32 [%to], 1;\n");
}

/* `body` computes with %w0-7, %d0-7, %h0-7, %p0-7 and leaves in %differs whether the result is not
 * the expected one. */
static inline void ask_entry(ask_text *ask, const char *body)
{
    char name[32];
    char *whole = NULL;
    snprintf(name, sizeof name, "e%u", ask->count++);
    scratch_need(asprintf(&whole, "%s@%%differs st.global.u32 [%%to], 1;\n", body) > 0, name);
    ask_body(ask, name, whole);
    free(whole);
}

/* The code of an entry, `bytes` of it; NULL: the object has none of that name. */
static inline const char *ask_code(const char *object, const char *name, size_t *out_bytes)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)object;
    const Elf64_Shdr *section = (const Elf64_Shdr *)(object + head->e_shoff);
    const char *names = object + section[head->e_shstrndx].sh_offset;
    for (int i = 0; i < head->e_shnum; i++) {
        const char *found = names + section[i].sh_name;
        if (strncmp(found, ".text.", 6) == 0 && strcmp(found + 6, name) == 0) {
            *out_bytes = section[i].sh_size;
            return object + section[i].sh_offset;
        }
    }
    return NULL;
}

static inline bool ask_has_code_of(const char *object, const char *left, const char *right)
{
    size_t left_bytes = 0, right_bytes = 0;
    const char *of_left = ask_code(object, left, &left_bytes);
    const char *of_right = ask_code(object, right, &right_bytes);
    scratch_need(of_left && of_right, left);
    return left_bytes == right_bytes && memcmp(of_left, of_right, left_bytes) == 0;
}

/* The path of ptxas; NULL: there is none. */
static inline const char *ask_program(void)
{
    const char *program = getenv("SL_PTXAS");
#ifdef SL_PTXAS
    program = program ? program : SL_PTXAS;
#endif
    return program && access(program, X_OK) == 0 ? program : NULL;
}

/* Compiles all entries and fills answers[ask->count]; the text is freed. */
static inline void ask_compile(ask_text *ask, ask_answer *answers)
{
    const scratch_path directory = scratch_open();
    const scratch_path text = scratch_join(directory.text, "ask.ptx");
    const scratch_path object = scratch_join(directory.text, "ask.cubin");
    char command[3 * SCRATCH_PATH_BYTES];
    fclose(ask->stream);
    scratch_write(text.text, ask->text, ask->length);
    snprintf(command, sizeof command, "'%s' -arch=sm_90 '%s' -o '%s'", ask_program(), text.text,
             object.text);
    if (system(command) != 0) {
        fputs(ask->text, stderr);
        abort();
    }
    size_t bytes = 0;
    char *code = scratch_read(object.text, &bytes);
    for (uint32_t i = 0; i < ask->count; i++) {
        char name[32];
        snprintf(name, sizeof name, "e%u", i);
        answers[i] = ask_has_code_of(code, name, "never")    ? ASK_EQUAL
                     : ask_has_code_of(code, name, "always") ? ASK_OTHER
                                                             : ASK_NOT_FOLDED;
    }
    free(code);
    free(ask->text);
    scratch_close(&directory);
}

#endif
