/* The note NT_GNU_BUILD_ID of the loaded object, which ld writes with --build-id. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "build_id.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sluice/version.h"

typedef struct search {
    uintptr_t inside; /* an address in the object */
    char *text;       /* "" until the note is found */
} search;

static bool contains(const struct dl_phdr_info *object, uintptr_t address)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const uintptr_t first = object->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && address >= first && address - first < part->p_memsz)
            return true;
    }
    return false;
}

static void print_digits(const unsigned char *bytes, uint32_t count, char *text)
{
    for (uint32_t i = 0; i < count && 2 * i + 2 < SL_BUILD_ID_BYTES; i++)
        snprintf(text + (size_t)2 * i, 3, "%02x", bytes[i]);
}

/* Notes follow each other, each a header, a name and a description, all in whole words. */
static void read_notes(const unsigned char *at, size_t bytes, char *text)
{
    ElfW(Nhdr) note;
    while (bytes >= sizeof note && !*text) {
        memcpy(&note, at, sizeof note);
        const size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3;
        const size_t whole = sizeof note + name + (((size_t)note.n_descsz + 3) & ~(size_t)3);
        if (whole > bytes)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(at + sizeof note, "GNU", 4) == 0)
            print_digits(at + sizeof note + name, note.n_descsz, text);
        at += whole;
        bytes -= whole;
    }
}

static int look_into(struct dl_phdr_info *object, size_t bytes, void *user)
{
    const search *self = user;
    (void)bytes;
    if (!contains(object, self->inside))
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_NOTE)
            read_notes((const unsigned char *)object->dlpi_addr + part->p_vaddr, part->p_memsz,
                       self->text);
    }
    return 1;
}

void sl_build_id_read(char out_text[SL_BUILD_ID_BYTES])
{
    static const char here;
    search self = {.inside = (uintptr_t)&here, .text = out_text};
    out_text[0] = '\0';
    dl_iterate_phdr(look_into, &self);
    if (!*out_text)
        snprintf(out_text, SL_BUILD_ID_BYTES, "%.32s %.60s", sl_version_text(),
                 sl_version_commit());
}
