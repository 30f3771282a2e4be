"""A library's way with a product: the row of its preset, and what is known of the library's choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fastmma.backends.resolve import operation_of
from fastmma.host.errors import OperandError
from fastmma.host.integers import flag, integer
from fastmma.isa.gpus import TargetName
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.products.bound import Extents
from fastmma.products.cublas.book import book_of, own_book
from fastmma.products.cublas.find_row import find_row_as_computed
from fastmma.products.cublas.look_up import SHIPPED_SOURCES, Known, Question, find_recorded, look_up
from fastmma.products.cublas.rows import LaneRow, Product
from fastmma.products.cublas.tile_order import tile_order
from fastmma.products.evidence import OrderEvidence
from fastmma.products.library_gpu import library_gpu
from fastmma.products.library_order import LibraryOrder
from fastmma.products.order import split
from fastmma.products.presets import KERNEL_EPILOGUES, GemmPreset, gemm_preset


class UnknownOrderError(OperandError):
    """The choice of a product is known, and the order that it means is not, or is none of a tensor core."""


def library_order(ins: Instruction, target: str, shape: Extents | None, out: str, choices: Any, *, biased: bool, row: bool) -> LibraryOrder:
    """Return what a library does.

    Parameters
    ----------
    ins : Instruction
        The usual one for the operands, or the one that the call names.
    target : str
    shape : Extents or None
    out : str
        The format of the result.
    choices : Choices
        The parameters of the call: preset, target as it was named, instruction, promote_every, split_k, join, cast and unknown.
    biased, row : bool
        Whether a bias is added, or a c of one row as it is.

    Raises
    ------
    OperandError
        If the preset does not know the product, or the call contradicts it.
    """
    name, named = choices.preset, choices.instruction is not None
    preset = gemm_preset(name, ins, target)
    if choices.promote_every is not None and integer(choices.promote_every, "promote_every", 1) != preset.promote_every:
        raise OperandError(f"preset {name!r} sets promote_every to {preset.promote_every}; leave it out")
    cast, parts = flag(choices.cast, "cast") or preset.cast, choices.split_k
    given = not isinstance(parts, int) or parts != 1
    ends = KERNEL_EPILOGUES[preset.split_ends if given else preset.ends]
    plain = LibraryOrder(
        ins, preset.promote_every, parts, preset.split_unit, 0, choices.join, choices.join_dtype, cast, ends, None, preset.leaves_out
    )
    if given:
        said = f"{name}: the caller says the parts of k; {preset.source}{_left_out(plain, shape)}"
        return plain._replace(evidence=OrderEvidence("assumed", said))
    asked = _questions(preset, choices.target, ins, shape, out, biased=biased, row=row)
    refused = OrderEvidence("assumed", _not_recorded(preset, choices.target, ins, asked, shape))
    for question, known in _known(asked):
        try:
            done = _follow(plain, known, question, named, target)
        except UnknownOrderError as error:
            refused = OrderEvidence("unknown", str(error))
            break
        evidence = known.evidence or refused
        return done._replace(evidence=replace(evidence, source=f"{name}: {evidence.source}{_left_out(done, shape)}"))
    if choices.unknown == "refuse":
        raise OperandError(f"preset {name!r}: {refused.source}; unknown='one' takes one part of k")
    return plain._replace(evidence=replace(refused, source=f"{name}: one part of k, since {refused.source}"))


def _left_out(done: LibraryOrder, shape: Extents | None) -> str:
    """Tell how many k the library leaves out of a product, if it leaves out any."""
    if shape is None or not isinstance(done.split_k, int) or done.split_k == 1 or not done.leaves_out:
        return ""
    end = split(shape.k, done.split_k, done.split_unit, leaves_out=True)[-1][1]
    return f"; the last {shape.k - end} of K = {shape.k} are left out" if end < shape.k else ""


def _questions(
    preset: GemmPreset, where: TargetName, ins: Instruction, shape: Extents | None, out: str, *, biased: bool, row: bool
) -> list[Question]:
    """Return what is asked about a product, for each of the layouts that its operands may be said to have; the usual one first."""
    if shape is None or ins.atype != ins.btype:
        return []
    gpu, own, found = library_gpu(where), own_book() is not None, []
    for layout in shape.layouts:
        product = Product(ins.atype, layout, shape.m, shape.n, shape.k, out or ins.dtype, shape.stack > 1)
        kind, rules = preset.choices or ins.atype, preset.rules
        found.append(Question(gpu, kind, product, shape.stack, biased, row=row, book=book_of(gpu), is_own=own, rules=rules))
    return found


def _known(asked: list[Question]) -> Iterator[tuple[Question, Known]]:
    """Yield what is known of a product: what is recorded by any of its layouts, and the rest by the usual one."""
    for question in asked:
        if (found := find_recorded(question)) is not None:
            yield question, found
    for known in look_up(asked[0]._replace(book=None), SHIPPED_SOURCES) if asked else ():
        yield asked[0], known


def _not_recorded(row: GemmPreset, where: TargetName, ins: Instruction, asked: list[Question], shape: Extents | None) -> str:
    """Say of what nothing is known."""
    if not row.recorded and not any(question.book for question in asked):
        return f"no product on {where} is recorded here ({row.source})"
    if shape is None:
        return "such stacks of matrices are not recorded"
    shown = f"{ins.atype} {'/'.join(shape.layouts)} of M = {shape.m}, N = {shape.n}, K = {shape.k}"
    return f"{'a stack of ' if shape.stack > 1 else ''}{shown} is not recorded on {library_gpu(where)}"


def _follow(plain: LibraryOrder, known: Known, asked: Question, named: bool, target: str) -> LibraryOrder:
    """Follow a choice.

    Raises
    ------
    OperandError
        If the call names another instruction than the library takes, or there is no plan of the kernel.
    """
    ins = plain.instruction
    if known.evidence is not None and known.evidence.level == "unknown":
        raise UnknownOrderError(known.evidence.source)
    try:
        row, product = find_row_as_computed(known.table, known.choice, asked.product)
    except OperandError as error:
        raise UnknownOrderError(f"the kernel of {asked} adds in an order that no plan has: {error}") from None
    if isinstance(row, LaneRow):
        raise UnknownOrderError(f"the kernel of {asked} shares k among lanes, off the tensor cores; fastmma.cublas.plan has its order")
    biased = asked.biased and not known.adds_bias_as_c
    order = tile_order(row, known.choice, product, target, fast=plain.promote_every is None, biased=biased)
    taken = multiply(order.opcode)
    if named and operation_of(taken.opcode, target).arithmetic.family != operation_of(ins.opcode, target).arithmetic.family:
        raise OperandError(f"the library takes {taken} for this product, not {ins}; leave out the instruction")
    usual = taken.op == ins.op
    return plain._replace(
        instruction=ins if named or usual else taken,
        split_k=order.split_k,
        split_unit=order.split_unit or (plain.split_unit if usual and not order.dealt else 0),
        first_tile=order.first_tile,
        join=order.join,
        join_dtype=order.join_dtype,
        ends=order.ends.with_bias_as_c() if known.adds_bias_as_c else order.ends,
        leaves_out=plain.leaves_out and usual,
        dealt=order.dealt,
    )
