"""The steps of a sum as data: terms, what alignment and rounding take from them, and the code that comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fastmma.isa.formats import FORMATS, Format
from fastmma.kernels.params import FORMULAS
from fastmma.numerics import reference_steps
from fastmma.numerics.reference_steps import Number, number, product


class Dyadic(NamedTuple):
    """The number ``significand * 2**last``; the significand is odd, or 0."""

    significand: int
    last: int

    def __str__(self) -> str:
        return f"{self.significand} * 2^{self.last}" if self.last else str(self.significand)


ZERO = Dyadic(0, 0)


def dyadic(significand: int, last: int) -> Dyadic:
    """A number in lowest terms.

    Examples
    --------
    >>> print(dyadic(12, -4), dyadic(0, 7))
    3 * 2^-2 0
    """
    if significand == 0:
        return ZERO
    zeros = (significand & -significand).bit_length() - 1
    return Dyadic(significand >> zeros, last + zeros)


def sum_of(numbers: Sequence[Dyadic]) -> Dyadic:
    """The exact sum."""
    last = min((each.last for each in numbers), default=0)
    return dyadic(sum(each.significand << (each.last - last) for each in numbers), last)


def difference_of(x: Dyadic, y: Dyadic) -> Dyadic:
    """The exact difference x - y."""
    return sum_of([x, Dyadic(-y.significand, y.last)])


@dataclass(frozen=True)
class Term:
    """One summand of a step.

    Attributes
    ----------
    name : str
        What it is: ``"product"``, ``"group"`` (a sum of products), ``"accumulator"``, or the name of an operand.
    k : tuple of int
        The k of its products; empty for anything else.
    a, b : tuple of int
        The codes that are multiplied, one for each k; of other terms `a` has the term's own code, or the codes of its factors.
    scale_a, scale_b : int or None
        The codes of the scales, where the instruction takes any.
    significand, last : int
        The value, ``significand * 2**last``, as the hardware multiplies it: not in lowest terms.
    exponent : int
        By which it is aligned: that of the factors' exponent fields.
    special : str
        ``"inf"``, ``"-inf"`` or ``"nan"``, else empty.
    kept : Dyadic or None
        What alignment leaves; None where nothing is aligned.
    lost : Dyadic
        What alignment takes away: the value less what is kept.
    """

    name: str
    k: tuple[int, ...] = ()
    a: tuple[int, ...] = ()
    b: tuple[int, ...] = ()
    scale_a: int | None = None
    scale_b: int | None = None
    significand: int = 0
    last: int = 0
    exponent: int = 0
    special: str = ""
    kept: Dyadic | None = None
    lost: Dyadic = ZERO

    @property
    def value(self) -> Dyadic:
        """The exact value; 0 where it is special."""
        return dyadic(self.significand, self.last)


@dataclass(frozen=True)
class Step:
    """One operation: an exact sum of terms, rounded at most once.

    Attributes
    ----------
    stage : str
        ``"instruction"``, ``"promotion"``, ``"split-k"`` or ``"epilogue"``.
    operation : str
        ``"fused"``: terms are aligned, then summed; ``"fma"``, ``"add"``, ``"multiply"``, ``"convert"``: IEEE operations; ``"relu"``;
        ``"sum"``: an exact sum of integers.
    k : (int, int)
        The k of its products, from the first to one past the last; of other steps, the k that the result has come to.
    terms : tuple of Term
        The accumulator is the last, where there is one.
    emax, unit : int or None
        The largest exponent, and the power of two of the unit of the alignment; None where nothing is aligned.
    total : Dyadic or None
        The sum of what was kept; None where a special decides.
    rounding : str
        ``"rn"``, ``"rz"``, ``"rm"``, ``"rp"``; ``"wrap"`` or ``"saturate"`` for integers.
    dropped : Dyadic
        What the rounding takes away: the sum less the result, 0 where that is infinite.
    code : int
    format : str
        The result.
    """

    stage: str
    operation: str
    k: tuple[int, int]
    terms: tuple[Term, ...]
    emax: int | None
    unit: int | None
    total: Dyadic | None
    rounding: str
    dropped: Dyadic
    code: int
    format: str

    @property
    def result(self) -> Number:
        """The result, decoded."""
        return decoded(self.code, FORMATS[self.format])


def decoded(code: int, fmt: Format) -> Number:
    """A code of a format of any kind."""
    if fmt.kind == "float":
        return number(code, fmt)
    code &= (1 << fmt.bits) - 1
    return Number(code - (code >> (fmt.bits - 1) << fmt.bits) if fmt.kind == "signed" else code, code=code)


def value_of(code: int, fmt: Format) -> Dyadic:
    """The value of a code; 0 where it is special."""
    found = decoded(code, fmt)
    return dyadic(found.significand, found.last)


def special_of(value: Number) -> str:
    """``"inf"``, ``"-inf"``, ``"nan"``, or empty."""
    return "-inf" if value.special == "inf" and value.negative else value.special


# how operations put their operands together: the places of the factors of each term
_SUMMANDS = {"fma": ((0, 1), (2,)), "add": ((0,), (1,)), "sum": ((0,), (1,)), "multiply": ((0, 1),), "convert": ((0,),), "relu": ((0,),)}
_SUMMANDS |= dict.fromkeys(FORMULAS, ((0,),))


def own_term(name: str, value: Number, codes: tuple[int, ...] | None = None) -> Term:
    """A number as a term; its codes are its own where none are given."""
    return Term(
        name,
        a=(value.code,) if codes is None else codes,
        significand=value.significand,
        last=value.last,
        exponent=value.exponent,
        special=special_of(value),
    )


def summands(seen: reference_steps.Step, names: Sequence[str]) -> list[Term]:
    """The terms of an operation that aligns nothing: its operands, or their product; `names` are those of the operands."""
    found = []
    for places in _SUMMANDS[seen.operation]:
        factors = [seen.terms[at] for at in places]
        value = factors[0] if len(factors) == 1 else product(*factors)
        found.append(own_term(" * ".join(names[at] for at in places), value, tuple(each.code for each in factors)))
    return found
