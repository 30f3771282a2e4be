"""The fused step of the kernels by the exact reference, and accumulators that are hard for it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma import FORMATS, Evidence
from fastmma.backends.parameters import element_of
from fastmma.kernels.params import Element, Fused
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.reference_steps import Number, fused_step, ieee_add, number, product

NAMES = ("f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
ELEMENTS = {name: element_of(FORMATS[name]) for name in NAMES}
F16 = ELEMENTS["f16"]
_NAMES = {element: name for name, element in ELEMENTS.items()}


def reference(p: Fused, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, order: NDArray[Any] | None = None) -> NDArray[Any]:
    """A product (rows, k) times (k, columns) of codes, step by step; `order` is that of the products of one instruction."""
    result = FORMATS["f16" if p.half else "f32"]
    known = Evidence("reported", "the test")
    rounding = "rn" if p.half else "rz"
    how = Arithmetic((), (), (), (), "fused", known, p.terms, p.align_bits, p.emax_floor, p.keep_bits, rounding=rounding)
    period = p.terms * max(p.restart, 1)
    padded = -(-a.shape[1] // period) * period
    positions = np.arange(padded)
    if order is not None:
        positions = (positions[::period, None] + order).ravel()

    def read(element: Element, codes: NDArray[Any]) -> list[list[Number]]:
        filled = np.pad(codes, ((0, 0), (0, padded - codes.shape[1])))[:, positions]
        return [[number(code, FORMATS[_NAMES[element]]) for code in line] for line in filled.tolist()]

    lines, columns = read(p.a, a), read(p.b, b.T)
    out = np.zeros((len(lines), len(columns)), result.code_dtype)
    for i, j in itertools.product(range(len(lines)), range(len(columns))):
        products = [product(x, y) for x, y in zip(lines[i], columns[j], strict=True)]
        d = 0 if c is None else int(c[i, j])
        for start in range(0, padded, period):
            total = 0 if p.restart else d
            for k in range(start, start + period, p.terms):
                total = fused_step([*products[k : k + p.terms], number(total, result)], how, result)
            d = ieee_add(number(total, result), number(d, result), result) if p.restart else total
        out[i, j] = d
    return out


def accumulator(rng: np.random.Generator, p: Fused, shape: tuple[int, ...], kind: str) -> NDArray[Any]:
    """Codes of c that meet the products of a distribution of `reference.products.random_codes`."""
    dtype: Any = np.uint16 if p.half else np.uint32
    if kind == "bits":
        return rng.integers(0, 1 << (16 if p.half else 32), shape, np.uint64).astype(dtype)
    if kind == "rare":
        return np.where(rng.random(shape) < 0.1, accumulator(rng, p, shape, "bits"), accumulator(rng, p, shape, "normal"))
    ends = {"normal": (-2, 3), "spread": (-28, 14), "vanishing": (-150, -100), "large": (10, 127), "extreme": (28, 36)}.get(kind, (-16, 1))
    values = rng.choice([0.0, -0.0, 1.0, -1.0, 1.25, -1.0 - 2.0**-20], shape) * 2.0 ** rng.integers(*ends, shape)
    with np.errstate(over="ignore"):
        return values.astype(np.float16 if p.half else np.float32).view(dtype)


def lowered_order(p: Fused) -> NDArray[np.int32] | None:
    """k % 4 in {0, 1} first, then {2, 3}."""
    if p.restart != 2:
        return None
    k = np.arange(p.terms * 2, dtype=np.int32)
    return np.concatenate([k[k % 4 < 2], k[k % 4 >= 2]])


def f16(values: Any) -> NDArray[np.uint16]:
    return np.array(values, np.float16).view(np.uint16)
