# Two of uvloop's loops, each in a thread of its own, that call each other.

import sys
import threading
import time

import uvloop

loops = [uvloop.new_event_loop() for _ in range(2)]
threads = [threading.Thread(target=loop.run_forever, daemon=True) for loop in loops]
trips, end = 0, 0.0
is_over = threading.Event()


def call(which):
    global trips
    if which == 0:
        trips += 1
        if time.monotonic() >= end:
            is_over.set()
            return
    loops[1 - which].call_soon_threadsafe(call, 1 - which)


def go_on(seconds):
    global trips, end
    begin = time.monotonic()
    trips, end = 0, begin + seconds
    is_over.clear()
    loops[1].call_soon_threadsafe(call, 1)
    is_over.wait()
    return trips, time.monotonic() - begin


def main(seconds):
    for thread in threads:
        thread.start()
    go_on(seconds / 5)
    before = used()
    count, elapsed = go_on(seconds * 4 / 5)
    say(count, elapsed, before)
    for loop in loops:
        loop.call_soon_threadsafe(loop.stop)
    for thread in threads:
        thread.join()


main(float(sys.argv[1]))
