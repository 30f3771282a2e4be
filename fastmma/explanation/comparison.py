"""Comparisons of two results, whole matrices as codes: the elements that differ, and by how much."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.backends.gpu.arrays import accepts_cupy
from fastmma.explanation.numbers import number_text
from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.host.float_mode import default_floats
from fastmma.host.integers import integer
from fastmma.isa.codes import decode, to_codes
from fastmma.isa.formats import FORMATS, Format, format_of

_FORMATS = ("f16", "bf16", "f32", "f64", "s32")
_PLACES, _TILES = 10, 10  # how many are listed


class ElementDifference(NamedTuple):
    """An element that differs: where, both codes, and how many units in the last place lie between; None where one is not finite."""

    at: tuple[int, ...]
    code: int
    other: int
    ulps: int | None


class TileDifferences(NamedTuple):
    """A tile of the result in which elements differ: its first row and column, and how many do."""

    row: int
    col: int
    different: int


@dataclass(frozen=True)
class Comparison:
    """The differences of two results of one shape and format.

    Attributes
    ----------
    shape : tuple of int
    format : str
    elements, different : int
        How many elements there are, and how many differ in any bit.
    not_finite : int
        How many of those that differ are infinite or NaN in either result; they have no distance.
    less, greater : int
        How many of the others are less, and greater, in the first result.
    max_ulps, mean_ulps : int and float
        The distances in units of the last place of the format, of the elements that differ; neighbouring numbers are 1 apart.
    max_relative, mean_relative : float
        Their differences over the magnitude of the second result, where that is not 0 and float64 holds both.
    ulps : dict of str to int
        How many elements differ by so many units: ``"1"``, ``"2"``, ``"3..4"``, ``"5..8"`` and so on.
    rows, columns : tuple of int
        Those in which elements differ.
    tile : (int, int)
        The size of a tile.
    tiles : tuple of TileDifferences
        Those in which elements differ, the most different first.
    places : tuple of ElementDifference
        The first elements that differ, at most 10.

    Examples
    --------
    >>> d, other = np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)
    >>> other[0, 2] = np.nextafter(np.float32(1), np.float32(2))
    >>> print(compare(d, other))
    1 of 6 elements differ (16.7 %): 2 x 3, f32
      ulps         max 1, mean 1; 1: 1
      relative     max 1.19e-07, mean 1.19e-07
      direction    1 less, 0 greater
      rows         1 of 2: 0
      columns      1 of 3: 2
      tiles        1 of 1 of 64 x 64; from [0, 0]: 1
      [0, 2]  0x3f800000 = 1; 0x3f800001 = 1.00000012 = 8388609 * 2^-23, 1 ulp
    """

    shape: tuple[int, ...]
    format: str
    elements: int
    different: int
    not_finite: int
    less: int
    greater: int
    max_ulps: int
    mean_ulps: float
    max_relative: float
    mean_relative: float
    ulps: dict[str, int]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    tile: tuple[int, int]
    tiles: tuple[TileDifferences, ...]
    places: tuple[ElementDifference, ...]

    @property
    def same(self) -> bool:
        """True if every bit is the same."""
        return not self.different

    @default_floats
    def __str__(self) -> str:
        size, fmt = " x ".join(map(str, self.shape)), FORMATS[self.format]
        if self.same:
            return f"all {self.elements} elements are the same: {size}, {self.format}"
        share = 100 * self.different / self.elements
        lines = [f"{self.different} of {self.elements} elements differ ({share:.3g} %): {size}, {self.format}"]
        if self.not_finite:
            lines.append(f"  not finite   {self.not_finite}")
        if self.different > self.not_finite:
            counts = ", ".join(f"{name}: {count}" for name, count in self.ulps.items())
            lines.append(f"  ulps         max {self.max_ulps}, mean {self.mean_ulps:.3g}; {counts}")
            lines.append(f"  relative     max {self.max_relative:.3g}, mean {self.mean_relative:.3g}")
            lines.append(f"  direction    {self.less} less, {self.greater} greater")
        if len(self.shape) > 1:
            count = tuple(-(-extent // size) for extent, size in zip(self.shape[-2:], self.tile, strict=True))
            worst = ", ".join(f"[{tile.row}, {tile.col}]: {tile.different}" for tile in self.tiles[:_TILES])
            lines += [
                f"  rows         {len(self.rows)} of {self.shape[-2]}: {_spans(self.rows)}",
                f"  columns      {len(self.columns)} of {self.shape[-1]}: {_spans(self.columns)}",
                f"  tiles        {len(self.tiles)} of {count[0] * count[1]} of {self.tile[0]} x {self.tile[1]}; from {worst}",
            ]
        for place in self.places:
            apart = "" if place.ulps is None else f", {place.ulps} ulp{'' if place.ulps == 1 else 's'}"
            lines.append(f"  {list(place.at)}  {number_text(place.code, fmt)}; {number_text(place.other, fmt)}{apart}")
        return "\n".join(lines)

    @public_call
    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, tuples and dicts."""
        return asdict(self)

    @public_call
    def json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)


