/* Linked into every cmocka program: one that skipped all of its tests leaves with 77, which CTest
 * shows as skipped, and not as passed. The linker puts these in the place of cmocka's (--wrap).
 *
 * A shell without a terminal starts what is to run behind it (&) with signals ignored, and all that
 * comes of that ignores them, too: runs that a test interrupts would go on. Each program begins
 * with what signals do by default. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static size_t test_count, skipped_count; /* of all groups of this program */

int __real__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down);
void __real__skip(const char *file, int line);
void __wrap__skip(const char *file, int line);
int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    test_count += count;
    return __real__cmocka_run_group_tests(group, tests, count, set_up, tear_down);
}

void __wrap__skip(const char *file, int line)
{
    skipped_count++;
    __real__skip(file, line);
}

int __wrap_main(int argc, char **argv)
{
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT};
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        signal(ignored[i], SIG_DFL);
    const int result = __real_main(argc, argv);
    return result == 0 && test_count > 0 && skipped_count == test_count ? 77 : result;
}
