"""From a choice of cuBLASLt to the plan that has its kernel's bits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fastmma.backends.resolve import resolved_target
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError, TargetError
from fastmma.host.integers import flag, integer
from fastmma.isa.formats import format_of
from fastmma.isa.gpus import TargetName, target_named
from fastmma.isa.scalar import OPCODE as FMA
from fastmma.isa.table import multiply
from fastmma.numerics.lookup import is_strict
from fastmma.products.bound import Arguments, Strided
from fastmma.products.choice import multiplicand, named
from fastmma.products.cublas.book import Book, own_book, read_book, shipped_book
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.find_row import find_row_as_computed
from fastmma.products.cublas.look_up import ALL_SOURCES, PREDICTING_SOURCES, Known, Question, find_recorded, look_up
from fastmma.products.cublas.rows import HALF_SUMS, NARROW, LaneRow, Product, Table, TileRow
from fastmma.products.cublas.tables import REPORTED, TABLES, VERSION, short_version
from fastmma.products.cublas.tile_order import tile_order
from fastmma.products.evidence import OrderEvidence
from fastmma.products.gemm_choice import EpilogueInputs, epilogue_inputs, epilogue_steps, gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.keywords import Choices
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.library_gpu import library_gpu
from fastmma.products.library_order import SCALED, KernelEpilogue
from fastmma.products.presets import KERNEL_EPILOGUES
from fastmma.products.steps import GELU

WORKSPACE = 32 << 20
_TF32 = "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32"
_WORKSPACE_WITH_BIAS = 1 << 20  # what PyTorch lets cuBLASLt have, where it calls it itself
# which float32 needs where a plan is looked up
_INSTRUCTIONS: dict[str, dict[str, Any]] = {"f32": {"instruction": FMA}, "tf32": {"instruction": _TF32, "cast": True}}


class Call(NamedTuple):
    """A call of `plan`: what a choice is followed for."""

    product: Product
    given: EpilogueInputs
    activation: str | None
    fast: bool
    target: str


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
    accumulator: Any = None,
    reduced_precision_reduction: bool = True,
    workspace: int = WORKSPACE,
    plans: str | Path | None = None,
    unknown: str = "refuse",
) -> GemmPlan | LanesPlan:
    """Return the plan of a product by the kernel that cuBLASLt chooses.

    Parameters
    ----------
    a, b : array (M, K) and (K, N), or stacks of as many
        Only their dtypes, their shapes and the dimension along which they are contiguous count. The choice says whether float32 is
        multiplied in TF32.
    c, bias : array, optional
        Whether they are given counts. c without `beta` is added as it is.
    choice : Choice, optional
        What ``cublasLtMatmulAlgoGetHeuristic`` returned. By default, the choice is looked up by the product's shape.
    target : str
        The GPU, for example ``"H200"``.
    version : str
        The library's version, for example ``"13.1"``.
    out_dtype : dtype or format, optional
        The format of the result; by default f32.
    alpha, beta : float
        Only whether they are 1 counts.
    activation : {"relu", "gelu"}, optional
    use_fast_accum : bool
        Whether 8-bit floats are not promoted, ``CUBLASLT_MATMUL_DESC_FAST_ACCUM``.
    tf32 : bool
        Whether float32 may be multiplied in TF32, where the choice is looked up: ``torch.backends.cuda.matmul.allow_tf32``.
    accumulator : "f16", optional
        Sums f16 in f16, ``CUBLAS_COMPUTE_16F``: ``torch.backends.cuda.matmul.allow_fp16_accumulation``.
    reduced_precision_reduction : bool
        Whether parts of k may be joined in 16 bits, where the choice is looked up: torch's ``allow_bf16_reduced_precision_reduction``.
    workspace : int
        Bytes that the library may use. Choices that are looked up hold for PyTorch's workspaces: 32 MiB on Hopper, and 1 MiB with a
        bias.
    plans : str or Path, optional
        A file that ``fastmma record --cublas`` wrote. The choice is looked up there and nowhere else, for the version of the file.
    unknown : {"refuse", "one"}
        What to do if the choice is not known: raise an error, or return a plan of one part of k, whose `evidence` says so. A product that
        the file `plans` does not have is always an error.

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
    32 lanes of adjacent k, at most 64 at a time, added in halves: each lane of the first half adds its counterpart in the second half
    """
    given = epilogue_inputs(Arguments("plan", a, b, c, bias, alpha, beta), named=True)
    book = _book(plans, choice, target, version)
    layout = _layout(a, "a") + _layout(b, "b")
    fmt = _format(a, b)
    if a.ndim != b.ndim or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise OperandError(f"plan: a must be (M, K) and b (K, N), or stacks of as many, not {a.shape} and {b.shape}")
    out = named(out_dtype, "out_dtype") or ("s32" if fmt == "s8" else "f32")
    product = Product(fmt, layout, a.shape[-2], b.shape[-1], a.shape[-1], out, a.ndim == 3 and a.shape[0] > 1)
    product = _summed(product, accumulator)
    space, allowed = integer(workspace, "plan: workspace", 0), flag(tf32, "plan: tf32")
    wide = not flag(reduced_precision_reduction, "plan: reduced_precision_reduction") and product.out in NARROW and fmt in NARROW
    if choice is not None and not isinstance(choice, Choice):
        raise OperandTypeError(f"plan: choice must be a Choice, not {type(choice).__name__}")
    where = resolved_target(target)
    if choice is not None:
        if activation is None:
            _check_bias(product, given)
        if use_fast_accum and (library_gpu(target), version) in REPORTED:
            raise OperandError(f"plan: use_fast_accum is not reported of cuBLASLt {version} on {library_gpu(target)}")
        return follow(Known(choice, _table(target, version), None), Call(product, given, activation, use_fast_accum, where))
    if space not in (WORKSPACE, *((_WORKSPACE_WITH_BIAS,) if bias is not None else ())):
        raise OperandError(f"plan: nothing is known of what cuBLASLt chooses with {space} bytes of workspace; give its choice")
    product = product._replace(fmt="tf32") if product.fmt == "f32" and allowed else product
    call = Call(product, given, activation, use_fast_accum, where)
    preset = "cublas-fast-accum" if use_fast_accum else "cublas"
    options = {"c": c, "bias": bias, "alpha": alpha, "beta": beta, "activation": activation, "out_dtype": out_dtype, "preset": preset}
    options |= {"target": target} | _INSTRUCTIONS.get(product.fmt, {})
    kind = f"{product.fmt}fast" if use_fast_accum else product.fmt
    added, is_own = bool(given.c or given.beta), plans is not None or own_book() is not None
    stack = a.shape[0] if product.stacked else 1
    scaled = given.alpha or given.beta == SCALED
    asked = Question(library_gpu(target), kind, product, stack, given.bias, added, scaled, given.row, wide, book, is_own)
    return _looked_up(asked, call, a, b, plans, unknown, options)


def _summed(product: Product, accumulator: Any) -> Product:
    """Return the product with the format in which it is summed."""
    sums = named(accumulator, "accumulator") if accumulator is not None else ""
    if sums == "f16" and product.fmt == product.out == "f16":
        return product._replace(fmt=HALF_SUMS)
    if sums not in ("", "s32" if product.fmt == "s8" else "f32"):
        raise OperandError(f"plan: cuBLAS sums f16 with f16 results in f16, not {product.fmt} with {product.out} results in {sums}")
    return product


def _check_bias(product: Product, given: EpilogueInputs) -> None:
    """Raise OperandError where a bias of one number is added in 16 bits: PyTorch's library adds it as c, by another choice."""
    if given.bias and product.n == 1 and product.fmt in NARROW:
        raise OperandError(f"plan: PyTorch passes a bias of one column as c: give c, and the choice with c, for {product}")


