#!/usr/bin/env python3
"""Measures what the adaptive spin costs where it gains nothing, and what --spin 50 gains.

idle: programs that wait for ten seconds: processor time and context switches of that time.
servers: memcached and gunicorn: requests a second, and processor time of a request.
told: redis with one client, plain against `wakeset run --spin 50`: the time of a request.

A measurement: it fails on no figure. Servers keep to one processor and clients to another, where
there are two.
"""

import os
import pathlib
import re
import socket
import sys
import time

import paired
import twice

SERVER_CPU, CLIENT_CPU = ("0", "1") if (os.cpu_count() or 1) > 1 else (None, None)
WAIT = 10
JAVA = """
public class Wait {
    public static void main(String[] arguments) throws Exception {
        java.nio.channels.Selector.open().select();
    }
}
"""
GLIB = """
#include <glib.h>
int main(void)
{
    g_main_loop_run(g_main_loop_new(NULL, FALSE));
}
"""
ASYNCIO = "import asyncio; asyncio.run(asyncio.sleep(3600))"
NODE = "setInterval(() => {}, 3600000)"
TICKS = """
import asyncio
async def tick():
    while True:
        await asyncio.sleep(0.01)
asyncio.run(tick())
"""
APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


def threads(pid):
    return list(pathlib.Path(f"/proc/{pid}/task").iterdir())


def processor_seconds(pids):
    stats = [task / "schedstat" for pid in pids for task in threads(pid)]
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9


def switches(pids):
    texts = [(task / "status").read_text() for pid in pids for task in threads(pid)]
    return sum(int(n) for text in texts for n in re.findall(r"ctxt_switches:\s*(\d+)", text))


def idle_programs(room):
    """What is installed, by name."""
    python = twice.system_python()
    found = {
        "asyncio": [python, "-I", "-c", ASYNCIO],
        "asyncio, a tick each 10 ms": [python, "-I", "-c", TICKS],
    }
    if twice.find_program("node"):
        found["Node"] = ["node", "-e", NODE]
    if twice.find_program("javac"):
        (room.dir / "Wait.java").write_text(JAVA)
        room.run_plain(["javac", "-d", room.dir, room.dir / "Wait.java"], limit=60)
        found["Java"] = ["java", "-cp", room.dir, "Wait"]
    if twice.find_program("pkg-config") and pathlib.Path("/usr/include/glib-2.0").exists():
        (room.dir / "wait.c").write_text(GLIB)
        flags = room.run_plain(["pkg-config", "--cflags", "--libs", "glib-2.0"]).split()
        room.run_plain(["cc", "-o", room.dir / "wait", room.dir / "wait.c", *flags])
        found["GLib"] = [room.dir / "wait"]
    return found


def idle(figures, order):
    with twice.Room(False) as plain, twice.Room(True) as under:
        running = []
        for name, argv in idle_programs(plain).items():
            for wakeset in order:
                room = under if wakeset else plain
                running.append((name, wakeset, room, room.start([str(word) for word in argv])))
        # All have begun to wait by then.
        time.sleep(3)
        before = [(processor_seconds([p.pid]), switches([p.pid])) for *_, p in running]
        time.sleep(WAIT)
        for (name, wakeset, room, p), (spent, switched) in zip(running, before):
            room.require_interposer(p.pid)
            spent = (processor_seconds([p.pid]) - spent) * 1e6 / WAIT
            figures.add("idle", name, "us/s", wakeset, spent)
            switched = (switches([p.pid]) - switched) / WAIT
            figures.add("idle switches", name, "1/s", wakeset, switched)


def client(room, argv):
    if CLIENT_CPU:
        argv = ["taskset", "-c", CLIENT_CPU, *argv]
    return room.run_plain([str(word) for word in argv], limit=120)


def measure(figures, name, wakeset, pids, load, requests):
    before, begin = processor_seconds(pids), time.monotonic()
    load()
    elapsed = time.monotonic() - begin
    spent = (processor_seconds(pids) - before) * 1e6 / requests
    figures.add(name, "time", "us/request", wakeset, elapsed * 1e6 / requests)
    figures.add(name, "cpu", "us/request", wakeset, spent)


