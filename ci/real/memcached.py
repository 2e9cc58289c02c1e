#!/usr/bin/env python3
"""memcached with four worker threads, driven over plain sockets: same replies.

What is in it for epoll: the listener's thread hands each connection to a worker through an eventfd
in that worker's set, so every set is a mixed one.
"""

import hashlib
import os
import signal
import socket
import threading

import twice
from twice import require, wait_for


class Connection:
    def __init__(self, address):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(30)
        self.socket.connect(address)
        self.input = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.input.close()
        self.socket.close()

    def line(self):
        line = self.input.readline()
        require(line.endswith(b"\r\n"), f"the connection broke off: {line!r}")
        return line[:-2]

    def call(self, text, data=None):
        """A command with a reply of one line."""
        self.socket.sendall(text.encode() + b"\r\n" + (b"" if data is None else data + b"\r\n"))
        return self.line().decode()

    def get(self, *keys, verb="get"):
        self.socket.sendall(f"{verb} {' '.join(keys)}\r\n".encode())
        found = {}
        while (line := self.line()) != b"END":
            _, key, _, size, *_ = line.decode().split()
            found[key] = self.input.read(int(size) + 2)[:-2]
        return found

    def stats(self, which=""):
        self.socket.sendall(f"stats {which}".rstrip().encode() + b"\r\n")
        found = {}
        while (line := self.line()) != b"END":
            _, name, value = line.decode().split(" ", 2)
            found[name] = value
        return found


class Server:
    def __init__(self, room, unix=False, *options):
        self.room = room
        if unix:
            self.address = str(room.dir / "memcached.sock")
            where = ["-s", self.address]
        else:
            self.address = ("127.0.0.1", twice.free_port())
            where = ["-l", "127.0.0.1", "-p", self.address[1], "-U", "0"]
        if os.geteuid() == 0:
            # A unix socket is made after the change of user, in a directory of root's.
            where += ["-u", "root" if unix else "nobody"]
        self.program = room.start(["memcached", "-t", "4", "-m", "128", "-A", *where, *options])
        wait_for(lambda: self.program.poll() is not None or self.answers(), "memcached to answer")
        require(
            self.program.poll() is None,
            f"memcached did not start: {self.program.returncode}\n" + twice.tail_of(self.program),
        )
        with self.connect() as c:
            self.pid = int(c.stats()["pid"])
            require(c.stats()["threads"] == "4", "it does not run four workers")
        room.require_interposer(self.pid)

    def answers(self):
        try:
            with self.connect() as c:
                return c.call("version").startswith("VERSION")
        except (OSError, twice.Failure):
            return False

    def connect(self):
        return Connection(self.address)

    def stop(self):
        os.kill(self.pid, signal.SIGTERM)
        self.room.wait_exit(self.program)


def value_of(n):
    seed = hashlib.sha256(str(n).encode()).digest()
    return seed * (1 + n % 40)


def commands(unix):
    def check(room):
        server = Server(room, unix)
        lines = []
        with server.connect() as c:
            for text, data in [
                ("set a 5 0 3", b"one"), ("add a 0 0 3", b"two"), ("replace a 0 0 3", b"two"),
                ("append a 0 0 1", b"x"), ("prepend a 0 0 1", b"y"),
                ("replace none 0 0 1", b"z"), ("set n 0 0 2", b"41"), ("incr n 1", None),
                ("decr n 40", None), ("incr none 1", None), ("touch n 0", None),
                ("delete n", None), ("delete n", None), ("nonsense", None), ("incr a 1", None),
                ("cas a 0 0 1 99999", b"q"), ("verbosity 0", None), ("mn", None),
                ("ms meta 2", b"ok"), ("mg meta v", None), ("gat 0 a", None),
            ]:  # fmt: skip
                lines.append(f"{text} -> {c.call(text, data)}")
                if text == "mg meta v":
                    lines.append(c.line())
            # gat's value and END are still to come.
            lines += [c.line(), c.line(), c.get("a", "none", "meta")]
            big = bytes(range(256)) * 2000
            lines.append(c.call(f"set big 0 0 {len(big)}", big))
            require(c.get("big")["big"] == big, "a value of 512,000 bytes came back changed")
            huge = b"x" * (2 << 20)
            lines.append(c.call(f"set huge 0 0 {len(huge)}", huge))
        with server.connect() as c:
            lines += [
                c.call("set gone 0 -1 1", b"x"),
                c.get("gone"),
                c.call("set soon 0 1 1", b"x"),
            ]
            # Its clock is a timer of the event loop that ticks once a second.
            wait_for(lambda: not c.get("soon"), "a key to expire", 10, 0.1)
            lines += [c.call("flush_all"), c.get("a", "big")]
            lines.append(sorted(c.stats("settings")))
        server.stop()
        return lines

    return check


