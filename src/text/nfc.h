/* Unicode's normalization form C, which some tokenizers ask for, by utf8proc. */
#ifndef SL_TEXT_NFC_H
#define SL_TEXT_NFC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Room for changed texts. Zeros: empty. */
typedef struct sl_nfc {
    char *text;
    uint64_t count, capacity;
    int32_t *codes; /* [code_capacity]: of the part that is normalized */
    uint64_t code_capacity;
} sl_nfc;

/* Gives the text itself where it has the form already, as most texts have, else a changed copy,
 * which lives until the next call. Bytes that are not part of valid UTF-8 stay as they are. */
sl_status sl_nfc_apply(sl_nfc *nfc, const char *text, uint64_t bytes, const char **out_text,
                       uint64_t *out_bytes);

/* True of some characters, the most common ones, of which a text is in the form already: each
 * stands for itself, and no two become one. */
bool sl_nfc_is_plain(uint32_t code);

void sl_nfc_free(sl_nfc *nfc);

#endif
