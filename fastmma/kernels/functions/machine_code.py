"""Loops of machine code that apply a formula, or a function of libdevice, to arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fastmma.kernels.functions.bitcode import bitcode
from fastmma.kernels.functions.expression import Code, Formula, Value
from fastmma.kernels.functions.lookup import SIXTEEN, in_registers
from fastmma.kernels.functions.nvvm import INLINE, definitions, local_name
from fastmma.kernels.functions.rounding import IN_FLOAT32

_CALLED = re.compile(r"@(llvm\.nvvm\.[\w.]+)\(")
_INLINE = re.compile(r'call (float|double|\{ i(?:32|64), i(?:32|64) \}) asm "([^"]*)", "[^"]*"\(')
_INTRINSIC = re.compile(r"@(llvm\.[\w.]+)\(")
_DEFINED = re.compile(r"^define[^\n]*?@([\w.]+)\(.*?^\}\n", re.S | re.M)
_NAMED = re.compile(r"[@(]([\w.]+)")
_ATTRIBUTES = re.compile(r" #\d+")
_METADATA = re.compile(r", ![\w.]+ !\d+")
_NUMBER = re.compile(r"i32 (\d+)|float (-?\d[\w.+-]*)")
# numbers of the expf that `exp_of` computes in fewer instructions
_OF_EXPF = ["1069066811", "849703008", "1262485504", *["5.000000e-01"] * 2, "-1.260000e+02", *["2.520000e+02"] * 2, "-0.000000e+00"]
_EXPF = "define internal float @__nv_expf(float %a) alwaysinline {\n %r = call float @exp_of(float %a)\n ret float %r\n}\n"
# how a number of a format becomes a float32, and back
_LOADS = {
    "f32": " {x} = load float, ptr {p}\n",
    "f16": " {x}h = load half, ptr {p}\n {x} = fpext half {x}h to float\n",
    "bf16": " {x}h = load i16, ptr {p}\n {x}w = zext i16 {x}h to i32\n {x}s = shl i32 {x}w, 16\n {x} = bitcast i32 {x}s to float\n",
}
_STORES = {
    "f32": " store float {x}, ptr {p}\n",
    "f16": " {p}h = fptrunc float {x} to half\n store half {p}h, ptr {p}\n",
    "bf16": """ {p}c = bitcast float {x} to i32
 {p}l = lshr i32 {p}c, 16
 {p}o = and i32 {p}l, 1
 {p}b = add i32 {p}o, 32767
 {p}s = add i32 {p}c, {p}b
 {p}t = lshr i32 {p}s, 16
 {p}n = fcmp uno float {x}, 0.0
 {p}r = select i1 {p}n, i32 32767, i32 {p}t
 {p}h = trunc i32 {p}r to i16
 store i16 {p}h, ptr {p}
""",
}
_TYPES = {"f32": "float", "f16": "half", "bf16": "i16"}
_LOOP = """
define void @loop({parameters}, i64 %width, i64 %top, i64 %bottom, i64 %from, i64 %to) {{
entry:
 %none = icmp sge i64 %from, %to
 %flat = icmp sge i64 %top, %bottom
 %empty = or i1 %none, %flat
 br i1 %empty, label %done, label %rows
rows:
 %row = phi i64 [ %top, %entry ], [ %below, %ended ]
{head} br label %next
next:
 %i = phi i64 [ %from, %rows ], [ %j, %next ]
{body} %j = add nuw nsw i64 %i, 1
 %more = icmp slt i64 %j, %to
 br i1 %more, label %next, label %ended, !llvm.loop !900
ended:
 %below = add nuw nsw i64 %row, 1
 %again = icmp slt i64 %below, %bottom
 br i1 %again, label %rows, label %done
done:
 ret void
}}
"""
# each instruction of a function waits for the one before, and a core looks no further ahead than one or two vectors of 16 lanes; 16
# registers hold no more than one
_AT_ONCE = """!900 = distinct !{!900, !901}
!901 = !{!"llvm.loop.interleave.count", i32 4}
"""
_NO_MORE = "!900 = distinct !{!900}\n"
# where a row of an array begins, and an element of it is
_ROW = " {p}o = mul i64 %row, {step}\n {p} = getelementptr {type}, ptr {array}, i64 {p}o\n"
_ELEMENT = " {p} = getelementptr {type}, ptr {row}, i64 %i\n"


class Form(NamedTuple):
    """Describe a loop over rows.

    Attributes
    ----------
    given, made : tuple of str
        Formats of operands, and of results.
    along : tuple of bool
        Whether an operand has an element for each one of a row; if not, it has one for a row.
    """

    given: tuple[str, ...]
    made: tuple[str, ...]
    along: tuple[bool, ...]


def _inlined(match: re.Match[str]) -> str:
    name = next(function for part, function in INLINE.items() if part in match[2])
    return f"call {match[1]} @{name}("


@lru_cache(512)
def _body(name: str, path: Path | None) -> str:
    """Return the definition of a function of libdevice, with NVVM's intrinsics called by their local names."""
    text = bitcode(path).functions[name]
    for beginning, other in IN_FLOAT32.items():
        text = re.sub(beginning, other, text)
    found = _CALLED.sub(lambda match: f"@{local_name(match[1])}(", text)
    plain = _METADATA.sub("", _ATTRIBUTES.sub("", _INLINE.sub(_inlined, found)))
    return plain if plain.startswith("define internal ") else plain.replace("define ", "define internal ", 1)


