"""Machine code that LLVM made in another process, put into memory without LLVM: its import takes longer than all that it would do.

LLVM's object files of x86-64 Linux have all sections at the places that they need, one after another, and say where a section has the
distance to another one. A file that is copied to the start of a page is therefore linked where those distances are written into it.
Functions of the process, such as C's ``memset``, may be too far away for a distance of 32 bits: calls of them go to jumps after the file.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

PLACES = sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32
_PAGE = 4096  # bytes, the smallest there are
_FAILED = ctypes.c_void_p(-1).value
# <elf.h>
_HEADER, _SECTION, _SYMBOL, _RELOCATION = Struct("<16s2HI3QI6H"), Struct("<IIQQQQIIQQ"), Struct("<IBBHQQ"), Struct("<QQq")
_IDENTITY = b"\x7fELF\x02\x01\x01"  # 64 bits, the lowest byte first
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS, _ZEROS, _RELOCATIONS_WITHOUT_ADDENDS = 2, 4, 8, 9  # sh_type
_WRITABLE, _IN_MEMORY, _OF_THREADS = 1, 2, 0x400  # sh_flags
_GLOBAL_FUNCTION = 0x12  # st_info
_RESERVED = 0xFF00  # numbers that are no section's; 0 is that of a symbol which another file defines
_CALLED = 4  # R_X86_64_PLT32, of functions
_DISTANCES = {2: Struct("<i"), _CALLED: Struct("<i"), 24: Struct("<q")}  # R_X86_64_PC32, PLT32 and PC64
_JUMP = Struct("<6sQ2x")  # jmp to the address that follows the instruction
_JUMP_CODE = b"\xff\x25\x00\x00\x00\x00"


class _Section(NamedTuple):
    """A section header."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int

    def is_placed(self) -> bool:
        """Tell whether the section needs nothing but to lie where it lies in the file."""
        if not self.flags & _IN_MEMORY or not self.size:
            return True
        changes = bool(self.flags & (_WRITABLE | _OF_THREADS)) or self.kind == _ZEROS
        return not changes and _PAGE % self.alignment == 0 and self.offset % self.alignment == 0


class _LinkerError(Exception):
    """The file needs what only a linker does."""


def _sections(code: bytes) -> list[_Section]:
    """Read the section headers of an object file.

    Raises
    ------
    _LinkerError
        If it is no object file for this machine, or has sections that change.
    """
    identity, kind, machine, *_, first, _flags, _size, _segment, _segments, size, count, _names = _HEADER.unpack_from(code)
    if not identity.startswith(_IDENTITY) or (kind, machine, size) != (_RELOCATABLE, _X86_64, _SECTION.size):
        raise _LinkerError
    found = [_Section(*_SECTION.unpack_from(code, first + number * size)) for number in range(count)]
    if not all(each.is_placed() for each in found):
        raise _LinkerError
    return found


def _write_distances(code: bytearray, sections: list[_Section]) -> None:
    """Write the distances between sections into a file, and, after it, jumps to the functions of the process that it calls.

    Raises
    ------
    _LinkerError
        If it needs addresses, or symbols that neither it nor the process defines.
    """
    jumps: dict[str, int] = {}
    for each in sections:
        target = sections[each.info] if each.kind in (_RELOCATIONS, _RELOCATIONS_WITHOUT_ADDENDS) else None
        if target is None or not target.flags & _IN_MEMORY:
            continue
        if each.kind != _RELOCATIONS:
            raise _LinkerError
        for offset, info, addend in _RELOCATION.iter_unpack(code[each.offset : each.offset + each.size]):
            kind, symbols = info & 0xFFFFFFFF, sections[each.link]
            name, *_, section, value, _size = _SYMBOL.unpack_from(code, symbols.offset + (info >> 32) * _SYMBOL.size)
            if kind not in _DISTANCES or section >= _RESERVED or not (section or kind == _CALLED):
                raise _LinkerError
            names, place = sections[symbols.link].offset, target.offset + offset
            there = sections[section].offset + value if section else _jump(code, jumps, _text(code, names + name))
            _DISTANCES[kind].pack_into(code, place, there + addend - place)


def _jump(code: bytearray, jumps: dict[str, int], function: str) -> int:
    """Return where the jump to a function of the process is; it is added after the file where there is none yet.

    Raises
    ------
    _LinkerError
        If the process has no such function.
    """
    if function not in jumps:
        try:
            address = ctypes.cast(getattr(_library(), function), ctypes.c_void_p).value
        except AttributeError:
            raise _LinkerError from None
        code += bytes(-len(code) % _JUMP.size)
        jumps[function] = len(code)
        code += _JUMP.pack(_JUMP_CODE, address)
    return jumps[function]


def _text(code: bytes | bytearray, place: int) -> str:
    """Read a name."""
    return code[place : code.index(b"\0", place)].decode()


def _functions(code: bytes, sections: list[_Section]) -> dict[str, int]:
    """Return the places of global functions in a file, by name."""
    found = {}
    for each in sections:
        if each.kind == _SYMBOLS:
            names = sections[each.link].offset
            for name, info, _other, section, value, _size in _SYMBOL.iter_unpack(code[each.offset : each.offset + each.size]):
                if info == _GLOBAL_FUNCTION and 0 < section < _RESERVED:
                    found[_text(code, names + name)] = sections[section].offset + value
    return found


@cache
def _library() -> Any:
    """The C library's functions for memory; Python's own objects for it give it back at the end, when threads may still compute."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    library.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return library


def place(code: bytes) -> int:
    """Copy machine code to memory that is executed and not written, for as long as the process lives; return its address.

    Raises
    ------
    OSError
        If the system allows no such memory.
    """
    library = _library()
    address = library.mmap(None, len(code), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), "no memory for machine code")
    ctypes.memmove(address, code, len(code))
    if library.mprotect(address, len(code), mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "memory may not be executed")
    return int(address)


def place_object(code: bytes) -> dict[str, int] | None:
    """Put an object file into memory, and return the addresses of its functions; None where LLVM must link it.

    So is a file that needs addresses or memory that changes, and any on another system or architecture.

    Raises
    ------
    OSError
        If the system allows no memory to be executed.
    """
    if not PLACES:
        return None
    linked = bytearray(code)
    try:
        sections = _sections(code)
        _write_distances(linked, sections)
    except _LinkerError:
        return None
    start = place(bytes(linked))
    return {name: start + offset for name, offset in _functions(code, sections).items()}
