"""The registers of every operand of an instruction: matrices, sparsity metadata and block scales."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from operator import mul

from fastmma.host.calls import named_keywords
from fastmma.host.errors import OperandError
from fastmma.host.integers import one_of
from fastmma.isa.instruction import Instruction, Movement
from fastmma.isa.layout import Layout, Mode
from fastmma.isa.scales import scale_selectors
from fastmma.isa.sparsity import check_selector, metadata_bit, metadata_lanes, metadata_layout, selectors
from fastmma.isa.table import instruction
from fastmma.isa.tcgen05.tensor_memory import lane_digits
from fastmma.isa.tcgen05.tensor_memory import metadata_layout as metadata_layout_of_tcgen05
from fastmma.operands.pictures.view import Placement


def operand_names(ins: Instruction | Movement) -> tuple[str, ...]:
    """The operands of an instruction that lie in registers, or in cells of Tensor Memory of their own."""
    if isinstance(ins, Movement):
        return ("a", "d") if ins.op == "movmatrix" else ("r",)
    scales = ("scale_a", "scale_b") if ins.scale_vec_size and ins.op != "tcgen05" else ()
    return (*ins.operands, *(("metadata",) if ins.sparse else ()), *scales)


def selections(ins: Instruction | Movement, name: str) -> Iterator[dict[str, int]]:
    """The selectors by which an operand may lie, as `placement` takes them; an empty one for what has none."""
    if isinstance(ins, Movement) or ins.op == "tcgen05" or name in ins.operands:
        yield {}
    elif name == "metadata":
        yield from ({"selector": selector} for selector in selectors(ins))
    else:
        valid = scale_selectors(ins, name[-1])
        yield from ({"byte_id": byte, "thread_id": thread} for byte in valid.byte_id for thread in valid.thread_id)


def _metadata(ins: Instruction, selector: int) -> Placement:
    count, layout, chosen = metadata_lanes(ins), metadata_layout(ins), check_selector(ins, selector)
    base = count * chosen % 4
    # of each group of four lanes, the pair or the one that contributes
    within = sum(lanes <= count for lanes in accumulate((mode.size for mode in layout.lane), mul))
    digits = () if count == 4 else (*layout.lane[:within], Mode(4 // count, 0, 0), *layout.lane[within:])
    return Placement("metadata", "4-bit words", "e", layout, digits, base, metadata_bit(ins, chosen))


def _scale(ins: Instruction, name: str, byte_id: int, thread_id: int) -> Placement:
    operand = name[-1]
    valid = scale_selectors(ins, operand)
    first_bit = 8 * one_of(byte_id, valid.byte_id, f"{ins}: byte_id")
    one_of(thread_id, valid.thread_id, f"{ins}: thread_id")
    own = ins.fragments(ins).get(name)
    if own is not None:
        return Placement(name, ins.stype, f"s{operand}", own, first_bit=first_bit)
    scales = ins.scale_vec_size
    if operand == "a":
        pair, group, choice = (Mode(2, 8, 0),), Mode(8, 1, 0), Mode(2, 0, 0)
        layout = Layout((ins.m, scales), (*pair, group), (Mode(scales, 0, 1),), 8)
        return Placement(name, ins.stype, f"s{operand}", layout, (*pair, choice, group), 2 * thread_id, first_bit)
    group = Mode(8, 0, 1)
    layout = Layout((scales, ins.n), (group,), (Mode(scales, 1, 0),), 8)
    return Placement(name, ins.stype, f"s{operand}", layout, (Mode(4, 0, 0), group), thread_id, first_bit)


def _move(move: Movement, name: str) -> Placement:
    """The matrices that a movement takes or gives: one after the other in a lane's registers."""
    one = move.layout
    layout = one
    if move.num > 1:
        layout = Layout(one.shape, one.lane, (*one.element, Mode(move.num, 0, 0, 1)), one.bits, tiles=move.num)
    return Placement(name, move.dtype or f"b{move.bits}", name, layout, tile="matrix")


def _in_tensor_memory(ins: Instruction, name: str, selector: int | None) -> Placement:
    """Lanes of Tensor Memory for lanes, and columns for registers."""
    if selector:
        raise OperandError(f"{ins}: the sparsity selector is a field of the instruction descriptor, and 0 here, not {selector!r}")
    layout = metadata_layout_of_tcgen05(ins) if name == "metadata" else ins.operands[name].layout
    kind, letter = ("4-bit words", "e") if name == "metadata" else (ins.operands[name].format.name, name)
    return Placement(name, kind, letter, layout, lane_digits(layout), holder="L", register="TMEM column", sigil="+")


@named_keywords
def placement(
    ins: str | Instruction | Movement,
    operand: str,
    *,
    selector: int | None = None,
    byte_id: int | None = None,
    thread_id: int | None = None,
) -> Placement:
    """Return which lanes, registers and bits hold an operand.

    Parameters
    ----------
    ins : str, Instruction or Movement
    operand : str
        ``"a"``, ``"b"``, ``"c"``, ``"d"``, ``"metadata"`` (4-bit words, one a chunk of A), ``"scale_a"`` or ``"scale_b"``; ``"r"`` of an
        instruction that loads or stores.
    selector : int, optional
        The sparsity selector, for metadata; 0 by default.
    byte_id, thread_id : int, optional
        The selectors of block scales; 0 by default.

    Raises
    ------
    InstructionError, OperandError
        If the instruction has no such operand in registers, or a selector is not valid for it.

    Examples
    --------
    >>> a = placement("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "a")
    >>> a.at(3, 7)
    Cell(row=3, col=7, computation=0, lane=15, element=1, register=0, bit=16, bits=16)
    """
    found = instruction(ins)
    names = operand_names(found)
    if not isinstance(operand, str) or operand not in names:
        if isinstance(found, Instruction) and found.in_place and operand == "b":
            raise OperandError(f"{found}: b is read from shared memory and lies in no register; {', '.join(names)} do")
        raise OperandError(f"{found}: there is no operand {operand!r} in registers; there are {', '.join(names)}")
    if selector is not None and operand != "metadata":
        raise OperandError(f"{found}: selector belongs to metadata, not to {operand}")
    if (byte_id is not None or thread_id is not None) and not operand.startswith("scale"):
        raise OperandError(f"{found}: byte_id and thread_id belong to scales, not to {operand}")
    if isinstance(found, Movement):
        return _move(found, operand)
    if found.op == "tcgen05":
        return _in_tensor_memory(found, operand, selector)
    if operand == "metadata":
        return _metadata(found, 0 if selector is None else selector)
    if operand in ("scale_a", "scale_b"):
        return _scale(found, operand, 0 if byte_id is None else byte_id, 0 if thread_id is None else thread_id)
    return Placement(operand, found.operands[operand].format.name, operand, found.operands[operand].layout)
