"""``fastmma record``: what the GPU in the machine computes, and what its cuBLAS chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastmma.cli.progress import counting_bar
from fastmma.products.cublas.book_file import TYPES
from fastmma.study.linear_layers import linear_layers
from fastmma.verification.cublas_record import record_cublas
from fastmma.verification.cublas_requests import USUAL_ROWS, Layer, Request, read_rows, read_shapes, requests_of_layers
from fastmma.verification.cublaslt import CublasLt, load_library
from fastmma.verification.cuda_driver import Driver, load_driver
from fastmma.verification.hip import record as write_by_hip
from fastmma.verification.record import record as write


def record(
    folder: Annotated[Path, typer.Argument(help="Where to make a folder named after the target; with --cublas, the .npz file to write.")],
    seed: Annotated[int, typer.Option(min=0, help="Without --cublas.")] = 0,
    hip: Annotated[bool, typer.Option("--hip", help="An AMD GPU, by HIP's runtime and hipRTC: its dense v_mfma.")] = False,
    cublas: Annotated[bool, typer.Option("--cublas", help="Ask cuBLASLt what it would run for products: a plan book.")] = False,
    model: Annotated[
        Path | None,
        typer.Option(help="With --cublas: a folder with config.json or safetensors files; its linear layers are asked about."),
    ] = None,
    shapes: Annotated[
        Path | None, typer.Option(help="With --cublas: a file with lines of M, N, K, type and layout, then bias and the batch, if any.")
    ] = None,
    rows: Annotated[str, typer.Option(help="With --model: numbers of rows of the input, ranges with a step among them.")] = USUAL_ROWS,
    types: Annotated[
        list[str] | None, typer.Option("--type", help=f"With --model: {', '.join(TYPES)}; may be given several times.", show_default="bf16")
    ] = None,
    library: Annotated[Path | None, typer.Option(help="With --cublas: the file of cuBLASLt, by default PyTorch's or CuPy's.")] = None,
    workspace: Annotated[
        int | None, typer.Option(min=0, help="With --cublas: bytes that cuBLASLt may use, by default as many as PyTorch lends.")
    ] = None,
) -> None:
    """Record what the GPU in this machine computes, for every opcode that is legal on it; `fastmma verify --folder` replays it anywhere.

    With --hip: of an AMD GPU. No AMD GPU was at hand to try it.

    With --cublas: ask its cuBLASLt which kernels it would run for a model, or for a file of shapes, and write a plan book.
    """
    if cublas:
        _record_book(folder, _asked(model, shapes, rows, types or ["bf16"]), library, workspace)
        return
    if model or shapes or library:
        raise typer.BadParameter("--model, --shapes and --library are for --cublas")
    bar, task = counting_bar("trials")
    with bar:
        write_all = write_by_hip if hip else write
        manifest = write_all(folder, seed=seed, progress=lambda done, total: bar.update(task, completed=done, total=total))
    size = sum(path.stat().st_size for path in manifest.parent.iterdir())
    typer.echo(f"{manifest}: {size:,} bytes")


def _asked(model: Path | None, shapes: Path | None, rows: str, types: list[str]) -> list[Request]:
    """Return the products that are asked about."""
    if model is None and shapes is None:
        raise typer.BadParameter("--cublas needs --model or --shapes")
    for name in types:
        if name not in TYPES:
            raise typer.BadParameter(f"--type must be one of {', '.join(TYPES)}, not {name!r}")
    found = [] if shapes is None else read_shapes(shapes)
    layers = [] if model is None else [Layer(*sizes) for sizes in linear_layers(model)]
    return found + requests_of_layers(layers, read_rows(rows), types)


def _record_book(path: Path, requests: list[Request], library: Path | None, workspace: int | None) -> None:
    asked = CublasLt(load_library(library), Driver(load_driver()), workspace)
    bar, task = counting_bar("products")
    with bar:
        found = record_cublas(path, requests, asked, progress=lambda done, total: bar.update(task, completed=done, total=total))
    typer.echo(f"{path}: {found.products:,} products of cuBLASLt {asked.version} on {asked.gpu}, {path.stat().st_size:,} bytes")
    kinds = f"{found.kinds_confirmed} kinds of {found.kinds}, which {found.samples} samples confirmed"
    typer.echo(f"{found.confirmed:,} of them are of {kinds}")
    if found.confirmed < found.products:
        typer.echo(f"{found.products - found.confirmed:,} are of kinds whose order no plan has; fastmma refuses them by name")
