"""Servers whose workers share a listening socket, and a client that checks every reply.

Each server answers a request with one line: the worker's pid, the method, the path, the length of
the body it was sent and that body's SHA-256.
"""

import collections
import hashlib
import http.client
import os
import pathlib
import signal
import threading

import twice
from twice import require, wait_for

WORKERS = 8

PYTHON_APP = """
import hashlib, os

def application(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    path = environ["PATH_INFO"] + ("?" + environ["QUERY_STRING"] if environ["QUERY_STRING"] else "")
    digest = hashlib.sha256(body).hexdigest()
    line = f"{os.getpid()} {environ['REQUEST_METHOD']} {path} {len(body)} {digest}"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(line)))])
    return [line.encode()]
"""

RUBY_APP = """
require "digest"
run lambda { |env|
  body = env["rack.input"].read
  path = env["PATH_INFO"] + (env["QUERY_STRING"].empty? ? "" : "?" + env["QUERY_STRING"])
  digest = Digest::SHA256.hexdigest(body)
  line = "#{Process.pid} #{env["REQUEST_METHOD"]} #{path} #{body.bytesize} #{digest}"
  [200, { "Content-Type" => "text/plain", "Content-Length" => line.bytesize.to_s }, [line]]
}
"""

# The worker forks for a CGI script, so it is the parent.
SHELL_APP = """#!/bin/sh
printf 'Content-Type: text/plain\\r\\n\\r\\n'
hash=$(sha256sum)
printf '%s' "$PPID $REQUEST_METHOD $REQUEST_URI ${CONTENT_LENGTH:-0} ${hash%% *}"
"""

APACHE = """
ServerRoot {dir}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {dir}/apache.pid
ErrorLog {dir}/error.log
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule cgi_module /usr/lib/apache2/modules/mod_cgi.so
DefaultRuntimeDir {dir}
StartServers {workers}
MinSpareServers {workers}
MaxSpareServers {workers}
MaxRequestWorkers {workers}
KeepAlive On
{user}
ScriptAliasMatch "^/.*" "{dir}/app"
<Directory "{dir}">
    Require all granted
    Options ExecCGI
</Directory>
"""

NGINX = """
{user}
daemon off;
worker_processes {workers};
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 1024; accept_mutex {mutex}; {events} }}
http {{
    access_log off;
    keepalive_timeout 5s;
    client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
    uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
    server {{
        listen 127.0.0.1:{port};
        return 200 "$pid $request_method $request_uri 0 {nothing}";
    }}
}}
"""

NOTHING = hashlib.sha256(b"").hexdigest()


class Server:
    """A server with `count` children that wait on one port."""

    def __init__(self, room, argv, port, stop=signal.SIGTERM, count=WORKERS):
        self.room, self.port, self.stop, self.count = room, port, stop, count
        self.program = room.start(argv)
        wait_for(lambda: self.program.poll() is not None or self.is_up(), "the workers")
        require(
            self.program.poll() is None, "the server did not start\n" + twice.tail_of(self.program)
        )
        # A worker exists before it serves.
        wait_for(self.answers, "an answer")
        room.require_interposer(self.program.pid, *self.worker_pids())

    def worker_pids(self):
        pid = self.program.pid
        return list(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def is_up(self):
        try:
            return len(self.worker_pids()) == self.count
        except OSError:
            return False

    def answers(self):
        try:
            return self.ask("/up")[0] in self.worker_pids()
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def connect(self, port=None):
        return http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=30)

    def ask(self, path, body=None, connection=None, port=None):
        """(pid of the worker, the rest of its line)."""
        own = connection or self.connect(port)
        try:
            own.request("GET" if body is None else "POST", path, body)
            reply = own.getresponse()
            line = reply.read().decode()
        finally:
            if connection is None:
                own.close()
        require(reply.status == 200, f"{path}: {reply.status}\n{line[:300]}")
        pid, _, rest = line.partition(" ")
        return int(pid), rest

    def quit(self):
        os.kill(self.program.pid, self.stop)
        self.room.wait_exit(self.program, code=0)


def python_app(room):
    (room.dir / "app.py").write_text(PYTHON_APP)


def gunicorn(room, *options, count=WORKERS):
    """Workers that select, or with `-k gthread` an epoll set for each and threads behind it."""
    python_app(room)
    port = twice.free_port()
    bind = f"127.0.0.1:{port}"
    argv = ["gunicorn", "-w", count, "-b", bind, *options, "app:application"]
    return Server(room, argv, port, count=count)


