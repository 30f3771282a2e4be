"""What is measured: one case a family, each with the sgemm of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma.products.choice import default_instruction

Shape = tuple[int, int, int]
WARP_OPCODE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


@dataclass(frozen=True)
class Case:
    """A product on a target.

    Attributes
    ----------
    family : str
        The benchmark group.
    atype : str
        Format of A and B.
    target : str
    shape, quick : (int, int, int)
        M, N and K of the measurement, and of a run that only checks that everything works.
    finished : bool
        Whether a bias is added, and the result rounded to bfloat16.
    """

    family: str
    atype: str
    target: str
    shape: Shape = (1536, 1536, 1536)
    quick: Shape = (128, 128, 128)
    finished: bool = False

    def run(self, shape: Shape) -> Callable[[int], Any]:
        """A function of the number of threads that computes the product once."""
        m, n, k = shape
        a, b = operand(self.atype, (m, k), 0), operand(self.atype, (k, n), 1)
        ins = default_instruction(self.atype, self.atype, None, self.target)
        out = np.empty((m, n), ml_dtypes.bfloat16 if self.finished else ins.operands["d"].format.dtype)
        more = {"bias": np.ones(n, np.float32)} if self.finished else {}
        return lambda threads: fastmma.gemm(a, b, instruction=ins, target=self.target, threads=threads, out=out, **more)


@dataclass(frozen=True)
class ScaledCase:
    """A product of block-scaled arrays on a target; quantising them is not part of it."""

    family: str
    schemes: tuple[str, str]
    target: str
    shape: Shape = (1536, 1536, 1536)
    quick: Shape = (128, 128, 128)

    def run(self, shape: Shape) -> Callable[[int], Any]:
        """A function of the number of threads that computes the product once."""
        m, n, k = shape
        a = fastmma.scaling.quantize(operand("tf32", (m, k), 0), self.schemes[0])
        b = fastmma.scaling.quantize(operand("tf32", (n, k), 1), self.schemes[1]).T
        plan = fastmma.scaled_plan(a, b, target=self.target)
        return lambda threads: fastmma.scaled_matmul(a, b, plan=plan, threads=threads)


CASES = (
    Case("f16, sm_90a", "f16", "sm_90a"),
    Case("f16, sm_90a, with a bias, rounded to bf16", "f16", "sm_90a", finished=True),
    Case("bf16, sm_90a", "bf16", "sm_90a"),
    Case("f16, sm_80", "f16", "sm_80"),
    Case("tf32, sm_90a", "tf32", "sm_90a"),
    Case("e4m3, sm_90a (wgmma)", "e4m3", "sm_90a"),
    Case("e4m3, sm_120a", "e4m3", "sm_120a"),
    Case("e4m3, sm_100a (tcgen05)", "e4m3", "sm_100a"),
    Case("f64, sm_90a", "f64", "sm_90a"),
    Case("s8, sm_90a", "s8", "sm_90a"),
    Case("s8, sm_100a (tcgen05)", "s8", "sm_100a"),
    Case("b1, sm_90a, K = 8192", "b1", "sm_90a", (1536, 1536, 8192), (128, 128, 512)),
    Case("f16, sm_90a, M = 16 (mostly packing B)", "f16", "sm_90a", (16, 4096, 4096), (16, 256, 256)),
    ScaledCase("fp8 1x128 x 128x128, sm_90a, promoted", ("fp8_1x128", "fp8_128x128"), "sm_90a"),
    ScaledCase("NVFP4, sm_120a", ("nvfp4", "nvfp4"), "sm_120a"),
    ScaledCase("NVFP4, sm_100a (tcgen05)", ("nvfp4", "nvfp4"), "sm_100a"),
    ScaledCase("MXFP8, sm_100a (tcgen05)", ("mxfp8", "mxfp8"), "sm_100a"),
)


@dataclass(frozen=True)
class TileCase:
    """An instruction on many tiles, each a call's own, as matrices or in registers; beside it `gemm` with the same instruction."""

    name: str
    opcode: str
    target: str
    registers: bool = False

    def run(self, count: int) -> Callable[[int], Any]:
        """A function of the number of threads that executes the instruction on `count` tiles."""
        if self.registers:
            return warps(count, self.target)
        ins = fastmma.instruction(self.opcode)
        a, b = (operand(ins.atype, shape, seed) for seed, shape in enumerate(((count * ins.m, ins.k), (count * ins.k, ins.n))))
        left, right = a.reshape(count, ins.m, ins.k), b.reshape(count, ins.k, ins.n)
        c = operand("tf32", (count * ins.m, ins.n), 2).reshape(count, ins.m, ins.n)
        return lambda threads: fastmma.mma(ins, left, right, c, target=self.target, threads=threads)

    def product(self, n: int) -> Callable[[int], Any]:
        """A function of the number of threads that computes a square product."""
        ins = fastmma.instruction(self.opcode)
        a, b, out = operand(ins.atype, (n, n), 0), operand(ins.btype, (n, n), 1), np.empty((n, n), np.float32)
        return lambda threads: fastmma.gemm(a, b, instruction=ins, target=self.target, threads=threads, out=out)

    def macs(self, count: int) -> int:
        """The multiply-adds of `run`."""
        ins = fastmma.instruction(self.opcode)
        return count * ins.m * ins.n * ins.k


