"""Loops of machine code that apply a formula, or a function of libdevice, to arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fastmma.kernels.functions.bitcode import bitcode
from fastmma.kernels.functions.expression import Code, Formula, Value
from fastmma.kernels.functions.nvvm import INLINE, definitions, local_name
from fastmma.kernels.functions.rounding import IN_FLOAT32

_CALLED = re.compile(r"@(llvm\.nvvm\.[\w.]+)\(")
_INLINE = re.compile(r'call (float|double|\{ i(?:32|64), i(?:32|64) \}) asm "([^"]*)", "[^"]*"\(')
_INTRINSIC = re.compile(r"@(llvm\.[\w.]+)\(")
_ATTRIBUTES = re.compile(r" #\d+")
_METADATA = re.compile(r", ![\w.]+ !\d+")
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
LOOP = """
define void @loop({parameters}, i64 %from, i64 %to) {{
entry:
 %none = icmp sge i64 %from, %to
 br i1 %none, label %done, label %next
next:
 %i = phi i64 [ %from, %entry ], [ %j, %next ]
{body} %j = add nuw nsw i64 %i, 1
 %more = icmp slt i64 %j, %to
 br i1 %more, label %next, label %done
done:
 ret void
}}
"""
PLACE = """ {p}o = mul i64 %i, {step}
 {p} = getelementptr {type}, ptr {array}, i64 {p}o
"""


class Form(NamedTuple):
    """Formats of operands, and of results."""

    given: tuple[str, ...]
    made: tuple[str, ...]


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
    return (
        _METADATA.sub("", _ATTRIBUTES.sub("", _INLINE.sub(_inlined, found)))
        .replace("define internal ", "define ", 1)
        .replace("define ", "define internal ", 1)
    )


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


def source(formula: Formula, form: Form) -> str:
    """Write a module with a loop over the elements of arrays: `loop` (each array and its step, the results, from, to)."""
    code, given = Code(), [f"%x{index}" for index in range(len(form.given))]
    found = formula(*(Value(code, name) for name in given))
    results = found if isinstance(found, tuple) and not isinstance(found, Value) else (found,)
    body, parameters = "", []
    for index, fmt in enumerate(form.given):
        parameters.append(f"ptr noalias %a{index}, i64 %s{index}")
        body += PLACE.format(p=f"%p{index}", step=f"%s{index}", type=_TYPES[fmt], array=f"%a{index}")
        body += _LOADS[fmt].format(x=f"%x{index}", p=f"%p{index}")
    body += "".join(code.lines)
    for index, (fmt, value) in enumerate(zip(form.made, results, strict=True)):
        parameters.append(f"ptr noalias %d{index}")
        body += f" %q{index} = getelementptr {_TYPES[fmt]}, ptr %d{index}, i64 %i\n"
        body += _STORES[fmt].format(x=value.name, p=f"%q{index}")
    return definitions() + libdevice_text(code.calls, definitions()) + LOOP.format(parameters=", ".join(parameters), body=body)
