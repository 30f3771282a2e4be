"""Grids of labelled boxes: what drawings, figures and text are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fastmma.operands.pictures.repeats import Repeat


class Cell(NamedTuple):
    """One element of a matrix and where it is held; `bit` is its lowest bit in the register.

    `computation` is the matrix where a warp holds several.
    """

    row: int
    col: int
    computation: int
    lane: int
    element: int
    register: int
    bit: int
    bits: int


class Box(NamedTuple):
    """A labelled box of a grid: one cell, or neighbours that a lane holds; `lane` decides the colour."""

    lane: int
    head: str
    tail: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Grid:
    """Boxes with headings; None stands where rows or columns are left out. With a highlight, all else is to fade.

    Where a pattern repeats, the boxes are one of it: `repeats` has the others, which `notes` tell.
    """

    title: str
    rows: tuple[str | None, ...]
    cols: tuple[str | None, ...]
    boxes: tuple[tuple[Box | None, ...], ...]
    highlight: frozenset[Cell] | None = None
    repeats: tuple[Repeat, ...] = ()
    notes: tuple[str, ...] = ()
