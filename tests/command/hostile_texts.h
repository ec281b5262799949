/* Vocabularies and documents that must be refused as bad data, each with words of the message. */
#ifndef SL_TESTS_HOSTILE_TEXTS_H
#define SL_TESTS_HOSTILE_TEXTS_H

#include "scratch_dir.h"

typedef enum hostile_text_kind {
    HOSTILE_PAIR,      /* vocab.json and merges.txt, of which the other one is good */
    HOSTILE_TOKENIZER, /* tokenizer.json: a good one with `text` replaced by `more` */
    HOSTILE_DOCUMENTS  /* a file of documents called `more` */
} hostile_text_kind;

typedef struct hostile_text {
    hostile_text_kind kind;
    const char *what, *fragment;
    const char *text; /* PAIR: replaced in a good vocab.json */
    uint64_t bytes;   /* DOCUMENTS: of `text`; 0: up to its NUL */
    const char *more; /* PAIR: in its place; NULL: `text` is merges.txt */
} hostile_text;

/* clang-format off */
static const hostile_text hostile_texts[] = {
    /* vocab.json: a good one starts as {"!": 0, "\"": 1, */
    {HOSTILE_PAIR, "not JSON", "not strict JSON", "{\"!\": 0,", 0, "{\"!\": 0,,"},
    {HOSTILE_PAIR, "a list", "not strict JSON", "{\"!\": 0,", 0, "[\"!\": 0,"},
    {HOSTILE_PAIR, "a token twice", "duplicate", "{\"!\": 0,", 0, "{\"!\": 0, \"!\": 0,"},
    {HOSTILE_PAIR, "an id twice", "two tokens have the id 1", "{\"!\": 0,", 0, "{\"!\": 1,"},
    {HOSTILE_PAIR, "an id below 0", "not an integer from 0", "{\"!\": 0,", 0, "{\"!\": -1,"},
    {HOSTILE_PAIR, "an id of 2^62", "not an integer from 0", "{\"!\": 0,", 0, "{\"!\": 4611686018427387904,"},
    {HOSTILE_PAIR, "an id beyond the count", "not an integer from 0", "{\"!\": 0,", 0, "{\"!\": 100000,"},
    {HOSTILE_PAIR, "a real id", "not an integer from 0", "{\"!\": 0,", 0, "{\"!\": 0.0,"},
    {HOSTILE_PAIR, "an id that is a text", "not an integer from 0", "{\"!\": 0,", 0, "{\"!\": \"0\","},
    {HOSTILE_PAIR, "an empty token", "has 0 bytes", "{\"!\": 0,", 0, "{\"\": 0,"},
    {HOSTILE_PAIR, "a byte without a token", "byte 0x21 alone", "{\"!\": 0,", 0, "{\"!!!!\": 0,"},
    {HOSTILE_PAIR, "an escape sequence in a token", "\\x1b", "{\"!\": 0,", 0, "{\"\\u001b[31m\": -1,"},
    {HOSTILE_PAIR, "the same bytes twice", "are the same", "{\"!\": 0,", 0, "{\" \": 0,"},
    /* merges.txt */
    {HOSTILE_PAIR, "no merges", "has no merges", "#version: 0.2\n", 0, NULL},
    {HOSTILE_PAIR, "an empty merges.txt", "has no merges", "", 0, NULL},
    {HOSTILE_PAIR, "one token in a line", "merge 1 is not two tokens", "#version: 0.2\nth\n", 0, NULL},
    {HOSTILE_PAIR, "three tokens in a line", "merge 1 is not two tokens", "t h e\n", 0, NULL},
    {HOSTILE_PAIR, "a space in front", "merge 1 is not two tokens", " t\n", 0, NULL},
    {HOSTILE_PAIR, "two spaces between", "merge 1 is not two tokens", "t  h\n", 0, NULL},
    {HOSTILE_PAIR, "an empty line amid others", "merge 1 is not two tokens", "\nt h\n\n", 0, NULL},
    {HOSTILE_PAIR, "a part that is no token", "\"zzzzq\" is not a token", "zzzzq a\n", 0, NULL},
    {HOSTILE_PAIR, "a character that stands for no byte", "is not a token", "\xe6\x97\xa5 a\n", 0, NULL},
    {HOSTILE_PAIR, "not UTF-8", "is not a token", "\xff a\n", 0, NULL},
    {HOSTILE_PAIR, "a join that is no token", "the vocabulary has not", "! \"\n", 0, NULL},
    {HOSTILE_PAIR, "an escape sequence in a merge", "\\x1b", "\x1b[31m a\n", 0, NULL},
    /* tokenizer.json */
    {HOSTILE_TOKENIZER, "not JSON", "not strict JSON", "{\"version\"", 0, "{,\"version\""},
    {HOSTILE_TOKENIZER, "another model", "model.type is Unigram, and not BPE: make the ids with another program", "\"BPE\"", 0, "\"Unigram\""},
    {HOSTILE_TOKENIZER, "dropout", "model.dropout is set", "\"dropout\":null", 0, "\"dropout\":0.1"},
    {HOSTILE_TOKENIZER, "bytes where no token is", "model.byte_fallback is set", "\"byte_fallback\":false", 0, "\"byte_fallback\":true"},
    {HOSTILE_TOKENIZER, "a prefix", "continuing_subword_prefix is set", "\"continuing_subword_prefix\":null", 0, "\"continuing_subword_prefix\":\"##\""},
    {HOSTILE_TOKENIZER, "a suffix", "end_of_word_suffix is set", "\"end_of_word_suffix\":null", 0, "\"end_of_word_suffix\":\"</w>\""},
    {HOSTILE_TOKENIZER, "another normalizer", "normalizer: NFKC is not supported", "\"normalizer\":null", 0, "\"normalizer\":{\"type\":\"NFKC\"}"},
    {HOSTILE_TOKENIZER, "a space in front", "ByteLevel with add_prefix_space", "\"add_prefix_space\":false", 0, "\"add_prefix_space\":true"},
    {HOSTILE_TOKENIZER, "no pattern", "pre_tokenizer has no pattern", "\"use_regex\":true", 0, "\"use_regex\":false"},
    {HOSTILE_TOKENIZER, "no words", "pre_tokenizer: nothing that says its type is neither", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":null,\"x\":{"},
    {HOSTILE_TOKENIZER, "digits apart", "pre_tokenizer: Digits is neither", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Digits\"},\"x\":{"},
    {HOSTILE_TOKENIZER, "a pattern of words", "\\w", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]},\"x\":{"},
    {HOSTILE_TOKENIZER, "a pattern with a name", "(?<a", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?<a>b)\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]},\"x\":{"},
    {HOSTILE_TOKENIZER, "a class in a class", "[\" in a pattern is not supported inside", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a[b]]\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]},\"x\":{"},
    {HOSTILE_TOKENIZER, "a possessive interval", "{1,3}+", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}+\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]},\"x\":{"},
    {HOSTILE_TOKENIZER, "a script", "\\p{Greek}", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{Greek}\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]},\"x\":{"},
    {HOSTILE_TOKENIZER, "a case of no case", "inside of (?i:", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:\\\\p{Lu})\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]},\"x\":{"},
    {HOSTILE_TOKENIZER, "a broken pattern", "cannot be compiled", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]},\"x\":{"},
    {HOSTILE_TOKENIZER, "a flag", "(?s:", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?s:a)\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]},\"x\":{"},
    {HOSTILE_TOKENIZER, "a reference", "\\1", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a)\\\\1\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]},\"x\":{"},
    {HOSTILE_TOKENIZER, "a split that drops", "another behavior than Isolated", "\"pre_tokenizer\":{", 0, "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Removed\"},\"x\":{"},
    {HOSTILE_TOKENIZER, "a token that takes blanks", "\"<|endoftext|>\": lstrip is not supported", "\"lstrip\":false", 0, "\"lstrip\":true"},
    {HOSTILE_TOKENIZER, "a token that is a word", "single_word is not supported", "\"single_word\":false", 0, "\"single_word\":true"},
    {HOSTILE_TOKENIZER, "no vocabulary", "model.vocab is not an object", "\"vocab\":{", 0, "\"vocab\":[],\"x\":{"},
    {HOSTILE_TOKENIZER, "no merges", "model.merges is not an array", "\"merges\":[", 0, "\"merges\":1,\"x\":["},
    {HOSTILE_TOKENIZER, "zero merges", "has no merges", "\"merges\":[", 0, "\"merges\":[],\"x\":["},
    {HOSTILE_TOKENIZER, "a merge of three", "neither two tokens", "\"merges\":[", 0, "\"merges\":[[\"t\",\"h\",\"e\"],"},
    {HOSTILE_TOKENIZER, "a merge that is a number", "neither two tokens", "\"merges\":[", 0, "\"merges\":[7,"},
    {HOSTILE_TOKENIZER, "a special token without an id", "no content or no id", "\"added_tokens\":[", 0, "\"added_tokens\":[{\"content\":\"x\"},"},
    {HOSTILE_TOKENIZER, "special tokens that are a number", "added_tokens is not an array", "\"added_tokens\":[", 0, "\"added_tokens\":7,\"x\":["},
    {HOSTILE_TOKENIZER, "a special token with another id", "has two ids", "\"added_tokens\":[", 0, "\"added_tokens\":[{\"content\":\"!\",\"id\":5},"},
    {HOSTILE_TOKENIZER, "a hole behind", "not an integer from 0", "\"added_tokens\":[", 0, "\"added_tokens\":[{\"content\":\"<pad>\",\"id\":900},"},
    /* documents */
    {HOSTILE_DOCUMENTS, "JSON cut", "line 1: ", "{\"text\": \"a", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "JSON in two lines", "line 1: ", "{\"text\":\n\"a\"}", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "bytes behind an object", "line 1: ", "{\"text\": \"a\"}x\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "two objects in a line", "line 1: ", "{\"text\": \"a\"}{\"text\": \"a\"}\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "a list", "line 1: is not a JSON object", "[\"a\"]\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "a text", "line 1: ", "plain\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "another key in line 2", "line 2: has no text", "{\"text\": \"a\"}\n{\"body\": \"b\"}\n", 0, "a.txt"},
    {HOSTILE_DOCUMENTS, "a number under the key", "line 1: has no text", "{\"text\": 7}\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "null under the key", "line 1: has no text", "{\"text\": null}\n", 0, "a.txt"},
    {HOSTILE_DOCUMENTS, "a list under the key", "line 1: has no text", "{\"text\": [\"a\"]}\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "text not UTF-8 in JSON", "line 1: ", "{\"text\": \"\xff\"}\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "half a surrogate pair", "line 1: ", "{\"text\": \"\\ud800\"}\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "a raw escape sequence", "line 1: ", "{\"text\": \"\x1b[31m\"}\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "a NUL in a line", "line 1: ", "{\"text\": \"a\0\"}\n", 15, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "JSON too deep", "line 1: ", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "nothing in a file", "no document", "", 0, "a.txt"},
    {HOSTILE_DOCUMENTS, "nothing but empty texts", "no document", "{\"text\": \"\"}\n\n", 0, "a.jsonl"},
    {HOSTILE_DOCUMENTS, "gzip cut in its header", "cannot be unpacked", "\x1f\x8b\x08", 3, "a.gz"},
    {HOSTILE_DOCUMENTS, "gzip of an unknown method", "cannot be unpacked", "\x1f\x8b\x07\0\0\0\0\0\0\x03" "abcd", 14, "a.gz"},
    {HOSTILE_DOCUMENTS, "gzip of a bad block", "cannot be unpacked", "\x1f\x8b\x08\0\0\0\0\0\0\x03\xff\xff\xff\xff", 14, "a.gz"},
    {HOSTILE_DOCUMENTS, "gzip cut in its data", "it is cut", "\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4c", 12, "a.gz"},
    {HOSTILE_DOCUMENTS, "gzip with a wrong checksum", "cannot be unpacked", "\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4c\x4a\x06\0\1\2\3\4\3\0\0\0", 23, "a.gz"},
    {HOSTILE_DOCUMENTS, "bytes behind gzip", "cannot be unpacked", "\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4c\x4a\x06\0\xc2\x41\x24\x35\3\0\0\0garbage", 30, "a.gz"},
    {HOSTILE_DOCUMENTS, "zstd cut in its header", "it is cut", "\x28\xb5\x2f\xfd", 4, "a.zst"},
    {HOSTILE_DOCUMENTS, "zstd with a reserved bit", "cannot be unpacked", "\x28\xb5\x2f\xfd\x28\x01\xff\xff\xff", 9, "a.zst"},
    {HOSTILE_DOCUMENTS, "zstd with a window of 2^41", "cannot be unpacked", "\x28\xb5\x2f\xfd\0\xff\x01\0\0", 9, "a.zst"},
    {HOSTILE_DOCUMENTS, "zstd of a bad block", "cannot be unpacked", "\x28\xb5\x2f\xfd\x20\x03\x07\0\0abc", 12, "a.zst"},
    {HOSTILE_DOCUMENTS, "zstd skipping beyond its end", "it is cut", "\x50\x2a\x4d\x18\xff\xff\0\0a", 9, "a.zst"},
};
/* clang-format on */

enum { HOSTILE_TEXT_COUNT = sizeof hostile_texts / sizeof hostile_texts[0] };

/* Writes `good` with one place replaced. */
static inline void hostile_replace(const hostile_text *row, const char *good, const char *path)
{
    size_t bytes, front;
    char *old = scratch_read(good, &bytes);
    char *place = strstr(old, row->text);
    scratch_need(place != NULL, row->what);
    front = (size_t)(place - old);
    FILE *file = fopen(path, "wb");
    scratch_need(file != NULL, path);
    fwrite(old, 1, front, file);
    fputs(row->more, file);
    fputs(place + strlen(row->text), file);
    scratch_need(fclose(file) == 0, path);
    free(old);
}

/* Makes the files of a vocabulary in an empty directory, by the good ones of another. */
static inline void hostile_write_vocabulary(const hostile_text *row, const char *good,
                                            const char *directory)
{
    size_t bytes;
    const char *name = row->kind == HOSTILE_PAIR ? "vocab.json" : "tokenizer.json";
    if (row->more)
        hostile_replace(row, scratch_join(good, name).text, scratch_join(directory, name).text);
    if (row->kind == HOSTILE_TOKENIZER)
        return;
    const char *other = row->more ? "merges.txt" : "vocab.json";
    char *text = scratch_read(scratch_join(good, other).text, &bytes);
    scratch_write(scratch_join(directory, other).text, text, bytes);
    free(text);
    if (!row->more)
        scratch_write(scratch_join(directory, "merges.txt").text, row->text, strlen(row->text));
}

#endif
