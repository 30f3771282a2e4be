"""Rows of AMD's matrix instructions: names, shapes, blocks, types and GPUs, as the ISA documents of CDNA, RDNA3 and RDNA4 have them.

The documents of CDNA3 write ``v_mfma_f32_32x32x4_2b_f16`` for what those before wrote ``v_mfma_f32_32x32x4f16``. The later name is
canonical, and the earlier one another spelling. Where GPUs have different instructions of one name, the later one has its generation
behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from fastmma.isa.amd import layouts
from fastmma.isa.layout import Layout

# AMD's names of formats, with fastmma's
_TYPES = {"fp8": "e4m3fnuz", "bf8": "e5m2fnuz", "xf32": "tf32", "i8": "s8", "i32": "s32"}
_OCP = {"fp8": "e4m3", "bf8": "e5m2"}
# what cbsz and blgp of f8f6f4 say
_NARROW = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
_BYTES = ("fp8", "bf8")
_Targets = tuple[str, ...]
_CDNA1, _CDNA2, _CDNA3, _CDNA4 = ("gfx908",), ("gfx90a",), ("gfx942",), ("gfx950",)
_RDNA3 = ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153")
_RDNA4 = ("gfx1200", "gfx1201")


class Row(NamedTuple):
    """One instruction.

    Attributes
    ----------
    opcode, op : str
    shape : (int, int, int)
        m, n and k.
    types : tuple of str
        Formats of D and C, A and B.
    targets : tuple of str
    fragments : callable
        How operands lie in registers: a rule of `fastmma.isa.amd.layouts`.
    heading : str
        The document that defines it.
    blocks : int
        Products side by side.
    kind : str
        ``"1k"`` for the second generation of bf16.
    aliases : tuple of str
        Other spellings.
    lanes : int
    sparse : bool
    satfinite : bool
    stype : str
        Format of scales, or empty.
    """

    opcode: str
    op: str
    shape: tuple[int, int, int]
    types: tuple[str, ...]
    targets: tuple[str, ...]
    fragments: Callable[[Any], dict[str, Layout]]
    heading: str
    blocks: int = 1
    kind: str = ""
    aliases: tuple[str, ...] = ()
    lanes: int = layouts.WAVE64
    sparse: bool = False
    satfinite: bool = False
    stype: str = ""


_MATRIX = "Matrix Arithmetic Instructions"
_WAVE = "Wave Matrix Multiply Accumulate (WMMA)"
_MANY_BLOCKS = {(32, 32): 2, (16, 16): 4, (4, 4): 16}


def _sized(m: int, n: int, k: int) -> str:
    return f"{m}x{n}x{k}"


def _dense(shape: tuple[int, int, int], d: str, a: str, targets: tuple[str, ...], blocks: int = 1, *, first: bool = True) -> Row:
    """A dense instruction of one type of A and B; `first` where bf16 is that of CDNA2."""
    size, many = _sized(*shape), f"_{blocks}b" if blocks > 1 else ""
    one_k = a == "bf16" and first
    earlier = f"v_mfma_{d}_{size}{a}{'_1k' if one_k else ''}"
    types = tuple(_TYPES.get(each, each) for each in (d, a, a))
    opcode, kind = f"v_mfma_{d}_{size}{many}_{a}", "1k" if one_k else ""
    return Row(opcode, "v_mfma", shape, types, targets, layouts.mfma, _MATRIX, blocks, kind, (earlier,))


def _of_blocks(k: int, d: str, a: str, targets: tuple[str, ...]) -> Iterator[Row]:
    """The instructions of several blocks."""
    for (m, n), blocks in _MANY_BLOCKS.items():
        yield _dense((m, n, k), d, a, targets, blocks)


def _first_bf16() -> Iterator[Row]:
    """bf16 of CDNA1, two k a lane, which later documents do not rename."""
    several = tuple((m, n, 2, blocks) for (m, n), blocks in _MANY_BLOCKS.items())
    for m, n, k, blocks in (*several, (32, 32, 4, 1), (16, 16, 8, 1)):
        opcode, targets = f"v_mfma_f32_{_sized(m, n, k)}bf16", (*_CDNA1, *_CDNA2)
        yield Row(opcode, "v_mfma", (m, n, k), ("f32", "bf16", "bf16"), targets, layouts.mfma, _MATRIX, blocks)


def _dense_rows() -> Iterator[Row]:
    last: _Targets = (*_CDNA3, *_CDNA4)
    later: _Targets = (*_CDNA2, *last)
    every: _Targets = (*_CDNA1, *later)
    yield from _of_blocks(1, "f32", "f32", every)
    yield from (_dense(shape, "f32", "f32", every) for shape in ((32, 32, 2), (16, 16, 4)))
    for a, targets in (("f16", every), ("bf16", later)):
        yield from _of_blocks(4, "f32", a, targets)
        yield from (_dense(shape, "f32", a, targets) for shape in ((32, 32, 8), (16, 16, 16)))
        yield from (_dense(shape, "f32", a, _CDNA4, first=False) for shape in ((32, 32, 16), (16, 16, 32)))
    yield from _first_bf16()
    yield from _of_blocks(4, "i32", "i8", every)
    for shape in ((32, 32, 8), (16, 16, 16)):
        earlier = f"v_mfma_i32_{_sized(*shape)}i8"
        yield Row(earlier, "v_mfma", shape, ("s32", "s8", "s8"), (*_CDNA1, *_CDNA2), layouts.mfma, _MATRIX)
    yield from (_dense(shape, "i32", "i8", last) for shape in ((32, 32, 16), (16, 16, 32)))
    yield from (_dense(shape, "i32", "i8", _CDNA4) for shape in ((32, 32, 32), (16, 16, 64)))
    yield _dense((16, 16, 4), "f64", "f64", later)
    yield _dense((4, 4, 4), "f64", "f64", later, 4)
    yield from (_dense(shape, "f32", "xf32", _CDNA3) for shape in ((16, 16, 8), (32, 32, 4)))


def _bytes_rows() -> Iterator[Row]:
    """8-bit floats: fnuz on CDNA3, OCP on CDNA4 under the same names."""
    for shape, a, b in product(((16, 16, 32), (32, 32, 16)), _BYTES, _BYTES):
        opcode = f"v_mfma_f32_{_sized(*shape)}_{a}_{b}"
        for types, targets, behind in ((_TYPES, _CDNA3, ""), (_OCP, _CDNA4, " gfx950")):
            formats = ("f32", types[a], types[b])
            yield Row(opcode + behind, "v_mfma", shape, formats, targets, layouts.mfma, _MATRIX)


def _mixed_rows() -> Iterator[Row]:
    """f8f6f4 of CDNA4: cbsz and blgp name the formats of A and B."""
    for scale, shape in product(("", "ue8m0"), ((16, 16, 128), (32, 32, 64))):
        name = f"v_mfma_{'scale_' if scale else ''}f32_{_sized(*shape)}_f8f6f4"
        for (i, a), (j, b) in product(enumerate(_NARROW), enumerate(_NARROW)):
            chosen = "".join(f" {field}:{number}" for field, number in (("cbsz", i), ("blgp", j)) if number)
            yield Row(
                name + chosen, "v_mfma", shape, ("f32", a, b), _CDNA4, layouts.mixed, _MATRIX, kind="mxf8f6f4" if scale else "", stype=scale
            )


def _sparse_rows() -> Iterator[Row]:
    deep = {"f16": ((16, 16, 32), (32, 32, 16)), "bf16": ((16, 16, 32), (32, 32, 16)), "i8": ((16, 16, 64), (32, 32, 32))}
    for a, shapes in deep.items():
        d, a_type = ("i32" if a == "i8" else "f32"), _TYPES.get(a, a)
        for shape in shapes:
            opcode = f"v_smfmac_{d}_{_sized(*shape)}_{a}"
            formats = (_TYPES.get(d, d), a_type, a_type)
            yield Row(opcode, "v_smfmac", shape, formats, (*_CDNA3, *_CDNA4), layouts.smfmac, _MATRIX, sparse=True)
    for shape, a, b in product(((16, 16, 64), (32, 32, 32)), _BYTES, _BYTES):
        opcode = f"v_smfmac_f32_{_sized(*shape)}_{a}_{b}"
        for types, targets, behind in ((_TYPES, _CDNA3, ""), (_OCP, _CDNA4, " gfx950")):
            formats = ("f32", types[a], types[b])
            yield Row(opcode + behind, "v_smfmac", shape, formats, targets, layouts.smfmac, _MATRIX, sparse=True)


class _Generation(NamedTuple):
    """One of RDNA: its GPUs, the rule of its layouts, and the k of each instruction with integers."""

    targets: tuple[str, ...]
    fragments: Callable[[Any], dict[str, Layout]]
    deep: dict[str, tuple[int, ...]]


_THIRD = _Generation(_RDNA3, layouts.wmma_of_rdna3, {"iu8": (16,), "iu4": (16,)})
_FOURTH = _Generation(_RDNA4, layouts.wmma_of_rdna4, {"iu8": (16,), "iu4": (16, 32)})


def _wave_row(name: str, k: int, types: tuple[str, ...], generation: _Generation, text: str = "", **more: Any) -> Row:
    op = name.partition("_")[0]
    opcode = f"v_{name.replace('K', _sized(16, 16, k))}{text}"
    sparse = op == "swmmac"
    return Row(
        opcode, f"v_{op}", (16, 16, k), types, generation.targets, generation.fragments, _WAVE, lanes=layouts.WAVE32, sparse=sparse, **more
    )


def _wave_integers(op: str, generation: _Generation, deeper: int) -> Iterator[Row]:
    """Integers: neg_lo says which operands are signed, and clamp that results saturate."""
    for name, depths in generation.deep.items():
        bits = name.removeprefix("iu")
        for k, signs, clamp in product(depths, ("00", "10", "01", "11"), (False, True)):
            a, b = (f"{'s' if sign == '1' else 'u'}{bits}" for sign in signs)
            negated = f" neg_lo:[{signs[0]},{signs[1]},0]" if "1" in signs else ""
            text = negated + (" clamp" if clamp else "")
            yield _wave_row(f"{op}_i32_K_{name}", deeper * k, ("s32", a, b), generation, text, satfinite=clamp)


def _wave_rows(op: str, generation: _Generation) -> Iterator[Row]:
    deeper = 2 if op == "swmmac" else 1
    for d, a in (("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16")):
        yield _wave_row(f"{op}_{d}_K_{a}", 16 * deeper, (d, a, a), generation)
    yield from _wave_integers(op, generation, deeper)
    if generation is _FOURTH:
        for a, b in product(_BYTES, _BYTES):
            yield _wave_row(f"{op}_f32_K_{a}_{b}", 16 * deeper, ("f32", _OCP[a], _OCP[b]), generation)


def _rdna() -> Iterator[Row]:
    third = tuple(_wave_rows("wmma", _THIRD))
    names = {row.opcode for row in third}
    yield from third
    for row in (*_wave_rows("wmma", _FOURTH), *_wave_rows("swmmac", _FOURTH)):
        yield row._replace(opcode=f"{row.opcode} gfx12") if row.opcode in names else row


ROWS: tuple[Row, ...] = (*_dense_rows(), *_bytes_rows(), *_mixed_rows(), *_sparse_rows(), *_rdna())
