"""The clients of `load.c`, and connections that stay open."""

import collections
import json
import pathlib
import random
import re
import socket
import subprocess
import tempfile
import time

import twice
from twice import require


class Clients:
    """The program of `load.c`, built in a directory of its own."""

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="wakeset-load-")
        # Workers that give up root load from it.
        pathlib.Path(self.dir.name).chmod(0o755)
        self.program = self.build("load.c")
        self.files = {}

    def build(self, name, *options):
        """Builds a source that lies beside this one."""
        source = pathlib.Path(__file__).with_name(name)
        built = pathlib.Path(self.dir.name) / source.stem
        argv = [twice.find_program("gcc"), "-O2", "-Wall", *options, "-o", built, source]
        subprocess.run(argv, check=True)
        return built

    def file_of(self, request):
        if request not in self.files:
            path = pathlib.Path(self.dir.name) / f"request.{len(self.files)}"
            path.write_bytes(request)
            self.files[request] = path
        return self.files[request]

    def start(self, port, clients, seconds, requests, kept=False, rate=0):
        how = ("kept" if kept else "short") + (f":{rate}" if rate else "")
        argv = [self.program, port, clients, seconds, how, *map(self.file_of, requests)]
        return subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, text=True)

    def run(self, *arguments, **options):
        return finish(self.start(*arguments, **options))


def finish(program):
    """What it has measured; `by` by pid."""
    text = program.communicate(timeout=120)[0]
    require(program.returncode == 0 and text, f"the clients ended with {program.returncode}")
    figures = json.loads(text)
    figures["by"] = {int(pid): count for pid, count in figures["by"].items()}
    return figures


class Kept:
    """Connections that stay open, each opened when the last one has been answered."""

    def __init__(self, port, seed=1):
        self.port, self.random = port, random.Random(seed)
        self.open = []

    def add(self, count, pause=0.001):
        for _ in range(count):
            time.sleep(pause)
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            connection.sendall(b"GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.open.append((connection, pid_in(connection)))

    def close_some(self, count):
        for _ in range(count):
            connection, _ = self.open.pop(self.random.randrange(len(self.open)))
            connection.close()

    def come_and_go(self, count, pause, workers):
        """One goes by lot and another comes, so many times; the greatest difference meanwhile."""
        worst = 0
        for _ in range(count):
            self.close_some(1)
            time.sleep(pause)
            self.add(1, pause)
            worst = max(worst, self.spread(workers))
        return worst

    def by_worker(self):
        return collections.Counter(pid for _, pid in self.open)

    def spread(self, workers):
        """By how many the connections of so many workers differ; one that has none has no entry."""
        counts = sorted(self.by_worker().values(), reverse=True)
        return counts[0] - (counts[-1] if len(counts) >= workers else 0)

    def close(self):
        for connection, _ in self.open:
            connection.close()
        self.open = []


def pid_in(connection):
    """The first number of the answer's body, which comes whole or in chunks."""
    reply = b""
    while True:
        part = connection.recv(8192)
        require(part, f"closed after {reply[:200]!r}")
        reply += part
        head, _, body = reply.partition(b"\r\n\r\n")
        if b"chunked" in head.lower():
            body = body.partition(b"\r\n")[2]
        if found := re.match(rb"(\d+)[^\d]", body):
            return int(found[1])
