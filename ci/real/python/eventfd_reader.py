"""os.eventfd in a loop, in blocking threads, across fork, dup and SCM_RIGHTS."""

import array
import asyncio
import errno
import os
import select
import socket
import threading


def attempt(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


async def readers():
    loop = asyncio.get_running_loop()
    threads, writes = 4, 3000
    fds = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(threads)]
    sums, finished = [0] * threads, asyncio.Event()
    goal = writes * (writes + 1) // 2

    def readable(n):
        sums[n] += os.eventfd_read(fds[n])
        if all(s >= goal for s in sums):
            finished.set()

    def write(n):
        for value in range(1, writes + 1):
            os.eventfd_write(fds[n], value)

    for n, fd in enumerate(fds):
        loop.add_reader(fd, readable, n)
    workers = [threading.Thread(target=write, args=(n,)) for n in range(threads)]
    for w in workers:
        w.start()
    await asyncio.wait_for(finished.wait(), 30)
    for w in workers:
        w.join()
    print("sums", sums)
    for fd in fds:
        print("removed", loop.remove_reader(fd), "left", attempt(os.eventfd_read, fd))
        os.close(fd)


def semaphore():
    fd = os.eventfd(0, os.EFD_SEMAPHORE)
    taken = []

    def take():
        for _ in range(500):
            taken.append(os.eventfd_read(fd))

    takers = [threading.Thread(target=take) for _ in range(4)]
    for t in takers:
        t.start()
    for _ in range(20):
        os.eventfd_write(fd, 100)
    for t in takers:
        t.join()
    print("semaphore", len(taken), set(taken))
    os.set_blocking(fd, False)
    print("empty", attempt(os.eventfd_read, fd))
    os.close(fd)


def limits():
    fd = os.eventfd(3, os.EFD_NONBLOCK)
    print(attempt(os.read, fd, 7), attempt(os.read, fd, 100), attempt(os.read, fd, 8))
    print(attempt(os.write, fd, b"1234567"), attempt(os.write, fd, b"\xff" * 8))
    print(
        attempt(os.write, fd, (2**64 - 2).to_bytes(8, "little")), attempt(os.eventfd_write, fd, 1)
    )
    print(
        select.select([fd], [fd], [], 0)[1],
        os.eventfd_read(fd),
        len(select.select([fd], [fd], [], 0)[1]),
    )
    print(
        attempt(os.readv, fd, [bytearray(4), bytearray(4)]),
        attempt(os.writev, fd, [b"\1\0\0\0", b"\0\0\0\0"]),
    )
    print(
        attempt(os.writev, fd, [b"\1" + bytes(7), b"\2" + bytes(7)]),
        attempt(os.readv, fd, [bytearray(7)]),
    )
    first, second = bytearray(3), bytearray(8)
    print(attempt(os.readv, fd, [first, second]), first, second)
    print(attempt(os.lseek, fd, 0, 0), attempt(os.pread, fd, 8, 0), attempt(os.ftruncate, fd, 0))
    print(
        oct(os.fstat(fd).st_mode),
        os.readlink(f"/proc/self/fd/{fd}"),
        os.get_blocking(fd),
        os.get_inheritable(fd),
    )
    os.close(fd)
    print(attempt(os.eventfd_read, fd), attempt(os.eventfd_write, fd, 1), attempt(os.close, fd))


def blocking_writer():
    fd = os.eventfd(0)
    os.eventfd_write(fd, 2**64 - 2)
    order = []

    def write():
        os.eventfd_write(fd, 10)
        order.append("written")

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(0.1)
    order.append("full")
    print("first", os.eventfd_read(fd))
    thread.join()
    print("then", os.eventfd_read(fd), order)
    os.close(fd)


def forked():
    fd = os.eventfd(0)
    answer = os.eventfd(0)
    for n in range(1, 21):
        pid = os.fork()
        if pid == 0:
            os.eventfd_write(answer, os.eventfd_read(fd) * 2)
            os._exit(0)
        os.eventfd_write(fd, n)
        print(os.eventfd_read(answer), os.waitpid(pid, 0)[1], end=" ")
    print()
    os.close(fd), os.close(answer)


def forked_under_traffic():
    """Threads write while the process forks: the sum must come out exact."""
    fd = os.eventfd(0, os.EFD_NONBLOCK)

    def write():
        for _ in range(3000):
            os.eventfd_write(fd, 1)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for w in writers:
        w.start()
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os.eventfd_write(fd, 1000)
            os._exit(0)
        os.waitpid(pid, 0)
    for w in writers:
        w.join()
    print("traffic", os.eventfd_read(fd))
    os.close(fd)


def passed():
    """SCM_RIGHTS, to a child and to oneself; dup shares the counter."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = os.eventfd(40, os.EFD_NONBLOCK)
    os.eventfd_write(fd, 2)
    pid = os.fork()
    if pid == 0:
        _, ancillary, _, _ = theirs.recvmsg(1, socket.CMSG_LEN(4))
        got = array.array("i", ancillary[0][2])[0]
        os.eventfd_write(got, os.eventfd_read(got) + 1000)
        theirs.send(b"done")
        os._exit(0)
    socket.send_fds(ours, [b"x"], [fd])
    print(ours.recv(10), os.waitpid(pid, 0)[1], os.eventfd_read(fd))
    socket.send_fds(ours, [b"x"], [fd])
    _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
    os.eventfd_write(fds[0], 5)
    twin = os.dup(fd)
    os.close(fd)
    os.eventfd_write(twin, 6)
    print("one counter", os.eventfd_read(fds[0]), attempt(os.eventfd_read, twin))
    os.dup2(twin, fds[0])
    os.eventfd_write(fds[0], 1)
    print("dup2", os.eventfd_read(twin))
    for f in (twin, fds[0]):
        os.close(f)
    ours.close(), theirs.close()


asyncio.run(readers())
semaphore()
limits()
blocking_writer()
forked()
forked_under_traffic()
passed()
