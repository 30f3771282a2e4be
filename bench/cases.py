"""What is measured: one case a family, each with the sgemm of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastmma
from fastmma.study.speed.products import Product, ScaledProduct, Shape, operand

WARP_OPCODE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


@dataclass(frozen=True)
class Case:
    """A product.

    Attributes
    ----------
    family : str
        The benchmark group.
    product : Product or ScaledProduct
    shape, quick : (int, int, int)
        M, N and K of the measurement, and of a run that only checks that everything works.
    """

    family: str
    product: Product | ScaledProduct
    shape: Shape = (1536, 1536, 1536)
    quick: Shape = (128, 128, 128)


CASES = (
    Case("f16, sm_90a", Product("f16", "sm_90a")),
    Case("f16, sm_90a, with a bias, rounded to bf16", Product("f16", "sm_90a", finished=True)),
    Case("bf16, sm_90a", Product("bf16", "sm_90a")),
    Case("f16, sm_80", Product("f16", "sm_80")),
    Case("tf32, sm_90a", Product("tf32", "sm_90a")),
    Case("e4m3, sm_90a (wgmma)", Product("e4m3", "sm_90a")),
    Case("e4m3, sm_120a", Product("e4m3", "sm_120a")),
    Case("e4m3, sm_100a (tcgen05)", Product("e4m3", "sm_100a")),
    Case("f64, sm_90a", Product("f64", "sm_90a")),
    Case("s8, sm_90a", Product("s8", "sm_90a")),
    Case("s8, sm_100a (tcgen05)", Product("s8", "sm_100a")),
    Case("b1, sm_90a, K = 8192", Product("b1", "sm_90a"), (1536, 1536, 8192), (128, 128, 512)),
    Case("f16, sm_90a, M = 16", Product("f16", "sm_90a"), (16, 4096, 4096), (16, 256, 256)),
    Case("fp8 1x128 x 128x128, sm_90a, promoted", ScaledProduct(("fp8_1x128", "fp8_128x128"), "sm_90a")),
    Case("NVFP4, sm_120a", ScaledProduct(("nvfp4", "nvfp4"), "sm_120a")),
    Case("NVFP4, sm_100a (tcgen05)", ScaledProduct(("nvfp4", "nvfp4"), "sm_100a")),
    Case("MXFP8, sm_100a (tcgen05)", ScaledProduct(("mxfp8", "mxfp8"), "sm_100a")),
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
