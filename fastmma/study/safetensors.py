"""Files of tensors as safetensors have them: a length, a JSON header, and raw elements. Nothing in them is executed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.files import filled
from fastmma.host.memory import amount, check_fits
from fastmma.host.strict_json import parsed

SUFFIX = ".safetensors"
_LONGEST_HEADER = 1 << 25
_MOST_DIMENSIONS, _MOST_ELEMENTS = 32, 1 << 59
# the format's names of types; what NumPy and ml_dtypes have no name for cannot be read
TYPES: dict[str, type] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


class Stored(NamedTuple):
    """A tensor in an open file.

    Attributes
    ----------
    shape : tuple of int
    readable : bool
        Whether its elements are of a type that `TYPES` has.
    load : callable
        Reads it, or one of the parts along its first dimension.
    """

    shape: tuple[int, ...]
    readable: bool
    load: Callable[..., NDArray[Any]]


def _damaged(path: Path, why: str) -> OperandError:
    return OperandError(f"{path}: is no readable {SUFFIX} file: {why}")


def _header(file: IO[bytes], size: int, path: Path) -> tuple[dict[str, Any], int]:
    """What a safetensors file says of its tensors, and where their bytes begin."""
    length = int.from_bytes(filled(file, 8, str(path)).tobytes(), "little") if size >= 8 else size
    if length > size - 8:
        raise _damaged(path, "its header is longer than the file")
    if length > _LONGEST_HEADER:
        raise _damaged(path, f"its header has {amount(length)}, and no more than {amount(_LONGEST_HEADER)} are read")
    try:
        header = parsed(filled(file, length, str(path)).tobytes())
    except ValueError as error:
        raise _damaged(path, f"its header: {error}") from None
    if not isinstance(header, dict):
        raise _damaged(path, "its header is no object")
    header.pop("__metadata__", None)
    return header, 8 + length


def _span(path: Path, name: str, entry: Any) -> tuple[int, int, tuple[int, ...]]:
    """First and last offset and the shape of a tensor."""
    try:
        (start, stop), shape = entry["data_offsets"], entry["shape"]
        whole = all(type(each) is int and each >= 0 for each in (start, stop, *shape)) and start <= stop
        possible = len(shape) <= _MOST_DIMENSIONS and math.prod(filter(None, shape)) <= _MOST_ELEMENTS
        if whole and possible and isinstance(entry["dtype"], str):
            return start, stop, tuple(shape)
    except (KeyError, TypeError, ValueError):
        pass
    raise _damaged(path, f"tensor {name!r} needs a dtype, a shape and two data_offsets, and not {entry!r:.100}")


def _tensor(
    file: IO[bytes], path: Path, name: str, dtype: str, start: int, stop: int, shape: tuple[int, ...], part: int | None = None
) -> NDArray[Any]:
    if dtype not in TYPES:
        raise OperandTypeError(f"{path}::{name} has elements of type {dtype}; there are readers for {', '.join(TYPES)}")
    kind = np.dtype(TYPES[dtype]).newbyteorder("<")
    count = stop - start
    if math.prod(shape) * kind.itemsize != count:
        raise _damaged(path, f"tensor {name!r} of shape {shape} and type {dtype} cannot have {amount(count)}")
    if part is not None:
        if not shape or part >= shape[0]:
            raise IndexError(part)
        count, shape = count // shape[0], shape[1:]
        start += part * count
    check_fits(count, f"{path}: tensor {name!r}")
    file.seek(start)
    return filled(file, count, str(path)).view(kind).reshape(shape)


def tensors_in(file: IO[bytes], path: Path) -> dict[str, Stored]:
    """The tensors of an open file by name, whose raw little-endian elements follow the header without overlaps and gaps.

    Raises
    ------
    OperandError, OperandTypeError
        Here or when one is read: if the file is damaged, the elements are of a type without a name in NumPy, or memory does not take them.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    header, begin = _header(file, size, path)
    spans = {name: _span(path, name, entry) for name, entry in header.items()}
    end = 0
    for start, stop, _ in sorted(spans.values()):
        if start != end:
            raise _damaged(path, f"its tensors overlap, or leave a gap, at offset {start}")
        end = stop
    if begin + end != size:
        raise _damaged(path, f"its tensors have {amount(end)}, and {amount(size - begin)} follow its header")
    return {
        name: Stored(shape, entry["dtype"] in TYPES, partial(_tensor, file, path, name, entry["dtype"], begin + start, begin + stop, shape))
        for (name, (start, stop, shape)), entry in zip(spans.items(), header.values(), strict=True)
    }
