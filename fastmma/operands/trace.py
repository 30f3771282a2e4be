"""Traces of one output: the registers, lanes and bits of every operand that an element of d depends on."""

from __future__ import annotations

from dataclasses import dataclass

from fastmma.host.calls import named_keywords
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.isa.table import multiply
from fastmma.operands.extra import check_unused
from fastmma.operands.pictures.grid import Cell
from fastmma.operands.pictures.view import Placement
from fastmma.operands.placement import operand_names, placement


@dataclass(frozen=True)
class Trace:
    """One output and its sources.

    Attributes
    ----------
    instruction : Instruction
    d : Cell
        Where the output lies.
    sources : dict of str to tuple of Cell
        For each register operand, the elements that the output depends on. Of a sparse instruction's b it is the whole column: metadata
        choose half of it. wgmma has no c: d itself is the accumulator.
    memory : tuple of str
        The sources that are read from shared memory, for example ``"b[0..15][5]"``; for tcgen05 also the scales, bytes of Tensor Memory.
    equation : str
        How the output depends on them.
    """

    instruction: Instruction
    d: Cell
    sources: dict[str, tuple[Cell, ...]]
    memory: tuple[str, ...]
    equation: str


def equation(ins: Instruction, row: int | str, col: int | str) -> str:
    """Return how an element of d depends on its sources."""
    a, b, choice = f"a[{row}][k]", f"b[k][{col}]", ""
    if ins.sparse:
        rule = pattern_of(ins)
        a, b = f"a[{row}][j]", f"b[k(j)][{col}]"
        word = f"j / {rule.stored}" if rule.stored > 1 else "j"
        choice = f", j < {ins.stored_k}, where metadata[{row}][{word}] gives k(j) within its chunk of {rule.chunk}"
    terms = f"{a} * {b}"
    if ins.bit_op:
        terms = f"popc({a} {'^' if ins.bit_op == 'xor' else '&'} {b})"
    if ins.scale_vec_size:
        k = "k(j)" if ins.sparse else "k"
        block = f"{k} / {ins.k // ins.scale_vec_size}" if ins.scale_vec_size > 1 else "0"
        terms += f" * scale_a[{row}][{block}] * scale_b[{block}][{col}]"
    added = f"d[{row}][{col}]" if ins.in_place else f"c[{row}][{col}]"
    return f"d[{row}][{col}] = {added} + sum of {terms}" + (choice or f", k < {ins.k}")


def placements(
    ins: Instruction, *, selector: int = 0, byte_id_a: int = 0, thread_id_a: int = 0, byte_id_b: int = 0, thread_id_b: int = 0
) -> dict[str, Placement]:
    """Every register operand of an instruction with the selectors that it runs with.

    Raises
    ------
    OperandError
        If a selector is not valid for the instruction.
    """
    check_unused(ins, selector, byte_id_a, thread_id_a, byte_id_b, thread_id_b)
    chosen = {
        "metadata": {"selector": selector},
        "scale_a": {"byte_id": byte_id_a, "thread_id": thread_id_a},
        "scale_b": {"byte_id": byte_id_b, "thread_id": thread_id_b},
    }
    return {name: placement(ins, name, **chosen.get(name, {})) for name in operand_names(ins)}


@named_keywords
def trace(
    ins: str | Instruction,
    row: int,
    col: int,
    computation: int = 0,
    *,
    selector: int = 0,
    byte_id_a: int = 0,
    thread_id_a: int = 0,
    byte_id_b: int = 0,
    thread_id_b: int = 0,
) -> Trace:
    """Find the registers and lanes that feed one element of d, and the place of that element.

    Parameters
    ----------
    ins : str or Instruction
    row, col : int
        The element of d.
    computation : int
        Which of the four computations of m8n8k4 with f16; else 0.
    selector : int
        The sparsity selector.
    byte_id_a, thread_id_a, byte_id_b, thread_id_b : int
        The selectors of block scales.

    Raises
    ------
    InstructionError, OperandError
        If there is no such instruction, element or selector.

    Examples
    --------
    >>> found = trace("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 4, 5)
    >>> found.d.lane, found.d.register, sorted({cell.lane for cell in found.sources["b"]})
    (18, 1, [20, 21, 22, 23])
    """
    found = multiply(ins)
    held = placements(found, selector=selector, byte_id_a=byte_id_a, thread_id_a=thread_id_a, byte_id_b=byte_id_b, thread_id_b=thread_id_b)
    d = held["d"].at(row, col, computation)
    outputs = ("c", "d") if found.in_place else ("d",)
    sources = {name: _needed(each, row, col, computation) for name, each in held.items() if name not in outputs}
    memory: tuple[str, ...] = () if "b" in held else (f"b[0..{found.k - 1}][{col}]",)
    if found.scale_vec_size and "scale_a" not in held:
        last = found.scale_vec_size - 1
        memory += (f"scale_a[{row}][0..{last}]", f"scale_b[0..{last}][{col}]")
    return Trace(found, d, sources, memory, equation(found, row, col))


def _needed(held: Placement, row: int, col: int, computation: int) -> tuple[Cell, ...]:
    rows, cols = held.layout.shape
    match held.name:
        case "c":
            return (held.at(row, col, computation),)
        case "b" | "scale_b":
            return tuple(held.at(k, col, computation) for k in range(rows))
        case _:
            return tuple(held.at(row, k, computation) for k in range(cols))
