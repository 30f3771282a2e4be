"""Matrix products inside of attention's kernels: stacks of a head each, by the instructions of these kernels."""

from __future__ import annotations

import numpy as np

from fastmma.functions.attention.operands import Array, Floats
from fastmma.products.matmul import matmul

TARGET = "sm_90"
_STEP = 8  # k of an instruction
_TILE = 32  # k of a step of CUTLASS's main loop
_PASSES = 3
_DROPPED = 0x1FFF  # bits of a fraction that tf32 lacks
_ULP = 0x1000  # half a unit in the last place of tf32
_DEEP = {
    "bfloat16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "float16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
}
_SHALLOW = {
    "bfloat16": "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32",
    "float16": "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
    "float32": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
}

_WARPGROUP = {
    "bfloat16": "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",
    "float16": "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16",
}


def multiply_warpgroup(a: Array, b: Array, c: Floats | None = None) -> Floats:
    """``a @ b + c`` by the instruction of cuDNN's kernels, k ascending."""
    found: Floats = matmul(a, b, c=c, target="sm_90a", instruction=_WARPGROUP[a.dtype.name])
    return found


def multiply(a: Array, b: Array, c: Floats | None = None) -> Floats:
    """``a @ b + c`` by flash attention's instruction, k ascending."""
    found: Floats = matmul(a, b, c=c, target=TARGET, instruction=_DEEP[a.dtype.name])
    return found


def residue_first(array: Array, axis: int) -> Array:
    """Let what k has beyond whole tiles come first, in a tile of its own, as CUTLASS's iterators over global memory do."""
    residue = array.shape[axis] % _TILE
    if residue in (0, array.shape[axis]):
        return array
    first, rest = np.split(array, [residue], axis)
    shape = list(first.shape)
    shape[axis] = _TILE - residue
    return np.concatenate([first, np.zeros(shape, array.dtype), rest], axis)


def multiply_rows(a: Array, b: Array) -> Floats:
    """Multiply rows of a by rows of b (both: k is the last dimension), which CUTLASS reads from global memory."""
    return multiply_tiles(residue_first(a, 2), residue_first(b, 2).transpose(0, 2, 1))


def multiply_tiles(a: Array, b: Array, c: Floats | None = None) -> Floats:
    """``a @ b + c`` by the instruction of CUTLASS's kernels, k ascending.

    float32 is multiplied in three passes of tf32. Their sums are added to the result after the first 8 k of every 32, and at the end.
    """
    instruction = _SHALLOW[a.dtype.name]
    if a.dtype != np.float32:
        found: Floats = matmul(a, b, c=c, target=TARGET, instruction=instruction)
        return found
    # so many zeros before that sums join the result at multiples of 32
    first, second = _passes(a, (1, 0, 0)), _passes(b.transpose(0, 2, 1), (0, 1, 0)).transpose(0, 2, 1)
    total = c
    for start in range(0, first.shape[2], _TILE * _PASSES):
        part = slice(start, start + _TILE * _PASSES)
        sums = matmul(first[..., part], second[:, part], target=TARGET, instruction=instruction)
        total = sums if total is None else total + sums
    assert total is not None
    return total


def _passes(rows: Array, small: tuple[int, ...]) -> Floats:
    """Lay out k for the passes of each instruction: the leading bits of a number, or what is left of it where `small` says so."""
    heads, count, depth = rows.shape
    padded = np.zeros((heads, count, _TILE - _STEP + -(-depth // _STEP) * _STEP), np.float32)
    padded[..., _TILE - _STEP : _TILE - _STEP + depth] = rows
    big = (padded.view(np.int32) & ~_DROPPED).view(np.float32)
    rest = ((padded - big).view(np.int32) + _ULP).view(np.float32)
    steps = [(rest if low else big).reshape(heads, count, -1, _STEP) for low in small]
    return np.stack(steps, 3).reshape(heads, count, -1)
