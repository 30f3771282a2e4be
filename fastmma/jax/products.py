"""JAX's dot_general as matrix products: which plan it takes, and its arrays in and out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import FastmmaError, NotEmulatedError
from fastmma.isa.targets import architecture
from fastmma.jax.algorithms import FP8, Algorithm, algorithm_of, common_dtype, operand_dtype, promotion
from fastmma.jax.arrangements import Dimensions, arrangement
from fastmma.jax.calls import ONE_ACCUMULATOR, TRITON
from fastmma.jax.compiled_programs import Followed, follow, follow_plan
from fastmma.jax.settings import Settings
from fastmma.jax.sums import add_devices
from fastmma.products import cublas
from fastmma.products.bound import Strided
from fastmma.products.choice import default_instruction
from fastmma.products.cublas.book import read_book
from fastmma.products.gemm import gemm
from fastmma.products.gemm_choice import gemm_plan
from fastmma.products.gemm_plan import GemmPlan
from fastmma.products.matmul import matmul

_RESULTS = ("float32", "bfloat16", "float16")


def find_followed(settings: Settings, lhs: Any, rhs: Any, out: Any, dimensions: Dimensions, scope: str = "") -> Followed:
    """Find a product in the programs that XLA compiled, if a caller gave them; `scope` decides among several of one size."""
    how = arrangement(lhs.shape, rhs.shape, dimensions)
    names = (np.dtype(lhs.dtype).name, np.dtype(rhs.dtype).name)
    return follow(settings.compiled, settings.target, names, np.dtype(out.dtype).name, (math.prod(how.batch), how.m, how.n, how.k), scope)


def plan_of(
    settings: Settings, lhs: Any, rhs: Any, out: Any, dimensions: Dimensions, precision: Any, followed: Followed | None = None
) -> GemmPlan:
    """Choose how a product is accumulated.

    Parameters
    ----------
    settings : Settings
    lhs, rhs, out : anything with a shape and a dtype
    dimensions, precision
        As ``jax.lax.dot_general`` canonicalises them.
    followed : Followed, optional
        What XLA's text says of it.

    Raises
    ------
    NotEmulatedError
        If no tensor core of the target computes it, or its bits are not known.
    """
    types = np.dtype(lhs.dtype), np.dtype(rhs.dtype), np.dtype(out.dtype)
    common = common_dtype(*types) if not _names_algorithm(precision) else None
    if common is not None:
        types = common, common, types[2]
    algorithm = algorithm_of(precision, types[0], types[1], "tf32" if common is not None else settings.f32)
    integers = types[0].kind in "iu"
    if types[2].name not in (("int32",) if integers else _RESULTS):
        raise NotEmulatedError(f"a product of {types[0]} and {types[1]} with a result in {types[2]} is not known")
    sizes = arrangement(lhs.shape, rhs.shape, dimensions)
    wanted = dict(settings.plans).get((sizes.m, sizes.n, sizes.k), 1)
    if isinstance(wanted, GemmPlan):
        return wanted
    if common is None and (recorded := _recorded(settings, lhs, rhs, types[2], dimensions, algorithm)) is not None:
        return recorded
    shapes = (sizes.m, sizes.k), (sizes.k, sizes.n)
    x, y = (np.broadcast_to(np.zeros((), operand_dtype(algorithm, dtype)), shape) for dtype, shape in zip(types[:2], shapes, strict=True))
    options: dict[str, Any] = {"target": settings.target, "split_k": wanted, "promote_every": promotion(algorithm, settings.target)}
    if not integers:
        options |= {"out_dtype": types[2], "accumulator": algorithm.accumulator or None}
    try:
        if algorithm.tf32:
            options["instruction"] = default_instruction("tf32", "tf32", None, settings.target)
        plan = gemm_plan(x, y, **options)
    except FastmmaError as error:
        raise NotEmulatedError(f"{types[0]} times {types[1]} on {settings.target}: {error}") from error
    plan = replace(plan, cast=True) if algorithm.operand and algorithm.operand != types[0].name else plan
    return follow_plan(plan, followed.product if followed else None)


def _names_algorithm(precision: Any) -> bool:
    """Tell whether a caller names the formats of operands and sums."""
    first = precision[0] if isinstance(precision, tuple) else precision
    named = isinstance(first, jax.lax.DotAlgorithm | jax.lax.DotAlgorithmPreset)
    return named and getattr(first, "name", "") != "DEFAULT"


def _recorded(settings: Settings, lhs: Any, rhs: Any, out: np.dtype[Any], dimensions: Dimensions, algorithm: Algorithm) -> GemmPlan | None:
    """Look a product up in the caller's file of plans; None where it is not there, or operands are not multiplied as they lie."""
    types = np.dtype(lhs.dtype), np.dtype(rhs.dtype)
    if not settings.book or algorithm.accumulator or any(operand_dtype(algorithm, each) != each for each in types):
        return None
    (lhs_k, rhs_k), (lhs_batch, _) = dimensions
    sizes, first = arrangement(lhs.shape, rhs.shape, dimensions), len(lhs_batch)
    sides = "n" if tuple(lhs_k) == (len(lhs.shape) - 1,) else "t", "n" if tuple(rhs_k) == (first,) else "t"
    stack = (math.prod(sizes.batch),) if sizes.batch else ()
    shapes = ((sizes.m, sizes.k), (sizes.k, sizes.n))
    x, y = (_lying(dtype, stack, shape, side) for dtype, shape, side in zip(types, shapes, sides, strict=True))
    try:
        gpu = read_book(settings.book, "plans").name
        plan = cublas.plan(x, y, target=gpu, plans=settings.book, out_dtype=out, tf32=algorithm.tf32)
    except FastmmaError:
        return None
    return plan if isinstance(plan, GemmPlan) else None


