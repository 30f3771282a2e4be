"""Registers of many threads as arrays: (blocks or 1, threads or 1), so that what is equal in all of them is held once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.machine.code import Immediate, Operand, Register, Special, Symbol

Array = NDArray[Any]
Registers = list[Any]
Getter = Callable[[Registers], Array]

BF16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
UNSIGNED: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}
KINDS: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(np.bool_),
    **{f"{sign}{8 * size}": np.dtype(f"{code}{size}") for size in (1, 2, 4, 8) for sign, code in (("u", "u"), ("s", "i"), ("b", "u"))},
    "f16": np.dtype(np.float16),
    "bf16": BF16,
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "tf32": np.dtype(np.uint32),
    **dict.fromkeys(("f16x2", "bf16x2", "s16x2", "u16x2"), np.dtype(np.uint32)),
    "f32x2": np.dtype(np.uint64),
    **dict.fromkeys(("e4m3x2", "e5m2x2", "ue8m0x2"), np.dtype(np.uint16)),
    "e2m1x2": np.dtype(np.uint8),
}
PAIRS: dict[str, np.dtype[Any]] = {"f16x2": np.dtype(np.float16), "bf16x2": BF16, "f32x2": np.dtype(np.float32)}


def resize(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return integers in another size: the lower bits, or with zeros or the sign in front."""
    if values.dtype.itemsize == dtype.itemsize:
        return values.view(dtype)
    return values.astype(np.dtype(f"{values.dtype.kind}{dtype.itemsize}")).view(dtype)


def constant(value: int, dtype: np.dtype[Any]) -> Array:
    """Return an immediate as an array: the bits of a float, or an integer."""
    if dtype == np.bool_:
        return np.full((1, 1), bool(value))
    return np.full((1, 1), value & ((1 << 8 * dtype.itemsize) - 1), UNSIGNED[dtype.itemsize]).view(dtype)


def getter(operand: Operand, kind: str, special: Callable[[str], int]) -> Getter:
    """Return what reads an operand as values of a type; `special` tells the register's number of a name.

    Raises
    ------
    NotEmulatedError
        If it is no value.
    """
    dtype = KINDS[kind]
    if isinstance(operand, Immediate):
        value = operand.value
        if operand.size == 8 and dtype.itemsize == 4:  # a decimal float
            value = int(np.float32(np.uint64(value).view(np.float64)).view(np.uint32))
        found = constant(value, dtype)
        return lambda _registers: found
    if isinstance(operand, Special | Symbol):
        number = special(operand.name)
        return lambda registers: resize(registers[number], dtype)
    if not isinstance(operand, Register):
        raise NotEmulatedError(f"the operand {operand}")
    number = operand.number
    if kind == "pred":
        return (lambda registers: ~registers[number]) if operand.negated else (lambda registers: registers[number])
    if operand.size == dtype.itemsize:
        return lambda registers: registers[number].view(dtype)
    unsigned = UNSIGNED[dtype.itemsize]
    return lambda registers: registers[number].astype(unsigned).view(dtype)


def split_pairs(values: Array, dtype: np.dtype[Any]) -> Array:
    """Take registers apart into two values of half their size, the lower one first."""
    return np.ascontiguousarray(values)[..., None].view(dtype)


def join_pairs(values: Array) -> Array:
    """Put two values together, the first one below."""
    return np.ascontiguousarray(values).view(UNSIGNED[2 * values.itemsize])[..., 0]
