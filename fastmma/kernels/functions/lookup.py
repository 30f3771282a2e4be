"""LLVM IR that finds words of a table by their numbers: in registers, 16 at a time, where a CPU has AVX-512, and in memory elsewhere.

A vectorised loop takes the function of 16 lanes that the attribute of a call names; it is inlined once loops are vectorised.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastmma.kernels.llvm import cpu

_LANES = 16
_LANE_BITS = 4
_WORDS = f"<{_LANES} x i32>"
_PERMUTE = "llvm.x86.avx512.vpermi2var.d.512"
SIXTEEN = "_sixteen"  # ends the names of functions of 16 lanes


def _vector(words: Sequence[int]) -> str:
    return f"<{', '.join(f'i32 {word}' for word in words)}>"


def _sixteen(name: str, words: Sequence[int]) -> str:
    """Write the look-up of 16 words: permutations of 32 at a time, between which the upper bits of the numbers choose."""
    lines: list[str] = []
    found: list[str] = []
    for first in range(0, len(words), 2 * _LANES):
        low, high = (_vector(words[start : start + _LANES]) for start in (first, first + _LANES))
        found.append(f"%t{first}")
        lines.append(f" {found[-1]} = call {_WORDS} @{_PERMUTE}({_WORDS} {low}, {_WORDS} %places, {_WORDS} {high})\n")
    bit = 2 << _LANE_BITS
    while len(found) > 1:
        lines.append(f" %a{bit} = and {_WORDS} %places, {_vector([bit] * _LANES)}\n")
        lines.append(f" %m{bit} = icmp eq {_WORDS} %a{bit}, zeroinitializer\n")
        chosen = [f"%s{bit}n{index}" for index in range(len(found) // 2)]
        for result, no, yes in zip(chosen, found[::2], found[1::2], strict=True):
            lines.append(f" {result} = select <{_LANES} x i1> %m{bit}, {_WORDS} {no}, {_WORDS} {yes}\n")
        found, bit = chosen, 2 * bit
    return f"define {_WORDS} @{name}{SIXTEEN}({_WORDS} %places) alwaysinline {{\n{''.join(lines)} ret {_WORDS} {found[0]}\n}}\n"


def declare_permutation() -> str:
    """Declare the permutation of 32 words, where it is taken."""
    return f"declare {_WORDS} @{_PERMUTE}({_WORDS}, {_WORDS}, {_WORDS})\n" if in_registers() else ""


def in_registers() -> bool:
    """Tell whether tables are looked up in registers."""
    from fastmma.kernels.llvm.library import INLINES_LATE

    return INLINES_LATE and "avx512f" in cpu.usable()


def look_up(name: str, words: Sequence[int]) -> str:
    """Write ``i32 @name_at(i32 place)``, which looks up a word of a table; of words there are a power of two, 64 or more."""
    kind = f"[{len(words)} x i32]"
    table = f"@{name} = internal constant {kind} [{', '.join(f'i32 {word}' for word in words)}], align 64\n"
    load = (
        f" %wide = zext i32 %place to i64\n %p = getelementptr {kind}, ptr @{name}, i64 0, i64 %wide\n %r = load i32, ptr %p\n ret i32 %r\n"
    )
    if not in_registers():
        return f"{table}define internal i32 @{name}_at(i32 %place) alwaysinline {{\n{load}}}\n"
    attributes = "memory(none) nounwind willreturn"
    variant = f'"vector-function-abi-variant"="_ZGV_LLVM_N{_LANES}v_{name}_one({name}{SIXTEEN})"'
    return (
        f"{table}define i32 @{name}_one(i32 %place) noinline {attributes} {{\n{load}}}\n{_sixteen(name, words)}"
        f"define internal i32 @{name}_at(i32 %place) alwaysinline {{\n"
        f" %r = call i32 @{name}_one(i32 %place) {attributes} {variant}\n ret i32 %r\n}}\n"
    )
