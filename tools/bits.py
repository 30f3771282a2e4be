"""Fingerprints of products by every kernel, to be compared between CPUs: ``python tools/bits.py [part of a name]``."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import fastmma
from fastmma.products.choice import default_instruction

SHAPES = ((50, 90, 300), (100, 450, 400))  # M, N and K: products in blocks, and in panels
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
# types, targets and accumulators whose arithmetics differ
PLAIN = (
    ("f16", "sm_90a", "f32"),
    ("f16", "sm_80", "f32"),
    ("f16", "sm_90a", "f16"),
    ("bf16", "sm_80", "f32"),
    ("tf32", "sm_90a", "f32"),
    ("e4m3", "sm_90a", "f32"),
    ("e4m3", "sm_90a", "f16"),
    ("e4m3", "sm_120a", "f32"),
    ("e5m2", "sm_89", "f32"),
    ("s8", "sm_90a", None),
    ("u8", "sm_80", None),
    ("b1", "sm_80", None),
    ("f64", "sm_90a", None),
)
TILES = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_80"),
)
SCALED = (("nvfp4", "sm_120a"), ("mxfp4", "sm_120a"), ("mxfp8", "sm_120a"))


def operand(kind: str, shape: tuple[int, int], seed: int) -> Any:
    """Random elements; floats with zeros, a large row, and an infinity or a NaN."""
    rng = np.random.default_rng(seed)
    if kind in FLOATS:
        values = rng.standard_normal(shape, dtype=np.float32)
        values[rng.random(shape) < 0.1] = 0
        values[7] *= 64
        values[3, 5] = np.nan if kind == "e4m3" else np.inf
        return values.astype(FLOATS[kind])
    if kind == "f64":
        return rng.standard_normal(shape)
    if kind == "b1":
        return rng.integers(0, 2, shape, dtype=np.uint8).view(bool)
    return rng.integers(0, 256, shape, dtype=np.uint8).view(np.int8 if kind == "s8" else np.uint8)


def products() -> Iterator[tuple[str, Any]]:
    """Names, and functions that compute."""
    for m, n, k in SHAPES:
        for kind, target, accumulator in PLAIN:
            ins = default_instruction(kind, kind, accumulator, target)
            a, b = operand(kind, (m, k), 0), operand(kind, (k, n), 1)
            name = f"{kind} {target} {accumulator or ins.dtype} {m}x{n}x{k}"
            yield name, lambda a=a, b=b, ins=ins, target=target: fastmma.gemm(a, b, instruction=ins, target=target)
        for scheme, target in SCALED:
            rng = np.random.default_rng(2)
            for spread in (0, 6):  # of exponents: with 0 nothing is truncated
                a, b = (
                    fastmma.scaling.quantize(
                        np.ldexp(rng.standard_normal(shape, np.float32), rng.integers(-spread, spread + 1, shape)), scheme
                    )
                    for shape in ((m, 256), (n, 256))
                )
                plan = fastmma.scaled_plan(a, b.T, target=target)
                yield f"{scheme} {target} spread {spread} {m}x{n}", lambda a=a, b=b, plan=plan: fastmma.scaled_matmul(a, b.T, plan=plan)
    for opcode, target in TILES:
        ins = fastmma.instruction(opcode)
        a = np.stack([operand(ins.atype, (16, ins.k), seed) for seed in range(9)])
        b = np.stack([operand(ins.btype, (ins.k, ins.n), seed) for seed in range(9, 18)])
        c = np.zeros((9, 16, ins.n), ins.operands["d"].format.dtype)
        yield f"{opcode} {target}", lambda a=a, b=b, c=c, ins=ins, target=target: fastmma.mma(ins, a, b, c, target=target)


def main(part: str = "") -> None:
    """Print a line for every product whose name holds `part`."""
    for name, compute in products():
        if part in name:
            bits = np.ascontiguousarray(compute()).view(np.uint8)
            print(f"{hashlib.sha256(bits).hexdigest()[:16]}  {name}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
