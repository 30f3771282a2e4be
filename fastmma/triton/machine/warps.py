"""What the threads of a warp or a warpgroup do together: exchanges, votes, matrices in shared memory, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma.triton.machine.state import State

Array = NDArray[Any]
_LANES = 32


def by_warp(state: State, values: Array) -> Array:
    """Return values as (blocks, warps, lanes)."""
    return np.ascontiguousarray(state.full(values)).reshape(state.blocks, -1, _LANES)


def exchange(state: State, mode: str, values: Array, other: Array, control: Array) -> tuple[Array, Array]:
    """Return the values of other lanes, and whether there is such a lane, ``shfl.sync``."""
    held, b, c = (by_warp(state, one) for one in (values, other, control))
    lanes = np.arange(_LANES)
    segment, clamp = c.astype(np.int64) >> 8 & 31, c.astype(np.int64) & 31
    highest = (lanes & segment) | (clamp & ~segment & 31)
    lowest = lanes & segment
    b = b.astype(np.int64) & 31
    if mode == "up":
        source = lanes - b
        inside = source >= highest  # whose clamp is the lowest lane
    elif mode == "down":
        source = lanes + b
        inside = source <= highest
    elif mode == "bfly":
        source = lanes ^ b
        inside = source <= highest
    else:
        source = lowest | (b & ~segment)
        inside = source <= highest
    source = np.where(inside, source, lanes)
    found = np.take_along_axis(held, source, -1)
    shape = (state.blocks, state.threads)
    return found.reshape(shape), np.broadcast_to(inside, held.shape).reshape(shape)


def reduce(state: State, name: str, values: Array) -> Array:
    """Return the sum, or another reduction, of integers over each warp, ``redux.sync``."""
    held = by_warp(state, values)
    function: Any = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[name]
    found = function.reduce(held, axis=-1, keepdims=True, **({"dtype": held.dtype} if name == "add" else {}))
    return np.broadcast_to(found, held.shape).reshape(state.blocks, state.threads)


def reduce_in_pairs(state: State, join: Callable[[Array, Array], Array], values: Array) -> Array:
    """Return what an operation that may join values in any order makes of those of each warp, ``redux.sync`` of floats."""
    held = by_warp(state, values)
    shape = held.shape
    while held.shape[-1] > 1:
        held = join(held[..., ::2], held[..., 1::2])
    return np.broadcast_to(held, shape).reshape(state.blocks, state.threads)


def vote(state: State, mode: str, values: Array, active: Array) -> Array:
    """Return what the lanes of a warp say together, ``vote.sync``."""
    held, present = by_warp(state, values), by_warp(state, active)
    if mode == "ballot":
        weights = np.left_shift(np.uint32(1), np.arange(_LANES, dtype=np.uint32))
        found = np.where(held & present, weights, np.uint32(0)).sum(-1, keepdims=True, dtype=np.uint32)
    elif mode == "any":
        found = (held & present).any(-1, keepdims=True)
    elif mode == "all":
        found = (held | ~present).all(-1, keepdims=True)
    else:
        said = [(held == value) | ~present for value in (False, True)]
        found = said[0].all(-1, keepdims=True) | said[1].all(-1, keepdims=True)
    return np.broadcast_to(found, held.shape).reshape(state.blocks, state.threads)


def _rows_of_matrices(state: State, addresses: Array, number: int) -> Array:
    """Return the places of the rows of matrices as (blocks, warps, matrices, 8)."""
    return by_warp(state, addresses).astype(np.int64)[..., : 8 * number].reshape(state.blocks, -1, number, 8)


def load_matrices(state: State, addresses: Array, number: int, *, transposed: bool) -> list[Array]:
    """Load matrices of 8 x 8 elements of 16 bits into the registers of warps, ``ldmatrix``."""
    rows = _rows_of_matrices(state, addresses, number)
    blocks = np.arange(state.blocks)[:, None, None, None]
    lanes = np.arange(_LANES)
    if transposed:
        units = state.shared.view(np.uint16)
        parts = [
            units[blocks, rows[..., 2 * (lanes % 4) + index] // 2 + lanes // 4].astype(np.uint32) << np.uint32(16 * index)
            for index in (0, 1)
        ]
        held = parts[0] | parts[1]
    else:
        held = state.shared.view(np.uint32)[blocks, rows[..., lanes // 4] // 4 + lanes % 4]
    return [held[:, :, index].reshape(state.blocks, state.threads) for index in range(number)]


def store_matrices(state: State, addresses: Array, values: list[Array], *, transposed: bool) -> None:
    """Store matrices from the registers of warps, ``stmatrix``; of lanes that store to one place the lowest leaves its value."""
    number = len(values)
    rows = _rows_of_matrices(state, addresses, number)
    blocks = np.arange(state.blocks)[:, None, None, None]
    lanes = np.arange(_LANES)[::-1]
    held = np.stack([by_warp(state, one) for one in values], 2)[..., ::-1]
    if transposed:
        units = state.shared.view(np.uint16)
        for index in (0, 1):
            places = rows[..., 2 * (lanes % 4) + index] // 2 + lanes // 4
            units[blocks, places] = (held >> np.uint32(16 * index)).astype(np.uint16)
    else:
        state.shared.view(np.uint32)[blocks, rows[..., lanes // 4] // 4 + lanes % 4] = held


def transpose(state: State, opcode: str, values: Array) -> Array:
    """Transpose an 8 x 8 matrix of 16-bit elements across the registers of each warp, ``movmatrix``."""
    return fastmma.warp.movmatrix(opcode, by_warp(state, values)).reshape(state.blocks, state.threads)


def _by_lane(state: State, registers: list[Array], lanes: int) -> Array:
    """Put registers together as (groups, lanes, registers)."""
    full = np.empty((state.blocks, state.threads, len(registers)), registers[0].dtype)
    for index, one in enumerate(registers):
        full[..., index] = one
    return full.reshape(-1, lanes, len(registers))


def multiply(state: State, opcode: str, a: list[Array], b: list[Array], c: list[Array]) -> list[Array]:
    """Multiply the matrices of each warp, ``mma.sync``."""
    operands = [_by_lane(state, one, _LANES) for one in (a, b, c)]
    d = fastmma.warp.mma(opcode, *operands, target=state.target).reshape(state.blocks, state.threads, -1)
    return [d[..., index] for index in range(d.shape[-1])]


def multiply_by_warpgroup(
    state: State, opcode: str, d: list[Array], a: list[Array] | Array, b: Array, starts: Array, options: dict[str, Any]
) -> list[Array]:
    """Multiply the matrices of each warpgroup, ``wgmma.mma_async``: of a and b in shared memory by their descriptors."""
    groups = state.threads // 128
    shape = (state.blocks, groups, 128)
    held = _by_lane(state, d, 128).reshape(*shape, len(d))
    before = [np.ascontiguousarray(state.full(one)).reshape(shape)[..., 0] for one in (b, starts)]
    in_registers = isinstance(a, list)
    left = (
        _by_lane(state, a, 128).reshape(*shape, len(a))
        if isinstance(a, list)
        else np.ascontiguousarray(state.full(a)).reshape(shape)[..., 0]
    )
    keys = np.stack([before[0], before[1].astype(np.uint64), before[0] if in_registers else left], -1)
    result = np.empty_like(held)
    for group in range(groups):
        for key in np.unique(keys[:, group], axis=0):
            chosen = (keys[:, group] == key).all(-1)
            result[chosen, group] = fastmma.warpgroup.mma(
                opcode,
                held[chosen, group],
                left[chosen, group] if in_registers else int(key[2]),
                int(key[0]),
                target=state.target,
                memory=state.shared[chosen],
                scale_d=int(key[1]),
                **options,
            )
    flat = result.reshape(state.blocks, state.threads, -1)
    return [flat[..., index] for index in range(flat.shape[-1])]