def unicorn(room, count=WORKERS):
    (room.dir / "config.ru").write_text(RUBY_APP)
    port = twice.free_port()
    (room.dir / "unicorn.rb").write_text(f'worker_processes {count}\nlisten "127.0.0.1:{port}"\n')
    argv = ["unicorn", "-E", "none", "-c", "unicorn.rb", "config.ru"]
    return Server(room, argv, port, count=count)


def uwsgi(room, *options, count=WORKERS):
    """Workers with an epoll set each, without the lock that lets one of them wait."""
    python_app(room)
    port = twice.free_port()
    argv = [
        "uwsgi_python3",
        "--master",
        "--http-socket",
        f"127.0.0.1:{port}",
        "--processes",
        count,
        *options,
    ]
    # It rereads its configuration on SIGTERM unless told that this is to end it.
    argv += ["--die-on-term", "--disable-logging", "--wsgi-file", "app.py"]
    return Server(room, argv, port, count=count)


def apache(room):
    """Prefork workers that wait in accept(2), without a lock, because there is one listener. Each
    forks for a script."""
    port = twice.free_port()
    user = "User {}\nGroup {}".format(*twice.unprivileged_user()) if os.geteuid() == 0 else ""
    text = APACHE.format(dir=room.dir, port=port, user=user, workers=WORKERS)
    (room.dir / "apache.conf").write_text(text)
    (room.dir / "app").write_text(SHELL_APP)
    (room.dir / "app").chmod(0o755)
    return Server(room, ["apache2", "-DFOREGROUND", "-f", room.dir / "apache.conf"], port)


def nginx(room, events="", count=WORKERS, mutex="off"):
    """Workers with an exclusive watch each, no `reuseport`, and a lock around accept(2) or none."""
    port = twice.free_port()
    user = "user {} {};".format(*twice.unprivileged_user()) if os.geteuid() == 0 else ""
    values = {"dir": room.dir, "port": port, "user": user, "events": events, "nothing": NOTHING}
    text = NGINX.format(workers=count, mutex=mutex, **values)
    (room.dir / "nginx.conf").write_text(text)
    argv = ["nginx", "-p", room.dir, "-e", room.dir / "error.log", "-c", room.dir / "nginx.conf"]
    return Server(room, argv, port, stop=signal.SIGQUIT, count=count)


# ---- clients ----


def bodies():
    """What is sent: nothing, a little, more than a socket takes at once."""
    return [None, b"", b"small", os.urandom(300_000)]


class Load:
    """Clients that ask again and again, each on its own thread, and check what they are told."""

    def __init__(self, server, clients, each, sent, kept=False, port=None):
        self.server, self.sent, self.kept, self.port = server, sent, kept, port
        self.by_worker = collections.Counter()
        self.wrong, self.broken = [], []
        self.hurry = threading.Event()
        self.threads = [
            threading.Thread(target=self.run, args=(n, each), daemon=True, name=f"client {n}")
            for n in range(clients)
        ]
        for thread in self.threads:
            thread.start()

    def run(self, client, each):
        connection = self.server.connect(self.port) if self.kept else None
        for n in range(each):
            if self.hurry.is_set():
                break
            body = self.sent[n % len(self.sent)]
            path = f"/{client}/{n}?n={n}"
            method = "GET" if body is None else "POST"
            want = f"{method} {path} {len(body or b'')} {hashlib.sha256(body or b'').hexdigest()}"
            try:
                pid, line = self.server.ask(path, body, connection, self.port)
            except (ConnectionError, http.client.HTTPException) as error:
                self.broken.append(f"{path}: {error!r}")
                continue
            except (twice.Failure, ValueError, OSError) as error:
                self.wrong.append(f"{path}: {error!r}")
                continue
            if line != want:
                self.wrong.append(f"{line} and not {want}")
            self.by_worker[pid] += 1
        if connection:
            connection.close()

    def finish(self, limit=60):
        for thread in self.threads:
            thread.join(limit)
        require(not any(thread.is_alive() for thread in self.threads), "a client hangs")
        require(not self.wrong, f"{len(self.wrong)} wrong replies: {self.wrong[:3]}")
        return sum(self.by_worker.values())
