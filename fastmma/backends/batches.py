"""The two ways through many products: one after another, and many together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastmma.backends.call import Codes, Operands

_BYTES_AT_ONCE = 1 << 27  # of operands that many small products share, copied for each of them


def each(operands: Operands, d: Codes) -> Iterator[tuple[Operands, Codes]]:
    """Take the operands and the results of one product after another, without their first dimension."""
    for index, results in enumerate(d):
        yield operands.each(lambda codes: codes[index]), results  # noqa: B023


def batches(operands: Operands, d: Codes) -> Iterator[tuple[int, Operands, Codes]]:
    """Take many products at a time, in C order: the number of the first one, operands, and memory that the caller writes results to."""
    per_product = sum(codes[:1].size * codes.itemsize for codes in operands if codes is not None)
    at_once = max(1, _BYTES_AT_ONCE // max(1, per_product))
    for first in range(0, len(d), at_once):
        target = d[first : first + at_once]
        results = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
        yield first, operands.products(first, first + at_once).each(np.ascontiguousarray), results
        if results is not target:
            target[...] = results
