"""An asyncio server with fifty clients, threads that call back into its loop, timers, signals."""

import asyncio
import concurrent.futures
import os
import signal
import socket
import threading
import time


async def serve():
    served = 0

    async def echo(reader, writer):
        nonlocal served
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
            served += 1
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()

    async def client(n):
        reader, writer = await asyncio.open_connection(*address)
        got = []
        for k in range(40):
            writer.write(f"client {n} line {k} {'x' * (k * 97)}\n".encode())
            got.append(len(await reader.readline()))
        writer.close()
        await writer.wait_closed()
        return sum(got)

    print("echoed", await asyncio.gather(*map(client, range(50))))
    server.close()
    await server.wait_closed()
    print("served", served)


async def threads_call_back():
    loop = asyncio.get_running_loop()
    calls, done = [], asyncio.Event()
    total = 4 * 2000

    def note(thread, n):
        calls.append((thread, n))
        if len(calls) == total:
            done.set()

    def shout(thread):
        for n in range(2000):
            loop.call_soon_threadsafe(note, thread, n)

    threads = [threading.Thread(target=shout, args=(t,)) for t in range(4)]
    for t in threads:
        t.start()
    await asyncio.wait_for(done.wait(), 30)
    for t in threads:
        t.join()
    for t in range(4):
        print(
            "thread", t, "in order:", [n for thread, n in calls if thread == t] == list(range(2000))
        )


async def one_at_a_time():
    """A thread that waits for each of its calls: the loop sleeps in between."""
    loop = asyncio.get_running_loop()

    async def double(n):
        return 2 * n

    def ask():
        return [asyncio.run_coroutine_threadsafe(double(n), loop).result(30) for n in range(1000)]

    print("asked", sum(await asyncio.to_thread(ask)))


async def executor():
    loop = asyncio.get_running_loop()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = [loop.run_in_executor(pool, pow, n, 3) for n in range(300)]
        print("cubes", sum(await asyncio.gather(*jobs)))


async def timers():
    loop = asyncio.get_running_loop()
    order = []
    began = time.monotonic()
    for n in (5, 1, 4, 2, 3):
        loop.call_later(n * 0.03, order.append, n)
    await asyncio.sleep(0.2)
    print("timers", order, time.monotonic() - began >= 0.2)
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 0.05)
    except asyncio.TimeoutError:
        print("timed out")


async def signals():
    loop = asyncio.get_running_loop()
    got = asyncio.Queue()
    loop.add_signal_handler(signal.SIGUSR1, got.put_nowait, "USR1")
    for _ in range(20):
        # From another thread, so that the loop is asleep when it comes.
        threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        print(await asyncio.wait_for(got.get(), 10), end=" ")
    print()
    loop.remove_signal_handler(signal.SIGUSR1)


async def socket_pair():
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    left.setblocking(False), right.setblocking(False)
    payload = bytes(range(256)) * 8192
    sending = asyncio.create_task(loop.sock_sendall(left, payload))
    got = b""
    while len(got) < len(payload):
        got += await loop.sock_recv(right, 65536)
    await sending
    print("socketpair", got == payload)
    left.close(), right.close()


async def main():
    for part in (serve, threads_call_back, one_at_a_time, executor, timers, signals, socket_pair):
        await part()


asyncio.run(main())
