"""``fastmma gemm``: a matrix product from files or random numbers, with a report."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.cli.accuracy import BYTES, Comparison
from fastmma.cli.choices import choices_of
from fastmma.cli.operands import read_operands
from fastmma.cli.progress import bar
from fastmma.cli.table import print_json, print_wrapped
from fastmma.host.errors import InstructionError, OperandError
from fastmma.host.files import written
from fastmma.host.memory import check_fits
from fastmma.host.npy import write_array
from fastmma.host.threads import thread_count
from fastmma.isa.gpus import target_named
from fastmma.isa.instruction import Instruction
from fastmma.numerics.changes import changed
from fastmma.numerics.lookup import arithmetic, own_arithmetic
from fastmma.products.choice import other_spelling
from fastmma.products.gemm import gemm as multiply
from fastmma.products.gemm_choice import gemm_plan

# multiply-adds between two movements of the progress bar, by backend, and the least rows and columns that keep packing cheap
_WORK = {"numba": 1 << 33, "reference": 1 << 16, "cupy-emulate": 1 << 40}
_LEAST = {"numba": 256, "reference": 16}
_COMPARED_ROWS = 256
_INDENT = " " * 13  # of lines below the first
_OTHER_PRODUCT = {"alpha", "beta", "activation"}  # choices of a plan with which a result is not compared


def _blocks(rows: int, columns: int, depth: int, backend: str) -> Iterator[tuple[slice, slice]]:
    """Squares of the result, each a fraction of a second of work; every element is computed alone, so cutting changes no bit."""
    least = _LEAST.get(backend, 1)
    side = max(least, math.isqrt(_WORK.get(backend, 1 << 33) // max(depth, 1)) // least * least)
    for i in range(0, rows, side):
        for j in range(0, columns, side):
            yield slice(i, min(i + side, rows)), slice(j, min(j + side, columns))


def _compare(ins: Instruction, arrays: dict[str, NDArray[Any]], d: NDArray[Any], threads: int) -> dict[str, Any]:
    comparison = Comparison(ins, d.dtype, arrays["b"], threads)
    starts = range(0, len(d) if d.size else 0, _COMPARED_ROWS)
    with bar("comparing") as show:
        for done, start in enumerate(starts):
            show(done, len(starts))
            rows = slice(start, start + _COMPARED_ROWS)
            comparison.add(arrays["a"][rows], arrays["c"][rows] if "c" in arrays else None, d[rows])
    return comparison.summary()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _errors(found: dict[str, Any]) -> str:
    """The error of the whole, then that of single elements, of which those near zero have the largest."""
    each = f"mean {_number(found['mean_relative'])}, max {_number(found['max_relative'])}"
    return f"‖d - x‖ / ‖x‖ = {_number(found['relative_error'])} (x in float64); |d - x| / |x| of an element: {each}"


def _say(line: str) -> None:
    print_wrapped(line, _INDENT)


def _print(report: dict[str, Any]) -> None:
    m, n, k = report["shape"]
    print_wrapped(f"{report['instruction']} on {report['target']}", _INDENT)
    _say(f"arithmetic   {report['numerics']} ({report['evidence']['level']}: {report['evidence']['source']})")
    if report["elsewhere"]:
        _say(f"elsewhere    {report['elsewhere']}")
    _say(f"size         M = {m}, N = {n}, K = {k}")
    _say(f"time         {report['seconds']:.3f} s with threads = {report['threads']}, {report['gmacs']:.2f} GMAC/s")
    _say(f"start-up     {report['startup_seconds']:.2f} s to load or compile the kernels")
    if "error" in report:
        error = report["error"]
        _say(f"error        {_errors(error)}")
        if report["not_finite"]:
            _say(f"not finite   {report['not_finite']} of {report['results']} results")
    if "ieee_f32" in report:
        ieee = report["ieee_f32"]
        share = 100 * ieee["different"] / max(report["results"], 1)
        _say(f"IEEE f32     {ieee['different']} of {report['results']} results differ ({share:.1f} %) from {ieee['rule']};")
        _say(f"{_INDENT}its error: {_errors(ieee)}")
    if report["output"]:
        _say(f"output       {report['output']}")


def gemm(
    files: tuple[Path, ...],
    size: str | None,
    seed: int,
    distribution: str,
    types: str | None,
    dtype: str | None,
    instruction: str | None,
    target: str,
    threads: int | None,
    plan: str | None,
    promote_every: int | None,
    split_k: int,
    own: str,
    backend: str,
    output: Path | None,
    compare: bool,
    as_json: bool,
) -> None:
    """Multiply two matrices as a GPU's tensor cores do, and report speed and error."""
    count, target = thread_count(threads), target_named(target)
    ins, arrays = read_operands(files, size, seed, distribution, (instruction, types, dtype), target)
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
    if c is not None and c.shape != (m, n):
        raise OperandError(f"c must have shape {(m, n)}, not {c.shape}")
    options: dict[str, Any] = {"instruction": ins, "target": target, "promote_every": promote_every, "split_k": split_k}
    chosen = {} if plan is None else choices_of(plan)
    if compare and not _OTHER_PRODUCT.isdisjoint(chosen):
        raise OperandError(f"with {', '.join(sorted(_OTHER_PRODUCT & chosen.keys()))} the result differs from a @ b + c: give --no-compare")
    planned = gemm_plan(a, b, c, **{**options, "arithmetic": changed_row, **chosen})
    options = {"plan": planned, "threads": count, "backend": backend}
    options |= {name: chosen[name] for name in ("alpha", "beta") if name in chosen}
    began = time.perf_counter()
    small = slice(0, 512 if backend == "numba" else 0)  # enough for the kernels of large products
    # also checks the options, before anything is written
    first = multiply(a[small, :256], b[:256, small], None if c is None else c[small, small], **options)
    d = np.empty((m, n), dtype=first.dtype)
    startup = time.perf_counter() - began
    blocks = list(_blocks(m, n, k, backend))
    with bar("multiplying") as show, nullcontext() if output is None else written(output) as file:
        began = time.perf_counter()
        for done, (rows, columns) in enumerate(blocks):
            show(done, len(blocks))
            multiply(a[rows], b[:, columns], None if c is None else c[rows, columns], out=d[rows, columns], **options)
        seconds = time.perf_counter() - began
        if file is not None:
            write_array(file, d)
    compared = _compare(ins, arrays, d, count) if compare else {}
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
