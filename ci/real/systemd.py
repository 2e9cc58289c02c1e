#!/usr/bin/env python3
"""`wakeset systemd --write` in a Debian that systemd has booted: real units, sockets and readiness.

    ci/real/systemd.py PACKAGES

PACKAGES is a directory that `packaging/packages` has made. A clean tree gets the Debian package and
is booted by systemd-nspawn(1), without a network. There `inside` (below) installs drop-ins
for three services, and one is started by `wakeset run`:

- gunicorn, `Type=notify`, started by the first connection to its socket unit, with a filter of
  system calls (`@system-service`), another user, no home directories;
- nginx, as Debian has it (`Type=forking`);
- a program that has a watchdog (`WatchdogSec=`) and tells systemd of itself;
- the same under `wakeset run --stats-file`, which is the main process then, with the default
  `NotifyAccess=`.

Each has Wakeset's library in all its processes and does its work; the first two are reloaded; and
each is without it when the drop-in has been removed as the guide says. By hand: needs root,
systemd-nspawn, debootstrap(8) and a network. Environment: ROOTS, as for installed.py; the tree of
bookworm has `systemd-sysv` and `nginx-light` as well.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

PLACE = "/usr/local/lib/check"
GUNICORN = """[Unit]
Requires=gunicorn.socket
[Service]
Type=notify
NotifyAccess=main
User=www-data
WorkingDirectory=/usr/local/lib/check
ExecStart=/usr/bin/gunicorn --workers 8 application:run
ExecReload=/bin/sh -c 'kill -s HUP $MAINPID'
SystemCallFilter=@system-service
ProtectHome=yes
ProtectSystem=strict
PrivateTmp=yes
NoNewPrivileges=yes
"""
SOCKET = "[Socket]\nListenStream=127.0.0.1:8099\n"
WATCHED = """[Service]
Type=notify
WatchdogSec=1
ExecStart=/usr/bin/python3 /usr/local/lib/check/watched.py
"""
COUNTED = """[Service]
Type=notify
WatchdogSec=1
ExecStart=/usr/bin/wakeset run --stats-file /run/counts -- /usr/bin/python3 \
/usr/local/lib/check/watched.py
"""
# asyncio has a set and a self-pipe, so there is something for Wakeset to do.
WATCHED_PROGRAM = """import asyncio, os, socket
def tell(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.sendto(text, os.environ["NOTIFY_SOCKET"])
async def main():
    tell(b"READY=1\\nMAINPID=%d" % os.getpid())
    while True:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        await asyncio.sleep(0.3)
        tell(b"WATCHDOG=1")
asyncio.run(main())
"""
APPLICATION = """import os
def run(environ, start):
    start('200 OK', [])
    return [str(os.getpid()).encode()]
"""
CHECK = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=-/bin/sh -c '/usr/bin/python3 /usr/local/lib/check/systemd.py --inside \
>/usr/local/lib/check/said 2>&1'
ExecStartPost=/bin/systemctl poweroff --no-block
[Install]
WantedBy=multi-user.target
"""


def call(*command, limit=60):
    """What a command prints; what it says of a failure is passed on."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit)
    if done.returncode:
        print(f"{' '.join(map(str, command))}: {done.stderr}", file=sys.stderr, flush=True)
        done.check_returncode()
    return done.stdout


def shown(unit, name):
    return call("systemctl", "show", "--property", name, "--value", unit).strip()


def processes(unit):
    """The pids of a service and whether each has the library."""
    group = shown(unit, "ControlGroup")
    mounts = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup")
    lists = (pathlib.Path(f"{mount}{group}/cgroup.procs") for mount in mounts)
    pids = next(path for path in lists if path.exists()).read_text().split()
    has = lambda pid: "libwakeset_preload.so" in pathlib.Path(f"/proc/{pid}/maps").read_text()
    return {int(pid): has(pid) for pid in pids}


def get(port):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).read()


def require(holds, what):
    print(("ok  " if holds else "FAIL"), what, flush=True)
    return bool(holds)


def settled(unit, count):
    """Waits until a service has that many processes."""
    end = time.monotonic() + 20
    while len(processes(unit)) < count and time.monotonic() < end:
        time.sleep(0.1)
    return processes(unit)


def check_gunicorn():
    call("systemctl", "start", "gunicorn.socket")
    good = require(shown("gunicorn", "ActiveState") == "inactive", "no gunicorn before")
    first = get(8099)
    good &= require(shown("gunicorn", "ActiveState") == "active", "its socket has started gunicorn")
    has = settled("gunicorn", 9)
    good &= require(len(has) == 9 and all(has.values()), f"all {len(has)} processes are served")
    status = pathlib.Path(f"/proc/{shown('gunicorn', 'MainPID')}/status").read_text()
    good &= require("Seccomp:\t2" in status, "gunicorn has a filter")
    served = {get(8099) for _ in range(400)} | {first}
    good &= require(served == {str(pid).encode() for pid in has} -
                    {shown("gunicorn", "MainPID").encode()}, "each worker answers")
    call("systemctl", "reload", "gunicorn")
    time.sleep(2)
    renewed = settled("gunicorn", 9)
    good &= require(len(set(renewed) - set(has)) == 8 and all(renewed.values()) and get(8099),
                    "a reload makes eight workers, which are served")
    return good


def check_nginx():
    before = processes("nginx")
    good = require(before and all(before.values()) and b"nginx" in get(80), "nginx is served")
    call("systemctl", "reload", "nginx")
    time.sleep(1)
    good &= require(all(processes("nginx").values()) and get(80), "and after a reload")
    return good


def check_watched():
    has = processes("watched")
    time.sleep(4)
    return require(has == processes("watched") and all(has.values())
                   and shown("watched", "NRestarts") == "0", "a watchdog is satisfied")


def check_counted():
    # It returns when the service has said that it is ready, or fails.
    call("systemctl", "start", "counted")
    main = int(shown("counted", "MainPID"))
    name = pathlib.Path(f"/proc/{main}/comm").read_text().strip()
    good = require(name == "wakeset", "wakeset run is the main process of a service")
    time.sleep(4)
    good &= require(int(shown("counted", "MainPID")) == main, "its watchdog is satisfied")
    children = pathlib.Path(f"/proc/{main}/task/{main}/children").read_text().split()
    # The program tells of itself no more, so systemd ends what it knows: the main process.
    os.kill(int(children[0]), signal.SIGSTOP)
    time.sleep(5)
    good &= require(shown("counted", "Result") == "watchdog", "a watchdog that is not ends it")
    counts = pathlib.Path("/run/counts").read_text()
    return good & require("python3" in counts, "what it counted is there")


def inside():
    good = True
    drop_in = "/etc/systemd/system/{}.service.d/50-wakeset.conf"
    names = ("gunicorn", "nginx", "watched")
    for name in names:
        call("wakeset", "systemd", "--write", name)
        good &= require(pathlib.Path(drop_in.format(name)).exists(), f"a drop-in for {name}")
    call("systemctl", "daemon-reload")
    # Each returns when the service has said that it is ready.
    call("systemctl", "restart", "nginx", "watched")
    good &= check_gunicorn()
    good &= check_nginx()
    good &= check_watched()
    good &= check_counted()
    for name in names:
        pathlib.Path(drop_in.format(name)).unlink()
    call("systemctl", "daemon-reload")
    call("systemctl", "restart", *names)
    settled("gunicorn", 9)
    left = [name for name in names if any(processes(name).values())]
    good &= require(not left and get(8099) and get(80), "without the drop-ins none is served")
    print("passed" if good else "failed")


def write(root, path, text):
    file = pathlib.Path(f"{root}{path}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def prepare(root, packages):
    ready = os.environ.get("ROOTS")
    if ready:
        call("cp", "-a", f"{ready}/bookworm/.", root, limit=None)
    else:
        call("debootstrap", "--variant=minbase", "--include=gunicorn,systemd-sysv,nginx-light",
             "bookworm", root, limit=None)
    package = next(pathlib.Path(packages).glob("wakeset_*.deb"))
    write(root, f"{PLACE}/application.py", APPLICATION)
    write(root, f"{PLACE}/watched.py", WATCHED_PROGRAM)
    write(root, f"{PLACE}/systemd.py", pathlib.Path(__file__).read_text())
    call("cp", package, f"{root}/tmp/wakeset.deb")
    call("chroot", root, "dpkg", "--install", "/tmp/wakeset.deb", limit=None)
    for name, text in (("gunicorn.service", GUNICORN), ("gunicorn.socket", SOCKET),
                       ("watched.service", WATCHED), ("counted.service", COUNTED),
                       ("check.service", CHECK)):
        write(root, f"/etc/systemd/system/{name}", text)
    call("chroot", root, "systemctl", "enable", "check.service", "nginx.service")


def boot(root):
    """Whether all held in there. Prints what was said, or else what nspawn has to say."""
    command = ["systemd-nspawn", "--quiet", f"--directory={root}", "--boot", "--private-network",
               "--register=no", "--keep-unit", "--console=pipe"]
    said = pathlib.Path(f"{root}{PLACE}/said")
    with tempfile.TemporaryFile(mode="w+") as errors:
        try:
            subprocess.run(command, check=False, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=errors, timeout=150)
        except subprocess.TimeoutExpired as error:
            print(error, file=sys.stderr)
        text = said.read_text() if said.exists() else ""
        if not text:
            errors.seek(0)
            print("it said nothing, and nspawn:", errors.read(), file=sys.stderr)
    print(text, end="")
    return text.endswith("passed\n")


def main():
    if sys.argv[1:] == ["--inside"]:
        return inside()
    packages = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as root:
        prepare(root, packages)
        return int(not boot(root))


if __name__ == "__main__":
    sys.exit(main())
