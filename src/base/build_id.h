/* Which build this code is of. */
#ifndef SL_BASE_BUILD_ID_H
#define SL_BASE_BUILD_ID_H

enum { SL_BUILD_ID_BYTES = 96 };

/* Writes the identity that the linker gave to the program or library that this code is in, as
 * hexadecimal digits; where it gave none, the version and the commit. */
void sl_build_id_read(char out_text[SL_BUILD_ID_BYTES]);

#endif
