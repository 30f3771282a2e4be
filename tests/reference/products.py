"""Matrix products built from single instructions, and adversarial matrices of codes to multiply."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma import FORMATS, Instruction, ScaledArray, scaled_matmul
from fastmma.isa.codes import from_codes
from fastmma.verification import inputs

Codes = NDArray[Any]


def elements(codes: Codes, fmt: str) -> NDArray[Any]:
    """Codes as an array of the format's dtype."""
    return from_codes(codes.astype(FORMATS[fmt].code_dtype), fmt)


def bits(array: NDArray[Any]) -> Codes:
    """The bits of an array of results."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def both(a: ScaledArray, b: ScaledArray, **options: Any) -> NDArray[Any]:
    """The scaled product, after the reference has given the same bits."""
    found = scaled_matmul(a, b, **options)
    np.testing.assert_array_equal(bits(found), bits(scaled_matmul(a, b, backend="reference", **options)))
    return found


# distributions of `fastmma.verification.inputs` by other names
_NAMES = {"finite": "finite edges", "near": "mid", "huge": "big"}


def random_codes(generator: np.random.Generator, fmt: str, shape: tuple[int, ...], distribution: str) -> Codes:
    """Codes of a distribution: "bits", "special", "finite" (specials that are), "zero", "near" (one), "tiny", "huge" or "cancel"."""
    if FORMATS[fmt].kind != "float":
        distribution = "bits" if distribution in ("bits", "near") else "edges"
    return inputs.codes(fmt, _NAMES.get(distribution, distribution), int(np.prod(shape)), generator).reshape(shape)


def _tiles(codes: Codes, rows: int, cols: int) -> Codes:
    """Zero-padded (tile rows, tile columns, rows, cols)."""
    padded = np.pad(codes, ((0, -codes.shape[0] % rows), (0, -codes.shape[1] % cols)))
    return padded.reshape(padded.shape[0] // rows, rows, padded.shape[1] // cols, cols).swapaxes(1, 2)


def _registers(tiles: Codes, ins: Instruction, name: str) -> Codes:
    operand = ins.operands[name]
    dtype = np.dtype(f"u{max(8, operand.layout.bits) // 8}")
    tiles = tiles.astype(dtype)
    if operand.layout.tiles > 1:  # the same product in every computation of the warp
        tiles = np.repeat(tiles[..., None, :, :], operand.layout.tiles, axis=-3)
    return fastmma.scatter(tiles, operand, kind=ins.kind)


def looped(ins: Instruction, target: str, a: Codes, b: Codes, c: Codes | None) -> Codes:
    """The instruction over k in ascending order, D fed back as C, at register level (wgmma, whose B is not in registers: on tiles)."""
    m, n = a.shape[0], b.shape[1]
    dtype = FORMATS[ins.dtype].code_dtype
    total = _tiles(np.zeros((m, n), dtype) if c is None else c, ins.m, ins.n)
    left, right = _tiles(a, ins.m, ins.k), _tiles(b, ins.k, ins.n)
    for step in range(left.shape[1]):
        x, y = left[:, step, None], right[None, step]
        if ins.op == "wgmma":
            inputs = elements(x, ins.atype), elements(y, ins.btype), elements(total, ins.ctype)
            total = bits(fastmma.mma(ins, *inputs, target=target))
            continue
        registers = _registers(x, ins, "a"), _registers(y, ins, "b"), _registers(total, ins, "c")
        result = fastmma.gather(fastmma.warp.mma(ins, *registers, target=target), ins.operands["d"], kind=ins.kind)
        total = (result[..., 0, :, :] if ins.tiles > 1 else result).astype(dtype)
    return total.swapaxes(1, 2).reshape(total.shape[0] * ins.m, total.shape[1] * ins.n)[:m, :n]
