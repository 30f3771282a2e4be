"""Files of users: regular ones are read within a bound; results take their names when they are whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.host.memory import amount

_PIECE = 1 << 18  # bytes that are read at a time, so that they stay in a cache
_IRREGULAR: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "is a folder; name a file"),
    (stat.S_ISFIFO, "is a pipe; write it to a file first"),
    (lambda mode: not stat.S_ISREG(mode), "is a device or a socket; write what it gives to a file first"),
)


def reason(error: Exception) -> str:
    """Return what the system says of an error, without its number and the name of the file."""
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def refuse_irregular(path: Path, mode: int) -> None:
    """Refuse what is no regular file: it can block, or never end.

    Raises
    ------
    OperandError
    """
    for holds, problem in _IRREGULAR:
        if holds(mode):
            raise OperandError(f"{path}: {problem}")


def named(path: Path) -> Path:
    """The path, if a file can have that name.

    Raises
    ------
    OperandError
    """
    try:
        if b"\0" not in os.fsencode(path):
            return path
    except ValueError:  # half of a surrogate pair
        pass
    raise OperandError(f"{str(path)!r} is no name that a file can have")


def make_folder(path: Path) -> None:
    """Make a folder and those that it lies in, as far as they are not there.

    Raises
    ------
    OperandError
    """
    try:
        named(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OperandError(f"{path}: no folder can be made there: {reason(error)}") from None


def handle(path: Path, flags: int) -> int:
    """Open a regular file, and nothing else, as `os.open` does.

    Raises
    ------
    OperandError
        If it is a folder, a pipe, a device or a socket.
    OSError
    """
    with suppress(FileNotFoundError):
        refuse_irregular(path, named(path).stat().st_mode)  # to open some devices does something
    found = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0), 0o666)
    try:
        refuse_irregular(path, os.fstat(found).st_mode)
    except OperandError:
        os.close(found)
        raise
    return found


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading, without a buffer.

    Raises
    ------
    OperandError
        If there is none, it cannot be read, or it changes while it is read.
    """
    try:
        with open(handle(path, os.O_RDONLY), "rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            yield file
            after = os.fstat(file.fileno())
    except FileNotFoundError:
        raise OperandError(f"{path}: there is no such file") from None
    except OSError as error:
        raise OperandError(f"{path}: cannot be read: {reason(error)}") from None
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise OperandError(f"{path}: was changed while it was read; try again when it is whole")


def filled(file: IO[bytes], size: int, what: str) -> NDArray[np.uint8]:
    """The next `size` bytes of a file.

    Raises
    ------
    OperandError
        If it ends before.
    """
    found = np.empty(size, np.uint8)
    done = 0
    while done < size:
        count = file.readinto(found[done : done + _PIECE].data)  # type: ignore[attr-defined]
        if not count:
            raise OperandError(f"{what}: ends after {amount(done)} of {amount(size)}; it was cut off, or is being written")
        done += count
    return found


def content(path: Path, bound: int) -> bytes:
    """All of a regular file.

    Raises
    ------
    OperandError
        If it cannot be read, or has more bytes than the bound.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > bound:
            raise OperandError(f"{path}: has {amount(size)}, and of such files no more than {amount(bound)} are read")
        return filled(file, size, str(path)).tobytes()


def _writable(path: Path) -> tuple[Path, int | None]:
    """Return where a name leads, and the mode of what is there, which may be written to."""
    place = Path(os.path.realpath(named(path)))
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        return place, None
    if not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return place, mode


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes its name when all of it is written: whatever stops that leaves what was there before.

    Devices and pipes are written to as they are.

    Raises
    ------
    OperandError
        If the folder or the disk does not take it.
    """
    partial = None
    try:
        place, mode = _writable(path)
        if mode is not None and not stat.S_ISREG(mode):
            with place.open("wb") as file:
                yield file
            return
        partial = place.with_name(f".fastmma-{os.urandom(8).hex()}.part")
        with partial.open("xb") as file:
            if mode is not None:
                partial.chmod(stat.S_IMODE(mode))
            yield file
        os.replace(partial, place)
    except OSError as error:
        raise OperandError(f"{path}: cannot be written: {reason(error)}") from None
    finally:
        if partial is not None:
            with suppress(OSError):
                partial.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a whole file in UTF-8; what that has no place for, such as a name of a file in another encoding, is escaped.

    Raises
    ------
    OperandError
        If the folder or the disk does not take it.
    """
    with written(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
