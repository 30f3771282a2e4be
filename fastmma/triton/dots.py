"""`tl.dot`: a tile's product with the bits of the instructions that Triton's compiler takes."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton.runtime.interpreter import TensorHandle

from fastmma.host.errors import NotEmulatedError
from fastmma.isa.gpus import TargetName
from fastmma.numerics.lookup import fidelity
from fastmma.triton.arithmetic import add_or_fuse
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import ACCUMULATORS, BY_TRITON, SUMS, elements
from fastmma.triton.handles import CONSTANT, FACTORS, JOINED, ProductHandle, loaded_bits
from fastmma.triton.lowering import FP8, Dot, Lowering
from fastmma.triton.parts import split_into_parts
from fastmma.triton.positions import position, straight
from fastmma.triton.sources import mark_exchanged
from fastmma.triton.splits import SPLITS


@lru_cache(maxsize=1 << 10)
def _asked(lowering: Lowering, dot: Dot) -> tuple[str, int | None]:
    """Return the opcode of a dot, and after how many k its sums are promoted."""
    return lowering.instruction(dot), lowering.promotion(dot)


def multiplied(run: Emulation, dot: Dot, lowering: Lowering, x: NDArray[Any], y: NDArray[Any], start: NDArray[Any] | None) -> NDArray[Any]:
    """A dot of elements, ``(..., M, K) @ (..., K, N)``, from `start` or from zero."""
    if lowering.a == "f16" and dot.a in FP8:
        x, y = x.astype(np.float16), y.astype(np.float16)
    order = lowering.order(dot.k)
    if order is not None:
        x, y = x[..., order], y[..., order, :]
    shape: tuple[int, ...] = (*x.shape[:-1], y.shape[-1])
    c = np.zeros(shape, SUMS[dot.accumulator]) if start is None else np.ascontiguousarray(np.broadcast_to(start, shape))
    product = run.product(*_asked(lowering, dot))
    if x.ndim == 2:
        return product(x, y, c)
    batch = (array.reshape(-1, *array.shape[-2:]) for array in (x, y, c))
    return product(*batch).reshape(shape)


def _split(run: Emulation, dot: Dot, lowering: Lowering, a: Any, b: Any, d: Any) -> Any:
    """Multiply parts, one dot after another from zero, and add the accumulator."""
    kind, pairs = SPLITS[dot.precision]
    number = 1 + max(index for pair in pairs for index in pair)
    first, second = (split_into_parts(np.asarray(handle.data, np.float32), kind, number) for handle in (a, b))
    total = np.zeros((*d.data.shape,), np.float32)
    for i, j in pairs:
        if (i, j) == (0, 0):
            total = np.where(np.isnan(total), np.float32(0), total)
        total = multiplied(run, dot, lowering, first[i], second[j], total)
    return add_or_fuse(run, mark_exchanged(TensorHandle(total, d.dtype.scalar)), d)


@lru_cache(maxsize=1 << 10)
def _described(instruction: str, every: int | None, target: TargetName) -> str:
    """Say in the report what computes a dot."""
    return f"{instruction}{f', promoted every {every} k' if every else ''} ({fidelity(instruction, target)})"


def _pass(run: Emulation, a: Any, b: Any, d: Any, why: str) -> Any:
    run.report.passes("tl.dot", why)
    x, y = (elements(handle).astype(d.data.dtype) for handle in (a, b))
    return TensorHandle(x @ y + d.data, d.dtype.scalar)


def create_dot(run: Emulation, original: Operation, a: Any, b: Any, d: Any, precision: Any, imprecise: int) -> Any:
    """Compute `tl.dot`.

    Raises
    ------
    TargetError
        If the numerics of the instruction on the target are not known.
    NotEmulatedError
        If what the compiler makes of the dot is not known, and the report does not let it pass.
    """
    left, right = (BY_TRITON.get(handle.dtype.scalar.name) for handle in (a, b))
    if left is None or right is None or d.data.dtype not in ACCUMULATORS:
        run.report.passes("tl.dot", f"operands of {a.dtype.scalar} and {b.dtype.scalar}")
        return original(a, b, d, precision, imprecise)
    (m, k), n = a.data.shape[-2:], b.data.shape[-1]
    name = str(precision).rpartition(".")[2].lower()
    joined = any(JOINED in handle.attr for handle in (a, b))
    bits = min(loaded_bits(a), loaded_bits(b)) // (2 if joined else 1)  # which the compiler halves, too
    formats = left.multiplied, right.multiplied, ACCUMULATORS[d.data.dtype]
    dot = Dot(m, n, k, *formats, a.data.ndim > 2, name, imprecise, bits)
    where = position()
    try:
        lowering, source = run.launch.lowering(dot, where)
        lowering.order(k)
    except NotEmulatedError as error:
        return _pass(run, a, b, d, str(error))
    if lowering.unit == "fma" and (lowering.a != "f32" or formats[2] != "f32"):
        return _pass(run, a, b, d, f"chains of fused multiply-adds of {lowering.a} are not known")
    if dot.is_split and any(FACTORS in handle.attr for handle in (a, b)):
        return _pass(
            run, a, b, d, f"input_precision={name!r} of products: whether the compiler fuses them with what splits them is not known"
        )
    instruction, every = _asked(lowering, dot)
    how = _described(instruction, every, run.target)
    permuted = f", kWidth {lowering.k_width}" if lowering.order(k) is not None else ""
    if dot.is_split:
        run.report.did("tl.dot", f"{name}: {len(SPLITS[name][1])} times {how}{permuted}, {source}")
        return _split(run, dot, lowering, a, b, d)
    multiply = partial(multiplied, run, dot, lowering, elements(a), elements(b))
    if joined and permuted and source == "rules":
        run.report.assumes("tl.dot", f"{how}{permuted}: the order of k of what tl.join made depends on the loads behind it")
    else:
        run.report.did("tl.dot", f"{how}{permuted}, {source}")
    if not permuted and lowering.a == dot.a:
        run.report.multiplies(run.product(instruction, every).plan)
    born = d.attr.get(CONSTANT)
    if born and not imprecise and d.dtype.scalar.is_floating() and straight(born, where):
        return mark_exchanged(ProductHandle(d.dtype.scalar, where, multiply, run.report))
    return mark_exchanged(TensorHandle(multiply(d.data), d.dtype.scalar))


OPERATIONS = {"create_dot": create_dot}
