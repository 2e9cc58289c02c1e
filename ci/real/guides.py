#!/usr/bin/env python3
"""Types what pages show of `wakeset` and of servers, word for word.

    ci/real/guides.py

Each `wakeset run -- gunicorn …` of docs/guide-operators.md and docs/herd.md has to serve requests
with eight workers that have the interposer, and to end when it is asked to; what herd.md looks at a
server with has to tell of one under load, and `wakeset inspect` of its herd; `wakeset stats` and
`wakeset top` have to show a run that is there. `PROGRAM ARGS…` and `./server` are a program that
signals between its threads. What differs: ports, which may be taken, process ids, and 1 second in
place of 10.

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
import threading
import urllib.request

import twice
from twice import require

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGES = {
    "guide-operators.md": ["gunicorn"],
    "herd.md": ["gunicorn", "perf", "strace", "pgrep", "ps"],
    "live.md": [],
    "inspect.md": ["gunicorn"],
    "doctor.md": ["nginx"],
}
# What ci/packages types.
ELSEWHERE = ("pip ",)
APPLICATION = """
import os

def application(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
"""
# Two threads that tell each other something, ten times a second, until they are ended. The first
# time leaves a file: by then the library counts, which it does not where it is only mapped.
SIGNALLER = """
import asyncio, pathlib
async def main():
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, pathlib.Path("signalled").touch)
    while True:
        await loop.run_in_executor(None, lambda: None)
        await asyncio.sleep(0.1)
asyncio.run(main())
"""


def commands(page):
    """What stands behind the prompts of a page's blocks, with the lines that go on."""
    found, inside = [], False
    for line in (DOCS / page).read_text().splitlines():
        line = line.strip()
        if line.startswith("```"):
            inside = line == "```console"
        elif inside and line.startswith("$ "):
            found.append(line.removeprefix("$ "))
        elif inside and line.startswith("> "):
            found[-1] += "\n" + line.removeprefix("> ")
    return [command for command in found if not command.startswith(ELSEWHERE)]


