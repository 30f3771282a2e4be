"""``fastmma gemm``: a matrix product from files or random numbers, with a report."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from fastmma.cli.accuracy import BYTES, Comparison
from fastmma.cli.inputs import as_elements, formats_of, generate, parse_size, read
from fastmma.cli.progress import Bar
from fastmma.cli.table import print_json
from fastmma.host.errors import InstructionError, OperandError, OperandTypeError
from fastmma.host.files import written
from fastmma.host.memory import check_fits
from fastmma.host.npy import write_array
from fastmma.host.threads import thread_count
from fastmma.isa.formats import FORMATS, format_of
from fastmma.isa.gpus import target_named
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiply as find_instruction
from fastmma.numerics.changes import changed
from fastmma.numerics.lookup import arithmetic, own_arithmetic
from fastmma.products.choice import default_instruction, other_spelling
from fastmma.products.gemm import gemm as multiply

# multiply-adds between two movements of the progress bar, by backend, and the least rows and columns that keep packing cheap
_WORK = {"numba": 1 << 33, "reference": 1 << 16, "cupy-emulate": 1 << 40}
_LEAST = {"numba": 256, "reference": 16}
_COMPARED_ROWS = 256


def choose_instruction(
    instruction: str | None, types: str | None, dtype: str | None, target: str, arrays: dict[str, NDArray[Any]]
) -> Instruction:
    """The instruction: named, or the target's usual one for the types given or, failing that, for those in the files."""
    if instruction is not None:
        found = find_instruction(instruction)
        if types is not None and tuple(fmt.name for fmt in formats_of(types)) != (found.atype, found.btype):
            raise InstructionError(f"{found}: it multiplies {found.atype} by {found.btype}, not {types}")
        if dtype is not None and dtype != found.dtype:
            raise InstructionError(f"{found}: it accumulates in {found.dtype}, not {dtype}")
        return found
    if types is not None:
        a, b = formats_of(types)
    elif not arrays:
        a = b = FORMATS["f16"]
    else:
        a, b = (_format_in_file(name, arrays[name]) for name in ("a", "b"))
    return default_instruction(a.name, b.name, None if dtype is None else format_of(dtype).name, target)


def _format_in_file(name: str, array: NDArray[Any]) -> Any:
    if array.dtype.kind == "V":
        raise OperandTypeError(f"{name} holds raw elements of {array.dtype.itemsize} bytes: --type must say what they are")
    fmt = format_of(array.dtype)
    if fmt.name in ("f32", "s32"):
        raise OperandTypeError(f"{name} holds {array.dtype}: --type must say what to round it to, for example tf32 or f16")
    return fmt


