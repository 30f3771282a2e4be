"""Fingerprints of products by every kernel, to be compared between CPUs: ``python tools/bits.py [part of a name]``.

``--processes N`` computes N at a time and prints each when it is done, so sort what is to be compared.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, product
from typing import Any

import ml_dtypes
import numpy as np

import fastmma
from fastmma.products.choice import default_instruction

Named = tuple[str, Callable[[], Any]]  # a product's name, and what computes it

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
# M, N, K, and types of products that have few rows and a large B; of e4m3 it is larger
THIN = (("f16", "sm_90a", "f32"), ("f16", "sm_90a", "f16"), ("bf16", "sm_80", "f32"), ("tf32", "sm_90a", "f32"), ("e4m3", "sm_90a", "f32"))
THIN_SHAPES = {"e4m3": ((2, 1030, 4100),), "": ((1, 1030, 1040), (3, 1030, 1040))}
TILES = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_80"),
    ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc", "sm_80"),
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_80"),
    ("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64.rz", "sm_90"),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_80"),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
)
REGISTERS = [opcode for opcode, _ in TILES if "m16n8k" in opcode and "f64" not in opcode]
# products by instructions of which none is a default
CHOSEN = (
    ("f16", "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_80"),
    ("f16", "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
    ("f64", "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64.rm", "sm_90"),
    ("tf32", "fma.rn.f32", "sm_90"),
    ("s8", "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", "sm_80"),
)
SPARSE = (
    ("f16", "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_80"),
    ("e4m3", "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_89"),
    ("s8", "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", "sm_80"),
)
SCALED = (
    ("nvfp4", "nvfp4", "sm_120a"),
    ("mxfp4", "mxfp4", "sm_120a"),
    ("mxfp8", "mxfp8", "sm_120a"),
    ("mxfp8", "mxfp8", "sm_100a"),
    ("fp8_1x128", "fp8_128x128", "sm_90a"),
)


def operand(kind: str, shape: tuple[int, int], seed: int) -> Any:
    """Random elements; floats with zeros, a large row, and an infinity or a NaN."""
    rng = np.random.default_rng(seed)
    if kind in FLOATS:
        values = rng.standard_normal(shape, dtype=np.float32)
        values[rng.random(shape) < 0.1] = 0
        values[7 % len(values)] *= 64
        values[3 % len(values), 5 % shape[1]] = np.nan if kind == "e4m3" else np.inf
        return values.astype(FLOATS[kind])
    if kind == "f64":
        return rng.standard_normal(shape)
    if kind == "b1":
        return rng.integers(0, 2, shape, dtype=np.uint8).view(bool)
    return rng.integers(0, 256, shape, dtype=np.uint8).view(np.int8 if kind == "s8" else np.uint8)


def prepared(a: Any, b: Any, c: Any, **options: Any) -> Any:
    """By what `fastmma.prepare` keeps for shapes, called twice."""
    product = fastmma.prepare(a, b, **options)
    return product(a, b, product(a, b, c))


def plain() -> Iterator[Named]:
    """Products in blocks, in panels, of few rows, by what is prepared for their shape, and stacks of them."""
    for m, n, k in SHAPES:
        for kind, target, accumulator in PLAIN:
            ins = default_instruction(kind, kind, accumulator, target)
            a, b = operand(kind, (m, k), 0), operand(kind, (k, n), 1)
            name = f"{kind} {target} {accumulator or ins.dtype}"
            yield f"{name} {m}x{n}x{k}", partial(fastmma.gemm, a, b, instruction=ins, target=target)
    for kind, opcode, target in CHOSEN:
        a, b = operand(kind, (40, 100), 0), operand(kind, (100, 70), 1)
        yield f"{opcode} {target} 40x70x100", partial(fastmma.gemm, a, b, instruction=opcode, target=target)
    for kind, target, accumulator in THIN:
        for m, n, k in THIN_SHAPES.get(kind, THIN_SHAPES[""]):
            a, b = operand(kind, (m + 8, k), 0)[8:], operand(kind, (k, n), 1)
            for order in ("C", "F"):
                given = np.asarray(b, order=order)
                call = partial(fastmma.gemm, a, given, instruction=default_instruction(kind, kind, accumulator, target), target=target)
                yield f"thin {kind} {target} {accumulator} {m}x{n}x{k} {order}", call
    for kind, target in (("f16", "sm_90a"), ("e4m3", "sm_90a")):
        a, b = operand(kind, (24, 64), 0), operand(kind, (64, 40), 1)
        yield f"prepared {kind} {target}", partial(prepared, a, b, np.ones((24, 40), np.float32), target=target)
        stacks = (np.stack([operand(kind, shape, seed) for seed in range(5)]) for shape in ((24, 64), (64, 40)))
        yield f"matmul {kind} {target}", partial(fastmma.matmul, *stacks, target=target)


def sparse() -> Iterator[Named]:
    """Products of a sparse A."""
    for kind, opcode, target in SPARSE:
        stored, metadata = fastmma.sparse.compress(operand(kind, (40, 256), 0), prune=True)
        b = operand(kind, (256, 70), 1)
        yield f"{opcode} {target}", partial(fastmma.gemm, stored, b, metadata=metadata, instruction=opcode, target=target)


def quantized(shape: tuple[int, int], scheme: str, spread: int) -> fastmma.ScaledArray:
    """A block-scaled array of numbers whose exponents spread so far."""
    rng = np.random.default_rng(2 + shape[0])
    return fastmma.scaling.quantize(np.ldexp(rng.standard_normal(shape, np.float32), rng.integers(-spread, spread + 1, shape)), scheme)


def scaled_product(left: str, right: str, target: str, spread: int, m: int, n: int) -> Any:
    """The product of two of them."""
    a, b = quantized((m, 256), left, spread), quantized((n, 256), right, spread)
    return fastmma.scaled_matmul(a, b.T, plan=fastmma.scaled_plan(a, b.T, target=target))


def scaled() -> Iterator[Named]:
    """Products of block-scaled arrays, and their elements."""
    for (m, n, _), (left, right, target), spread in product(SHAPES, SCALED, (0, 6)):  # with 0 nothing is truncated
        yield f"{left} {right} {target} spread {spread} {m}x{n}", partial(scaled_product, left, right, target, spread, m, n)
    for scheme in sorted({each for left, right, _ in SCALED for each in (left, right)}):
        yield f"quantize {scheme}", lambda scheme=scheme: quantized((100, 256), scheme, 6).dequantize()


def tiles() -> Iterator[Named]:
    """Single instructions, on matrices and on registers."""
    for opcode, target in TILES:
        ins = fastmma.instruction(opcode)
        a = np.stack([operand(ins.atype, (ins.m, ins.k), seed) for seed in range(9)])
        b = np.stack([operand(ins.btype, (ins.k, ins.n), seed) for seed in range(9, 18)])
        c = np.zeros((9, ins.m, ins.n), ins.operands["d"].format.dtype)
        yield f"{opcode} {target}", partial(fastmma.mma, ins, a, b, c, target=target)
        if opcode in REGISTERS:
            registers = [
                fastmma.scatter(array.view(ins.operands[name].format.code_dtype), ins.operands[name])
                for name, array in (("a", a), ("b", b), ("c", c))
            ]
            yield f"registers {opcode} {target}", partial(fastmma.warp.mma, ins, *registers, target=target)


def fingerprint(index: int) -> str:
    """A line for a product: the hash of its bits, or the kind of an error, and its name."""
    name, compute = wanted[index]
    try:
        found = hashlib.sha256(np.ascontiguousarray(compute()).view(np.uint8)).hexdigest()
    except Exception as error:  # the other products are computed still
        traceback.print_exc()
        found = type(error).__name__
    return f"{found:16.16}  {name}"


wanted: list[Named] = []  # processes that are forked have it without a copy


def main() -> None:
    """Print a line for every product whose name holds a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="", help="only products whose names hold it")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="how many products are computed at a time")
    options = parser.parse_args()
    wanted.extend(each for each in chain(plain(), tiles(), sparse(), scaled()) if options.part in each[0])
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        for line in pool.imap_unordered(fingerprint, range(len(wanted))):
            print(line, flush=True)


if __name__ == "__main__":
    main()