def libdevice_text(names: Iterable[str], given: str, path: Path | None = None) -> str:
    """Write the definitions of functions, and of all that they call and read but for what is `given`, of a libdevice."""
    code = bitcode(path)
    needed = sorted({each for name in names for each in code.needed(name)})
    body = "".join(_body(name, path) for name in needed)
    used = set(re.findall(r"@([\w.]+)", body))
    constants = "".join(text for each, text in code.constants.items() if each in used)
    declared = set(_INTRINSIC.findall(given))
    wanted = sorted({each for each in _INTRINSIC.findall(body) if each not in declared})
    return code.types + constants + "".join(code.declarations[each] for each in wanted) + body if needed else ""


def _with_exponentials(text: str, given: str) -> str:
    """Replace libdevice's expf, if it is the one that is known, where `given` functions compute it otherwise."""
    found = next((match for match in _DEFINED.finditer(text) if match[1] == "__nv_expf"), None)
    if found is None or "@exp_of(" not in given or [whole or number for whole, number in _NUMBER.findall(found[0])] != _OF_EXPF:
        return text
    return text.replace(found[0], _EXPF)


def reached(text: str, start: str) -> str:
    """Leave functions out that a function does not call; those of 16 lanes are used by loops that are not vectorised yet."""
    functions = {match[1]: match[0] for match in _DEFINED.finditer(text)}
    found: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in functions and name not in found:
            found.add(name)
            waiting += _NAMED.findall(functions[name])
    wide = sorted(name for name in found if name.endswith(SIXTEEN))
    kept = _DEFINED.sub(lambda match: match[0] if match[1] in found else "", text)
    used = ", ".join(f"ptr @{name}" for name in wide)
    return kept + (f'@llvm.compiler.used = appending global [{len(wide)} x ptr] [{used}], section "llvm.metadata"\n' if wide else "")


def _reads(form: Form) -> tuple[str, str]:
    """Write what is read once a row, and what is read of each element."""
    head, body = "", ""
    for index, (fmt, along) in enumerate(zip(form.given, form.along, strict=True)):
        row, element = f"%r{index}", f"%p{index}"
        head += _ROW.format(p=row, step=f"%s{index}", type=_TYPES[fmt], array=f"%a{index}")
        if along:
            body += _ELEMENT.format(p=element, type=_TYPES[fmt], row=row) + _LOADS[fmt].format(x=f"%x{index}", p=element)
        else:
            head += _LOADS[fmt].format(x=f"%x{index}", p=row)
    return head, body


def source(formula: Formula, form: Form) -> str:
    """Write a module with a loop over rows of arrays.

    Its function is `loop`: each operand and the elements from a row of it to the next one, the results, the elements of a row of theirs,
    the first row and the one after the last, and likewise elements of rows.
    """
    code = Code()
    found = formula(*(Value(code, f"%x{index}") for index in range(len(form.given))))
    results = found if isinstance(found, tuple) and not isinstance(found, Value) else (found,)
    head, body = _reads(form)
    body += "".join(code.lines)
    for index, (fmt, value) in enumerate(zip(form.made, results, strict=True)):
        head += _ROW.format(p=f"%w{index}", step="%width", type=_TYPES[fmt], array=f"%d{index}")
        body += _ELEMENT.format(p=f"%q{index}", type=_TYPES[fmt], row=f"%w{index}")
        body += _STORES[fmt].format(x=value.name, p=f"%q{index}")
    parameters = [f"ptr noalias %a{index}, i64 %s{index}" for index in range(len(form.given))]
    parameters += [f"ptr noalias %d{index}" for index in range(len(form.made))]
    loop = _LOOP.format(parameters=", ".join(parameters), head=head, body=body) + (_AT_ONCE if in_registers() else _NO_MORE)
    given = definitions()
    return reached(given + _with_exponentials(libdevice_text(code.calls, given), given) + loop, "loop")
