"""More servers whose workers share a listening socket, for measurements: the smallest answer that
each of them gives, with the worker's pid as its first word.
"""

import collections
import os
import pathlib
import struct

import twice
import workers
from workers import Server

ASGI_APP = """
import os
LINE = b"%d asgi" % os.getpid()

async def application(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("only http")
    headers = [(b"content-length", b"%d" % len(LINE)), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": LINE})
"""

# Without the round robin, in which the master accepts and hands out connections, each worker
# watches the master's listener itself.
NODE_APP = """
const cluster = require('cluster'), http = require('http');
cluster.schedulingPolicy = cluster.SCHED_NONE;
const [port, count] = process.argv.slice(2).map(Number);
if (cluster.isPrimary) {
  for (let i = 0; i < count; i++) cluster.fork();
  process.on('SIGTERM', () => process.exit(0));
} else {
  http.createServer((request, response) => response.end(process.pid + ' node'))
    .listen(port, '127.0.0.1');
}
"""

PHP_APP = "<?php header('Content-Type: text/plain'); echo getmypid(), ' php';"

PHP_POOL = """
[global]
error_log = {dir}/fpm.log
daemonize = no
[www]
{user}
listen = 127.0.0.1:{port}
pm = static
pm.max_children = {count}
"""

# A worker has no way to say its pid in an answer, so it is in the log.
APACHE = """
ServerRoot {dir}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {dir}/apache.pid
ErrorLog {dir}/error.log
LoadModule mpm_{mpm}_module /usr/lib/apache2/modules/mod_mpm_{mpm}.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
DefaultRuntimeDir {dir}
{processes}
KeepAlive On
MaxKeepAliveRequests 0
{user}
LogFormat "%P" pid
CustomLog {dir}/pids pid
DocumentRoot {dir}/root
<Directory "{dir}/root">
    Require all granted
</Directory>
"""
PREFORK = "StartServers {0}\nMinSpareServers {0}\nMaxSpareServers {0}\nMaxRequestWorkers {0}"
EVENT = (
    "ServerLimit {0}\nStartServers {0}\nThreadsPerChild 8\nMaxRequestWorkers {1}\n"
    "MinSpareThreads {1}\nMaxSpareThreads {1}"
)


class Quiet(Server):
    """A server that is asked for nothing to see whether it is up: it has so many children, without
    those whose command line holds `helper`, and something listens."""

    def __init__(self, *arguments, helper=None, **options):
        self.helper = helper
        super().__init__(*arguments, **options)

    def worker_pids(self):
        return [pid for pid in super().worker_pids() if not self.is_helper(pid)]

    def is_helper(self, pid):
        try:
            line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return True
        return bool(self.helper) and self.helper.encode() in line

    def answers(self):
        return listens(self.port)


class Apache(Quiet):
    """Which worker has answered is in its log."""

    def __init__(self, *arguments, **options):
        self.counts, self.end = collections.Counter(), 0
        super().__init__(*arguments, **options)

    def logged(self):
        """{pid: answers}. A log of millions of lines is read once."""
        with open(self.room.dir / "pids", "rb") as log:
            log.seek(self.end)
            lines, newline, _ = log.read().rpartition(b"\n")
        self.end += len(lines) + len(newline)
        self.counts.update(lines.decode().split())
        return dict(self.counts)


def listens(port):
    """Whether a socket listens on this port, without a connection to it."""
    want = f"0100007F:{port:04X}"
    table = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1] == want and line.split()[3] == "0A" for line in table)


def python(*argv):
    return [twice.system_python(), "-m", *argv]


def gunicorn(kind, *options):
    def start(room, count):
        return workers.gunicorn(room, "-k", kind, *options, count=count)

    return start


def gunicorn_uvicorn(room, count):
    (room.dir / "asgi.py").write_text(ASGI_APP)
    port = twice.free_port()
    argv = ["gunicorn", "-w", count, "-b", f"127.0.0.1:{port}"]
    argv += ["-k", "uvicorn.workers.UvicornWorker", "asgi:application"]
    return Server(room, argv, port, count=count)


def uvicorn(room, count):
    (room.dir / "asgi.py").write_text(ASGI_APP)
    port = twice.free_port()
    argv = python("uvicorn", "--port", port, "--workers", count, "--no-access-log")
    argv += ["--log-level", "error", "asgi:application"]
    return up(Quiet(room, argv, port, count=count, helper="resource_tracker"))


def hypercorn(room, count):
    (room.dir / "asgi.py").write_text(ASGI_APP)
    port = twice.free_port()
    argv = python("hypercorn", "-w", count, "-b", f"127.0.0.1:{port}", "asgi:application")
    return up(Quiet(room, argv, port, count=count, helper="resource_tracker"))


def up(server):
    """Once all workers wait: these listen before their workers have started."""
    seen = set()

    def all_have_answered():
        try:
            seen.add(server.ask("/up")[0])
        except (OSError, ValueError):
            return False
        return True

    twice.wait_for(all_have_answered, "an answer")
    twice.wait_for(
        lambda: all(waits(pid) for pid in server.worker_pids()), "all workers to wait", limit=40
    )
    return server


def waits(pid):
    """Whether a process has an epoll set and sleeps in one."""
    try:
        where = pathlib.Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return False
    return "ep" in where and "poll" in where


