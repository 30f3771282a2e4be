"""Ask the cuBLASLt of the GPU in this machine what it would run for products that are drawn, without running them."""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.choice_trees.draw import BLOCK, KINDS, Kind, draw

ATTRIBUTES = 9  # of cublasLtMatmulAlgoConfigAttributes_t: those of `fastmma.cublas.Choice`, in order
_TRANSA, _TRANSB, _EPILOGUE, _BIAS, _SCALES, _FAST = 3, 4, 7, 8, (17, 18), 25  # cublasLtMatmulDescAttributes_t
_ROWS, _COLUMNS, _LEAD, _BATCH, _STRIDE = 2, 3, 4, 5, 6  # cublasLtMatrixLayoutAttribute_t
_WORKSPACE, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
_POINTER = 0x700000000000  # of a bias and of scales, which nobody reads


class Answer(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Asker:
    """What is asked about products of one kind."""

    def __init__(self, path: str, kind: Kind) -> None:
        self._library, self._handle, self._limits = ctypes.CDLL(path), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("Create", ctypes.byref(self._handle))
        self._call("MatmulPreferenceCreate", ctypes.byref(self._limits))
        self._set("MatmulPreference", self._limits, _WORKSPACE, ctypes.c_uint64(kind.workspace))
        if kind.reductions:
            self._set("MatmulPreference", self._limits, _REDUCTIONS, ctypes.c_uint32(kind.reductions))
        for attribute in _ALIGNMENTS:
            self._set("MatmulPreference", self._limits, attribute, ctypes.c_uint32(256))
        self._products = [self._product(kind, layout) for layout in range(4)]
        self._matrices = [ctypes.c_void_p() for _ in range(3)]
        for matrix, dtype in zip(self._matrices, (kind.dtype, kind.dtype, kind.result), strict=True):
            self._call("MatrixLayoutCreate", ctypes.byref(matrix), dtype, ctypes.c_uint64(8), ctypes.c_uint64(8), ctypes.c_int64(8))

    def _call(self, name: str, *values: Any) -> None:
        status = getattr(self._library, f"cublasLt{name}")(*values)
        if status:
            raise RuntimeError(f"cublasLt{name} answers {status}")

    def _set(self, what: str, where: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._call(f"{what}SetAttribute", where, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def _product(self, kind: Kind, layout: int) -> ctypes.c_void_p:
        """Describe a row-major product, which is a column-major one where b comes first."""
        made = ctypes.c_void_p()
        self._call("MatmulDescCreate", ctypes.byref(made), kind.compute, kind.scale)
        values: list[tuple[int, Any]] = [(_TRANSA, ctypes.c_int32(layout & 1)), (_TRANSB, ctypes.c_int32(layout >> 1))]
        values += [(_EPILOGUE, ctypes.c_uint32(4)), (_BIAS, ctypes.c_uint64(_POINTER))] if kind.bias else []
        values += [(attribute, ctypes.c_uint64(_POINTER)) for attribute in (_SCALES if kind.scales else ())]
        values += [(_FAST, ctypes.c_int8(1))] if kind.fast else []
        for attribute, value in values:
            self._set("MatmulDesc", made, attribute, value)
        return made

    def ask(self, layout: int, m: int, n: int, k: int, stack: int) -> list[int]:
        """Return the attributes of the choice, and whether it needs a workspace; -1 first where there is none."""
        sides = ((k, n) if layout & 1 else (n, k), (m, k) if layout >> 1 else (k, m), (n, m))
        for matrix, (rows, columns) in zip(self._matrices, sides, strict=True):
            values = ((_ROWS, ctypes.c_uint64(rows)), (_COLUMNS, ctypes.c_uint64(columns)), (_LEAD, ctypes.c_int64(rows)))
            batch = ((_BATCH, ctypes.c_int32(stack)), (_STRIDE, ctypes.c_int64(rows * columns if stack > 1 else 0)))
            for attribute, value in (*values, *batch):
                self._set("MatrixLayout", matrix, attribute, value)
        answer, count, (b, a, d) = Answer(), ctypes.c_int(), self._matrices
        asked = (self._handle, self._products[layout], b, a, d, d, self._limits, 1, ctypes.byref(answer), ctypes.byref(count))
        if self._library.cublasLtMatmulAlgoGetHeuristic(*asked) or not count.value:
            return [-1] + [0] * ATTRIBUTES
        return self.attributes(answer)

    def attributes(self, answer: Answer) -> list[int]:
        """Return the attributes of an answer, and whether it needs a workspace."""
        found = []
        for attribute in range(ATTRIBUTES):
            value, written, size = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t(2 if attribute > 6 else 4)
            where = ctypes.byref(value), size, ctypes.byref(written)
            self._call("MatmulAlgoConfigGetAttribute", ctypes.byref(answer.algo), attribute, *where)
            found.append(ctypes.c_int32(value.value & 0xFFFFFFFF).value)
        return [*found, int(answer.workspace > 1023)]


def library_path() -> str:
    """Find the cuBLASLt that PyTorch loads."""
    import torch

    torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
    return next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcublasLt.so" in line)


def _work(path: str, names: list[str], seed: int, deadline: float, folder: Path, counter: Any) -> None:
    """Ask about one block of products after another until the time is over, and write each to a file."""
    askers: dict[str, Asker] = {}
    while time.time() < deadline:
        with counter.get_lock():
            block = counter.value
            counter.value += 1
        name = names[block % len(names)]
        asker = askers.setdefault(name, Asker(path, KINDS[name]))
        rows: NDArray[np.int32] = np.array([asker.ask(*product) for product in draw(name, seed + block).tolist()], np.int32)
        choices, which = np.unique(rows, axis=0, return_inverse=True)
        np.savez_compressed(folder / f"{name}.{seed + block}.npz", choices=choices, which=which.reshape(-1).astype(np.uint16))


def main() -> None:
    """Ask in as many processes as there are processors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the answers are written")
    parser.add_argument("--kinds", default=",".join(f"{name}=1" for name in KINDS), help="kinds, and their shares in whole numbers")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first block; other blocks have the next ones")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    shares = dict(part.split("=") for part in options.kinds.split(","))
    names = [name for name, share in shares.items() for _ in range(int(share))]
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        path = pool.apply(library_path)
    counter, deadline = context.Value("i", 0), time.time() + options.seconds
    given = path, names, options.seed, deadline, options.folder, counter
    workers = [context.Process(target=_work, args=given) for _ in range(os.cpu_count() or 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{counter.value * BLOCK:,} answers of {path}")


if __name__ == "__main__":
    main()
