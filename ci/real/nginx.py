#!/usr/bin/env python3
"""nginx with two workers, driven by wrk, ab and checked downloads: same bodies.

What is in it for epoll: edge-triggered and exclusive watches, a listener shared by forked workers,
a thread pool that reports through an eventfd, a master that reloads, upgrades itself by exec and
quits gracefully.
"""

import hashlib
import http.client
import os
import pathlib
import re
import signal
import threading
import time

import twice
from twice import require, wait_for

CONFIG = """
{user}
daemon {daemon};
master_process on;
worker_processes 2;
pid {dir}/nginx.pid;
error_log {dir}/error.log notice;
# An upgraded master gets an emptied environment: it must run under the same side as the first.
env LD_PRELOAD;
env WAKESET_STATS;
{main}
events {{ worker_connections 512; {events} }}
http {{
    access_log {dir}/access.log combined;
    default_type application/octet-stream;
    root {dir}/www;
    sendfile off;
    keepalive_requests 100000;
    client_max_body_size 8m;
    client_body_temp_path {dir}/temp/body;
    proxy_temp_path {dir}/temp/proxy;
    fastcgi_temp_path {dir}/temp/fastcgi;
    uwsgi_temp_path {dir}/temp/uwsgi;
    scgi_temp_path {dir}/temp/scgi;
    upstream itself {{ server 127.0.0.1:{inner}; keepalive 8; }}
    server {{
        listen 127.0.0.1:{outer} {listen};
        location = /generation {{ return 200 "generation {generation}\\n"; }}
        location = /moved {{ return 301 /small; }}
        location /threads/ {{ alias {dir}/www/; {threads} output_buffers 2 64k; }}
        location /sendfile/ {{ alias {dir}/www/; sendfile on; {threads} }}
        location /slow/ {{ alias {dir}/www/; limit_rate 400k; }}
        location /proxied/ {{
            proxy_pass http://itself/;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
        location = /refused {{ proxy_pass http://127.0.0.1:{closed}; }}
        location = /stuck {{
            proxy_pass http://itself/slow/big;
            proxy_read_timeout 10s;
            proxy_buffering off;
        }}
    }}
    server {{
        listen 127.0.0.1:{inner};
        location /slow/ {{ alias {dir}/www/; limit_rate 400k; }}
    }}
}}
"""


