/* The files of pages: HTML of our own, recognised by its first bytes, with the id of the run that a
 * page is of. Knows nothing of what a page shows.
 */
#ifndef SL_FILES_PAGE_FILE_H
#define SL_FILES_PAGE_FILE_H

#include <stdio.h>

#include "log_file.h"

/* The first bytes of every page. */
extern const char sl_page_file_start[];

/* Prints the head of a page up to its style, with a title and the id of its run; NULL: it is of no
 * run. Neither may hold markup. */
void sl_page_file_print_head(FILE *page, const char *title, const char *run);

/* True if a page, and not a link to one, is at `path`, and carries the id of `run`. */
bool sl_page_file_is_own(const char *path, const char *run);

#endif
