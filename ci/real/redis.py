#!/usr/bin/env python3
"""redis-server, driven by redis-cli, redis-benchmark and raw connections: same replies.

What is in it for epoll: hundreds of connections in one set, pipes from forked children (RDB, AOF,
diskless replication), I/O threads, timers that decide the wait's timeout.
"""

import os
import re
import signal
import socket
import threading
import time

import twice
from twice import require, wait_for


class Connection:
    """A RESP connection. Bulk replies are bytes, errors are `ReplyError` values."""

    class ReplyError(str):
        pass

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

    def send(self, *words):
        parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.socket.sendall(
            b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)
        )

    def read(self):
        line = self.input.readline()
        require(line.endswith(b"\r\n"), f"the connection broke off: {line!r}")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return self.ReplyError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.input.read(int(rest) + 2)[:-2]
        require(kind == b"*", f"not RESP: {line!r}")
        return None if rest == b"-1" else [self.read() for _ in range(int(rest))]

    def call(self, *words):
        self.send(*words)
        return self.read()

    def info(self, field):
        return re.search(rf"^{field}:(.*?)\r?$", self.call("INFO", "everything").decode(), re.M)[1]


class Server:
    def __init__(self, room, *options, name="redis"):
        self.room = room
        self.unix = str(room.dir / f"{name}.sock")
        self.port = twice.free_port()
        self.tcp = ("127.0.0.1", self.port)
        self.program = room.start(
            ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--unixsocket", self.unix]
            + ["--save", "", "--dir", room.dir, "--dbfilename", f"{name}.rdb", "--daemonize", "no"]
            + ["--appenddirname", f"{name}.aof", "--enable-debug-command", "yes", *options]
        )
        wait_for(
            lambda: self.program.poll() is not None or self.answers(), "redis-server to answer"
        )
        require(
            self.program.poll() is None,
            "redis-server did not start\n" + twice.tail_of(self.program),
        )
        with self.connect() as c:
            self.pid = int(c.info("process_id"))
            require(c.info("multiplexing_api") == "epoll", "it does not use epoll")
        room.require_interposer(self.pid)

    def answers(self):
        try:
            with self.connect() as c:
                return c.call("PING") == "PONG"
        except (OSError, twice.Failure):
            return False

    def connect(self, unix=False):
        return Connection(self.unix if unix else self.tcp)

    def stop(self):
        os.kill(self.pid, signal.SIGTERM)
        self.room.wait_exit(self.program)


def commands(room):
    """Ordinary commands, pipelined and not, over TCP and a unix socket."""
    server = Server(room)
    lines = []
    for unix in (False, True):
        with server.connect(unix) as c:
            for command in [
                "FLUSHALL", "SET a 1", "GET a", "GET none", "INCR a", "INCRBY a 40", "APPEND a x",
                "INCR a", "STRLEN a", "GETRANGE a 0 1", "SETNX a 2", "MSET b 1 c 2 d 3",
                "MGET a b c nope d", "RPUSH l 1 2 3 4", "LRANGE l 0 -1", "LPOP l 2",
                "LINSERT l BEFORE 4 x", "LRANGE l 0 -1", "SADD s c b a", "SORT s ALPHA", "SCARD s",
                "HSET h f 1 g 2", "HGETALL h", "HINCRBY h f 5", "ZADD z 3 c 1 a 2 b",
                "ZRANGE z 0 -1 WITHSCORES", "ZRANGEBYSCORE z (1 3", "TYPE z", "XADD x 1-1 k v",
                "XADD x 1-2 k w", "XRANGE x - +", "XADD x 1-1 k v", "SETBIT bits 7 1",
                "BITCOUNT bits", "PFADD p a b c", "PFCOUNT p", "OBJECT ENCODING l", "NOSUCH thing",
                "GET", "LPUSH a 1", "EXPIRE b 100", "TTL b", "PERSIST b", "TTL b", "RENAME b bb",
                "EXISTS b bb", "MULTI", "INCR n", "INCR n", "EXEC", "MULTI", "DISCARD", "DBSIZE",
                "SELECT 3", "DBSIZE",
            ]:  # fmt: skip
                lines.append(f"{command} -> {c.call(*command.split())!r}")
            lines.append(
                c.call("EVAL", "return {KEYS[1], redis.call('INCR', KEYS[1])}", 1, "script")
            )
            big = bytes(range(256)) * 8192
            lines.append(c.call("SET", "big", big))
            require(c.call("GET", "big") == big, "a 2 MB value came back changed")
            for n in range(5000):
                c.send("RPUSH", "pipeline", n)
            require([c.read() for _ in range(5000)] == list(range(1, 5001)), "pipelined replies")
            # Expiry rides on the server's timer, that is on the wait's timeout.
            c.call("SET", "short", "lived", "PX", 60)
            lines.append(wait_for(lambda: c.call("DBSIZE") == 3, "the key to expire unasked", 10))
    server.stop()
    return lines


