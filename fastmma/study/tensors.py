"""Real tensors from ``.npy``, ``.npz`` and ``.safetensors`` files. Nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import FastmmaError, OperandError, OperandTypeError

_SEPARATOR = "::"
_LONGEST_HEADER = 100_000_000  # as the format's own reader has it
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


def _npy(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"": np.load(file, allow_pickle=False)}


def _npz(path: Path) -> dict[str, Any]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _span(entry: dict[str, Any], size: int) -> tuple[int, int]:
    start, stop = entry["data_offsets"]
    if not (type(start) is int and type(stop) is int and 0 <= start <= stop <= size):
        raise ValueError(f"offsets {start} to {stop} lie outside the file")
    return start, stop


def _safetensors(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file, mapped into memory: a length, a JSON header, then raw little-endian elements."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        size = path.stat().st_size - 8 - length
        if length > _LONGEST_HEADER or size < 0:
            raise ValueError("its header is longer than the file")
        header = json.loads(file.read(length))
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if length else memoryview(b"")
    tensors: dict[str, Any] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, stop = _span(entry, size)
        dtype = _SAFETENSORS.get(entry["dtype"])
        if dtype is None:
            tensors[name] = entry["dtype"]
            continue
        flat = np.frombuffer(data[8 + length + start : 8 + length + stop], dtype=np.dtype(dtype).newbyteorder("<"))
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


_READERS: dict[str, Callable[[Path], dict[str, Any]]] = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}


def _all(path: Path) -> dict[str, Any]:
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise _fail(path, f"files of tensors end in {', '.join(_READERS)}")
    if path.is_fifo():
        raise _fail(path, "is a pipe; write it to a file first")
    try:
        return reader(path)
    except FileNotFoundError:
        raise _fail(path, "there is no such file") from None
    except IsADirectoryError:
        raise _fail(path, "is a folder; name a file") from None
    except FastmmaError:
        raise
    except Exception as error:  # a damaged file can fail anywhere in NumPy, zipfile, zlib or json
        if "allow_pickle" in str(error) or "Object arrays" in str(error):
            raise _fail(path, "holds Python objects, which are never unpickled; save an array of numbers") from None
        raise _fail(path, f"is no readable {path.suffix} file: {error}") from None


def _choose(path: Path, name: str, found: dict[str, Any]) -> Any:
    if name in found:
        return found[name]
    names = ", ".join(found) or "none"
    if name:
        raise _fail(path, f"has no tensor {name!r}; it has {names}")
    if len(found) != 1:
        raise _fail(path, f"name one of its tensors as {path.name}{_SEPARATOR}NAME; it has {names}")
    return next(iter(found.values()))


def _matrix(source: str, array: Any) -> NDArray[Any]:
    """float32, or float64 where it was that, of two dimensions."""
    if not isinstance(array, np.ndarray):
        raise OperandTypeError(f"{source} has elements of type {array}; there are readers for {', '.join(_SAFETENSORS)}")
    if array.dtype.kind == "V" and array.dtype not in {np.dtype(each) for each in _SAFETENSORS.values()}:
        raise OperandTypeError(f"{source} has raw elements of type {array.dtype}: save them as float32, or in a .safetensors file")
    if array.dtype.kind not in "fV":
        raise OperandTypeError(f"{source} must hold floating-point numbers, not {array.dtype}")
    if array.ndim < 2 or array.size == 0:
        raise OperandError(f"{source} must be a matrix with elements, (rows, K); its shape is {array.shape}")
    dtype = np.float64 if array.dtype.itemsize > 4 else np.float32
    with np.errstate(over="ignore"):  # extended precision beyond float64 is infinite
        return np.array(array.reshape(-1, array.shape[-1]), dtype=dtype, order="C")  # a copy: the file may change while a study runs


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
    values = _matrix(str(source), _choose(Path(file), name, _all(Path(file))))
    digest = hashlib.sha256(f"{values.shape} {values.dtype}".encode())
    digest.update(np.ascontiguousarray(values).view(np.uint8).data)
    return Tensor(str(source), digest.hexdigest()[:16], values)