def _book(plans: str | Path | None, choice: Choice | None, target: TargetName, version: str) -> Book | None:
    """Return the book that is asked, if any is, for this GPU and version of the library.

    Raises
    ------
    OperandError, OperandTypeError
        If it is another GPU's, or there is neither a book nor a table.
    """
    if not isinstance(version, str):
        raise OperandTypeError(f"plan: version must be a string, for example {VERSION!r}, not {type(version).__name__}")
    if plans is not None and not isinstance(plans, str | Path):
        raise OperandTypeError(f"plan: plans must be the name of a file, not {type(plans).__name__}")
    gpu = library_gpu(target)
    own = own_book() if plans is None else read_book(plans, "plans")
    if own is not None and choice is None:
        if own.gpu == gpu and version in (VERSION, short_version(own.version), own.version):
            return own
        if plans is not None or own.gpu == gpu:
            raise OperandError(f"plan: the file has plans of cuBLASLt {own.version} on {own.gpu}, not of {version} on {gpu}")
        return None
    shipped = shipped_book(gpu)
    if choice is not None or shipped is None or short_version(shipped.version) != version:
        table = _table(target, version)
        if choice is None and (gpu, version) in REPORTED:
            raise OperandError(f"plan: nothing is known of what cuBLASLt {table.version} chooses on {table.gpu}; give its choice")
    return shipped


