#!/usr/bin/env python3
"""Prints what `matrix.py --json FILE` has measured as the tables of docs/herd-servers.md.

    matrix_table.py FILE…

Tables in Markdown: auto beside plain with a connection for each request, and with kept
connections. Where other orders were measured, too, the same two loads in every order, whose
processor time and rate are divided by plain's.
"""

import json
import pathlib
import sys

ORDERS = ("auto", "least", "fifo", "turns", "lifo")


def figure(value):
    """A figure of plain's or auto's own: two digits that say something."""
    return f"{value:.2f}" if value < 0.995 else f"{value:.1f}"


def by_plain(rows, order, key):
    """An order's figure divided by plain's."""
    if not rows["plain"].get(key):
        return "–"
    return f"{rows[order][key] / rows['plain'][key]:.2f}"


def evenness(row):
    """The busiest worker's requests over the least busy one's; a dash where one had none."""
    return "–" if row["spread"] == "–" else f"{float(row['spread']):.1f}"


def both(rows, of):
    return ", ".join(of(rows[order]) for order in ("plain", "auto"))


def beside_plain(rows, kept):
    """The cells of one load of the first two tables."""
    first = [] if kept else [both(rows, lambda row: f"{row['accepts']:.2f}")]
    first.append(both(rows, lambda row: figure(row["sleeps"])))
    first += [by_plain(rows, "auto", key) for key in ("cpu", "rate", "p50", "p99", "p999")]
    return first if kept else first + [both(rows, evenness)]


def in_each_order(rows):
    """The cells of one load of the third table."""
    cells = [" / ".join(by_plain(rows, order, key) for order in ORDERS) for key in ("cpu", "rate")]
    return cells + [" / ".join(evenness(rows[order]) for order in ("plain", *ORDERS))]


def show(heads, loads, cells):
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    last = None
    for (server, clients), rows in loads:
        name, last = "" if server == last else server, server
        line = "| " + " | ".join([name, str(clients), *cells(rows)]) + " |"
        print(line.replace("|  |", "| |"))
    print()


def main():
    loads = {}
    for file in sys.argv[1:]:
        for row in json.loads(pathlib.Path(file).read_text())["loads"]:
            key = row["server"], row["clients"], row["kept"]
            loads.setdefault(key, {})[row["order"]] = row
    chosen = lambda kept: [(key[:2], rows) for key, rows in loads.items() if key[2] == kept]
    times = ["sleeps", "processor time", "rate", "p50", "p99", "p99.9"]
    heads = ["server", "clients", "accept calls", *times, "busiest over least busy"]
    show(heads, chosen(False), lambda rows: beside_plain(rows, kept=False))
    show(["server", "clients", *times], chosen(True), lambda rows: beside_plain(rows, kept=True))
    orders = " / ".join(ORDERS)
    heads = ["server", "clients", f"processor time: {orders}", f"rate: {orders}"]
    heads.append(f"busiest over least busy: plain / {orders}")
    if all(order in rows for rows in loads.values() for order in ORDERS):
        show(heads, chosen(False), in_each_order)
        show(heads, chosen(True), in_each_order)


main()
