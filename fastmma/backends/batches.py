"""Many products by kernels of two kinds: those that cut one product, and those that deal out many."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastmma.backends.call import Codes, Operands

_BYTES_AT_ONCE = 1 << 27  # of operands that many small products share, copied for each of them

Multiply = Callable[[Operands, Codes], None]  # operands and results


def each(operands: Operands) -> list[Operands]:
    """The operands of every product, without their first dimension."""
    return [operands.each(lambda codes: codes[index]) for index in range(len(operands.a))]  # noqa: B023


def in_turn(depth: int, operands: Operands, d: Codes, gemm: Multiply, tiles: Multiply) -> None:
    """T products: each by `gemm`, which takes any strides, or those of at most `depth` of k together by `tiles`, which takes C order."""
    if len(d) == 1 or operands.depth > depth:
        for product, results in zip(each(operands), d, strict=True):
            gemm(product, results)
        return
    per_product = sum(codes[:1].size * codes.itemsize for codes in operands if codes is not None)
    at_once = max(1, _BYTES_AT_ONCE // max(1, per_product))
    for first in range(0, len(d), at_once):
        target = d[first : first + at_once]
        results = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
        tiles(operands.products(first, first + at_once).each(np.ascontiguousarray), results)
        if results is not target:
            target[...] = results
