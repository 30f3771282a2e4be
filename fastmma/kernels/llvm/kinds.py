"""Kinds of values in code that is emitted: numbers by their bits, vectors, groups of values, and what is known before the code runs.

Called with kinds of arguments, a kind is a signature that returns it.
"""

from __future__ import annotations

from abc import ABCMeta
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")


class Signature(NamedTuple):
    """The kinds of an intrinsic's result and of what it takes."""

    return_type: Kind
    args: tuple[Kind, ...]


class Kind:
    """A kind, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Kind) -> Signature:
        return Signature(self, arguments)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.name == getattr(other, "name", None)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


class Number(Kind):
    """A scalar."""

    def __init__(self, name: str, bitwidth: int, signed: bool = True) -> None:
        super().__init__(name)
        self.bitwidth, self.signed = bitwidth, signed


class Integer(Number):
    """An integer."""


class Float(Number):
    """A float."""


class Literal(Integer):
    """An integer that is known before the code runs."""

    def __init__(self, value: int) -> None:
        super().__init__(f"literal {value}", 64)
        self.literal_value, self.literal_type = value, int64


class DType(Kind):
    """One of NumPy's types as an argument."""

    def __init__(self, dtype: Number) -> None:
        super().__init__(f"type {dtype}")
        self.dtype = dtype


class Array(Kind):
    """A C-contiguous array."""

    def __init__(self, dtype: Number, dimensions: int) -> None:
        super().__init__(f"{dtype}[{dimensions}]")
        self.dtype, self.dimensions = dtype, dimensions


class Group(Kind):
    """A tuple; `made` is its class."""

    def __init__(self, types: tuple[Kind, ...], made: type = tuple) -> None:
        super().__init__(f"{made.__module__}.{made.__qualname__}{types}")
        self.types, self.made = types, made


class Record(Kind):
    """A frozen record, whose numbers are constants of the code that is compiled for it."""

    def __init__(self, value: Any) -> None:
        super().__init__(str(value))
        self.value = value


int8, int16, int32, int64 = (Integer(f"int{bits}", bits) for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (Integer(f"uint{bits}", bits, False) for bits in (8, 16, 32, 64))
float32, float64 = Float("float32", 32), Float("float64", 64)
boolean = Kind("bool")
none = Kind("none")
any_array = Kind("any array")  # of which a kernel wants the address of the first element; or that address, as an int
_SCALARS = {each.name: each for each in (int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64, boolean)}
_record_of = lru_cache(4096)(Record)


class Constants(metaclass=ABCMeta):  # noqa: B024 - records are registered as subclasses
    """The class of all frozen records that kernels take."""


def constant(record: type[T]) -> type[T]:
    """Let kernels take instances of a frozen dataclass: a kernel is compiled for each, and reads their attributes as integers."""
    return Constants.register(record)


def scalar_of(dtype: Any) -> Any:
    """Return the kind of one of NumPy's types."""
    return _SCALARS[np.dtype(dtype).name]


def kind_of(value: Any) -> Any:
    """Return the kind of a value that a kernel is called with, or that stands for those of its kind.

    Raises
    ------
    TypeError
        If no kernel takes it.
    """
    if value is None:
        return none
    if isinstance(value, type):
        return DType(scalar_of(value))
    if isinstance(value, tuple):
        return Group(tuple(map(kind_of, value)), type(value))
    if isinstance(value, np.generic):
        return scalar_of(type(value))
    if isinstance(value, int):
        return int64
    if isinstance(value, float):
        return float64
    if isinstance(value, Constants):
        return _record_of(value)
    raise TypeError(f"{value!r:.80} is no argument of a kernel")
