/* Shows a manual page on the terminal by the program `man`. */
#ifndef SL_CLI_MAN_H
#define SL_CLI_MAN_H

#include <stdbool.h>
#include <stddef.h>

/* Gives the page, in the macros of man(7), to `man -l -` and waits until it ends. Returns false if
 * there is no `man`, or none that formats what it is given. */
bool sl_man_show(const char *page, size_t bytes);

#endif
