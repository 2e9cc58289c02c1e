"""Runs each check of a real program twice, plain and under `wakeset run`, and compares.

A check is a function that takes a `Room`, starts what it needs there and returns a transcript:
lines which hold everything the program answered and nothing that differs between two plain runs
(no port, no pid, no time). It raises `Failure` when an answer is wrong on its own. The two
transcripts must be equal.

Each check prints one line: `ok NAME`, `FAIL NAME: why` or `skip NAME: why`. `run`, beside this
file, counts those lines.

Environment: WAKESET is the path of the wakeset binary (without it, the newest one that cargo has
built is taken); WAKESET_REQUIRE_ALL=1 turns a missing program into a failure.
"""

import difflib
import grp
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

LIBRARY = "libwakeset_preload.so"
# Daemons live in sbin on Debian, which is not on every user's path.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
# How long a whole check may take on one side before the watchdog ends it.
CHECK_LIMIT = 120


class Failure(Exception):
    """An answer that is wrong whatever the other side said."""


class Watchdog(BaseException):
    """The check has used up its time. Not an Exception, so that no check swallows it."""


def find_program(name):
    """The path of a program, or None."""
    return shutil.which(name, path=SEARCH_PATH)


def system_python():
    """The distribution's python3: a version manager's stand-in would be a shell script."""
    return shutil.which("python3", path=os.confstr("CS_PATH")) or sys.executable


def wakeset_binary():
    """The wakeset binary to test: $WAKESET, else the newest of cargo's."""
    given = os.environ.get("WAKESET")
    if given:
        return os.path.abspath(given)
    root = pathlib.Path(__file__).resolve().parents[2]
    target = root / os.environ.get("CARGO_TARGET_DIR", "target")
    built = [p for p in (target / "release/wakeset", target / "debug/wakeset") if p.exists()]
    if not built:
        sys.exit("no wakeset binary: set WAKESET or run `cargo build --release --workspace`")
    return str(max(built, key=lambda p: p.stat().st_mtime))


def require(condition, message):
    if not condition:
        raise Failure(message)


def wait_for(condition, what, limit=20.0, pause=0.01):
    """Polls until `condition()` is true and returns its value."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"waited {limit:g} s in vain for {what}")
        time.sleep(pause)


def session_pids(session):
    """The live processes of one session: what a program started, however often it forked."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = pathlib.Path("/proc", entry, "stat").read_text()
        except OSError:
            continue
        # The command name may hold spaces and brackets; the fields start after its last bracket.
        fields = stat.rpartition(")")[2].split()
        if fields[0] != "Z" and int(fields[3]) == session:
            found.append(int(entry))
    return found


def interposer_in(pid):
    try:
        return LIBRARY in pathlib.Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


class Room:
    """One side of one check: a temporary directory and the programs started for it.

    `options` are for `wakeset run`, `environment` is for each program. At its end it ends every
    program by its pid and removes the directory.
    """

    def __init__(self, wakeset):
        self.wakeset = wakeset
        self.options = []
        self.environment = {}
        self.side = "wakeset" if wakeset else "plain"
        self.started = []
        self.adopted = []
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="wakeset-real-"))
        # Workers that give up root must be able to reach their files.
        self.dir.chmod(0o755)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The watchdog has done its work: it must not interrupt the tidying up as well.
        signal.setitimer(signal.ITIMER_REAL, 0)
        for program in reversed(self.started):
            self.end(program)
        for session in self.adopted:
            self.end_session(session)
        shutil.rmtree(self.dir, ignore_errors=True)

    def command(self, argv):
        program = find_program(argv[0]) or argv[0]
        prefix = [wakeset_binary(), "run", *self.options, "--"] if self.wakeset else []
        return [*prefix, program, *map(str, argv[1:])]

    def start(self, argv, cpus=None, env=None, stdin=None):
        """Starts a program in its own session; its output goes to files in the directory."""
        index = len(self.started)
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        environment.update(self.environment, **(env or {}))
        command = self.command(argv)
        if cpus is not None:
            command = ["taskset", "-c", cpus, *command]
        with open(self.dir / f"out.{index}", "wb") as out, open(
            self.dir / f"err.{index}", "wb"
        ) as err:
            program = subprocess.Popen(
                command,
                stdin=stdin if stdin is not None else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.dir,
                env=environment,
                start_new_session=True,
            )
        program.out = self.dir / f"out.{index}"
        program.err = self.dir / f"err.{index}"
        self.started.append(program)
        return program

    def run(self, argv, limit=60, code=0, seen=True, **options):
        """Runs a program to its end and returns what it printed.

        With `seen`, the interposer must have been in it. A program that is over within a few
        milliseconds cannot be watched that way: pass False.
        """
        program = self.start(argv, **options)
        end = time.monotonic() + limit
        loaded = not (self.wakeset and seen)
        while program.poll() is None:
            if time.monotonic() > end:
                self.end(program)
                raise Failure(f"{argv[0]} was still running after {limit} s\n{tail_of(program)}")
            loaded = loaded or any(map(interposer_in, session_pids(program.pid)))
            time.sleep(0.02 if loaded else 0.002)
        require(
            program.returncode == code,
            f"{argv[0]} returned {program.returncode} and not {code}\n{tail_of(program)}",
        )
        require(loaded, f"{argv[0]} ran without {LIBRARY}")
        return program.out.read_text(errors="replace")

    def run_plain(self, argv, limit=30):
        """What a program prints that is not under test, on both outputs."""
        command = [find_program(argv[0]), *map(str, argv[1:])]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit, check=True
        )
        return done.stdout.decode()

    def require_interposer(self, *pids):
        """Under `wakeset run`, a process that does not have the library proves nothing."""
        if self.wakeset:
            for pid in pids:
                require(interposer_in(pid), f"process {pid} runs without {LIBRARY}")

    def wait_exit(self, program, code=0, limit=20.0):
        """Waits for a program that has been told to end, and requires its exit status."""
        try:
            got = program.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failure(f"it did not end within {limit:g} s\n{tail_of(program)}") from None
        require(got == code, f"it ended with {got} and not {code}\n{tail_of(program)}")

    def adopt(self, session):
        """Takes over a daemon, which has left the session it was started in."""
        self.adopted.append(session)

    def end(self, program):
        self.end_session(program.pid, program.poll)

    def end_session(self, session, reap=lambda: None):
        """Ends what is left of a session: asks first, then insists."""
        for sign, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
            end = time.monotonic() + patience
            left = session_pids(session)
            for pid in left:
                try:
                    os.kill(pid, sign)
                except ProcessLookupError:
                    pass
            while left and time.monotonic() < end:
                time.sleep(0.01)
                reap()
                left = session_pids(session)
            if not left:
                break
        reap()


