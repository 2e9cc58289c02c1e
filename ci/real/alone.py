#!/usr/bin/env python3
"""Servers whose listener is nobody else's, plain and under `wakeset run`: PostgreSQL and sshd.

    alone.py [--rounds N]

Their master alone waits for connections, and forks (sshd: and executes itself) for each. So there
is no herd and no order to choose, and all that can be asked is that nothing changes. In turn, each
side answers new connections, is told to reload, answers more, and is stopped. It prints connections
a second and processor time for each, medians of rounds, and fails where an answer is wrong or
missing, where a side ends with another status than the other, or where a process is left behind.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

import twice
from twice import Failure, require

CONNECTIONS = 100


class Postgres:
    """Asked by pgbench, with a connection for each query."""

    stop, has_children, folder = signal.SIGINT, True, None

    def __init__(self, room, *before):
        """`before`: a command that the server is started by, as the user that it has."""
        self.room, self.port, data = room, twice.free_port(), room.dir / "data"
        as_user = []
        if os.geteuid() == 0:
            # It does not run as root.
            user, group = twice.unprivileged_user()
            data.mkdir()
            shutil.chown(data, user, group)
            as_user = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--"]
        options = ["-D", data, "-U", "wake", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8"]
        room.run_plain([*(as_user or ["env"]), postgres("initdb"), *options], limit=120)
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        argv = [*as_user, *before, postgres("postgres"), "-D", data, "-p", self.port]
        argv += [word for item in settings.items() for word in ("-c", "=".join(item))]
        self.program = room.start(argv)
        self.query = room.dir / "query"
        self.query.write_text("select 6 * 7;\n")
        twice.wait_for(self.is_up, "PostgreSQL")

    def is_up(self):
        argv = [postgres("pg_isready"), "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(argv, stdout=subprocess.DEVNULL, check=False).returncode == 0

    def ask(self, connections):
        argv = [postgres("pgbench"), "-n", "-C", "-c", 4, "-t", connections // 4]
        argv += ["-h", "127.0.0.1", "-p", self.port, "-U", "wake", "-f", self.query, "postgres"]
        said = self.room.run_plain(argv, limit=60)
        done = re.search(r"actually processed: (\d+)/(\d+)", said)
        require(done and done[1] == done[2] == str(connections), said)
        require("failed transactions: 0 " in said, said)


class Sshd:
    """Asked for its banner, which a child says that has executed sshd anew."""

    stop, has_children = signal.SIGTERM, False
    # It demands that this is there, and puts nothing into it.
    folder = pathlib.Path("/run/sshd")

    def __init__(self, room):
        self.port, key = twice.free_port(), room.dir / "key"
        room.run_plain(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
        argv = ["sshd", "-D", "-e", "-f", "/dev/null", "-h", key, "-p", self.port]
        argv += ["-o", "ListenAddress=127.0.0.1", "-o", "PidFile=none"]
        self.program = room.start([*argv, "-o", "MaxStartups=1000"])
        twice.wait_for(self.is_up, "sshd")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def is_up(self):
        try:
            self.connect().close()
            return True
        except OSError:
            return False

    def ask(self, connections):
        for _ in range(connections):
            with self.connect() as connection:
                banner = connection.makefile("rb").readline()
            require(banner.startswith(b"SSH-2.0-OpenSSH"), f"{banner!r}")


def postgres(name):
    """The path of one of its programs, which Debian keeps apart by version."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else name


SERVERS = {
    "postgresql": (Postgres, [postgres("postgres"), postgres("pgbench"), "setpriv"]),
    "sshd": (Sshd, ["sshd", "ssh-keygen"]),
}


def stat_of(pid):
    """What follows the name in `/proc/PID/stat`; nothing of a process that has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] in "ZX" else fields


def processor_ms(pid):
    """Of a process and of its children that have ended."""
    return sum(map(int, stat_of(pid)[11:15])) * 1000 / os.sysconf("SC_CLK_TCK")


def descendants(pid):
    """Pids with the times at which they began, also of those that lead a session of their own."""
    every = {int(name): stat_of(name) for name in os.listdir("/proc") if name.isdigit()}
    found, parents = {}, [pid]
    while parents:
        parent = parents.pop()
        for child, fields in every.items():
            if fields and int(fields[1]) == parent:
                found[child] = fields[19]
                parents.append(child)
    return found


class Side:
    def __init__(self, kind, wakeset):
        self.room, self.rates, self.times = twice.Room(wakeset), [], []
        self.made = kind.folder if kind.folder and not kind.folder.exists() else None
        try:
            if self.made:
                self.made.mkdir()
            self.server = kind(self.room)
            self.room.require_interposer(self.server.program.pid)
        except BaseException:
            self.tidy()
            raise

    def measure(self):
        program = self.server.program
        before, begun = processor_ms(program.pid), time.monotonic()
        self.server.ask(CONNECTIONS)
        self.rates.append(CONNECTIONS / (time.monotonic() - begun))
        # The last child is reaped a moment later.
        time.sleep(0.1)
        self.times.append((processor_ms(program.pid) - before) / CONNECTIONS)
        program.send_signal(signal.SIGHUP)
        # sshd executes itself anew, and nobody else knows when PostgreSQL has read its files.
        time.sleep(0.3)
        require(program.poll() is None, f"a reload ended it: {program.returncode}")
        twice.wait_for(self.server.is_up, "an answer after a reload")
        time.sleep(0.1)

    def end(self):
        """With which status."""
        program = self.server.program
        noted = descendants(program.pid)
        require(noted or not self.server.has_children, "its children cannot be seen")
        program.send_signal(self.server.stop)
        status = program.wait(20)
        # A number may be another process's by now.
        goes_on = lambda pid: stat_of(pid)[19:20] == [noted[pid]]
        left = lambda: [*filter(goes_on, noted), *twice.session_pids(program.pid)]
        twice.wait_for(lambda: not left(), "the end of its children")
        return status

    def tidy(self):
        self.room.__exit__()
        if self.made and self.made.exists():
            self.made.rmdir()


def check(name, kind, rounds):
    sides = []
    try:
        for wakeset in (False, True):
            sides.append(Side(kind, wakeset))
        for n in range(rounds):
            for side in sides if n % 2 == 0 else reversed(sides):
                side.measure()
        for side in sides:
            rate, ms = statistics.median(side.rates), statistics.median(side.times)
            print(f"| {name} | {side.room.side} | {rate:.0f} | {ms:.2f} |", flush=True)
        statuses = [side.end() for side in sides]
        require(statuses[0] == statuses[1], f"they end with {statuses}")
    finally:
        for side in sides:
            side.tidy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds, failed = parser.parse_args().rounds, False
    must = os.environ.get("WAKESET_REQUIRE_ALL") == "1"
    print("| server | | connections a second | processor ms for each |\n|---|---|---|---|")
    for name, (kind, needs) in SERVERS.items():
        if missing := [need for need in needs if not twice.find_program(need)]:
            print(f"{'FAIL' if must else 'skip'} alone {name}: {', '.join(missing)} not installed")
            failed |= must
            continue
        try:
            check(name, kind, rounds)
            print(f"ok alone {name}", flush=True)
        except (Failure, OSError, subprocess.SubprocessError) as error:
            print(f"FAIL alone {name}: {error} {getattr(error, 'stdout', '')}", flush=True)
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
