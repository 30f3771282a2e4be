"""Files of tensors as the safetensors package has them, which checks what they say of themselves. Nothing in them is executed."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from numpy.typing import NDArray

from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.files import filled, reason
from fastmma.host.memory import amount, check_fits
from fastmma.host.modules import optional
from fastmma.isa.formats import FORMATS

SUFFIX = ".safetensors"
_LONGEST_HEADER = 1 << 25
# the format's names of types, and those of NumPy and ml_dtypes; what has none there cannot be read
TYPES = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "e4m3", "F8_E5M2": "e5m2"}


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


def _header(file: IO[bytes], path: Path) -> tuple[dict[str, Any], int]:
    """Read the header, which the package finds right, and return it with the offset of the elements."""
    package = optional("safetensors", f"{path}: such files need", "'fastmma[study]'")
    length = int.from_bytes(file.read(8), "little")
    if _LONGEST_HEADER < length < file.seek(0, 2):
        raise _damaged(path, f"its header has {amount(length)}, and no more than {amount(_LONGEST_HEADER)} are read")
    try:
        with package.safe_open(path, framework="np"):
            file.seek(8)
    except Exception as error:
        raise _damaged(path, reason(error)) from None
    header = json.loads(filled(file, length, str(path)).tobytes())
    header.pop("__metadata__", None)
    return header, 8 + length


def _tensor(file: IO[bytes], path: Path, name: str, begin: int, entry: dict[str, Any], part: int | None = None) -> NDArray[Any]:
    (start, stop), shape = entry["data_offsets"], tuple(entry["shape"])
    if entry["dtype"] not in TYPES:
        raise OperandTypeError(f"{path}::{name} has elements of type {entry['dtype']}; there are readers for {', '.join(TYPES)}")
    count, start = stop - start, begin + start
    if part is not None:
        if not shape or part >= shape[0]:
            raise IndexError(part)
        count, shape = count // shape[0], shape[1:]
        start += part * count
    check_fits(count, f"{path}: tensor {name!r}")
    file.seek(start)
    elements = filled(file, count, str(path)).view(FORMATS[TYPES[entry["dtype"]]].dtype.newbyteorder("<"))
    try:
        return elements.reshape(shape)
    except ValueError as error:  # shapes that only the format has
        raise _damaged(path, f"tensor {name!r}: {error}") from None


def tensors_in(file: IO[bytes], path: Path) -> dict[str, Stored]:
    """List the tensors of an open file by name.

    Raises
    ------
    BackendError
        If the safetensors package is not there.
    OperandError, OperandTypeError
        Here or when one is read: if the file is damaged, the elements are of a type without a name in NumPy, or memory does not take them.
    """
    header, begin = _header(file, path)
    return {
        name: Stored(tuple(entry["shape"]), entry["dtype"] in TYPES, partial(_tensor, file, path, name, begin, entry))
        for name, entry in header.items()
    }
