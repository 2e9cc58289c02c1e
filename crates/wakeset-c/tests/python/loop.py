"""A set in asyncio's loop: threads write to eventfds through ctypes, and loop.add_reader() sees
each of them.

loop.py LIBRARY"""

import asyncio
import ctypes
import os
import select
import sys
import threading

library = ctypes.CDLL(sys.argv[1], use_errno=True)

COUNTERS, EACH, PATIENCE = 4, 500, 20


class Event(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("events", ctypes.c_uint32), ("data", ctypes.c_uint64)]


def call(name, *arguments):
    result = getattr(library, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return result


def produce(fd, taken):
    for _ in range(EACH):
        call("ws_eventfd_write", fd, ctypes.c_uint64(1))
        # The next one only when this one has been seen: nothing makes up for a lost wake-up.
        taken.acquire()


async def main(flags):
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    epfd = call("ws_epoll_create1", os.O_CLOEXEC)
    fds = [call("ws_eventfd", 0, os.O_CLOEXEC | os.O_NONBLOCK) for _ in range(COUNTERS)]
    taken = [threading.Semaphore(0) for _ in fds]
    for i, fd in enumerate(fds):
        call("ws_epoll_ctl", epfd, 1, fd, ctypes.byref(Event(select.EPOLLIN | flags, i)))
    total = 0

    def on_readable():
        nonlocal total
        events = (Event * COUNTERS)()
        for event in events[: call("ws_epoll_wait", epfd, events, COUNTERS, 0)]:
            value = ctypes.c_uint64()
            call("ws_eventfd_read", fds[event.data], ctypes.byref(value))
            total += value.value
            taken[event.data].release()
        if total == COUNTERS * EACH and not done.done():
            done.set_result(None)

    loop.add_reader(call("ws_epoll_pollfd", epfd), on_readable)
    threads = [threading.Thread(target=produce, args=pair, daemon=True) for pair in zip(fds, taken)]
    for thread in threads:
        thread.start()
    try:
        await asyncio.wait_for(done, PATIENCE)
    except asyncio.TimeoutError:
        sys.exit(f"lost a wake-up after {total} units")
    for thread in threads:
        thread.join()
    loop.remove_reader(epfd)
    for fd in [epfd, *fds]:
        call("ws_close", fd)
    print(f"{total} units")


for flags in (0, select.EPOLLET):
    asyncio.run(main(flags))