class Server:
    def __init__(self, room, main="", events="", listen="", daemon=False):
        self.room, self.dir = room, room.dir
        self.outer, self.inner, self.closed = (twice.free_port() for _ in range(3))
        self.settings = dict(
            main=main, events=events, listen=listen, daemon="on" if daemon else "off"
        )
        for sub in ("www", "temp"):
            (self.dir / sub).mkdir()
            (self.dir / sub).chmod(0o777)
        self.files = {"empty": b"", "small": b"x" * 1024}
        block = b"".join(hashlib.sha512(str(n).encode()).digest() for n in range(16384))
        self.files["big"] = block + block[:123457]
        for name, body in self.files.items():
            (self.dir / "www" / name).write_bytes(body)
        self.configure(1)
        self.program = room.start(
            ["nginx", "-p", self.dir, "-e", self.dir / "error.log", "-c", self.dir / "nginx.conf"]
        )
        if daemon:
            room.wait_exit(self.program)
            room.adopt(wait_for(self.master, "the daemon's pid"))
        wait_for(lambda: self.program.poll() is not None or self.answers(), "nginx to answer")
        require(
            daemon or self.program.poll() is None,
            "nginx did not start\n" + twice.tail_of(self.program),
        )
        self.require_workers()

    def configure(self, generation):
        version = self.room.run_plain(["nginx", "-V"])
        text = CONFIG.format(
            dir=self.dir,
            user="user {} {};".format(*twice.unprivileged_user()) if os.geteuid() == 0 else "",
            threads="aio threads;" if "--with-threads" in version else "",
            outer=self.outer,
            inner=self.inner,
            closed=self.closed,
            generation=generation,
            **self.settings,
        )
        (self.dir / "nginx.conf").write_text(text)

    def master(self):
        """The pid of the newest master, or None while its file is being written."""
        try:
            return int((self.dir / "nginx.pid").read_text())
        except (OSError, ValueError):
            return None

    def worker_pids(self, master=None):
        master = master or self.master()
        children = pathlib.Path(f"/proc/{master}/task/{master}/children").read_text()
        return [int(pid) for pid in children.split()]

    def require_workers(self):
        wait_for(lambda: len(self.worker_pids()) == 2, "the workers")
        self.room.require_interposer(self.master(), *self.worker_pids())

    def answers(self):
        try:
            return self.get("/generation")[0] == 200
        except OSError:
            return False

    def get(self, path, method="GET", body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.outer, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def url(self, path):
        return f"http://127.0.0.1:{self.outer}{path}"

    def logged(self):
        return (self.dir / "access.log").read_text().count("\n")

    def require_quiet_log(self):
        """Nothing worse than a notice, but for what the checks provoke themselves."""
        log = (self.dir / "error.log").read_text().splitlines()
        bad = [li for li in log if re.search(r"\[(warn|error|crit|alert|emerg)\]", li)]
        provoked = r"/www/none|Connection refused|buffered to a temporary file"
        bad = [li for li in bad if not re.search(provoked, li)]
        require(not bad, "error.log:\n" + "\n".join(bad[:10]))

    def quit(self):
        os.kill(self.master(), signal.SIGQUIT)
        self.room.wait_exit(self.program)
        self.require_quiet_log()


def describe(path, answer):
    status, body = answer
    return f"{path} {status} {len(body)} {hashlib.sha256(body).hexdigest()[:16]}"


def bodies(**settings):
    """Every way a body can come, one at a time and thirty at once."""

    def check(room):
        server = Server(room, **settings)
        lines = []
        paths = [
            place + name
            for place in ("/", "/threads/", "/sendfile/", "/proxied/")
            for name in server.files
        ]
        for path in [*paths, "/slow/small", "/moved", "/none", "/refused"]:
            answer = server.get(path)
            if path in paths:
                require(
                    answer == (200, server.files[path.rpartition("/")[2]]), describe(path, answer)
                )
            lines.append(describe(path, answer))
        lines.append(
            describe("range", server.get("/threads/big", headers={"Range": "bytes=100000-300000"}))
        )
        lines.append(describe("HEAD", server.get("/big", method="HEAD")))
        lines.append(describe("POST", server.get("/proxied/none", "POST", b"p" * (4 << 20))))

        wrong = []

        def download(n):
            for k in range(12):
                path = paths[(n + k) % len(paths)]
                try:
                    answer = server.get(path)
                except (OSError, http.client.HTTPException) as error:
                    wrong.append(f"{path}: {error!r}")
                    continue
                if answer != (200, server.files[path.rpartition("/")[2]]):
                    wrong.append(describe(path, answer))

        threads = [threading.Thread(target=download, args=(n,), daemon=True) for n in range(30)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        require(
            not wrong and not any(t.is_alive() for t in threads),
            f"{wrong[:3] or 'a download hangs'}",
        )
        server.quit()
        return lines

    return check


def wrk(path, **settings):
    def check(room):
        server = Server(room, **settings)
        text = room.run(["wrk", "-t", "2", "-c", "40", "-d", "2s", server.url(path)], limit=30)
        require("Socket errors" not in text and "Non-2xx" not in text, text)
        requests = int(re.search(r"(\d+) requests in", text)[1])
        require(requests > 0, text)
        # wrk leaves some requests in flight at its end, which nginx may log or not.
        wait_for(lambda: server.logged() >= requests, "the log to hold every request")
        answer = describe(path, server.get(path))
        server.quit()
        return [answer, "no errors"]

    return check


def ab(room):
    """A fixed number of requests, with and without kept connections: each is answered and
    logged."""
    server = Server(room)
    lines = []
    for options in ([], ["-k"]):
        for path in ("/small", "/proxied/small", "/threads/big"):
            before = server.logged()
            n = 200 if path.endswith("big") else 4000
            text = room.run(["ab", "-q", *options, "-n", n, "-c", 20, server.url(path)], seen=False)
            titles = "Complete requests|Failed requests|Keep-Alive requests"
            titles += "|Document Length|HTML transferred"
            wanted = f"^({titles}): .*$"
            lines += [m[0] for m in re.finditer(wanted, text, re.M)]
            require(re.search(r"^Failed requests: +0$", text, re.M), text)
            # A proxied request is two lines: nginx is its own upstream.
            lines_due = before + n * (2 if path.startswith("/proxied") else 1)
            wait_for(lambda: server.logged() >= lines_due, "the log to hold every request")
            # ab may have sent a request more on a connection than it waits for.
            surplus = server.logged() - lines_due
            require(surplus < 20, f"{surplus} requests in the log that nobody made")
    server.quit()
    return lines


def reload(room):
    """SIGHUP under load, five times: no request fails, old workers leave."""
    server = Server(room)
    load = room.start(["wrk", "-t", "1", "-c", "20", "-d", "4s", server.url("/small")])
    lines = []
    for generation in range(2, 7):
        old = server.worker_pids()
        server.configure(generation)
        os.kill(server.master(), signal.SIGHUP)
        new = f"generation {generation}\n".encode()
        wait_for(lambda: server.get("/generation")[1] == new, "the new configuration")
        wait_for(lambda: not set(old) & set(server.worker_pids()), "the old workers to leave")
        server.require_workers()
        lines.append(describe("/generation", server.get("/generation")))
    room.wait_exit(load)
    text = load.out.read_text()
    require("Non-2xx" not in text and int(re.search(r"(\d+) requests in", text)[1]) > 0, text)
    # Reads that fail are kept connections that an old worker closed between two requests.
    require(not re.search(r"Socket errors: (connect [1-9]|.*write [1-9]\d\d)", text), text)
    server.quit()
    return lines


def graceful_quit(room):
    """SIGQUIT while a slow download runs: it is finished, and nobody new is let in."""
    server = Server(room)
    got = []
    # 1.2 MB at 400 kB/s.
    thread = threading.Thread(target=lambda: got.append(server.get("/stuck")), daemon=True)
    thread.start()
    time.sleep(0.5)
    os.kill(server.master(), signal.SIGQUIT)

    def closed():
        try:
            server.get("/small")
        except OSError:
            return True
        return False

    wait_for(closed, "the listener to close")
    refused_while_busy = thread.is_alive()
    thread.join(30)
    room.wait_exit(server.program)
    require(got and got[0] == (200, server.files["big"]), "the download broke off")
    return [describe("/stuck", got[0]), f"closed while busy: {refused_while_busy}"]


def upgrade(room):
    """USR2 and QUIT: the master execs its binary, which inherits the listeners.

    It has to be a daemon: nginx ignores USR2 for as long as the parent it was started by lives.
    """
    server = Server(room, daemon=True)
    old = server.master()
    lines = []
    os.kill(old, signal.SIGUSR2)
    new = wait_for(lambda: server.master() not in (None, old) and server.master(), "the new master")
    wait_for(lambda: len(server.worker_pids(new)) == 2, "the new workers")
    room.require_interposer(new, *server.worker_pids(new))
    os.kill(old, signal.SIGWINCH)
    wait_for(lambda: server.worker_pids(old) == [new], "the old workers to leave")
    for path in ("/small", "/threads/big", "/proxied/small"):
        lines.append(describe(path, server.get(path)))
    os.kill(old, signal.SIGQUIT)
    wait_for(lambda: old not in twice.session_pids(old), "the old master to quit")
    lines.append(describe("/small", server.get("/small")))
    os.kill(new, signal.SIGQUIT)
    wait_for(lambda: not twice.session_pids(old), "the new master to quit")
    server.require_quiet_log()
    return lines


BUSY = dict(
    # An interval timer's signal makes every wait an interruptible one.
    main="timer_resolution 20ms;",
    events="multi_accept on; accept_mutex on;",
    listen="reuseport",
)

twice.main(
    "nginx",
    ["nginx", "wrk", "ab"],
    {
        "bodies": bodies(),
        "bodies, timer signals, reuseport": bodies(**BUSY),
        "wrk": wrk("/small"),
        "wrk, thread pool": wrk("/threads/big"),
        "wrk, proxied": wrk("/proxied/small"),
        "wrk, timer signals, reuseport": wrk("/small", **BUSY),
        "ab": ab,
        "reload": reload,
        "graceful quit": graceful_quit,
        "upgrade": upgrade,
    },
)
