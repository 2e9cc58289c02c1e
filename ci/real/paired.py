"""Paired, alternating measurements of the same thing plain and under `wakeset run`.

Each round measures both sides one right after the other, in the opposite order every other round,
so that what drifts on the machine meets both. The result of a row is the median of each side, and
the median of the rounds' own ratios, which is the steadier figure where the machine is noisy.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics


def options(description, rounds):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="pairs per row (default %(default)s)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    parser.add_argument(
        "--only", metavar="WORD", default="", help="only the rows whose name holds WORD"
    )
    return parser


def side_order(round_number):
    return (False, True) if round_number % 2 == 0 else (True, False)


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def row(workload, params, unit, kernel, wakeset, higher_is_better=True):
    """A row of the shape `wakeset bench` prints; a ratio over 1 means Wakeset is better."""

    def ratio(plain, under):
        better, worse = (under, plain) if higher_is_better else (plain, under)
        return better / worse if worse else float("nan")

    k, w = summary(kernel), summary(wakeset)
    return {
        "workload": workload,
        "params": params,
        "unit": unit,
        "kernel": k,
        "wakeset": w,
        "ratio": round(ratio(k["median"], w["median"]), 4),
        "paired_ratio": round(statistics.median(map(ratio, kernel, wakeset)), 4),
        "rounds": len(kernel),
    }


def machine():
    model = "unknown processor"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"


def print_row(r):
    name = " ".join([r["workload"], *(str(v) for v in r["params"].values())])

    def spread(side):
        s = r[side]
        return f"{s['median']:>12,.5g} [{s['min']:,.5g}..{s['max']:,.5g}]"

    print(
        f"{name:<44} {spread('kernel'):<34} {spread('wakeset'):<34} {r['ratio']:>7.3f} "
        f"{r['paired_ratio']:>7.3f}  {r['unit']}",
        flush=True,
    )


def print_heading():
    print(machine())
    print(
        f"{'':<44} {'plain: median [min..max]':<34} {'wakeset: median [min..max]':<34}"
        f" {'ratio':>7} {'paired':>7}"
    )


def write_json(path, rows):
    if path:
        pathlib.Path(path).write_text(
            json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n"
        )
