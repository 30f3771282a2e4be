"""``fastmma compare``: how many elements of two results differ, by how much, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from fastmma.cli.choices import changed, choices_of
from fastmma.cli.inputs import as_elements, parse_tile, read_result
from fastmma.cli.operands import read_more
from fastmma.cli.table import print_text
from fastmma.explanation.comparison import compare as compare_results
from fastmma.host.errors import OperandError
from fastmma.isa.formats import format_of
from fastmma.isa.gpus import target_named
from fastmma.products.gemm import gemm


def compare(
    files: tuple[Path, ...],
    against: str | None,
    target: str,
    types: str | None,
    dtype: str | None,
    instruction: str | None,
    plan: str | None,
    tile: str,
    as_json: bool,
) -> None:
    """Count the elements of two results that differ, by how much they do, and where."""
    size = parse_tile(tile)
    if against is None:
        if len(files) != 2:
            raise OperandError(
                f"without --against, give two files with results, not {len(files)}; --against names what a product is compared with"
            )
        d, other = (_result(path, types) for path in files)
    else:
        target, choice = target_named(target), (instruction, types, dtype)
        ins, arrays, more = read_more(files, choice, target)
        options: dict[str, Any] = {"instruction": ins, "target": target, "c": arrays.get("c"), **more}
        options |= {} if plan is None else choices_of(plan)
        d = gemm(arrays["a"], arrays["b"], **options)
        if Path(against).suffix in (".npy", ".npz"):
            other = as_elements(read_result(Path(against)), format_of(d.dtype), against)
        else:
            other = gemm(arrays["a"], arrays["b"], **changed(against, options, choice, arrays))
    found = compare_results(d, other, tile=size)
    if as_json:
        click.echo(found.json())
    else:
        print_text(str(found))
    if found.different:
        raise click.exceptions.Exit(1)


def _result(path: Path, fmt: str | None) -> NDArray[Any]:
    """A result in a file; raw bytes are elements of a format."""
    array = read_result(path)
    if array.dtype.kind != "V":
        return array
    if fmt is None:
        raise OperandError(f"{path} holds raw elements of {array.dtype.itemsize} bytes: --type must say what they are")
    return as_elements(np.atleast_2d(array), format_of(fmt), str(path))
