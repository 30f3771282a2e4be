"""A library's way with a product: the row of its preset, and its plan book where the shape is recorded."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

from fastmma.backends.gpu import device
from fastmma.backends.resolve import operation_of
from fastmma.host.arrays import flag, integer
from fastmma.host.environment import variable
from fastmma.host.errors import OperandError
from fastmma.isa.gpus import TargetName, target_named
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply
from fastmma.products.book import BOOKS, VARIABLE, Entry, Request, book
from fastmma.products.book_file import JOINS, OPCODE
from fastmma.products.bound import Extents
from fastmma.products.choice import default_instruction
from fastmma.products.choice_map import GPU, LIBRARY, choice_map
from fastmma.products.evidence import OrderEvidence, OrderLevel
from fastmma.products.order import Cuts, StreamK, split
from fastmma.products.presets import ENDS, IN_PLACE_ENDS, GemmPreset, KernelEnds, gemm_preset

UNKNOWN = ("one", "refuse")
_TARGET = re.compile(r"(sm|compute)?_?\d.*")  # a target or a capability, and no GPU
_USUAL = "H200"  # whose plans sm_90a stands for
# what drivers add to the names of the recorded parts, H100 80GB HBM3 and H200, both SXM with 132 multiprocessors
_SAME_PART = re.compile(r"NVIDIA|TESLA|SXM\d?|HBM\d?E?|80GB|141GB")


class LibraryOrder(NamedTuple):
    """A library's way with a product, as far as it is known."""

    instruction: Instruction
    promote_every: int | None
    split_k: int | Cuts | list[tuple[int, int]] | StreamK
    split_unit: int
    first_tile: int
    join: str
    join_dtype: str
    cast: bool
    ends: KernelEnds
    evidence: OrderEvidence | None
    leaves_out: bool = False


