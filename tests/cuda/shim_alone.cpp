/* Stands in for the stand-in runtime while it is not there: everything runs at once. */
#include "standin.h"

__attribute__((weak)) int standin_queue(void *, const char *, void (*function)(void *),
                                        void *argument)
{
    function(argument);
    return 0;
}

__attribute__((weak)) void standin_break(int)
{
}
