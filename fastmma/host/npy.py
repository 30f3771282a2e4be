"""Arrays in ``.npy`` and ``.npz`` files: NumPy reads the headers, nothing is unpickled, and sizes are checked before elements are read."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.format import (
    MAGIC_PREFIX,
    header_data_from_array_1_0,
    read_array_header_1_0,
    read_array_header_2_0,
    read_magic,
    write_array_header_1_0,
)
from numpy.typing import NDArray

from fastmma.host.errors import FastmmaError, OperandError, OperandTypeError
from fastmma.host.files import filled, reason
from fastmma.host.memory import amount, check_fits

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

Array = NDArray[Any]

_HEADERS = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}
_LONGEST_START = 10_000 + len(MAGIC_PREFIX) + 6  # bytes before the elements: NumPy reads no longer header
_LARGEST_DIRECTORY = 1 << 24  # bytes of an archive's list of members
_MOST_DIMENSIONS = 32
_MOST_BYTES = (1 << 63) - 1
_SUFFIX = ".npy"
_ARCHIVE, _PICKLE = (b"PK\3\4", b"PK\5\6"), b"\x80"
_E5M2, _RAW = b"'<f1'", b"'|V1'"  # NumPy writes the type of e5m2 by a name that it does not read
_KINDS = "biufcV"
_COMPRESSIONS = (0, 8)  # stored and deflated, of which no more is inflated than is asked for
_OBJECTS = "holds Python objects, which are never unpickled; save an array of numbers"


def _damaged(what: str, kind: str, why: str) -> OperandError:
    return OperandError(f"{what}: is no readable {kind} file: {why}")


def _header(start: bytes, what: str) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """Read type, shape, order (whether Fortran's), and where the elements begin."""
    file = io.BytesIO(start.replace(_E5M2, _RAW))
    try:
        shape, fortran, dtype = _HEADERS[read_magic(file)](file)
    except KeyError:
        raise _damaged(what, ".npy", "its version is unknown") from None
    except Exception as error:  # NumPy's parser raises what Python's does
        raise _damaged(what, ".npy", f"{reason(error).splitlines()[0]:.100}") from None
    return dtype, shape, fortran, file.tell()


def _check_type(dtype: np.dtype[Any], what: str) -> None:
    """Raise OperandError or OperandTypeError unless elements are numbers, or raw bytes."""
    if dtype.hasobject:
        raise OperandError(f"{what}: {_OBJECTS}")
    if dtype.names is not None:
        raise OperandTypeError(f"{what}: holds records, and not numbers; save one of their fields")
    if dtype.kind not in _KINDS or dtype.subdtype is not None or not dtype.itemsize:
        raise OperandTypeError(f"{what}: holds elements of type {dtype}, and not numbers")


class Head(NamedTuple):
    """The head of a file: shape, dtype and order of an array, before its elements are read."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    bytes: int


class Stored:
    """An array in an open file, which is read when it is called.

    Nothing is inflated but the header, unless the size that the file gives it is that of its shape and type, and is within the bound: no
    more is read, whatever follows.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[IO[bytes]]], size: int, what: str, bound: int | None) -> None:
        self._opened, self._size, self._what, self._bound = opened, size, what, bound

    def head(self) -> Head:
        """Its type and shape.

        Raises
        ------
        OperandError, OperandTypeError
        """
        with self._opened() as file:
            return self._head(file)[0]

    def __call__(self) -> Array:
        """Read it.

        Raises
        ------
        OperandError, OperandTypeError
        """
        with self._opened() as file:
            head, begin = self._head(file)
            file.seek(begin)
            data = filled(file, head.bytes, self._what)
        if head.dtype == np.bool_ and data.max(initial=0) > 1:
            raise _damaged(self._what, ".npy", "its truth values are neither 0 nor 1")
        flat = data.view(head.dtype)
        return flat.reshape(head.shape[::-1]).T if head.fortran else flat.reshape(head.shape)

    def _head(self, file: IO[bytes]) -> tuple[Head, int]:
        """Read the head, check what it claims, and return it with the offset of the elements."""
        what = self._what
        self._check_bound(self._size, _LONGEST_START)
        dtype, shape, fortran, begin = _header(filled(file, min(self._size, _LONGEST_START), what).tobytes(), what)
        _check_type(dtype, what)
        possible = min(shape, default=0) >= 0 and len(shape) <= _MOST_DIMENSIONS
        if not possible or math.prod(extent for extent in shape if extent) * dtype.itemsize > _MOST_BYTES:
            raise _damaged(what, ".npy", f"no array has the shape {shape!s:.100}")
        count, here = math.prod(shape) * dtype.itemsize, self._size - begin
        if count != here:
            raise _damaged(
                what, ".npy", f"an array of shape {shape} and type {dtype} has {amount(count)}, and {amount(here)} follow its header"
            )
        check_fits(count, what)
        self._check_bound(count)
        return Head(dtype, shape, fortran, count), begin

    def _check_bound(self, count: int, more: int = 0) -> None:
        if self._bound is not None and count > self._bound + more:
            raise OperandError(f"{self._what}: has {amount(count)}, and of such arrays at most {amount(self._bound)} are read")


