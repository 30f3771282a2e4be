"""The state of blocks that run together: registers, shared and local memory, and who is active."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.triton.machine.values import UNSIGNED

Array = NDArray[Any]
Mask = Any  # an array of bool (blocks or 1, threads or 1), or None for all
Run = Callable[["State", Mask], None]


class State:
    """Blocks that run together.

    Parameters
    ----------
    sizes : tuple of int
        Bytes of the registers.
    blocks, threads : int
        How many run together, and of how many threads each.
    shared : int
        Bytes of shared memory of a block.
    target : str
        The GPU.
    local : int
        Bytes of local memory of a thread.
    """

    def __init__(self, sizes: tuple[int, ...], blocks: int, threads: int, shared: int, target: str, local: int = 0) -> None:
        self.registers: list[Any] = [np.zeros((1, 1), np.bool_ if size == 1 else UNSIGNED[size]) for size in sizes]
        self.blocks, self.threads, self.target = blocks, threads, target
        self.shared = np.zeros((blocks, -(-max(shared, 16) // 16) * 16), np.uint8)
        self.local = np.zeros((blocks, threads, -(-local // 8) * 8), np.uint8)
        self.columns = np.zeros(blocks, np.int64)  # of tensor memory that are allocated
        self.parameters = np.zeros(0, np.uint8)
        self.carry = np.zeros((1, 1), np.bool_)
        self.factors: dict[int, tuple[Array, Array]] = {}  # of products that are fused with a sum, by register
        self.line = ("", 0)  # of the kernel's source, which runs
        self.rows = np.arange(blocks)[:, None]

    @cached_property
    def tensor(self) -> Array:
        """Tensor memory: 128 lanes of 512 columns of each block."""
        return np.zeros((self.blocks, 128, 512), np.uint32)

    def put(self, number: int, values: Array, mask: Mask) -> None:
        """Write a register, where threads are active."""
        if mask is not None:
            values = np.where(mask, values, self.registers[number])
        self.registers[number] = values

    def full(self, values: Array) -> Array:
        """Return values of every thread."""
        return np.broadcast_to(values, (self.blocks, self.threads))

    def active(self, mask: Mask, other: Mask = None) -> Array:
        """Return who is active as an array of every thread."""
        parts = [part for part in (mask, other) if part is not None]
        found = parts[0] & parts[1] if len(parts) == 2 else parts[0] if parts else np.ones((1, 1), np.bool_)
        return np.broadcast_to(found, (self.blocks, self.threads))
