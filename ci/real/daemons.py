"""Programs that Debian has, as `ci/inspect-programs` starts them: each with a small configuration,
in its scratch directory, on one port of 127.0.0.1, with nothing wrong with it.
"""

import os
import pathlib
import shutil
import subprocess


def write(path, text):
    path.write_text(text)
    return str(path)


APPLICATION = "def run(environ, start):\n    start('200 OK', [])\n    return [b'ok']\n"
ASYNCIO = """
import asyncio, sys
async def serve(reader, writer):
    await reader.readline()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""
NODE = "require('net').createServer(s => s.end()).listen(+process.argv[1], '127.0.0.1')"


# Each gets its scratch directory and a free port, and returns its arguments. Those that do not
# listen on the port are waited for by what they watch.
def nginx(room, port):
    return ["nginx", "-c", write(room / "nginx.conf", f"""
        daemon off; worker_processes 2; pid {room}/pid; error_log {room}/log;
        events {{ worker_connections 64; }}
        http {{ access_log off;
        client_body_temp_path {room}/1; proxy_temp_path {room}/2; fastcgi_temp_path {room}/3;
        uwsgi_temp_path {room}/4; scgi_temp_path {room}/5;
        server {{ listen 127.0.0.1:{port}; location / {{ return 200 ok; }} }} }}
    """)]


def haproxy(room, port):
    return ["haproxy", "-db", "-f", write(room / "haproxy.cfg", f"""
global
    nbthread 1
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s
frontend f
    bind 127.0.0.1:{port}
    http-request return status 200
""")]


def lighttpd(room, port):
    return ["lighttpd", "-D", "-f", write(room / "lighttpd.conf", f"""
server.document-root = "{room}"
server.bind = "127.0.0.1"
server.port = {port}
""")]


def apache2(room, port):
    modules = "/usr/lib/apache2/modules"
    return ["apache2", "-X", "-d", str(room), "-f", write(room / "apache.conf", f"""
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
ServerName localhost
PidFile {room}/pid
ErrorLog {room}/log
DefaultRuntimeDir {room}
Listen 127.0.0.1:{port}
""")]


def unbound(room, port):
    return ["unbound", "-d", "-c", write(room / "unbound.conf", f"""
server:
    interface: 127.0.0.1
    port: {port}
    chroot: ""
    username: ""
    directory: "{room}"
    pidfile: "{room}/pid"
    use-syslog: no
    module-config: "iterator"
remote-control:
    control-enable: no
""")]


def dnsmasq(room, port):
    return ["dnsmasq", "-k", "-C", "/dev/null", "--no-resolv", "--no-hosts", "--port", str(port),
            "--listen-address=127.0.0.1", "--bind-interfaces", "--user=root", "--group=root",
            f"--pid-file={room}/pid"]


def sshd(room, port):
    key = room / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    # It wants to be started by its whole path, and this directory.
    os.makedirs("/run/sshd", exist_ok=True)
    return [shutil.which("sshd"), "-D", "-e", "-f", "/dev/null", "-h", str(key),
            "-o", f"ListenAddress=127.0.0.1:{port}", "-o", f"PidFile={room}/pid"]


def stunnel(room, port):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a",
                    "-keyout", room / "key", "-out", room / "cert"], check=True,
                   stderr=subprocess.DEVNULL)
    return ["stunnel4", write(room / "stunnel.conf", f"""
foreground = yes
pid =
[a]
accept = 127.0.0.1:{port}
connect = 127.0.0.1:9
cert = {room}/cert
key = {room}/key
""")]


def vsftpd(room, port):
    os.makedirs("/var/run/vsftpd/empty", exist_ok=True)
    return ["vsftpd", write(room / "vsftpd.conf", f"""listen=YES
background=NO
listen_port={port}
listen_address=127.0.0.1
""")]


def rsyslogd(room, port):
    return ["rsyslogd", "-n", "-i", f"{room}/pid", "-f", write(room / "rsyslog.conf", f"""
