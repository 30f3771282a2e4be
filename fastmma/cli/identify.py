"""``fastmma identify``: which plans give the bits of a product in files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from fastmma.cli.inputs import as_elements, formats_of, read_result
from fastmma.cli.table import print_json
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
    d: Annotated[Path, typer.Argument(help="What was computed, M x N, in an .npy file.")],
    a: Annotated[Path, typer.Argument(help="M x K.")],
    b: Annotated[Path, typer.Argument(help="K x N.")],
    c: Annotated[Path | None, typer.Option(help="What was added, times beta: M x N.")] = None,
    bias: Annotated[Path | None, typer.Option(help="What was added to every row: N elements.")] = None,
    alpha: Annotated[float, typer.Option(help="Factor of the product.")] = 1.0,
    beta: Annotated[float, typer.Option(help="Factor of c.")] = 1.0,
    types: Annotated[
        str | None, typer.Option("--type", help="Format of A and B, such as bf16 or e4m3,e5m2, where files hold raw bytes.")
    ] = None,
    result: Annotated[str | None, typer.Option("--result", help="Format of D, C and the bias, where files hold raw bytes.")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="A GPU that comes into question; by default one of each kind. Repeat it.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Plans to print.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="The plans as JSON.")] = False,
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
            typer.echo(f"{match}\n")
        if not found or found[0].share < 1:
            typer.echo("no plan that is tried gives every bit")
    if not found or found[0].share < 1:
        raise typer.Exit(1)