def _spans(places: tuple[int, ...], most: int = 12) -> str:
    """Numbers in short: runs as first and last, at most so many."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    shown = [str(first) if first == last else f"{first}..{last}" for first, last in runs[:most]]
    return ", ".join([*shown, *(["..."] if len(runs) > most else [])])


@public_call
@accepts_cupy
def compare(d: Any, other: Any, *, tile: tuple[int, int] = (64, 64)) -> Comparison:
    """Return how many elements of two results differ, by how much, and where.

    Parameters
    ----------
    d, other : float16, bfloat16, float32, float64 or int32 arrays (..., M, N) of one shape and dtype
        Results of `fastmma.gemm`, of a kernel, of a recording.
    tile : (int, int)
        The size of the tiles that are counted, in rows and columns: a kernel's, for example.

    Returns
    -------
    Comparison
        It prints. Every bit counts: -0 and 0 differ, by 0 units; so do two NaNs with different bits.

    Raises
    ------
    OperandError, OperandTypeError

    Examples
    --------
    >>> import fastmma
    >>> rng = np.random.default_rng(0)
    >>> a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 256), (256, 64)))
    >>> found = compare(fastmma.gemm(a, b, target="sm_90a"), fastmma.gemm(a, b, target="sm_80"))
    >>> found.elements, found.different > 1000, found.max_ulps > 1
    (4096, True, True)
    """
    left, fmt = _codes(d, "d")
    right, other_fmt = _codes(other, "other")
    if fmt != other_fmt or left.shape != right.shape:
        raise OperandError(f"compare: d is {fmt} {left.shape}, but other is {other_fmt} {right.shape}")
    if not isinstance(tile, tuple) or len(tile) != 2:
        raise OperandError(f"compare: tile must be a tuple of two sizes, not {tile!r}")
    size = integer(tile[0], "compare: tile", 1), integer(tile[1], "compare: tile", 1)
    shape, left, right = left.shape, np.atleast_1d(left), np.atleast_1d(right)
    where = np.nonzero(left != right)
    x, y = left[where], right[where]
    with np.errstate(all="ignore"):
        values, others = (np.asarray(decode(codes, fmt), np.float64) for codes in (x, y))
        finite = np.isfinite(values) & np.isfinite(others)
        ulps = _distances(x, y, fmt)
        use = finite & (others != 0)
        relative = np.abs(values[use] - others[use]) / np.abs(others[use])
        relative = relative[np.isfinite(relative)]
        mean_relative = float((relative / relative.size).sum()) if relative.size else 0.0
    distances = ulps[finite]
    indices = islice(zip(*(axis.tolist() for axis in where), strict=True), _PLACES)
    return Comparison(
        shape=shape,
        format=fmt.name,
        elements=left.size,
        different=int(x.size),
        not_finite=int(np.count_nonzero(~finite)),
        less=int(np.count_nonzero(values[finite] < others[finite])),
        greater=int(np.count_nonzero(values[finite] > others[finite])),
        max_ulps=int(distances.max(initial=0)),
        mean_ulps=float(distances.mean()) if distances.size else 0.0,
        max_relative=float(relative.max(initial=0.0)),
        mean_relative=mean_relative,
        ulps=_histogram(distances),
        rows=tuple(np.unique(where[-2]).tolist()) if left.ndim > 1 else (),
        columns=tuple(np.unique(where[-1]).tolist()),
        tile=size,
        tiles=_tiles(where[-2] // size[0], where[-1] // size[1], size) if left.ndim > 1 else (),
        places=tuple(
            ElementDifference(index, int(x[at]), int(y[at]), int(ulps[at]) if finite[at] else None) for at, index in enumerate(indices)
        ),
    )


def _codes(value: Any, name: str) -> tuple[NDArray[Any], Format]:
    array = as_array(value, f"compare: {name}")
    try:
        fmt = format_of(array.dtype.newbyteorder("="))
    except InstructionError:
        fmt = None
    if fmt is None or fmt.name not in _FORMATS:
        raise OperandTypeError(f"compare: {name} must be float16, bfloat16, float32, float64 or int32, not {array.dtype}")
    return to_codes(array, fmt), fmt


def _distances(x: NDArray[Any], y: NDArray[Any], fmt: Format) -> NDArray[np.uint64]:
    """Count the codes of ascending numbers between; both zeros are one."""
    ordered = [_order(codes.astype(np.uint64), fmt) for codes in (x, y)]
    return np.asarray(np.maximum(*ordered) - np.minimum(*ordered))


def _order(codes: NDArray[np.uint64], fmt: Format) -> NDArray[np.uint64]:
    """Codes as integers in the order of their numbers."""
    sign = np.uint64(1 << (fmt.bits - 1))
    if fmt.kind != "float":
        return codes ^ sign
    return np.where(codes & sign, sign - (codes & ~sign), sign + codes)


def _histogram(distances: NDArray[np.uint64]) -> dict[str, int]:
    """Count distances of 0, 1, 2, 3..4, 5..8 and so on."""
    powers = np.ceil(np.log2(np.maximum(distances, 1).astype(np.float64))).astype(np.int64)
    counts = {"0": int(np.count_nonzero(distances == 0))}
    for power in range(int(powers.max(initial=-1)) + 1):
        name = str(1 << power) if power < 2 else f"{(1 << power - 1) + 1}..{1 << power}"
        counts[name] = int(np.count_nonzero((powers == power) & (distances > 0)))
    return {name: count for name, count in counts.items() if count}


def _tiles(rows: NDArray[Any], columns: NDArray[Any], size: tuple[int, int]) -> tuple[TileDifferences, ...]:
    pairs, counts = np.unique(np.stack([rows, columns], axis=-1), axis=0, return_counts=True)
    found = [
        TileDifferences(row * size[0], col * size[1], count) for (row, col), count in zip(pairs.tolist(), counts.tolist(), strict=True)
    ]
    return tuple(sorted(found, key=lambda each: -each.different))