module(load="imtcp")
input(type="imtcp" port="{port}" address="127.0.0.1")
*.* {room}/log
""")]


def uwsgi(room, port):
    write(room / "application.py", APPLICATION)
    return ["uwsgi_python3", "--http-socket", f"127.0.0.1:{port}", "--chdir", str(room),
            "--module", "application:run", "--die-on-term"]


def gunicorn(room, port):
    write(room / "application.py", APPLICATION)
    return ["gunicorn", "--chdir", str(room), "--workers", "1", "--bind", f"127.0.0.1:{port}",
            "application:run"]


def dbus(room, port):
    return ["dbus-daemon", "--session", "--nofork", "--nopidfile",
            f"--address=unix:path={room}/socket"]


def mosquitto(room, port):
    return ["mosquitto", "-c", write(room / "mosquitto.conf", f"""
listener {port} 127.0.0.1
allow_anonymous true
user root
""")]


JAVA = """
import java.net.*;
import java.nio.channels.*;
public class Server {
    public static void main(String[] words) throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel server = ServerSocketChannel.open();
        server.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])));
        server.configureBlocking(false);
        server.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            selector.selectedKeys().clear();
            for (SocketChannel one; (one = server.accept()) != null; )
                one.close();
        }
    }
}
"""


def java(room, port):
    return ["java", write(room / "Server.java", JAVA), str(port)]


RACK = "run proc { |request| [200, {}, ['ok']] }\n"


def unicorn(room, port):
    write(room / "config.ru", RACK)
    return ["unicorn", "-E", "none", "-l", f"127.0.0.1:{port}", "-c",
            write(room / "unicorn.rb", f"working_directory '{room}'\n"), room / "config.ru"]


def puma(room, port):
    return ["puma", "-e", "production", "-b", f"tcp://127.0.0.1:{port}", "--dir", str(room),
            write(room / "config.ru", RACK)]


def php_fpm(room, port):
    return [find("php-fpm"), "-n", "-F", "-R", "-y", write(room / "fpm.conf", f"""
[global]
error_log = {room}/log
[www]
user = root
listen = 127.0.0.1:{port}
pm = static
pm.max_children = 1
""")]


PROGRAMS = {
    "redis-server": lambda room, port: [
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir",
        str(room)],
    "memcached": lambda room, port: [
        "memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-U", "0"],
    "nginx": nginx,
    "haproxy": haproxy,
    "lighttpd": lighttpd,
    "apache2": apache2,
    "unbound": unbound,
    "dnsmasq": dnsmasq,
    "sshd": sshd,
    "stunnel4": stunnel,
    "vsftpd": vsftpd,
    "rsyslogd": rsyslogd,
    "uwsgi_python3": uwsgi,
    "gunicorn": gunicorn,
    "unicorn": unicorn,
    "puma": puma,
    "php-fpm": php_fpm,
    "mosquitto": mosquitto,
    "dbus-daemon": dbus,
    "systemd-udevd": lambda room, port: ["systemd-udevd"],
    "cron": lambda room, port: ["cron", "-f"],
    "node": lambda room, port: ["node", "-e", NODE, str(port)],
    "java": java,
    "python3": lambda room, port: ["python3", "-c", ASYNCIO, str(port)],
    "tail": lambda room, port: ["tail", "-f", write(room / "followed", "text")],
    "sleep": lambda room, port: ["sleep", "1000"],
}
# These listen on no port.
WITHOUT_PORT = {"dbus-daemon", "systemd-udevd", "cron", "tail", "sleep"}
# One of these on a machine is enough.
ALONE = {"systemd-udevd", "cron"}


def find(name):
    """The path of a program; Debian's name for php-fpm ends in its version."""
    versions = sorted(pathlib.Path("/usr/sbin").glob(f"{name}[0-9]*"))
    return shutil.which(name) or (str(versions[-1]) if versions else None)
