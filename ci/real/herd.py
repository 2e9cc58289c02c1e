#!/usr/bin/env python3
"""Measures the herd in gunicorn and unicorn with eight workers, plain against `wakeset run`.

    herd.py [--order auto|least|fifo|turns|lifo|kernel] [--rounds N] [--seconds S] [--only WORD]
            [--json FILE] [--busy]

Per request, it counts of the workers alone: calls of accept(2) and how many of them failed, context
switches and how many of them were sleeps, and processor time. It also prints requests per second,
and how many of them the busiest and the least busy worker got. It counts from outside: calls by
perf's tracepoints, switches by /proc. The load comes from one client and from two, each of which
asks again when it has its answer. Both servers run side by side and are asked in turn, so that what
drifts on the machine meets both.

It fails where it does not show that each connection wakes one worker: see LIMITS. With
`--order kernel` it has to fail. It only prints figures that depend on how busy the machine is
(throughput, processor time).

With one client, a second call of accept(2) for some connections is no herd: the client asks again
while the worker that served it is on its way back to its wait. That worker finds the connection, as
does the one that was woken for it, and does not always stand back for long enough. How often the
two meet depends on how long the machine takes to wake a thread on an idle processor; at real-time
priority (`chrt -r 1`) they never do. `--busy` allows for more of it.
"""

import collections
import multiprocessing
import os
import signal
import socket
import sys

import counting
import paired
import twice
import workers
from twice import Failure, require

SERVERS = {"gunicorn": workers.gunicorn, "unicorn": workers.unicorn}
CLIENTS = (1, 2)
REQUEST = b"GET /herd HTTP/1.0\r\n\r\n"
REPLY = f" GET /herd 0 {workers.NOTHING}".encode()

# What is required of the medians: calls of accept(2) per request, by clients, below three quarters
# of plain's where plain has more than 1.5; sleeps, as a part of plain's; and, in fifo, the requests
# of the busiest worker over those of the least busy. With one client, a worker may get none on the
# plain side.
LIMITS = {"accepts": {1: 1.1, 2: 1.1}, "sleeps": 0.5, "spread": {1: 2, 2: 2}}
# With --busy: still far from a herd.
BUSY = {"accepts": {1: 1.5, 2: 1.2}, "sleeps": 0.5, "spread": {1: 4, 2: 4}}


def wrong_with(limits, clients, key, plain, under):
    """What is wrong with these medians, if anything."""
    if key == "accepts":
        most = limits["accepts"][clients]
        if under > most or plain > 1.5 and under > plain * 0.75:
            return "calls of accept(2) per request"
    if key == "sleeps" and under > plain * limits["sleeps"]:
        return "context switches that a worker asked for, per request"
    return None


def client(port, seconds, results):
    """Asks until the time is up: {pid: replies}, or what was wrong."""
    counts = collections.Counter()
    signal.alarm(int(seconds) + 60)
    end = os.times().elapsed + seconds
    try:
        while os.times().elapsed < end:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(REQUEST)
                reply = b""
                while part := connection.recv(4096):
                    reply += part
            head, _, line = reply.partition(b"\r\n\r\n")
            pid, _, rest = line.partition(b" ")
            if b" 200 " not in head.splitlines()[0] or b" " + rest != REPLY:
                results.put(f"wrong reply: {reply[:300]!r}")
                return
            counts[int(pid)] += 1
        results.put(counts)
    except Exception as error:
        results.put(repr(error))


def load(port, clients, seconds):
    """{pid: replies} of all clients."""
    results = multiprocessing.Queue()
    processes = [
        multiprocessing.Process(target=client, args=(port, seconds, results))
        for _ in range(clients)
    ]
    for process in processes:
        process.start()
    got = [results.get(timeout=seconds + 60) for _ in processes]
    for process in processes:
        process.join()
    wrong = [what for what in got if isinstance(what, str)]
    require(not wrong, str(wrong[:1]))
    return sum(got, collections.Counter())


