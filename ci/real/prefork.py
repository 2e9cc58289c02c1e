#!/usr/bin/env python3
"""Servers whose workers share a listening socket give the same replies, whichever worker is woken.

What each server shows of listener groups: select (gunicorn, unicorn, also beside a pipe),
level-triggered sets (gunicorn's threads, uwsgi), edge-triggered and exclusive ones (nginx), a
blocking accept or a poll of one listener (Apache), workers that are killed and started anew, and
sets and listeners that are inherited across fork.

Under `wakeset run` a client that asks one thing after the other has to meet the workers in turn.
"""

import os
import signal
import time

import twice
import workers
from twice import Failure, require, wait_for
from workers import WORKERS, Load

TURNS = 12


def replies(room, server, sent, kept):
    """Four clients, with and without kept connections."""
    lines = []
    for keep in (False, True) if kept else (False,):
        load = Load(server, clients=4, each=40, sent=sent, kept=keep)
        count = load.finish()
        require(not load.broken, f"{len(load.broken)} connections broke: {load.broken[:3]}")
        require(set(load.by_worker) <= set(server.worker_pids()), "a reply from nobody")
        lines.append(f"kept {keep}: {count} replies")
    return lines


def is_in_order(order, counts):
    """Whether the workers' answers, the least first, are what this order makes of one client."""
    if order == "fifo":
        return counts[0] >= TURNS / 3 and counts[-1] <= TURNS * 2
    return order != "lifo" or sum(counts[-2:]) >= sum(counts) / 2


def spread(room, server, order):
    """One client: in fifo each worker gets something, and in lifo few workers are kept busy. The
    order `turns` gives 32 in a row to one worker, which is too many to tell. Where other programs
    take the processors, a worker that is awake may be faster than the one that was woken: three
    tries."""
    wrong = []
    while len(wrong) < 3:
        load = Load(server, clients=1, each=TURNS * WORKERS, sent=[None])
        count = load.finish()
        require(not load.broken, f"{len(load.broken)} connections broke: {load.broken[:3]}")
        counts = sorted(load.by_worker.get(pid, 0) for pid in server.worker_pids())
        if not room.wakeset or is_in_order(order, counts):
            return [f"one after the other: {count} replies"]
        wrong.append(counts)
    raise Failure(f"not in the order {order}: {wrong}")


def check(start, sent=None, kept=False, order="fifo", even=True):
    def run(room):
        room.options = ["--order", order]
        server = start(room)
        lines = replies(room, server, sent or workers.bodies(), kept)
        lines += spread(room, server, order if even else "kernel")
        server.quit()
        return lines

    return run


def changes(start, reload=signal.SIGHUP):
    """Workers are killed and replaced under load, one by one and all at once."""

    def run(room):
        server = start(room)
        load = Load(server, clients=3, each=100_000, sent=[None, b"small"])
        killed = 0
        for _ in range(6):
            victim = server.worker_pids()[killed % WORKERS]
            os.kill(victim, signal.SIGKILL)
            killed += 1
            wait_for(
                lambda: victim not in server.worker_pids() and server.is_up(), "another worker"
            )
            time.sleep(0.05)
        old = server.worker_pids()
        os.kill(server.program.pid, reload)
        wait_for(lambda: not set(old) & set(server.worker_pids()) and server.is_up(), "new workers")
        load.hurry.set()
        count = load.finish()
        require(count > 50, f"hardly any load: {count}")
        # Each worker held one connection at most.
        require(
            len(load.broken) <= killed, f"{len(load.broken)} connections broke: {load.broken[:3]}"
        )
        server.room.require_interposer(*server.worker_pids())
        last = Load(server, clients=2, each=20, sent=[None])
        line = f"afterwards: {last.finish()} replies, {len(last.broken)} broken"
        server.quit()
        return [line]

    return run


def two_listeners(room):
    """A gunicorn worker with two listeners and a unix socket selects all of them."""
    workers.python_app(room)
    port, other = twice.free_port(), twice.free_port()
    binds = [
        word
        for bind in (f"127.0.0.1:{port}", f"127.0.0.1:{other}", "unix:socket")
        for word in ("-b", bind)
    ]
    server = workers.Server(room, ["gunicorn", "-w", WORKERS, *binds, "app:application"], port)
    loads = [
        Load(server, clients=2, each=60, sent=[None, b"small"], port=at) for at in (port, other)
    ]
    lines = [f"{load.finish()} replies, {len(load.broken)} broken" for load in loads]
    server.quit()
    return lines


SYNC = workers.gunicorn
PROGRAMS = {
    "gunicorn": {
        "sync": check(SYNC),
        "sync, turns": check(SYNC, order="turns"),
        "sync, lifo": check(SYNC, order="lifo"),
        "sync, kernel": check(SYNC, order="kernel"),
        "sync, changes": changes(SYNC),
        "three listeners": two_listeners,
        "gthread": check(lambda room: SYNC(room, "-k", "gthread", "--threads", 3), kept=True),
    },
    "unicorn": {"replies": check(workers.unicorn), "changes": changes(workers.unicorn)},
    "uwsgi_python3": {"replies": check(workers.uwsgi)},
    "apache2": {"replies": check(workers.apache, kept=True)},
    "nginx": {
        "replies": check(workers.nginx, sent=[None], kept=True),
        "multi_accept": check(
            lambda room: workers.nginx(room, "multi_accept on;"), sent=[None], kept=True
        ),
    },
}
CHECKS = {
    f"{program} {name}": run for program, checks in PROGRAMS.items() for name, run in checks.items()
}
twice.main("prefork", {name: [name.split()[0]] for name in CHECKS}, CHECKS)
