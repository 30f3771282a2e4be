"""A family of opcodes: one row of the ISA tables, before it is expanded into instructions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from fastmma.isa.fragments import warp_fragments
from fastmma.isa.layout import Layout
from fastmma.isa.targets import WARP

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
# parts of an opcode that came later than the rest of their family; "" keeps the table from ever being without a match
PART_PTX = {"": (0, 0), ".sp::ordered_metadata.": (8, 5), ".and.popc": (7, 1)}

SATFINITE = {"satfinite": ("", ".satfinite")}


@dataclass(frozen=True)
class Family:
    """Opcodes that share a syntax, a PTX version and their targets.

    Attributes
    ----------
    syntax : str
        The opcode, with ``{shape}``, ``{types}`` and the names in `modifiers` to be filled in.
    shapes, types : tuple of str
        The choices; types are written ``dtype.atype.btype.ctype``, then that of the scales if there are any.
    modifiers : mapping of str to tuple of str
        Further choices, each written as in the opcode (with its leading dots) or empty.
    defaults : tuple of str
        Tokens of which one may be written although it only states what holds without it.
    optional : tuple of str
        Tokens of the syntax of which one may be left out.
    fragments : callable
        The rule of `fastmma.isa.fragments` for how operands lie in registers.
    """

    op: str
    syntax: str
    shapes: tuple[str, ...]
    types: tuple[str, ...]
    targets: tuple[str, ...]
    ptx: tuple[int, int]
    heading: str
    modifiers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: tuple[str, ...] = ()
    kind: str = ""
    scale_vec_size: int = 0
    lanes: int = WARP
    optional: tuple[str, ...] = ()
    fragments: Callable[[Any], dict[str, Layout]] = warp_fragments

    def expand(self) -> Iterator[dict[str, Any]]:
        """The choices of each opcode of the family, ``opcode`` among them."""
        names = ("shape", "types", *self.modifiers)
        for choice in product(self.shapes, self.types, *self.modifiers.values()):
            chosen = dict(zip(names, choice, strict=True))
            parts = dict(zip(("dtype", "atype", "btype", "ctype"), chosen["types"].split("."), strict=False))
            yield {**chosen, "opcode": self.syntax.format(**chosen, **parts)}


def sizes(shape: str) -> tuple[int, int, int]:
    """m, n and k of a shape as PTX writes it.

    >>> sizes("m16n8k32")
    (16, 8, 32)
    """
    found = _SHAPE.fullmatch(shape)
    if found is None:
        raise ValueError(f"{shape!r} is no shape")
    m, n, k = map(int, found.groups())
    return m, n, k


def is_shape(token: str) -> bool:
    """Tell whether a token of an opcode is a shape."""
    return _SHAPE.fullmatch(token) is not None


def pairs(dtype_ctype: tuple[str, ...], atypes: tuple[str, ...], btypes: tuple[str, ...] = ()) -> tuple[str, ...]:
    """All ``dtype.atype.btype.ctype`` with ctype equal to dtype."""
    return tuple(f"{d}.{a}.{b}.{d}" for d in dtype_ctype for a in atypes for b in (btypes or atypes))