def measure(server, clients, seconds):
    """The figures of one load, and how many requests each worker served. The calls are counted in a
    load of their own, because perf slows what it counts."""
    pids = server.worker_pids()
    before = *counting.switches(pids), counting.processor_seconds(pids)
    served = load(server.port, clients, seconds)
    count = sum(served.values())
    after = *counting.switches(pids), counting.processor_seconds(pids)
    sleeps, switched, spent = ((now - then) / count for then, now in zip(before, after))
    figures = {"sleeps": sleeps, "switches": switched, "cpu": spent * 1e6, "rate": count / seconds}
    calls = counting.Calls(pids)
    more = load(server.port, clients, seconds)
    made, failed = calls.finish()
    # A call that does not fail is a request.
    figures["accepts"] = made / (made - failed)
    figures["failed"] = failed / (made - failed)
    return figures, served + more


UNITS = {
    "accepts": ("accept calls", "/request", False),
    "failed": ("failed accepts", "/request", False),
    "sleeps": ("sleeps", "/request", False),
    "switches": ("switches", "/request", False),
    "cpu": ("processor", "us/request", False),
    "rate": ("rate", "requests/s", True),
}


def program(name, chosen):
    """Rows, and what is wrong with them."""
    rows, wrong = [], []
    limits = BUSY if chosen.busy else LIMITS
    with twice.Room(False) as plain, twice.Room(True) as under:
        under.options = ["--order", chosen.order]
        servers = {room.side: SERVERS[name](room) for room in (plain, under)}
        for server in servers.values():
            load(server.port, 2, 0.3)
        for clients in CLIENTS:
            figures = {side: collections.defaultdict(list) for side in servers}
            served = {side: collections.Counter() for side in servers}
            for n in range(chosen.rounds):
                for wakeset in paired.side_order(n):
                    side = "wakeset" if wakeset else "plain"
                    values, by_worker = measure(servers[side], clients, chosen.seconds)
                    served[side] += by_worker
                    for key, value in values.items():
                        figures[side][key].append(value)
            for key, (what, unit, higher) in UNITS.items():
                sides = [figures[side][key] for side in ("plain", "wakeset")]
                rows.append(
                    paired.row(name, {"clients": clients, "what": what}, unit, *sides, higher)
                )
                paired.print_row(rows[-1])
                medians = [rows[-1][side]["median"] for side in ("kernel", "wakeset")]
                if text := wrong_with(limits, clients, key, *medians):
                    wrong.append(
                        f"{name}, {clients} clients: {text}: {medians[0]:.2f} plain,"
                        f" {medians[1]:.2f} under wakeset"
                    )
            for side, server in servers.items():
                counts = [served[side][pid] for pid in server.worker_pids()]
                ratio = max(counts) / min(counts) if min(counts) else float("inf")
                print(
                    f"{name} {clients} busiest/least busy, {side:<12}"
                    f" {max(counts)}/{min(counts)} = {ratio:.2f}",
                    flush=True,
                )
                if (
                    side == "wakeset"
                    and chosen.order in ("auto", "least", "fifo", "turns")
                    and ratio > limits["spread"][clients]
                ):
                    wrong.append(
                        f"{name}, {clients} clients: the busiest worker got {ratio:.2f} times"
                        " what the least busy did"
                    )
        for server in servers.values():
            server.quit()
    return rows, wrong


def main():
    parser = paired.options(__doc__.splitlines()[0], rounds=5)
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="of each load (default %(default)s)"
    )
    orders = ("auto", "least", "fifo", "turns", "lifo", "kernel")
    parser.add_argument("--order", choices=orders, default="auto")
    parser.add_argument(
        "--busy", action="store_true", help="wider limits, for a machine with other things to do"
    )
    chosen = parser.parse_args()
    names = [name for name in SERVERS if chosen.only in name]
    if not names:
        sys.exit(f"no server's name holds {chosen.only!r}: {', '.join(SERVERS)}")
    missing = [need for need in ("perf", *names) if not twice.find_program(need)]
    if missing:
        must = os.environ.get("WAKESET_REQUIRE_ALL") == "1"
        print(f"{'FAIL' if must else 'skip'} herd: {', '.join(missing)} not installed")
        sys.exit(1 if must else 0)
    rows, wrong = [], []
    paired.print_heading()
    for name in names:
        try:
            more = program(name, chosen)
        except Failure as error:
            more = [], [f"{name}: {error}"]
        rows += more[0]
        wrong += more[1]
    paired.write_json(chosen.json, rows)
    for what in wrong:
        print(f"FAIL herd {what}")
    if not wrong:
        print("ok herd")
    sys.exit(bool(wrong))


main()
