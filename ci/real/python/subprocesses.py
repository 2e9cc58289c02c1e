"""asyncio's child processes, with eventfds and loops alive while they are started."""

import asyncio
import os
import signal
import subprocess
import sys
import threading


async def exchange(n):
    child = await asyncio.create_subprocess_exec(
        "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate(f"child {n}\n".encode() * 1000)
    return out == f"child {n}\n".encode() * 1000, child.returncode


async def main():
    loop = asyncio.get_running_loop()
    bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    rung = 0
    stop = threading.Event()
    written = 0

    def hear():
        nonlocal rung
        rung += os.eventfd_read(bell)

    def ring():
        nonlocal written
        while not stop.wait(0.0005):
            os.eventfd_write(bell, 1)
            written += 1

    loop.add_reader(bell, hear)
    # The bell rings while processes are forked around it: not one stroke may be lost or doubled.
    thread = threading.Thread(target=ring)
    thread.start()
    for _ in range(5):
        print(await asyncio.gather(*map(exchange, range(8))))

    child = await asyncio.create_subprocess_shell("exit 7")
    print("exit", await child.wait())
    child = await asyncio.create_subprocess_exec("sleep", "60")
    child.send_signal(signal.SIGTERM)
    print("terminated", await child.wait())
    child = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        await asyncio.wait_for(child.wait(), 0.1)
    except asyncio.TimeoutError:
        child.kill()
        print("killed", await child.wait())

    stop.set()
    thread.join()
    while rung < written:
        await asyncio.sleep(0.001)
    print("rung as often as written:", rung == written)
    loop.remove_reader(bell)

    # An inherited eventfd is one counter, not two.
    shared = os.eventfd(5, os.EFD_NONBLOCK)
    os.set_inheritable(shared, True)
    code = (
        f"import os; v = os.eventfd_read({shared}); os.eventfd_write({shared}, v * 100); print(v)"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code],
        close_fds=False,
        stdout=subprocess.PIPE,
        check=True,
    )
    print("child read", done.stdout, "left", os.eventfd_read(shared))
    done = subprocess.run(
        [sys.executable, "-c", f"import os; os.eventfd_read({bell})"],
        close_fds=False,
        stderr=subprocess.PIPE,
    )
    print("close-on-exec:", b"Bad file descriptor" in done.stderr)

    pid = os.posix_spawnp(
        sys.executable,
        [sys.executable, "-c", "import os; os.eventfd_write(9, 77)"],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, bell, 9)],
    )
    print("spawned", os.waitpid(pid, 0)[1], "bell", os.eventfd_read(bell))


asyncio.run(main())
