/* What could be wrong here: something of a pickle is executed, or believed; an offset or a count
 * leads out of the file, or into another tensor; elements are of another type than they are said to
 * be, or in another order; a file that is written is none that PyTorch reads. Files are made byte
 * by byte (torch_case.h); those of PyTorch itself are in test_megatron_model.c. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "foreign/torch/torch_file.h"
#include "foreign/torch/torch_writer.h"
#include "scratch_case.h"
#include "torch_case.h"

static scratch_path write_file(void **state, const torch_bytes *bytes)
{
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "piece.pt");
    scratch_write(path.text, bytes->data, bytes->count);
    return path;
}

/* ---- pickles ---- */

static void values_when_read_then_what_was_pickled(void **state)
{
    (void)state;
    static const char data[] = "\200\4\225\1\0\0\0\0\0\0\0}(" /* a frame, a dict */
                               "X\1\0\0\0a"
                               "K\7"
                               "\214\1b"
                               "\212\1\xff" /* -1 */
                               "U\1c"
                               "G\x3f\xf8\0\0\0\0\0\0" /* 1.5 */
                               "C\1d"
                               "(\210\211Nt"
                               "X\3\0\0\0e.f"
                               "}X\3\0\0\0g.h]q\0s"
                               "X\1\0\0\0i"
                               "h\0"
                               "X\1\0\0\0j"
                               "cx\nY\n)\201}X\1\0\0\0kJ\xff\xff\xff\xffsb"
                               "X\1\0\0\0a"
                               "M\0\1" /* again: the last holds */
                               "u.behind";
    sl_pickle *pickle;
    uint64_t number;
    must(sl_pickle_open(data, sizeof data - 1, &pickle, NULL));
    const sl_pickle_value *root = pickle->root;
    assert_int_equal(pickle->bytes, sizeof data - 1 - 6);
    assert_true(sl_pickle_get_u64(sl_pickle_get(root, "a"), 0, 256, &number));
    assert_int_equal(number, 256);
    assert_false(sl_pickle_get_u64(sl_pickle_get(root, "a"), 0, 255, &number));
    assert_int_equal(sl_pickle_get(root, "b")->integer, -1);
    assert_false(sl_pickle_get_u64(sl_pickle_get(root, "b"), 0, UINT64_MAX, &number));
    assert_true(sl_pickle_get(root, "c")->real == 1.5);
    const sl_pickle_value *tuple = sl_pickle_get(root, "d");
    assert_int_equal(sl_pickle_item(tuple, SL_PICKLE_TUPLE, 0)->integer, 1);
    assert_int_equal(sl_pickle_item(tuple, SL_PICKLE_TUPLE, 1)->integer, 0);
    assert_int_equal(sl_pickle_item(tuple, SL_PICKLE_TUPLE, 2)->kind, SL_PICKLE_NONE);
    assert_null(sl_pickle_item(tuple, SL_PICKLE_TUPLE, 3));
    assert_null(sl_pickle_item(tuple, SL_PICKLE_LIST, 0));
    const sl_pickle_value *list = sl_pickle_find(root, "e.f.g.h");
    assert_int_equal(list->kind, SL_PICKLE_LIST);
    assert_ptr_equal(sl_pickle_get(root, "i"), list); /* by the memo */
    assert_null(sl_pickle_find(root, "e.f.g"));
    assert_null(sl_pickle_find(root, "e.f.g.h.x"));
    const sl_pickle_value *object = sl_pickle_get(root, "j");
    assert_true(sl_pickle_is_global(sl_pickle_item(object, SL_PICKLE_CALL, 0), "x", "Y"));
    assert_int_equal(sl_pickle_get(sl_pickle_attributes(object), "k")->integer, -1);
    sl_pickle_close(pickle);
}