def read_more(
    files: list[Path], choice: tuple[str | None, str | None, str | None], target: str
) -> tuple[Instruction, dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The instruction, the matrices a and b (and perhaps c), and every other operand that an archive holds, by its name."""
    arrays = read(files, more=True)
    ins = choose_instruction(*choice, target, arrays)
    found = {}
    for name, array in arrays.items():
        fmt = ins.formats.scale if name.startswith("scale_") else getattr(ins.formats, name, None)
        found[name] = array if fmt is None else as_elements(array, fmt, f"{ins}: {name}")
    return ins, {name: found.pop(name) for name in "abc" if name in found}, found


def read_operands(
    files: list[Path], size: str | None, seed: int, distribution: str, choice: tuple[str | None, str | None, str | None], target: str
) -> tuple[Instruction, dict[str, NDArray[Any]]]:
    if (size is None) != bool(files):
        raise OperandError("give input files or --random MxNxK" if size is None else "give input files or --random, not both")
    if size is None:
        arrays = read(files)
        ins = choose_instruction(*choice, target, arrays)
        return ins, {name: as_elements(array, getattr(ins.formats, name), f"{ins}: {name}") for name, array in arrays.items()}
    m, n, k = parse_size(size)
    ins = choose_instruction(*choice, target, {})
    taken = ((m * k, ins.formats.a), (k * n, ins.formats.b), (m * n, ins.formats.d))
    check_fits(sum(count * fmt.dtype.itemsize for count, fmt in taken), f"--random {size}")
    rng = np.random.default_rng(seed)
    a = generate((m, k), ins.formats.a, rng, distribution)
    return ins, {"a": a, "b": generate((k, n), ins.formats.b, rng, distribution)}


def _blocks(rows: int, columns: int, depth: int, backend: str) -> Iterator[tuple[slice, slice]]:
    """Squares of the result, each a fraction of a second of work; every element is computed alone, so cutting changes no bit."""
    least = _LEAST.get(backend, 1)
    side = max(least, math.isqrt(_WORK.get(backend, 1 << 33) // max(depth, 1)) // least * least)
    for i in range(0, rows, side):
        for j in range(0, columns, side):
            yield slice(i, min(i + side, rows)), slice(j, min(j + side, columns))


def _progress() -> Bar:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Bar(*columns, console=console, transient=True, disable=not console.is_terminal)


def _compare(progress: Progress, ins: Instruction, arrays: dict[str, NDArray[Any]], d: NDArray[Any], threads: int) -> dict[str, Any]:
    comparison = Comparison(ins, arrays["b"], threads)
    task = progress.add_task("comparing", total=len(d))
    for start in range(0, len(d) if d.size else 0, _COMPARED_ROWS):
        rows = slice(start, start + _COMPARED_ROWS)
        comparison.add(arrays["a"][rows], arrays["c"][rows] if "c" in arrays else None, d[rows])
        progress.update(task, completed=min(start + _COMPARED_ROWS, len(d)))
    return comparison.summary()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _errors(found: dict[str, Any]) -> str:
    """The error of the whole, then that of single elements, of which those near zero have the largest."""
    each = f"mean {_number(found['mean_relative'])}, max {_number(found['max_relative'])}"
    return f"‖d - x‖ / ‖x‖ = {_number(found['relative_error'])} (x in float64); |d - x| / |x| of an element: {each}"


def _print(report: dict[str, Any]) -> None:
    m, n, k = report["shape"]
    typer.echo(f"{report['instruction']} on {report['target']}")
    typer.echo(f"arithmetic   {report['numerics']} ({report['evidence']['level']}: {report['evidence']['source']})")
    if report["elsewhere"]:
        typer.echo(f"elsewhere    {report['elsewhere']}")
    typer.echo(f"size         M = {m}, N = {n}, K = {k}")
    typer.echo(f"time         {report['seconds']:.3f} s with threads = {report['threads']}, {report['gmacs']:.2f} GMAC/s")
    typer.echo(f"start-up     {report['startup_seconds']:.2f} s to load or compile the kernels")
    if "error" in report:
        error = report["error"]
        typer.echo(f"error        {_errors(error)}")
        if report["not_finite"]:
            typer.echo(f"not finite   {report['not_finite']} of {report['results']} results")
    if "ieee_f32" in report:
        ieee = report["ieee_f32"]
        share = 100 * ieee["different"] / max(report["results"], 1)
        typer.echo(f"IEEE f32     {ieee['different']} of {report['results']} results differ ({share:.1f} %) from {ieee['rule']};")
        typer.echo(f"             its error: {_errors(ieee)}")
    if report["output"]:
        typer.echo(f"output       {report['output']}")


def gemm(
    files: Annotated[list[Path] | None, typer.Argument(help="a.npy b.npy [c.npy], or one .npz file with a, b and perhaps c.")] = None,
    size: Annotated[str | None, typer.Option("--random", metavar="MxNxK", help="Random operands of this size in place of files.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random numbers.")] = 0,
    distribution: Annotated[str, typer.Option(help="normal, uniform, positive, wide (exponents) or bits (any code).")] = "normal",
    types: Annotated[
        str | None,
        typer.Option("--type", help="Format of A and B, such as f16 or e4m3,e5m2. Floats are rounded to it; raw bytes are viewed."),
    ] = None,
    dtype: Annotated[str | None, typer.Option("--accumulate", help="Format of C and D, such as f16; the widest by default.")] = None,
    instruction: Annotated[str | None, typer.Option(help="The opcode, in place of the target's usual one.")] = None,
    target: Annotated[str, typer.Option(help="The GPU.")] = "sm_90a",
    threads: Annotated[int | None, typer.Option(help="All cores by default.")] = None,
    promote_every: Annotated[int | None, typer.Option(help="Add partial sums of that many k outside the tensor core.")] = None,
    split_k: Annotated[int, typer.Option(help="Parts of k accumulated separately.")] = 1,
    own: Annotated[str, typer.Option("--arithmetic", help="Changes of the target's, such as align_bits=20,rounding=rn.")] = "",
    backend: Annotated[
        str, typer.Option(help="numba, reference, cupy (the real tensor cores) or cupy-emulate (the emulator on any GPU).")
    ] = "numba",
    output: Annotated[Path | None, typer.Option(help="Write D to this .npy file.")] = None,
    compare: Annotated[bool, typer.Option(help="Report the error, and the difference from IEEE f32.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
) -> None:
    """Multiply two matrices as a GPU's tensor cores do, and report speed and error."""
    count, target = thread_count(threads), target_named(target)
    ins, arrays = read_operands(files or [], size, seed, distribution, (instruction, types, dtype), target)
    row = arithmetic(ins, target)
    changed_row = own_arithmetic(ins, target, changed(row, own)) if own else None
    row = changed_row or row
    if ins.sparse or ins.scale_vec_size:
        raise InstructionError(f"{ins}: this command has no place for metadata and scales; call fastmma.gemm from Python")
    a, b, c = arrays["a"], arrays["b"], arrays.get("c")
    (m, k), n = a.shape, b.shape[1]
    if compare:
        check_fits(b.size * BYTES, f"the comparison with float64 of a product with b of shape {b.shape}")
    check_fits(m * n * ins.formats.d.dtype.itemsize, f"the product of {m} x {n}")
    d = np.empty((m, n), dtype=ins.formats.d.dtype)
    if c is not None and c.shape != d.shape:
        raise OperandError(f"c must have shape {d.shape}, not {c.shape}")
    options: dict[str, Any] = {"instruction": ins, "target": target, "threads": count, "backend": backend}
    options |= {"promote_every": promote_every, "split_k": split_k, "arithmetic": changed_row}
    began = time.perf_counter()
    small = slice(0, 512 if backend == "numba" else 0)  # enough for the kernels of large products
    multiply(a[small, :256], b[:256, small], **options)  # also checks the options, before anything is written
    startup = time.perf_counter() - began
    blocks = list(_blocks(m, n, k, backend))
    with _progress() as progress:
        task = progress.add_task("multiplying", total=m * n)
        with nullcontext() if output is None else written(output) as file:
            began = time.perf_counter()
            for rows, columns in blocks:
                multiply(a[rows], b[:, columns], None if c is None else c[rows, columns], out=d[rows, columns], **options)
                progress.advance(task, (rows.stop - rows.start) * (columns.stop - columns.start))
            seconds = time.perf_counter() - began
            if file is not None:
                write_array(file, d)
        compared = _compare(progress, ins, arrays, d, count) if compare else {}
    report: dict[str, Any] = {
        "instruction": ins.opcode,
        "target": target,
        "numerics": row.family,
        "evidence": {"level": row.evidence.level, "source": row.evidence.source},
        "elsewhere": "" if own else other_spelling(ins, target),
        "shape": [m, n, k],
        "backend": backend,
        "threads": count,
        "seconds": seconds,
        "gmacs": m * n * k / max(seconds, 1e-9) / 1e9,
        "startup_seconds": startup,
        "output": None if output is None else str(output),
        **compared,
    }
    print_json(report) if as_json else _print(report)
