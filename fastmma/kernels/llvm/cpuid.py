"""All that LLVM asks an x86-64 CPU, and that decides how it names the CPU and its features."""

from __future__ import annotations

import ctypes
from struct import Struct

from fastmma.kernels.llvm.machine_code import PLACES, place

# void cpuid(uint32_t words[4]): leaf and subleaf in; eax, ebx, ecx and edx out
_CPUID = bytes.fromhex(
    "53"  # push rbx
    "8b07 8b4f04"  # mov eax, [rdi]; mov ecx, [rdi + 4]
    "0fa2"  # cpuid
    "8907 895f04 894f08 89570c"  # mov [rdi], eax; mov [rdi + 4], ebx; mov [rdi + 8], ecx; mov [rdi + 12], edx
    "5b c3"  # pop rbx; ret
)
# void xgetbv(uint32_t words[4]): XCR0, the registers that the system keeps
_XGETBV = bytes.fromhex(
    "31c9"  # xor ecx, ecx
    "0f01d0"  # xgetbv
    "8907 895704"  # mov [rdi], eax; mov [rdi + 4], edx
    "c3"  # ret
)
_WORDS = Struct("=4I")
_EXTENDED = 0x80000000  # the first leaf of AMD's range
# leaves and subleaves with the vendor, family, model, stepping and features; that of family and model has the core's number, too
_MODEL = 1
_LEAVES = ((0, 0), (7, 0), (7, 1), (7, 2), (0xD, 1), (0x14, 0), (0x19, 0), (0x1E, 1), (0x24, 0), (0x24, 1))
_EXTENDED_LEAVES = ((1, 0), (8, 0), (0x21, 0))
_FEATURES_OF_SYSTEM = 1 << 27  # OSXSAVE, in ecx: xgetbv may be executed


def identity() -> bytes | None:
    """Return what the CPU says of itself, the same for all of its cores; None where it is not asked.

    Raises
    ------
    OSError
        If the system allows no memory with machine code.
    """
    if not PLACES:
        return None
    kind, memory = ctypes.CFUNCTYPE(None, ctypes.c_void_p), ctypes.create_string_buffer(_WORDS.size)
    start = place(_CPUID + _XGETBV)
    ask, system = kind(start), kind(start + len(_CPUID))

    def words(leaf: int, subleaf: int) -> tuple[int, ...]:
        _WORDS.pack_into(memory, 0, leaf, subleaf, 0, 0)
        ask(ctypes.addressof(memory))
        return _WORDS.unpack(memory.raw)

    model, _core, *features = words(_MODEL, 0)
    found = [model, *features]
    for first, leaves in ((0, _LEAVES), (_EXTENDED, _EXTENDED_LEAVES)):
        last = words(first, 0)[0]
        found += [word for leaf, subleaf in leaves if first + leaf <= last for word in words(first + leaf, subleaf)]
    if features[0] & _FEATURES_OF_SYSTEM:
        _WORDS.pack_into(memory, 0, 0, 0, 0, 0)
        system(ctypes.addressof(memory))
        found += _WORDS.unpack(memory.raw)
    return b"".join(word.to_bytes(4, "little") for word in found)
