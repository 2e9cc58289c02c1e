#!/usr/bin/env python3
"""Types what the guides show of `wakeset` in indented lines, word for word.

    ci/real/guides.py

Each `wakeset run -- gunicorn …` of docs/guide-operators.md and docs/herd.md has to serve requests
with eight workers that have the interposer, and to end when it is asked to; `wakeset stats` and
`wakeset top` have to show a run that is there. `PROGRAM ARGS…` is a program that signals between
its threads, and `PID` that program's. One more word is put in: the port, which may be taken.

Environment: as for twice.py.
"""

import os
import pathlib
import pty
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.request

import twice
from twice import require

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGES = ["guide-operators.md", "herd.md"]
APPLICATION = """
import os

def application(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
"""
# Two threads that tell each other something, ten times a second, until they are ended.
SIGNALLER = """
import asyncio
async def main():
    loop = asyncio.get_running_loop()
    while True:
        await loop.run_in_executor(None, lambda: None)
        await asyncio.sleep(0.1)
asyncio.run(main())
"""


def commands(page):
    """The lines of a page that are indented by four spaces and begin with `wakeset`."""
    found = []
    for line in (DOCS / page).read_text().splitlines():
        if line.startswith("    wakeset "):
            found.append(line.split(" # ")[0].strip())
    return found


def serve(room, words):
    """A server: asked until every worker has answered, or often enough to know that all could."""
    port = twice.free_port()
    (room.dir / "app.py").write_text(APPLICATION)
    at = words.index("gunicorn") + 1
    program = room.start([*words[:at], "-b", f"127.0.0.1:{port}", *words[at:]])

    def answer():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as reply:
                return int(reply.read())
        except OSError:
            return None

    twice.wait_for(answer, "an answer")
    twice.wait_for(lambda: len(twice.session_pids(program.pid)) == 9, "eight workers")
    workers = {answer() for _ in range(200)}
    require(None not in workers and workers, f"answers: {workers}")
    require(all(map(twice.interposer_in, workers)), f"{words}: a worker without the library")
    program.send_signal(signal.SIGTERM)
    # It gives a worker that was just starting 30 s to notice.
    room.wait_exit(program, limit=45)


def signaller(room, words):
    """A program that runs on: `wakeset run …` with that in place of PROGRAM ARGS…"""
    at = words.index("PROGRAM")
    require(words[at + 1 :] == ["ARGS…"], f"{words}")
    argv = [twice.system_python(), "-c", SIGNALLER]
    program = room.start([*words[:at], *argv])
    # With --stats the program is a child.
    inside = lambda: any(map(twice.interposer_in, twice.session_pids(program.pid)))
    twice.wait_for(inside, "the program")
    return program


def look(room, words, program):
    """`wakeset stats PID` and `wakeset top PID`; the latter on a terminal, until the run ends."""
    argv = [str(program.pid) if word == "PID" else word for word in words]
    if words[1] == "stats":
        said = room.run_plain(argv)
        require("process" in said and str(program.pid) in said, said)
        return
    screen, terminal = pty.openpty()
    top = subprocess.Popen(argv, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    seen = b""
    while str(program.pid).encode() not in seen:
        seen += os.read(screen, 4096)
    room.end(program)
    try:
        while os.read(screen, 4096):
            pass
    except OSError:
        pass
    require(top.wait(20) == 0, "top's status")
    os.close(screen)


def run_page(room, page):
    shared, typed = None, 0
    for line in commands(page):
        words = [twice.wakeset_binary(), *shlex.split(line)[1:]]
        typed += 1
        if "gunicorn" in words:
            serve(room, words)
        elif "PROGRAM" in words:
            program = signaller(room, words)
            if "--share" in words:
                shared = program
            else:
                room.end(program)
        elif words[1] in ("stats", "top"):
            require(shared is not None, f"{line}: of which run?")
            look(room, words, shared)
        else:
            raise twice.Failure(f"{line}: not known here")
    require(typed >= 4, f"{page}: only {typed} commands")
    return [f"{typed} commands"]


def main():
    # What --share writes to: a service or a container may have none, or one on a disk.
    with tempfile.TemporaryDirectory(prefix="wakeset-guides-", dir="/dev/shm") as runtime:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        failed = run_pages()
    sys.exit(failed)


def run_pages():
    must, failed = os.environ.get("WAKESET_REQUIRE_ALL") == "1", False
    for page in PAGES:
        if twice.find_program("gunicorn") is None:
            print(f"{'FAIL' if must else 'skip'} guides {page}: gunicorn not installed")
            failed = failed or must
            continue
        try:
            said = twice.run_side(lambda room: run_page(room, page), False, twice.CHECK_LIMIT)
            print(f"ok guides {page} ({said[0]})", flush=True)
        except (twice.Failure, twice.Watchdog) as error:
            print(f"FAIL guides {page}: {error}", flush=True)
            failed = True
        except subprocess.CalledProcessError as error:
            print(f"FAIL guides {page}: {error}\n{error.stdout.decode()}", flush=True)
            failed = True
    return failed


if __name__ == "__main__":
    main()
