"""The operands of ``fastmma gemm``: read from files, or generated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.files import opened
from fastmma.host.npy import arrays_in
from fastmma.isa.codes import encode, from_codes
from fastmma.isa.formats import Format, format_of
from fastmma.operands.check import codes_of

Arrays = dict[str, NDArray[Any]]
_NAMES = ("a", "b", "c")
MORE = ("bias", "metadata", "scale_a", "scale_b")  # what an archive may hold besides
_SIZE = re.compile(r"(\d{1,10})x(\d{1,10})x(\d{1,10})", re.ASCII)
_TILE = re.compile(r"(\d{1,10})x(\d{1,10})", re.ASCII)
_CHUNK = 1 << 20  # elements converted at a time: float64 intermediates stay small


def _load(path: Path) -> Arrays:
    """The operands in an archive by name, or the one array of a file without a name.

    Raises
    ------
    OperandError, OperandTypeError
        If the file cannot be read.
    """
    with opened(path) as file:
        return {name: array() for name, array in arrays_in(file, str(path)).items() if name in ("", *_NAMES, *MORE)}


def _load_archive(path: Path) -> Arrays:
    loaded = _load(path)
    if "" in loaded:
        raise OperandError(f"{path} holds one array; give two or three .npy files, or an .npz file with a, b and perhaps c")
    if not {"a", "b"} <= loaded.keys():
        raise OperandError(f"{path} must hold arrays named a, b and perhaps c; of these it has {', '.join(loaded) or 'none'}")
    return loaded


def _load_array(path: Path) -> NDArray[Any]:
    loaded = _load(path)
    if "" not in loaded:
        raise OperandError(f"{path}: an .npz file must be the only one")
    return loaded[""]


def read(paths: Sequence[Path], more: bool = False) -> Arrays:
    """The operands in one ``.npz`` file, or in two or three ``.npy`` files; `more`: an archive may hold those that `MORE` names, too.

    Raises
    ------
    OperandError, OperandTypeError
        If a file is missing, damaged, or holds no matrix of numbers.
    """
    if len(paths) == 1:
        arrays = _load_archive(paths[0])
    elif len(paths) in (2, 3):
        arrays = {name: _load_array(path) for name, path in zip(_NAMES, paths, strict=False)}
    else:
        raise OperandError(f"give one .npz file, or two or three .npy files, not {len(paths)} files")
    besides = [name for name in arrays if name in MORE]
    if besides and not more:
        raise OperandError(f"{paths[0]} holds {', '.join(besides)}, too: fastmma gemm takes a, b and c alone, explain and compare take all")
    for name, array in arrays.items():
        if array.ndim != 2 and name != "bias":
            raise OperandError(f"{name} must be a matrix, but its shape is {array.shape}")
        if array.dtype.kind not in "biufV":
            raise OperandTypeError(f"{name} must hold real numbers, not {array.dtype}")
    sparse = "metadata" in arrays
    if arrays["a"].shape[1] * (2 if sparse else 1) != arrays["b"].shape[0]:
        how = " with metadata, where a stores half of the k" if sparse else ""
        raise OperandError(f"a of shape {arrays['a'].shape} and b of shape {arrays['b'].shape} do not multiply{how}")
    return arrays


def read_result(path: Path) -> NDArray[Any]:
    """The one array of a ``.npy`` file.

    Raises
    ------
    OperandError, OperandTypeError
        If the file is missing, damaged, or holds several.
    """
    return _load_array(path)


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


_Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
# values of order one; integer formats scale them to a quarter of their range
DISTRIBUTIONS: dict[str, _Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, shape),
    "positive": lambda rng, shape: rng.uniform(0, 1, shape),
    "wide": lambda rng, shape: rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape)),
}


def _draw(rng: np.random.Generator, shape: tuple[int, int], fmt: Format, distribution: str) -> NDArray[Any]:
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


def generate(shape: tuple[int, int], fmt: Format, rng: np.random.Generator, distribution: str) -> NDArray[Any]:
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
    return format_of(names[0]), format_of(names[-1])
