"""Codes of block-scaled operands, and their products by the reference."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.call import Operation
from fastmma.backends.parameters import scaled_parameters
from fastmma.backends.resolve import operation_of
from fastmma.kernels.params import Scaled
from fastmma.numerics import reference

Codes = NDArray[Any]
_F4 = "f32.e2m1.e2m1.f32"
_SPARSE = "mma.sp::ordered_metadata.sync.aligned.{}.row.col.kind::{}.block_scale.scale_vec::{}.{}.{}"
_DENSE = "mma.sync.aligned.{}.row.col.kind::{}.block_scale.scale_vec::{}.{}.{}"
OPCODES = {
    "mxf4": _DENSE.format("m16n8k64", "mxf4", "2X", _F4, "ue8m0"),
    "nvf4": _DENSE.format("m16n8k64", "mxf4nvf4", "4X", _F4, "ue4m3"),
    "nvf4 2X": _DENSE.format("m16n8k64", "mxf4nvf4", "2X", _F4, "ue8m0"),
    "mxf4 sparse": _SPARSE.format("m16n8k128", "mxf4", "2X", _F4, "ue8m0"),
    "nvf4 sparse": _SPARSE.format("m16n8k128", "mxf4nvf4", "4X", _F4, "ue4m3"),
    **{
        f"{a} {b}": _DENSE.format("m16n8k32", "mxf8f6f4", "1X", f"f32.{a}.{b}.f32", "ue8m0")
        for a, b in (("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2"), ("e5m2", "e2m1"), ("e2m1", "e4m3"), ("e3m2", "e2m3"))
    },
    "e4m3 e4m3 sparse": _SPARSE.format("m16n8k64", "mxf8f6f4", "1X", "f32.e4m3.e4m3.f32", "ue8m0"),
    "e2m3 e5m2 sparse": _SPARSE.format("m16n8k64", "mxf8f6f4", "1X", "f32.e2m3.e5m2.f32", "ue8m0"),
}
KINDS = ["mxf4", "nvf4", "nvf4 sparse", "e4m3 e4m3", "e5m2 e2m1", "e4m3 e4m3 sparse"]
ONE = {"ue8m0": 127, "ue4m3": 0x38}


@cache
def operation(name: str) -> Operation:
    return operation_of(OPCODES[name], "sm_120a")


def parameters(name: str) -> Scaled:
    return scaled_parameters(operation(name))


def expected(name: str, a: Codes, b: Codes, c: Codes | None, scale_a: Codes, scale_b: Codes) -> Codes:
    """By the reference, zeros and scales of 1 filled in; sparse forms step over twice the elements, since their zeros are there."""
    ins, row, p = operation(name).instruction, operation(name).arithmetic, parameters(name)
    if ins.sparse:
        row = replace(row, terms=p.step) if p.group == 1 else replace(row, group=p.group)
    depth = -(-a.shape[1] // p.step) * p.step
    missing, blocks = depth - a.shape[1], depth // p.block
    one = ONE[ins.stype]
    start = np.zeros((len(a), b.shape[1]), np.uint32) if c is None else c
    return reference.tile(
        ins,
        row,
        np.pad(a, ((0, 0), (0, missing))),
        np.pad(b, ((0, missing), (0, 0))),
        start,
        scale_a=np.pad(scale_a, ((0, 0), (0, blocks - scale_a.shape[1])), constant_values=one),
        scale_b=np.pad(scale_b, ((0, blocks - len(scale_b)), (0, 0)), constant_values=one),
    )


def elements(rng: np.random.Generator, name: str, operand: str, shape: tuple[int, ...], kind: str) -> Codes:
    """Codes of one operand: any, only finite ones, mostly zeros, or few values that cancel."""
    element = parameters(name).a if operand == "a" else parameters(name).b
    width = element.exponent_bits + element.mantissa_bits
    signs = rng.integers(0, 2, shape) << width
    if kind == "cancelling":
        one = element.bias << element.mantissa_bits
        return (signs | rng.choice([0, one, one, one | 1], shape)).astype(np.uint8)
    magnitudes = rng.integers(0, 1 << width, shape)
    if kind != "any" and element.specials == 1:
        magnitudes %= ((1 << element.exponent_bits) - 1) << element.mantissa_bits
    elif kind != "any" and element.specials == 2:
        magnitudes %= (1 << width) - 1
    if kind == "sparse":
        magnitudes *= rng.random(shape) < 0.1
    return (signs | magnitudes).astype(np.uint8)


def scales(rng: np.random.Generator, name: str, shape: tuple[int, ...], kind: str) -> Codes:
    """Codes of scales."""
    if kind == "any":
        return rng.integers(0, 256, shape).astype(np.uint8)
    if operation(name).instruction.stype == "ue4m3":
        low, high = {"near": (0x38, 0x48), "wide": (0, 0x7F), "small": (0, 10), "large": (0x70, 0x7F)}[kind]
        return (rng.integers(low, high, shape) | (rng.integers(0, 2, shape) << 7)).astype(np.uint8)
    low, high = {"near": (124, 131), "wide": (100, 150), "small": (30, 62), "large": (186, 197)}[kind]
    return rng.integers(low, high, shape).astype(np.uint8)


def accumulators(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Codes:
    """float32 bits."""
    if kind == "any":
        return rng.integers(0, 1 << 32, shape, np.uint64).astype(np.uint32)
    if kind == "zero":
        return (rng.integers(0, 2, shape, np.uint64) << 31).astype(np.uint32)
    low, high = {"normal": (110, 145), "tiny": (0, 20), "huge": (240, 255), "finite": (0, 255)}[kind]
    fields = rng.integers(low, high, shape, np.uint64) << 23
    return (fields | rng.integers(0, 1 << 23, shape, np.uint64) | rng.integers(0, 2, shape, np.uint64) << 31).astype(np.uint32)


MIXES = [
    ("finite", "near", "normal"),
    ("finite", "near", "zero"),
    ("finite", "wide", "normal"),
    ("finite", "wide", "finite"),
    ("finite", "small", "tiny"),
    ("finite", "large", "huge"),
    ("cancelling", "near", "zero"),
    ("cancelling", "wide", "tiny"),
    ("sparse", "near", "finite"),
    ("sparse", "wide", "normal"),
    ("finite", "any", "finite"),
    ("any", "near", "any"),
    ("any", "any", "any"),
]


def operands(rng: np.random.Generator, name: str, m: int, n: int, k: int, mix: tuple[str, str, str]) -> tuple[Codes, ...]:
    blocks = -(-k // parameters(name).block)
    return (
        elements(rng, name, "a", (m, k), mix[0]),
        elements(rng, name, "b", (k, n), mix[0]),
        accumulators(rng, (m, n), mix[2]),
        scales(rng, name, (m, blocks), mix[1]),
        scales(rng, name, (blocks, n), mix[1]),
    )
