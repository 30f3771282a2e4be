"""Floats to codes of narrow formats, by the compiled loops, in pieces on threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.host.integers import whole
from fastmma.host.threads import parallel_for
from fastmma.isa.codes import encode
from fastmma.isa.formats import Format
from fastmma.scaling.names import lookup


@dataclass(frozen=True)
class ElementRounding:
    """The rounding of elements: a name, what it is called elsewhere, and the kernel's two switches."""

    name: str
    aliases: tuple[str, ...]
    nearest: int
    stochastic: int


ROUNDINGS: dict[str, ElementRounding] = {
    row.name: row
    for row in (
        ElementRounding("nearest", ("nearest_even", "ties_to_even", "rne", "rn"), 1, 0),
        ElementRounding("zero", ("toward_zero", "towards_zero", "truncate", "rtz", "rz"), 0, 0),
        ElementRounding("stochastic", ("sr",), 0, 1),
    )
}
Block = tuple[int, int]
_PIECE = 1 << 17  # elements of a piece of work; it does not change results
_NARROWEST = 1 << 10  # columns of a piece of high blocks
_LONGEST = 1 << 16  # columns of a block whose largest magnitude one piece looks for


def rounding_of(name: object, seed: object) -> Any:
    """The kernel's parameters of a rounding.

    Raises
    ------
    OperandError
        If there is no such rounding, or the seed is missing where it is needed, or no integer of 64 bits.
    """
    from fastmma.kernels import quantize

    row = lookup(name, ROUNDINGS.values())
    if row is None:
        raise OperandError(f"rounding must be one of {', '.join(ROUNDINGS)}, not {name!r}")
    number = 0 if seed is None and not row.stochastic else whole(seed)
    if number is None or not 0 <= number < 1 << 64:
        needs = f"rounding={row.name!r} needs seed=," if row.stochastic else "seed must be"
        raise OperandError(f"{needs} an integer from 0 to 2**64 - 1, not {seed!r}")
    return quantize.Rounding(row.nearest, row.stochastic, np.uint64(number))


def _narrow(fmt: Format, dtype: np.dtype[Any], saturate: bool) -> Any:
    """A format as the kernel sees it, for floats of this dtype."""
    from fastmma.kernels import quantize

    bias = np.finfo(dtype).maxexp - 1
    if fmt.kind == "signed":
        return quantize.Narrow(fmt.bits - 1, bias + fmt.bits - 1, int(fmt.max), 0, 0, 1, 0)
    max_code = int(encode(fmt.max if saturate else np.inf, fmt))
    return quantize.Narrow(fmt.mantissa_bits, fmt.emin + bias, max_code, fmt.nan or 0, fmt.bits - 1, 0, int(fmt.has_negative_zero))


def _in_pieces(work: Callable[[Any], None], lines: int, height: int, columns: int, grain: int, threads: int) -> None:
    """Call `work` on pieces of about `_PIECE` elements: lines of `height` rows, and columns cut at multiples of `grain`."""
    from fastmma.kernels import quantize

    wide = min(columns, -(-max(_PIECE // height, _NARROWEST) // grain) * grain)
    tall = max(1, _PIECE // (wide * height))
    across = -(-columns // wide)

    def piece(start: int, stop: int, worker: int) -> None:
        del stop, worker
        first, left = start // across * tall, start % across * wide
        work(quantize.Piece(first, min(first + tall, lines), left, min(left + wide, columns)))

    parallel_for(piece, -(-lines // tall) * across, threads)


def block_maxima(x: NDArray[Any], block: Block, threads: int) -> NDArray[Any]:
    """The largest magnitude of each block of an array (outer, rows, columns) that is not empty; NaN where there is one."""
    from fastmma.kernels import quantize

    outer, rows, columns = x.shape
    # a long block is cut, so that threads share it
    part = (block[0], min(block[1], _LONGEST))
    bands = -(-rows // part[0])
    out = np.empty((outer, bands, -(-columns // part[1])), x.dtype)
    _in_pieces(lambda piece: quantize.largest(x, part, piece, out), outer * bands, min(part[0], rows), columns, part[1], threads)
    return out if part == block else np.asarray(out.max(axis=2, keepdims=True))


_NO_NUMBERS = np.zeros(0, np.int64), 0


def round_blocks(
    x: NDArray[Any],
    factors: NDArray[Any],
    divide: bool,
    block: Block,
    fmt: Format,
    rounding: Any,
    threads: int,
    saturate: bool = True,
    numbers: tuple[NDArray[np.int64], int] = _NO_NUMBERS,
) -> NDArray[Any]:
    """Codes of an array (outer, rows, columns) times (or over) the factors of its blocks; what is too large saturates, or is infinite.

    Stochastic rounding takes the `numbers` of each row's first element, and the step from an element to the next one in the row.
    """
    from fastmma.kernels import quantize

    narrow = _narrow(fmt, x.dtype, saturate)
    codes = np.empty(x.shape, fmt.code_dtype)
    outer, rows, columns = x.shape

    def work(piece: Any) -> None:
        quantize.elements(x, factors, divide, block, narrow, rounding, numbers, piece, codes)

    _in_pieces(work, outer * rows, 1, columns, 1, threads)
    return codes


def round_to(values: NDArray[Any], fmt: Format, threads: int, saturate: bool = True) -> NDArray[Any]:
    """Codes of float32 or float64 values rounded to nearest even; what is too large saturates, or is infinite."""
    flat = np.ascontiguousarray(values).reshape(1, 1, -1)
    if not flat.size:
        return np.empty(values.shape, fmt.code_dtype)
    one = np.ones((1, 1, 1), flat.dtype)
    return round_blocks(flat, one, False, (1, flat.size), fmt, rounding_of("nearest", None), threads, saturate).reshape(values.shape)


def block_values(
    codes: NDArray[np.uint8], table: NDArray[Any], scales: NDArray[Any], overall: float, block: Block, threads: int
) -> NDArray[Any]:
    """Return what codes (outer, rows, columns) stand for times the scales of their blocks, in the dtype of `table`."""
    from fastmma.kernels import quantize

    out = np.empty(codes.shape, table.dtype)
    outer, rows, columns = codes.shape
    _in_pieces(lambda piece: quantize.values(codes, table, scales, overall, block, piece, out), outer * rows, 1, columns, 1, threads)
    return out