Arrays = dict[str, Stored]


class _Bounded:
    """A file whose reads are bounded, as `zipfile` needs it: an archive can claim a list of members of any size."""

    def __init__(self, file: IO[bytes], size: int, what: str) -> None:
        self._file, self._size, self._what = file, size, what
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, count: int = -1) -> bytes:
        """As a file's."""
        rest = max(0, self._size - self._file.tell())
        count = rest if count is None or count < 0 else min(count, rest)
        if count > _LARGEST_DIRECTORY:
            raise _damaged(
                self._what, ".npz", f"its list of arrays has {amount(count)}, and no more than {amount(_LARGEST_DIRECTORY)} are read"
            )
        return filled(self._file, count, self._what).tobytes()


@contextmanager
def _unzip(what: str) -> Iterator[None]:
    """Raise one error for what a damaged archive raises in zipfile, zlib or struct."""
    try:
        yield
    except (FastmmaError, MemoryError):
        raise
    except Exception as error:
        raise _damaged(what, ".npz", f"{reason(error):.300}") from None


@contextmanager
def _member(archive: ZipFile, info: ZipInfo, what: str) -> Iterator[IO[bytes]]:
    """A member of an archive, of which no more can be read than the size that the list of members gives it."""
    if info.compress_type not in _COMPRESSIONS:
        raise _damaged(what, ".npz", f"it is compressed by method {info.compress_type}, and only deflated arrays are read")
    with _unzip(what), archive.open(info) as file:
        yield file


def _members(file: IO[bytes], size: int, what: str, bound: int | None) -> Arrays:
    from zipfile import ZipFile  # here, as most files are no archives

    with _unzip(what):
        archive = ZipFile(_Bounded(file, size, what))
        infos = archive.infolist()
    found: Arrays = {}
    for info in infos:
        name = info.filename.removesuffix(_SUFFIX)
        if name in found:
            raise _damaged(what, ".npz", f"it has two arrays named {name!r}")
        if info.filename.endswith(_SUFFIX):
            each = f"{what}, {name}"
            found[name] = Stored(partial(_member, archive, info, each), info.file_size, each, bound)
    return found


def arrays_in(file: IO[bytes], what: str, *, bound: int | None = None) -> Arrays:
    """The arrays of an open file by name, that of a ``.npy`` file by an empty one; each is read when it is called, and has a head.

    Parameters
    ----------
    file : binary file
        Of which no other arrays are read at the same time.
    what : str
        Names the file in messages.
    bound : int, optional
        Of the bytes of an array; those that do not fit into memory are always refused.

    Raises
    ------
    OperandError, OperandTypeError
        Here or by the calls: if the file is neither ``.npy`` nor ``.npz``, or is damaged, or an array is too large for this machine, or
        has Python objects, records or text for elements.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = filled(file, min(size, len(MAGIC_PREFIX)), what).tobytes()
    if start == MAGIC_PREFIX:
        return {"": Stored(partial(_whole_file, file), size, what, bound)}
    if start.startswith(_ARCHIVE):
        return _members(file, size, what, bound)
    if start.startswith(_PICKLE):
        raise OperandError(f"{what}: {_OBJECTS}")
    raise _damaged(what, "numpy", "it is empty" if not size else "it begins as neither .npy nor .npz files do")


def _whole_file(file: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    file.seek(0)
    return nullcontext(file)


def write_array(file: IO[bytes], array: Array) -> None:
    """Write a ``.npy`` file: `numpy.save` does not say why a disk refuses it."""
    array = np.ascontiguousarray(array)
    header = io.BytesIO()
    write_array_header_1_0(header, header_data_from_array_1_0(array))
    file.write(header.getvalue())
    file.write(array.reshape(-1).view(np.uint8).data)
