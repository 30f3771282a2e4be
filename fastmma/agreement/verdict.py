"""The verdict about two plans: whether they have the same bits, for which inputs, why, and operands on which they differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_SHOWN = 16  # products of a witness that are printed
_SHOWN_OTHERS = ("c", "alpha", "beta", "bias")


class Witness(NamedTuple):
    """Operands on which two plans differ: what both take as a and b; `Verdict.others` has what else they take."""

    a: Any
    b: Any


@dataclass(frozen=True)
class Verdict:
    """Whether two plans have the same bits.

    Attributes
    ----------
    equal : bool or None
        None where something is assumed, or nothing was proved and no difference was found.
    reason : str
        In a sentence.
    scope : str
        The inputs for which plans are equal; empty where they are not.
    witness : Witness or None
        Operands a and b on which they differ; both plans were computed on it.
    at : (int, int) or None
        The element that differs.
    results : (float, float) or None
        Its values by p and by q.
    others : dict
        What else is multiplied or added, by the names of calls: c, alpha, beta, bias, metadata, scales.
    k : int or None
        The K that it is about; None for every one.
    assumed : tuple of str
        What is not known of the plans; `as_written` says whether they agree if it holds.
    as_written : bool or None
        Whether the plans have the same bits, if what is assumed of them holds.
    """

    equal: bool | None
    reason: str
    scope: str = ""
    witness: Witness | None = None
    at: tuple[int, int] | None = None
    results: tuple[Any, Any] | None = None
    others: dict[str, Any] = field(default_factory=dict, compare=False)
    k: int | None = None
    assumed: tuple[str, ...] = ()
    as_written: bool | None = None

    def __bool__(self) -> bool:
        raise TypeError("a Verdict is True, False or None: ask .equal")

    def __str__(self) -> str:
        said = {True: "the same bits", False: "other bits", None: "not decided"}[self.equal]
        about = f" for {self.scope}" if self.scope and self.equal else ""
        lines = [f"{said}{about}{'' if self.k is None else f', K = {self.k}'}: {self.reason}"]
        if self.witness is not None and self.at is not None and self.results is not None:
            lines += [f"  {text}" for text in _shown(self.witness, self.at, self.others)]
            lines += [f"  {name} = {_plain(_of(value, self.at))}" for name, value in self.others.items() if name in _SHOWN_OTHERS]
            lines += [f"  {name}: d{list(self.at)} = {_number(value)}" for name, value in zip("pq", self.results, strict=True)]
        return "\n".join(lines)


def _of(value: Any, at: tuple[int, int]) -> Any:
    """Return what an operand has for an element: c one number each, a bias one a column, alpha and beta one."""
    return value if np.ndim(value) == 0 else np.asarray(value)[at[2 - np.ndim(value) :]]


def _shown(witness: Witness, at: tuple[int, int], others: dict[str, Any]) -> list[str]:
    """Show the products of a witness that are not zero."""
    row = np.asarray(getattr(witness.a, "elements", witness.a))[at[0]]
    column = np.asarray(getattr(witness.b, "elements", witness.b))[:, at[1]]
    if len(row) != len(column):
        return [f"a[{at[0]}, {place}] = {_number(row[place])}" for place in _places(row)[:_SHOWN]]
    places = sorted({*_places(row), *_places(column)})
    scales = _scales(witness, at, others)
    shown = []
    for place in places[:_SHOWN]:
        said = [_number(each[place * len(each) // len(row)]) for each in scales]
        shown.append(f"k = {place}: {_number(row[place])} x {_number(column[place])}{', scales ' * bool(said)}{' x '.join(said)}")
    return [
        *shown,
        *([f"and {len(places) - _SHOWN} products more"] if len(places) > _SHOWN else []),
        *(["all other elements are 0"] if len(places) < len(row) else []),
    ]


def _scales(witness: Witness, at: tuple[int, int], others: dict[str, Any]) -> tuple[Any, ...]:
    """Return the scales of the blocks of k of an element's row and column, if there are any."""
    if "scale_a" in others:
        left, right = others["scale_a"], others["scale_b"]
        return left[min(at[0], len(left) - 1)], right[:, min(at[1], right.shape[1] - 1)]
    if not hasattr(witness.a, "scales"):
        return ()
    return witness.a.scales[at[0] // witness.a.block[0]], witness.b.scales[:, at[1] // witness.b.block[1]]


def _places(values: NDArray[Any]) -> list[int]:
    return [int(place) for place in np.flatnonzero(values.astype(np.float64) != 0)]


def _plain(value: Any) -> str:
    """Write a number by the digits that tell it from all others of its type."""
    found = np.asarray(value).reshape(-1)[0]
    return str(int(found)) if found.dtype.kind in "iub" else str(found).removesuffix(".0")


def _number(value: Any) -> str:
    """Write a number by its digits where they are few, else as an odd integer and a power of two."""
    plain = np.asarray(value).reshape(-1)[0]
    number = float(plain)
    if plain.dtype.kind in "iub":
        return str(int(plain))
    if number == 0 or not np.isfinite(number):
        return f"{number:g}"
    mantissa, exponent = np.frexp(abs(number))
    scaled = mantissa
    while scaled != int(scaled):
        scaled, exponent = scaled * 2, exponent - 1
    sign = "-" if number < 0 else ""
    if exponent in range(-4, 17) and abs(number) < 1e6:
        return f"{sign}{abs(number):.12g}"
    return f"{sign}{int(scaled)}*2^{exponent}" if scaled != 1 else f"{sign}2^{exponent}"