/* A list in itself, and a dict in its own key: read, and walked by keys, without an end. */
static void value_when_it_holds_itself_then_read(void **state)
{
    (void)state;
    static const char data[] = "\200\2}q\0(X\1\0\0\0ah\0X\1\0\0\0b]q\1h\1au.";
    sl_pickle *pickle;
    must(sl_pickle_open(data, sizeof data - 1, &pickle, NULL));
    assert_ptr_equal(sl_pickle_find(pickle->root, "a.a.a.a.a"), pickle->root);
    assert_null(sl_pickle_find(pickle->root, "a.a.a.a.c"));
    const sl_pickle_value *list = sl_pickle_get(pickle->root, "b");
    assert_ptr_equal(sl_pickle_item(list, SL_PICKLE_LIST, 0), list);
    sl_pickle_close(pickle);
}

static void pickle_when_deep_or_long_then_no_deeper_stack(void **state)
{
    (void)state;
    const size_t depth = 1 << 20;
    char *data = malloc(2 * depth);
    sl_pickle *pickle;
    memset(data, ']', depth); /* [[[[...]]]] */
    memset(data + depth, 'a', depth - 1);
    data[2 * depth - 1] = '.';
    must(sl_pickle_open(data, 2 * depth, &pickle, NULL));
    const sl_pickle_value *value = pickle->root;
    for (size_t i = 0; i < depth - 1; i++)
        value = sl_pickle_item(value, SL_PICKLE_LIST, 0);
    assert_int_equal(value->count, 0);
    sl_pickle_close(pickle);
    free(data);
}

static const struct bad_pickle {
    const char *what, *fragment, *data;
    size_t bytes;
} bad_pickles[] = {
#define BAD(what, fragment, data)                                                                  \
    {                                                                                              \
        what, fragment, data, sizeof data - 1                                                      \
    }
    BAD("empty", "ends in the middle", ""),
    BAD("no end", "ends in the middle", "\200\2N"),
    BAD("protocol 6", "of protocol 6", "\200\6N."),
    BAD("nothing to return", "with 0 values", "\200\2."),
    BAD("two values", "with 2 values", "\200\2NN."),
    BAD("a mark left", "not with one", "\200\2N(."),
    BAD("text cut", "ends in the middle", "\200\2X\5\0\0\0ab."),
    BAD("text of 4 GiB", "ends in the middle",
        "\200\2X\xff\xff\xff\xff"
        "ab."),
    BAD("text of 2^63", "ends in the middle",
        "\200\4\215\0\0\0\0\0\0\0\x80"
        "ab."),
    BAD("frame behind the end", "opcode 0x00", "\200\4\225\1\0\0\0\0\0\0\0\0."),
    BAD("memo ahead", "comes before its turn", "\200\2Nr\xff\xff\xff\xff."),
    BAD("memo of nothing", "asked for and not there", "\200\2h\0."),
    BAD("memo out of turn", "comes before its turn", "\200\2Nq\5h\3t."),
    BAD("memo with an empty stack", "takes more than it put down", "\200\2q\0."),
    BAD("pop of nothing", "no mark",
        "\200\2"
        "0."),
    BAD("tuple without a mark", "no mark", "\200\2Nt."),
    BAD("tuple of two of one", "takes more than it put down", "\200\2N\206."),
    BAD("tuple over a mark", "takes more than it put down", "\200\2N(N\206."),
    BAD("append to a number", "fills what is no list", "\200\2K\1Na."),
    BAD("items for a list", "fills what is no dict", "\200\2](NNu."),
    BAD("three items for a dict", "fills what is no dict", "\200\2}(NNNu."),
    BAD("dict of three", "a key and no value", "\200\2(NNNd."),
    BAD("append without a list", "takes more than it put down", "\200\2Na."),
    BAD("call of one", "takes more than it put down", "\200\2NR."),
    BAD("call without arguments", "has no arguments", "\200\2cos\nsystem\nNR."),
    BAD("state of a number", "gives a state to what has none", "\200\2K\1Nb."),
    BAD("two states", "gives a state to what has none", "\200\2ca\nb\n)R}b}b."),
    BAD("a name without an end", "ends in the middle", "\200\2cos"),
    BAD("a name of numbers", "is no text", "\200\4K\1K\2\223."),
    BAD("an integer of 65 bytes", "an integer of 65 bytes", "\200\2\212\x41."),
    BAD("an integer cut", "ends in the middle", "\200\2\212\7ab"),
    BAD("a real cut", "ends in the middle", "\200\2Gab"),
    BAD("INST, of protocol 0", "opcode 0x69", "(ios\nsystem\n."),
    BAD("OBJ", "opcode 0x6f", "\200\2(cos\nsystem\no."),
    BAD("REDUCE_EX", "opcode 0x92", "\200\4cos\nsystem\n)}\222."),
    BAD("an extension", "opcode 0x82", "\200\2\202\1."),
    BAD("text of protocol 0", "opcode 0x56", "Vabc\n."),
    BAD("a buffer outside", "opcode 0x97", "\200\5\227."),
    BAD("no pickle", "opcode 0x7f", "\200\2\177"),
#undef BAD
};

