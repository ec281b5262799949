/* A small program with one bug in it, for scripts/test.sh --self-test: SL_PLANT_overflow reads
 * beyond the heap, SL_PLANT_race adds from two threads under two locks, SL_PLANT_wrong_sum adds
 * wrongly, SL_PLANT_skip skips its first test and SL_PLANT_skip_all both. With SL_PLANT_nothing it
 * is right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>

#include "skip.h"

enum { COUNT = 1000 };

static int *numbers; /* 1 .. COUNT */
static int total;
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

static void *add_half(void *first)
{
    int begin = *(const int *)first, end = begin + COUNT / 2;
    pthread_mutex_t *lock = &locks[0];
#ifdef SL_PLANT_overflow
    end++;
#elif defined SL_PLANT_race
    lock = &locks[begin > 0];
#endif
    for (int i = begin; i < end; i++) {
        pthread_mutex_lock(lock);
        total += numbers[i];
        pthread_mutex_unlock(lock);
    }
    return NULL;
}

static void sum_when_added_by_two_threads_then_is_right(void **state)
{
    (void)state;
#if defined SL_PLANT_skip || defined SL_PLANT_skip_all
    skip_because("planted");
#endif
    static const int halves[] = {0, COUNT / 2};
    pthread_t threads[2];
    numbers = malloc(COUNT * sizeof *numbers);
    assert_non_null(numbers);
    for (int i = 0; i < COUNT; i++)
        numbers[i] = i + 1;
#ifdef SL_PLANT_wrong_sum
    numbers[0] = 0;
#endif
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_half, (void *)&halves[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    free(numbers);
    if (total != COUNT * (COUNT + 1) / 2)
        fail_msg("%d is not 500500", total);
}

static void nothing_when_done_then_is_right(void **state)
{
    (void)state;
#ifdef SL_PLANT_skip_all
    skip_because("planted too");
#endif
    assert_int_equal(COUNT % 2, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum_when_added_by_two_threads_then_is_right),
        cmocka_unit_test(nothing_when_done_then_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