def puma(room, count):
    (room.dir / "config.ru").write_text(workers.RUBY_APP)
    port = twice.free_port()
    argv = ["puma", "-w", count, "-t", "2:2", "-b", f"tcp://127.0.0.1:{port}", "-e", "production"]
    return Server(room, [*argv, "config.ru"], port, count=count)


def unicorn(room, count):
    return workers.unicorn(room, count=count)


def uwsgi(*options):
    def start(room, count):
        return workers.uwsgi(room, *options, count=count)

    return start


def apache(mpm):
    def start(room, count):
        port = twice.free_port()
        user = "User {}\nGroup {}".format(*twice.unprivileged_user()) if os.geteuid() == 0 else ""
        processes = (PREFORK if mpm == "prefork" else EVENT).format(count, count * 8)
        values = {"dir": room.dir, "port": port, "user": user, "mpm": mpm, "processes": processes}
        (room.dir / "apache.conf").write_text(APACHE.format(**values))
        (room.dir / "root").mkdir()
        (room.dir / "root/m").write_text("1 apache")
        argv = ["apache2", "-DFOREGROUND", "-f", room.dir / "apache.conf"]
        return Apache(room, argv, port, count=count)

    return start


def nginx(mutex="off"):
    def start(room, count):
        return workers.nginx(room, count=count, mutex=mutex)

    return start


def php(room, count):
    port = twice.free_port()
    user = "user = {}\ngroup = {}".format(*twice.unprivileged_user()) if os.geteuid() == 0 else ""
    text = PHP_POOL.format(dir=room.dir, port=port, user=user, count=count)
    (room.dir / "fpm.conf").write_text(text)
    (room.dir / "m.php").write_text(PHP_APP)
    argv = [php_program(), "-n", "-F", "-y", room.dir / "fpm.conf"]
    return Quiet(room, argv, port, count=count)


def php_program():
    """Its name has the version in it."""
    found = sorted(pathlib.Path("/usr/sbin").glob("php-fpm*"))
    return found[-1].name if found else "php-fpm"


def node(room, count):
    (room.dir / "cluster.js").write_text(NODE_APP)
    port = twice.free_port()
    return Server(room, ["node", "cluster.js", port, count], port, count=count)


def http(path="/m", kept=False):
    """A request."""
    close = "" if kept else "Connection: close\r\n"
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{close}\r\n".encode()


def fastcgi(script):
    """A request for a FastCGI server, which closes the connection after its answer."""

    def record(kind, content):
        return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content

    def pair(name, value):
        return bytes([len(name), len(value)]) + name.encode() + value.encode()

    names = {"SCRIPT_FILENAME": str(script), "REQUEST_METHOD": "GET", "REQUEST_URI": "/m"}
    names |= {"SCRIPT_NAME": "/m.php", "SERVER_PROTOCOL": "HTTP/1.1"}
    names["GATEWAY_INTERFACE"] = "CGI/1.1"
    params = b"".join(pair(*item) for item in names.items())
    begin = record(1, struct.pack(">HB5x", 1, 0))
    return begin + record(4, params) + record(4, b"") + record(5, b"")


def requests_of(server, kept=False):
    """What to ask it."""
    script = server.room.dir / "m.php"
    return [fastcgi(script) if script.exists() else http(kept=kept)]


class Kind:
    """A server of the matrix: how it starts, what it needs, whether it keeps connections, and
    whether a worker serves one of those at a time, and others only when it has ended."""

    def __init__(self, start, *needs, keeps=False, keeps_one=False):
        self.start, self.needs, self.keeps, self.keeps_one = start, needs, keeps, keeps_one


KINDS = {
    "gunicorn sync": Kind(gunicorn("sync"), "gunicorn"),
    "gunicorn gthread": Kind(gunicorn("gthread", "--threads", 4), "gunicorn", keeps=True),
    "gunicorn gevent": Kind(gunicorn("gevent"), "gunicorn", "python3-gevent", keeps=True),
    "gunicorn uvicorn": Kind(gunicorn_uvicorn, "gunicorn", "python3-uvicorn", keeps=True),
    "uvicorn": Kind(uvicorn, "python3-uvicorn", keeps=True),
    # It closes a kept connection on which the next request comes at once.
    "hypercorn": Kind(hypercorn, "python3-hypercorn"),
    "puma": Kind(puma, "puma", keeps=True),
    "unicorn": Kind(unicorn, "unicorn"),
    "uwsgi": Kind(uwsgi(), "uwsgi_python3"),
    "uwsgi thunder-lock": Kind(uwsgi("--thunder-lock"), "uwsgi_python3"),
    "apache prefork": Kind(apache("prefork"), "apache2", keeps=True, keeps_one=True),
    "apache event": Kind(apache("event"), "apache2", keeps=True),
    "nginx": Kind(nginx(), "nginx", keeps=True),
    "nginx accept_mutex": Kind(nginx("on"), "nginx", keeps=True),
    "php-fpm": Kind(php, "php-fpm"),
    "node": Kind(node, "node", keeps=True),
}


def missing(kind):
    """What is not installed of what a server needs."""

    def is_there(need):
        if need.startswith("python3-"):
            argv = [twice.system_python(), "-c", f"import {need.partition('-')[2]}"]
            return os.spawnv(os.P_WAIT, argv[0], argv) == 0
        return twice.find_program(php_program() if need == "php-fpm" else need)

    return [need for need in kind.needs if not is_there(need)]