def answers(port):
    """The process id of the worker that answers, or None."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as reply:
            return int(reply.read())
    except OSError:
        return None


def start_gunicorn(room, words):
    """A server that has all its workers, and its port."""
    port = twice.free_port()
    (room.dir / "app.py").write_text(APPLICATION)
    bind = f"127.0.0.1:{port}"
    if "--bind" in words:
        words[words.index("--bind") + 1] = bind
    else:
        words = [*words, "-b", bind]
    program = room.start(words)
    workers = int(words[[word in ("-w", "--workers") for word in words].index(True) + 1])
    twice.wait_for(lambda: answers(port), "an answer")
    twice.wait_for(lambda: len(twice.session_pids(program.pid)) == workers + 1, "the workers")
    return program, port


def serve(room, words):
    """A server: asked until every worker has answered, or often enough to know that all could."""
    program, port = start_gunicorn(room, words)
    workers = {answers(port) for _ in range(200)}
    require(None not in workers and workers, f"answers: {workers}")
    require(all(map(twice.interposer_in, workers)), f"{words}: a worker without the library")
    program.send_signal(signal.SIGTERM)
    # It gives a worker that was just starting 30 s to notice.
    room.wait_exit(program, limit=45)


def look_at_herd(room, lines):
    """The lines of a shell that look at a server `$m`: each says something of its eight workers."""
    program, port = start_gunicorn(room, ["gunicorn", "-w", "8", "app:application"])
    over = threading.Event()

    def ask():
        while not over.is_set():
            answers(port)

    client = threading.Thread(target=ask)
    client.start()
    script = [f"m={program.pid}"]
    for line in lines:
        line = line.replace(" 10", " 1")
        if line.startswith("timeout "):
            # The status of what timeout(1) has ended.
            line += " || [ $? -eq 124 ]"
        elif line.startswith("perf "):
            line += " || echo 'sys_enter_accept4: perf may not count here'"
        script += [line, "echo '-- its end'"]
    try:
        said = room.run_plain(["bash", "-e", "-o", "pipefail", "-c", "\n".join(script)])
    finally:
        over.set()
        client.join()
        room.end(program)
    parts = dict(zip(lines, said.split("-- its end\n")))
    for begin, word, times in [
        ("perf", "sys_enter_accept4", 1),
        ("timeout", "accept4", 1),
        ("pgrep -P $m | xargs -I{} grep", "voluntary_ctxt_switches", 8),
        ("ps", "gunicorn", 8),
        ("pgrep -P $m | xargs -I{} sh", "poll_schedule_timeout", 1),
    ]:
        [part] = [part for line, part in parts.items() if line.startswith(begin)]
        require(part.count(word) >= times, f"{begin}\n{said}")


def signaller(room, words):
    """A program that runs on: `wakeset run …` with that in place of PROGRAM ARGS… or `./server`."""
    server = room.dir / "server"
    server.write_text(f"#!{twice.system_python()}\n{SIGNALLER}")
    server.chmod(0o755)
    at = words.index("PROGRAM") if "PROGRAM" in words else words.index("./server")
    require(words[at + 1 :] in (["ARGS…"], ["&"]), f"{words}")
    signalled = room.dir / "signalled"
    signalled.unlink(missing_ok=True)
    program = room.start([*words[:at], "./server"])
    twice.wait_for(signalled.exists, "the program")
    # With --stats the program is a child.
    require(any(map(twice.interposer_in, twice.session_pids(program.pid))), f"{words}: no library")
    return program


def look(room, words, program):
    """`wakeset stats PID`, `wakeset inspect PID` and `wakeset top PID`; the last one on a terminal,
    until the run ends."""
    is_pid = lambda word: word == "PID" or word.isdigit()
    argv = [str(program.pid) if is_pid(word) else word for word in words]
    if words[1] == "stats":
        said = room.run_plain(argv)
        require("process" in said and str(program.pid) in said, said)
        return
    if words[1] == "inspect":
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        # That it has found something is its status, too.
        require(done.returncode == 1 and "1. herd: " in done.stdout, f"{done}")
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
    running, typed, looks = None, commands(page), []
    require(typed, f"{page} shows no command")
    for line in typed:
        words = shlex.split(line, comments=True)
        if words[0] == "wakeset":
            words[0] = twice.wakeset_binary()
        if words[:2] == ["gunicorn", "--workers"]:
            (room.dir / "application.py").write_text(APPLICATION.replace("application(", "run("))
            running, _ = start_gunicorn(room, [word for word in words if word != "&"])
        elif not line.startswith("wakeset "):
            looks.append(line)
        elif "gunicorn" in words:
            serve(room, words)
        elif "PROGRAM" in words or "./server" in words:
            program = signaller(room, words)
            if "--share" in words:
                running = program
            else:
                room.end(program)
        elif words[1] == "doctor":
            require("verdict: can be served" in room.run_plain(words), line)
        elif words[1] in ("stats", "top", "inspect"):
            require(running is not None, f"{line}: of what?")
            look(room, words, running)
        else:
            raise twice.Failure(f"{line}: not known here")
    if looks:
        look_at_herd(room, looks)
    return [f"{len(typed)} commands"]


def main():
    # What --share writes to: a service or a container may have none, or one on a disk.
    with tempfile.TemporaryDirectory(prefix="wakeset-guides-", dir="/dev/shm") as runtime:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        failed = run_pages()
    sys.exit(failed)


def run_pages():
    must, failed = os.environ.get("WAKESET_REQUIRE_ALL") == "1", False
    for page, needs in PAGES.items():
        missing = [need for need in needs if twice.find_program(need) is None]
        if missing:
            print(f"{'FAIL' if must else 'skip'} guides {page}: {', '.join(missing)} not installed")
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
