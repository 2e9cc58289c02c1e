# Calls that a thread of asyncio's pool makes and reports to the event loop.

import asyncio
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
    before = used()
    trips, elapsed = await go_on(seconds * 4 / 5)
    say(trips, elapsed, before)


asyncio.run(main(float(sys.argv[1])))