def tail_of(program, lines=15):
    """The last lines a program printed, for a failure's message."""
    text = program.out.read_text(errors="replace") + program.err.read_text(errors="replace")
    return "\n".join("    | " + line for line in text.splitlines()[-lines:])


# The ports that `free_port` has given out: the kernel may choose one again until it is listened on.
GIVEN_PORTS = set()


def free_port():
    """A TCP port of 127.0.0.1 that nobody listens on just now, another one each time."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in GIVEN_PORTS:
            GIVEN_PORTS.add(port)
            return port


def unprivileged_user():
    """(user, group) that a server started by root gives its rights up for."""
    user = pwd.getpwnam("nobody")
    return user.pw_name, grp.getgrgid(user.pw_gid).gr_name


def run_side(check, wakeset, limit):
    def expire(_signal, _frame):
        raise Watchdog(f"still running after {limit} s")

    signal.signal(signal.SIGALRM, expire)
    with Room(wakeset) as room:
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            return [str(line) for line in check(room)]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def clean_up_at_sigterm():
    """Ends this program by an exception, as timeout(1) ends it, so that its servers end too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def main(program, needs, checks, limit=CHECK_LIMIT, required=True):
    """Runs `checks` ({name: function}) of one program; exits 1 if any failed.

    `needs` are the programs it uses, or those of each check by its name. Names given on the command
    line choose among the checks.
    """
    clean_up_at_sigterm()
    chosen = [name for name in checks if not sys.argv[1:] or name in sys.argv[1:]]
    must = required and os.environ.get("WAKESET_REQUIRE_ALL") == "1"
    failed = False
    for name in chosen[:]:
        missing = [
            need
            for need in (needs[name] if isinstance(needs, dict) else needs)
            if find_program(need) is None
        ]
        if missing:
            print(
                f"{'FAIL' if must else 'skip'} {program} {name}: {', '.join(missing)} not installed"
            )
            failed = failed or must
            chosen.remove(name)

    for name in chosen:
        began = time.monotonic()
        side = "plain"
        try:
            plain = run_side(checks[name], False, limit)
            require(plain, "the transcript is empty")
            side = "wakeset"
            under = run_side(checks[name], True, limit)
        except (Failure, Watchdog) as error:
            reason = f"{side}: {error}"
        except Exception:
            reason = f"{side}:\n{traceback.format_exc()}"
        else:
            difference = list(
                difflib.unified_diff(plain, under, "plain", "wakeset", lineterm="", n=2)
            )
            reason = (
                "answers differ\n" + "\n".join(line[:300] for line in difference[:60])
                if difference
                else None
            )
        if reason:
            failed = True
            print(f"FAIL {program} {name}: {reason}", flush=True)
        else:
            seconds = time.monotonic() - began
            print(f"ok {program} {name} ({len(plain)} answers, {seconds:.1f} s)", flush=True)
    sys.exit(1 if failed else 0)
