"""The order of k: where it is cut into parts that start from zero, and how the parts are joined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.host.integers import integer
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.products.by_tile import ByTile, Cuts, LastWave, StreamK, checked_cuts

JOINS = {
    "ascending": "added in ascending order",
    "pairwise": "added pairwise, neighbours first",
    "pairwise from the end": "added pairwise, neighbours first, from the end",
    "workspace": "rounded, then added in ascending order in f32",
    "in-place": "added in ascending order to the result in memory, each through the epilogue",
    "second half": "parts of the second half are added to those of the first in turn, the last to the first, then these in ascending order",
}
WORKSPACE, IN_PLACE, SECOND_HALF = "workspace", "in-place", "second half"
# joins through memory of the result's format
NARROW_JOINS = (WORKSPACE, IN_PLACE)
JOIN_FORMATS = ("", "bf16", "f16")


def split(depth: int, parts: int, unit: int, *, leaves_out: bool = False) -> Cuts:
    """Cut k into at most `parts` parts of equal length, rounded up to a multiple of `unit`; one empty part where there is no k.

    With `leaves_out` a length is rounded up from ``depth // parts``, as cuBLAS computes it, so that the parts can end before `depth`.

    Examples
    --------
    >>> split(300, 2, 32)
    ((0, 160), (160, 300))
    >>> split(321, 2, 32), split(321, 2, 32, leaves_out=True)
    (((0, 192), (192, 321)), ((0, 160), (160, 320)))
    """
    length = max(-(-(depth // parts if leaves_out else -(-depth // parts)) // unit) * unit, unit)
    end = min(parts * length, depth)
    return tuple((start, min(start + length, end)) for start in range(0, max(end, 1), length))


def deal(depth: int, parts: int, tile: int) -> tuple[Cuts, NDArray[np.int64]]:
    """Deal tiles of k to parts in turn: where parts start and stop, and the k of all parts, one after another; parts without k are none.

    Examples
    --------
    >>> cuts, places = deal(11, 2, 4)
    >>> cuts, places.tolist()
    (((0, 7), (7, 11)), [0, 1, 2, 3, 8, 9, 10, 4, 5, 6, 7])
    """
    k = np.arange(depth)
    found = [k[k // tile % parts == part] for part in range(parts)]
    stops = np.cumsum([len(each) for each in found]).tolist()
    cuts = tuple((start, stop) for start, stop in zip([0, *stops], stops, strict=False) if start < stop)
    return cuts or ((0, 0),), np.concatenate(found)


class Order(NamedTuple):
    """The cuts of k, and the join of the parts; checked by `checked_parts` and `checked_join`.

    Attributes
    ----------
    parts : int, tuple of (start, stop), or ByTile
    unit : int
        What the length of equal parts is a multiple of.
    join : str
        One of `JOINS`.
    join_dtype : str
        The format to which parts and their sums are rounded, or empty: that of the accumulator.
    first_tile : int
        Where a part is no multiple of this many k, what is left over comes first; 0: last.
    leaves_out : bool
        Whether the length of equal parts is rounded up from K // parts, and k beyond the last of them is in no part.
    dealt : int
        How many k the tiles have that are dealt to the parts in turn; 0: the k of a part lie side by side.
    """

    parts: int | Cuts | ByTile = 1
    unit: int = 0
    join: str = "ascending"
    join_dtype: str = ""
    first_tile: int = 0
    leaves_out: bool = False
    dealt: int = 0

    def places(self, depth: int) -> NDArray[np.int64] | None:
        """Order the k of dealt parts one after another; None where they lie so."""
        return deal(depth, self.parts, self.dealt)[1] if self.dealt and isinstance(self.parts, int) and self.parts > 1 else None

    def blocks(self, rows: int, columns: int, depth: int) -> Iterator[tuple[slice, slice, Cuts]]:
        """Rows and columns of the result with the parts of k in which they are summed.

        Raises
        ------
        OperandError
            If the cuts do not end at this k.
        """
        if isinstance(self.parts, ByTile):
            yield from self.parts.blocks(rows, columns, depth)
            return
        if isinstance(self.parts, int) and self.dealt:
            yield slice(0, rows), slice(0, columns), deal(depth, self.parts, self.dealt)[0]
        elif isinstance(self.parts, int):
            yield slice(0, rows), slice(0, columns), split(depth, self.parts, self.unit, leaves_out=self.leaves_out)
        elif self.parts[-1][1] == depth:
            yield slice(0, rows), slice(0, columns), self.parts
        else:
            raise OperandError(f"split_k: the parts end at k = {self.parts[-1][1]}, but K is {depth}")


def order_text(order: Order, ins: Instruction) -> str:
    """Return how k is split, for a plan."""
    if order.parts == 1:
        return "none"
    joined = f"{JOINS[order.join]}, {order.join_dtype or ins.dtype}"
    if isinstance(order.parts, ByTile):
        return f"{order.parts}, {joined}"
    if isinstance(order.parts, int) and order.dealt:
        return f"{order.parts} parts, to which tiles of {order.dealt} k are dealt in turn, {joined}"
    if isinstance(order.parts, int):
        return f"{order.parts} parts, rounded up to {order.unit} k, {joined}"
    return f"at {', '.join(str(start) for start, _ in order.parts[1:])} of {order.parts[-1][1]} k, {joined}"


def left_out_text(order: Order) -> str:
    """Return what equal parts leave out of k, for a plan; empty where they leave out nothing."""
    if not order.leaves_out or not isinstance(order.parts, int) or order.parts == 1:
        return ""
    return f"the last k, where {order.parts} parts of K // {order.parts}, rounded up to {order.unit} k, end before K"


def checked_parts(ins: Instruction, value: Any, chunk: int | None = None) -> int | Cuts | ByTile:
    """Return what `split_k` may be: a number of parts, their starts and stops, or by tile; `chunk` is what must not be cut.

    Raises
    ------
    OperandError, OperandTypeError
    """
    if isinstance(value, StreamK):
        whole = chunk or ins.k
        if value.tile[2] % whole:
            raise OperandError(f"{ins}: k of a tile of stream-K must be a multiple of {whole}, not {value.tile[2]}")
        return value
    if isinstance(value, LastWave):
        _check_grain(ins, value.parts, chunk)
        return value
    if not isinstance(value, list | tuple):
        return integer(value, "split_k", 1)
    found = as_array(value, "split_k")
    if found.ndim != 2:
        return integer(value, "split_k", 1)
    if found.dtype.kind not in "ui" or found.shape[1] != 2:
        raise OperandTypeError(f"split_k must be a number of parts or a sequence of (start, stop), not {value!r:.200}")
    cuts = checked_cuts(tuple((int(start), int(stop)) for start, stop in found), "split_k")
    _check_grain(ins, cuts, chunk)
    return cuts


def _check_grain(ins: Instruction, cuts: Cuts, chunk: int | None) -> None:
    """Raise OperandError unless parts begin where k may be cut."""
    grain = chunk or (ins.k if ins.scale_vec_size else pattern_of(ins).chunk if ins.sparse else 1)
    if any(start % grain for start, _ in cuts):
        raise OperandError(f"{ins}: parts of k must begin at multiples of {grain}, unlike {cuts!s:.200}")


def checked_join(ins: Instruction, join: Any, join_dtype: Any) -> None:
    """Raise OperandError unless parts can be joined so."""
    if not isinstance(join, str) or join not in JOINS:
        raise OperandError(f"join must be one of {', '.join(JOINS)}, not {join!r}")
    if join == "workspace" and join_dtype not in JOIN_FORMATS[1:]:
        raise OperandError(f"{ins}: join {join!r} needs a join_dtype of {' or '.join(JOIN_FORMATS[1:])}, not {join_dtype!r}")
    if not isinstance(join_dtype, str) or join_dtype not in JOIN_FORMATS or (join_dtype and ins.dtype != "f32"):
        allowed = ", ".join(f"{name!r}" for name in (JOIN_FORMATS if ins.dtype == "f32" else JOIN_FORMATS[:1]))
        raise OperandError(f"{ins}: join_dtype must be one of {allowed}, not {join_dtype!r}")


def checked_loop(ins: Instruction, promote_every: Any) -> int | None:
    """k between promotions, as an integer.

    Raises
    ------
    InstructionError, OperandError
        If the instruction cannot be looped over k, or not so.
    """
    if ins.ctype != ins.dtype:
        raise InstructionError(f"{ins}: D cannot be fed back as C, because their types differ")
    every = None if promote_every is None else integer(promote_every, "promote_every", 1)
    if every is not None and every % ins.k:
        raise OperandError(f"promote_every must be a multiple of the instruction's k, {ins.k}, not {every}")
    return every
