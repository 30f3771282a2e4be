"""Operands of a product from files or random numbers, and the instruction that multiplies them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.cli.inputs import as_elements, formats_of, generate, parse_size, read
from fastmma.cli.parameters import TYPE
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.host.memory import check_fits
from fastmma.isa.formats import FORMATS, format_of
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply as find_instruction
from fastmma.products.choice import default_instruction


def choose_instruction(
    instruction: str | None, types: str | None, dtype: str | None, target: str, arrays: dict[str, NDArray[Any]]
) -> Instruction:
    """The instruction: named, or the target's usual one for the types given or, failing that, for those in the files."""
    if instruction is not None:
        found = find_instruction(instruction)
        if types is not None and tuple(fmt.name for fmt in formats_of(types)) != (found.atype, found.btype):
            raise InstructionError(f"{found}: it multiplies {found.atype} by {found.btype}, not {types}")
        if dtype is not None and dtype != found.dtype:
            raise InstructionError(f"{found}: it accumulates in {found.dtype}, not {dtype}")
        return found
    if types is not None:
        a, b = formats_of(types)
    elif not arrays:
        a = b = FORMATS[TYPE]
    else:
        a, b = (_format_in_file(name, arrays[name]) for name in ("a", "b"))
    return default_instruction(a.name, b.name, None if dtype is None else format_of(dtype).name, target)


def _format_in_file(name: str, array: NDArray[Any]) -> Any:
    if array.dtype.kind == "V":
        raise OperandTypeError(f"{name} holds raw elements of {array.dtype.itemsize} bytes: --type must say what they are")
    fmt = format_of(array.dtype)
    if fmt.name in ("f32", "s32"):
        raise OperandTypeError(f"{name} holds {array.dtype}: --type must say what to round it to, for example tf32 or f16")
    return fmt


def read_more(
    files: Sequence[Path], choice: tuple[str | None, str | None, str | None], target: str
) -> tuple[Instruction, dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The instruction, the matrices a and b (and perhaps c), and every other operand that an archive holds, by its name."""
    arrays = read(files, more=True)
    ins = choose_instruction(*choice, target, arrays)
    found = {}
    for name, array in arrays.items():
        fmt = ins.formats.scale if name.startswith("scale_") else getattr(ins.formats, name, None)
        found[name] = array if fmt is None else as_elements(array, fmt, f"{ins}: {name}")
    return ins, {name: found.pop(name) for name in "abc" if name in found}, found


def read_operands(
    files: Sequence[Path], size: str | None, seed: int, distribution: str, choice: tuple[str | None, str | None, str | None], target: str
) -> tuple[Instruction, dict[str, NDArray[Any]]]:
    if (size is None) != bool(files):
        raise OperandError("give input files or --random MxNxK" if size is None else "give input files or --random, not both")
    if size is None:
        arrays = read(files)
        ins = choose_instruction(*choice, target, arrays)
        return ins, {name: as_elements(array, getattr(ins.formats, name), f"{ins}: {name}") for name, array in arrays.items()}
    m, n, k = parse_size(size)
    ins = choose_instruction(*choice, target, {})
    taken = ((m * k, ins.formats.a), (k * n, ins.formats.b), (m * n, ins.formats.d))
    check_fits(sum(count * fmt.dtype.itemsize for count, fmt in taken), f"--random {size}")
    rng = np.random.default_rng(seed)
    a = generate((m, k), ins.formats.a, rng, distribution)
    return ins, {"a": a, "b": generate((k, n), ins.formats.b, rng, distribution)}
