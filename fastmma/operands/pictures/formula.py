"""Closed formulas of a layout, forward and inverse, as C expressions and in PTX's words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from fastmma.host.errors import OperandError

if TYPE_CHECKING:
    from fastmma.isa.layout import Layout, Mode

# PTX's names for parts of the lane number: name, first lane bit's weight, size, definition
_LANE_WORDS = (
    ("threadID_in_group", 1, 4, "%laneid % 4"),
    ("groupID", 4, 8, "%laneid >> 2"),
    ("warp", 32, 4, "%warpid % 4"),
    ("cta", 128, 2, "%cluster_ctarank % 2"),
)


class _Digit(NamedTuple):
    """``variable / place % size * factor``, where `variable` is below `total`."""

    variable: str
    place: int
    size: int
    total: int
    factor: int


def _c(digit: _Digit) -> str:
    text = digit.variable if digit.place == 1 else f"{digit.variable} / {digit.place}"
    if digit.place * digit.size < digit.total:
        text += f" % {digit.size}"
    if digit.factor == 1:
        return text
    return f"{text} * {digit.factor}" if text == digit.variable else f"({text}) * {digit.factor}"


def _ptx(digit: _Digit) -> str:
    shift = digit.place.bit_length() - 1
    if digit.place * digit.size >= digit.total:
        text = f"({digit.variable} >> {shift})" if shift else digit.variable
        return text if digit.factor == 1 else f"({text} * {digit.factor})"
    text = f"({digit.variable} & {hex((digit.size - 1) * digit.place)})"
    if digit.factor == digit.place:
        return text
    if digit.factor > digit.place:
        return f"({text} * {digit.factor // digit.place})"
    return f"({text} >> {(digit.place // digit.factor).bit_length() - 1})"


def _sum(parts: Iterable[str]) -> str:
    return " + ".join(parts) or "0"


def _merge(modes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(size, step) pairs with neighbours joined where one continues the other."""
    joined: list[tuple[int, int]] = []
    for size, step in modes:
        if joined and step == joined[-1][0] * joined[-1][1]:
            joined[-1] = (joined[-1][0] * size, joined[-1][1])
        else:
            joined.append((size, step))
    return joined


def _digits(variable: str, modes: tuple[Mode, ...], axis: int) -> Iterator[_Digit]:
    """Return what one mixed-radix number contributes to a coordinate."""
    total = math.prod(mode.size for mode in modes)
    place = 1
    for size, step in _merge((mode.size, mode[axis]) for mode in modes):
        if step:
            yield _Digit(variable, place, size, total, step)
        place *= size


def _in_words(digit: _Digit) -> Iterator[_Digit]:
    """A digit of the lane number as digits of threadID_in_group, groupID and the warp."""
    for name, weight, size, _ in _LANE_WORDS:
        low, high = max(digit.place, weight), min(digit.place * digit.size, weight * size)
        if low < high:
            yield _Digit(name, low // weight, high // low, size, digit.factor * (low // digit.place))


def _inverse(axes: dict[str, int], extents: tuple[int, ...], modes: tuple[Mode, ...]) -> Iterator[_Digit]:
    """A mixed-radix number from the coordinates."""
    place = 1
    for mode in modes:
        for name, axis in axes.items():
            if mode[axis]:
                yield _Digit(name, mode[axis], mode.size, extents[axis - 1], place)
        place *= mode.size


def formulas(
    layout: Layout,
    dialect: str = "c",
    *,
    lane: tuple[Mode, ...] = (),
    base: int = 0,
    first_bit: int = 0,
    tile: str = "computation",
) -> dict[str, str]:
    """Closed formulas of a layout.

    Parameters
    ----------
    layout : Layout
    dialect : {"c", "ptx"}
        C expressions of ``lane``, the element index ``i``, ``row``, ``col`` and ``computation`` in integer arithmetic, both ways; or row
        and column in PTX's words.
    lane : tuple of Mode
        The digits of the real lane number where only some lanes hold the matrix: a mode without a step is the choice of the lanes.
    base : int
        The first lane that holds an element.
    first_bit : int
        The lowest bit of element 0.
    tile : str
        What one of several matrices is called.

    Returns
    -------
    dict of str to str
        ``row``, ``col`` (``computation``), ``register``, ``bit``, ``lane``, ``element``; ``holds`` is the condition on the lanes that hold
        anything, and ``copy`` tells copies apart (``element`` is the first). PTX's words come with their definitions, before ``row``.

    Raises
    ------
    OperandError
        If there is no such dialect.
    """
    if not isinstance(dialect, str) or dialect not in ("c", "ptx"):
        raise OperandError(f"there is no dialect {dialect!r} of formulas; there are c, ptx")
    digits = lane or layout.lane
    axes = {"row": 1, "col": 2, **({tile: 3} if layout.tiles > 1 else {})}
    extents = (*layout.shape, layout.tiles)
    total = math.prod(mode.size for mode in digits)
    if dialect == "ptx":
        found = {name: definition for name, weight, _, definition in reversed(_LANE_WORDS) if weight < total}
        for name, axis in axes.items():
            lanes = (_ptx(word) for digit in _digits("lane", digits, axis) for word in reversed(list(_in_words(digit))))
            found[name] = _sum([*lanes, *map(_ptx, _digits("i", layout.element, axis))])
        return found
    found = {}
    place = 1
    for mode in lane:
        if not any(mode[1:]):
            found["holds"] = f"{_c(_Digit('lane', place, mode.size, total, 1))} == {base // place}"
        place *= mode.size
    for name, axis in axes.items():
        found[name] = _sum(map(_c, (*_digits("lane", digits, axis), *_digits("i", layout.element, axis))))
    per_register = layout.register_bits // layout.bits
    found["register"] = f"i / {per_register}" if layout.registers > 1 and per_register > 1 else "i" if layout.registers > 1 else "0"
    bit = _c(_Digit("i", 1, per_register, layout.elements, layout.bits)) if min(per_register, layout.elements) > 1 else ""
    found["bit"] = _sum(filter(None, (bit, str(first_bit) if first_bit else "")))
    found["lane"] = _sum([*map(_c, _inverse(axes, extents, digits)), *([str(base)] if base else [])])
    found["element"] = _sum(map(_c, _inverse(axes, extents, layout.element)))
    place = 1
    for mode in layout.element:
        if not any(mode[1:]):
            found["copy"] = _c(_Digit("i", place, mode.size, layout.elements, 1))
        place *= mode.size
    return found
