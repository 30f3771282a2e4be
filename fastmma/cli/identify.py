"""``fastmma identify``: which plans give the bits of a product in files."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from fastmma.cli.inputs import as_elements, formats_of, read_result
from fastmma.cli.table import print_json, print_text
from fastmma.host.errors import OperandTypeError
from fastmma.isa.formats import Format, format_of
from fastmma.verification.identify import Match
from fastmma.verification.identify import identify as search


def _elements(path: Path, fmt: Format | None, what: str) -> NDArray[np.generic]:
    """The array in a file, viewed as elements of a format if one is named."""
    array = read_result(path)
    if fmt is not None:
        return as_elements(array, fmt, what) if array.ndim == 2 else as_elements(array[None], fmt, what)[0]
    if array.dtype.kind == "V":
        raise OperandTypeError(f"{what} holds raw elements of {array.dtype.itemsize} bytes: --type or --result must say what they are")
    return array


def _row(match: Match) -> dict[str, object]:
    plan = match.plan
    order = {"promote_every": plan.promote_every, "split_k": plan.split_k, "split_unit": plan.split_unit, "first_tile": plan.first_tile}
    order["leaves_out"] = plan.leaves_out
    join = {"join": plan.join, "join_dtype": plan.join_dtype, "epilogue": plan.epilogue, "out": plan.out, "cast": plan.cast}
    return {"share": match.share, "elements": match.elements, "target": plan.target, "instruction": plan.instruction, **order, **join}


def identify(
    d: Path,
    a: Path,
    b: Path,
    c: Path | None,
    bias: Path | None,
    alpha: float,
    beta: float,
    types: str | None,
    result: str | None,
    target: tuple[str, ...],
    most: int,
    as_json: bool,
) -> None:
    """Find the plans (instruction, order of k, epilogue) that give the bits of a matrix product; the exit status is 1 if none gives all."""
    first, second = (None, None) if types is None else formats_of(types)
    narrow = None if result is None else format_of(result)
    added = {name: None if path is None else _elements(path, narrow, name) for name, path in (("c", c), ("bias", bias))}
    product = _elements(d, narrow, "d"), _elements(a, first, "a"), _elements(b, second, "b")
    found = search(*product, **added, alpha=alpha, beta=beta, targets=None if not target else list(target), most=most)
    if as_json:
        print_json([_row(match) for match in found])
    else:
        for match in found:
            print_text(f"{match}\n\n")
        if not found or found[0].share < 1:
            print_text("no plan that is tried gives every bit")
    if not found or found[0].share < 1:
        raise click.exceptions.Exit(1)
