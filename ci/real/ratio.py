#!/usr/bin/env python3
"""Measures redis and nginx plain against `wakeset run`: throughput, processor time, memory.

A measurement: it fails on no figure. The client is plain on both sides. With two processors or
more, server and client each keep to their own, which takes the scheduler's choices out of it.
Both servers are started anew for each round, so that a lucky layout of memory lasts one round.
"""

import os
import pathlib
import re
import socket
import sys

import paired
import twice

SERVER_CPU, CLIENT_CPU = ("0", "1") if (os.cpu_count() or 1) > 1 else (None, None)
REDIS_TESTS = ["ping_mbulk", "set", "get", "incr", "lpush", "mset"]

NGINX = """
{user}
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    root {dir};
    keepalive_requests 10000000;
    client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
    uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
    upstream itself {{ server 127.0.0.1:{port}; keepalive 32; }}
    server {{
        listen 127.0.0.1:{port};
        location = /return {{ return 200 "hello\\n"; }}
        location = /proxied {{
            proxy_pass http://itself/return;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
}}
"""


def processor_seconds(pids):
    # schedstat counts nanoseconds, where stat counts ticks of a hundredth of a second.
    stats = [s for pid in pids for s in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(s.read_text().split()[0]) for s in stats) / 1e9


def memory(pids):
    """(resident, private dirty) KiB of the largest of the processes."""
    found = []
    for pid in pids:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        found.append(
            tuple(int(re.search(rf"^{k}: +(\d+)", text, re.M)[1]) for k in ("Rss", "Private_Dirty"))
        )
    return max(found)


class Figures:
    """What was measured: {(workload, parameter): {side: values}}, and each row's unit and sense."""

    def __init__(self):
        self.rows = {}

    def add(self, workload, parameter, unit, wakeset, value, higher_is_better=True):
        entry = self.rows.setdefault(
            (workload, parameter), ({False: [], True: []}, unit, higher_is_better)
        )
        entry[0][wakeset].append(value)


def client(room, argv):
    if CLIENT_CPU:
        argv = ["taskset", "-c", CLIENT_CPU, *argv]
    return room.run_plain(argv, limit=120)


def measure(figures, workload, sides, parameter, load, unit):
    """One pair: `load(side)` returns (rate, requests) of a run against one of the two servers."""
    for wakeset in sides["order"]:
        _, pids = sides[wakeset]
        before = processor_seconds(pids)
        rate, requests = load(sides[wakeset])
        spent = processor_seconds(pids) - before
        figures.add(workload, parameter, unit, wakeset, rate)
        figures.add(
            f"{workload} cpu", parameter, "us/request", wakeset, spent * 1e6 / requests, False
        )


def redis_round(figures, order, only, requests):
    with twice.Room(False) as plain, twice.Room(True) as under:
        sides = {"order": order}
        for wakeset, room in ((False, plain), (True, under)):
            port = twice.free_port()
            room.start(
                [
                    "redis-server",
                    "--port",
                    port,
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--dir",
                    room.dir,
                ],
                cpus=SERVER_CPU,
            )
            twice.wait_for(lambda: b"PONG" in ask_redis(port), "redis-server")
            pid = int(re.search(rb"process_id:(\d+)", ask_redis(port, b"INFO server\r\n"))[1])
            room.require_interposer(pid)
            sides[wakeset] = (port, [pid])

        for test in REDIS_TESTS:
            if only not in f"redis {test}":
                continue

            def load(side, test=test):
                argv = [
                    "redis-benchmark",
                    "-p",
                    side[0],
                    "-P",
                    1,
                    "-c",
                    50,
                    "-n",
                    requests,
                    "-t",
                    test,
                    "--csv",
                ]
                text = client(plain, argv)
                return float(text.splitlines()[-1].replace('"', "").split(",")[1]), requests

            measure(figures, "redis", sides, test, load, "requests/s")
        add_memory(figures, "redis", sides)


def ask_redis(port, request=b"PING\r\n"):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
            s.sendall(request)
            return s.recv(65536)
    except OSError:
        return b""


def nginx_round(figures, order, only, seconds):
    with twice.Room(False) as plain, twice.Room(True) as under:
        sides = {"order": order}
        for wakeset, room in ((False, plain), (True, under)):
            port = twice.free_port()
            user = "user {} {};".format(*twice.unprivileged_user()) if os.geteuid() == 0 else ""
            (room.dir / "nginx.conf").write_text(NGINX.format(dir=room.dir, port=port, user=user))
            (room.dir / "small").write_bytes(b"x" * 1024)
            room.start(
                [
                    "nginx",
                    "-p",
                    room.dir,
                    "-e",
                    room.dir / "error.log",
                    "-c",
                    room.dir / "nginx.conf",
                ],
                cpus=SERVER_CPU,
            )
            twice.wait_for(lambda: nginx_worker(room), "nginx")
            pid = nginx_worker(room)
            room.require_interposer(pid)
            sides[wakeset] = (port, [pid])

        for path in ("small", "return", "proxied"):
            if only not in f"nginx {path}":
                continue

            def load(side, path=path):
                url = f"http://127.0.0.1:{side[0]}/{path}"
                text = client(plain, ["wrk", "-t", 1, "-c", 40, "-d", f"{seconds}s", url])
                twice.require("Non-2xx" not in text and "Socket errors" not in text, text)
                return float(re.search(r"Requests/sec: +([\d.]+)", text)[1]), int(
                    re.search(r"(\d+) requests in", text)[1]
                )

            measure(figures, "nginx", sides, path, load, "requests/s")
        add_memory(figures, "nginx", sides)


def nginx_worker(room):
    try:
        master = int((room.dir / "nginx.pid").read_text())
        return int(pathlib.Path(f"/proc/{master}/task/{master}/children").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def add_memory(figures, workload, sides):
    for wakeset in (False, True):
        resident, private = memory(sides[wakeset][1])
        figures.add(f"{workload} memory", "resident", "KiB", wakeset, resident, False)
        figures.add(f"{workload} memory", "private dirty", "KiB", wakeset, private, False)


def main():
    parser = paired.options(__doc__.splitlines()[0], rounds=7)
    parser.add_argument(
        "--requests", type=int, default=100000, help="per redis run (default %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=int, default=2, help="per nginx run (default %(default)s)"
    )
    chosen = parser.parse_args()
    missing = [
        p for p in ("redis-server", "redis-benchmark", "nginx", "wrk") if not twice.find_program(p)
    ]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}")
    figures = Figures()
    for n in range(chosen.rounds):
        print(f"round {n + 1} of {chosen.rounds}", file=sys.stderr, flush=True)
        if any(chosen.only in f"redis {test}" for test in REDIS_TESTS):
            redis_round(figures, paired.side_order(n), chosen.only, chosen.requests)
        if any(chosen.only in f"nginx {path}" for path in ("small", "return", "proxied")):
            nginx_round(figures, paired.side_order(n), chosen.only, chosen.seconds)
    rows = []
    paired.print_heading()
    for (workload, parameter), (values, unit, higher) in figures.rows.items():
        rows.append(
            paired.row(workload, {"of": parameter}, unit, values[False], values[True], higher)
        )
        paired.print_row(rows[-1])
        if parameter == "resident":
            grown = rows[-1]["wakeset"]["median"] - rows[-1]["kernel"]["median"]
            rows[-1]["grown_kib"] = grown
            print(f"{'':<44} {grown:+,.0f} KiB: {'within' if grown <= 2048 else 'NOT within'} 2 MB")
    paired.write_json(chosen.json, rows)


main()