FP8_OPCODE = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
TILE_CASES = (
    TileCase("`mma`, m16n8k16 f16, sm_80", WARP_OPCODE, "sm_80"),
    TileCase("`mma`, m16n8k16 f16, sm_90a", WARP_OPCODE, "sm_90a"),
    TileCase("`mma`, m16n8k32 e4m3, sm_90a (lowered)", FP8_OPCODE, "sm_90a"),
    TileCase("`mma`, m16n8k32 e4m3, sm_89", FP8_OPCODE, "sm_89"),
    TileCase("`mma`, m16n8k32 e4m3, sm_120a", FP8_OPCODE, "sm_120a"),
    TileCase("`warp.mma`, m16n8k16 f16, sm_90a", WARP_OPCODE, "sm_90a", registers=True),
)

_DTYPES = {"f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn}


@cache
def operand(atype: str, shape: tuple[int, int], seed: int) -> NDArray[Any]:
    """A matrix of normally distributed numbers, of random bytes, or of random bits."""
    rng = np.random.default_rng(seed)
    if atype == "s8":
        return rng.integers(-128, 128, shape, dtype=np.int8)
    if atype == "b1":
        return rng.integers(0, 2, shape, dtype=np.uint8).view(bool)
    return rng.standard_normal(shape, dtype=np.float32).astype(_DTYPES[atype])


def sgemm(shape: Shape) -> Callable[[int], Any]:
    """NumPy's float32 product on one core, as a function of the same form as `Case.run`."""
    m, n, k = shape
    a, b = operand("tf32", (m, k), 0), operand("tf32", (k, n), 1)
    out = np.empty((m, n), np.float32)
    return lambda _threads: np.matmul(a, b, out=out)


def small_products(count: int, n: int) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    """`fastmma.matmul` of f16 matrices, or `fastmma.gemm` of two, and NumPy's product of as many in float32."""
    a, b = (operand("tf32", (count * n, n), seed).reshape(count, n, n) for seed in (0, 1))
    left, right = a.astype(np.float16), b.astype(np.float16)
    if count == 1:
        return lambda threads: fastmma.gemm(left[0], right[0], threads=threads), lambda _threads: a[0] @ b[0]
    return lambda threads: fastmma.matmul(left, right, threads=threads), lambda _threads: np.matmul(a, b)


def warps(count: int, target: str = "sm_90a") -> Callable[[int], Any]:
    """`fastmma.warp.mma` on the registers of many warps."""
    rng = np.random.default_rng(0)
    halves = rng.standard_normal((count, 32, 12), dtype=np.float32).astype(np.float16)
    a, b = halves[..., :8].copy().view(np.uint32), halves[..., 8:].copy().view(np.uint32)
    c = np.zeros((count, 32, 4), np.uint32)
    return lambda threads: fastmma.warp.mma(WARP_OPCODE, a, b, c, target=target, threads=threads)


def quantisation(scheme: str, axis: int, rows: int) -> Callable[[int], Any]:
    """Quantising a float32 matrix of so many rows and columns."""
    x = operand("tf32", (rows, rows), 2)
    return lambda threads: fastmma.scaling.quantize(x, scheme, axis=axis, threads=threads)
