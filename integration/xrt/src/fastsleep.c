/* Loaded before libxrt_hwemu, whose xclExecWait() is a sleep() of 10 s at the first load and 1 s
 * after: it waits for nothing that the tests' device would do in that time. */
#include <time.h>

unsigned sleep(unsigned seconds)
{
    struct timespec moment = { 0, 1000000 };
    (void)seconds;
    nanosleep(&moment, 0);
    return 0;
}