def _lying(dtype: np.dtype[Any], stack: tuple[int, ...], shape: tuple[int, int], side: str) -> Strided:
    """Describe dense matrices whose rows are contiguous, or whose columns are."""
    (rows, columns), size = shape, dtype.itemsize
    strides = (columns * size, size) if side == "n" else (size, rows * size)
    return Strided(dtype, (*stack, *shape), (*(rows * columns * size for _ in stack), *strides))


def find_guess(
    settings: Settings,
    lhs: Any,
    rhs: Any,
    dimensions: Dimensions,
    devices: int = 1,
    plan: GemmPlan | None = None,
    followed: Followed | None = None,
) -> str:
    """Find what is not known of the order of k in a product on a GPU; empty for integers, and where the caller named a plan.

    Parameters
    ----------
    settings : Settings
    lhs, rhs : anything with a shape and a dtype
    dimensions
        As ``jax.lax.dot_general`` canonicalises them.
    devices : int
        Among how many XLA partitions the program.
    plan : GemmPlan, optional
        What the product takes.
    followed : Followed, optional
        What XLA's text says of it.
    """
    if np.dtype(lhs.dtype).kind in "iu":
        return ""
    if devices > 1:
        return (
            f"one product of the whole operands: where XLA cuts k among the {devices} devices, it adds their parts: "
            f"name them, plans={{(M, N, K): {devices}}}, or map the product by shard_map"
        )
    if plan is not None and plan.evidence is not None:
        return f"as cuBLAS, where XLA calls it and takes its first choice; {plan.evidence}"
    if settings.compiled and followed is not None:
        order = "" if followed.product else f"; {ONE_ACCUMULATOR}"
        return f"{followed.guess}{order}" if followed.guess else ""
    sizes = arrangement(lhs.shape, rhs.shape, dimensions)
    return "" if (sizes.m, sizes.n, sizes.k) in dict(settings.plans) else ONE_ACCUMULATOR


def find_kernel_guess(lhs: Any) -> str:
    """Find what is not known of a product in a Pallas kernel, which Triton compiles; empty for integers."""
    return "" if np.dtype(lhs.dtype).kind in "iu" else TRITON


def is_widened(target: str, lhs: Any, rhs: Any) -> bool:
    """Tell whether Triton widens operands to float16 in registers: float8 where ``mma.sync`` does not take it, and on Hopper."""
    return {np.dtype(each.dtype).name for each in (lhs, rhs)} <= set(FP8) and architecture(target) in ("sm_75", "sm_80", "sm_86", "sm_90")


