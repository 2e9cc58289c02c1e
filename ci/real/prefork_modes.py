"""A small prefork server, to compare ways to share out connections: `prefork_modes.py MODE PORT N`.

| mode | N workers wait |
|---|---|
| select | in select(2) for one listener, each serving one connection at a time |
| exclusive | the same in an epoll set each, with EPOLLEXCLUSIVE |
| events | the same, each with an event loop that keeps any number of connections |
| events_select | each in an event loop of select(2), which keeps any number of connections |
| reuseport | each for a listener of its own: the kernel chooses one by a hash of the addresses |
| bpf | the same, and a program chooses one at random |
| ports, events_ports | each on a port of its own, from PORT on, for a balancer in front |

A request for /long takes 10 ms of processor time, one for /block sleeps for two seconds.
"""

import ctypes
import os
import select
import signal
import socket
import struct
import sys
import time

SO_ATTACH_REUSEPORT_CBPF = 51
EPOLLEXCLUSIVE = 1 << 28


def attach_random(listener, workers):
    """Has the kernel choose among the listeners of the port: a random number modulo `workers`."""
    load_random, modulo, give_back = 0x20, 0x94, 0x16
    program = struct.pack("HBBI", load_random, 0, 0, (1 << 32) - 0x1000 + 56)
    program += struct.pack("HBBI", modulo, 0, 0, workers) + struct.pack("HBBI", give_back, 0, 0, 0)
    memory = ctypes.create_string_buffer(program)
    filter_of = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(memory))
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, filter_of)


def listen(port, reuseport=False):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuseport:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1024)
    listener.setblocking(False)
    return listener


def answer(connection, request):
    path = request.split(b" ", 2)[1]
    if path == b"/block":
        time.sleep(2)
    elif path == b"/long":
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
    body = b"%d own" % os.getpid()
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def serve_one(listener):
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return
    with connection:
        connection.setblocking(True)
        try:
            if request := connection.recv(4096):
                answer(connection, request)
        except ConnectionError:
            pass


def serve_by_select(listener):
    while True:
        select.select([listener], [], [])
        serve_one(listener)


def exclusive_set(listener):
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN | EPOLLEXCLUSIVE)
    return epoll


def serve_by_epoll(listener):
    epoll = exclusive_set(listener)
    while True:
        epoll.poll()
        serve_one(listener)


def hear(connection):
    """Answers what has come; whether the connection goes on."""
    try:
        request = connection.recv(4096)
        if request:
            answer(connection, request)
    except ConnectionError:
        return False
    return bool(request) and b"Connection: close" not in request


def serve_events(listener):
    epoll, connections = exclusive_set(listener), {}
    while True:
        for number, _ in epoll.poll():
            if number == listener.fileno():
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    continue
                connections[connection.fileno()] = connection
                epoll.register(connection, select.EPOLLIN)
            elif not hear(connections[number]):
                connections.pop(number).close()


def serve_events_by_select(listener):
    connections = []
    while True:
        for ready in select.select([listener, *connections], [], [])[0]:
            if ready is listener:
                try:
                    connections.append(listener.accept()[0])
                except BlockingIOError:
                    pass
            elif not hear(ready):
                connections.remove(ready)
                ready.close()


SERVE = {
    "select": serve_by_select,
    "events": serve_events,
    "events_ports": serve_events,
    "events_select": serve_events_by_select,
}


def main():
    mode, port, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    apart = mode.endswith("ports")
    shared = None if apart or mode in ("reuseport", "bpf") else listen(port)
    own = [listen(port + i * apart, not apart) for i in range(0 if shared else workers)]
    if mode == "bpf":
        attach_random(own[0], workers)
    children = []
    for i in range(workers):
        if (pid := os.fork()) == 0:
            for other in own[:i] + own[i + 1 :]:
                other.close()
            SERVE.get(mode, serve_by_epoll)(shared or own[i])
        children.append(pid)
    for listener in own:
        listener.close()

    def end(*_):
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        signal.pause()


main()
