"""Scaled products of tensors on a GPU: elements and scales are read where they lie, and a plan is chosen by what they look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.products.plan import AccumulationPlan
from fastmma.products.resident import resident_scaled_product
from fastmma.products.scaled_operands import ScaledOperand
from fastmma.scaling import ScaledArray
from fastmma.torch import on_gpu
from fastmma.torch.arrays import DTYPES, E2M1_PAIRS
from fastmma.torch.plans import InvalidError, UnknownError
from fastmma.torch.recipes import SWIZZLING, Blocks, blocks_of

_ROWS, _COLUMNS, _GROUP = 128, 4, 32  # of a tile of swizzled scales; rows whose scales stand one line of the tile apart


class PlacedOperand(NamedTuple):
    """An operand (outer, K) of a scaled product on a GPU.

    Attributes
    ----------
    described : ScaledArray
        Of the same scheme, shapes and dtypes, whose elements and scales are nobody's: plans are chosen by it.
    codes : Tensor (outer, K) of uint8
    scales : Tensor (blocks of rows, blocks of K)
        float32, or codes of one byte.
    overall : Tensor () of float32, or None
        The scale of the whole tensor, where there are two levels.
    """

    described: ScaledArray
    codes: Tensor
    scales: Tensor
    overall: Tensor | None


def placed_operand(elements: Tensor, scales: Sequence[Tensor], recipe: int, swizzled: bool) -> PlacedOperand:
    """`fastmma.torch.recipes.scaled_operand` of tensors on a GPU; of NVFP4, it waits for the answer whether a scale is negative.

    Raises
    ------
    UnknownError
        If there is no such recipe for these elements, or no CuPy.
    InvalidError
        If the tensors lie on several devices.
    OperandError, OperandTypeError
        If elements and scales do not go together.
    """
    if not on_gpu.available():
        raise UnknownError("tensors on a GPU need CuPy, which the extras cuda12 and cuda13 install")
    if any(each.device != elements.device for each in scales):
        raise InvalidError(f"scales on {', '.join(str(each.device) for each in scales)} and elements on {elements.device}")
    codes = _codes(elements)
    shape = codes.shape[0], codes.shape[1]
    blocks = blocks_of(elements.dtype, shape, recipe)
    placed, overall = _placed(scales[0], blocks, swizzled and recipe in SWIZZLING), None
    if blocks.row.two_level:
        overall = scales[1].detach().to(torch.float32).reshape(()) if len(scales) > 1 else elements.new_ones((), dtype=torch.float32)
        if bool((placed >> 7).any() | (overall < 0)):
            raise OperandError(f"scales of {blocks.row.name} must not be negative")
    paired = elements.dtype is E2M1_PAIRS
    array = np.broadcast_to(np.zeros((), blocks.row.element_format.dtype), shape) if paired else _described(elements)
    described = np.broadcast_to(np.zeros((), blocks.row.scale_format.dtype), blocks.places)
    stands = ScaledArray(array, described, blocks.block, 1, None if overall is None else np.float32(1), blocks.row.name)
    return PlacedOperand(stands, codes, placed, overall)


def _described(tensor: Tensor) -> NDArray[Any]:
    """An array of the dtype, the shape, the strides and the alignment of a tensor, whose elements are nobody's."""
    dtype, offset = DTYPES[tensor.dtype], tensor.data_ptr() % 16
    memory = np.empty(64, np.uint8)
    start = -memory.ctypes.data % 16 + offset
    first = memory[start : start + dtype.itemsize].view(np.dtype(f"u{dtype.itemsize}"))  # as_strided does not know ml_dtypes
    strides = tuple(step * dtype.itemsize for step in tensor.stride())
    return np.lib.stride_tricks.as_strided(first, tuple(tensor.shape), strides, writeable=False).view(dtype)


def _codes(elements: Tensor) -> Tensor:
    """Codes of elements; pairs of e2m1 are taken apart."""
    found = elements.detach().view(torch.uint8)
    if elements.dtype is not E2M1_PAIRS:
        return found
    axis = int(found.stride(1) < found.stride(0))  # along which they lie
    shape = [extent * (1 + (place == axis)) for place, extent in enumerate(found.shape)]
    return torch.stack([found & 15, found >> 4], dim=axis + 1).reshape(shape)


def _placed(scales: Tensor, blocks: Blocks, swizzled: bool) -> Tensor:
    """Scales one for each block: float32, or codes."""
    rows, columns = blocks.places
    dtype = DTYPES.get(scales.dtype)
    if dtype != blocks.row.scale_format.dtype:
        raise OperandTypeError(f"scales of {blocks.row.name} must have dtype {blocks.row.scale_format.dtype}, not {scales.dtype}")
    plain = scales.detach()
    if scales.dtype is not torch.float32:
        plain = plain.view(torch.uint8)
    if blocks.padded:
        plain = plain[:rows, :columns]
    down, across = -(-rows // _ROWS), -(-columns // _COLUMNS)
    wanted = down * _ROWS * across * _COLUMNS if swizzled else rows * columns
    if plain.numel() != wanted:
        raise OperandError(f"scales of {blocks.row.name} must be {wanted} for {rows} x {columns} blocks, not {plain.numel()}")
    if not swizzled:
        return plain.reshape(rows, columns)
    tiles = plain.reshape(down, across, _GROUP, _ROWS // _GROUP, _COLUMNS).permute(0, 3, 2, 1, 4)
    return tiles.reshape(down * _ROWS, across * _COLUMNS)[:rows, :columns]


def multiplied(plan: AccumulationPlan, a: PlacedOperand, b: PlacedOperand, out: torch.dtype, bias: Tensor | None) -> Tensor:
    """The product of a (M, K) and b (N, K) by a plan."""
    factors = [each.overall for each in (a, b) if each.overall is not None]
    alpha = None if not factors else (factors[0] if len(factors) == 1 else factors[0] * factors[1]).reshape(1, 1)
    row = None if bias is None else bias.detach().to(torch.float32).resolve_neg()
    given = {"alpha": alpha, "bias": row}
    with on_gpu.on_stream(a.codes.device):
        x, y = (_read(each) for each in (a, b))
        y = ScaledOperand(y.codes.T, y.scales.T, y.block[::-1], y.scheme)
        ends = {name: on_gpu.array_of(each) for name, each in given.items() if each is not None}
        return on_gpu.tensor_of(resident_scaled_product(on_gpu.backend(), plan, x, y, **ends), out)


def _read(operand: PlacedOperand) -> ScaledOperand:
    """The operand as arrays of the GPU."""
    described = operand.described
    block = described.block[0], described.block[1]
    return ScaledOperand(on_gpu.array_of(operand.codes), on_gpu.array_of(operand.scales), block, described.row)
