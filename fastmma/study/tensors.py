"""Real tensors from ``.npy``, ``.npz`` and ``.safetensors`` files. Nothing is unpickled."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.files import opened
from fastmma.host.npy import Head, Stored, arrays_in
from fastmma.isa.formats import FORMATS
from fastmma.study import safetensors

SEPARATOR, TRANSPOSED = "::", ", transposed"
_MOST_NAMES = 24  # in a message
_DIGITS = 7  # of the number of a part: fewer
_MOST_COMPARED = 20_000  # names that are compared with one that there is not
_RAW = frozenset(FORMATS[each].dtype_name for each in safetensors.TYPES.values())  # floats that NumPy itself takes for raw bytes


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

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and K."""
        rows, depth = self.values.shape
        return rows, depth

    @property
    def label(self) -> str:
        """What cases have for it: where it is from, and what it holds."""
        return f"{self.source} {self.digest}"

    def read(self) -> Tensor:
        """Itself."""
        return self


class _Held(NamedTuple):
    """A tensor in an open file: what reads it, or a part along its first dimension, and what says its type and shape before that."""

    load: Callable[..., NDArray[Any]]
    head: Callable[[], Head] | None = None


def _numpy(file: IO[bytes], path: Path) -> dict[str, _Held]:
    return {name: _Held(partial(_part, array), array.head) for name, array in arrays_in(file, str(path)).items()}


def _part(array: Stored, part: int | None = None) -> NDArray[Any]:
    return array() if part is None else array()[part]


def _safetensors(file: IO[bytes], path: Path) -> dict[str, _Held]:
    return {name: _Held(stored.load) for name, stored in safetensors.tensors_in(file, path).items()}


_READERS: dict[str, Callable[[IO[bytes], Path], dict[str, _Held]]] = {".npy": _numpy, ".npz": _numpy, safetensors.SUFFIX: _safetensors}


def check_suffix(path: Path) -> None:
    """Raise OperandError unless there is a reader for files of that name."""
    if path.suffix not in _READERS:
        missing = "" if os.path.exists(path) else "there is no such file or folder; "  # it also answers for names that no system takes
        raise OperandError(f"{path}: {missing}files of tensors end in {', '.join(_READERS)}")


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first ones of many."""
    rest = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(islice(names, _MOST_NAMES)) + rest or "none"


def meant(name: str, names: Sequence[str]) -> str:
    """The names that come close to one that there is not, or those that there are.

    Examples
    --------
    >>> meant("layer.0.qeury.weight", ["layer.0.query.weight", "layer.0.key.bias"])
    'did you mean layer.0.query.weight?'
    >>> meant("x", ["weight", "bias"])
    'it has weight, bias'
    """
    from difflib import get_close_matches  # which is needed by errors alone

    close = get_close_matches(name[:200], list(names[:_MOST_COMPARED]), 3, 0.7)
    return f"did you mean {' or '.join(close)}?" if close else f"it has {listed(names)}"


def _chosen(path: Path, name: str, found: dict[str, _Held]) -> tuple[_Held, int | None]:
    """The tensor of a name, and which part of it, or None for the whole."""
    if name in found:
        return found[name], None
    names = list(found)
    whole, _, part = name.rpartition(".")
    if whole in found and part.isdecimal() and len(part) < _DIGITS:
        return found[whole], int(part)
    if name:
        raise OperandError(f"{path}: has no tensor {name!r}; {meant(name, names)}")
    if len(found) != 1:
        raise OperandError(f"{path}: name one of its tensors as {path.name}{SEPARATOR}NAME; it has {listed(names)}")
    return found[names[0]], None


def _load(source: str, path: Path, name: str, held: _Held, part: int | None, transposed: bool) -> NDArray[Any]:
    """The elements, which are read if type and shape are those of a matrix."""
    missing = OperandError(f"{path}: tensor {name.rpartition('.')[0]!r} has no part {part}")
    if held.head is not None:
        dtype, shape, *_ = held.head()
        if part is not None and not (shape and part < shape[0]):
            raise missing
        _check_matrix(source, dtype, shape if part is None else shape[1:], transposed)
    try:
        return held.load(part)
    except IndexError:
        raise missing from None


def is_float(dtype: np.dtype[Any]) -> bool:
    """Tell whether elements are of a type that a study takes."""
    return dtype.kind == "f" or dtype.name in _RAW


def _check_matrix(source: str, dtype: np.dtype[Any], shape: tuple[int, ...], transposed: bool) -> None:
    """Raise OperandError or OperandTypeError unless they are those of a matrix of floats."""
    if dtype.kind == "V" and not is_float(dtype):
        raise OperandTypeError(f"{source} has raw elements of type {dtype}: save them as float32, or in a .safetensors file")
    if not is_float(dtype):
        raise OperandTypeError(f"{source} must hold floating-point numbers, not {dtype}")
    if len(shape) < 2 or 0 in shape:
        raise OperandError(f"{source} must be a matrix with elements, (rows, K); its shape is {shape}")
    if transposed and len(shape) > 2:
        raise OperandError(f"{source} must be a matrix (K, rows), since it is transposed; its shape is {shape}")


def _matrix(source: str, array: NDArray[Any], transposed: bool) -> NDArray[Any]:
    """float32, or float64 where it was that, of two dimensions."""
    _check_matrix(source, array.dtype, array.shape, transposed)
    if transposed:
        array = array.T
    dtype = np.float64 if array.dtype.itemsize > 4 else np.float32
    with np.errstate(all="ignore"):  # extended precision beyond float64 is infinite
        return np.ascontiguousarray(array.reshape(-1, array.shape[-1]), dtype=dtype)


def digest_of(values: NDArray[Any]) -> str:
    """SHA-256 of a matrix: of its shape, its type and its elements."""
    from hashlib import sha256  # which takes time, and is needed when work has begun

    digest = sha256(f"{values.shape} {values.dtype}".encode())
    digest.update(np.ascontiguousarray(values).view(np.uint8).data)
    return digest.hexdigest()


@public_call
def read(source: str | Path, *, transposed: bool = False) -> Tensor:
    """Read one tensor.

    Parameters
    ----------
    source : str or Path
        A ``.npy``, ``.npz`` or ``.safetensors`` file, followed by ``::NAME`` where it holds more than one tensor; ``NAME.3`` is part 3 of
        a tensor, along its first dimension, such as one of several experts. Elements are float64,
        float32, float16, or in safetensors bfloat16, e4m3 and e5m2. The last dimension is the one that is contracted.
    transposed : bool
        Whether the first of two dimensions is contracted instead, as in the weights of GPT-2.

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
        raise OperandTypeError(f"a tensor is named as FILE or FILE{SEPARATOR}NAME, not by {type(source).__name__}; arrays make a Tensor")
    file, _, name = str(source).partition(SEPARATOR)
    check_suffix(Path(file))
    with opened(Path(file)) as handle:
        held, part = _chosen(Path(file), name, _READERS[Path(file).suffix](handle, Path(file)))
        array = _load(str(source), Path(file), name, held, part, bool(transposed))
    values = _matrix(str(source), array, bool(transposed))
    return Tensor(f"{source}{TRANSPOSED if transposed else ''}", digest_of(values)[:16], values)
