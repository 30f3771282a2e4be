"""The names that CuTe (CUTLASS 4) has for instructions: its MMA atoms, and the copy atoms of matrices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastmma.isa.instruction import Instruction, Movement

_MAJOR = {"row": "T", "col": "N", "": ""}  # in BLAS's letters
_CLASSES = {
    "f16": "half_t",
    "bf16": "bfloat16_t",
    "tf32": "tfloat32_t",
    "f32": "float",
    "s8": "int8_t",
    "u8": "uint8_t",
    "s32": "int32_t",
    **{name: f"float_{name}_t" for name in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "ue8m0", "ue4m3")},
}
_F8 = ("e4m3", "e5m2")
_TWO_BYTES = ("f16", "bf16")


@dataclass(frozen=True)
class _Row:
    """One way of naming: a pattern, and the instructions that it names, by their fields; the first row that fits names one."""

    op: str
    patterns: tuple[str, ...]
    types: Collection[str] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, ins: Instruction | Movement) -> bool:
        typed = not self.types or (isinstance(ins, Instruction) and {ins.atype, ins.btype} <= set(self.types))
        return ins.op == self.op and typed and all(getattr(ins, name) in values for name, values in self.fields.items())


def _mma(pattern: str, types: Collection[str], **fields: Collection[Any]) -> _Row:
    return _Row("mma", (pattern,), types, {"sparse": ("",), "kind": ("",), "rounding": ("",), **fields})


def _pair(pattern: str, op: str, types: Collection[str], sources: str = "SR", **fields: Collection[Any]) -> _Row:
    """A in shared memory, and A in registers (R) or in Tensor Memory (T)."""
    return _Row(op, tuple(pattern.replace("?", f"{source}S") for source in sources), types, fields)


def _plain(op: str, pattern: str, **fields: Collection[Any]) -> _Row:
    return _Row(op, (pattern,), (), fields)


_DENSE, _SPARSE, _ORDERED = ("",), ("sp",), ("sp::ordered_metadata",)
_INTEGERS = ("s8", "u8", "s4", "u4")
_GMMA = "64x{n}x{k}_{D}{A}{B}_?"


def _tcgen05(name: str, kind: str, sources: str = "ST", sparse: Collection[str] = _DENSE, **fields: Collection[Any]) -> _Row:
    pattern = f"SM100_MMA_{name}{{two}}_?{'_SPARSE' if sparse == _SPARSE else ''}<{{a}}, {{b}}, {{d}}, {{more}}...>"
    return _pair(pattern, "tcgen05", (), sources, kind=(kind,), sparse=sparse, ws=(False,), **fields)


_ROWS = (
    _mma("SM70_{shape}_{D}{A}{B}{C}_{majors}", ("f16",), shape=("m8n8k4",), dtype=("f16",)),
    _mma("SM70_{shape}_{D}{A}{B}{C}_{majors}", ("f16",), shape=("m8n8k4",), ctype=("f32",)),
    _mma("SM75_{shape}_{D}{A}{B}{C}_TN", ("f16",), shape=("m16n8k8",)),
    _mma("SM75_{shape}_{D}{A}{B}{C}_TN", ("s8",), shape=("m8n8k16",), satfinite=(False,)),
    _mma("SM80_{shape}_{D}{A}{B}{C}_TN", ("f16", "bf16", "tf32"), shape=("m16n8k4", "m16n8k8", "m16n8k16")),
    _mma("SM80_{shape}_{D}{A}{B}{C}_TN{sat}", _INTEGERS),
    _mma("SM80_{shape}_{D}U1U1{C}_TN_{BIT}POPC", ("b1",)),
    _mma("SM80_{shape}_{D}{A}{B}{C}_TN", ("f64",), shape=("m8n8k4",), rounding=("rn",)),
    _mma("SM90::MMA_{shape}_{D}{A}{B}{C}_TN", ("f64",), rounding=("rn",)),
    _mma("SM89_{shape}_{D}{A}{B}{C}_TN", _F8, shape=("m16n8k32",)),
    _plain("mma", "SM120_{shape}_TN<{a}, {b}, {d}>", kind=("f8f6f4",), sparse=_DENSE, shape=("m16n8k32",)),
    _plain("mma", "SM120::BLOCKSCALED::SM120_{shape}_TN_VS<{a}, {b}, {d}, {s}, {vs}>", kind=("mxf8f6f4", "mxf4nvf4"), sparse=_DENSE),
    _plain("mma", "SM120::SPARSE::SM120_SPARSE_{shape}_TN<{a}, {b}, {d}>", kind=("f8f6f4",), sparse=_ORDERED),
    _plain(
        "mma",
        "SM120::BLOCKSCALED::SPARSE::SM120_SPARSE_{shape}_TN_VS<{a}, {b}, {d}, {s}, {vs}>",
        kind=("mxf8f6f4", "mxf4nvf4"),
        sparse=_ORDERED,
    ),
    _pair(f"SM90::GMMA::MMA_{_GMMA}", "wgmma", _TWO_BYTES, sparse=_DENSE),
    _pair(f"SM90::GMMA::MMA_{_GMMA}_TN{{sat}}", "wgmma", ("tf32", *_F8, "s8", "u8"), sparse=_DENSE),
    _pair(f"SM90::GMMA::SPARSE::GMMA_{_GMMA}", "wgmma", _TWO_BYTES, sparse=_SPARSE),
    _pair(f"SM90::GMMA::SPARSE::GMMA_{_GMMA}_TN{{sat}}", "wgmma", ("tf32", *_F8, "s8", "u8"), sparse=_SPARSE),
    *(_tcgen05(name, kind) for name, kind in (("F16BF16", "f16"), ("TF32", "tf32"), ("S8", "i8"), ("F8F6F4", "f8f6f4"))),
    *(
        _tcgen05(name, kind, "S", _SPARSE)
        for name, kind in (("F16BF16", "f16"), ("TF32", "tf32"), ("S8", "i8"), ("F8F6F4", "f8f6f4"), ("MXF8F6F4", "mxf8f6f4"))
    ),
    _tcgen05("MXF8F6F4", "mxf8f6f4", "S"),
    _tcgen05("MXF4", "mxf4", "S", k=(64,)),
    _tcgen05("MXF4", "mxf4nvf4", "S", k=(64,), scale_vec_size=(4,)),
    _tcgen05("MXF4NVF4", "mxf4", "S", _SPARSE, k=(128,)),
    _tcgen05("MXF4NVF4", "mxf4nvf4", "S", _SPARSE, k=(128,), scale_vec_size=(4,)),
    _plain("ldmatrix", "SM75_U32x{num}_LDSM_N", rows=(8,), cols=(8,), trans=(False,)),
    _plain("ldmatrix", "SM75_U16x{halves}_LDSM_T", rows=(8,), cols=(8,), trans=(True,)),
    _plain("ldmatrix", "SM100_U8x{bytes}_LDSM_T", rows=(16,), source_bits=(8,)),
    _plain("ldmatrix", "SM100_SU{source}_DU8x16_x{num}_LDSM_N", rows=(8,), cols=(16,), ptx=((8, 6),)),
    _plain("stmatrix", "SM90_U32x{num}_STSM_N", rows=(8,), cols=(8,), trans=(False,)),
    _plain("stmatrix", "SM90_U16x{halves}_STSM_T", rows=(8,), cols=(8,), trans=(True,)),
    _plain("stmatrix", "SM100_U8x{bytes}_STSM_T", rows=(16,)),
    _plain("movmatrix", "SM75_U32x1_MOVM_T"),
)


def atoms(ins: Instruction | Movement) -> tuple[str, ...]:
    """CuTe's names of an instruction: one, two where A may lie in shared memory or not, or none where CuTe has no atom for it.

    Templates are written with their types; those of tcgen05 go on behind M and N with majors and signs, which ``...`` stands for.

    Examples
    --------
    >>> from fastmma.isa.table import instruction
    >>> atoms(instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"))
    ('SM80_16x8x16_F32F16F16F32_TN',)
    >>> atoms(instruction("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"))
    ('SM90::GMMA::MMA_64x256x16_F32F16F16_SS', 'SM90::GMMA::MMA_64x256x16_F32F16F16_RS')
    """
    found = next((row for row in _ROWS if row.fits(ins)), None)
    return () if found is None else tuple(pattern.format(**_words(ins)) for pattern in found.patterns)


def _words(ins: Instruction | Movement) -> dict[str, Any]:
    """Return what patterns are filled with: letters in capitals as in names, small ones for template parameters."""
    if isinstance(ins, Movement):
        size = ins.registers * 4
        return {"num": ins.num, "halves": size // 2, "bytes": size, "source": ins.source_bits}
    types = {"a": ins.atype, "b": ins.btype, "c": ins.ctype, "d": ins.dtype, "s": ins.stype}
    vector = ins.k // ins.scale_vec_size if ins.scale_vec_size else 0
    more = [_CLASSES.get(ins.stype, ""), str(ins.m), str(ins.n), str(vector) if ins.kind.startswith("mxf4") else ""]
    return {
        "shape": ins.shape[1:].replace("n", "x").replace("k", "x"),
        "n": ins.n,
        "k": ins.k,
        **{name.upper(): kind.upper() for name, kind in types.items()},
        **{name: _CLASSES.get(kind, kind) for name, kind in types.items()},
        "majors": _MAJOR[ins.alayout] + _MAJOR[ins.blayout],
        "sat": "_SATURATE" if ins.satfinite else "",
        "BIT": ins.bit_op.upper(),
        "vs": vector,
        "two": "_2x1SM" if ins.cta_group == 2 else "",
        "more": "".join(f"{each}, " for each in more if each),
    }