def client_tool(room):
    """redis-cli, itself under the same side: a script, --pipe, and a blocked command."""
    server = Server(room)
    cli = ["redis-cli", "-p", server.port]

    def typed(text):
        file = room.dir / "typed"
        file.write_text(text)
        return file.open("rb")

    script = "".join(f"SET key:{n} value:{n}\nGET key:{n}\nINCR counter\n" for n in range(500))
    with typed(script) as stdin:
        lines = room.run(cli, stdin=stdin, seen=False).splitlines()
    with typed("".join(f"RPUSH piped {n}\r\n" for n in range(20000))) as stdin:
        lines += room.run([*cli, "--pipe"], stdin=stdin, seen=False).splitlines()
    lines += room.run(["redis-cli", "-s", server.unix, "LLEN", "piped"], seen=False).splitlines()
    blocked = room.start([*cli, "BLPOP", "work", "20"])
    with server.connect() as c:
        wait_for(lambda: c.info("blocked_clients") == "1", "redis-cli to block")
        c.call("RPUSH", "work", "done")
    room.wait_exit(blocked)
    lines += blocked.out.read_text().splitlines()
    server.stop()
    return lines


def blocking_and_pubsub(room):
    """Blocked clients, their timeouts, and messages to many subscribers."""
    server = Server(room)
    lines = []
    with server.connect() as first, server.connect() as second, server.connect(unix=True) as driver:
        first.send("BLPOP", "q", "other", 20)
        wait_for(lambda: driver.info("blocked_clients") == "1", "the first to block")
        second.send("BLPOP", "q", 20)
        wait_for(lambda: driver.info("blocked_clients") == "2", "the second to block")
        lines += [driver.call("RPUSH", "q", "x", "y"), first.read(), second.read()]

        began = time.monotonic()
        lines.append(first.call("BLPOP", "empty", "0.3"))
        require(time.monotonic() - began >= 0.29, "BLPOP came back before its timeout")

        first.send("BRPOPLPUSH", "from", "to", 20)
        wait_for(lambda: driver.info("blocked_clients") == "1", "BRPOPLPUSH to block")
        lines += [
            driver.call("LPUSH", "from", "moved"),
            first.read(),
            driver.call("LRANGE", "to", 0, -1),
        ]

        second.send("XREAD", "BLOCK", 20000, "STREAMS", "stream", "$")
        wait_for(lambda: driver.info("blocked_clients") == "1", "XREAD to block")
        lines += [driver.call("XADD", "stream", "7-1", "k", "v"), second.read()]

        identity = first.call("CLIENT", "ID")
        first.send("BLPOP", "never", 0)
        wait_for(lambda: driver.info("blocked_clients") == "1", "BLPOP to block")
        lines += [driver.call("CLIENT", "UNBLOCK", identity, "ERROR"), first.read()]

        subscribers = [server.connect(unix=n % 2 == 0) for n in range(40)]
        for s in subscribers:
            lines += [s.call("SUBSCRIBE", "news"), s.call("PSUBSCRIBE", "n?ws*")]
        lines += [driver.call("PUBLISH", "news", n) for n in range(100)]
        for s in subscribers:
            lines.append(repr([s.read() for _ in range(200)]))
        lines.append(subscribers[0].call("UNSUBSCRIBE", "news"))
        for s in subscribers:
            s.__exit__()
        wait_for(lambda: driver.call("PUBSUB", "NUMPAT") == 0, "the subscribers to be gone")
        lines.append(driver.call("PUBLISH", "news", "nobody"))
    server.stop()
    return lines


