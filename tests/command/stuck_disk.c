/* In front of the disk store of a whole command (test_command_stuck): requests go to threads, wait
 * milliseconds and not two minutes, and number STUCK_REQUEST of the environment never comes back.
 * The linker calls what is in front by --wrap=sl_store_open. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "engine/lost_answer.h"
#include "offload/store.h"
#include "offload/transport.h"

enum { LIMIT_MS = 200 };

sl_status __real_sl_store_open(const sl_store_options *options, sl_store **out_store);
sl_status __wrap_sl_store_open(const sl_store_options *options, sl_store **out_store);

sl_status __wrap_sl_store_open(const sl_store_options *options, sl_store **out_store)
{
    const char *request = getenv("STUCK_REQUEST");
    sl_store_options own = *options;
    own.limit_ms = LIMIT_MS;
    own.transport = &sl_transport_threads;
    lost_answer_arm(request ? strtoull(request, NULL, 10) : 0);
    return __real_sl_store_open(&own, out_store);
}
