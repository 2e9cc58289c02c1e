"""The loads of `survey.py` whose programs are asked from outside: servers, curl, QEMU's monitor."""

import json
import os
import shutil
import socket
import subprocess

import alone
import twice
from twice import free_port, require, wait_for

HAPROXY = """
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s
listen front
    bind 127.0.0.1:{port}
    server back 127.0.0.1:{back}
"""
# Of some 20 MB.
MARIADB_TABLE = "create table t engine=innodb select seq, repeat('x', 800) v from seq_1_to_20000"


def answers(port):
    """Whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ask(port, path="/", count=200):
    """Asks a server by HTTP, with a connection for each question."""
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            require(connection.recv(64).startswith(b"HTTP/1."), "no answer by HTTP")


def stop(room, program):
    program.terminate()
    program.wait(20)


def http_server(room):
    """Something that answers by HTTP, without Wakeset."""
    port = free_port()
    command = [twice.system_python(), "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, cwd=room.dir, **quiet)
    wait_for(lambda: answers(port), "the HTTP server")
    return server, port


def curl(room):
    server, port = http_server(room)
    try:
        urls = [f"http://127.0.0.1:{port}/"] * 50
        room.run(["curl", "--parallel", "--silent", "--output", "/dev/null", *urls], seen=False)
    finally:
        server.kill()
        server.wait()


def haproxy(room):
    server, back = http_server(room)
    try:
        port = free_port()
        settings = room.dir / "haproxy.cfg"
        settings.write_text(HAPROXY.format(port=port, back=back))
        program = room.start(["haproxy", "-f", settings])
        wait_for(lambda: answers(port), "haproxy")
        ask(port)
        stop(room, program)
    finally:
        server.kill()
        server.wait()


def redis(room):
    port = free_port()
    program = room.start(["redis-server", "--port", str(port), "--save", ""])
    wait_for(lambda: answers(port), "redis")
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"PING\r\n")
            require(connection.recv(64) == b"+PONG\r\n", "no answer by redis")
    stop(room, program)


def dbus(room):
    address = f"unix:path={room.dir}/bus"
    command = ["dbus-daemon", "--session", "--nofork", f"--address={address}"]
    program = room.start(command)
    wait_for((room.dir / "bus").exists, "the bus")
    names = ["org.freedesktop.DBus", "/", "org.freedesktop.DBus.ListNames"]
    for _ in range(30):
        send = ["dbus-send", f"--bus={address}", "--print-reply", f"--dest={names[0]}", *names[1:]]
        subprocess.run(send, check=True, stdout=subprocess.DEVNULL)
    stop(room, program)


def qemu(room):
    path = room.dir / "monitor"
    options = ["-machine", "none", "-display", "none", "-nodefaults"]
    monitor = ["-qmp", f"unix:{path},server=on,wait=off"]
    program = room.start(["qemu-system-x86_64", *options, *monitor])

    def connect():
        """It binds its socket before it listens on it."""
        connection = socket.socket(socket.AF_UNIX)
        if connection.connect_ex(str(path)) == 0:
            return connection
        return connection.close()

    with wait_for(connect, "QEMU's monitor") as client:
        lines = client.makefile("rw")
        lines.readline()
        for number in range(200):
            execute = "qmp_capabilities" if number == 0 else "query-status"
            lines.write(json.dumps({"execute": execute}) + "\n")
            lines.flush()
            require("return" in json.loads(lines.readline()), "no answer by QEMU")
        lines.write('{"execute": "quit"}\n')
        lines.flush()
        program.wait(20)


def memcached(room):
    port = free_port()
    user = ["-u", twice.unprivileged_user()[0]] if os.geteuid() == 0 else []
    program = room.start(["memcached", "-l", "127.0.0.1", "-p", str(port), *user])
    wait_for(lambda: answers(port), "memcached")
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"version\r\n")
            require(connection.recv(64).startswith(b"VERSION"), "no answer by memcached")
    stop(room, program)


def postgres(room):
    # What another user starts can count.
    room.dir.chmod(0o777)
    room.wakeset = False
    server = alone.Postgres(room, twice.wakeset_binary(), "run", *room.options, "--")
    server.ask(100)
    server.program.send_signal(server.stop)
    server.program.wait(20)


def mariadb(*options, query="select 6 * 7", count=1600):
    """MariaDB with these options; 1 and 8 clients ask by both kinds of socket."""

    def run(room):
        path, data, port = room.dir / "socket", room.dir / "data", free_port()
        own = ["--no-defaults", *as_user_of_mariadb(room, data), f"--datadir={data}"]
        quick = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        room.run_plain(["mariadb-install-db", *own, *quick], limit=120)
        listen = [f"--socket={path}", "--bind-address=127.0.0.1", f"--port={port}"]
        program = room.start(["mariadbd", *own, *listen, *options])
        places = [f"--socket={path}"], ["--protocol=tcp", "--host=127.0.0.1", f"--port={port}"]
        client = ["mariadb", "--no-defaults", *places[0], "--user=root", "-N", "-e", "select 6 * 7"]

        def is_up():
            return subprocess.run(client, capture_output=True, check=False).returncode == 0

        wait_for(is_up, "MariaDB", limit=60)
        require(room.run_plain(client).strip() == "42", "no answer by MariaDB")
        for place in places:
            for clients in (1, 8):
                load = ["--create-schema=survey", f"--create={MARIADB_TABLE}", f"--query={query}"]
                number = [f"--concurrency={clients}", f"--number-of-queries={count}"]
                slap = ["mariadb-slap", "--no-defaults", *place, "--user=root", *load, *number]
                # A new connection for each question.
                room.run_plain([*slap, "--detach=1"], limit=60)
        stop(room, program)

    return run


def as_user_of_mariadb(room, data):
    """Makes the folder of the data. Under root the server wants another user's name."""
    data.mkdir()
    if os.geteuid() != 0:
        return []
    user, group = twice.unprivileged_user()
    shutil.chown(data, user, group)
    room.dir.chmod(0o777)
    return [f"--user={user}"]
