"""From a choice of cuBLASLt to the plan that has its kernel's bits."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from fastmma.backends.resolve import resolved_target
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError, TargetError
from fastmma.host.integers import flag, integer
from fastmma.isa.gpus import TargetName, target_named
from fastmma.isa.scalar import OPCODE as FMA
from fastmma.numerics.lookup import is_strict
from fastmma.products.bound import Arguments
from fastmma.products.choice import named
from fastmma.products.cublas.asked import common_format, is_dense, layout_of, summed
from fastmma.products.cublas.book import Book, own_book, read_book, shipped_book
from fastmma.products.cublas.choice import Choice
from fastmma.products.cublas.follow import Call, follow
from fastmma.products.cublas.look_up import ALL_SOURCES, PREDICTING_SOURCES, Known, Question, find_recorded, look_up
from fastmma.products.cublas.rows import HALF_SUMS, NARROW, Product, Table
from fastmma.products.cublas.tables import REPORTED, TABLES, VERSION, short_version
from fastmma.products.gemm_choice import EpilogueInputs, epilogue_inputs, gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.lanes_plan import LanesPlan
from fastmma.products.library_gpu import library_gpu
from fastmma.products.library_order import SCALED
from fastmma.products.steps import GELU

WORKSPACE = 32 << 20
_TF32 = "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32"
_WORKSPACE_WITH_BIAS = 1 << 20  # what PyTorch lets cuBLASLt have, where it calls it itself
# which float32 needs where a plan is looked up
_INSTRUCTIONS: dict[str, dict[str, Any]] = {"f32": {"instruction": FMA}, "tf32": {"instruction": _TF32, "cast": True}}


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
    layout = layout_of(a, "a") + layout_of(b, "b")
    fmt = common_format(a, b)
    if a.ndim != b.ndim or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise OperandError(f"plan: a must be (M, K) and b (K, N), or stacks of as many, not {a.shape} and {b.shape}")
    out = named(out_dtype, "out_dtype") or ("s32" if fmt == "s8" else "f32")
    product = Product(fmt, layout, a.shape[-2], b.shape[-1], a.shape[-1], out, a.ndim == 3 and a.shape[0] > 1)
    product = summed(product, accumulator)
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
    dense = (a.ndim == 2 or asked.product.stacked) and is_dense(a) and is_dense(b)
    for known in look_up(asked, sources) if dense else ():
        if known.evidence is not None and known.evidence.level == "unknown":
            refused = OperandError(known.evidence.source) if asked.is_own else refused
            continue
        with suppress(OperandError):
            return follow(known._replace(adds_bias_as_c=True) if as_c and half else known, call)
    if unknown == "refuse" or plans is not None or half or asked.wide:
        raise refused
    return gemm_plan(a, b, unknown=unknown, **options)


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
