#!/usr/bin/env python3
"""Prints what `matrix.py --json FILE` has measured as the tables of docs/herd-servers.md.

    matrix_table.py [--csv FILE] FILE…

Tables in Markdown: auto beside plain with a connection for each request, the same with kept
connections; every order, whose processor time and rate are divided by plain's; and by how many open
connections differ in each. `--csv` writes every figure, also of plain, as comma-separated values.
"""

import argparse
import csv
import json
import pathlib

ORDERS = ("auto", "least", "fifo", "turns", "lifo")
# When open connections are counted: as they have come, after others have come, at worst meanwhile.
MOMENTS = ("first", "second", "while")
# The figures of a load, as `--csv` names them.
VALUES = {
    "accepts": "accept calls a request",
    "sleeps": "sleeps a request",
    "cpu": "processor µs a request",
    "rate": "requests a second",
    "p50": "p50 µs",
    "p99": "p99 µs",
    "p999": "p99.9 µs",
    "spread": "busiest over least busy",
}


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


def show(heads, lines):
    """A table of lines of a server, a load and cells; a server is named in its first line."""
    if not lines:
        return
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    last = None
    for server, load, cells in lines:
        name, last = "" if server == last else server, server
        print(("| " + " | ".join([name, str(load), *cells]) + " |").replace("|  |", "| |"))
    print()


def show_open(rows):
    """By how many open connections differ, each order in a column."""
    orders, lines = ("plain", *ORDERS), {}
    for row in rows:
        cells = lines.setdefault((row["server"], row["open"]), dict.fromkeys(orders, "–"))
        cells[row["order"]] = ", ".join(str(row[moment]) for moment in MOMENTS)
    heads = ["server", "open connections", *orders]
    show(heads, [(*key, cells.values()) for key, cells in lines.items()])


def write_values(file, rows):
    """Every figure, a line for each server, load and order."""
    with open(file, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["server", "connections", "clients", "order", *VALUES.values()])
        for row in rows:
            load = ["kept" if row["kept"] else "short", row["clients"], row["order"]]
            figures = [row.get(key, "–") for key in VALUES]
            digits = ["" if figure == "–" else f"{float(figure):.4g}" for figure in figures]
            writer.writerow([row["server"], *load, *digits])


def show_loads(loads):
    """The tables of one load, with a connection for each request and with kept ones."""

    def lines(kept, cells):
        return [(*key[:2], cells(rows)) for key, rows in loads.items() if key[2] == kept]

    times = ["sleeps", "processor time", "rate", "p50", "p99", "p99.9"]
    heads = ["server", "clients", "accept calls", *times, "busiest over least busy"]
    show(heads, lines(False, lambda rows: beside_plain(rows, kept=False)))
    show(["server", "clients", *times], lines(True, lambda rows: beside_plain(rows, kept=True)))
    orders = " / ".join(ORDERS)
    heads = ["server", "clients", f"processor time: {orders}", f"rate: {orders}"]
    heads.append(f"busiest over least busy: plain / {orders}")
    if all(order in rows for rows in loads.values() for order in ORDERS):
        show(heads, lines(False, in_each_order))
        show(heads, lines(True, in_each_order))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", metavar="FILE")
    parser.add_argument("files", nargs="+", metavar="FILE")
    chosen = parser.parse_args()
    measured = [json.loads(pathlib.Path(file).read_text()) for file in chosen.files]
    rows = [row for each in measured for row in each["loads"]]
    loads = {}
    for row in rows:
        key = row["server"], row["clients"], row["kept"]
        loads.setdefault(key, {})[row["order"]] = row
    show_loads(loads)
    show_open([row for each in measured for row in each["open"]])
    if chosen.csv:
        write_values(chosen.csv, rows)



main()
