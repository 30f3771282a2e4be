"""Real tensors from ``.npy``, ``.npz`` and ``.safetensors`` files. Nothing is unpickled."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.files import filled, opened
from fastmma.host.memory import amount, check_fits
from fastmma.host.npy import Arrays, arrays_in
from fastmma.host.strict_json import parsed

_SEPARATOR = "::"
_LONGEST_HEADER = 1 << 25
_MOST_DIMENSIONS, _MOST_ELEMENTS = 32, 1 << 59
_MOST_NAMES = 24  # in a message
# the format's names of types; what NumPy and ml_dtypes have no name for cannot be read
_SAFETENSORS: dict[str, type] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


@dataclass(frozen=True)
class Tensor:
    """A matrix that was read from a file.

    Attributes
    ----------
    source : str
        ``"file::name"``.
    digest : str
        Of its shape and its values, so that a changed file is another tensor.
    values : float32 or float64 array (rows, K)
        Leading dimensions are flattened into rows.
    """

    source: str
    digest: str
    values: NDArray[Any]


def _fail(path: Path, why: str) -> OperandError:
    return OperandError(f"{path}: {why}")


def _damaged(path: Path, why: str) -> OperandError:
    return _fail(path, f"is no readable .safetensors file: {why}")


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


def _tensor(file: IO[bytes], path: Path, name: str, dtype: str, start: int, stop: int, shape: tuple[int, ...]) -> NDArray[Any]:
    if dtype not in _SAFETENSORS:
        raise OperandTypeError(f"{path}{_SEPARATOR}{name} has elements of type {dtype}; there are readers for {', '.join(_SAFETENSORS)}")
    kind = np.dtype(_SAFETENSORS[dtype]).newbyteorder("<")
    count = stop - start
    if math.prod(shape) * kind.itemsize != count:
        raise _damaged(path, f"tensor {name!r} of shape {shape} and type {dtype} cannot have {amount(count)}")
    check_fits(count, f"{path}: tensor {name!r}")
    file.seek(start)
    return filled(file, count, str(path)).view(kind).reshape(shape)


def _safetensors(file: IO[bytes], path: Path) -> Arrays:
    """The tensors of a safetensors file: a length, a JSON header, then raw little-endian elements, without overlaps and gaps."""
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
        name: partial(_tensor, file, path, name, header[name]["dtype"], begin + start, begin + stop, shape)
        for name, (start, stop, shape) in spans.items()
    }


def _numpy(file: IO[bytes], path: Path) -> Arrays:
    return arrays_in(file, str(path))


_READERS: dict[str, Callable[[IO[bytes], Path], Arrays]] = {".npy": _numpy, ".npz": _numpy, ".safetensors": _safetensors}


def _chosen(path: Path, name: str, found: Arrays) -> NDArray[Any]:
    if name in found:
        return found[name]()
    names = ", ".join(islice(found, _MOST_NAMES)) + (f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else "")
    if name:
        raise _fail(path, f"has no tensor {name!r}; it has {names or 'none'}")
    if len(found) != 1:
        raise _fail(path, f"name one of its tensors as {path.name}{_SEPARATOR}NAME; it has {names or 'none'}")
    return next(iter(found.values()))()


def _loaded(path: Path, name: str) -> NDArray[Any]:
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise _fail(path, f"files of tensors end in {', '.join(_READERS)}")
    with opened(path) as file:
        return _chosen(path, name, reader(file, path))


def _matrix(source: str, array: NDArray[Any]) -> NDArray[Any]:
    """float32, or float64 where it was that, of two dimensions."""
    if array.dtype.kind == "V" and array.dtype not in {np.dtype(each) for each in _SAFETENSORS.values()}:
        raise OperandTypeError(f"{source} has raw elements of type {array.dtype}: save them as float32, or in a .safetensors file")
    if array.dtype.kind not in "fV":
        raise OperandTypeError(f"{source} must hold floating-point numbers, not {array.dtype}")
    if array.ndim < 2 or array.size == 0:
        raise OperandError(f"{source} must be a matrix with elements, (rows, K); its shape is {array.shape}")
    dtype = np.float64 if array.dtype.itemsize > 4 else np.float32
    with np.errstate(all="ignore"):  # extended precision beyond float64 is infinite
        return np.ascontiguousarray(array.reshape(-1, array.shape[-1]), dtype=dtype)


@public_call
def read(source: str | Path) -> Tensor:
    """Read one tensor.

    Parameters
    ----------
    source : str or Path
        A ``.npy``, ``.npz`` or ``.safetensors`` file, followed by ``::NAME`` where it holds more than one tensor. Elements are float64,
        float32, float16, or in safetensors bfloat16, e4m3 and e5m2. The last dimension is the one that is contracted.

    Raises
    ------
    OperandError, OperandTypeError
        If the file is missing, damaged, or holds Python objects or no matrix of floats; the message says what to do.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/layer.npz", weight=np.ones((2, 3), np.float16))
    ...     tensor = read(f"{folder}/layer.npz::weight")
    >>> tensor.values.shape, tensor.values.dtype
    ((2, 3), dtype('float32'))
    """
    if not isinstance(source, str | Path):
        raise OperandTypeError(f"a tensor is named as FILE or FILE{_SEPARATOR}NAME, not by {type(source).__name__}; arrays make a Tensor")
    file, _, name = str(source).partition(_SEPARATOR)
    values = _matrix(str(source), _loaded(Path(file), name))
    digest = hashlib.sha256(f"{values.shape} {values.dtype}".encode())
    digest.update(np.ascontiguousarray(values).view(np.uint8).data)
    return Tensor(str(source), digest.hexdigest()[:16], values)
