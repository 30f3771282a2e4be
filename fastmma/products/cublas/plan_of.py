"""From a choice of cuBLASLt to the plan that has its kernel's bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from fastmma.backends.resolve import resolved_target
from fastmma.host.arrays import flag, integer
from fastmma.host.calls import public_call
from fastmma.host.environment import variable
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.formats import format_of
from fastmma.isa.gpus import TargetName
from fastmma.isa.scalar import OPCODE as FMA
from fastmma.isa.table import multiply
from fastmma.products.book import VARIABLE
from fastmma.products.bound import Strided
from fastmma.products.choice import default_instruction, multiplicand, named
from fastmma.products.cublas import h200_13_1
from fastmma.products.cublas.answers import answers
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.find_row import find_row
from fastmma.products.cublas.rows import NARROW, LaneRow, Product, Table, TileRow
from fastmma.products.cublas.segments import cut_segments
from fastmma.products.cublas.trees import ALIKE, trees
from fastmma.products.evidence import OrderEvidence
from fastmma.products.gemm_choice import Ends, ends, epilogue_steps, gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.keywords import Choices
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.library import library_gpu
from fastmma.products.order import Cuts
from fastmma.products.presets import ENDS

VERSION, WORKSPACE = "13.1", 32 << 20
_TF32 = "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32"
_WORKSPACE_WITH_BIAS = 1 << 20  # what PyTorch lets cuBLASLt have, where it calls it itself
TABLES: dict[tuple[str, str], Table] = {(table.gpu, table.version): table for table in (h200_13_1.TABLE,)}
# which float32 needs where a plan is looked up
_INSTRUCTIONS: dict[str, dict[str, Any]] = {"f32": {"instruction": FMA}, "tf32": {"instruction": _TF32, "cast": True}}
_MMA = "mma.sync.aligned.{shape}.row.col.f32.{fmt}.{fmt}.f32"
_SLICES = {"f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "s8": 1}  # bytes of an element


class _Call(NamedTuple):
    """A call of `plan`: what a choice is followed for."""

    product: Product
    given: Ends
    activation: str | None
    fast: bool
    target: str
    says: str = ":"  # between the library's name and its choice
    rate: tuple[int, int] | None = None  # of the rule that predicted the choice


@public_call
def plan(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    choice: Choice | None = None,
    target: TargetName = "H200",
    version: str = VERSION,
    out_dtype: Any = None,
    bias: Any = None,
    alpha: Any = 1.0,
    beta: Any = None,
    activation: str | None = None,
    use_fast_accum: bool = False,
    tf32: bool = False,
    workspace: int = WORKSPACE,
    unknown: str = "refuse",
) -> GemmPlan | LanesPlan:
    """Return the plan of a product by the kernel that cuBLASLt chooses.

    Parameters
    ----------
    a, b : array (M, K) and (K, N), or stacks of as many
        Their dtypes, shapes, and along which dimension they are contiguous count. float32 is multiplied in TF32 or not, as the choice says.
    c, bias : array, optional
        Whether they are given counts. c without `beta` is added as it is.
    choice : Choice, optional
        What ``cublasLtMatmulAlgoGetHeuristic`` answered. By default what is known of the product's shape.
    target : str
        The GPU, for example ``"H200"``.
    version : str
        The library's version, for example ``"13.1"``.
    out_dtype : dtype or format, optional
        The format of the result; by default f32.
    alpha, beta : float
        Only whether they are 1 counts.
    activation : {"relu"}, optional
    use_fast_accum : bool
        Whether 8-bit floats are not promoted, ``CUBLASLT_MATMUL_DESC_FAST_ACCUM``.
    tf32 : bool
        Whether float32 may be multiplied in TF32, where the choice is looked up: ``torch.backends.cuda.matmul.allow_tf32``.
    workspace : int
        How many bytes the library may use. What is looked up is known for those of
        PyTorch's calls: 32 MiB on Hopper, and 1 MiB with a bias.
    unknown : {"refuse", "one"}
        What becomes of a product whose choice is looked up and not known: an error, or a plan of one part of k, whose `evidence` says so.

    Returns
    -------
    GemmPlan or LanesPlan
        ``gemm(a, b, plan=plan)`` follows it. `evidence` says how well its order is known.

    Raises
    ------
    OperandError
        If the library's order is not known: the table of the GPU and version lacks a field of the choice, or nothing says the choice.
    InstructionError, TargetError, OperandTypeError
        All are `fastmma.FastmmaError`.

    Examples
    --------
    >>> import ml_dtypes
    >>> import numpy as np
    >>> a, b = np.ones((5, 4096), ml_dtypes.bfloat16), np.ones((64, 4096), ml_dtypes.bfloat16).T
    >>> found = plan(a, b, choice=Choice(algo=66, tile=10, split_k=3, reduction=2, custom=1, stages=35, cluster=4), out_dtype="bf16")
    >>> found.split_k, found.unit, found.epilogue
    (3, 64, ('round',))
    >>> print(plan(a[:1], b, choice=Choice(algo=13, custom=92), out_dtype="bf16").lanes)
    32 lanes of adjacent k, at most 64 at a time, added in halves: each of the first half adds the one half of them further
    """
    given = ends(c, None, bias, alpha, beta, "plan", True)
    table = _table(target, version)
    layout = _layout(a, "a") + _layout(b, "b")
    fmt = _format(a, b)
    if a.ndim != b.ndim or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise OperandError(f"plan: a must be (M, K) and b (K, N), or stacks of as many, not {a.shape} and {b.shape}")
    out = named(out_dtype, "out_dtype") or ("s32" if fmt == "s8" else "f32")
    product = Product(fmt, layout, a.shape[-2], b.shape[-1], a.shape[-1], out, a.ndim == 3 and a.shape[0] > 1)
    space, allowed = integer(workspace, "plan: workspace", 0), flag(tf32, "plan: tf32")
    if choice is not None and not isinstance(choice, Choice):
        raise OperandTypeError(f"plan: choice must be a Choice, not {type(choice).__name__}")
    if choice is None:
        if space not in (WORKSPACE, *((_WORKSPACE_WITH_BIAS,) if bias is not None else ())):
            raise OperandError(f"plan: nothing is known of what cuBLASLt chooses with {space} bytes of workspace; give its choice")
        product = product._replace(fmt="tf32") if product.fmt == "f32" and allowed else product
        preset = "cublas-fast-accum" if use_fast_accum else "cublas"
        options = {"c": c, "bias": bias, "alpha": alpha, "beta": beta, "activation": activation, "out_dtype": out_dtype, "preset": preset}
        options |= {"target": target} | _INSTRUCTIONS.get(product.fmt, {})
        return _looked_up(table, _Call(product, given, activation, use_fast_accum, resolved_target(target)), a, b, unknown, options)
    return _followed(table, choice, _Call(product, given, activation, use_fast_accum, resolved_target(target)))


def _looked_up(table: Table, call: _Call, a: Any, b: Any, unknown: str, options: dict[str, Any]) -> GemmPlan | LanesPlan:
    """Follow what is recorded of a product, a rule, or what the library chose without running it."""
    try:
        return gemm_plan(a, b, unknown="refuse", **options)
    except OperandError:
        known = (a.ndim == 2 or call.product.stacked) and _is_dense(a) and _is_dense(b) and not variable(VARIABLE)
        for choice, how in _chosen(table, call, a.shape[0] if call.product.stacked else 1) if known else ():
            with suppress(OperandError):
                return _followed(table, choice, how)
        if unknown == "refuse":
            raise
    return gemm_plan(a, b, unknown=unknown, **options)


def _is_dense(array: Any) -> bool:
    """Tell whether matrices have no gaps, nor those of a stack between them: a GPU was asked about no others."""
    rows, columns = array.shape[-2:]
    matrix = Strided(array.dtype, (rows, columns), array.strides[-2:])
    dense = matrix.is_c_contiguous or matrix.is_f_contiguous
    return dense and (array.ndim == 2 or array.strides[0] == rows * columns * array.itemsize)


def _chosen(table: Table, call: _Call, stack: int) -> Iterator[tuple[Choice, _Call]]:
    """Yield what the library answered for a product, and what trees predict."""
    given, product = call.given, call.product
    if call.activation or (given.bias and 1 in (product.n, product.k)):  # PyTorch adds a bias of one column as c
        return
    asked = None if stack > 1 or given.bias else answers(table.answers).find(product)
    if asked is not None:
        yield asked, call._replace(says=" chooses")
    if (found := trees(table.trees).predict(product, stack, biased=given.bias)) is not None:
        alike = product.is_aligned or found.choice.algo not in ALIKE.get(product.fmt, ())
        if alike or not (given.c or (given.bias and given.alpha)):
            yield found.choice, call._replace(says=" is predicted to add as by", rate=found.rate)


def _table(target: TargetName, version: str) -> Table:
    if not isinstance(version, str):
        raise OperandTypeError(f"plan: version must be a string, for example {VERSION!r}, not {type(version).__name__}")
    gpu = library_gpu(target)
    table = TABLES.get((gpu, version))
    if table is None:
        known = ", ".join(f"{version} on {gpu}" for gpu, version in TABLES)
        raise OperandError(f"plan: nothing is known of the kernels of cuBLASLt {version} on {gpu}; there is {known}")
    return table


def _layout(operand: Any, what: str) -> str:
    """Name the layout of a matrix, or of those of a stack: n where its rows are contiguous, t where its columns are."""
    if getattr(operand, "ndim", 0) not in (2, 3) or not hasattr(operand, "strides"):
        raise OperandTypeError(f"plan: {what} must be an array of two or three dimensions, not {type(operand).__name__}")
    if 0 in operand.shape:
        raise OperandError(f"plan: {what} has no elements, and cuBLASLt chooses no kernel for it")
    rows, columns = operand.shape[-2:]
    down, along = operand.strides[-2:]
    if along == operand.itemsize or down == operand.itemsize:
        return "n" if along == operand.itemsize else "t"
    if 1 not in (rows, columns):
        raise OperandError(f"plan: the rows or the columns of {what} must be contiguous")
    return "n" if columns == 1 else "t"


def _format(a: Any, b: Any) -> str:
    """Name the format of both operands; f32 for float32 arrays."""
    names = [
        format_of(each.dtype).name if str(each.dtype) == "float32" else multiplicand(each.dtype, f"plan: {what}").name
        for each, what in ((a, "a"), (b, "b"))
    ]
    if names[0] != names[1]:
        raise OperandTypeError(f"plan: a and b must have the same dtype, not {a.dtype} and {b.dtype}")
    return names[0]


def _followed(table: Table, choice: Choice, call: _Call) -> GemmPlan | LanesPlan:
    """Follow a choice."""
    if call.product.fmt == "f32" and not any(row.algo == choice.algo and "f32" in row.formats for row in table.rows):
        call = call._replace(product=call.product._replace(fmt="tf32"))
    elif call.product.fmt == "tf32" and not any(row.algo == choice.algo and "tf32" in row.formats for row in table.rows):
        call = call._replace(product=call.product._replace(fmt="f32"))
    row = find_row(table, choice, call.product)
    return _lanes(table, row, choice, call) if isinstance(row, LaneRow) else _tiles(table, row, choice, call)


def _evidence(table: Table, row: TileRow | LaneRow, choice: Choice, call: _Call) -> OrderEvidence:
    source = f"cuBLASLt {table.version} on {table.gpu}{call.says} {choice}, for {call.product}"
    rate = (row.rate if isinstance(row, TileRow) else None) or table.rates.get((row.algo, call.product.fmt))
    return OrderEvidence("fitted", source, call.rate or rate) if rate else OrderEvidence("assumed", f"{source}; {table.source}")


def _steps(ins: Any, name: str, call: _Call) -> tuple[tuple[str, ...], str]:
    """Find the steps of an epilogue, and the format of the result."""
    kind, out = ENDS[name], call.product.out
    if out not in NARROW and kind.wide:
        kind = ENDS[kind.wide]
    return epilogue_steps(ins, call.given, Choices(activation=call.activation, out_dtype=out, preset="cublas"), kind.epilogues, "plan")


def _lanes(table: Table, row: LaneRow, choice: Choice, call: _Call) -> LanesPlan:
    product, count = call.product, choice.parts if row.counts else 1
    lanes = replace(row.lanes, blocks=count) if row.counts == "blocks" else replace(row.lanes, parts=count)
    scaled = row.scaled if count == 1 else ""
    ending = call._replace(given=call.given._replace(alpha=False)) if scaled else call
    steps, out = _steps(multiply(FMA), row.ends if count == 1 else row.split_ends, ending)
    operand = ("a" if product.m == 1 else "b") if scaled == "vector" else scaled
    return LanesPlan(call.target, FMA, lanes, product.fmt, steps, out, operand, evidence=_evidence(table, row, choice, call))


def _tiles(table: Table, row: TileRow, choice: Choice, call: _Call) -> GemmPlan:
    product, parts = call.product, _parts(row, choice, call.product)
    join = _join(row, choice, parts)
    if join == "in-place" and call.given.bias and row.biased_ends:
        row, join = replace(row, split_ends=row.biased_ends), "ascending"
    name = row.ends if join == "" else row.in_place_ends if join == "in-place" else row.split_ends
    narrow = product.out if product.out in NARROW else ""
    if join == "in-place" and product.fmt in NARROW and not narrow:
        name = "unknown"
    if not narrow and join == "workspace":
        join = "ascending"
    opcode = _opcode(row, product.fmt, call.target)
    steps, out = _steps(multiply(opcode), name, call)
    return GemmPlan(
        call.target,
        opcode,
        promote_every=row.promote_every if row.promote_every and not call.fast else None,
        split_k=parts,
        split_unit=row.unit(product, _SLICES[product.fmt]) if isinstance(parts, int) and parts > 1 and not row.dealt else 0,
        first_tile=row.tile,
        cast=product.fmt == "tf32",
        join=join or "ascending",
        join_dtype=narrow if join in ("workspace", "in-place") else "",
        epilogue=steps,
        out=out,
        leaves_out=row.leaves_out and parts != 1,
        dealt=row.dealt if parts != 1 else 0,
        evidence=_evidence(table, row, choice, call),
    )


def _opcode(row: TileRow, fmt: str, target: str) -> str:
    if row.instruction == "fma":
        return FMA
    if row.instruction == "wgmma":
        return default_instruction(fmt, fmt, "s32" if fmt == "s8" else "f32", target).opcode
    return _MMA.format(shape=row.instruction, fmt=fmt)


def _join(row: TileRow, choice: Choice, parts: int | Cuts) -> str:
    """Find how parts are joined; empty where the choice has one."""
    if row.segments is not None:
        return "" if parts == 1 else "pairwise from the end"
    return "" if choice.parts == 1 else dict(row.joins)[choice.reduction]


def _parts(row: TileRow, choice: Choice, product: Product) -> int | Cuts:
    """Cut k as the kernels do: so many parts, or where they start and stop."""
    if row.segments is not None:
        segments = cut_segments(row.segments, choice, product)
        return segments if segments is not None and len(segments) > 1 else 1
    if choice.parts == 1 or not row.floors or row.leaves_out:
        return choice.parts
    unit = row.unit(product, _SLICES[product.fmt])
    length = max(-(-(product.k // choice.parts) // unit) * unit, unit)
    cuts: Cuts = tuple((start, min(start + length, product.k)) for start in range(0, product.k, length))
    return cuts if len(cuts) > 1 else 1
