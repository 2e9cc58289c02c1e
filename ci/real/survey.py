#!/usr/bin/env python3
"""Which objects of real programs stay in process under `wakeset run`, and why the others leave.

    survey.py [--only WORD]

Each program runs a short load. A row has the objects that its busiest process made in user space,
how many were still there at the end (or were closed there), which part of its signals and of its
events stayed in process, its waits that ended in process, and the reasons of what has migrated.
Programs whose threads signal each other and do nothing else come first: there the events are those
signals.

A measurement: it fails on no figure, but where a program gives no answer.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import traceback

import survey_servers as servers
import twice
from twice import Failure, require, wait_for

SOURCES = pathlib.Path(__file__).parents[2] / "crates/wakeset-cli/src/bench/programs/hop/sources"
PYTHON = twice.system_python()
SECONDS = "0.5"

QT = """
import time
from PyQt5.QtCore import QCoreApplication, QObject, QThread, pyqtSignal, Qt

class End(QObject):
    said = pyqtSignal()
    def __init__(self, seconds):
        super().__init__()
        self.until = time.monotonic() + seconds
    def answer(self):
        if time.monotonic() < self.until:
            self.said.emit()
        else:
            QCoreApplication.quit()

app, thread = QCoreApplication([]), QThread()
one, other = End(0.5), End(0.6)
other.moveToThread(thread)
one.said.connect(other.answer, Qt.QueuedConnection)
other.said.connect(one.answer, Qt.QueuedConnection)
thread.start()
one.answer()
app.exec_()
thread.quit()
thread.wait()
"""
GRPC = """
import grpc, time
from concurrent import futures

def handle(request, context):
    return request

method = grpc.unary_unary_rpc_method_handler(handle)
handlers = grpc.method_handlers_generic_handler("a.B", {"C": method})
server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((handlers,))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    call = channel.unary_unary("/a.B/C")
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert call(b"x") == b"x"
server.stop(0).wait()
"""
SUBPROCESS = """
import asyncio, time
async def main():
    program = await asyncio.create_subprocess_exec("/bin/true")
    await program.wait()
    end = time.monotonic() + 0.5
    loop = asyncio.get_running_loop()
    while time.monotonic() < end:
        await loop.run_in_executor(None, int)
