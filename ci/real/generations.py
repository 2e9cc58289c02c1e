#!/usr/bin/env python3
"""Generations of workers of a real server under `wakeset run --share`: each worker ends after one
request, and another is forked. The counts must hold all of them, and the memory that they are in
must follow from how many there are at one time.

    ci/real/generations.py [apache|gunicorn] [WORKERS]      apache, 10,000, if not given

Apache forks up to 32 workers a second, gunicorn some six. Not a part of .ci/run, which counts
20,000 processes of a C program. Needs that server and a release build (WAKESET: the path of
`wakeset`, target/release/wakeset if not set).
"""

import concurrent.futures
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import twice

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WAKESET = os.environ.get("WAKESET", str(ROOT / "target/release/wakeset"))
APPLICATION = "def run(environ, start):\n    start('200 OK', [])\n    return [b'ok']\n"
KEPT, MOST = 16, 32
# Clients at one time.
CLIENTS = 8
# The control and a slot, as `CONTROL_BYTES` and `SLOT_BYTES` of stats/area.rs. Slots that have been
# used stay present: a third more than there ever were processes at one time, and a few.
CONTROL, SLOT = 33 * 4096, 9 * 4096
LIMIT = CONTROL + SLOT * ((MOST + 2) * 4 // 3 + 3)

APACHE = """
ServerRoot {dir}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {dir}/apache.pid
ErrorLog {dir}/error.log
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
DefaultRuntimeDir {dir}
StartServers {kept}
MinSpareServers {kept}
MaxSpareServers {most}
MaxRequestWorkers {most}
MaxConnectionsPerChild 1
KeepAlive Off
DocumentRoot {dir}/pages
<Directory "{dir}/pages">
    Require all granted
</Directory>
"""


def apache(room, port):
    (room / "pages").mkdir()
    (room / "pages/index").write_text("ok")
    (room / "apache.conf").write_text(APACHE.format(dir=room, port=port, kept=KEPT,
                                                   most=MOST))
    for path in (room, room / "pages"):
        path.chmod(0o755)
    return ["apache2", "-DFOREGROUND", "-f", str(room / "apache.conf")]


def gunicorn(room, port):
    (room / "application.py").write_text(APPLICATION)
    return ["gunicorn", "--preload", "--max-requests", "1", "--workers", str(KEPT), "--bind",
            f"127.0.0.1:{port}", "--log-level", "critical", "--worker-tmp-dir", "/dev/shm",
            "application:run"]


def ask(port):
    """One request; a worker that ends at the same time may close the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/index")
        return connection.getresponse().read() == b"ok"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def look(runtime, server):
    """The counts, and how much memory they are in."""
    said = subprocess.run([WAKESET, "stats", "--json", str(server.pid)], capture_output=True,
                          text=True, check=True)
    files = (runtime / "wakeset").iterdir()
    return json.loads(said.stdout), sum(path.stat().st_blocks * 512 for path in files)


def main():
    words = sys.argv[1:]
    start = {"apache": apache, "gunicorn": gunicorn}[words.pop(0) if words else "apache"]
    wanted = int(words[0]) if words else 10_000
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        room, port = pathlib.Path(folder), twice.free_port()
        runtime = room / "runtime"
        runtime.mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)
        command = [WAKESET, "run", "--share", "--", *start(room, port)]
        # Apache ends its whole process group.
        server = subprocess.Popen(command, cwd=folder, start_new_session=True)
        try:
            return follow(runtime, server, port, wanted)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def follow(runtime, server, port, wanted):
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        return watch(runtime, server, wanted, lambda: sum(clients.map(ask, [port] * CLIENTS)))


def watch(runtime, server, wanted, ask_all):
    begun, next_look, seen = time.monotonic(), 0, []
    asked = answered = 0
    while True:
        answered += ask_all()
        asked += CLIENTS
        if server.poll() is not None:
            print("the server has ended")
            return 1
        if not answered and time.monotonic() - begun < 30:
            time.sleep(0.1)
            continue
        if time.monotonic() < next_look:
            continue
        counts, memory = look(runtime, server)
        ended = counts["ended"]["processes"]
        seen.append((ended, memory))
        live = len(counts["processes"])
        print(f"{time.monotonic() - begun:6.0f} s: {ended} ended, {live} live, {memory} bytes, "
              f"{answered} of {asked} answered", flush=True)
        if ended >= wanted:
            break
        next_look = time.monotonic() + 10
    missing = counts["not_counted"]["processes"]
    print(f"memory at first: {seen[0][1]} bytes, at the end: {memory}; not counted: {missing}")
    return int(memory > LIMIT or missing > 0 or answered < wanted / 2)


if __name__ == "__main__":
    sys.exit(main())
