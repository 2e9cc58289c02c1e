#!/usr/bin/env python3
"""The distribution's python3 running the programs in python/: the same output, byte for byte."""

import pathlib

import twice

PROGRAMS = sorted((pathlib.Path(__file__).resolve().parent / "python").glob("*.py"))


def output_of(path):
    return lambda room: room.run([twice.system_python(), path], limit=60).splitlines()


twice.main("python", ["python3"], {p.stem: output_of(p) for p in PROGRAMS})
