"""Counts what the processes of a server do, from outside: calls of accept(2) by perf's tracepoints,
context switches and processor time by /proc, over all of their threads. `under_load` puts that
beside what the clients of one load have seen.
"""

import os
import pathlib
import signal
import subprocess

import servers
import twice
from twice import require


class Calls:
    """Counts the calls of accept(2) and those that fail, in some processes, by perf."""

    def __init__(self, pids):
        events = []
        for call in ("accept", "accept4"):
            events += [
                "-e",
                f"syscalls:sys_enter_{call}",
                "-e",
                f"syscalls:sys_exit_{call}",
                "--filter",
                "ret<0",
            ]
        argv = [
            twice.find_program("perf"),
            "stat",
            "-x",
            ",",
            *events,
            "-p",
            ",".join(map(str, pids)),
        ]
        self.perf = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        twice.wait_for(lambda: self.open_counters() >= 4 * len(pids), "perf to count")

    def open_counters(self):
        try:
            links = [os.readlink(f) for f in pathlib.Path(f"/proc/{self.perf.pid}/fd").iterdir()]
        except OSError:
            return 0
        return sum("perf_event" in link for link in links)

    def finish(self):
        """(calls, failed calls)."""
        self.perf.send_signal(signal.SIGINT)
        text = self.perf.communicate(timeout=30)[1]
        counts = {"enter": 0, "exit": 0}
        for line in text.splitlines():
            count, *fields = line.split(",")
            require(count.isdigit() or count == "<not counted>" or not fields, f"perf: {line}")
            if count.isdigit():
                counts[fields[1].split("_")[1]] += int(count)
        require(counts["enter"] > counts["exit"], f"perf has counted nothing:\n{text}")
        return counts["enter"], counts["exit"]


def tasks(pids):
    """The threads of some processes."""
    return [task for pid in pids for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]


def read(path):
    """What is in it; zeros for a thread that has ended."""
    try:
        return path.read_text()
    except OSError:
        return "0"


def switches(pids):
    """(context switches that the workers asked for, all of them). The others say how busy the
    machine is."""
    lines = [line for task in tasks(pids) for line in read(task / "status").splitlines()]
    asked, other = (
        sum(int(l.split()[1]) for l in lines if l.startswith(k))
        for k in ("voluntary", "nonvoluntary")
    )
    return asked, asked + other


def processor_seconds(pids):
    return sum(int(read(task / "schedstat").split()[0]) for task in tasks(pids)) / 1e9


def under_load(load, server, clients, seconds, kept, name):
    """One load on a server: sleeps and processor time (µs) of its workers for an answer, what the
    clients have seen, and how many answers each worker has given (`by`). `name`: whose answers are
    wrong, if they are."""
    pids = server.worker_pids()
    before = switches(pids)[0], processor_seconds(pids)
    got = load.run(server.port, clients, seconds, servers.requests_of(server, kept), kept=kept)
    after = switches(pids)[0], processor_seconds(pids)
    require(not got["broken"] and not got["wrong"], f"{name}: {got}")
    count = max(got["answers"], 1)
    slept, took = (now - then for now, then in zip(after, before))
    seen = {key: got[key] for key in ("p50", "p99", "p999", "by")}
    rate = count / got["seconds"]
    return seen | {"sleeps": slept / count, "cpu": took / count * 1e6, "rate": rate}