def connections(room):
    """Five hundred connections: CLIENT LIST with its descriptor numbers, KILL, PAUSE, idle
    timeout."""
    server = Server(room)
    lines = []
    crowd = [server.connect(unix=n % 2 == 0) for n in range(500)]
    for _ in range(3):
        for n, c in enumerate(crowd):
            c.send("INCR", "hits") if n % 3 else c.send("PING")
        lines.append(repr(sorted(str(c.read()) for c in crowd)))
    for c in crowd[1::2]:
        c.__exit__()
    driver = crowd[0]
    wait_for(lambda: driver.info("connected_clients") == "250", "the closed half to be gone")
    for n, c in enumerate(crowd[0:20:2]):
        c.call("CLIENT", "SETNAME", f"client-{n}")
    listed = driver.call("CLIENT", "LIST").decode().splitlines()
    # Ids and descriptor numbers depend on the order of the accepts. How many descriptors there are
    # does not, because Wakeset must not use up a program's descriptors. Three of its own are
    # allowed: a doorbell in the set of redis's loop, which watches sockets and a pipe that lives in
    # user space (SEMANTICS.md, Difference 17), and the hints and the baton of a process that
    # listens. The baton is a pipe with one number for both ends, or an eventfd.
    fds = [
        os.readlink(f"/proc/{server.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{server.pid}/fd")
    ]
    batons = [fd for fd in fds if fd.startswith("pipe:") and fds.count(fd) == 1]
    extra = [fd for fd in fds if fd == "anon_inode:[eventfd]" or "memfd:wakeset-" in fd] + batons
    assert len(extra) <= 3, fds
    lines.append(f"{len(fds) - len(extra)} descriptors")
    kept = ("name", "db", "flags", "cmd", "user", "resp")
    lines += sorted(" ".join(w for w in line.split() if w.split("=")[0] in kept) for line in listed)

    victim = crowd[2].call("CLIENT", "ID")
    lines.append(driver.call("CLIENT", "KILL", "ID", victim))
    lines.append(crowd[2].input.read())
    lines.append(driver.call("CLIENT", "PAUSE", 200))
    began = time.monotonic()
    lines.append(crowd[4].call("SET", "paused", 1))
    require(time.monotonic() - began >= 0.15, "CLIENT PAUSE did not pause")
    lines.append(driver.call("CONFIG", "SET", "timeout", "1"))
    wait_for(lambda: driver.info("connected_clients") == "1", "idle clients to be closed", 20)
    lines.append(driver.call("GET", "hits"))
    for c in crowd:
        c.__exit__()
    server.stop()
    return lines


def persistence(room):
    """BGSAVE, BGREWRITEAOF and a restart: children forked off a process full of connections."""
    options = [
        "--appendonly",
        "yes",
        "--appendfsync",
        "everysec",
        "--auto-aof-rewrite-percentage",
        "0",
    ]
    server = Server(room, *options)
    lines = []
    stop = threading.Event()
    written = [0]

    def traffic():
        with server.connect() as c:
            while not stop.is_set() and written[0] < 200_000:
                require(c.call("INCR", "traffic") == written[0] + 1, "a count was lost")
                written[0] += 1

    with server.connect() as c:
        for n in range(0, 40000, 100):
            c.call("MSET", *(w for k in range(n, n + 100) for w in (f"key:{k}", f"value:{k}")))
        thread = threading.Thread(target=traffic, daemon=True)
        thread.start()
        for _ in range(3):
            lines.append(c.call("BGSAVE"))
            wait_for(lambda: c.info("rdb_bgsave_in_progress") == "0", "BGSAVE")
            lines.append(c.info("rdb_last_bgsave_status"))
        lines.append(c.call("BGREWRITEAOF"))
        wait_for(
            lambda: c.info("aof_rewrite_in_progress") == c.info("aof_rewrite_scheduled") == "0",
            "the rewrite",
        )
        lines.append(c.info("aof_last_bgrewrite_status"))
        stop.set()
        thread.join(20)
        require(int(c.call("GET", "traffic")) == written[0], "the traffic's count differs")
        require(written[0] > 0, "there was no traffic")
        before = c.call("DEBUG", "DIGEST")
        c.call("DEL", "traffic")
        lines += [c.call("DEBUG", "DIGEST"), c.call("DBSIZE")]
        require(before != lines[-2], "DEBUG DIGEST does not see the data")
    server.stop()
    server = Server(room, *options)
    with server.connect() as c:
        lines += [c.call("DEBUG", "DIGEST"), c.call("DBSIZE"), c.call("GET", "key:39999")]
        c.send("SHUTDOWN", "SAVE")
        lines.append(c.input.read())
    room.wait_exit(server.program)
    server = Server(room, "--appendonly", "no")
    with server.connect() as c:
        lines += [c.call("DEBUG", "DIGEST"), c.call("DBSIZE")]
    server.stop()
    return lines


