/* `sluice help words`: the table of words of other programs, program by program. */
#include "foreign/words.h"
#include "help.h"
#include "pages.h"

enum { HEAD_BYTES = 96, MEANING_BYTES = 200, WORD_COLUMN = 34 };

static const char introduction[] =
    "What options, keys, values, models and commands of other programs are in sluice. \"none\" "
    "says "
    "that there is no equal, and why. Options of the same name, such as --lr, --save or "
    "--weight-decay, are not listed. Megatron-DeepSpeed has Megatron-LM's words, too. The keys of "
    "DeepSpeed's JSON are taken as they are by "
    "--config, "
    "which prints what each means.";

/* A word as it is typed, behind two blanks. */
static void format_head(const sl_word *word, size_t tool, char out_text[HEAD_BYTES])
{
    char name[SL_WORDS_NAME_BYTES];
    sl_words_spell(word, tool, name);
    const bool has_dashes = word->kind == SL_WORD_OPTION && word->name[0] != '-';
    if (word->kind == SL_WORD_VALUE)
        snprintf(out_text, HEAD_BYTES, "  --%s %s", word->option, name);
    else if (word->kind == SL_WORD_MODEL)
        snprintf(out_text, HEAD_BYTES, "  --model %s", name);
    else
        snprintf(out_text, HEAD_BYTES, "  %s%s", has_dashes ? "--" : "", name);
}

static void format_meaning(const sl_word *word, char out_text[MEANING_BYTES])
{
    if (!word->here)
        snprintf(out_text, MEANING_BYTES, "none: %s", word->note);
    else if (!word->note)
        snprintf(out_text, MEANING_BYTES, "%s", word->here);
    else
        snprintf(out_text, MEANING_BYTES, "%s (%s)", word->here, word->note);
}

static void print_words_of(size_t tool, FILE *stream)
{
    const sl_word *word;
    for (size_t i = 0; (word = sl_words_at(i)); i++) {
        char head[HEAD_BYTES], meaning[MEANING_BYTES];
        if (!(word->tools & 1u << tool))
            continue;
        format_head(word, tool, head);
        format_meaning(word, meaning);
        sl_help_print_row(head, meaning, WORD_COLUMN, stream);
    }
}

void sl_words_table_print(FILE *stream)
{
    sl_help_print_text(introduction, 0, 0, stream);
    for (size_t tool = 0; sl_words_tool(tool); tool++) {
        fprintf(stream, "\n%s\n", sl_words_tool(tool));
        print_words_of(tool, stream);
    }
}
