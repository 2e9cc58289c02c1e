#!/usr/bin/env python3
"""Compares ways to share out connections among eight workers, with quick, slow and stopped ones.

    instead.py [--seconds S] [--only WORD]… [--rounds N] [--cases CASE,…] [--rate R] [--short]

The server is `prefork_modes.py`. Its workers wait in select(2), with EPOLLEXCLUSIVE, or in event
loops, plain and in orders of `wakeset run`; have listeners of their own (SO_REUSEPORT), chosen by
hash or at random; or are behind HAProxy with `balance leastconn`, of requests or (`tcp`) of
connections. For each of these cases it prints the rate and the latencies of eight clients, or 64
kept connections for event loops. With a rate, 64 clients begin so many requests a second, and a
latency counts from when its request was due; with `--short` each has a connection of its own for
event loops, too.

| case | |
|---|---|
| quick | all requests are short |
| blocked | every three seconds a request takes two, of which its worker sleeps |
| stopped | one worker is stopped for 100 ms each second, as by a garbage collector |
| uneven | one request in eight takes 10 ms of processor time |
"""

import argparse
import collections
import os
import pathlib
import random
import signal
import socket
import statistics
import sys
import threading
import time

import loads
import servers
import twice
from twice import require

WORKERS = 8
HAPROXY = """
global
    maxconn 4000
defaults
    mode {mode}
    timeout connect 10s
    timeout client 60s
    timeout server 60s
    {keep}
frontend front
    bind 127.0.0.1:{port}
    default_backend workers
backend workers
    balance leastconn
"""
SYNC = ("select", "exclusive")
ORDERS = ("plain", "auto", "least", "fifo", "turns", "lifo")
WAYS = {
    **{f"{mode}, {order}": (mode, order) for mode in SYNC for order in ORDERS},
    "SO_REUSEPORT": ("reuseport", "plain"),
    "SO_REUSEPORT, BPF": ("bpf", "plain"),
    "HAProxy leastconn": ("ports", "haproxy"),
    **{f"events, {order}": ("events", order) for order in ORDERS},
    **{f"select events, {o}": ("events select", o) for o in ("plain", "auto", "least")},
    "events, HAProxy leastconn": ("events ports", "haproxy"),
    "events, HAProxy tcp leastconn": ("events ports", "haproxy tcp"),
}
CASES = ("quick", "blocked", "stopped", "uneven")


class Way:
    """The server in one of the ways."""

    def __init__(self, name, short=False):
        mode, order = WAYS[name]
        balanced = order.startswith("haproxy")
        self.name, self.kept = name, mode.startswith("events") and not short
        self.room = twice.Room(order != "plain" and not balanced)
        self.room.options = ["--order", order] if self.room.wakeset else []
        self.room.__enter__()
        script = pathlib.Path(__file__).with_name("prefork_modes.py")
        port = free_ports(WORKERS) if "ports" in mode else twice.free_port()
        argv = [twice.system_python(), script, mode.replace(" ", "_"), port, WORKERS]
        self.server = servers.Quiet(self.room, argv, port, count=WORKERS)
        self.port = self.front(port, "tcp" if "tcp" in order else "http") if balanced else port

    def front(self, first, mode):
        """Starts HAProxy; its port."""
        port = twice.free_port()
        keep = "" if self.kept or mode == "tcp" else "option httpclose"
        text = HAPROXY.format(port=port, mode=mode, keep=keep)
        for n in range(WORKERS):
            text += f"    server s{n} 127.0.0.1:{first + n}\n"
        (self.room.dir / "haproxy.cfg").write_text(text)
        self.room.start(["haproxy", "-db", "-f", self.room.dir / "haproxy.cfg"])
        twice.wait_for(lambda: servers.listens(port), "HAProxy")
        return port

    def close(self):
        self.room.__exit__()


def free_ports(count):
    """The first of so many ports in a row, below those that clients get."""
    first = random.randrange(10_000, 30_000)
    try:
        for port in range(first, first + count):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
    except OSError:
        return free_ports(count)
    return first


def ask_to_block(port, end):
    """A request that takes two seconds, every three seconds, once the others have connected."""
    time.sleep(0.5)
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(servers.http("/block"))
            while connection.recv(4096):
                pass
        time.sleep(1)


def stop_and_go(pid, end):
    """As a garbage collector that stops everything."""
    while time.monotonic() < end:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.9)


def measure(way, case, clients, seconds, rate):
    requests = [servers.http(kept=way.kept)]
    if case == "uneven":
        requests = requests * 7 + [servers.http("/long", kept=way.kept)]
    end = time.monotonic() + seconds
    beside = {
        "blocked": lambda: ask_to_block(way.port, end),
        "stopped": lambda: stop_and_go(way.server.worker_pids()[0], end),
    }.get(case)
    count = 64 if way.kept or rate else 8
    program = clients.start(way.port, count, seconds, requests, kept=way.kept, rate=rate)
    thread = threading.Thread(target=beside) if beside else None
    if thread:
        thread.start()
    figures = loads.finish(program)
    if thread:
        thread.join()
    require(not figures["broken"] and not figures["wrong"], f"{way.name}, {case}: {figures}")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    split = lambda text: text.split(",")
    parser.add_argument("--only", action="append", metavar="WORD", help="ways whose name holds one")
    parser.add_argument("--cases", type=split, default=CASES)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--short", action="store_true")
    chosen = parser.parse_args()
    missing = [need for need in ("haproxy", "gcc") if not twice.find_program(need)]
    if missing:
        sys.exit(f"{', '.join(missing)} not installed")
    clients, names = loads.Clients(), [
        name for name in WAYS if any(word in name for word in chosen.only or [""])
    ]
    ways = []
    try:
        for name in names:
            ways.append(Way(name, chosen.short))
        print("| case | way | answers/s | p50 ms | p99 ms | p99.9 ms | longest ms |")
        print("|---|---|---|---|---|---|---|")
        for case in chosen.cases:
            found = collections.defaultdict(list)
            for n in range(chosen.rounds):
                for way in ways if n % 2 == 0 else reversed(ways):
                    found[way.name].append(measure(way, case, clients, chosen.seconds, chosen.rate))
            for name, figures in found.items():
                middle = lambda key: statistics.median(each[key] for each in figures)
                rate = statistics.median(each["answers"] / each["seconds"] for each in figures)
                times = [f"{middle(key) / 1000:.2f}" for key in ("p50", "p99", "p999", "max")]
                print(f"| {case} | {name} | {rate:.0f} | " + " | ".join(times) + " |", flush=True)
    finally:
        for way in ways:
            way.close()


main()
