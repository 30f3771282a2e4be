"""A machine for the CUDA emulator without a GPU: its source as plain C++, block after block, thread after thread."""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.resolve import operation_of
from fastmma.isa.instruction import Instruction

COMPILER = shutil.which("g++") or shutil.which("clang++")
FLAGS = ("-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused")


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _optimisation(text: str) -> str:
    """The kernel of single results runs twice as fast for the same time of the compiler, others take it longer than they run."""
    return "-O1" if "KERNEL(THREADS, 1) element(" in text else "-Og"


def together(texts: Iterable[str]) -> str:
    """CUDA C++ of several texts as one, each in a namespace, with a key behind the names of its kernels, and without macros left over."""
    parts = ["#include <fenv.h>\n#include <string.h>"]
    for text in dict.fromkeys(texts):
        names = dict.fromkeys((*re.findall(r"^KERNEL\([^)]*\) (\w+)\(", text, re.MULTILINE), "set_block"))
        macros = dict.fromkeys((*re.findall(r"^#define (\w+)", text, re.MULTILINE), *names))
        parts += [f"#define {name} {name}_{_key(text)}" for name in names]
        parts += [f"namespace text_{_key(text)} {{", text, "}"]
        parts += [f"#undef {name}" for name in macros]
    return "\n".join(parts) + "\n"


class PlainMachine:
    """Arrays in main memory, and kernels compiled by the machine's own compiler, in a folder that machines may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = cache(self._loaded)

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
        assert shared_bytes <= 227 * 1024  # what a block has on sm_90
        library = self._library(text)
        set_block, kernel = (library[f"{name}_{_key(text)}"] for name in ("set_block", entry))
        passed = [
            ctypes.c_void_p(None if each is None else each.ctypes.data)
            if each is None or isinstance(each, np.ndarray)
            else ctypes.c_int64(each)
            for each in arguments
        ]
        for block in range(blocks):
            set_block(ctypes.c_int64(block))
            kernel(*passed)

    def place(self) -> int:
        return 0

    def holds(self, array: Any) -> bool:
        return isinstance(array, np.ndarray)

    def native_target(self) -> str:
        return "sm_90a"

    def executes(self, ins: Instruction) -> bool:
        """The source has the exact sums and the chains of fma as plain C++."""
        return operation_of(ins, self.native_target()).arithmetic.method in ("integer", "f64-fma")

    def compile(self, texts: Iterable[str]) -> None:
        """Compile what is not there yet: several texts take less time together."""
        missing = [text for text in dict.fromkeys(texts) if not self._library_of(text).exists()]
        for optimisation in ("-O1", "-Og"):
            self._compile(optimisation, [text for text in missing if _optimisation(text) == optimisation])

    def _compile(self, optimisation: str, texts: list[str]) -> None:
        if not texts:
            return
        whole = together(texts)
        with TemporaryDirectory(dir=self._folder) as folder:
            source, library = Path(folder) / "source.cpp", Path(folder) / "library.so"
            source.write_text(whole)
            assert COMPILER is not None
            subprocess.run([COMPILER, optimisation, *FLAGS, str(source), "-o", str(library)], check=True)
            kept = library.replace(self._folder / f"{_key(whole)}.library")
            for text in texts:
                link = Path(folder) / "link"
                link.symlink_to(kept)
                link.replace(self._library_of(text))

    def _library_of(self, text: str) -> Path:
        return self._folder / f"{_key(text)}.so"

    def _loaded(self, text: str) -> ctypes.CDLL:
        self.compile([text])
        return ctypes.CDLL(str(self._library_of(text).resolve()))
