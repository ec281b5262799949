/* `sluice help TOPIC`: what a newcomer asks, a screen each. A topic is a paragraph, rows, lines to
 * type and the page of docs/ that has the rest; whatever a table of the program has is printed from
 * there. */
#ifndef SL_CLI_TOPICS_H
#define SL_CLI_TOPICS_H

#include <stdint.h>
#include <stdio.h>

typedef struct sl_topic_row {
    const char *head, *text;
} sl_topic_row;

typedef struct sl_topic {
    const char *name, *summary;
    const char *text;            /* the first paragraph; NULL: none */
    const sl_topic_row *rows;    /* up to one without a head; NULL: none */
    const char *remark;          /* the last paragraph; NULL: none */
    const char *const *lines;    /* for a shell, NULL behind the last; NULL: none */
    const char *page;            /* of docs/; NULL: none */
    void (*print)(FILE *stream); /* prints all of it instead; NULL: what is above */
} sl_topic;

/* The topic of that index from 0, as `sluice help` lists them; NULL: there are no more. */
const sl_topic *sl_topics_at(uint32_t index);

/* NULL: no topic is called that. */
const sl_topic *sl_topics_find(const char *name);

void sl_topics_print(const sl_topic *topic, FILE *stream);

#endif
