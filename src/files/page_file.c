/* The id stands in a meta element behind the title, within the first START_BYTES. */
#define _GNU_SOURCE /* memmem */
#include "page_file.h"

#include <string.h>
#include <unistd.h>

#include "base/interruptions.h"

enum { START_BYTES = 1024, NEEDLE_BYTES = 128 };

const char sl_page_file_start[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
    "<title>sluice: ";

static const char of_run[] = "<meta name=\"sluice-run\" content=\"%.64s\">\n";

void sl_page_file_print_head(FILE *page, const char *title, const char *run)
{
    fprintf(page, "%s%s</title>\n", sl_page_file_start, title);
    if (run)
        fprintf(page, of_run, run);
    fputs("<style>\n", page);
}

static bool holds_run(int fd, const char *run)
{
    char start[START_BYTES], needle[NEEDLE_BYTES];
    const size_t head_bytes = strlen(sl_page_file_start);
    const size_t length = (size_t)snprintf(needle, sizeof needle, of_run, run);
    uint32_t interruptions = 0;
    ssize_t count;
    do
        count = pread(fd, start, sizeof start, 0);
    while (count < 0 && sl_interruptions_allow(&interruptions));
    return count >= (ssize_t)head_bytes && memcmp(start, sl_page_file_start, head_bytes) == 0 &&
           memmem(start, (size_t)count, needle, length) != NULL;
}

bool sl_page_file_is_own(const char *path, const char *run)
{
    return sl_log_file_is_own(path, run, holds_run);
}
