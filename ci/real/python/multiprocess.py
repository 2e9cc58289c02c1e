"""multiprocessing by fork and by spawn: queues, pipes, pools, locks, waiting on many."""

import multiprocessing
import multiprocessing.connection
import os


def work(tasks, results):
    for n in iter(tasks.get, None):
        results.put((n, n * n))


def count(counter, lock, turns):
    for _ in range(turns):
        with lock:
            counter.value += 1


def talk(pipe, n):
    pipe.send(n)
    pipe.send(pipe.recv() + n)


def square(n):
    return n * n


def signal_parent(fd):
    for _ in range(1000):
        os.eventfd_write(fd, 1)


def queues(context):
    tasks, results = context.Queue(), context.Queue()
    workers = [context.Process(target=work, args=(tasks, results)) for _ in range(3)]
    for w in workers:
        w.start()
    for n in range(500):
        tasks.put(n)
    for _ in workers:
        tasks.put(None)
    got = sorted(results.get(timeout=30) for _ in range(500))
    for w in workers:
        w.join(30)
    print("queue", got == [(n, n * n) for n in range(500)], [w.exitcode for w in workers])


def shared(context):
    counter, lock = context.Value("i", 0, lock=False), context.Lock()
    workers = [context.Process(target=count, args=(counter, lock, 500)) for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(30)
    print("counter", counter.value)


def pipes(context):
    ends, workers = [], []
    for n in range(4):
        ours, theirs = context.Pipe()
        workers.append(context.Process(target=talk, args=(theirs, n)))
        ends.append(ours)
        workers[-1].start()
    firsts = {}
    while len(firsts) < 4:
        left = [e for e in ends if e not in firsts]
        for end in multiprocessing.connection.wait(left, 30):
            firsts[end] = end.recv()
    for end in ends:
        end.send(100)
    print("pipes", [firsts[e] for e in ends], [e.recv() for e in ends])
    for w in workers:
        w.join(30)


def pool(context):
    with context.Pool(3) as workers:
        print(
            "pool",
            sum(workers.map(square, range(1000))),
            workers.apply_async(square, (12,)).get(30),
        )


def main():
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        print(method)
        queues(context)
        shared(context)
        pipes(context)
        pool(context)

    context = multiprocessing.get_context("fork")
    fd = os.eventfd(0)
    workers = [context.Process(target=signal_parent, args=(fd,)) for _ in range(4)]
    for w in workers:
        w.start()
    got = 0
    while got < 4000:
        got += os.eventfd_read(fd)
    for w in workers:
        w.join(30)
    print("eventfd", got)


if __name__ == "__main__":
    main()