def library_order(ins: Instruction, target: str, shape: Extents | None, biased: bool, out: str, choices: Any) -> LibraryOrder:
    """Return what a library does.

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
    cast, parts = flag(choices.cast, "cast") or row.cast, choices.split_k
    given = not isinstance(parts, int) or parts != 1
    ends = ENDS[row.split_ends if given else row.ends]
    plain = LibraryOrder(
        ins, row.promote_every, parts, row.split_unit, 0, choices.join, choices.join_dtype, cast, ends, None, row.leaves_out
    )
    if given:
        said = f"{name}: the caller says the parts of k; {row.source}{_left_out(plain, shape)}"
        return plain._replace(evidence=OrderEvidence("assumed", said))
    found, level, why = _find(name, row, choices.target, ins, shape, biased)
    if found is not None and shape is not None and (level == "recorded" or choices.unknown != "refuse"):
        done = _followed(plain, found, shape, named, target, out)
        return done._replace(evidence=OrderEvidence(level, f"{name}: {why}{_left_out(done, shape)}"))
    chosen = _ask_map(name, row, choices.target, ins, shape, biased) if level == "assumed" else None
    if chosen is not None:
        parts, evidence = chosen
        done = plain._replace(split_k=parts, ends=ENDS[row.split_ends if parts > 1 else row.ends])
        return done._replace(evidence=replace(evidence, source=f"{evidence.source}{_left_out(done, shape)}"))
    rule = _fit(name, row, choices.target, ins, shape) if level == "assumed" else None
    if rule is not None:
        return plain._replace(evidence=rule)
    if choices.unknown == "refuse":
        raise OperandError(f"preset {name!r}: {why}; unknown='one' takes one part of k")
    return plain._replace(evidence=OrderEvidence(level, f"{name}: one part of k, since {why}"))


def _left_out(done: LibraryOrder, shape: Extents | None) -> str:
    """Tell how many k the library leaves out of a product, if it leaves out any."""
    if shape is None or not isinstance(done.split_k, int) or done.split_k == 1 or not done.leaves_out:
        return ""
    end = split(shape.k, done.split_k, done.split_unit, leaves_out=True)[-1][1]
    return f"; the last {shape.k - end} of K = {shape.k} are left out" if end < shape.k else ""


def library_gpu(where: TargetName) -> str:
    """Name the GPU whose library is asked for: one whose plans are recorded where it is that very part, else what the call says.

    How a library cuts k depends on the number of multiprocessors, so an H100 PCIe, an H100 NVL or a GH200 is no H100 SXM.

    Examples
    --------
    >>> [library_gpu(name) for name in ("sm_90a", "NVIDIA H100 80GB HBM3", "H100 SXM5", "H100 PCIe", "GH200")]
    ['H200', 'H100', 'H100', 'H100 PCIe', 'GH200']
    """
    said = device.name() if where == "native" else where
    if not isinstance(said, str) or _TARGET.fullmatch(said):
        return _USUAL if target_named(said) == "sm_90a" else str(said)
    words = [word for word in re.split(r"[ _-]", said.upper()) if not _SAME_PART.fullmatch(word)]
    return words[0] if len(words) == 1 else said


def _find(
    name: str, row: GemmPreset, where: TargetName, ins: Instruction, shape: Extents | None, biased: bool
) -> tuple[Entry | None, OrderLevel, str]:
    """Find the entry of a product; else why there is none, and how well its order is known then."""
    if name not in BOOKS or not row.recorded:
        return None, "assumed", f"no product on {where} is recorded here ({row.source})"
    if shape is None:
        return None, "assumed", "such stacks of matrices are not recorded"
    pages, gpu, kind = book(name), library_gpu(where), "biased" if biased else "product"
    for layout in shape.layouts if gpu in pages.gpus and ins.atype == ins.btype and not shape.stack else ():
        request = Request(kind, ins.atype, layout, *shape[:3])
        if pages.recorded(gpu, request):
            entry, library = pages.find(gpu, request), f"{pages.library} through {pages.through} on {gpu}"
            if entry:
                return entry, "recorded", f"{request} as {library}"
            return None, "unknown", f"the kernel of {request} adds in an order that no plan has ({library})"
    shown = f"{ins.atype} {'/'.join(shape.layouts)} of M = {shape.m}, N = {shape.n}, K = {shape.k}"
    return None, "assumed", f"{'a stack of ' if shape.stack else ''}{shown} is not recorded on {gpu}"


def _ask_map(
    name: str, row: GemmPreset, where: TargetName, ins: Instruction, shape: Extents | None, biased: bool
) -> tuple[int, OrderEvidence] | None:
    """Look up in how many parts the library takes k, where a GPU was asked for its choice."""
    if shape is None or shape.stack or not shape.layouts or ins.atype != ins.btype or not row.rules or variable(VARIABLE):
        return None
    layout, size = shape.layouts[0], shape[:3]
    parts = choice_map().find(row.choices or ins.atype, layout, *size, biased=biased) if library_gpu(where) == GPU else None
    if parts is None:
        return None
    request = Request("biased" if biased else "product", ins.atype, layout, *size)
    return parts, OrderEvidence("recorded", f"{name}: {request} as {LIBRARY} chooses on {GPU}")


def _fit(name: str, row: GemmPreset, where: TargetName, ins: Instruction, shape: Extents | None) -> OrderEvidence | None:
    """Find the rule that says how the library takes a product which is not recorded."""
    if shape is None or not shape.layouts or ins.atype != ins.btype or variable(VARIABLE):
        return None
    gpu = library_gpu(where)
    for rule in row.rules:
        if rule.gpu == gpu and ins.atype in rule.atypes and rule.stack == shape.stack and rule.holds(shape.layouts[0], *shape[:3]):
            return OrderEvidence("fitted", f"{name}: {rule}", rule.rate)
    return None


def opcode_of(entry: Entry, fmt: str) -> str:
    """The opcode of an entry for multiplicands of a format.

    Examples
    --------
    >>> opcode_of(Entry("m16n8k8", 32, 1, 0, "f32", "fma"), "tf32")
    'mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32'
    """
    if entry.instruction == "wgmma":
        return default_instruction(fmt, fmt, "f32", "sm_90a").opcode
    return OPCODE.format(shape=entry.instruction, fmt=fmt)


def _followed(plain: LibraryOrder, entry: Entry, shape: Extents, named: bool, target: str, out: str) -> LibraryOrder:
    """The practice that an entry says."""
    ins = plain.instruction
    taken = ins if entry.instruction == "wgmma" else multiply(opcode_of(entry, ins.atype))
    if named and operation_of(taken.opcode, target).arithmetic.family != operation_of(ins.opcode, target).arithmetic.family:
        raise OperandError(f"the library takes {taken} for this product, not {ins}; leave out the instruction")
    narrow = out if out in ("bf16", "f16") else ""
    join, ends = JOINS[entry.join] if narrow else "ascending", ENDS[entry.ends]
    if not narrow and ins.atype != "tf32" and ends.wide:
        ends = ENDS[ends.wide]
    if (
        entry.ends == "unknown"
        and (narrow or ins.atype == "tf32")
        and (entry.join == "inplace" or ins.atype == "tf32" or entry.split_k == 1)
    ):
        known = IN_PLACE_ENDS.get((ins.atype, entry.instruction))
        ends = ENDS[known.row(shape.n, shape.k) if known else "unknown"]
        join = "in-place"
    return plain._replace(
        instruction=ins if named else taken,
        split_k=entry.split_k,
        split_unit=entry.split_unit or (plain.split_unit if entry.instruction == "wgmma" else 0),
        first_tile=entry.first_tile,
        join=join,
        join_dtype="" if join == "ascending" or ins.atype == "tf32" else narrow,
        ends=ends,
        leaves_out=plain.leaves_out and entry.instruction == "wgmma",
    )
