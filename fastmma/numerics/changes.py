"""Changes of an arithmetic as text, as commands and records of studies have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastmma.host.errors import OperandError
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.own import FIELDS


def changes(text: Any) -> dict[str, Any]:
    """The fields that a text such as ``"align_bits=20,rounding=rn"`` names, and their values; none where it is empty.

    Raises
    ------
    OperandError
        If it is no such text. Whether an instruction can be computed so is asked where one is chosen.

    Examples
    --------
    >>> changes("align_bits=20, rounding=rn")
    {'align_bits': 20, 'rounding': 'rn'}
    """
    if not isinstance(text, str):
        raise OperandError(f"an arithmetic must be text such as 'align_bits=20,rounding=rn', not {text!r}")
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in FIELDS or not value or name in found:
            raise OperandError(f"an arithmetic is text such as 'align_bits=20,rounding=rn', of {', '.join(FIELDS)} once each, not {text!r}")
        found[name] = int(value) if value.removeprefix("-").isdecimal() and len(value) < 10 else value
    return found


def changed(arithmetic: Arithmetic, text: str) -> Arithmetic:
    """An arithmetic with the changes of a text.

    Raises
    ------
    OperandError
        If there is no such field.
    """
    return replace(arithmetic, **changes(text))
