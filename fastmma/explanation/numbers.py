"""Numbers and tables of an explanation as text: codes in hexadecimal, values in decimal and with their power of two."""

from __future__ import annotations

import math
from typing import NamedTuple

from fastmma.explanation.steps import Dyadic, decoded, dyadic, special_of
from fastmma.isa.formats import Format

_DIGITS = {8: 4, 16: 6, 32: 9, 64: 17}  # that tell the values of a format apart, by its bits


class Table(NamedTuple):
    """Headings, and rows of as many cells."""

    headings: list[str]
    rows: list[list[str]]


def aligned(found: Table) -> list[str]:
    widths = [max(map(len, column)) for column in zip(found.headings, *found.rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (found.headings, *found.rows)]


def markdown_table(found: Table) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (found.headings, ["---"] * len(found.headings), *found.rows)]


def hexadecimal(code: int, fmt: Format) -> str:
    """A code with all its digits."""
    return f"0x{code & ((1 << fmt.bits) - 1):0{-(-fmt.bits // 4)}x}"


def decimal(value: Dyadic, digits: int = 9) -> str:
    """A number in decimal, rounded where it is long."""
    if value.last >= 0 and value.significand.bit_length() + value.last < 64:
        return str(value.significand << value.last)
    try:
        found = math.ldexp(value.significand, value.last)
    except OverflowError:
        return str(value)
    return f"{found:.{digits}g}" if found or not value.significand else str(value)


def number_text(code: int, fmt: Format) -> str:
    """A code, its value in decimal, and as an integer times a power of two."""
    found = decoded(code, fmt)
    shown = hexadecimal(code, fmt)
    if found.special:
        return f"{shown} = {special_of(found)}"
    value = Dyadic(found.significand, found.last)
    digits = next(count for bits, count in _DIGITS.items() if fmt.bits <= bits)
    if not value.significand:
        return f"{shown} = {'-0' if found.negative else '0'}"
    return f"{shown} = {both(value, digits)}"


def both(value: Dyadic, digits: int = 9) -> str:
    """A value in decimal and, where that is another text, with its power of two in lowest terms."""
    powers, plain = str(dyadic(*value)), decimal(value, digits)
    return plain if plain == powers else f"{plain} = {powers}"


def span(k: tuple[int, int]) -> str:
    """A range of k, which ends one before its second number."""
    return f"k {k[0]}" if k[1] == k[0] + 1 else f"k {k[0]}..{k[1] - 1}"
