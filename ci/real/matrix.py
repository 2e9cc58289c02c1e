#!/usr/bin/env python3
"""Measures servers whose workers share a listener, plain and in each order of `wakeset run`.

    matrix.py [--only WORD] [--orders auto,least,…] [--clients 1,2,…] [--workers N] [--rounds N]
              [--seconds S] [--open N] [--json FILE]
    matrix.py --short

Besides the orders of `wakeset run`, ORDERS may have `plain` and, for servers that wait in
select(2), `exclusive`: without Wakeset, but with EPOLLEXCLUSIVE (exclusive.c).

For each server, order and number of clients, with a connection for each request and with kept ones,
it prints a row of a Markdown table: calls of accept(2), sleeps and processor time of the workers
per request, requests per second, latencies, and how many requests the busiest worker has
answered for each of the least busy one. Then, for servers that keep connections, by how many the
open connections of the workers differ, when so many were opened one after the other and after they
have come and gone. All sides run side by side and are asked in turn; figures are medians of rounds.

It fails where an answer is wrong or a connection broke. `--short`, for CI, has few workers, loads
of a fifth of a second and the automatic order alone, and also fails where open connections differ.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import statistics
import sys
import time
import traceback

import counting
import loads
import servers
import twice
from twice import Failure, require

ORDERS = ("plain", "auto", "least", "fifo", "turns", "lifo")
# Sides without Wakeset; `exclusive` is what waking one costs at the least, see exclusive.c.
WITHOUT = ("plain", "exclusive")
COLUMNS = ("accepts", "sleeps", "cpu", "rate", "p50", "p99", "p999")
# In the short form, how much 100 open connections may differ after one another, and after a third
# of them has gone and others have come: 1 where the machine does nothing else. Where a worker takes
# whatever it is woken for, it is 6 to 10 over four workers.
OPEN_LIMIT = 4
# A worker of puma's sleeps before it accepts while its threads are busy, in favour of others: in
# ten runs they differed by up to 8.
OPEN_LIMITS = {"puma": 14}


class Side:
    """One server under one order."""

    def __init__(self, kind, order, count, load):
        self.order = order
        self.room = twice.Room(order not in WITHOUT)
        if order == "exclusive":
            library = load.build("exclusive.c", "-shared", "-fPIC")
            self.room.environment = {"LD_PRELOAD": str(library)}
        self.room.options = [] if order in WITHOUT else ["--order", order]
        self.room.__enter__()
        self.figures = collections.defaultdict(list)
        self.served = collections.Counter()
        try:
            self.server = kind.start(self.room, count)
        except BaseException:
            self.room.__exit__()
            raise

    def close(self):
        self.room.__exit__()


def measure(side, load, clients, seconds, kept):
    """One load, and a second one for the calls, because perf slows what it counts."""
    server = side.server
    logged = server.logged() if isinstance(server, servers.Apache) else None
    found = counting.under_load(load, server, clients, seconds, kept, side.order)
    by = found["by"]
    if logged is not None:
        time.sleep(0.05)
        by = {int(pid): n - logged.get(pid, 0) for pid, n in server.logged().items()}
    side.served.update(by)
    for key in ("sleeps", "cpu", "rate", "p50", "p99", "p999"):
        side.figures[key].append(found[key])
    if not kept and twice.find_program("perf"):
        calls = counting.Calls(server.worker_pids())
        requests = servers.requests_of(server, kept)
        load.run(server.port, clients, seconds / 2, requests, kept=kept)
        made, failed = calls.finish()
        side.figures["accepts"].append(made / (made - failed))


def spread_of(side):
    """The busiest worker's requests over the least busy one's."""
    counts = [side.served[pid] for pid in side.server.worker_pids()]
    return f"{max(counts) / min(counts):.2f}" if min(counts) else "–"


def print_row(name, clients, kept, side, rows):
    values = {key: statistics.median(side.figures[key]) for key in COLUMNS if side.figures[key]}
    show = lambda key, digits: f"{values[key]:.{digits}f}" if key in values else ""
    cells = [name, f"{clients}, {'kept' if kept else 'short'}", side.order]
    cells += [show("accepts", 2), show("sleeps", 2), show("cpu", 0), show("rate", 0)]
    cells += [show("p50", 0), show("p99", 0), show("p999", 0), spread_of(side)]
    print("| " + " | ".join(cells) + " |", flush=True)
    row = {"server": name, "clients": clients, "kept": kept, "order": side.order, **values}
    rows.append(row | {"served": dict(side.served), "spread": spread_of(side)})


def measure_all(name, sides, load, chosen, rows):
    kind = servers.KINDS[name]
    keeps = (False, True) if kind.keeps else (False,)
    for clients, kept in [(c, k) for k in keeps for c in chosen.clients]:
        if kept and kind.keeps_one and clients > chosen.workers:
            continue
        for side in sides:
            side.figures.clear()
            side.served.clear()
        for _ in range(chosen.rounds):
            for side in random.sample(sides, len(sides)):
                measure(side, load, clients, chosen.seconds, kept)
        for side in sides:
            print_row(name, clients, kept, side, rows)


def open_connections(name, side, count, workers, rows):
    """How the open connections are shared out: when each has come after the last one was answered,
    after a third of them has gone and as many have come, and at worst while they come and go."""
    kept = loads.Kept(side.server.port)
    try:
        kept.add(count)
        first = kept.spread(workers)
        kept.close_some(count // 3)
        time.sleep(0.05)
        kept.add(count // 3)
        second = kept.spread(workers)
        worst = kept.come_and_go(count // 2, 0.005, workers)
        shares = sorted(kept.by_worker().values())
    finally:
        kept.close()
    figures = {"open": count, "first": first, "second": second, "while": worst}
    print(f"| {name} | {side.order} | {count} | {first} | {second} | {worst} | {shares} |")
    rows.append({"server": name, "order": side.order, **figures})
    return max(first, second)


def one_kind(name, load, chosen, rows, more):
    """Measures a server; rows of open connections go to `more`."""
    sides, kind = [], servers.KINDS[name]
    try:
        for order in chosen.orders:
            sides.append(Side(kind, order, chosen.workers, load))
        for side in sides:
            load.run(side.server.port, 2, 0.1, servers.requests_of(side.server))
        if not chosen.open_only:
            measure_all(name, sides, load, chosen, rows)
        if not kind.keeps or name.startswith("apache"):
            return
        for side in sides:
            for count in (chosen.open, chosen.open + 1):
                most = open_connections(name, side, count, chosen.workers, more)
                # With a lock around accept the lock decides which worker gets it.
                if chosen.short and side.order == "auto" and "mutex" not in name:
                    limit = OPEN_LIMITS.get(name, OPEN_LIMIT)
                    require(most <= limit, f"{side.order}: open connections differ by {most}")
    finally:
        for side in sides:
            side.close()


def words(text):
    return text.split(",")


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="the form for CI")
    parser.add_argument("--only", default="", metavar="WORD", help="a server, or a part of names")
    parser.add_argument("--orders", type=words, default=list(ORDERS))
    parser.add_argument("--clients", type=lambda t: list(map(int, words(t))), default=[1, 2, 8, 64])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--open", type=int, default=100)
    parser.add_argument("--open-only", action="store_true", help="only the open connections")
    parser.add_argument("--json", metavar="FILE")
    chosen = parser.parse_args()
    if chosen.short:
        chosen.orders, chosen.clients, chosen.workers = ["auto"], [2], 4
        chosen.seconds = 0.2
    return chosen


def main():
    twice.clean_up_at_sigterm()
    chosen = options()
    must = os.environ.get("WAKESET_REQUIRE_ALL") == "1"
    load, rows, more, failed = loads.Clients(), [], [], False
    heads = "server clients order accepts sleeps µs rate p50 p99 p99.9 spread".split()
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    for name in servers.KINDS:
        if chosen.only != name and (chosen.only in servers.KINDS or chosen.only not in name):
            continue
        if lacks := servers.missing(servers.KINDS[name]):
            # Debian has it for some machines alone, as in `.ci/run`.
            fails = must and name != "node"
            print(f"{'FAIL' if fails else 'skip'} matrix {name}: {', '.join(lacks)} not installed")
            failed |= fails
            continue
        try:
            one_kind(name, load, chosen, rows, more)
            print(f"ok matrix {name}", flush=True)
        except Failure as error:
            print(f"FAIL matrix {name}: {error}", flush=True)
            failed = True
        except Exception:
            print(f"FAIL matrix {name}:\n{traceback.format_exc()}", flush=True)
            failed = True
    if chosen.json:
        pathlib.Path(chosen.json).write_text(json.dumps({"loads": rows, "open": more}, indent=1))
    sys.exit(failed)


main()
