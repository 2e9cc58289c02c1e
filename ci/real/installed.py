#!/usr/bin/env python3
"""gunicorn in a clean Debian where nothing but a package of Wakeset is installed: each request
wakes one worker, not all; after removal nothing is left.

    ci/real/installed.py PACKAGES [SUITE…]      bookworm and bullseye, if not given

PACKAGES is a directory that `packaging/packages` has made. bookworm gets the Debian package,
bullseye, whose glibc is older than the machine's that builds, the wheel. By hand: needs root,
debootstrap(8), a network, and some minutes for each suite.
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
WHEEL = {"bullseye"}
WORKERS, REQUESTS, ROUNDS = 8, 1500, 3


def inside(root, *command):
    return subprocess.run(["chroot", root, *command], check=True, capture_output=True, text=True)


def trace(root):
    """Every file but what package managers and Python write down for themselves."""
    own = ("proc", "dev", "var/lib/dpkg", "var/cache", "var/log", "root/.cache", "etc/ld.so.cache")
    found = set()
    for folder, folders, files in os.walk(root):
        base = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if name != "__pycache__"
                      and os.path.normpath(f"{base}/{name}") not in own]
        paths = {os.path.normpath(f"{base}/{name}") for name in (*folders, *files)}
        found |= paths - set(own)
    return found


def install(root, packages, suite):
    """Returns the path of `wakeset` there, and what removes it."""
    pattern = "*.whl" if suite in WHEEL else "wakeset_*.deb"
    package = next(pathlib.Path(packages).glob(pattern))
    there = pathlib.Path(root) / "tmp" / package.name
    there.write_bytes(package.read_bytes())
    if suite in WHEEL:
        inside(root, "python3", "-m", "pip", "install", "--no-index", f"/tmp/{package.name}")
        remove = ["python3", "-m", "pip", "uninstall", "--yes", "wakeset"]
    else:
        inside(root, "dpkg", "--install", f"/tmp/{package.name}")
        remove = ["dpkg", "--purge", "wakeset"]
    there.unlink()
    return inside(root, "sh", "-c", "command -v wakeset").stdout.strip(), remove


def ask(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
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
    answers(port)
    time.sleep(2)
    before, begun = switches(server), time.monotonic()
    served = collections.Counter(ask(port) for _ in range(REQUESTS))
    took, after = time.monotonic() - begun, switches(server)
    server.send_signal(signal.SIGTERM)
    server.wait(30)
    least = min(served.values()) if len(served) == WORKERS else 0
    return REQUESTS / took, (after - before) / REQUESTS, max(served.values()) / max(least, 1)


def check(packages, suite):
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(["debootstrap", "--variant=minbase", "--include=gunicorn,python3-pip", suite,
                        root], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["mount", "--bind", "/proc", f"{root}/proc"], check=True)
        try:
            return check_in(root, packages, suite)
        finally:
            subprocess.run(["umount", f"{root}/proc"], check=True)


def check_in(root, packages, suite):
    (pathlib.Path(root) / "tmp/application.py").write_text(APPLICATION)
    before = trace(root)
    wakeset, remove = install(root, packages, suite)
    sides = {"plain": "", "wakeset run": f"{wakeset} run --"}
    rounds = {side: [] for side in sides}
    for _ in range(ROUNDS):
        for side, prefix in sides.items():
            rounds[side].append(measure(root, prefix))
    medians = {side: [statistics.median(part) for part in zip(*rounds[side])] for side in sides}
    for side, (rate, per_request, spread) in medians.items():
        print(f"{suite}, {side}: {rate:.0f} requests/s, {per_request:.2f} switches each, "
              f"busiest worker {spread:.2f} of the least busy", flush=True)
    inside(root, *remove)
    left = trace(root) ^ before
    if left:
        print(f"{suite}: left or taken away: {sorted(left)[:10]}")
    # The rate depends on what else runs on the machine: it is printed and not required.
    plain, ours = medians["plain"], medians["wakeset run"]
    return not left and ours[1] < plain[1] / 1.5 and ours[2] < 2


def main():
    packages, *suites = sys.argv[1:] or sys.exit(__doc__)
    results = [check(packages, suite) for suite in suites or ["bookworm", "bullseye"]]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
