#!/usr/bin/env python3
"""What a request costs a server: processor time of its workers, by that of a plain one.

    request_cost.py [--server NAME] [--workers N] [--clients 1,8,64] [--kept] [--pinned]
                    [--sides plain,plain,auto,auto] [--rounds N] [--seconds S]

A server of each side is started, and they are asked in turn, in another order each round. A side is
`plain`, an order of `wakeset run`, or `PATH:ORDER` for the `wakeset` at PATH. Each figure is the
median of its ratios to the first side in the same round; a second server of a side shows what
differs by chance. `--pinned` gives the servers one processor and the clients another.

A measurement: it fails only where an answer is wrong. Needs gcc, and the server.
"""

import argparse
import os
import random
import statistics

import counting
import loads
import servers
import twice

COLUMNS = ("cpu", "rate", "p50", "sleeps")


class Room(twice.Room):
    """A room whose `wakeset` may be another build's."""

    def __init__(self, side, cpus):
        self.path, _, order = side.rpartition(":")
        super().__init__(order != "plain")
        self.cpus = cpus
        self.options = ["--order", order] if self.wakeset else []

    def command(self, argv):
        command = super().command(argv)
        if self.wakeset and self.path:
            command[0] = self.path
        return command

    def start(self, argv, **options):
        return super().start(argv, cpus=self.cpus, **options)


def report(sides, found):
    """A row for each side: the median of the first column, and ratios to the first side."""
    for index, side in enumerate(sides):
        cells = []
        for column in COLUMNS:
            middle = statistics.median(one[index][column] for one in found)
            ratios = [one[index][column] / (one[0][column] or 1) for one in found]
            ratios.sort()
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            ratio = statistics.median(ratios)
            cells.append(f"{middle:,.2f}: {ratio:.3f} ({low:.2f} to {high:.2f})")
        print(f"| {side} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="nginx", choices=servers.KINDS)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--pinned", action="store_true")
    parser.add_argument("--sides", default="plain,plain,auto,auto")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.25)
    chosen = parser.parse_args()
    sides, load = chosen.sides.split(","), loads.Clients()

    def measure(i, clients):
        return counting.under_load(
            load, started[i], clients, chosen.seconds, chosen.kept, sides[i]
        )

    if chosen.pinned:
        os.sched_setaffinity(0, {1})
    rooms = [Room(side, "0" if chosen.pinned else None) for side in sides]
    try:
        kind = servers.KINDS[chosen.server]
        started = [kind.start(room.__enter__(), chosen.workers) for room in rooms]
        for clients in map(int, chosen.clients.split(",")):
            found = []
            for _ in range(chosen.rounds + 1):
                order = random.sample(range(len(sides)), len(sides))
                one = {i: measure(i, clients) for i in order}
                found.append(one)
            print(f"\n{chosen.server}, {chosen.workers} workers, {clients} clients, "
                  f"{'kept' if chosen.kept else 'short'}\n\n| side | {' | '.join(COLUMNS)} |\n"
                  f"|{'---|' * (len(COLUMNS) + 1)}")
            # The first round warms them.
            report(sides, found[1:])
    finally:
        for room in rooms:
            room.__exit__()


if __name__ == "__main__":
    main()
