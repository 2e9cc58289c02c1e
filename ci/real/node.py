#!/usr/bin/env python3
"""node running node/loop.js: worker threads, files, sockets and children on libuv's loop.

What is in it for epoll: libuv wakes its loop through an eventfd from its thread pool and workers;
with UV_USE_IO_URING=1 it also gives descriptors to an io_uring, past libc.
"""

import pathlib

import twice

PROGRAM = pathlib.Path(__file__).resolve().parent / "node" / "loop.js"


def output(**env):
    return lambda room: room.run(["node", PROGRAM], env=env, limit=90).splitlines()


# Not every release has node for every platform: its absence is a skip even where all is required.
twice.main(
    "node",
    ["node"],
    {"loop": output(), "loop, io_uring": output(UV_USE_IO_URING="1")},
    required=False,
)
