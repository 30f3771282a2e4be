"""Inline assembly of Gluon kernels: its PTX, executed for each element."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.products.report import ASSUMED
from fastmma.triton.gluon.kernel import Kernel, Step
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.program import Partition, Values
from fastmma.triton.machine.executable import judge
from fastmma.triton.machine.kernel import Machine

_TEXT = re.compile(r'^tt\.elementwise_inline_asm "((?:[^"\\]|\\.)*)" \{constraints = "([^"]*)"')
_ESCAPED = re.compile(r"\\([0-9A-Fa-f]{2})")
_SIZES = {"r": 4, "f": 4, "h": 2, "l": 8, "d": 8}  # bytes of a register, by the letter of a constraint
_CONTRACTED = re.compile(r"^(?:add|sub|mul)\.(?:ftz\.)?(?:f32|f64|f16|bf16)")  # ptxas may fuse these, which say no rounding
_OPEN = "whether ptxas fuses it with what is around the assembly is not clear"
_FRAME = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry assembly(.param .u64 none)
.reqntid 32
{{
{registers}
{body}
ret;
}}
"""


def _read(one: Operation) -> tuple[str, list[str]]:
    """Return the text, and the letters of the constraints, results first."""
    found = _TEXT.match(one.text)
    if found is None:
        raise NotEmulatedError("inline assembly whose text is not understood")
    letters = [part.strip().lstrip("=&") for part in found[2].split(",")]
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), found[1]), letters


def _make_machine(one: Operation, kernel: Kernel) -> Machine:
    """Make what executes the assembly, whose first registers are its results and its operands.

    Raises
    ------
    NotEmulatedError
        If several elements share registers, or nothing here executes an instruction.
    """
    text, letters = _read(one)
    where = f"{kernel.describe(one)}: inline assembly"
    kinds = (*one.types[len(one.operands) :], *one.types[: len(one.operands)])
    if not one.attributes["packed_element"].startswith("1 "):
        raise NotEmulatedError(f"{where} of several elements at once (pack)")
    if len(letters) != len(kinds) or any(_SIZES.get(letter) != kind.dtype.itemsize for letter, kind in zip(letters, kinds, strict=False)):
        raise NotEmulatedError(
            f"{where} with the constraints {','.join(letters)} for elements of {', '.join(kind.element for kind in kinds)}"
        )
    registers = "\n".join(f".reg .b{8 * _SIZES[letter]} %fastmma{index};" for index, letter in enumerate(letters))
    body = re.sub(r"\$(?:\{(\d+)\}|(\d+))", lambda found: f"%fastmma{found[1] or found[2]}", text).replace("$$", "$")
    try:
        return Machine(_FRAME.format(registers=registers, body=body), 0, kernel.run.target)
    except NotEmulatedError as error:
        raise NotEmulatedError(f"{where}: nothing here executes {error}") from None


def _make_assembly(one: Operation, kernel: Kernel) -> Step:
    machine, recorder = _make_machine(one, kernel), kernel.recorder(one)
    results, operands, shape = one.results, one.operands, one.types[-1].shape
    dtypes = [kind.dtype for kind in one.types[len(operands) :]]
    told = [(*judge(each, kernel.run.target), each.step.opcode) for block in machine.blocks for each in block.steps]
    told = [(ASSUMED, _OPEN, opcode) if _CONTRACTED.match(opcode) else (status, how, opcode) for status, how, opcode in told]

    def step(_: Partition, values: Values) -> None:
        for status, how, opcode in told:
            recorder.tell(status, opcode, how)
        given: list[Any] = [np.broadcast_to(values[number], shape).reshape(1, -1) for number in operands]
        found = machine.compute({len(results) + index: value for index, value in enumerate(given)}, len(results))
        for number, value, dtype in zip(results, found, dtypes, strict=True):
            values[number] = np.ascontiguousarray(value).view(dtype).reshape(shape)

    return step


MAKERS = {"tt.elementwise_inline_asm": _make_assembly}
