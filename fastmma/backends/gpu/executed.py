"""The instruction of a GPU that computes what an operation of another one does, by the tables."""

from __future__ import annotations

from functools import lru_cache

from fastmma.backends.call import Operation
from fastmma.host.errors import FastmmaError
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiplications
from fastmma.isa.targets import from_base
from fastmma.numerics.lookup import arithmetic
from fastmma.numerics.methods import METHODS

# formats of integers and bits, and those that hold their elements
_HELD_AS = {"s4": "s8", "u4": "u8", "b1": "s8"}
_STEP_BITS = (128, 256)  # of a line, which the kernel packs for one instruction
# those of a warp, and that of a warpgroup, which 8-bit floats need: its sums are shorter than those of a warp
_SHAPES = (("mma", 16, 8), ("wgmma", 64, 128))
# GPUs that copy to shared memory without waiting, as the kernel does
_MACHINES = frozenset(from_base("sm_80"))


@lru_cache(1024)
def executed(operation: Operation, target: str) -> Instruction | None:
    """The deepest ``mma`` of m16n8, or ``wgmma`` of m64n128, on a target that gives products the bits of an operation, or None.

    Parameters
    ----------
    operation : Operation
        What is to be computed, of any target.
    target : str
        What executes it.

    Examples
    --------
    >>> from fastmma.backends.resolve import operation_of
    >>> f16 = operation_of("tcgen05.mma.cta_group::1.kind::f16 idesc=0x08400010", "sm_100a")
    >>> str(executed(f16, "sm_90a"))
    'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32'
    >>> executed(f16, "sm_80") is None
    True
    """
    found = [ins for ins in _candidates(target) if _computes(ins, operation, target)]
    return max(found, key=lambda ins: ins.k, default=None)


@lru_cache(64)
def _candidates(target: str) -> tuple[Instruction, ...]:
    """Return what the kernel can execute."""
    return tuple(
        ins
        for ins in (multiplications(target) if target in _MACHINES else ())
        if (ins.op, ins.m, ins.n) in _SHAPES
        and ins.lanes % 32 == 0
        and not ins.sparse
        and not ins.scale_vec_size
        and ins.ctype == ins.dtype
        and ins.k * ins.formats.a.bits in _STEP_BITS
        and ins.formats.a.bits >= 8
        and (ins.op == "mma" or (ins.formats.a.bits == 8 and ins.formats.a.kind == "float"))
    )


def _computes(ins: Instruction, operation: Operation, target: str) -> bool:
    """Tell whether an instruction of the target has the bits of an operation."""
    wanted, row = operation.instruction, operation.arithmetic
    if operation.own or ins.ctype != wanted.ctype or ins.dtype != wanted.dtype:
        return False
    exact = METHODS[row.method].exact  # sums have the same bits whatever zeros are added
    types = ((_HELD_AS.get(name, name) if exact else name) for name in (wanted.atype, wanted.btype))
    if (ins.atype, ins.btype) != tuple(types) or ins.satfinite != wanted.satfinite:
        return False
    if exact:
        return not ins.satfinite or (ins.k == wanted.k and not wanted.sparse)
    if wanted.sparse or wanted.scale_vec_size or ins.rounding != wanted.rounding or wanted.k % ins.k:
        return False
    try:
        own = arithmetic(ins, target)
    except FastmmaError:  # what the target computes is not known, or refused
        return False
    lowered = row.split == 0 or ins.k == wanted.k
    return lowered and own.numbers == row.numbers and not row.native_c