def many_keys(room):
    """Eight clients, 24,000 keys, each value read back by another client's connection."""
    server = Server(room)
    clients, each = 8, 3000
    errors = []

    def in_parallel(job):
        def guarded(n):
            try:
                with server.connect() as c:
                    job(n, c)
            except (OSError, twice.Failure, KeyError) as error:
                errors.append(f"client {n}: {error!r}")

        threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        require(
            not errors and not any(t.is_alive() for t in threads),
            f"{errors[:3] or 'a client hangs'}",
        )

    def fill(n, c):
        for k in range(n * each, (n + 1) * each):
            value = value_of(k)
            require(
                c.call(f"set key:{k} 0 0 {len(value)}", value) == "STORED",
                f"key {k} was not stored",
            )

    def read_back(n, c):
        n = (n + 3) % clients
        for k in range(n * each, (n + 1) * each, 100):
            found = c.get(*(f"key:{j}" for j in range(k, k + 100)))
            for j in range(k, k + 100):
                require(found[f"key:{j}"] == value_of(j), f"key {j} came back changed")

    def count(_, c):
        for _ in range(2000):
            c.call("incr counter 1")

    in_parallel(fill)
    in_parallel(read_back)
    with server.connect() as c:
        c.call("set counter 0 0 1", b"0")
        in_parallel(count)
        stats = c.stats()
        lines = [c.get("counter")]
        lines += [
            f"{k} {stats[k]}"
            for k in ("curr_items", "cmd_get", "get_hits", "get_misses", "cmd_set")
        ]
        lines += [f"{k} {stats[k]}" for k in ("incr_hits", "incr_misses", "evictions", "bytes")]
    server.stop()
    return lines


def crowd(room):
    """Connections come and go, six hundred at a time: each passes through a worker's eventfd."""
    server = Server(room)
    lines = []
    with server.connect() as watcher:
        before = len(os.listdir(f"/proc/{server.pid}/fd"))
        for turn in range(5):
            crowd = [server.connect() for _ in range(600)]
            for n, c in enumerate(crowd):
                c.socket.sendall(f"set {turn}:{n} 0 0 4\r\n{n:04}\r\nget {turn}:{n}\r\n".encode())
            for n, c in enumerate(crowd):
                got = [c.line() for _ in range(4)]
                require(got[2] == f"{n:04}".encode(), f"connection {n} got {got}")
            lines.append(f"{watcher.stats()['curr_connections']} connections")
            for c in crowd:
                c.__exit__()
            # A doorbell may stay open for each set that mixes sockets and eventfds (four workers
            # and the listener). There may also be fewer descriptors than before: the connections
            # that asked whether the server is up had perhaps not been closed by then.
            left = lambda: len(os.listdir(f"/proc/{server.pid}/fd")) - before
            wait_for(lambda: left() <= 5, "the connections' descriptors")
        lines.append(watcher.stats()["curr_items"])
    server.stop()
    return lines


def limits(room):
    """The listener stops at -c and goes on when somebody leaves; `shutdown graceful` ends it."""
    server = Server(room, False, "-c", "40", "-o", "no_maxconns_fast")
    answers = []
    release = threading.Event()

    def visit():
        with server.connect() as c:
            answers.append(c.call("mn"))
            release.wait(60)

    with server.connect() as driver:
        visitors = [threading.Thread(target=visit, daemon=True) for _ in range(50)]
        for v in visitors:
            v.start()
        # The limit is one of descriptors: how many visitors fit is not ours to say.
        wait_for(lambda: int(driver.stats()["listen_disabled_num"]) > 0, "the server to be full")
        early = len(answers)
        release.set()
        for v in visitors:
            v.join(60)
        require(answers == ["MN"] * 50, f"{len(answers)} of 50 visitors were let in: {answers[:3]}")
        driver.socket.sendall(b"shutdown graceful\r\n")
        lines = [answers, f"all at once: {early == 50}", driver.input.read()]
    room.wait_exit(server.program)
    return lines


twice.main(
    "memcached",
    ["memcached"],
    {
        "commands": commands(unix=False),
        "commands on a unix socket": commands(unix=True),
        "many keys": many_keys,
        "crowd": crowd,
        "connection limit": limits,
    },
)
