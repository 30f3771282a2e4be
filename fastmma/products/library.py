"""What a library does with a product: the row of its preset, and its plan book where the shape is recorded."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from fastmma.backends.gpu import device
from fastmma.backends.resolve import operation_of
from fastmma.host.arrays import flag, integer
from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.products.book import BOOKS, Book, Entry, Request, book
from fastmma.products.choice import default_instruction
from fastmma.products.order import Cuts, StreamK
from fastmma.products.presets import ENDS, IN_PLACE_ENDS, KernelEnds, gemm_preset

UNKNOWN = ("one", "refuse")
_TARGET = re.compile(r"(sm|compute)?_?\d.*")  # a target or a capability, and no GPU
_OPCODE = "mma.sync.aligned.{shape}.row.col.f32.{fmt}.{fmt}.f32"
_USUAL = "H200"  # whose plans sm_90a stands for
_JOINS = {"f32": "ascending", "out": "workspace", "inplace": "in-place"}


class Extents(NamedTuple):
    """The shape of a product, and how its operands lie in memory."""

    m: int
    n: int
    k: int
    layouts: tuple[str, ...]  # of a and b: n where rows are contiguous, t where columns are; of vectors, both


class Practice(NamedTuple):
    """What a library does with a product, as far as it is known."""

    instruction: Instruction
    promote_every: int | None
    split_k: int | Cuts | list[tuple[int, int]] | StreamK
    split_unit: int
    first_tile: int
    join: str
    join_dtype: str
    cast: bool
    ends: KernelEnds
    source: str


def extents(a: Any, b: Any) -> Extents | None:
    """The extents of two matrices; None where they are none."""
    if getattr(a, "ndim", 0) != 2 or getattr(b, "ndim", 0) != 2 or not hasattr(b, "strides"):
        return None
    spelled = [x + y for x in _layouts(a) for y in _layouts(b)]
    return Extents(a.shape[0], b.shape[1], a.shape[1], tuple(spelled))


def _layouts(matrix: Any) -> str:
    flags = matrix.flags
    return ("n" if flags.c_contiguous else "") + ("t" if flags.f_contiguous else "")


def practice(ins: Instruction, target: str, shape: Extents | None, biased: bool, out: str, choices: Any) -> Practice:
    """What a library does.

    Parameters
    ----------
    ins : Instruction
        The usual one for the operands, or the one that the call names.
    target : str
    shape : Extents or None
    biased : bool
        Whether a bias is added.
    out : str
        The format of the result.
    choices : Choices
        The parameters of the call: preset, target as it was named, instruction, promote_every, split_k, join, cast and unknown.

    Raises
    ------
    OperandError
        If the preset does not know the product, or the call contradicts it.
    """
    name, named = choices.preset, choices.instruction is not None
    row = gemm_preset(name, ins, target)
    if choices.promote_every is not None and integer(choices.promote_every, "promote_every", 1) != row.promote_every:
        raise OperandError(f"preset {name!r} sets promote_every to {row.promote_every}; leave it out")
    if choices.unknown not in UNKNOWN:
        raise OperandError(f"unknown must be one of {', '.join(UNKNOWN)}, not {choices.unknown!r}")
    cast, source = flag(choices.cast, "cast") or row.cast, f"{name}: {row.source}"
    parts = choices.split_k
    ends = ENDS[row.ends if isinstance(parts, int) and parts == 1 else row.split_ends]
    plain = Practice(ins, row.promote_every, parts, row.split_unit, 0, choices.join, choices.join_dtype, cast, ends, source)
    if name not in BOOKS or not row.recorded or not isinstance(parts, int) or parts != 1:
        return plain
    pages, found, why = book(name), None, "stacks of matrices are not recorded"
    if shape is not None:
        found, why = _looked_up(pages, _gpu(pages, choices.target), ins, shape, biased)
    if found is None:
        if choices.unknown == "refuse":
            raise OperandError(f"preset {name!r}: {why}; unknown='one' takes one part of k")
        return plain._replace(source=f"{source}; one part: {why}")
    return _followed(plain, found, named, target, out, f"{source}; {why}")


def _gpu(pages: Book, where: TargetName) -> str:
    """The GPU whose plans are asked for: its name in the book, or what the call says."""
    said = device.name() if where == "native" else where
    if not isinstance(said, str) or _TARGET.fullmatch(said):
        return _USUAL
    words = re.split(r"[ _-]", said.upper())
    return next((gpu for gpu in pages.gpus if gpu in words), said)


def _looked_up(pages: Book, gpu: str, ins: Instruction, shape: Extents, biased: bool) -> tuple[Entry | None, str]:
    """The entry of a product, and where it stands, or why there is none."""
    kind = "biased" if biased else "product"
    for layout in shape.layouts if gpu in pages.gpus and ins.atype == ins.btype else ():
        request = Request(kind, ins.atype, layout, *shape[:3])
        if pages.recorded(gpu, request):
            entry, where = pages.find(gpu, request), f"{pages.library} through {pages.through} on {gpu}"
            return entry, f"as {where}" if entry else f"its kernel adds in an order that no plan has ({where})"
    return None, f"{ins.atype} {'/'.join(shape.layouts)} of M = {shape.m}, N = {shape.n}, K = {shape.k} is not recorded on {gpu}"


def opcode_of(entry: Entry, fmt: str) -> str:
    """The opcode of an entry for multiplicands of a format.

    Examples
    --------
    >>> opcode_of(Entry("m16n8k8", 32, 1, 0, "f32", "fma"), "tf32")
    'mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32'
    """
    if entry.instruction == "wgmma":
        return default_instruction(fmt, fmt, "f32", "sm_90a").opcode
    return _OPCODE.format(shape=entry.instruction, fmt=fmt)


def _followed(plain: Practice, entry: Entry, named: bool, target: str, out: str, source: str) -> Practice:
    """The practice that an entry says."""
    ins = plain.instruction
    taken = ins if entry.instruction == "wgmma" else multiply(opcode_of(entry, ins.atype))
    if named and operation_of(taken.opcode, target).arithmetic.family != operation_of(ins.opcode, target).arithmetic.family:
        raise OperandError(f"the library takes {taken} for this product, not {ins}; leave out the instruction")
    narrow = out if out in ("bf16", "f16") else ""
    join, ends = _JOINS[entry.join] if narrow else "ascending", ENDS[entry.ends]
    if not narrow and ins.atype != "tf32" and ends.wide:
        ends = ENDS[ends.wide]
    if (
        entry.ends == "unknown"
        and (narrow or ins.atype == "tf32")
        and (entry.join == "inplace" or ins.atype == "tf32" or entry.split_k == 1)
    ):
        ends = ENDS[IN_PLACE_ENDS.get((ins.atype, entry.instruction), "unknown")]
        join = "in-place"
    return plain._replace(
        instruction=ins if named else taken,
        split_k=entry.split_k,
        split_unit=entry.split_unit,
        first_tile=entry.first_tile,
        join=join,
        join_dtype="" if join == "ascending" or ins.atype == "tf32" else narrow,
        ends=ends,
        source=source,
    )