asyncio.run(main())
"""
RUBY = """
reader, writer = IO.pipe
thread = Thread.new { 2000.times { reader.readpartial(1) } }
2000.times { writer.write('x'); writer.flush }
thread.join
"""
POOL = """
import asyncio, multiprocessing, time
from concurrent.futures import ProcessPoolExecutor
async def main():
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        assert await loop.run_in_executor(pool, abs, -1) == 1
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            await loop.run_in_executor(None, int)
asyncio.run(main())
"""


def compiled(room, compiler, source, *options, flags):
    path = room.dir / "program"
    command = [compiler, "-O2", "-w", *options, SOURCES / source, "-o", path, *flags]
    subprocess.run(list(map(str, command)), check=True)
    return path


def flags_of(library):
    said = subprocess.run(
        ["pkg-config", "--cflags", "--libs", library], check=True, capture_output=True, text=True
    )
    return said.stdout.split()


def hop_in_c(source, library, *arguments, compiler="gcc"):
    def run(room):
        flags = flags_of(library) if library else []
        meter = ["-include", SOURCES / "meter.c"] if source.endswith(".c") else []
        program = compiled(room, compiler, source, "-pthread", *meter, flags=flags)
        room.run([program, *arguments, SECONDS])

    return run


def tokio(room):
    for name, source in (("Cargo.toml", "tokio.toml"), ("src/main.rs", "tokio.rs")):
        path = room.dir / "hop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((SOURCES / source).read_text())
    here = room.dir / "hop"
    unset = ("CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    build = ["cargo", "build", "--quiet", "--release", "--offline"]
    subprocess.run(build, cwd=here, check=True, env=environment)
    room.run([here / "target/release/hop", SECONDS])


def java(room):
    room.run(["java", SOURCES / "Hop.java", SECONDS])


def node(source):
    def run(room):
        text = (SOURCES / "meter.js").read_text() + (SOURCES / source).read_text()
        room.run(["node", "-e", text, SECONDS])

    return run


def python(text):
    return lambda room: room.run([PYTHON, "-c", text])


def executor(before=""):
    parts = (SOURCES / "meter.py", SOURCES / "executor.py")
    text = before + "".join(part.read_text() for part in parts)
    return lambda room: room.run([PYTHON, "-c", text, SECONDS])


def ruby(room):
    room.run(["ruby", "-e", RUBY])


MARIADB = ["mariadbd", "mariadb-install-db", "mariadb", "mariadb-slap"]
# Less memory than the table has.
SMALL = "--innodb-buffer-pool-size=8M", "--innodb-use-native-aio=1"
SCAN = "select count(v) from t"

# A name, what it needs, and its load.
PROGRAMS = {
    "Java, Selector.wakeup": (["java"], java),
    "Node, postMessage to a worker": (["node"], node("worker.js")),
    "Node, fs.promises.stat": (["node"], node("stat.js")),
    "asyncio, run_in_executor": ([], executor()),
    "asyncio, after a subprocess": ([], python(SUBPROCESS)),
    "asyncio, beside a pool of processes": ([], python(POOL)),
    "uvloop, run_in_executor": ([], executor("import uvloop; uvloop.install()\n")),
    "tokio, two current_thread runtimes": (["cargo"], tokio),
    "Asio, post": (["g++"], hop_in_c("post.cpp", "", compiler="g++")),
    "ZeroMQ, PAIR inproc": (["gcc"], hop_in_c("zeromq.c", "libzmq", "pair")),
    "ZeroMQ, REQ tcp": (["gcc"], hop_in_c("zeromq.c", "libzmq", "tcp")),
    "GLib, main contexts": (["gcc"], hop_in_c("glib.c", "glib-2.0")),
    "Qt, queued signals": ([], python(QT)),
    "gRPC, Python": ([], python(GRPC)),
    "Ruby, a pipe between threads": (["ruby"], ruby),
    "curl, 50 at a time": (["curl"], servers.curl),
    "redis": (["redis-server"], servers.redis),
    "memcached": (["memcached"], servers.memcached),
    "PostgreSQL": (["setpriv"], servers.postgres),
    "MariaDB": (MARIADB, servers.mariadb()),
    "MariaDB, a pool of threads": (MARIADB, servers.mariadb("--thread-handling=pool-of-threads")),
    "MariaDB, reading by io_uring": (MARIADB, servers.mariadb(*SMALL, query=SCAN, count=80)),
    "HAProxy": (["haproxy"], servers.haproxy),
    "dbus-daemon": (["dbus-daemon", "dbus-send"], servers.dbus),
    "QEMU, monitor": (["qemu-system-x86_64"], servers.qemu),
}


def row(name, process):
    reasons = process["migrated_by_reason"].items()
    why = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons) if n) or "–"
    parts = [process["signals_in_process_percent"], process["events_in_process_percent"]]
    stay = process["made"] - process["migrated"]
    waits = f"{process['waits_in_process']:,} of {process['waits']:,}"
    signals, events = ["–" if part is None else f"{part} %" for part in parts]
    counted = f"{events} of {process['events']:,}" if process["events"] else events
    columns = [name, f"{stay} of {process['made']}", signals, counted, waits, why]
    return f"| {' | '.join(columns)} |"


def survey(name, run):
    with twice.Room(True) as room:
        counts = room.dir / "counts.json"
        room.options = ["--stats-file", str(counts)]
        run(room)
        wait_for(counts.exists, "the counts", limit=5)
        processes = json.loads(counts.read_text())["processes"]
    require(processes, "no process has counted anything")
    print(row(name, max(processes, key=lambda process: process["made"])), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="WORD")
    chosen = parser.parse_args()
    failed = False
    stays = ["objects that stay", "signals in process", "events in process", "waits in process"]
    heads = ["program", *stays, "why others left"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|", flush=True)
    for name, (needs, run) in PROGRAMS.items():
        if chosen.only not in name:
            continue
        if lacks := [program for program in needs if not twice.find_program(program)]:
            print(f"skip {name}: {', '.join(lacks)} not installed", file=sys.stderr)
            continue
        try:
            survey(name, run)
        except (Failure, OSError, subprocess.SubprocessError):
            print(f"FAIL {name}:\n{traceback.format_exc()}", file=sys.stderr)
            failed = True
    sys.exit(failed)


main()
