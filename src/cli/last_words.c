/* Groups messages by their text; see last_words.h. */
#include "last_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "base/status.h"
#include "terminal.h"

enum { RANKS_BYTES = 4 * SL_LAST_WORDS_RANKS_MAX + 4 };

typedef char message[SL_STATUS_MESSAGE_BYTES];

/* True of "rank 0 (process 7) gave up: TEXT", where rank 0's `own` message is TEXT. */
static bool is_echo(const char *text, const char *own)
{
    static const char between[] = "gave up: ";
    const size_t length = strlen(text), tail = strlen(own), link = sizeof between - 1;
    return tail > 0 && length > tail + link && strcmp(text + length - tail, own) == 0 &&
           strncmp(text + length - tail - link, between, link) == 0;
}

static bool repeats_another(const message *all, uint32_t rank_count, uint32_t rank)
{
    bool is_repeated = false;
    for (uint32_t i = 0; i < rank_count; i++)
        is_repeated = is_repeated || is_echo(all[rank], all[i]);
    return is_repeated;
}

/* Writes "0-2,5": the ranks that are marked, from `first` on. same[rank_count] is false. */
static void list_ranks(const bool *same, uint32_t rank_count, uint32_t first,
                       char out_text[RANKS_BYTES])
{
    size_t length = 0;
    for (uint32_t i = first; i < rank_count; i++) {
        uint32_t last = i;
        if (!same[i])
            continue;
        while (same[last + 1])
            last++;
        length += (size_t)snprintf(out_text + length, RANKS_BYTES - length,
                                   last > i ? "%s%u-%u" : "%s%u", length > 0 ? "," : "", i, last);
        i = last;
    }
}

/* Prints "sluice: ranks 0-2,5: TEXT" for all ranks whose message is that of `first`, and marks them
 * as said. */
static void say_once(sl_last_words *words, const message *all, uint32_t rank_count, uint32_t first)
{
    char ranks[RANKS_BYTES];
    bool same[SL_LAST_WORDS_RANKS_MAX + 1] = {false};
    uint32_t count = 0;
    for (uint32_t i = 0; i < rank_count; i++) {
        same[i] = words->has_ended[i] && !words->is_said[i] && strcmp(all[i], all[first]) == 0;
        words->is_said[i] = words->is_said[i] || same[i];
        count += same[i];
    }
    list_ranks(same, rank_count, first, ranks);
    sl_terminal_say(SL_TERMINAL_ERROR, "rank%s %s: %s", sl_plural(count), ranks, all[first]);
}

/* ---- warnings ---- */

typedef message remarks[SL_BOARD_REMARKS]; /* of a rank; "" behind the last */

static uint32_t read_remarks(int file, uint32_t rank, remarks out)
{
    uint32_t count = 0;
    while (count < SL_BOARD_REMARKS && sl_board_read_text(file, rank, count, out[count]) == SL_OK &&
           *out[count])
        count++;
    return count;
}

/* Marks that warning of a rank as said, if it has it and it is not. */
static bool mark_remark(sl_last_words *words, const remarks *all, uint32_t rank, const char *text)
{
    for (uint32_t i = 0; i < SL_BOARD_REMARKS; i++) {
        if (words->is_remark_said[rank][i] || strcmp(all[rank][i], text) != 0)
            continue;
        words->is_remark_said[rank][i] = true;
        return true;
    }
    return false;
}

static void say_remark(sl_last_words *words, const remarks *all, uint32_t rank_count,
                       const char *text)
{
    char ranks[RANKS_BYTES];
    bool same[SL_LAST_WORDS_RANKS_MAX + 1] = {false};
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < rank_count; rank++)
        count += same[rank] = mark_remark(words, all, rank, text);
    list_ranks(same, rank_count, 0, ranks);
    sl_terminal_say(SL_TERMINAL_WARNING, "rank%s %s: %s", sl_plural(count), ranks, text);
}

void sl_last_words_say_remarks(sl_last_words *words, int file, uint32_t rank_count, bool is_over)
{
    uint32_t counts[SL_LAST_WORDS_RANKS_MAX] = {0};
    remarks *all = calloc(rank_count, sizeof *all);
    for (uint32_t rank = 0; all && rank < rank_count; rank++)
        counts[rank] = read_remarks(file, rank, all[rank]);
    for (uint32_t rank = 0; all && rank < rank_count; rank++)
        for (uint32_t i = 0; i < (is_over ? counts[rank] : words->heard[rank]); i++)
            if (!words->is_remark_said[rank][i])
                say_remark(words, all, rank_count, all[rank][i]);
    memcpy(words->heard, counts, sizeof counts);
    free(all);
}

/* ---- failures ---- */

void sl_last_words_say(sl_last_words *words, int file, uint32_t rank_count)
{
    message *all = calloc(rank_count, sizeof *all);
    for (uint32_t i = 0; all && i < rank_count; i++)
        if (words->has_ended[i] &&
            sl_board_read_text(file, i, SL_BOARD_LAST_WORDS, all[i]) != SL_OK)
            all[i][0] = '\0';
    for (uint32_t i = 0; all && i < rank_count; i++)
        if (!words->is_said[i] && all[i][0] && !repeats_another(all, rank_count, i))
            say_once(words, all, rank_count, i);
    free(all);
}
