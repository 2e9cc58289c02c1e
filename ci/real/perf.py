#!/usr/bin/env python3
"""perf bench epoll: completes, exits 0 and prints plausible rates, with many flag combinations."""

import re

import twice

COMBINATIONS = [
    "wait -t 1",
    "wait -t 2",
    "wait -t 2 -m",
    "wait -t 2 -E",
    "wait -t 2 -S",
    "wait -t 2 -N 2",
    "wait -t 2 -B",
    "wait -t 2 -R",
    "wait -t 2 -m -E -N 2",
    "wait -t 8 -f 8",
    "ctl -t 1",
    "ctl -t 2",
    "ctl -t 2 -R",
    "ctl -t 2 -N 2",
]


def bench(flags):
    def check(room):
        text = room.run(["perf", "bench", "epoll", *flags.split(), "-r", "1"], limit=30)
        threads = int(re.search(r"-t (\d+)", flags)[1])
        rows = re.findall(r"^\[thread +\d+\] fdmap: .* \[ (.*) \]$", text, re.M)
        twice.require(len(rows) == threads, f"{len(rows)} threads reported\n{text}")
        averages = [int(n) for n in re.findall(r"^Averaged (\d+) ", text, re.M)]
        twice.require(averages and min(averages) > 0, f"implausible averages\n{text}")
        # The rates differ from run to run; the rest of what it prints must not.
        return [
            re.sub(r"0x[0-9a-f]+|\d+\.\d+|\d+", "N", line).strip() for line in text.splitlines()
        ]

    return check


twice.main("perf", ["perf"], {flags: bench(flags) for flags in COMBINATIONS}, limit=60)
