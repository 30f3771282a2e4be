"""A machine for the CUDA emulator without a GPU: its source as plain C++, block after block, thread after thread."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.resolve import operation_of
from fastmma.isa.instruction import Instruction

COMPILER = shutil.which("g++") or shutil.which("clang++")
FLAGS = ("-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused")


class PlainMachine:
    """Arrays in main memory, and kernels compiled by the machine's own compiler."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = cache(self._build)

    def to_device(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(array)

    def copy_to_host(self, array: NDArray[Any], out: NDArray[Any]) -> None:
        out[...] = array

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        memory = np.empty(shape, dtype)
        memory.view(np.uint8)[...] = 0xA5  # what nobody writes is seen
        return memory

    def run(self, text: str, entry: str, blocks: int, threads: int, arguments: tuple[Any, ...], shared_bytes: int = 0) -> None:
        assert f"#define THREADS {threads}\n" in text
        assert shared_bytes <= 64 * 1024  # what every GPU has
        library = self._library(text)
        passed = [
            ctypes.c_void_p(None if each is None else each.ctypes.data)
            if each is None or isinstance(each, np.ndarray)
            else ctypes.c_int64(each)
            for each in arguments
        ]
        for block in range(blocks):
            library.set_block(ctypes.c_int64(block))
            getattr(library, entry)(*passed)

    def place(self) -> int:
        return 0

    def holds(self, array: Any) -> bool:
        return isinstance(array, np.ndarray)

    def native_target(self) -> str:
        return "sm_90a"

    def executes(self, ins: Instruction) -> bool:
        """The source has the exact sums and the chains of fma as plain C++."""
        return operation_of(ins, self.native_target()).arithmetic.method in ("integer", "f64-fma")

    def _build(self, text: str) -> Any:
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.cpp"
        path.write_text(text)
        assert COMPILER is not None
        subprocess.run([COMPILER, *FLAGS, str(path), "-o", str(path.with_suffix(".so"))], check=True)
        return ctypes.CDLL(str(path.with_suffix(".so")))
