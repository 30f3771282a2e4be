"""``fastmma record``: what the GPU in the machine computes, and what its cuBLAS chooses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from fastmma.cli import parameters
from fastmma.cli.progress import bar
from fastmma.cli.table import print_json, print_text
from fastmma.products.cublas.book_file import TYPES
from fastmma.study.linear_layers import linear_layers
from fastmma.verification.cublas_record import record_cublas
from fastmma.verification.cublas_requests import Layer, Request, read_rows, read_shapes, requests_of_layers
from fastmma.verification.cublaslt import CublasLt, load_library
from fastmma.verification.cuda_driver import Driver, load_driver
from fastmma.verification.hip import PROGRAM
from fastmma.verification.hip import record as write_by_hip
from fastmma.verification.record import record as write


def record(
    folder: Path,
    seed: int,
    hip: bool,
    cublas: bool,
    model: Path | None,
    shapes: Path | None,
    rows: str,
    types: tuple[str, ...],
    library: Path | None,
    workspace: int | None,
    as_json: bool,
) -> None:
    """Record what the GPU in this machine computes, for every opcode that is legal on it; `fastmma verify --folder` replays it anywhere."""
    if cublas:
        _record_book(folder, _asked(model, shapes, rows, types or [parameters.TYPE]), library, workspace, as_json)
        return
    with bar("trials") as show:
        write_all = write_by_hip if hip else write
        manifest = write_all(folder, seed=seed, progress=show)
    size = sum(path.stat().st_size for path in manifest.parent.iterdir())
    if as_json:
        print_json({"manifest": str(manifest), "bytes": size})
        return
    print_text(f"{manifest}: {size:,} bytes")
    if hip:
        print_text(f"The program that recorded this had not run on an AMD GPU before: {PROGRAM}")


def _asked(model: Path | None, shapes: Path | None, rows: str, types: Sequence[str]) -> list[Request]:
    """Return the products that are asked about."""
    for name in types:
        if name not in TYPES:
            raise click.BadParameter(f"--type must be one of {', '.join(TYPES)}, not {name!r}")
    found = [] if shapes is None else read_shapes(shapes)
    layers = [] if model is None else [Layer(*sizes) for sizes in linear_layers(model)]
    return found + requests_of_layers(layers, read_rows(rows), types)


def _record_book(path: Path, requests: list[Request], library: Path | None, workspace: int | None, as_json: bool) -> None:
    asked = CublasLt(load_library(library), Driver(load_driver()), workspace)
    with bar("products") as show:
        found = record_cublas(path, requests, asked, progress=show)
    if as_json:
        print_json({"book": str(path), "library": asked.version, "gpu": asked.gpu, **found._asdict()})
        return
    print_text(f"{path}: {found.products:,} products of cuBLASLt {asked.version} on {asked.gpu}, {path.stat().st_size:,} bytes")
    kinds = f"{found.kinds_confirmed} kinds of {found.kinds}, which {found.samples} samples confirmed"
    print_text(f"{found.confirmed:,} of them are of {kinds}")
    if found.confirmed < found.products:
        print_text(f"{found.products - found.confirmed:,} are of kinds whose order no plan has; fastmma refuses them by name")