def memcached(figures, wakeset, requests):
    with twice.Room(wakeset) as room:
        port = twice.free_port()
        user = ["-u", twice.unprivileged_user()[0]] if os.geteuid() == 0 else []
        argv = ["memcached", "-l", "127.0.0.1", "-p", port, "-t", 2, *user]
        server = room.start([str(word) for word in argv], cpus=SERVER_CPU)
        twice.wait_for(lambda: connect(port), "memcached")
        room.require_interposer(server.pid)
        sockets = [connect(port) for _ in range(16)]
        allowed = os.sched_getaffinity(0)
        if CLIENT_CPU:
            os.sched_setaffinity(0, {int(CLIENT_CPU)})

        def load():
            for _ in range(requests // len(sockets)):
                for each in sockets:
                    each.sendall(b"get nothing\r\n")
                for each in sockets:
                    twice.require(each.recv(64) == b"END\r\n", "an answer")

        measure(figures, "memcached", wakeset, [server.pid], load, requests)
        os.sched_setaffinity(0, allowed)
        for each in sockets:
            each.close()


def connect(port):
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=5)
    except OSError:
        return None


def gunicorn(figures, wakeset, requests):
    with twice.Room(wakeset) as room:
        port = twice.free_port()
        (room.dir / "app.py").write_text(APP)
        argv = ["gunicorn", "-w", "2", "-b", f"127.0.0.1:{port}", "app:app"]
        server = room.start(argv, cpus=SERVER_CPU, env={"PYTHONPATH": str(room.dir)})
        twice.wait_for(lambda: connect(port), "gunicorn")
        time.sleep(1)
        pids = twice.session_pids(server.pid)
        room.require_interposer(*pids)
        url = f"http://127.0.0.1:{port}/"

        def load():
            text = client(room, ["ab", "-q", "-c", 8, "-n", requests, url])
            twice.require("Failed requests:        0" in text, text)

        measure(figures, "gunicorn", wakeset, pids, load, requests)


def told(figures, wakeset, requests):
    with twice.Room(wakeset) as room:
        room.options = ["--spin", "50"]
        port = twice.free_port()
        argv = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", ""]
        server = room.start([str(word) for word in argv], cpus=None)
        twice.wait_for(lambda: connect(port), "redis-server")
        room.require_interposer(server.pid)
        benchmark = ["redis-benchmark", "-p", port, "-c", 1, "-n", requests, "-t", "get", "--csv"]
        measure(
            figures,
            "redis, one client, --spin 50",
            wakeset,
            [server.pid],
            lambda: room.run_plain([str(word) for word in benchmark], limit=120),
            requests,
        )


class Figures:
    """What was measured: {(workload, parameter): (unit, {side: values})}."""

    def __init__(self):
        self.rows = {}

    def add(self, workload, parameter, unit, wakeset, value):
        entry = self.rows.setdefault((workload, parameter), (unit, {False: [], True: []}))
        entry[1][wakeset].append(value)


def main():
    parser = paired.options(__doc__.splitlines()[0], rounds=5)
    chosen = parser.parse_args()
    # Name, what it takes, and what measures one side of a round.
    parts = [
        ("memcached", "memcached", lambda figures, side: memcached(figures, side, 32000)),
        ("gunicorn", "gunicorn", lambda figures, side: gunicorn(figures, side, 2000)),
        ("told", "redis-server", lambda figures, side: told(figures, side, 20000)),
    ]
    figures = Figures()
    for n in range(chosen.rounds):
        print(f"round {n + 1} of {chosen.rounds}", file=sys.stderr, flush=True)
        if chosen.only in "idle":
            idle(figures, paired.side_order(n))
        for name, program, part in parts:
            if chosen.only in name and twice.find_program(program):
                for side in paired.side_order(n):
                    part(figures, side)
    rows = []
    paired.print_heading()
    for (workload, parameter), (unit, values) in figures.rows.items():
        rows.append(
            paired.row(workload, {"of": parameter}, unit, values[False], values[True], False)
        )
        paired.print_row(rows[-1])
    paired.write_json(chosen.json, rows)


main()
