"""Products of Dask arrays: blocks of the result are tasks, and k is cut where the plan cuts it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from fastmma.backends.resolve import backend_of
from fastmma.dask.arrays import dask_array, in_order, rows_and_columns, stands_for, whole
from fastmma.host.errors import OperandError
from fastmma.host.signatures import spell_keywords
from fastmma.isa.formats import FORMATS
from fastmma.products.by_tile import ByTile, Cuts
from fastmma.products.gemm import gemm as multiplied
from fastmma.products.gemm_choice import gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.keywords import Choices, GemmChoices

# operands besides a and b: the letters of their dimensions, of which each but m and n is in one piece
_OPERANDS = {"c": "mn", "bias": "n", "metadata": "mx", "scale_a": "my", "scale_b": "zn"}


@spell_keywords(GemmChoices, Choices)
def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    chunks: Any = None,
    metadata: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    alpha: Any = 1.0,
    beta: Any = None,
    bias: Any = None,
    plan: GemmPlan | None = None,
    out: None = None,
    threads: int | None = 1,
    backend: str = "numba",
    **choices: Unpack[GemmChoices],
) -> Any:
    """Multiply Dask arrays with the bits of `fastmma.gemm`, block by block, when the result is asked for.

    A task computes a block of the result from whole rows of a and whole columns of b. K is cut only where the plan cuts it (``split_k=``),
    and the parts are added in the plan's order. So the bits do not depend on the chunks of any array. Dask's own ``a @ b`` cuts K at the
    chunks.

    Parameters
    ----------
    a, b : Dask or NumPy arrays (M, K) and (K, N)
        In any chunks.
    c : Dask or NumPy array (M, N), optional
    chunks : optional
        The chunks of the result, as Dask takes them, for example ``(2048, 2048)``; by default the row chunks of a and the column chunks of
        b. Blocks of 2048 and more keep the cost of scheduling small.
    threads : int, optional
        The threads of a task; None means all cores.
    metadata, scale_a, scale_b, bias : Dask or NumPy array, optional
    alpha, beta, backend
        As in `fastmma.gemm`.
    instruction, target, accumulator, promote_every, split_k, join, join_dtype, preset, activation, out_dtype, cast, arithmetic, unknown
        As in `fastmma.gemm`. A plan is chosen once, for the whole product.
    plan : GemmPlan, optional
        The plan to follow, instead of the options that choose one.
    out : None
        Dask arrays do not take it.

    Returns
    -------
    dask.array.Array (M, N)

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError
        All are `fastmma.FastmmaError`. Errors about values are raised when the result is computed.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_normal((50, 300)).astype(np.float16), rng.standard_normal((300, 40)).astype(np.float16)
    >>> d = gemm(da.from_array(a, chunks=(20, 64)), da.from_array(b, chunks=(100, 20)), target="H100", out_dtype="f16")
    >>> d.chunks
    ((20, 20, 10), (20, 20))
    >>> bool((d.compute() == multiplied(a, b, target="H100", out_dtype="f16")).all())
    True
    """
    if out is not None:
        raise OperandError("gemm: out cannot be given for Dask arrays")
    left, right = dask_array(a, "gemm: a"), dask_array(b, "gemm: b")
    if left.ndim != 2 or right.ndim != 2:
        raise OperandError(f"gemm: a and b must have two dimensions, not the shapes {left.shape} and {right.shape}")
    left, right = rows_and_columns(left, right, chunks)
    given = {"c": c, "bias": bias, "metadata": metadata, "scale_a": scale_a, "scale_b": scale_b}
    others = {name: dask_array(value, f"gemm: {name}") for name, value in given.items() if value is not None}
    numbers = {"alpha": alpha, "beta": beta}
    if plan is None:
        known: dict[str, Any] = {name: stands_for(each) for name, each in others.items()}
        plan = gemm_plan(in_order(left), in_order(right), **known, **numbers, **choices)
    elif choices:
        raise OperandError(f"gemm: with a plan, {', '.join(choices)} is left out")
    shape, depth = (left.shape[0], right.shape[1]), right.shape[0]
    ins = plan.operation.instruction
    if left.shape[1] * ins.k != depth * ins.stored_k:
        raise OperandError(f"gemm: a {left.shape} and b {right.shape} do not multiply")
    if isinstance(plan.split_k, ByTile):
        kind = type(plan.split_k).__name__
        raise OperandError(f"gemm: {kind} cuts k by the place of a tile in the whole result, which a block does not know")
    for name, each in others.items():
        wanted = {"m": shape[0], "n": shape[1]}
        if len(_OPERANDS[name]) != each.ndim or any(
            wanted.get(side, size) != size for side, size in zip(_OPERANDS[name], each.shape, strict=True)
        ):
            raise OperandError(f"gemm: {name} has shape {each.shape}, which does not go with a {left.shape} and b {right.shape}")
        cuts = {"m": left.chunks[0], "n": right.chunks[1]}
        others[name] = each.rechunk({place: cuts.get(side, -1) for place, side in enumerate(_OPERANDS[name])})
    how = {"backend": backend, "threads": threads}
    (_, _, parts) = next(plan.order.blocks(*shape, depth))
    if len(parts) > 1 and max(left.numblocks[1], right.numblocks[0]) > 1 and _parts_are_tasks(plan, others):
        return _join(left, right, others, plan, parts, numbers, how)
    return _blocks(whole(left, 1), whole(right, 0), others, plan, numbers | how)


def _parts_are_tasks(plan: GemmPlan, others: dict[str, Any]) -> bool:
    """Tell whether parts of k can be computed apart and joined: in ascending order, without operands along k or a c at the end."""
    plain = plan.join == "ascending" and not plan.join_dtype and not plan.adds_c
    return plain and not others.keys() & {"metadata", "scale_a", "scale_b"}


def _result(plan: GemmPlan) -> np.dtype[Any]:
    return FORMATS[plan.out or plan.operation.instruction.dtype].dtype


def _blocks(left: Any, right: Any, others: dict[str, Any], plan: GemmPlan, options: dict[str, Any]) -> Any:
    """The product, k in one piece."""
    dtype = _result(plan)
    operands = [each for name, array in others.items() for each in (array, _OPERANDS[name])]
    call = partial(_block, names=tuple(others), plan=plan, **options)
    meta = np.empty((0, 0), dtype)
    return da.blockwise(call, "mn", left, "mk", right, "ln", *operands, dtype=dtype, meta=meta, concatenate=True)


def _block(a: NDArray[Any], b: NDArray[Any], *others: NDArray[Any], names: tuple[str, ...], plan: GemmPlan, **options: Any) -> NDArray[Any]:
    """One block of a result."""
    operands: dict[str, Any] = dict(zip(names, others, strict=True))
    return multiplied(a, b, plan=plan, **operands, **options)


def _join(left: Any, right: Any, others: dict[str, Any], plan: GemmPlan, parts: Cuts, numbers: dict[str, Any], how: dict[str, Any]) -> Any:
    """The product from parts of k, each of which is a task for every block: the sums of the parts, then the epilogue."""
    part = replace(plan, split_k=1, split_unit=0, epilogue=(), out="")
    start = {"c": others["c"]} if "c" in others else {}
    sums = [_blocks(whole(left[:, i:j], 1), whole(right[i:j], 0), start if not i else {}, part, how) for i, j in parts]
    bias = [others["bias"], "n"] if "bias" in others else []
    last = replace(plan, split_k=1, split_unit=0, promote_every=None, first_tile=0)
    # an epilogue is that of a product without k, which starts from the sum
    call = partial(_sum, count=len(sums), plan=last if plan.epilogue else None, **numbers, **how)
    operands = [each for array in sums for each in (array, "mn")]
    dtype = _result(plan)
    return da.blockwise(call, "mn", *operands, *bias, dtype=dtype, meta=np.empty((0, 0), dtype))


def _sum(*arrays: NDArray[Any], count: int, plan: GemmPlan | None, backend: str, threads: int | None, **numbers: Any) -> NDArray[Any]:
    """Parts of k, added in ascending order, and what follows."""
    total, *rest = arrays[:count]
    fmt = next(each for each in (FORMATS["f32"], FORMATS["f16"], FORMATS["f64"], FORMATS["s32"]) if each.dtype == total.dtype)
    for part in rest:
        codes, others = (np.ascontiguousarray(each).view(fmt.code_dtype) for each in (total, part))
        total = backend_of(backend).join(codes, others, fmt).view(fmt.dtype)
    if plan is None:
        return total
    ins = plan.operation.instruction
    a, b = np.zeros((total.shape[0], 0), ins.formats.a.dtype), np.zeros((0, total.shape[1]), ins.formats.b.dtype)
    bias: dict[str, Any] = {"bias": arrays[count]} if len(arrays) > count else {}
    return multiplied(a, b, total, plan=plan, backend=backend, threads=threads, **bias, **numbers)
