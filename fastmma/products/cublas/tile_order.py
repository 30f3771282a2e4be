"""From a choice of cuBLASLt to the order of additions of a kernel that takes k in tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fastmma.isa.scalar import OPCODE as FMA
from fastmma.products.by_tile import Cuts, LastWave
from fastmma.products.choice import default_instruction
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.rows import BYTES, HALF_SUMS, NARROW, Product, TileRow
from fastmma.products.cublas.segments import cut_segments
from fastmma.products.library_order import KernelEpilogue
from fastmma.products.presets import KERNEL_EPILOGUES

_MMA = "mma.sync.aligned.{shape}.row.col.{sums}.{fmt}.{fmt}.{sums}"


class TileOrder(NamedTuple):
    """The order of additions of a kernel: fields of `fastmma.GemmPlan`, and how it ends."""

    opcode: str
    promote_every: int | None
    split_k: int | Cuts | LastWave
    split_unit: int
    first_tile: int
    cast: bool
    join: str
    join_dtype: str
    ends: KernelEpilogue
    leaves_out: bool
    dealt: int


def tile_order(row: TileRow, choice: Choice, product: Product, target: str, *, fast: bool = False, biased: bool = False) -> TileOrder:
    """Return the order of a choice by its row.

    Parameters
    ----------
    row : TileRow
    choice : Choice
    product : Product
    target : str
    fast : bool
        Whether 8-bit floats are not promoted.
    biased : bool
        Whether the kernel adds a bias.

    Examples
    --------
    >>> from fastmma.products.cublas.tables import TABLES
    >>> row = next(row for row in TABLES["H200", "13.1"].rows if row.algo == 24)
    >>> found = tile_order(row, Choice(24, split_k=3, reduction=2), Product("f16", "nt", 8, 9, 4096, "f16"), "sm_90a")
    >>> found.split_k, found.split_unit, found.join
    (3, 64, 'ascending')
    """
    parts = _parts(row, choice, product)
    join = _join(row, choice, parts)
    if join == "in-place" and biased and row.biased_ends:
        row, join = replace(row, split_ends=row.biased_ends), "ascending"
    name = row.ends if join == "" else row.in_place_ends if join == "in-place" else row.split_ends
    narrow = product.out if product.out in NARROW and product.fmt != HALF_SUMS else ""  # sums in f16 are rounded to it already
    if join == "in-place" and product.fmt in NARROW and not narrow:
        name = "unknown"
    if not narrow and join == "workspace":
        join = "ascending"
    ends = KERNEL_EPILOGUES[name]
    return TileOrder(
        _opcode(row, product.fmt, target),
        row.promote_every if row.promote_every and not fast else None,
        parts,
        row.unit(product, BYTES[product.fmt]) if isinstance(parts, int) and parts > 1 and not row.dealt else 0,
        row.tile,
        product.fmt == "tf32",
        join or "ascending",
        narrow if join in ("workspace", "in-place") else "",
        KERNEL_EPILOGUES[ends.wide] if ends.wide and product.out not in NARROW else ends,
        row.leaves_out and parts != 1,
        row.dealt if parts != 1 else 0,
    )


def _opcode(row: TileRow, fmt: str, target: str) -> str:
    if row.instruction == "fma":
        return FMA
    fmt, sums = ("f16", "f16") if fmt == HALF_SUMS else (fmt, "s32" if fmt == "s8" else "f32")
    if row.instruction in ("wgmma", "tcgen05"):
        return default_instruction(fmt, fmt, sums, target).opcode
    return _MMA.format(shape=row.instruction, fmt=fmt, sums=sums)


def _join(row: TileRow, choice: Choice, parts: int | Cuts | LastWave) -> str:
    """Find how parts are joined; empty where the choice has one."""
    if row.segments is not None:
        return "" if parts == 1 else "pairwise from the end"
    return "" if choice.parts == 1 else dict(row.joins)[choice.reduction]


def _parts(row: TileRow, choice: Choice, product: Product) -> int | Cuts | LastWave:
    """Cut k as the kernels do: so many parts, or where they start and stop."""
    if row.segments is not None:
        segments = cut_segments(row.segments, choice, product)
        return 1 if segments is None or (not isinstance(segments, LastWave) and len(segments) == 1) else segments
    if choice.parts == 1 or not row.floors or row.leaves_out:
        return choice.parts
    unit = row.unit(product, BYTES[product.fmt])
    length = max(-(-(product.k // choice.parts) // unit) * unit, unit)
    cuts: Cuts = tuple((start, min(start + length, product.k)) for start in range(0, product.k, length))
    return cuts if len(cuts) > 1 else 1
