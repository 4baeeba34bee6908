"""The program for a card, compiled for the host: every lane is a thread, or there is one."""

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path

import numpy as np

COMPILER = shutil.which("g++")


class Host:
    """A `Machine` that is this one."""

    name = "the host"

    def __init__(self, folder, *, shared=227 * 1024, room=2**28, options=()):
        self.folder, self.shared, self._room = Path(folder), shared, room
        self.options = options

    def room(self):
        return self._room

    def library(self, source, definitions, target="library.so", extra=("-shared", "-fPIC")):
        """Compile, once for each set of definitions."""
        defined = [f"-D{name}={value}" for name, value in definitions.items()]
        command = [COMPILER, "-std=c++20", "-O1", "-ffp-contract=off", "-pthread", "-x", "c++"]
        command += [*self.options, *extra, *defined]
        key = hashlib.sha256("\0".join([source, *command]).encode()).hexdigest()[:16]
        path = self.folder / f"{key}-{target}"
        if not path.exists():
            code = path.with_suffix(".cu")
            code.write_text(source, encoding="utf-8")
            subprocess.run([*command, str(code), "-o", str(path)], check=True)
        return path

    def compile(self, source, definitions):
        return ctypes.CDLL(str(self.library(source, definitions)))

    def put(self, array):
        return np.array(array, order="C")

    def zeros(self, size, dtype):
        return np.zeros(size, dtype)

    def get(self, array):
        return array.copy()

    def address(self, array):
        return array.ctypes.data

    def launch(self, program, name, task, grid, threads, shared):
        getattr(program, name)(ctypes.c_void_p(task.ctypes.data))

    def mark(self):
        return None

    def wait(self, mark):
        pass
