"""What a register tile of word-wise dot products is, as a value and as the Numba type that tells the emission."""

# Numba calls these with arguments that some of them do not need

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, lower_getattr_generic, models, register_model, typeof_impl, unbox

# what a word of A and a word of B can do, and the elements of k in a word
_OPERATIONS = {
    "bytes": (("signed by unsigned", "unsigned by signed"), 4),
    "pairs": (("int16 by int16",), 2),
    "bits": (("xor", "and"), 32),
    "bits_by_bytes": (("xor", "and"), 32),
}


@dataclass(frozen=True)
class Tile:
    """What is compiled: a kind of words and the shape of the register tile."""

    words: str  # "bytes" (needs VNNI), "pairs", "bits" or "bits_by_bytes" (counts ones in bytes first, where lanes have no popcount)
    lanes: int  # int32 lanes of one vector
    rows: int  # rows of A, at most `lanes`
    vectors: int  # vectors of columns of B

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the operations; which one runs is chosen at run time, by index."""
        return _OPERATIONS[self.words][0]

    @property
    def columns(self) -> int:
        """Columns of B that the tile covers."""
        return self.lanes * self.vectors

    @property
    def elements(self) -> int:
        """Elements of k in one word."""
        return _OPERATIONS[self.words][1]

    @property
    def lines(self) -> int:
        """Neighbouring lines that are packed at once: a vector of bytes if panels have room for it, else as many as there are lanes."""
        return 4 * self.lanes if self.elements == 32 and self.columns % (4 * self.lanes) == 0 else self.lanes


class _TileType(types.Type):
    """The Numba type that carries a `Tile`; its name is part of the key of the kernel on the disk."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        super().__init__(name=str(tile))


register_model(_TileType)(models.OpaqueModel)
_tile_type = cache(_TileType)


@typeof_impl.register(Tile)
def _typeof_tile(tile: Tile, context: Any) -> _TileType:
    return _tile_type(tile)


@unbox(_TileType)
def _unbox_tile(typ: _TileType, value: Any, context: Any) -> NativeValue:
    return NativeValue(context.context.get_dummy_value())


@infer_getattr
class _TileAttributes(AttributeTemplate):
    """The numbers of a tile, constants to a kernel."""

    key = _TileType

    def generic_resolve(self, tile: _TileType, name: str) -> Any:
        return types.intp


@lower_getattr_generic(_TileType)
def _lower_tile_attribute(context: Any, builder: ir.IRBuilder, tile: _TileType, value: Any, name: str) -> ir.Value:
    return ir.Constant(context.get_value_type(types.intp), getattr(tile.tile, name))
