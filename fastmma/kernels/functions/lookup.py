"""LLVM IR that finds words of a table by their numbers: in registers, 16 at a time, where a CPU has AVX-512, and in memory elsewhere.

A vectorised loop takes the function of 16 lanes that the attribute of a call names; it is inlined once loops are vectorised.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastmma.kernels.llvm import cpu

_LANES = 16
_LANE_BITS = 4
WORDS = f"<{_LANES} x i32>"
_PERMUTE = "llvm.x86.avx512.vpermi2var.d.512"
SIXTEEN = "_sixteen"  # ends the names of functions of 16 lanes


def vector(words: Sequence[int]) -> str:
    return f"<{', '.join(f'i32 {word}' for word in words)}>"


def _sixteen(name: str, words: Sequence[int]) -> str:
    """Write the look-up of 16 words: permutations of 32 at a time, between which the upper bits of the numbers choose."""
    lines: list[str] = []
    found: list[str] = []
    for first in range(0, len(words), 2 * _LANES):
        low, high = (vector(words[start : start + _LANES]) for start in (first, first + _LANES))
        found.append(f"%t{first}")
        lines.append(f" {found[-1]} = call {WORDS} @{_PERMUTE}({WORDS} {low}, {WORDS} %places, {WORDS} {high})\n")
    bit = 2 << _LANE_BITS
    while len(found) > 1:
        lines.append(f" %a{bit} = and {WORDS} %places, {vector([bit] * _LANES)}\n")
        lines.append(f" %m{bit} = icmp eq {WORDS} %a{bit}, zeroinitializer\n")
        chosen = [f"%s{bit}n{index}" for index in range(len(found) // 2)]
        for result, no, yes in zip(chosen, found[::2], found[1::2], strict=True):
            lines.append(f" {result} = select <{_LANES} x i1> %m{bit}, {WORDS} {no}, {WORDS} {yes}\n")
        found, bit = chosen, 2 * bit
    return f"define {WORDS} @{name}{SIXTEEN}({WORDS} %places) alwaysinline {{\n{''.join(lines)} ret {WORDS} {found[0]}\n}}\n"


def declare_permutation() -> str:
    """Declare the permutation of 32 words, where it is taken."""
    return f"declare {WORDS} @{_PERMUTE}({WORDS}, {WORDS}, {WORDS})\n" if in_registers() else ""


def in_registers() -> bool:
    """Tell whether tables are looked up in registers."""
    from fastmma.kernels.llvm.library import INLINES_LATE

    return INLINES_LATE and "avx512f" in cpu.usable()


def look_up(name: str, words: Sequence[int]) -> str:
    """Write ``i32 @name_at(i32 place)``, which looks up a word by the low bits of its place; of words there are 64, 128 or so on."""
    kind = f"[{len(words)} x i32]"
    table = f"@{name} = internal constant {kind} [{', '.join(f'i32 {word}' for word in words)}], align 64\n"
    load = (
        f" %low = and i32 %place, {len(words) - 1}\n %wide = zext i32 %low to i64\n"
        f" %p = getelementptr {kind}, ptr @{name}, i64 0, i64 %wide\n %r = load i32, ptr %p\n ret i32 %r\n"
    )
    if not in_registers():
        return f"{table}define internal i32 @{name}_at(i32 %place) alwaysinline {{\n{load}}}\n"
    return f"{table}{_sixteen(name, words)}{variants(f'{name}_at', ('i32 %place',), 'i32', load, f'{name}{SIXTEEN}')}"


def variants(name: str, parameters: Sequence[str], made: str, body: str, wide: str) -> str:
    """Write the function of one lane, whose calls in vectorised loops become calls of the function of 16 lanes of another name."""
    attributes = "memory(none) nounwind willreturn"
    given = ", ".join(parameters)
    variant = f'"vector-function-abi-variant"="_ZGV_LLVM_N{_LANES}{"v" * len(parameters)}_{name}_one({wide})"'
    return (
        f"define {made} @{name}_one({given}) noinline {attributes} {{\n{body}}}\n"
        f"define internal {made} @{name}({given}) alwaysinline {{\n"
        f" %r = call {made} @{name}_one({given}) {attributes} {variant}\n ret {made} %r\n}}\n"
    )
