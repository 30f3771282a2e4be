"""Sizes that torch 2.11 chooses for attention on a GPU of compute capability 9.0: blocks of queries and keys, and parts of the keys.

Those of flash attention are flash-attention's launch templates, those of memory-efficient attention the first kernel of
xFormers' table that serves a call. The number of parts comes from the number of streaming multiprocessors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

PROCESSORS = 132  # streaming multiprocessors of an H100 or H200
CUDNN_KEYS = 128  # of a block of cuDNN's kernels
CUDNN_ONE_KEYS = 64  # of a block of its forward kernel for one query
CUDNN_MOST_KEYS_OF_ONE, CUDNN_MOST_HEADS_OF_ONE = 256, 64  # that this kernel takes

_FILLED = np.float32(float.fromhex("0x1.99999a0000000p-1"))  # 0.8 of the room for blocks: with so many, one part is enough
_EFFICIENT = float.fromhex("0x1.b333333333333p-1")  # 0.85 of the best efficiency
_MOST_PARTS = 128
_SPLIT_ROWS = 64
_FEW, _MANY = 200, 256  # heads of all batches


class Flash(NamedTuple):
    """Sizes of flash attention's kernels for a head dimension."""

    keys: int  # of a block of the forward kernel
    kept_keys: int  # the same with dropout
    split_keys: int  # the same where the keys are in parts
    backward_queries: int
    backward_keys: int


FLASH = {
    32: Flash(128, 128, 256, 128, 128),
    64: Flash(128, 64, 256, 128, 128),
    96: Flash(64, 64, 128, 64, 128),
    128: Flash(64, 32, 128, 64, 128),
    192: Flash(64, 64, 64, 64, 64),
    256: Flash(64, 64, 64, 64, 64),
}


class Efficient(NamedTuple):
    """Sizes of memory-efficient attention's kernels for head dimensions up to one."""

    keys: int  # of a block of the forward kernel
    in_registers: bool  # results stay there from block to block
    backward_queries: int
    backward_keys: int
    sums: str  # where gradients of keys and values are from block to block: in "registers", a "workspace", or the rounded "result"


_ANY = 1 << 16
EFFICIENT = {
    16: {
        64: Efficient(64, True, 64, 64, "registers"),
        128: Efficient(128, True, 128, 128, "registers"),
        _ANY: Efficient(128, False, 128, 64, "workspace"),
    },
    32: {
        64: Efficient(64, True, 64, 64, "result"),
        128: Efficient(128, True, 128, 64, "result"),
        _ANY: Efficient(128, False, 128, 64, "result"),
    },
}
STORED_QUERIES = 32  # of a block of the forward kernel whose results are not in registers


def round_dimension(dimension: int) -> int:
    """Return the head dimension of the flash kernels that serve this one.

    Examples
    --------
    >>> round_dimension(72), round_dimension(160)
    (96, 192)
    """
    return next(size for size in FLASH if dimension <= size)


def efficient_sizes(bits: int, dimension: int) -> Efficient:
    """Return the sizes of memory-efficient attention for operands of so many bits."""
    return next(sizes for most, sizes in EFFICIENT[bits].items() if dimension <= most)


def count_parts(queries: int, keys: int, dimension: int, heads: int, processors: int = PROCESSORS) -> int:
    """Return into how many parts flash attention's forward kernel divides the keys.

    Parameters
    ----------
    queries, keys, dimension : int
    heads : int
        Of all batches.
    processors : int
        Streaming multiprocessors of the GPU.

    Examples
    --------
    >>> count_parts(513, 513, 64, 1), count_parts(513, 513, 64, 64)
    (3, 1)
    """
    tasks = heads * -(-queries // _SPLIT_ROWS)
    room = 2 * processors
    if tasks >= _FILLED * np.float32(room):
        return 1
    blocks = -(-keys // FLASH[round_dimension(dimension)].split_keys)
    efficiency = {}
    for parts in range(1, min(_MOST_PARTS, room, blocks) + 1):
        if parts == 1 or -(-blocks // parts) != -(-blocks // (parts - 1)):
            waves = np.float32(tasks * parts) / np.float32(room)
            efficiency[parts] = float(waves / np.float32(math.ceil(waves)))
    best = max(efficiency.values(), default=0.0)
    return next((parts for parts, found in efficiency.items() if found >= _EFFICIENT * best), 1)


def cut_keys(keys: int, dimension: int, parts: int) -> tuple[int, ...]:
    """Return where the parts begin into which flash attention's forward kernel divides the keys.

    Examples
    --------
    >>> cut_keys(513, 64, 1), cut_keys(513, 64, 3)
    ((0,), (0, 256, 512))
    """
    if parts == 1:
        return (0,)
    size = FLASH[round_dimension(dimension)].split_keys
    blocks = math.ceil(keys / size)
    return tuple(range(0, keys, math.ceil(blocks / parts) * size))


def count_key_splits(keys: int, heads: int, sizes: Efficient) -> int:
    """Return how many blocks of threads of memory-efficient attention's backward kernel share the keys of a head.

    Parameters
    ----------
    keys : int
    heads : int
        Of all batches.
    sizes : Efficient

    Examples
    --------
    >>> count_key_splits(300, 4, efficient_sizes(16, 64)), count_key_splits(100, 256, efficient_sizes(16, 64))
    (5, 1)
    """
    splits = -(-keys // sizes.backward_keys)
    if heads >= _MANY and keys <= 2 * sizes.backward_keys:
        return 1
    if sizes.sums == "workspace":
        splits = min(splits, _FEW // heads)
    return max(splits, 1)
