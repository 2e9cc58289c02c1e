"""select.epoll and the selectors over eventfds, sockets, pipes and nested sets together."""

import errno
import os
import select
import selectors
import socket
import threading
import time

IN, OUT, ET, ONESHOT = select.EPOLLIN, select.EPOLLOUT, select.EPOLLET, select.EPOLLONESHOT


def attempt(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def selector(kind):
    """One thread per source; the loop counts what comes through each."""
    chosen = kind()
    event = os.eventfd(0, os.EFD_NONBLOCK)
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()
    for s in (ours, theirs):
        s.setblocking(False)
    chosen.register(event, selectors.EVENT_READ, "event")
    chosen.register(ours, selectors.EVENT_READ, "socket")
    chosen.register(read_end, selectors.EVENT_READ, "pipe")
    got = {"event": 0, "socket": 0, "pipe": 0}
    total = 2000

    def write(put):
        for n in range(total):
            put()
            if n % 50 == 0:
                time.sleep(0.0005)

    def send():
        while True:
            try:
                return theirs.send(b"s")
            except BlockingIOError:
                time.sleep(0.001)

    puts = [lambda: os.eventfd_write(event, 1), send, lambda: os.write(write_end, b"p")]
    threads = [threading.Thread(target=write, args=(put,)) for put in puts]
    for t in threads:
        t.start()
    while any(n < total for n in got.values()):
        ready = chosen.select(10)
        if not ready:
            print("nothing for ten seconds", got)
            break
        for key, _ in ready:
            if key.data == "event":
                got["event"] += os.eventfd_read(event)
            elif key.data == "socket":
                got["socket"] += len(ours.recv(4096))
            else:
                got["pipe"] += len(os.read(read_end, 4096))
    for t in threads:
        t.join()
    print(kind.__name__, got, chosen.select(0))
    chosen.modify(event, selectors.EVENT_WRITE, "writable")
    print([(key.data, mask) for key, mask in chosen.select(0)])
    chosen.unregister(event)
    print(chosen.select(0), len(chosen.get_map()))
    chosen.close()
    os.close(event), os.close(read_end), os.close(write_end)
    ours.close(), theirs.close()


def modes():
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    poll = select.epoll()

    def wait():
        return [mask for _, mask in poll.poll(0)]

    poll.register(fd, IN | OUT)
    print("level", wait(), os.eventfd_write(fd, 1), wait(), wait(), os.eventfd_read(fd), wait())
    poll.modify(fd, IN | ET)
    print(
        "edge",
        wait(),
        os.eventfd_write(fd, 1),
        wait(),
        wait(),
        os.eventfd_write(fd, 1),
        wait(),
        wait(),
    )
    poll.modify(fd, IN | ONESHOT)
    print(
        "oneshot",
        wait(),
        wait(),
        os.eventfd_write(fd, 1),
        wait(),
        poll.modify(fd, IN | ONESHOT),
        wait(),
    )
    print(
        "errors",
        attempt(poll.register, fd, IN),
        attempt(poll.unregister, 999),
        attempt(poll.register, 999, IN),
    )
    print(
        "errors",
        attempt(poll.register, poll.fileno(), IN),
        attempt(poll.modify, fd, IN | select.EPOLLEXCLUSIVE),
    )
    with open(__file__) as regular:
        print("regular file", attempt(poll.register, regular.fileno(), IN))
    other = select.epoll()
    print(
        "exclusive", other.register(fd, IN | select.EPOLLEXCLUSIVE), attempt(other.modify, fd, IN)
    )
    twin = os.dup(fd)
    os.close(fd)
    print("closed but for a dup", len(poll.poll(0)), len(other.poll(0)))
    os.close(twin)
    print("closed for good", poll.poll(0), other.poll(0))
    poll.close(), other.close()


def nested():
    sets = [select.epoll() for _ in range(4)]
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    for outer, inner in zip(sets, sets[1:]):
        outer.register(inner.fileno(), IN)
    sets[-1].register(fd, IN)
    print("cycle", attempt(sets[-1].register, sets[0].fileno(), IN))
    print("quiet", [s.poll(0) == [] for s in sets])
    os.eventfd_write(fd, 1)
    print(
        "ready",
        [len(s.poll(0)) for s in sets],
        len(select.select([sets[0].fileno()], [], [], 0)[0]),
    )
    by_poll = select.poll()
    by_poll.register(sets[0].fileno(), select.POLLIN)
    by_poll.register(fd, select.POLLIN | select.POLLOUT)
    print(
        "poll",
        [mask for _, mask in by_poll.poll(0)],
        os.eventfd_read(fd),
        [m for _, m in by_poll.poll(0)],
    )
    thread = threading.Timer(0.05, os.eventfd_write, (fd, 1))
    thread.start()
    print("woken three levels up", len(sets[0].poll(10)))
    thread.join()
    for s in sets:
        s.close()
    os.close(fd)


def waiters():
    """Sleeping in poll, select and epoll while another thread writes; timeouts are kept."""
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    poll, by_poll = select.epoll(), select.poll()
    poll.register(fd, IN)
    by_poll.register(fd, select.POLLIN)
    sleepers = {
        "epoll": lambda seconds: len(poll.poll(seconds)),
        "poll": lambda seconds: len(by_poll.poll(seconds * 1000)),
        "select": lambda seconds: len(select.select([fd], [], [], seconds)[0]),
    }
    for name, sleep in sleepers.items():
        began = time.monotonic()
        missed = sleep(0.05)
        kept = time.monotonic() - began >= 0.05
        thread = threading.Timer(0.03, os.eventfd_write, (fd, 1))
        thread.start()
        woken = sleep(10)
        thread.join()
        print(name, missed, kept, woken, os.eventfd_read(fd))
    poll.close()
    os.close(fd)


def fairness():
    """maxevents 1 and three ready sources of both kinds: each gets its turn."""
    poll = select.epoll()
    event, (ours, theirs) = os.eventfd(1), socket.socketpair()
    other = os.eventfd(1)
    theirs.send(b"x")
    names = {event: "event", other: "other", ours.fileno(): "socket"}
    for fd in names:
        poll.register(fd, IN)
    seen = [names[poll.poll(1, 1)[0][0]] for _ in range(60)]
    print(
        "each in turn:", sorted(set(seen)), all(seen.count(name) >= 10 for name in names.values())
    )
    poll.close(), ours.close(), theirs.close()
    os.close(event), os.close(other)


for kind in (selectors.EpollSelector, selectors.PollSelector, selectors.SelectSelector):
    selector(kind)
modes()
nested()
waiters()
fairness()