def order_of_neighbours(k: int, neighbours: int, packed: int) -> NDArray[np.intp]:
    """Return the order in which instructions take k, where each thread holds some neighbours of it.

    Parameters
    ----------
    k : int
        A multiple of eight times the neighbours.
    neighbours : int
        How many k a thread holds side by side.
    packed : int
        How many of them are in a register: 2 of 16 bits, 1 of 32.

    Examples
    --------
    >>> order_of_neighbours(16, 2, 1).tolist()
    [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]
    """
    held = np.arange(k).reshape(-1, 2, 4, neighbours // packed, packed)
    return held.transpose(0, 3, 1, 2, 4).reshape(-1)


def product_options(lhs: Any, rhs: Any, out: Any, dimensions: Dimensions, plan: GemmPlan) -> tuple[tuple[str, Any], ...]:
    """Return the keyword arguments of `product` for operands and a result with dtypes."""
    common = common_dtype(*(np.dtype(each.dtype) for each in (lhs, rhs, out)))
    return ("dimensions", dimensions), ("plan", plan), ("common", common)


def product(
    lhs: Any,
    rhs: Any,
    *sums: Any,
    dimensions: Dimensions,
    plan: GemmPlan,
    common: np.dtype[Any] | None = None,
    sizes: tuple[int, ...] = (),
    neighbours: int = 1,
    lengths: tuple[int, int, int, int] | None = None,
) -> NDArray[Any]:
    """Multiply arrays in main memory as dot_general does, by a plan.

    Parameters
    ----------
    lhs, rhs : array
    *sums : array
        A matrix to add to, if there is one.
    dimensions : tuple
    plan : GemmPlan
    common : dtype, optional
        To which operands of two dtypes are converted first.
    sizes : tuple of int
        The parts of the contracted dimensions that are multiplied at once, each by the plan; their results are added one after another.
        Empty for all at once.
    neighbours : int
        How many k a thread holds side by side, where it widens them.
    lengths : tuple of int, optional
        How many parts k has, how many k a part has, how many with the zeros that fill its last instructions, and among how many groups
        the parts are dealt in turn, of which each is added first.
    """
    x, y = np.asarray(lhs), np.asarray(rhs)
    if sizes:
        how_each: dict[str, Any] = {"plan": plan, "common": common, "neighbours": neighbours, "lengths": lengths}
        return reduce(add_devices, (product(*each, dimensions=dimensions, **how_each) for each in _cut(x, y, dimensions, sizes)))
    if common is not None:
        x, y = x.astype(common), y.astype(common)
    if x.dtype == np.float32 and not plan.cast:
        x, y = tf32(x), tf32(y)
    how = arrangement(x.shape, y.shape, dimensions)
    x = x.transpose(how.lhs).reshape(*how.batch, how.m, how.k)
    y = y.transpose(how.rhs).reshape(*how.batch, how.k, how.n)
    if lengths is not None:
        x, y = _fill(x, -1, *lengths), _fill(y, -2, *lengths)
    if neighbours > 1:
        order = order_of_neighbours(x.shape[-1], neighbours, 4 // x.dtype.itemsize)
        x, y = np.ascontiguousarray(x[..., order]), np.ascontiguousarray(y[..., order, :])
    if sums:
        return gemm(x, y, np.asarray(sums[0]), plan=plan)
    return (matmul if how.batch else gemm)(x, y, plan=plan).reshape(how.shape)


def _fill(x: NDArray[Any], axis: int, parts: int, length: int, filled: int, dealt: int) -> NDArray[Any]:
    """Fill each part of k with zeros, and put the parts of each group side by side."""
    moved = np.moveaxis(x, axis, -1)
    outer = np.zeros((*moved.shape[:-1], parts * length), x.dtype)
    outer[..., : moved.shape[-1]] = moved
    inner = np.zeros((*moved.shape[:-1], parts, filled), x.dtype)
    inner[..., :length] = outer.reshape(*moved.shape[:-1], parts, length)
    inner = inner.reshape(*moved.shape[:-1], parts // dealt, dealt, filled).swapaxes(-3, -2)
    return np.moveaxis(inner.reshape(*moved.shape[:-1], parts * filled), -1, axis)


def _cut(x: NDArray[Any], y: NDArray[Any], dimensions: Dimensions, sizes: tuple[int, ...]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Cut operands along what is contracted, the first dimension slowest."""
    (of_x, of_y), _ = dimensions
    extents = [x.shape[each] for each in of_x]
    for starts in itertools.product(*(range(0, extent, size) for extent, size in zip(extents, sizes, strict=True))):
        inside = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        taken = []
        for array, held in ((x, of_x), (y, of_y)):
            key = [slice(None)] * array.ndim
            for dimension, part in zip(held, inside, strict=True):
                key[dimension] = part
            taken.append(array[tuple(key)])
        yield taken[0], taken[1]


def tf32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 rounded to tf32, to nearest, ties away from zero: PTX's ``cvt.rna.tf32.f32``, which XLA's kernels apply to operands.

    Examples
    --------
    >>> tf32(np.array([1 + 2**-11, 1 + 2**-12, -1 - 2**-11], np.float32)).tolist()
    [1.0009765625, 1.0, -1.0009765625]
    """
    half, kept = np.uint32(1 << 12), np.uint32(0xFFFFE000)
    rounded = ((np.ascontiguousarray(x).view(np.uint32) + half) & kept).view(np.float32)
    return np.where(np.isnan(x), x, rounded)


def plan_text(plan: GemmPlan) -> str:
    """A plan in short."""
    parts = [plan.instruction]
    parts += [f"promoted every {plan.promote_every}"] if plan.promote_every else []
    return ", ".join([*parts, *([f"split_k={plan.split_k}"] if plan.split_k != 1 else [])])