static void pickle_when_hostile_then_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_pickles / sizeof bad_pickles[0]; i++) {
        const struct bad_pickle *row = &bad_pickles[i];
        sl_pickle *pickle = NULL;
        must_fail(row->what, sl_pickle_open(row->data, row->bytes, &pickle, NULL), SL_ERROR_DATA,
                  row->fragment);
    }
}

/* What would open a shell if it were done is a name and a text. */
static void pickle_when_it_calls_then_nothing_is_done(void **state)
{
    (void)state;
    static const char data[] = "\200\2cos\nsystem\nX\14\0\0\0touch called\205R.";
    sl_pickle *pickle;
    must(sl_pickle_open(data, sizeof data - 1, &pickle, NULL));
    assert_int_equal(pickle->root->kind, SL_PICKLE_CALL);
    assert_true(sl_pickle_is_global(pickle->root->items[0], "os", "system"));
    assert_true(sl_pickle_is_text(sl_pickle_item(pickle->root->items[1], SL_PICKLE_TUPLE, 0),
                                  "touch called"));
    assert_false(scratch_exists("called"));
    sl_pickle_close(pickle);
}

/* ---- files ---- */

/* The elements of "w", the second to the seventh; then runs of them. */
static void assert_tensor(sl_torch_file *file)
{
    sl_torch_tensor tensor;
    float read[6];
    must(sl_torch_file_find(file, sl_pickle_get(file->root, "w"), &tensor));
    assert_int_equal(tensor.dim_count, 2);
    assert_int_equal(tensor.shape[0], 2);
    assert_int_equal(tensor.shape[1], 3);
    assert_int_equal(tensor.element_count, 6);
    for (uint64_t first = 0; first < 6; first++)
        for (uint64_t count = 0; count <= 6 - first; count++) {
            must(sl_torch_file_read(file, &tensor, first, count, read));
            assert_memory_equal(read, torch_elements() + 1 + first, count * sizeof *read);
        }
    assert_int_equal(sl_torch_file_read(file, &tensor, 6, 1, read), SL_ERROR_USAGE);
    assert_int_equal(sl_torch_file_read(file, &tensor, UINT64_MAX, 1, read), SL_ERROR_USAGE);
}

static void file_when_archive_or_older_then_same_tensor(void **state)
{
    for (int is_old = 0; is_old < 2; is_old++) {
        torch_bytes bytes = {.count = 0};
        sl_torch_file file;
        if (is_old)
            torch_add_old_file(&bytes, &torch_good);
        else
            torch_add_good_archive(&bytes, &torch_good, NULL);
        scratch_path path = write_file(state, &bytes);
        must(sl_torch_file_open(path.text, &file));
        assert_tensor(&file);
        sl_torch_file_close(&file);
    }
}

/* A comment behind the archive. */
static void archive_when_it_has_a_comment_then_read(void **state)
{
    torch_bytes bytes = {.count = 0};
    sl_torch_file file;
    torch_add_good_archive(&bytes, &torch_good, &(torch_damage){TORCH_END, 0, 20, 2, 300});
    for (int i = 0; i < 300; i++)
        TORCH_ADD(&bytes, "P");
    scratch_path path = write_file(state, &bytes);
    must(sl_torch_file_open(path.text, &file));
    assert_tensor(&file);
    sl_torch_file_close(&file);
}

