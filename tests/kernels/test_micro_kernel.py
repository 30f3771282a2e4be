"""Micro-kernels are compiled once for each record, kept on the disk, and called by their address."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fastmma.kernels.llvm.cpu import usable
from fastmma.kernels.llvm.emit import Emitter
from fastmma.kernels.llvm.micro_kernel import MicroKernel


def kept(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


class Record(NamedTuple):
    """What a micro-kernel is compiled for."""

    number: int


def micro_kernel(emitted: list[Record]) -> MicroKernel:
    """As a new process has it; it notes what it is compiled for."""

    def emit(record: Record, builder: Any, arguments: list[Any]) -> None:
        emitted.append(record)
        Emitter(builder).store(builder.add(arguments[1], Emitter(builder).index(record.number)), arguments[0])

    return MicroKernel(emit, 1, 1)


@pytest.mark.skipif(not usable(), reason="micro-kernels need a CPU that they are emitted for")
def test_a_micro_kernel_is_kept_for_each_record(folder: Path) -> None:
    emitted: list[Record] = []
    for processes in range(2):
        kernel = micro_kernel(emitted)
        for record in (Record(5), Record(7), Record(5)):
            result = np.array([0, 0])
            arguments = np.array([result.ctypes.data, 30], np.int64)
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kernel.address(record))(arguments.ctypes.data)
            assert result.tolist() == [30 + record.number, 0]
        assert emitted == [Record(5), Record(7)], processes
    assert [path.read_bytes()[32:36] for path in kept(folder)] == [b"\x7fELF"] * 2 or sys.platform != "linux"
    for path in kept(folder):
        path.write_bytes(path.read_bytes()[:-1])
    assert micro_kernel(emitted).address(Record(5))
    assert emitted == [Record(5), Record(7), Record(5)]
