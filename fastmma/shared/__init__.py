"""Shared memory for kernel authors: swizzles, tiles as bytes, boxes of tensors, and the bank conflicts of an access.

Shared memory is an array of bytes, as `fastmma.warp.ldmatrix`, `fastmma.warpgroup.mma` and `fastmma.tcgen05.mma` take it.
"""

from fastmma.shared.banks import BankConflicts, bank_conflicts
from fastmma.shared.box import Box
from fastmma.shared.swizzle import Swizzle
from fastmma.shared.tile import Tile

__all__ = ["BankConflicts", "Box", "Swizzle", "Tile", "bank_conflicts"]


def __dir__() -> list[str]:
    return list(__all__)