static void refuse(void **state, const char *what, const char *fragment, const torch_bytes *bytes)
{
    sl_torch_file file;
    sl_torch_tensor tensor;
    scratch_path path = write_file(state, bytes);
    sl_status status = sl_torch_file_open(path.text, &file);
    bool is_open = status == SL_OK;
    if (is_open)
        status = sl_torch_file_find(&file, sl_pickle_get(file.root, "w"), &tensor);
    must_fail(what, status, SL_ERROR_DATA, fragment);
    if (!is_open && !strstr(sl_status_message(), "piece.pt: "))
        fail_msg("%s: no file in \"%s\"", what, sl_status_message());
    if (is_open)
        sl_torch_file_close(&file);
}

static void archive_when_hostile_then_refused(void **state)
{
    static const struct {
        const char *what, *fragment;
        torch_damage damage;
    } rows[] = {
        {"packed", "a packed member", {TORCH_ENTRY, 2, 10, 2, 8}},
        {"sizes that differ", "a packed member", {TORCH_ENTRY, 2, 20, 4, 27}},
        {"encrypted", "an encrypted member", {TORCH_ENTRY, 1, 8, 2, 1}},
        {"no entry", "no entry where", {TORCH_ENTRY, 0, 0, 4, 0}},
        {"an entry too long", "ends behind its directory", {TORCH_ENTRY, 3, 28, 2, 60000}},
        {"an extra field too long", "ends behind its directory", {TORCH_ENTRY, 3, 30, 2, 1}},
        {"a header beyond the end", "beyond its end", {TORCH_ENTRY, 2, 42, 4, 100000}},
        {"a header elsewhere", "no member where", {TORCH_ENTRY, 2, 42, 4, 3}},
        {"a size said nowhere", "is said nowhere", {TORCH_ENTRY, 2, 42, 4, 0xffffffff}},
        {"data behind the file", "ends behind the file", {TORCH_LOCAL, 2, 26, 2, 60000}},
        {"too many members", "members in a directory", {TORCH_END, 0, 10, 2, 5000}},
        {"one member more", "has 5 members", {TORCH_END, 0, 10, 2, 5}},
        {"directory beyond", "its directory beyond", {TORCH_END, 0, 16, 4, 100000}},
        {"directory of 4 GB", "of 4000000000 bytes", {TORCH_END, 0, 12, 4, 4000000000}},
        {"large without an end", "end of a large archive", {TORCH_END, 0, 16, 4, 0xffffffff}},
        {"many without an end", "end of a large archive", {TORCH_END, 0, 10, 2, 0xffff}},
        {"a comment that is not there", "no directory at its end", {TORCH_END, 0, 20, 2, 1}},
        {"no end", "no directory at its end", {TORCH_END, 0, 0, 4, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        torch_bytes bytes = {.count = 0};
        torch_add_good_archive(&bytes, &torch_good, &rows[i].damage);
        refuse(state, rows[i].what, rows[i].fragment, &bytes);
    }
}

static void members_when_hostile_then_refused(void **state)
{
    torch_bytes good = {.count = 0}, none = {.count = 0}, long_key = {.count = 0};
    torch_add_pickle(&good, &torch_good);
    TORCH_ADD(&long_key, "\200\2(X\7\0\0\0storagectorch\nFloatStorage\nX\54\1\0\0");
    for (int i = 0; i < 300; i++)
        TORCH_ADD(&long_key, "0");
    TORCH_ADD(&long_key, "X\3\0\0\0cpuK\1tQ.");
    TORCH_ADD(&none, "\200\2cos\nsystem\nQ.");
    const float *elements = torch_elements();
    const struct {
        const char *what, *fragment;
        torch_member members[4];
        int count;
    } rows[] = {
        {"nothing in it", "no member data.pkl", {{"x", "", 0}}, 1},
        {"a pickle at the top", "no member data.pkl", {{"data.pkl", "N.", 2}}, 1},
        {"a pickle too deep", "no member data.pkl", {{"a/b/data.pkl", "N.", 2}}, 1},
        {"two pickles",
         "two members called",
         {{"a/data.pkl", "N.", 2}, {"b/data.pkl", "N.", 2}},
         2},
        {"two of one name",
         "two members of one",
         {{"a/data.pkl", "N.", 2}, {"a/data.pkl", "N.", 2}},
         2},
        {"no pickle", "opcode 0x3c", {{"a/data.pkl", "<html>", 6}}, 1},
        {"a pickle of nothing", "ends in the middle", {{"a/data.pkl", "", 0}}, 1},
        {"no storage", "no data of 28 bytes", {{"a/data.pkl", good.data, good.count}}, 1},
        {"a storage cut",
         "no data of 28 bytes",
         {{"a/data.pkl", good.data, good.count}, {"a/data/0", elements, 27}},
         2},
        {"a storage of another archive",
         "no data of 28 bytes",
         {{"a/data.pkl", good.data, good.count}, {"b/data/0", elements, 28}},
         2},
        {"big-endian",
         "big-endian",
         {{"a/data.pkl", good.data, good.count},
          {"a/byteorder", "big", 3},
          {"a/data/0", elements, 28}},
         3},
        {"a key of 300 bytes", "no storage", {{"a/data.pkl", long_key.data, long_key.count}}, 1},
        {"an id that is none", "no storage", {{"a/data.pkl", none.data, none.count}}, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        torch_bytes bytes = {.count = 0};
        torch_add_archive(&bytes, rows[i].members, rows[i].count, NULL);
        refuse(state, rows[i].what, rows[i].fragment, &bytes);
    }
}

static void tensors_when_hostile_then_refused(void **state)
{
    static const struct {
        const char *what, *fragment;
        torch_tensor tensor;
    } rows[] = {
        {"beyond its storage", "beyond its storage of 7", {"FloatStorage", 7, 2, 2, 3, 3, 1, NULL}},
        {"far beyond", "beyond its storage of 7", {"FloatStorage", 7, 255, 1, 1, 1, 1, NULL}},
        {"transposed", "not contiguous", {"FloatStorage", 7, 1, 2, 3, 1, 2, NULL}},
        {"with holes", "not contiguous", {"FloatStorage", 7, 0, 2, 2, 3, 1, NULL}},
        {"repeated", "not contiguous", {"FloatStorage", 7, 0, 2, 3, 0, 1, NULL}},
        {"without rows", "no positive integer", {"FloatStorage", 7, 1, 0, 3, 3, 1, NULL}},
        {"of integers", "is of IntStorage", {"IntStorage", 7, 1, 2, 3, 3, 1, NULL}},
        {"of what nobody knows", "is of NoStorage", {"NoStorage", 7, 1, 2, 3, 3, 1, NULL}},
        {"of doubles, too short", "no data of 56 bytes", {"DoubleStorage", 7, 1, 2, 3, 3, 1, NULL}},
        {"of no tensor", "is no tensor", {"FloatStorage", 7, 1, 2, 3, 3, 1, "os\nsystem\n"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        torch_bytes bytes = {.count = 0};
        torch_add_good_archive(&bytes, &rows[i].tensor, NULL);
        refuse(state, rows[i].what, rows[i].fragment, &bytes);
    }
}

static void old_file_when_hostile_then_refused(void **state)
{
    torch_bytes good = {.count = 0};
    torch_add_old_file(&good, &torch_good);
    const struct {
        const char *what, *fragment, *from;
        int from_bytes, at;
        unsigned char value;
    } rows[] = {
        {"another magic number", "is no file of torch.save", "\x6c\xfc", 2, 0, 0},
        {"version 1002", "is no file of torch.save", "M\xe9\3.", 4, 1, 0xea},
        {"big-endian", "is no file of torch.save", "\210u", 2, 0, 0x89},
        {"no keys", "does not list all", "0a.", 3, 1, '0'},
        {"an unknown key", "is unknown, or twice", "0a.", 3, 0, '1'},
        {"another count", "elements in a storage of 7", "\7\0\0\0\0\0\0\0", 8, 0, 6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        torch_bytes bytes = good;
        unsigned char *found =
            memmem(bytes.data, bytes.count, rows[i].from, (size_t)rows[i].from_bytes);
        assert_non_null(found);
        found[rows[i].at] = rows[i].value;
        refuse(state, rows[i].what, rows[i].fragment, &bytes);
    }
    for (size_t cut = 4; cut < good.count; cut++) { /* nowhere is an end */
        torch_bytes bytes = good;
        bytes.count = cut;
        refuse(state, "cut", "", &bytes);
    }
    for (size_t cut = 0; cut < 4; cut++) {
        torch_bytes bytes = {.count = cut};
        refuse(state, "nearly nothing", "it is no file of torch.save", &bytes);
    }
}

/* Larger than what is read at first: the tree and the keys both have to come from one text. */
static void old_file_when_its_tree_is_long_then_read(void **state)
{
    enum { FILLER = 700000 };
    const scratch_path *directory = *state;
    torch_bytes start = {.count = 0}, end = {.count = 0};
    sl_torch_file file;
    scratch_path path = scratch_join(directory->text, "long.pt");
    torch_add_old_file(&start, &torch_good);
    unsigned char *tree = memmem(start.data, start.count, "}X\1\0\0\0w", 7);
    size_t before = (size_t)(tree - start.data) + 1;
    torch_add(&end, start.data + before, start.count - before);
    for (uint32_t filler = 250000; filler <= FILLER; filler += 4000) { /* across where it is cut */
        FILE *stream = fopen(path.text, "wb");
        assert_non_null(stream);
        fwrite(start.data, 1, before, stream);
        fputs("X\1", stream);
        fwrite("\0\0\0v", 1, 4, stream);
        putc('B', stream);
        for (int i = 0; i < 4; i++)
            putc((int)(filler >> (8 * i) & 0xff), stream);
        for (uint32_t i = 0; i < filler; i++)
            putc('.', stream);
        putc('s', stream);
        fwrite(end.data, 1, end.count, stream);
        assert_int_equal(fclose(stream), 0);
        must(sl_torch_file_open(path.text, &file));
        assert_tensor(&file);
        assert_int_equal(sl_pickle_get(file.root, "v")->count, filler);
        sl_torch_file_close(&file);
    }
}

/* ---- writing ---- */

/* Every member's checksum is right, and its data are aligned. */
static void assert_checksums(const char *path)
{
    size_t bytes;
    unsigned char *data = (unsigned char *)scratch_read(path, &bytes);
    torch_walk walk = torch_walk_start(data, bytes);
    while (torch_walk_next(data, &walk)) {
        const uint32_t checksum = torch_checksum(data + walk.first, walk.bytes);
        assert_int_equal(walk.first % 64, 0);
        assert_int_equal(torch_get(data + walk.entry + 16, 4), checksum);
        assert_int_equal(torch_get(data + walk.first + walk.bytes + 4, 4), checksum);
    }
    assert_int_equal(walk.next, bytes - 22);
    free(data);
}

static void write_tensors(const char *path, const sl_torch_plan *plans, uint32_t count,
                          const float *data, uint64_t step)
{
    char *text = NULL;
    size_t bytes = 0;
    sl_file file;
    sl_torch_writer *writer;
    FILE *stream = open_memstream(&text, &bytes);
    sl_torch_put_start(stream);
    sl_torch_put_dict(stream);
    for (uint32_t i = 0; i < count; i++) {
        char name[2] = {(char)('a' + (int)i), '\0'};
        sl_torch_put_text(stream, name);
        sl_torch_put_tensor(stream, i, &plans[i]);
    }
    sl_torch_put_text(stream, "large");
    sl_torch_put_integer(stream, INT64_MAX);
    sl_torch_put_dict_end(stream);
    sl_torch_put_end(stream);
    assert_int_equal(fclose(stream), 0);
    must(sl_files_create(AT_FDCWD, NULL, path, &file));
    must(sl_torch_writer_open(&file, text, bytes, plans, count, &writer));
    free(text);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t elements = plans[i].shape[0] * (plans[i].dim_count == 2 ? plans[i].shape[1] : 1);
        for (uint64_t done = 0; done < elements;) {
            char stored[4 * 64];
            uint64_t part = elements - done < step ? elements - done : step;
            must(sl_encoding_encode(plans[i].encoding, data + done, part, stored));
            assert_false(sl_torch_writer_is_full(writer));
            must(
                sl_torch_writer_append(writer, stored, sl_encoding_bytes(plans[i].encoding, part)));
            done += part;
        }
    }
    assert_true(sl_torch_writer_is_full(writer));
    assert_int_equal(sl_torch_writer_append(writer, "", 1), SL_ERROR_INTERNAL);
    must(sl_torch_writer_finish(writer));
    sl_torch_writer_close(writer);
}

static void file_when_written_then_read_back(void **state)
{
    enum { COUNT = 4, ELEMENTS = 400 };
    static const sl_torch_plan plans[COUNT] = {{SL_ENCODING_FP32, 2, {20, 20}},
                                               {SL_ENCODING_BF16, 1, {399}},
                                               {SL_ENCODING_FP16, 2, {1, 37}},
                                               {SL_ENCODING_FP32, 1, {1}}};
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "written.pt");
    float data[ELEMENTS], read[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        data[i] = (float)(i % 251) / 8;
    for (uint64_t step = 1; step <= 64; step += 21) {
        sl_torch_file file;
        unlink(path.text);
        write_tensors(path.text, plans, COUNT, data, step);
        assert_checksums(path.text);
        must(sl_torch_file_open(path.text, &file));
        assert_true(sl_pickle_get(file.root, "large")->integer == INT64_MAX);
        for (uint32_t i = 0; i < COUNT; i++) {
            char name[2] = {(char)('a' + (int)i), '\0'};
            sl_torch_tensor tensor;
            must(sl_torch_file_find(&file, sl_pickle_get(file.root, name), &tensor));
            assert_int_equal(tensor.encoding, plans[i].encoding);
            assert_int_equal(tensor.dim_count, plans[i].dim_count);
            assert_memory_equal(tensor.shape, plans[i].shape,
                                plans[i].dim_count * sizeof(uint64_t));
            must(sl_torch_file_read(&file, &tensor, 0, tensor.element_count, read));
            assert_memory_equal(read, data, tensor.element_count * sizeof(float));
        }
        sl_torch_file_close(&file);
    }
}

/* ---- damage ---- */

/* Of a file with a flipped bit: opening it, finding "w" or reading "w" fails. */
static void refuse_flip(void **state, const torch_bytes *good, size_t at, const char *member)
{
    sl_torch_file file;
    sl_torch_tensor tensor;
    float read[6];
    torch_bytes bytes = *good;
    bytes.data[at] ^= (unsigned char)(1 << at % 8);
    scratch_path path = write_file(state, &bytes);
    sl_status status = sl_torch_file_open(path.text, &file);
    if (status == SL_OK) {
        must(sl_torch_file_find(&file, sl_pickle_get(file.root, "w"), &tensor));
        status = sl_torch_file_read(&file, &tensor, 2, 1, read);
        assert_int_equal(sl_torch_file_read(&file, &tensor, 0, 1, read), status); /* again */
        sl_torch_file_close(&file);
    }
    if (status != SL_ERROR_DATA || !strstr(sl_status_message(), "piece.pt: is damaged") ||
        !strstr(sl_status_message(), member))
        fail_msg("byte %zu of %s: status %d, \"%s\"", at, member, (int)status,
                 status ? sl_status_message() : "");
}

/* Also bytes of a storage that the tensor does not look into: the checksum is of all. */
static void member_when_a_bit_is_flipped_then_refused(void **state)
{
    static const char *const members[] = {"data.pkl", "byteorder", "data/0"};
    torch_bytes good = {.count = 0};
    torch_add_good_archive(&good, &torch_good, NULL);
    torch_walk walk = torch_walk_start(good.data, good.count);
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        assert_true(torch_walk_next(good.data, &walk));
        for (size_t at = walk.first; at < walk.first + walk.bytes; at++)
            refuse_flip(state, &good, at, members[i]);
        for (size_t at = walk.entry + 16; at < walk.entry + 20; at++)
            refuse_flip(state, &good, at, members[i]);
    }
}

/* As PyTorch writes it if it is asked for no checksums. */
static void members_when_without_checksums_then_read_and_said(void **state)
{
    for (int is_without = 0; is_without < 2; is_without++) {
        torch_bytes bytes = {.count = 0};
        sl_torch_file file;
        torch_add_good_archive(&bytes, &torch_good, NULL);
        torch_walk walk = torch_walk_start(bytes.data, bytes.count);
        while (is_without && torch_walk_next(bytes.data, &walk))
            memset(bytes.data + walk.entry + 16, 0, 4);
        scratch_path path = write_file(state, &bytes);
        must(sl_torch_file_open(path.text, &file));
        assert_int_equal(file.is_unchecked, is_without);
        assert_tensor(&file);
        sl_torch_file_close(&file);
    }
}

static void flip_bit(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    const int byte = getc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    putc(byte ^ 4, file);
    assert_int_equal(fclose(file), 0);
}

/* Two tensors of several blocks, whose storages share one: the second reads that one again. What a
 * disk gives differently after the checksum was compared is not given out. */
static void storage_when_it_changes_after_the_first_read_then_refused(void **state)
{
    enum { ELEMENTS = 150000 };
    static const sl_torch_plan plans[2] = {{SL_ENCODING_FP32, 1, {ELEMENTS}},
                                           {SL_ENCODING_FP32, 1, {ELEMENTS}}};
    static float data[ELEMENTS], read[ELEMENTS];
    const scratch_path *directory = *state;
    scratch_path path = scratch_join(directory->text, "blocks.pt");
    sl_torch_tensor a, b;
    sl_torch_file file;
    for (int i = 0; i < ELEMENTS; i++)
        data[i] = (float)i;
    write_tensors(path.text, plans, 2, data, 64);
    must(sl_torch_file_open(path.text, &file));
    must(sl_torch_file_find(&file, sl_pickle_get(file.root, "a"), &a));
    must(sl_torch_file_find(&file, sl_pickle_get(file.root, "b"), &b));
    sl_torch_file_drop_tree(&file);
    for (uint64_t first = 0; first < ELEMENTS; first += 50000) {
        must(sl_torch_file_read(&file, &b, first, ELEMENTS - first, read));
        assert_memory_equal(read, data + first, (ELEMENTS - first) * sizeof *read);
        must(sl_torch_file_read(&file, &a, 0, first + 1, read));
        assert_memory_equal(read, data, (first + 1) * sizeof *read);
    }
    flip_bit(path.text, (long)(b.first_byte + 4ul * 70000));
    must(sl_torch_file_read(&file, &a, 0, 1000, read));
    assert_int_equal(sl_torch_file_read(&file, &b, 69999, 2, read), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "blocks.pt: checksum is"));
    flip_bit(path.text, (long)(b.first_byte + 4ul * 70000));
    must(sl_torch_file_read(&file, &b, 69999, 2, read));
    assert_memory_equal(read, data + 69999, 2 * sizeof *read);
    sl_torch_file_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_when_read_then_what_was_pickled),
        cmocka_unit_test(value_when_it_holds_itself_then_read),
        cmocka_unit_test(pickle_when_deep_or_long_then_no_deeper_stack),
        cmocka_unit_test(pickle_when_hostile_then_refused),
        cmocka_unit_test(pickle_when_it_calls_then_nothing_is_done),
        cmocka_unit_test(file_when_archive_or_older_then_same_tensor),
        cmocka_unit_test(archive_when_it_has_a_comment_then_read),
        cmocka_unit_test(archive_when_hostile_then_refused),
        cmocka_unit_test(members_when_hostile_then_refused),
        cmocka_unit_test(tensors_when_hostile_then_refused),
        cmocka_unit_test(old_file_when_hostile_then_refused),
        cmocka_unit_test(old_file_when_its_tree_is_long_then_read),
        cmocka_unit_test(file_when_written_then_read_back),
        cmocka_unit_test(member_when_a_bit_is_flipped_then_refused),
        cmocka_unit_test(members_when_without_checksums_then_read_and_said),
        cmocka_unit_test(storage_when_it_changes_after_the_first_read_then_refused),
    };
    return cmocka_run_group_tests_name("torch_file", tests, open_scratch, close_scratch);
}
