"""What is measured beside the products of `fastmma.study.speed.cases`: tiles, small products, warps and quantisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastmma
from fastmma.study.speed.products import operand

WARP_OPCODE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


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
