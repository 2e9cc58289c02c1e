#!/usr/bin/env python3
"""gunicorn in a clean Debian where nothing but a package of Wakeset is installed: each request
wakes one worker, not all; after removal nothing is left.

    ci/real/installed.py PACKAGES [SUITE-KIND…]

PACKAGES is a directory that `packaging/packages` has made. A suite is one of Debian's, a kind
`deb`, `rpm`, `wheel` or `tarball`. Without any: bookworm with each, and bullseye, whose glibc
(2.31) is older than that of the machine that builds, too. The RPM is installed and removed by this
machine's rpm(8), which Debian's libc is no package for: without what it depends on. Prints medians
of alternating rounds, plain and under `wakeset run`.

By hand: needs root, debootstrap(8), rpm(8), a network, and some minutes for each suite.
Environment: ROOTS, a directory with a tree of each suite (`debootstrap --variant=minbase
--include=gunicorn,python3-pip,python3-venv SUITE`), which is copied instead of made.
"""

import collections
import http.client
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

APPLICATION = """import os
def run(environ, start):
    start('200 OK', [])
    return [str(os.getpid()).encode()]
"""
KINDS = [f"{suite}-{kind}" for suite in ("bookworm", "bullseye")
         for kind in ("deb", "rpm", "wheel", "tarball")]
FILES = {"deb": "wakeset_*.deb", "rpm": "wakeset-[0-9]*.rpm", "wheel": "*.whl",
         "tarball": "*.tar.gz"}
# Debian's own environment takes no wheels since bookworm.
VENV = "/opt/venv"
WORKERS, REQUESTS, ROUNDS = 8, 1500, 5


def inside(root, *command):
    return subprocess.run(["chroot", root, *command], check=True, capture_output=True, text=True)


def trace(root):
    """Every file but what package managers and Python write down for themselves."""
    own = ("proc", "dev", "var/lib/dpkg", "var/lib/rpm", "var/cache", "var/log",
           "root/.cache", "etc/ld.so.cache")
    found = set()
    for folder, folders, files in os.walk(root):
        base = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if name != "__pycache__"
                      and os.path.normpath(f"{base}/{name}") not in own]
        paths = {os.path.normpath(f"{base}/{name}") for name in (*folders, *files)}
        found |= paths - set(own)
    return found


def install(root, packages, kind):
    """Returns the path of `wakeset` there, and the command that removes it."""
    package = next(pathlib.Path(packages).glob(FILES[kind]))
    there = pathlib.Path(root) / "tmp" / package.name
    there.write_bytes(package.read_bytes())
    path = f"/tmp/{package.name}"
    if kind == "wheel":
        inside(root, f"{VENV}/bin/pip", "install", "--no-index", path)
        wakeset = f"{VENV}/bin/wakeset"
        remove = ["chroot", root, f"{VENV}/bin/pip", "uninstall", "-y", "wakeset"]
    elif kind == "deb":
        inside(root, "dpkg", "--install", path)
        wakeset, remove = "/usr/bin/wakeset", ["chroot", root, "dpkg", "--purge", "wakeset"]
    elif kind == "rpm":
        rpm = ["rpm", "--root", root, "--dbpath", "/var/lib/rpm", "--nodeps"]
        subprocess.run([*rpm, "--install", str(there)], check=True, capture_output=True)
        wakeset, remove = "/usr/bin/wakeset", [*rpm, "--erase", "wakeset"]
    else:
        inside(root, "tar", "--extract", "--no-same-owner", f"--file={path}", "--directory=/opt")
        folder = f"/opt/{package.name.removesuffix('.tar.gz')}"
        wakeset, remove = f"{folder}/bin/wakeset", ["chroot", root, "rm", "-r", folder]
    there.unlink()
    return wakeset, remove


def ask(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/")
    reply = connection.getresponse().read()
    connection.close()
    return reply


def answers(port):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            return ask(port)
        except OSError:
            time.sleep(0.1)
    sys.exit("the server does not answer")


def switches(server):
    children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    lines = (line for pid in children for line in open(f"/proc/{pid}/status"))
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


def measure(root, prefix):
    """Requests per second, context switches of the workers for each, and how many of the requests
    the busiest worker got for each of the least busy one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve = (f"cd /tmp && exec {prefix} gunicorn --workers {WORKERS} --log-level critical "
             f"--bind 127.0.0.1:{port} application:run")
    server = subprocess.Popen(["chroot", root, "sh", "-c", serve])
    try:
        answers(port)
        time.sleep(2)
        before, begun = switches(server), time.monotonic()
        served = collections.Counter(ask(port) for _ in range(REQUESTS))
        took, after = time.monotonic() - begun, switches(server)
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    finally:
        # Its workers end when they find that their parent has.
        server.kill()
        server.wait()
    least = min(served.values()) if len(served) == WORKERS else 0
    return REQUESTS / took, (after - before) / REQUESTS, max(served.values()) / max(least, 1)


def make_tree(root, suite):
    ready = os.environ.get("ROOTS")
    if ready:
        subprocess.run(["cp", "-a", f"{ready}/{suite}/.", root], check=True)
    else:
        included = "--include=gunicorn,python3-pip,python3-venv"
        subprocess.run(["debootstrap", "--variant=minbase", included, suite, root], check=True,
                       stdout=subprocess.DEVNULL)


def check(packages, name):
    suite, kind = name.split("-")
    with tempfile.TemporaryDirectory() as root:
        make_tree(root, suite)
        subprocess.run(["mount", "--bind", "/proc", f"{root}/proc"], check=True)
        try:
            return check_in(root, packages, name, kind)
        finally:
            subprocess.run(["umount", f"{root}/proc"], check=True)


def check_in(root, packages, name, kind):
    (pathlib.Path(root) / "tmp/application.py").write_text(APPLICATION)
    if kind == "wheel":
        inside(root, "python3", "-m", "venv", "--system-site-packages", VENV)
    if kind == "rpm":
        # Of `filesystem` on systems of rpm; Debian has them where something is in them.
        for folder in ("licenses", "man/man1", "man/man7", "bash-completion/completions",
                       "zsh/site-functions", "fish/vendor_completions.d"):
            os.makedirs(f"{root}/usr/share/{folder}", exist_ok=True)
        os.makedirs(f"{root}/var/lib/rpm", exist_ok=True)
    before = trace(root)
    wakeset, remove = install(root, packages, kind)
    sides = {"plain": "", "wakeset run": f"{wakeset} run --"}
    rounds = {side: [] for side in sides}
    for _ in range(ROUNDS):
        for side, prefix in sides.items():
            rounds[side].append(measure(root, prefix))
    medians = {side: [statistics.median(part) for part in zip(*rounds[side])] for side in sides}
    for side, (rate, per_request, spread) in medians.items():
        print(f"{name}, {side}: {rate:.0f} requests/s, {per_request:.2f} switches each, "
              f"busiest worker {spread:.2f} of the least busy", flush=True)
    subprocess.run(remove, check=True, capture_output=True)
    left = trace(root) ^ before
    if left:
        print(f"{name}: left or taken away: {sorted(left)[:10]}")
    # The rate depends on what else runs on the machine: it is printed and not required.
    plain, ours = medians["plain"], medians["wakeset run"]
    return not left and ours[1] < plain[1] / 1.5 and ours[2] < 2


def main():
    packages, *names = sys.argv[1:] or sys.exit(__doc__)
    results = [check(packages, name) for name in names or KINDS]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
