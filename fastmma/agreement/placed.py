"""Put the operands of one element at its place in a larger product, whose other elements are zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.agreement.run import scaled_array
from fastmma.agreement.verdict import Witness
from fastmma.scaling import ScaledArray
from fastmma.scaling.schemes import scheme_of

_ROW, _COLUMN = 0, 1
_REPEATED = {"metadata": _ROW, "scale_a": _ROW, "scale_b": _COLUMN}  # which all rows have, or all columns


def placed(witness: Witness, others: dict[str, Any], at: tuple[int, int], extents: tuple[int, int]) -> tuple[Witness, dict[str, Any]]:
    """Return a witness of one element at a place of a product of so many rows and columns, and what else the product takes.

    Examples
    --------
    >>> line = np.ones((1, 4), np.float32)
    >>> found, _ = placed(Witness(line, line.T), {}, (2, 0), (3, 1))
    >>> found.a.shape, float(found.a[2, 0]), float(found.a[1, 0])
    ((3, 4), 1.0, 0.0)
    """
    a, b = (_operand(array, extents[axis], at[axis], axis) for axis, array in enumerate(witness))
    found = dict(others)
    for name, axis in _REPEATED.items():
        if name in others:
            found[name] = np.repeat(others[name], extents[axis], axis)
    if np.ndim(others.get("c", 0)):
        found["c"] = _line(_line(others["c"], extents[0], at[0], _ROW), extents[1], at[1], _COLUMN)
    if np.ndim(others.get("bias", 0)):
        found["bias"] = _line(others["bias"], extents[1], at[1], 0)
    return Witness(a, b), found


def _operand(array: Any, extent: int, at: int, axis: int) -> Any:
    """Return a row or column among zeros; of a block-scaled one, the blocks of the others have its scales."""
    if not isinstance(array, ScaledArray):
        return _line(array, extent, at, axis)
    elements = _line(array.elements, extent, at, axis)
    block = scheme_of(array.scheme).block(elements.shape, 1 - axis)
    return scaled_array(elements, np.repeat(array.scales, -(-extent // block[axis]), axis), array.scheme, 1 - axis)


def _line(values: NDArray[Any], extent: int, at: int, axis: int) -> NDArray[Any]:
    """Return zeros with these values at one place of an axis."""
    shape = list(values.shape)
    shape[axis] = extent
    found = np.zeros(shape, values.dtype)
    found[(slice(None),) * axis + (slice(at, at + 1),)] = values
    return found
