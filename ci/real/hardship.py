#!/usr/bin/env python3
"""Servers whose workers share a listener, under load, while workers are killed and replaced.

    hardship.py [--seconds S] [--only WORD] [--order ORDER]

For each server, plain and under `wakeset run`, four clients open a connection for each request. A
worker gets a SIGKILL each second, the server is told to reload each ten (where it can), and at the
end to stop while the clients go on. A connection that ends without an answer was held by a worker
that was killed, or was left in a queue that was closed: it fails where there are more of those than
plain and than workers killed times clients, where an answer is wrong or took longer than the bound,
or where a process or a file in /dev/shm is left behind.
"""

import argparse
import contextlib
import os
import signal
import sys
import time

import loads
import servers
import twice
from twice import Failure, require

CLIENTS = 4
# The second of the rescue, and some patience for a busy machine.
BOUND = 2.5
RELOADS = {
    "gunicorn": signal.SIGHUP,
    "unicorn": signal.SIGHUP,
    "uwsgi": signal.SIGHUP,
    "apache": signal.SIGUSR1,
    "nginx": signal.SIGHUP,
    "php-fpm": signal.SIGUSR2,
    "puma": signal.SIGUSR1,
}
# Their masters do not replace a worker that was killed, or end with it.
FRAIL = ("uvicorn", "hypercorn", "node")


def suffer(name, wakeset, order, seconds, clients):
    """Runs one server on one side; what its clients saw, and how many workers were killed."""
    kind, killed = servers.KINDS[name], 0
    before = set(os.listdir("/dev/shm"))
    with twice.Room(wakeset) as room:
        room.options = ["--order", order] if wakeset else []
        server = kind.start(room, 8)
        session = server.program.pid
        program = clients.start(server.port, CLIENTS, seconds + 5, servers.requests_of(server))
        for second in range(seconds):
            time.sleep(1)
            pids = server.worker_pids()
            if name not in FRAIL and pids:
                # It may end by itself in a reload.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[second % len(pids)], signal.SIGKILL)
                killed += 1
            if second % 10 == 5 and name.split()[0] in RELOADS:
                os.kill(server.program.pid, RELOADS[name.split()[0]])
        require(server.program.poll() is None, "the server has ended")
        os.kill(server.program.pid, server.stop)
        twice.wait_for(lambda: server.program.poll() is not None, "the end of the server", limit=90)
        figures = loads.finish(program)
        twice.wait_for(lambda: not twice.session_pids(session), "the end of all workers", limit=30)
    left = set(os.listdir("/dev/shm")) - before
    require(not left, f"left in /dev/shm: {left}")
    require(not figures["wrong"], f"wrong answers: {figures}")
    return figures, killed


def check(name, chosen, clients):
    lines = []
    plain, killed = suffer(name, False, "", chosen.seconds, clients)
    under, _ = suffer(name, True, chosen.order, chosen.seconds, clients)
    for side, figures in (("plain", plain), (chosen.order, under)):
        lines.append(
            f"| {name} | {side} | {figures['answers']} | {figures['broken']} |"
            f" {figures['max'] / 1e6:.2f} |"
        )
    print("\n".join(lines), flush=True)
    # Each worker that was killed may have held one of each client, and so may the last to stop.
    most = max(plain["broken"], (killed + 2) * CLIENTS)
    require(under["broken"] <= most, f"{under['broken']} connections broke, {most} may")
    longest = max(BOUND, plain["max"] / 1e6 * 1.5)
    require(under["max"] / 1e6 <= longest, f"an answer took {under['max'] / 1e6:.2f} s")


def main():
    twice.clean_up_at_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--order", default="auto")
    chosen = parser.parse_args()
    clients, failed = loads.Clients(), False
    print("| server | side | answers | broken | longest s |\n|---|---|---|---|---|")
    for name, kind in servers.KINDS.items():
        # A name that is part of others is that server alone.
        is_other = chosen.only != name and chosen.only in servers.KINDS
        if is_other or chosen.only not in name or servers.missing(kind):
            continue
        try:
            check(name, chosen, clients)
            print(f"ok hardship {name}", flush=True)
        except Failure as error:
            print(f"FAIL hardship {name}: {error}", flush=True)
            failed = True
    sys.exit(failed)


main()
