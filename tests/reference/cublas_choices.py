"""Ask cuBLASLt on a GPU how it takes fresh products, without running them, and judge the rules of the preset by the answers.

``python tests/reference/cublas_choices.py --count 100000 --seed 7`` prints, for each rule, how many of so many products it predicted.
It needs PyTorch with CUDA, whose cuBLASLt it asks, and asks as PyTorch does.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastmma.products.presets import GEMM_PRESETS, OnePart

BF16, F16, E4M3, F32 = 14, 2, 28, 0  # cudaDataType_t
COMPUTE_32F = 68
TRANSA, TRANSB, EPILOGUE, BIAS, SCALES, FAST = 3, 4, 7, 8, (17, 18), 25  # cublasLtMatmulDescAttributes_t
BATCH, BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
WORKSPACE, ALIGNMENTS = 1, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
ALGORITHM, PARTS = 0, 2  # cublasLtMatmulAlgoConfigAttributes_t
NVJET = 66  # the algorithm that adds with one accumulator of wgmma
POINTER = 0x700000000000  # of a bias and of scales, which nobody reads


class Heuristic(ctypes.Structure):
    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("rest", ctypes.c_int * 4),
    )


class Asked(NamedTuple):
    """A product: row-major M x N, or a stack of them."""

    dtype: int
    layout: str
    m: int
    n: int
    k: int
    stack: int = 1
    biased: bool = False
    fast: bool = False


class CublasLt:
    """The library that PyTorch has loaded."""

    def __init__(self) -> None:
        import torch

        torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
        with open("/proc/self/maps") as maps:
            (path,) = {line.split()[-1] for line in maps if "libcublasLt.so" in line}
        self.library = ctypes.CDLL(path)
        self.version = self.library.cublasLtGetVersion()
        self.handle = ctypes.c_void_p()
        self._call("Create", ctypes.byref(self.handle))
        # what PyTorch lends: 32 MiB to plain products, 1 MiB to those with a bias or scales
        self.preferences = {size: self._preference(size) for size in (32 << 20, 1 << 20)}
        self.descriptions: dict[Any, ctypes.c_void_p] = {}

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self.library, f"cublasLt{name}")(*args)
        if status:
            raise RuntimeError(f"cublasLt{name} answers {status}")

    def _set(self, kind: str, what: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._call(f"{kind}SetAttribute", what, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def _preference(self, workspace: int) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call("MatmulPreferenceCreate", ctypes.byref(made))
        self._set("MatmulPreference", made, WORKSPACE, ctypes.c_uint64(workspace))
        for attribute in ALIGNMENTS:
            self._set("MatmulPreference", made, attribute, ctypes.c_uint32(256))
        return made

    def _description(self, asked: Asked) -> ctypes.c_void_p:
        key = asked.dtype == E4M3, asked.layout, asked.biased, asked.fast
        if key not in self.descriptions:
            made = ctypes.c_void_p()
            self._call("MatmulDescCreate", ctypes.byref(made), COMPUTE_32F, F32)
            self._set("MatmulDesc", made, TRANSA, ctypes.c_int32(asked.layout[1] == "t"))  # column-major: b comes first
            self._set("MatmulDesc", made, TRANSB, ctypes.c_int32(asked.layout[0] == "t"))
            if asked.biased:
                self._set("MatmulDesc", made, EPILOGUE, ctypes.c_uint32(4))
                self._set("MatmulDesc", made, BIAS, ctypes.c_uint64(POINTER))
            for attribute in SCALES if asked.dtype == E4M3 else ():
                self._set("MatmulDesc", made, attribute, ctypes.c_uint64(POINTER))
            if asked.fast:
                self._set("MatmulDesc", made, FAST, ctypes.c_int8(1))
            self.descriptions[key] = made
        return self.descriptions[key]

    def _matrix(self, dtype: int, rows: int, columns: int, stack: int) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call("MatrixLayoutCreate", ctypes.byref(made), dtype, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
        if stack > 1:
            self._set("MatrixLayout", made, BATCH, ctypes.c_int32(stack))
            self._set("MatrixLayout", made, BATCH_STRIDE, ctypes.c_int64(rows * columns))
        return made

    def choice(self, asked: Asked) -> tuple[int, int]:
        """Return the algorithm that the library takes for a product, and in how many parts it takes k."""
        _, layout, m, n, k, stack, *_ = asked
        shapes = [(k, n) if layout[1] == "t" else (n, k), (m, k) if layout[0] == "t" else (k, m), (n, m)]
        dtypes = (asked.dtype, asked.dtype, BF16 if asked.dtype == E4M3 else asked.dtype)
        a, b, c = (self._matrix(dtype, *shape, stack) for dtype, shape in zip(dtypes, shapes, strict=True))
        preference = self.preferences[1 << 20 if asked.biased or asked.dtype == E4M3 else 32 << 20]
        found, count = Heuristic(), ctypes.c_int()
        self._call(
            "MatmulAlgoGetHeuristic",
            self.handle,
            self._description(asked),
            a,
            b,
            c,
            c,
            preference,
            1,
            ctypes.byref(found),
            ctypes.byref(count),
        )
        for matrix in (a, b, c):
            self._call("MatrixLayoutDestroy", matrix)
        return self._field(found, ALGORITHM), self._field(found, PARTS)

    def _field(self, found: Heuristic, attribute: int) -> int:
        value, size = ctypes.c_uint32(), ctypes.c_size_t()
        self._call(
            "MatmulAlgoConfigGetAttribute", ctypes.byref(found.algo), attribute, ctypes.byref(value), ctypes.c_size_t(4), ctypes.byref(size)
        )
        return value.value


def rules(gpu: str) -> Iterator[tuple[str, str, OnePart]]:
    """Yield the preset, a format and a rule about a GPU."""
    for name, rows in GEMM_PRESETS.items():
        yield from ((name, fmt, rule) for row in rows for rule in row.rules if rule.gpu == gpu for fmt in rule.atypes)


def draw(rng: np.random.Generator, fmt: str, rule: OnePart, fast: bool) -> Asked:
    """Draw a product that a rule is about."""
    step = rule.multiple
    while True:
        layout = str(rng.choice(rule.layouts))
        most = rule.most_k or 16384
        n = step * int(2 ** rng.uniform(0, 12))
        m = int(2 ** rng.uniform(0, 14)) * (step if layout[0] == "t" else 1)
        k = step * (int(rng.integers(1, most // step + 1)) if rng.random() < 0.5 else int(2 ** rng.uniform(0, np.log2(most / step))))
        if rule.holds(layout, m, n, k):
            dtype = {"e4m3": E4M3, "f16": F16, "bf16": BF16}[fmt]
            stack = int(2 ** rng.uniform(1, 9)) if rule.stack else 1
            return Asked(dtype, layout, m, n, k, stack, biased=not rule.stack and bool(rng.random() < 0.5), fast=fast)


def main() -> None:
    """Judge all rules about the GPU of this machine."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="products for each rule and format")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    library, gpu = CublasLt(), torch.cuda.get_device_name().split()[1]
    print(f"{torch.cuda.get_device_name()}, cuBLASLt {library.version}, seed {given.seed}")
    rng = np.random.default_rng(given.seed)
    for name, fmt, rule in rules(gpu):
        fast = name == "cublas-fast-accum"
        right = sum(library.choice(draw(rng, fmt, rule, fast)) == (NVJET, 1) for _ in range(given.count))
        print(f"{right:,} of {given.count:,}: {name}, {fmt}: {rule}", flush=True)


if __name__ == "__main__":
    main()
