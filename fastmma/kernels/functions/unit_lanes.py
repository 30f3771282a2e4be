"""LLVM IR of the special function unit's squarer and interpolator for 16 lanes of AVX-512, by its products of bytes and of half words.

The squarer's columns are products of single bits of x by what lies above them: bytes, of which an instruction adds four products. The
products of c1 and c2, in one word, by x and s are sums of two of 16 bits; so c1 counts from a number in the middle of its range, whose
products `fastmma.kernels.functions.unit` adds.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastmma.kernels.functions.lookup import SIXTEEN, WORDS, in_registers, vector
from fastmma.kernels.llvm import cpu

_FEATURES = frozenset({"avx512f", "avx512bw", "avx512vbmi", "avx512vnni"})
_BYTES, _HALVES = "<64 x i8>", "<32 x i16>"
_DOT, _PAIRS, _SHIFT = "llvm.x86.avx512.vpdpbusd.512", "llvm.x86.avx512.pmaddw.d.512", "llvm.x86.avx512.pmultishift.qb.512"
_ZEROS = 24  # a bit from which words of x have zeros alone
# of the bytes of two words: from which bit on they are taken of x, and which bit of x, doubled, multiplies them
_ABOVE = (10, 11, 12, 13), (14, 15, 16, _ZEROS)
_DOUBLED_BITS = (7, 6, 5, 4), (3, 2, 1, _ZEROS)


def has_lanes() -> bool:
    """Tell whether this CPU has these instructions."""
    return in_registers() and cpu.usable() >= _FEATURES


def _bytes(numbers: Sequence[int]) -> str:
    return f"<{', '.join(f'i8 {number}' for number in numbers)}>"


def _fields(bits: Sequence[int]) -> str:
    """Name the bits of two words that the instruction takes, for all bytes of both."""
    return _bytes([bit + 32 * word for _ in range(8) for word in (0, 1) for bit in bits])


def _all(word: int) -> str:
    return vector([word] * 16)


def squarer() -> str:
    """Write the doubled s of 16 x."""
    from fastmma.kernels.llvm.library import binding

    operands = WORDS if binding.llvm_version_info[0] < 21 else _BYTES
    lines = [
        f"declare {WORDS} @{_DOT}({WORDS}, {operands}, {operands})",
        f"declare {WORDS} @{_PAIRS}({_HALVES}, {_HALVES})",
        f"declare {_BYTES} @{_SHIFT}({_BYTES}, {_BYTES})",
        f"define {WORDS} @doubled{SIXTEEN}({WORDS} %x) alwaysinline {{",
        f" %upper = lshr {WORDS} %x, {_all(9)}",
        f" %g = bitcast {WORDS} %upper to {_HALVES}",
        f" %d0 = call {WORDS} @{_PAIRS}({_HALVES} %g, {_HALVES} %g)",
        f" %b = bitcast {WORDS} %x to {_BYTES}",
    ]
    for index, (above, bits) in enumerate(zip(_ABOVE, _DOUBLED_BITS, strict=True)):
        lines += [
            f" %a{index} = call {_BYTES} @{_SHIFT}({_BYTES} {_fields(above)}, {_BYTES} %b)",
            f" %f{index} = call {_BYTES} @{_SHIFT}({_BYTES} {_fields(bits)}, {_BYTES} %b)",
            f" %t{index} = and {_BYTES} %f{index}, {_bytes([2] * 64)}",
            f" %p{index} = bitcast {_BYTES} %t{index} to {operands}",
            f" %q{index} = bitcast {_BYTES} %a{index} to {operands}",
            f" %d{index + 1} = call {WORDS} @{_DOT}({WORDS} %d{index}, {operands} %p{index}, {operands} %q{index})",
        ]
    half = f"define {WORDS} @square{SIXTEEN}({WORDS} %x) alwaysinline {{\n %d = call {WORDS} @doubled{SIXTEEN}({WORDS} %x)\n"
    return "\n".join([*lines, f" ret {WORDS} %d2\n}}\n{half} %r = lshr {WORDS} %d, {_all(1)}\n ret {WORDS} %r\n}}\n"])


def interpolator(name: str, bias: int, cut: int) -> str:
    """Write the part of 16 results that c1 and c2 make, rounded down to a multiple of 2^`cut`."""
    return f"""
define {WORDS} @{name}_rise{SIXTEEN}({WORDS} %segment, {WORDS} %x) alwaysinline {{
 %word = call {WORDS} @{name}_slopes{SIXTEEN}({WORDS} %segment)
 %slopes = bitcast {WORDS} %word to {_HALVES}
 %upper = lshr {WORDS} %x, {_all(cut)}
 %lower = and {WORDS} %x, {_all((1 << cut) - 1)}
 %doubled = call {WORDS} @doubled{SIXTEEN}({WORDS} %x)
 %moved = shl {WORDS} %doubled, {_all(15)}
 %s = and {WORDS} %moved, {_all(-1 << 16)}
 %both = or {WORDS} %s, %lower
 %pairs = bitcast {WORDS} %both to {_HALVES}
 %high = bitcast {WORDS} %upper to {_HALVES}
 %a = call {WORDS} @{_PAIRS}({_HALVES} %slopes, {_HALVES} %high)
 %b = call {WORDS} @{_PAIRS}({_HALVES} %slopes, {_HALVES} %pairs)
 %e = add {WORDS} %b, {_all(bias)}
 %f = ashr {WORDS} %e, {_all(cut)}
 %r = add {WORDS} %a, %f
 ret {WORDS} %r
}}
"""
