"""Formulas over float32 numbers, written as LLVM IR: every operation is rounded once, as it stands there.

Nothing is contracted: where a GPU's compiler fuses a product and a sum, a formula says `fma`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

WIDE = 24  # bits of a significand of float32


class Code:
    """The instructions of a formula.

    Attributes
    ----------
    lines : list of str
    calls : dict of int
        libdevice's functions that are called, and how many arguments each has.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.calls: dict[str, int] = {}

    def add(self, text: str, kind: str = "float") -> Value:
        """Add an instruction, and return its result."""
        name = f"%t{len(self.lines)}"
        self.lines.append(f" {name} = {text}\n")
        return Value(self, name, kind)


def constant(number: float) -> str:
    """Write a float32 number in LLVM's notation.

    Examples
    --------
    >>> constant(0.1)
    '0x3FB99999A0000000'
    """
    with np.errstate(over="ignore"):
        return f"0x{np.float64(np.float32(number)).view(np.uint64):016X}"


class Value(NamedTuple):
    """A float32 number, or a truth value, of a formula.

    Attributes
    ----------
    code : Code
    name, kind : str
        What it is called in the code, and its type there.
    bits : float
        Of the significands of sums, products and quotients: fewer than 24 where a kernel computes in a narrower format.
    """

    code: Code
    name: str
    kind: str = "float"
    bits: float = WIDE

    def _of(self, other: Value | float) -> str:
        return other.name if isinstance(other, Value) else constant(other)

    def _binary(self, operation: str, other: Value | float, *, swap: bool = False) -> Value:
        first, second = (self._of(other), self.name) if swap else (self.name, self._of(other))
        return rounded(self.code.add(f"{operation} float {first}, {second}"), self.bits)._replace(bits=self.bits)

    def __add__(self, other: Value | float) -> Value:  # type: ignore[override]
        return self._binary("fadd", other)

    def __radd__(self, other: float) -> Value:
        return self._binary("fadd", other, swap=True)

    def __sub__(self, other: Value | float) -> Value:
        return self._binary("fsub", other)

    def __rsub__(self, other: float) -> Value:
        return self._binary("fsub", other, swap=True)

    def __mul__(self, other: Value | float) -> Value:  # type: ignore[override]
        return self._binary("fmul", other)

    def __rmul__(self, other: float) -> Value:  # type: ignore[override]
        return self._binary("fmul", other, swap=True)

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._binary("fdiv", other, swap=True)

    def __neg__(self) -> Value:
        return self.code.add(f"fneg float {self.name}")._replace(bits=self.bits)

    def _compare(self, test: str, other: Value | float) -> Value:
        return self.code.add(f"fcmp {test} float {self.name}, {self._of(other)}", "i1")

    def __lt__(self, other: Value | float) -> Value:  # type: ignore[override]
        return self._compare("olt", other)

    def __le__(self, other: Value | float) -> Value:  # type: ignore[override]
        return self._compare("ole", other)

    def __gt__(self, other: Value | float) -> Value:  # type: ignore[override]
        return self._compare("ogt", other)

    def __ge__(self, other: Value | float) -> Value:  # type: ignore[override]
        return self._compare("oge", other)

    def equals(self, other: Value | float) -> Value:
        """Compare two numbers; false where one is NaN."""
        return self._compare("oeq", other)

    @property
    def is_nan(self) -> Value:
        """Tell whether a number is none."""
        return self._compare("uno", 0.0)


Formula = Callable[..., Value | tuple[Value, ...]]


def fma(a: Value, b: Value | float, c: Value | float) -> Value:
    """Multiply and add, and round once."""
    return a.code.add(f"call float @llvm.fma.f32(float {a.name}, float {a._of(b)}, float {a._of(c)})")


def choose(test: Value, yes: Value | float, no: Value | float) -> Value:
    """Return one number where a test is true, and another where it is not."""
    first, second = (each.name if isinstance(each, Value) else constant(each) for each in (yes, no))
    return test.code.add(f"select i1 {test.name}, float {first}, float {second}")


def narrow(bits: float, *values: Value) -> tuple[Value, ...]:
    """Compute with numbers in a format of so many bits of a significand from here on."""
    return tuple(value._replace(bits=bits) for value in values)


def scalar(like: Value, number: float) -> Value:
    """Return a constant as a number of the same formula."""
    return Value(like.code, constant(number))


def call(function: str, first: Value, *others: Value | float) -> Value:
    """Call a function of libdevice, named without ``__nv_``."""
    first.code.calls[f"__nv_{function}"] = 1 + len(others)
    given = ", ".join(f"float {text}" for text in (first.name, *(first._of(other) for other in others)))
    return first.code.add(f"call float @__nv_{function}({given})")


def exp(x: Value) -> Value:
    """Call libdevice's exponential function."""
    return call("expf", x)


def absolute(x: Value) -> Value:
    """Drop the sign."""
    return x.code.add(f"call float @llvm.fabs.f32(float {x.name})")._replace(bits=x.bits)


def square_root(x: Value) -> Value:
    """Take the square root, rounded to nearest."""
    return x.code.add(f"call float @llvm.sqrt.f32(float {x.name})")


def rounded(x: Value, bits: float) -> Value:
    """Round to nearest even in a format of so many bits of a significand: 24, 11 (float16) or 8 (bfloat16)."""
    if bits == 24:
        return x
    if bits == 11:
        half = x.code.add(f"fptrunc float {x.name} to half", "half")
        return x.code.add(f"fpext half {half.name} to float")
    steps = (
        "bitcast float {x} to i32",
        "lshr i32 {0}, 16",
        "and i32 {1}, 1",
        "add i32 {2}, 32767",
        "add i32 {0}, {3}",
        "and i32 {4}, -65536",
        "fcmp uno float {x}, 0.0",
        "select i1 {6}, i32 {0}, i32 {5}",
    )
    names: list[str] = []
    for step in steps:
        names.append(x.code.add(step.format(*names, x=x.name)).name)
    return x.code.add(f"bitcast i32 {names[-1]} to float")


def canonical(x: Value) -> Value:
    """Give NaN the bits that a GPU's arithmetic does."""
    nan = x.code.add("bitcast i32 2147483647 to float")
    return choose(x.is_nan, nan, x)


def floor(x: Value) -> Value:
    """Round down to a whole number."""
    return x.code.add(f"call float @llvm.floor.f32(float {x.name})")


def truncate(x: Value) -> Value:
    """Round toward zero to a whole number."""
    return x.code.add(f"call float @llvm.trunc.f32(float {x.name})")


def copy_sign(x: Value, sign: Value) -> Value:
    """Return a number with the sign of another."""
    return x.code.add(f"call float @llvm.copysign.f32(float {x.name}, float {sign.name})")


def least(a: Value, b: Value | float) -> Value:
    """Return the smaller number: of a number and NaN the number, as ``fminf`` does."""
    return a.code.add(f"call float @llvm.minnum.f32(float {a.name}, float {a._of(b)})")


def largest(a: Value, b: Value | float) -> Value:
    """Return the larger number: of a number and NaN the number, as ``fmaxf`` does."""
    return a.code.add(f"call float @llvm.maxnum.f32(float {a.name}, float {a._of(b)})")
