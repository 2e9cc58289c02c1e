#!/usr/bin/env python3
"""Which objects of real programs stay in process under `wakeset run`, and why the others leave.

    survey.py [--only WORD]

Each program runs a short load. A row has the objects that its busiest process made in user space,
how many were still there at the end (or were closed there), which part of its events were reported
in process, its waits that ended in process, and the reasons of what has migrated. Programs whose
threads signal each other and do nothing else come first: there the events are those signals.

A measurement: it fails on no figure, but where a program gives no answer.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import sys
import time
import traceback

import twice
from twice import Failure, free_port, require, wait_for

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
HAPROXY = """
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s
listen front
    bind 127.0.0.1:{port}
    server back 127.0.0.1:{back}
"""


def answers(port):
    """Whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ask(port, path="/", count=200):
    """Asks a server by HTTP, with a connection for each question."""
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            require(connection.recv(64).startswith(b"HTTP/1."), "no answer by HTTP")


def stop(room, program):
    program.terminate()
    program.wait(20)


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


def java(room):
    room.run(["java", SOURCES / "Hop.java", SECONDS])


def node(source):
    def run(room):
        text = (SOURCES / "meter.js").read_text() + (SOURCES / source).read_text()
        room.run(["node", "-e", text, SECONDS])

    return run


def python(text):
    return lambda room: room.run([PYTHON, "-c", text])


def asyncio(room):
    room.run([PYTHON, SOURCES / "executor.py", SECONDS])


def ruby(room):
    room.run(["ruby", "-e", RUBY])


def http_server(room):
    """Something that answers by HTTP, without Wakeset."""
    port = free_port()
    command = [PYTHON, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, cwd=room.dir, **quiet)
    wait_for(lambda: answers(port), "the HTTP server")
    return server, port


def curl(room):
    server, port = http_server(room)
    try:
        urls = [f"http://127.0.0.1:{port}/"] * 50
        room.run(["curl", "--parallel", "--silent", "--output", "/dev/null", *urls], seen=False)
    finally:
        server.kill()
        server.wait()


def haproxy(room):
    server, back = http_server(room)
    try:
        port = free_port()
        settings = room.dir / "haproxy.cfg"
        settings.write_text(HAPROXY.format(port=port, back=back))
        program = room.start(["haproxy", "-f", settings])
        wait_for(lambda: answers(port), "haproxy")
        ask(port)
        stop(room, program)
    finally:
        server.kill()
        server.wait()


def redis(room):
    port = free_port()
    program = room.start(["redis-server", "--port", str(port), "--save", ""])
    wait_for(lambda: answers(port), "redis")
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"PING\r\n")
            require(connection.recv(64) == b"+PONG\r\n", "no answer by redis")
    stop(room, program)


def dbus(room):
    address = f"unix:path={room.dir}/bus"
    command = ["dbus-daemon", "--session", "--nofork", f"--address={address}"]
    program = room.start(command)
    wait_for((room.dir / "bus").exists, "the bus")
    names = ["org.freedesktop.DBus", "/", "org.freedesktop.DBus.ListNames"]
    for _ in range(30):
        send = ["dbus-send", f"--bus={address}", "--print-reply", f"--dest={names[0]}", *names[1:]]
        subprocess.run(send, check=True, stdout=subprocess.DEVNULL)
    stop(room, program)


def qemu(room):
    path = room.dir / "monitor"
    options = ["-machine", "none", "-display", "none", "-nodefaults"]
    monitor = ["-qmp", f"unix:{path},server=on,wait=off"]
    program = room.start(["qemu-system-x86_64", *options, *monitor])
    wait_for(path.exists, "QEMU's monitor")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        lines = client.makefile("rw")
        lines.readline()
        for number in range(200):
            execute = "qmp_capabilities" if number == 0 else "query-status"
            lines.write(json.dumps({"execute": execute}) + "\n")
            lines.flush()
            require("return" in json.loads(lines.readline()), "no answer by QEMU")
        lines.write('{"execute": "quit"}\n')
        lines.flush()
        program.wait(20)


# A name, what it needs, and its load.
PROGRAMS = {
    "Java, Selector.wakeup": (["java"], java),
    "Node, postMessage to a worker": (["node"], node("worker.js")),
    "Node, fs.promises.stat": (["node"], node("stat.js")),
    "asyncio, run_in_executor": ([], asyncio),
    "asyncio, after a subprocess": ([], python(SUBPROCESS)),
    "Asio, post": (["g++"], hop_in_c("post.cpp", "", compiler="g++")),
    "ZeroMQ, PAIR inproc": (["gcc"], hop_in_c("zeromq.c", "libzmq", "pair")),
    "ZeroMQ, REQ tcp": (["gcc"], hop_in_c("zeromq.c", "libzmq", "tcp")),
    "GLib, main contexts": (["gcc"], hop_in_c("glib.c", "glib-2.0")),
    "Qt, queued signals": ([], python(QT)),
    "gRPC, Python": ([], python(GRPC)),
    "Ruby, a pipe between threads": (["ruby"], ruby),
    "curl, 50 at a time": (["curl"], curl),
    "redis": (["redis-server"], redis),
    "HAProxy": (["haproxy"], haproxy),
    "dbus-daemon": (["dbus-daemon", "dbus-send"], dbus),
    "QEMU, monitor": (["qemu-system-x86_64"], qemu),
}


def row(name, process):
    reasons = process["migrated_by_reason"].items()
    why = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons) if n) or "–"
    part = process["events_in_process_percent"]
    stay = process["made"] - process["migrated"]
    waits = f"{process['waits_in_process']:,} of {process['waits']:,}"
    events = "–" if part is None else f"{part} % of {process['events']:,}"
    return f"| {name} | {stay} of {process['made']} | {events} | {waits} | {why} |"


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
    heads = ["program", "objects that stay", "events in process", "waits in process"]
    print("| " + " | ".join([*heads, "why others left"]) + " |\n" + "|---" * 5 + "|", flush=True)
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
