"""Compiled loops of quantisation: the largest magnitude of each block, elements rounded to a narrow format, and their values again.

Arrays are C-contiguous (outer, row, column); a block spans `rows` by `columns` of the last two. Rounding is integer arithmetic on the bits
of float32 or float64, so that LLVM vectorises it and no mode of the processor changes it; every operation is cast back to their width,
because Numba widens integers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.kernels.llvm.compilation import compiled, separate

CHUNK = 1024  # elements that are scaled, then rounded, while they are in the cache


class Narrow(NamedTuple):
    """A narrow format as the rounding sees it; an integer format is one whose every number is subnormal."""

    mantissa_bits: int
    lowest: int  # exponent field of float32 or float64 at the format's smallest normal number
    max_code: int  # of the largest finite magnitude, or of infinity
    nan_code: int
    sign_shift: int  # where the sign bit goes
    complement: int  # 1: negative codes are two's complements; 0: they have a sign bit
    signed_zero: int  # 1: there is a negative zero; 0: its code means NaN, and zeros lose their sign


class Rounding(NamedTuple):
    """The rounding of what lies between two codes."""

    nearest: int  # 1: to nearest, ties to even; 0: toward zero
    stochastic: int  # 1: up with the probability of the discarded fraction, by the generator SplitMix64
    seed: Any  # np.uint64


class Piece(NamedTuple):
    """Rows (or rows of blocks) and columns that one call works on."""

    first: int
    last: int
    left: int
    right: int


@separate
def _mantissa(bits: Any) -> int:
    """Mantissa bits of the floats whose bits these are, float32 or float64."""
    return 23 if bits.itemsize == 4 else 52


@separate
def _below(power: int) -> int:
    return (1 << power) - 1


@separate
def _infinity(bits: Any) -> int:
    """The bits of infinity."""
    mantissa = _mantissa(bits)
    bits_of_infinity: int = _below(8 * bits.itemsize - 1 - mantissa) << mantissa
    return bits_of_infinity


@compiled
def _largest(bits: Any, block: tuple[int, int], piece: Piece, out: Any) -> None:
    """Bits of the largest magnitude (of a NaN, if there is one) of each block; rows count blocks, columns elements."""
    word = bits.dtype.type
    magnitude_mask = word(_infinity(bits) | _below(_mantissa(bits)))
    rows, columns = block
    height, bands = bits.shape[1], out.shape[1]
    for index in range(piece.first, piece.last):
        outer, band = index // bands, index % bands
        found = out[outer, band]
        found[piece.left // columns : -(-piece.right // columns)] = word(0)
        for row in range(band * rows, min(band * rows + rows, height)):
            line = bits[outer, row]
            if columns == 1:
                for column in range(piece.left, piece.right):
                    found[column] = max(found[column], word(line[column] & magnitude_mask))
            else:
                for start in range(piece.left, piece.right, columns):
                    most = found[start // columns]
                    for column in range(start, min(start + columns, piece.right)):
                        most = max(most, word(line[column] & magnitude_mask))
                    found[start // columns] = most


@compiled
def _round(bits: Any, narrow: Narrow, nearest: int, codes: Any) -> None:
    """Codes of floats given as bits: nearest even or toward zero, too large ones saturate."""
    word, mantissa = bits.dtype.type, _mantissa(bits)
    infinity = word(_infinity(bits))
    magnitude_mask, sign = word(infinity | word(_below(mantissa))), word(8 * bits.itemsize - 1)
    lowest, carried = word(narrow.lowest), word(narrow.mantissa_bits)
    least_shift, greatest_shift = word(mantissa - narrow.mantissa_bits), word(mantissa + 3)
    max_code, nan_code, sign_shift = word(narrow.max_code), word(narrow.nan_code), word(narrow.sign_shift)
    complement, has_sign_bit, rounds = word(narrow.complement), word(1 - narrow.complement), word(0 - nearest)
    signed_zero = word(narrow.signed_zero)
    for i in range(len(codes)):
        magnitude = word(bits[i] & magnitude_mask)
        # subnormal floats have the exponent of the smallest normal ones, and no hidden bit
        exponent = max(word(magnitude >> word(mantissa)), word(1))
        significand = word(magnitude - word(word(exponent - word(1)) << word(mantissa)))
        target = max(exponent, lowest)
        shift = min(word(word(target - exponent) + least_shift), greatest_shift)
        odd = word(word(significand >> shift) & word(1))
        half = word(word(word(1) << word(shift - word(1))) - word(1))
        steps = word(word(significand + word(word(half + odd) & rounds)) >> shift)
        code = min(word(steps + word(word(target - lowest) << carried)), max_code)
        negative = word(bits[i] >> sign)
        code = word(word(code ^ word(word(0) - word(negative & complement))) + word(negative & complement))
        signed = word(word(negative & has_sign_bit) & word(signed_zero | word(code != word(0))))
        code = word(code | word(signed << sign_shift))
        codes[i] = nan_code if magnitude > infinity else code


@separate
def _round_stochastically(bits: Any, narrow: Narrow, seed: int, place: int, step: int, codes: Any) -> None:
    """Codes of floats given as bits, of which the first is number `place` of its array, and the next one number `place` + `step`."""
    mantissa, infinity = _mantissa(bits), np.uint64(_infinity(bits))
    magnitude_mask, sign = infinity | np.uint64(_below(mantissa)), np.uint64(8 * bits.itemsize - 1)
    for i in range(len(codes)):
        magnitude = np.uint64(bits[i]) & magnitude_mask
        exponent: Any = max(np.int64(magnitude >> np.uint64(mantissa)), np.int64(1))
        significand = magnitude - (np.uint64(exponent - 1) << np.uint64(mantissa))
        target: Any = max(exponent, narrow.lowest)
        shift = target - exponent + mantissa - narrow.mantissa_bits
        # what is too small for 62 random bits loses its lowest bits
        significand >>= np.uint64(min(max(shift - 62, 0), 63))
        shift = min(shift, 62)
        state = np.uint64(seed) + np.uint64(place + i * step + 1) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
        steps = np.int64((significand + (state >> np.uint64(64 - shift))) >> np.uint64(shift))
        code: Any = min(steps + ((target - narrow.lowest) << narrow.mantissa_bits), narrow.max_code)
        if np.uint64(bits[i]) >> sign:
            code = -code if narrow.complement else code | (int(code != 0 or narrow.signed_zero != 0) << narrow.sign_shift)
        codes[i] = narrow.nan_code if magnitude > infinity else code


@compiled
def _elements(
    x: Any,
    factors: Any,
    divide: int,
    block: tuple[int, int],
    narrow: Narrow,
    rounding: Rounding,
    starts: Any,
    step: int,
    piece: Piece,
    scratch: Any,
    bits: Any,
    codes: Any,
) -> None:
    """Codes of x times (or over) the factor of its block, rounded; rows count rows; `bits` are those of `scratch`.

    For stochastic rounding, `starts` are the numbers of the first elements of rows, and `step` is from one to the next.
    """
    rows, columns = block
    height = x.shape[1]
    for index in range(piece.first, piece.last):
        outer, row = index // height, index % height
        line, factor = x[outer, row], factors[outer, row // rows]
        for start in range(piece.left, piece.right, CHUNK):
            stop = min(start + CHUNK, piece.right)
            if columns == 1:
                if divide:
                    for column in range(start, stop):
                        scratch[column - start] = line[column] / factor[column]
                else:
                    for column in range(start, stop):
                        scratch[column - start] = line[column] * factor[column]
            else:
                left = start
                while left < stop:
                    right = min((left // columns + 1) * columns, stop)
                    scale = factor[left // columns]
                    if divide:
                        for column in range(left, right):
                            scratch[column - start] = line[column] / scale
                    else:
                        for column in range(left, right):
                            scratch[column - start] = line[column] * scale
                    left = right
            if rounding.stochastic:
                place = starts[index] + start * step
                _round_stochastically(bits, narrow, rounding.seed, place, step, codes[outer, row, start:stop])
            else:
                _round(bits, narrow, rounding.nearest, codes[outer, row, start:stop])


@compiled
def _values(codes: Any, table: Any, scales: Any, overall: Any, block: tuple[int, int], piece: Piece, out: Any) -> None:
    """Elements times the scale of their block, times that of the whole; rows count rows."""
    rows, columns = block
    height = codes.shape[1]
    for index in range(piece.first, piece.last):
        outer, row = index // height, index % height
        line, scale, into = codes[outer, row], scales[outer, row // rows], out[outer, row]
        if columns == 1:
            for column in range(piece.left, piece.right):
                into[column] = table[line[column]] * scale[column] * overall
        else:
            left = piece.left
            while left < piece.right:
                right = min((left // columns + 1) * columns, piece.right)
                factor = scale[left // columns]
                for column in range(left, right):
                    into[column] = table[line[column]] * factor * overall
                left = right


def largest(x: NDArray[Any], block: tuple[int, int], piece: Piece, out: NDArray[Any]) -> None:
    """The largest magnitude of each block into `out` (outer, rows of blocks, columns of blocks); NaN where the block holds one."""
    word = np.dtype(f"u{x.itemsize}")
    _largest(x.view(word), block, piece, out.view(word))


def elements(
    x: NDArray[Any],
    factors: NDArray[Any],
    divide: bool,
    block: tuple[int, int],
    narrow: Narrow,
    rounding: Rounding,
    numbers: tuple[NDArray[np.int64], int],
    piece: Piece,
    codes: NDArray[Any],
) -> None:
    """Codes of x times (or over) the factors of its blocks; `numbers` are those of rows' first elements, and the step in a row."""
    scratch = np.empty(CHUNK, x.dtype)
    bits = scratch.view(np.dtype(f"u{x.itemsize}"))
    _elements(x, factors, int(divide), block, narrow, rounding, *numbers, piece, scratch, bits, codes)


def values(
    codes: NDArray[np.uint8],
    table: NDArray[Any],
    scales: NDArray[Any],
    overall: float,
    block: tuple[int, int],
    piece: Piece,
    out: NDArray[Any],
) -> None:
    """The numbers of `table` that codes stand for, times the scales of their blocks, times that of the whole."""
    _values(codes, table, scales, out.dtype.type(overall), block, piece, out)


def round_codes(x: NDArray[Any], narrow: Narrow, codes: NDArray[Any]) -> None:
    """Codes of contiguous float32 or float64 numbers, to nearest even; those of finite numbers are at most `narrow.max_code`."""
    _round(x.view(np.dtype(f"u{x.itemsize}")), narrow, 1, codes)
