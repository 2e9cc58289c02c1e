# Calls that a thread of asyncio's pool makes and reports to the event loop.

import asyncio
import json
import resource
import sys
import time


def nothing():
    pass


async def go_on(seconds):
    loop, trips = asyncio.get_running_loop(), 0
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        await loop.run_in_executor(None, nothing)
        trips += 1
    return trips, time.monotonic() - begin


async def main(seconds):
    await go_on(seconds / 5)
    before = resource.getrusage(resource.RUSAGE_SELF)
    trips, elapsed = await go_on(seconds * 4 / 5)
    after = resource.getrusage(resource.RUSAGE_SELF)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    switches = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw
    sample = {"trips": trips, "seconds": elapsed, "processor_seconds": processor}
    print(json.dumps({**sample, "switches": switches}))


asyncio.run(main(float(sys.argv[1])))
