#!/usr/bin/env python3
"""Measures perf bench epoll plain against `wakeset run`. A measurement: it fails on no figure."""

import re

import paired
import twice

COMBINATIONS = [
    "wait -t 1",
    "wait -t 2",
    "wait -t 2 -m",
    "wait -t 2 -E",
    "wait -t 2 -S",
    "wait -t 2 -N 2",
    "wait -t 2 -m -E",
    "ctl -t 1",
    "ctl -t 2",
]


def rate(flags, seconds, wakeset):
    with twice.Room(wakeset) as room:
        text = room.run(
            ["perf", "bench", "epoll", *flags.split(), "-r", seconds], limit=seconds + 30
        )
    # ctl prints one average each for ADD, MOD and DEL.
    return sum(int(n) for n in re.findall(r"^Averaged (\d+) ", text, re.M))


parser = paired.options(__doc__, rounds=5)
parser.add_argument("--seconds", type=int, default=1, help="of one run (default %(default)s)")
chosen = parser.parse_args()
rows = []
paired.print_heading()
for flags in COMBINATIONS:
    if chosen.only not in flags:
        continue
    rates = {False: [], True: []}
    for n in range(chosen.rounds):
        for wakeset in paired.side_order(n):
            rates[wakeset].append(rate(flags, chosen.seconds, wakeset))
    unit = "ops/s per thread" if flags.startswith("wait") else "ops per thread"
    rows.append(paired.row("perf bench epoll", {"flags": flags}, unit, rates[False], rates[True]))
    paired.print_row(rows[-1])
paired.write_json(chosen.json, rows)
