/* The manifest of a checkpoint. An input is given twice: as it is, and with the checksum behind it
 * that belongs there, which no mutation would find. What is accepted is written and read again
 * equal, is so as a file too, and with any one byte changed it is refused. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

#include "checkpoint/manifest.h"
#include "fuzz.h"

static const char TAIL[] = ",\n  \"checksum\": \"%016llx%016llx\"\n}\n";

enum { TAIL_MAX = 64 };

static void check_rewritten(const sl_manifest *manifest)
{
    char *text = NULL, *again_text = NULL;
    sl_manifest again = {0};
    if (fuzz_succeeds(sl_manifest_format(manifest, &text)) &&
        fuzz_succeeds(sl_manifest_parse("again", text, strlen(text), &again)) &&
        fuzz_succeeds(sl_manifest_format(&again, &again_text)))
        FUZZ_NEED(strcmp(text, again_text) == 0);
    FUZZ_NEED(!again_text || memcmp(again.files, manifest->files, sizeof again.files) == 0);
    FUZZ_NEED(!again_text ||
              memcmp(&again.run.shape, &manifest->run.shape, sizeof again.run.shape) == 0);
    sl_manifest_free(&again);
    free(text);
    free(again_text);
}

/* Another byte at one place; the place depends on the text. */
static void check_damaged(char *text, size_t bytes)
{
    sl_manifest manifest = {0};
    uint64_t place = sl_hash_128(text, bytes).low;
    for (int i = 0; i < 4; i++, place += bytes / 4 + 1) {
        char *byte = &text[place % bytes];
        *byte ^= 1;
        FUZZ_NEED(!fuzz_accepts(sl_manifest_parse("damaged", text, bytes, &manifest)));
        *byte ^= 1;
    }
    text[bytes - 1] = ' '; /* JSON would not mind */
    FUZZ_NEED(!fuzz_accepts(sl_manifest_parse("damaged", text, bytes, &manifest)));
}

/* A file of a newer version is refused; one that cannot be read counts as no newer one. */
static void check_file(const char *text, size_t bytes, bool is_accepted)
{
    sl_manifest manifest = {0};
    fuzz_write(SL_MANIFEST_NAME, text, bytes);
    int inside = open(fuzz_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scratch_need(inside >= 0, fuzz_directory());
    bool is_read = fuzz_accepts(sl_manifest_read(inside, fuzz_directory(), &manifest));
    FUZZ_NEED(is_read == is_accepted || fuzz_refuses_memory);
    FUZZ_NEED(!is_accepted || !sl_manifest_is_newer(AT_FDCWD, NULL, fuzz_directory()));
    FUZZ_NEED(!sl_manifest_is_newer(inside, fuzz_directory(), "absent"));
    if (!is_accepted)
        (void)sl_manifest_is_newer(AT_FDCWD, NULL, fuzz_directory());
    sl_manifest_free(&manifest);
    close(inside);
}

static void give(char *text, size_t bytes)
{
    sl_manifest manifest = {0};
    bool is_accepted = fuzz_accepts(sl_manifest_parse("manifest.json", text, bytes, &manifest));
    check_file(text, bytes, is_accepted);
    if (!is_accepted)
        return;
    FUZZ_NEED(manifest.files[SL_MANIFEST_MODEL].is_listed);
    FUZZ_NEED(sl_manifest_file_name(SL_MANIFEST_MODEL) != NULL);
    FUZZ_NEED(sl_manifest_file_group(SL_MANIFEST_MODEL) == SL_GROUP_PARAM);
    check_rewritten(&manifest);
    sl_manifest_free(&manifest);
    check_damaged(text, bytes);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + TAIL_MAX);
    if (!text)
        return;
    memcpy(text, data, bytes);
    sl_hash_value hash = sl_hash_128(text, bytes);
    int tail = snprintf(text + bytes, TAIL_MAX, TAIL, (unsigned long long)hash.high,
                        (unsigned long long)hash.low);
    give(text, bytes + (size_t)tail);
    memcpy(text, data, bytes);
    give(text, bytes);
    free(text);
}
