"""The operands of ``fastmma gemm``: read from files, or generated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host import npy
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.files import opened
from fastmma.isa.codes import encode, from_codes
from fastmma.isa.formats import FORMATS, Format, format_of
from fastmma.operands.check import codes_of

if TYPE_CHECKING:
    from numpy.random import Generator

    _Draw = Callable[[Generator, tuple[int, int]], NDArray[np.float64]]

Arrays = dict[str, NDArray[Any]]
_NAMES = ("a", "b", "c")
MORE = ("bias", "metadata", "scale_a", "scale_b")  # what an archive may hold besides
_SIZE = re.compile(r"(\d{1,10})x(\d{1,10})x(\d{1,10})", re.ASCII)
_TILE = re.compile(r"(\d{1,10})x(\d{1,10})", re.ASCII)
_CHUNK = 1 << 20  # elements converted at a time: float64 intermediates stay small


def _in_archive(file: IO[bytes], path: Path) -> npy.Arrays:
    """The operands in an archive, by name, before they are read."""
    found = npy.arrays_in(file, str(path))
    if "" in found:
        raise OperandError(f"{path} holds one array; give two or three .npy files, or an .npz file with a, b and perhaps c")
    operands = {name: array for name, array in found.items() if name in (*_NAMES, *MORE)}
    if not {"a", "b"} <= operands.keys():
        raise OperandError(f"{path} must hold arrays named a, b and perhaps c; of these it has {', '.join(operands) or 'none'}")
    return operands


def _alone(file: IO[bytes], path: Path) -> npy.Stored:
    """The one array of a file, before it is read."""
    found = npy.arrays_in(file, str(path))
    if "" not in found:
        raise OperandError(f"{path}: an .npz file must be the only one")
    return found[""]


def _check_heads(heads: dict[str, npy.Head]) -> None:
    """Raise OperandError or OperandTypeError unless operands of these types and shapes multiply."""
    for name, head in heads.items():
        if len(head.shape) != 2 and name != "bias":
            raise OperandError(f"{name} must be a matrix, but its shape is {head.shape}")
        if head.dtype.kind not in "biufV":
            raise OperandTypeError(f"{name} must hold real numbers, not {head.dtype}")
    sparse = "metadata" in heads
    a, b = heads["a"].shape, heads["b"].shape
    if a[1] * (2 if sparse else 1) != b[0]:
        how = " with metadata, where a stores half of the k" if sparse else ""
        raise OperandError(f"a of shape {a} and b of shape {b} do not multiply{how}")


def read(paths: Sequence[Path], more: bool = False) -> Arrays:
    """The operands in one ``.npz`` file, or in two or three ``.npy`` files; `more`: an archive may hold those that `MORE` names, too.

    Raises
    ------
    OperandError, OperandTypeError
        If a file is missing, damaged, or holds no matrix of numbers; elements are read when types and shapes are right.
    """
    if not 0 < len(paths) <= len(_NAMES):
        raise OperandError(f"give one .npz file, or two or three .npy files, not {len(paths)} files")
    with ExitStack() as files:
        handles = [(files.enter_context(opened(path)), path) for path in paths]
        several = len(paths) > 1
        stored = {name: _alone(*each) for name, each in zip(_NAMES, handles, strict=False)} if several else _in_archive(*handles[0])
        besides = [name for name in stored if name in MORE]
        if besides and not more:
            raise OperandError(
                f"{paths[0]} holds {', '.join(besides)}, too: fastmma gemm takes a, b and c alone, explain and compare take all"
            )
        _check_heads({name: each.head() for name, each in stored.items()})
        return {name: each() for name, each in stored.items()}


def read_result(path: Path) -> NDArray[Any]:
    """The one array of a ``.npy`` file.

    Raises
    ------
    OperandError, OperandTypeError
        If the file is missing, damaged, or holds several.
    """
    with opened(path) as file:
        return _alone(file, path)()


def parse_tile(text: str) -> tuple[int, int]:
    """``"MxN"`` as two numbers.

    Raises
    ------
    OperandError
        If it is anything else.
    """
    matched = _TILE.fullmatch(text)
    if matched is None:
        raise OperandError(f"--tile takes a size such as 128x256 (M x N), not {text!r}")
    return int(matched[1]), int(matched[2])


def _chunks(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, _CHUNK // max(columns, 1))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def as_elements(array: NDArray[Any], fmt: Format, what: str) -> NDArray[Any]:
    """An array as it was read, as elements of a format: floats are rounded to nearest even, and what NumPy stored as raw bytes is viewed.

    NumPy writes the dtypes of ml_dtypes as raw bytes, so that only the user knows what they are.

    Raises
    ------
    OperandTypeError, OperandError
        If the dtype does not fit the format, or a value has no place in it.
    """
    if array.dtype.kind == "V":
        if array.dtype.itemsize != fmt.dtype.itemsize:
            raise OperandTypeError(f"{what} holds raw elements of {array.dtype.itemsize} bytes, but {fmt} takes {fmt.dtype.itemsize}")
        array = np.ascontiguousarray(array).view(fmt.dtype)
    result = np.empty(array.shape, dtype=fmt.dtype)
    for rows in _chunks(*array.shape):
        result[rows] = from_codes(codes_of(array[rows], fmt, what, cast=True), fmt)
    return result


def parse_size(text: str, option: str = "--random") -> tuple[int, int, int]:
    """``"MxNxK"`` as three numbers; `option` is where it was given.

    Raises
    ------
    OperandError
        If it is anything else.
    """
    matched = _SIZE.fullmatch(text)
    if matched is None:
        raise OperandError(f"{option} takes a size such as 1024x1024x1024 (M x N x K), not {text!r}")
    m, n, k = map(int, matched.groups())
    return m, n, k


# values of order one; integer formats scale them to a quarter of their range
DISTRIBUTIONS: dict[str, _Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "positive": lambda rng, shape: rng.uniform(0, 1, shape),
    "wide": lambda rng, shape: rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape)),
}


def _draw(rng: Generator, shape: tuple[int, int], fmt: Format, distribution: str) -> NDArray[Any]:
    if fmt.kind == "bit":
        return rng.integers(0, 2, shape).astype(bool)
    if distribution == "bits":
        return from_codes(rng.integers(0, 1 << fmt.bits, shape, dtype=np.uint64).astype(fmt.code_dtype), fmt)
    values = DISTRIBUTIONS[distribution](rng, shape)
    if fmt.kind == "unsigned":
        values = np.abs(values)
    if fmt.kind != "float":
        values = values * ((fmt.max + 1) / 4)
    return from_codes(encode(values, fmt, saturate=True), fmt)


def generate(shape: tuple[int, int], fmt: Format, rng: Generator, distribution: str) -> NDArray[Any]:
    """A random matrix of a format; ``"bits"`` takes any code, NaN and infinities included.

    Raises
    ------
    OperandError
        If there is no such distribution.
    """
    if distribution != "bits" and distribution not in DISTRIBUTIONS:
        raise OperandError(f"there is no distribution {distribution!r}; there are {', '.join(DISTRIBUTIONS)}, bits")
    result = np.empty(shape, dtype=fmt.dtype)
    for rows in _chunks(*shape):
        result[rows] = _draw(rng, (rows.stop - rows.start, shape[1]), fmt, distribution)
    return result


def _is_scheme(name: str) -> bool:
    from fastmma.scaling.schemes import SCHEMES

    return name in SCHEMES


def formats_of(text: str) -> tuple[Format, Format]:
    """``"f16"`` or ``"e4m3,e5m2"``: the formats of A and B.

    Raises
    ------
    OperandError, InstructionError
        If it names none, or more than two.
    """
    names = text.split(",")
    if len(names) > 2:
        raise OperandError(f"--type takes one type, or two with a comma between them, not {text!r}")
    for name in names:
        if name not in FORMATS and _is_scheme(name):
            raise OperandError(f"{name} is a block-scaled scheme, not an element format: 'fastmma study --format {name}' measures it")
    return format_of(names[0]), format_of(names[-1])
