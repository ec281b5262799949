/* Reading the page that --report writes. For test programs of the command, behind command_run.h. */
#ifndef SL_TESTS_REPORT_PAGE_H
#define SL_TESTS_REPORT_PAGE_H

enum { PAGE_BYTES_MAX = 5 << 20 };

static inline char *load_page(const char *name, size_t *out_bytes)
{
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    char *page = calloc(1, PAGE_BYTES_MAX + 1);
    assert_non_null(page);
    *out_bytes = fread(page, 1, PAGE_BYTES_MAX, file);
    fclose(file);
    assert_in_range(*out_bytes, 1000, PAGE_BYTES_MAX - 1);
    return page;
}

/* The numbers of a page, which the caller releases. */
static inline json_t *read_page(const char *name)
{
    static const char opening[] = "id=\"sluice-data\">";
    size_t bytes;
    json_error_t error;
    char *page = load_page(name, &bytes), *start = strstr(page, opening);
    assert_non_null(start);
    start += sizeof opening - 1;
    char *end = strstr(start, "</script>");
    assert_non_null(end);
    assert_null(memchr(start, '<', (size_t)(end - start)));
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "href="));
    assert_null(strstr(page, "@import"));
    json_t *data = json_loadb(start, (size_t)(end - start), JSON_REJECT_DUPLICATES, &error);
    if (!data)
        fail_msg("%s: %s", name, error.text);
    free(page);
    return data;
}

#endif