def _looked_up(
    asked: Question, call: Call, a: Any, b: Any, plans: str | Path | None, unknown: str, options: dict[str, Any]
) -> GemmPlan | LanesPlan:
    """Follow what is recorded of a product, a rule, or what the library chose without running it."""
    refused, sources = OperandError(f"plans: {asked} is not recorded in {plans}"), PREDICTING_SOURCES
    half = asked.product.fmt == HALF_SUMS
    if half or asked.wide:
        refused, sources = OperandError(f"plan: nothing is known of what cuBLASLt chooses for {asked} here"), ALL_SOURCES
    elif plans is None:
        try:
            return gemm_plan(a, b, unknown="refuse", **options)
        except OperandError as error:
            refused = error
    as_c = asked.biased and 1 in (asked.product.n, asked.product.k)  # PyTorch adds a bias of one column as c
    if as_c and half and asked.product.k > 1:
        asked = asked._replace(biased=False)
    elif as_c or call.activation == GELU or (call.activation and sources is PREDICTING_SOURCES):
        sources = (find_recorded,)
    dense = (a.ndim == 2 or asked.product.stacked) and _is_dense(a) and _is_dense(b)
    for known in look_up(asked, sources) if dense else ():
        if known.evidence is not None and known.evidence.level == "unknown":
            refused = OperandError(known.evidence.source) if asked.is_own else refused
            continue
        with suppress(OperandError):
            return follow(known._replace(adds_bias_as_c=True) if as_c and half else known, call)
    if unknown == "refuse" or plans is not None or half or asked.wide:
        raise refused
    return gemm_plan(a, b, unknown=unknown, **options)


def _is_dense(array: Any) -> bool:
    """Tell whether matrices have no gaps, nor those of a stack between them: a GPU was asked about no others."""
    rows, columns = array.shape[-2:]
    matrix = Strided(array.dtype, (rows, columns), array.strides[-2:])
    dense = matrix.is_c_contiguous or matrix.is_f_contiguous
    return dense and (array.ndim == 2 or array.strides[0] == rows * columns * array.itemsize)


def _table(target: TargetName, version: str) -> Table:
    gpu = library_gpu(target)
    table = (TABLES | REPORTED).get((gpu, version))
    if table is None:
        target_named(gpu)  # a misspelt name has an error of its own
        known = ", ".join(f"{version} on {gpu}" for gpu, version in TABLES | REPORTED)
        raise OperandError(f"plan: nothing is known of the kernels of cuBLASLt {version} on {gpu}; there is {known}")
    if (gpu, version) in REPORTED and is_strict():
        raise TargetError(f"plan: the orders of cuBLASLt {version} on {gpu} are only {table.source}, which strict mode refuses")
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


def follow(known: Known, call: Call) -> GemmPlan | LanesPlan:
    """Follow a choice."""
    row, product = find_row_as_computed(known.table, known.choice, call.product)
    call = call._replace(product=product)
    return _lanes(row, known, call) if isinstance(row, LaneRow) else _tiles(row, known, call)


def _evidence(row: TileRow | LaneRow, known: Known, call: Call) -> OrderEvidence:
    table = known.table
    if known.evidence is not None:
        return known.evidence
    source = f"cuBLASLt {table.version} on {table.gpu}{known.says} {known.choice}, for {call.product}"
    in_segments = isinstance(row, TileRow) and row.segments is not None
    rate = table.segments if in_segments else table.rates.get((row.algo, call.product.fmt))
    return OrderEvidence("fitted", source, rate) if rate else OrderEvidence("assumed", f"{source}; {table.source}")


def _steps(ins: Any, kind: KernelEpilogue, known: Known, call: Call) -> tuple[tuple[str, ...], str]:
    """Find the steps of an epilogue, and the format of the result."""
    kind = kind.with_bias_as_c() if known.adds_bias_as_c else kind
    choices = Choices(activation=call.activation, out_dtype=call.product.out, preset="cublas")
    return epilogue_steps(ins, call.given, choices, kind, "plan")


def _lanes(row: LaneRow, known: Known, call: Call) -> LanesPlan:
    product, count = call.product, known.choice.parts if row.counts else 1
    lanes = replace(row.lanes, blocks=count) if row.counts == "blocks" else replace(row.lanes, parts=count)
    scaled = row.scaled if count == 1 and call.given.alpha else ""
    ending = call._replace(given=call.given._replace(alpha=False)) if scaled else call
    steps, out = _steps(multiply(FMA), KERNEL_EPILOGUES[row.ends if count == 1 else row.split_ends], known, ending)
    operand = ("a" if product.m == 1 else "b") if scaled == "vector" else scaled
    return LanesPlan(call.target, FMA, lanes, product.fmt, steps, out, operand, evidence=_evidence(row, known, call))


def _tiles(row: TileRow, known: Known, call: Call) -> GemmPlan:
    biased = call.given.bias and not known.adds_bias_as_c
    order = tile_order(row, known.choice, call.product, call.target, fast=call.fast, biased=biased)
    steps, out = _steps(multiply(order.opcode), order.ends, known, call)
    fields = {name: value for name, value in order._asdict().items() if name not in ("opcode", "ends")}
    return GemmPlan(call.target, order.opcode, epilogue=steps, out=out, evidence=_evidence(row, known, call), **fields)
