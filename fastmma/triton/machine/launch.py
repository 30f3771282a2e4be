"""The arguments of a launch as the bytes that a compiled kernel reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.triton.machine.tensor_maps import encode_map

_FLOATS = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "fp64": np.float64}


def list_leaves(kind: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """List the arguments that are no constants of the compiler with their types, tuples taken apart."""
    if isinstance(kind, (tuple, list)):
        for inner, one in zip(kind, value, strict=True):
            yield from list_leaves(inner, one)
    elif kind != "constexpr":
        yield str(kind), value


def encode_argument(kind: str, value: Any) -> bytes:
    """Return the bytes of an argument, the lowest first.

    Raises
    ------
    NotEmulatedError
        If there is no such type.

    Examples
    --------
    >>> encode_argument("i32", -2).hex(), encode_argument("fp32", 1.5).hex()
    ('feffffff', '0000c03f')
    """
    if kind.startswith("*"):
        return int(value if isinstance(value, int) else value.data_ptr() if value is not None else 0).to_bytes(8, "little")
    if kind == "map":
        return bytes(value)
    if kind in _FLOATS:
        return np.asarray(value, np.float64).astype(_FLOATS[kind]).tobytes()
    if kind[0] in "iu" and kind[1:].isdigit():
        size = max(1, int(kind[1:]) // 8)
        return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    raise NotEmulatedError(f"an argument of the type {kind}")


def _list_parts(value: Any, told: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """List what a kernel gets of a tensor descriptor: a map of it, or what the map would hold, and then sizes and strides."""
    if told is not None:
        yield "map", encode_map(value, told)
    else:
        yield "*", value.base
        yield from (("i64", number) for number in (*value.shape, *value.strides))
        yield from (("i8", number) for number in (value.padding == "nan", value.round_f32_to_tf32))
    yield from (("i32", size) for size in value.shape)
    yield from (("i64", stride) for stride in value.strides)


def pack_arguments(
    signature: dict[str, Any], values: dict[str, Any], places: list[tuple[int, int]], maps: Sequence[Mapping[str, Any]] = ()
) -> bytes:
    """Return the bytes of all parameters, each at its place; those after the arguments are zeros.

    Parameters
    ----------
    signature, values : dict
        Types and arguments, by name.
    places : list of tuple of int
        Where each parameter lies, and its bytes.
    maps : sequence of mapping
        What the compiler says of the tensor descriptors, in their order; none where it made pointers of them.

    Raises
    ------
    NotEmulatedError
        If the kernel has other parameters.
    """
    told = iter(maps)
    given: list[tuple[str, Any]] = []
    for leaf in (leaf for name, kind in signature.items() for leaf in list_leaves(kind, values[name])):
        given += _list_parts(leaf[1], next(told, None)) if leaf[0].startswith("tensordesc") else [leaf]
    if len(given) > len(places):
        raise NotEmulatedError(f"{len(given)} arguments of {len(places)} parameters")
    found = bytearray(max((place + size for place, size in places), default=0))
    for (kind, value), (place, size) in zip(given, places, strict=False):
        encoded = encode_argument(kind, value)
        if len(encoded) > size:
            raise NotEmulatedError(f"an argument of {len(encoded)} bytes in a parameter of {size}")
        found[place : place + len(encoded)] = encoded
    return bytes(found)


def count_programs(grid: Any) -> tuple[int, int, int]:
    """Return a grid in three dimensions.

    Examples
    --------
    >>> count_programs((4,))
    (4, 1, 1)
    """
    sizes = [int(size) for size in (grid if isinstance(grid, (tuple, list)) else (grid,))]
    return (*sizes, 1, 1)[:3] if math.prod(sizes) else (0, 1, 1)  # type: ignore[return-value]
