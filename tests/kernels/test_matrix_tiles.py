"""Random tiles of every arithmetic of AMD's matrix cores, one by one and as parts of products, against integers written from the prose.

``FASTMMA_TILES=1000000`` compares so many of both, which takes some hours of one core.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import matrix_tiles
from reference.cases import cases
from reference.matrix_tiles import Numbers

import fastmma
from fastmma import Instruction
from fastmma.isa.formats import Format

pytestmark = pytest.mark.best_kernels

TILES = int(os.environ.get("FASTMMA_TILES", "0"))
# the smallest and the largest exponent of elements, and whether significands are any or 1
SPREADS = ((-2, 2, True), (-8, 8, True), (-60, 58, True), (-3, 3, False), (-80, -60, True))
_AT_ONCE = 4  # tiles
_PRODUCT = 3, 5  # tiles of a product, and more that are not whole

Step = Callable[[Numbers, Numbers, NDArray[np.float32]], NDArray[np.float32]]
WINDOWED: Step = partial(matrix_tiles.windowed, apart=False)
APART: Step = partial(matrix_tiles.windowed, apart=True)
METHODS: tuple[tuple[str, str, Step, int], ...] = (
    ("MI100", "v_mfma_f32_16x16x16_f16", matrix_tiles.exact, 4),
    ("MI100", "v_mfma_f32_16x16x8bf16", matrix_tiles.exact, 2),
    ("MI250X", "v_mfma_f32_16x16x16_f16", matrix_tiles.paired, 4),
    ("MI250X", "v_mfma_f32_16x16x8bf16", matrix_tiles.paired, 2),
    ("MI250X", "v_mfma_f32_16x16x16bf16_1k", matrix_tiles.paired, 4),
    ("MI300X", "v_mfma_f32_16x16x16_f16", WINDOWED, 8),
    ("MI300X", "v_mfma_f32_16x16x16_bf16", WINDOWED, 8),
    ("MI300X", "v_mfma_f32_16x16x4_4b_f16", WINDOWED, 4),
    ("MI300X", "v_mfma_f32_16x16x4_4b_bf16", WINDOWED, 4),
    ("MI300X", "v_mfma_f32_16x16x8_xf32", WINDOWED, 4),
    ("MI300X", "v_mfma_f32_16x16x32_fp8_fp8", APART, 16),
    ("MI300X", "v_mfma_f32_16x16x32_fp8_bf8", APART, 16),
    ("MI300X", "v_mfma_f32_16x16x32_bf8_bf8", APART, 16),
)


def drawn(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...], low: int, high: int, *, every: bool) -> NDArray[Any]:
    """Finite elements, and zeros of both signs."""
    exponents = rng.integers(low, high + 1, shape).clip(fmt.emin - fmt.mantissa_bits, fmt.emax - 1)
    significands = (1 << fmt.mantissa_bits) + rng.integers(0, 1 << fmt.mantissa_bits if every else 1, shape)
    values = np.ldexp(significands * rng.choice([-1.0, 1.0], shape), exponents - fmt.mantissa_bits)
    values *= rng.random(shape) > 0.1
    return values.astype(np.float32).astype(fmt.dtype)


def drawn_tiles(
    rng: np.random.Generator, ins: Instruction, tiles: tuple[int, ...], spread: tuple[int, int, bool], terms: int, k: int
) -> Any:
    """A, B and c of some tiles, or of one product; a quarter of c cancels the products of the first step."""
    low, high, every = spread
    a = drawn(rng, ins.formats.a, (*tiles[:-1], k), low, high, every=every)
    b = drawn(rng, ins.formats.b, (*tiles[:-2], k, tiles[-1]), low, high, every=every)
    c = drawn(rng, ins.formats.c, tiles, 2 * low, 2 * high, every=every)
    first = -(a[..., :terms].astype(np.float64) @ b[..., :terms, :].astype(np.float64)).astype(np.float32)
    return a, b, np.where(rng.random(tiles) < 0.25, first, c)


def summed(ins: Instruction, step: Step, terms: int, a: NDArray[Any], b: NDArray[Any], c: NDArray[np.float32]) -> NDArray[np.float32]:
    """Results of products (..., M, K) and (..., K, N), step by step."""
    x = matrix_tiles.numbers(a[..., :, None, :], ins.formats.a)
    y = matrix_tiles.numbers(np.swapaxes(b, -1, -2)[..., None, :, :], ins.formats.b)
    for first in range(0, a.shape[-1], terms):
        if step is matrix_tiles.paired and first % ins.k == 0:
            c = matrix_tiles.operands_of_sums(c)
        c = step(x.part(first, terms), y.part(first, terms), c)
    return c


@cases("target, opcode, step, terms", METHODS)
def test_tiles(target: str, opcode: str, step: Step, terms: int) -> None:
    """Instructions one by one."""
    ins = fastmma.instruction(opcode)
    assert isinstance(ins, Instruction)
    blocks = (ins.blocks,) if ins.blocks > 1 else ()
    rng = np.random.default_rng(len(opcode) + terms)
    for spread in SPREADS:
        for _ in range(0, 1 + TILES // len(METHODS) // len(SPREADS), _AT_ONCE):
            a, b, c = drawn_tiles(rng, ins, (_AT_ONCE // ins.blocks, *blocks, ins.m, ins.n), spread, terms, ins.k)
            d, expected = fastmma.mma(ins, a, b, c, target=target), summed(ins, step, terms, a, b, c)
            np.testing.assert_array_equal(d.view(np.uint32), expected.view(np.uint32))


@cases("target, opcode, step, terms", METHODS)
def test_products_of_tiles(target: str, opcode: str, step: Step, terms: int) -> None:
    """Two instructions for each tile."""
    ins = fastmma.instruction(opcode)
    assert isinstance(ins, Instruction)
    if ins.blocks > 1:
        return
    rng = np.random.default_rng(len(opcode) * terms)
    for spread in SPREADS:
        for _ in range(0, 1 + TILES // len(METHODS) // len(SPREADS), math.prod(_PRODUCT)):
            a, b, c = drawn_tiles(rng, ins, (_PRODUCT[0] * ins.m + 5, _PRODUCT[1] * ins.n + 7), spread, terms, 2 * ins.k)
            d, expected = fastmma.gemm(a, b, c, instruction=ins, target=target), summed(ins, step, terms, a, b, c)
            np.testing.assert_array_equal(d.view(np.uint32), expected.view(np.uint32))