def replication(room):
    """A replica that syncs from a forked child's pipe, follows, is promoted."""
    primary = Server(
        room, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", name="primary"
    )
    replica = Server(room, "--repl-diskless-load", "swapdb", name="replica")
    with primary.connect() as p, replica.connect() as r:
        for n in range(20000):
            p.send("SET", f"key:{n}", f"value:{n}")
        lines = [repr({p.read() for _ in range(20000)})]
        lines.append(r.call("REPLICAOF", "127.0.0.1", primary.port))
        wait_for(lambda: r.info("master_link_status") == "up", "the replica to catch up")
        for n in range(1000):
            p.send("INCR", "followed")
        lines += [p.read() for _ in range(1000)][-1:]
        lines += [p.call("WAIT", 1, 20000), r.call("GET", "followed"), r.call("SET", "a", 1)]
        lines += [
            p.call("DEBUG", "DIGEST"),
            r.call("DEBUG", "DIGEST"),
            r.call("REPLICAOF", "NO", "ONE"),
        ]
        lines += [r.call("SET", "a", 1), p.call("EXISTS", "a")]
    replica.stop()
    primary.stop()
    return lines


def benchmark(*options, count=20000, server_options=()):
    """redis-benchmark's load, checked by what it leaves behind in the server."""

    def check(room):
        server = Server(room, *server_options)
        lines = []
        tests = "ping,set,get,incr,lpush,rpop,sadd,hset,zadd,mset"
        text = room.run(
            ["redis-benchmark", "-p", server.port, "-n", count, "-t", tests, "--csv", *options],
            limit=110,
        )
        for row in text.splitlines():
            name, rate = row.replace('"', "").split(",")[:2]
            if name != "test":
                require(float(rate) > 0, f"implausible rate: {row}")
            lines.append(name)
        with server.connect() as c:
            lines += [
                c.call("GET", "counter:__rand_int__"),
                c.call("DBSIZE"),
                c.call("LLEN", "mylist"),
            ]
            lines.append(c.call("LRANGE", "mylist", 0, 2))
            for command in ("set", "get", "incr", "lpush", "rpop", "mset"):
                stat = c.info(f"cmdstat_{command}")
                lines.append(command + " " + re.match(r"calls=\d+", stat)[0])
                require("failed_calls=0" in stat, stat)
            if server_options:
                require(
                    int(c.info("io_threaded_reads_processed")) > 0, "the I/O threads were not used"
                )
        server.stop()
        return lines

    return check


# The I/O threads spin, and where others want the two processors they spin for their whole slice.
IO_THREADS = ["--io-threads", "2", "--io-threads-do-reads", "yes"]

twice.main(
    "redis",
    ["redis-server", "redis-cli", "redis-benchmark"],
    {
        "commands": commands,
        "redis-cli": client_tool,
        "blocking and pub/sub": blocking_and_pubsub,
        "500 connections": connections,
        "fork and restart": persistence,
        "replication": replication,
        "benchmark": benchmark("-c", "50"),
        "benchmark -P 16": benchmark("-c", "50", "-P", "16"),
        "io-threads 2": benchmark(
            "-c", "50", "-P", "4", "--threads", "2", count=6000, server_options=IO_THREADS
        ),
    },
)
