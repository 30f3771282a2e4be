"""Block-scaled Dask arrays: quantised chunk by chunk, and multiplied block by block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import dask.array as da
import numpy as np
from dask import delayed
from numpy.typing import NDArray

from fastmma.dask.arrays import dask_array, rows_and_columns, stands_for, whole
from fastmma.host.calls import named_keywords
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import axis_of
from fastmma.isa.formats import FORMATS
from fastmma.products.plan import AccumulationPlan
from fastmma.products.scaled import scaled_matmul as multiplied
from fastmma.products.scaled_choice import scaled_plan
from fastmma.scaling import ScaledArray
from fastmma.scaling import quantize as quantized
from fastmma.scaling.schemes import Scheme, scheme_of


@dataclass(frozen=True)
class ScaledDaskArray:
    """A `fastmma.ScaledArray` whose elements and scales are Dask arrays.

    Attributes
    ----------
    elements, scales : dask.array.Array
        A chunk of scales has the extents of the chunk of elements over those of a block.
    axis : int
        The dimension that a product contracts.
    scheme : str
        A name of `fastmma.scaling.SCHEMES`.
    global_scale : dask.array.Array of no dimensions, or None
    """

    elements: Any
    scales: Any
    axis: int
    scheme: str
    global_scale: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the elements."""
        return tuple(self.elements.shape)

    @property
    def T(self) -> ScaledDaskArray:  # noqa: N802 - NumPy's name
        """The transposed array, as in NumPy."""
        return replace(self, elements=self.elements.T, scales=self.scales.T, axis=self.elements.ndim - 1 - self.axis)

    def compute(self, **options: Any) -> ScaledArray:
        """Compute the array into memory; the options are Dask's."""
        elements, scales, overall = da.compute(self.elements, self.scales, self.global_scale, **options)
        return _array(elements, scales, overall, self.axis, self.scheme)

    @property
    def meta(self) -> ScaledArray:
        """Return an array of the same shape without its memory; plans are chosen from it."""
        elements, scales = stands_for(self.elements), stands_for(self.scales)
        return _array(elements, scales, None if self.global_scale is None else np.float32(1), self.axis, self.scheme)


def _array(elements: Any, scales: Any, overall: Any, axis: int, scheme: str) -> ScaledArray:
    block = scheme_of(scheme).block(elements.shape, axis)
    return ScaledArray(elements, scales, block, axis, None if overall is None else np.float32(overall), scheme)


@named_keywords
def quantize(
    x: Any,
    scheme: str | Scheme,
    *,
    axis: int = -1,
    rule: str | None = None,
    rounding: str = "nearest",
    pad: bool = True,
    threads: int | None = 1,
) -> ScaledDaskArray:
    """Quantize a Dask array chunk by chunk, with the bits of `fastmma.scaling.quantize`.

    Parameters
    ----------
    x : Dask or NumPy array
        Chunks must hold whole blocks; the last chunk may end with a shorter block.
    scheme, axis, rule, rounding, pad
        As in `fastmma.scaling.quantize`, but stochastic rounding is refused, because it draws by the place in the whole array.
    threads : int, optional
        The threads of a task.

    Returns
    -------
    ScaledDaskArray

    Raises
    ------
    OperandError, OperandTypeError
        If a chunk cuts a block, OperandError names it.

    Examples
    --------
    >>> x = da.random.default_rng(0).standard_normal((64, 96), chunks=(32, 48))
    >>> q = quantize(x, "nvfp4")
    >>> q.scales.chunks
    ((32, 32), (3, 3))
    >>> bool((q.compute().scales == quantized(x.compute(), "nvfp4").scales).all())
    True
    """
    if rounding == "stochastic":
        raise OperandError("quantize: stochastic rounding draws by the place in the whole array, which a chunk does not know")
    array, row = dask_array(x, "x"), scheme_of(scheme)
    place = axis_of(axis, array.ndim, f" for the shape {array.shape}")
    options: dict[str, Any] = {"axis": place, "rule": rule, "rounding": rounding, "pad": pad, "threads": threads}
    quantized(np.zeros((1,) * array.ndim, array.dtype), row, **{**options, "pad": True})  # raises what is wrong about them
    block = row.block(array.shape, place)
    _check_chunks(array, block, row)
    overall = [_largest(array)] if row.two_level and array.size else []
    call = partial(_quantize, scheme=row, lead=block[place], **options)
    blocks = da.map_blocks(call, array, *overall, dtype=object, meta=np.empty((0,) * array.ndim, object))
    chunks = tuple(tuple(-(-size // extent) for size in sizes) for sizes, extent in zip(array.chunks, block, strict=True))
    elements, scales = (
        blocks.map_blocks(partial(_part, name=name), dtype=fmt.dtype, chunks=sizes, meta=np.empty((0,) * array.ndim, fmt.dtype))
        for name, fmt, sizes in (("elements", row.element_format, array.chunks), ("scales", row.scale_format, chunks))
    )
    whole_scale = None
    if row.two_level:
        first = delayed(_part)(blocks.to_delayed().ravel()[0], name="global_scale")
        whole_scale = da.from_delayed(first, (), np.float32)
    return ScaledDaskArray(elements, scales, place, row.name, whole_scale)


def _check_chunks(array: Any, block: tuple[int, ...], scheme: Scheme) -> None:
    """Raise OperandError where a chunk ends inside a block."""
    for dimension, (sizes, extent) in enumerate(zip(array.chunks, block, strict=True)):
        for number, end in enumerate(accumulate(sizes[:-1])):
            if end % extent:
                where = f"chunk {number} along dimension {dimension} ends at {end}"
                raise OperandError(f"quantize: {where}, inside a block of {extent} of {scheme.name}: rechunk to multiples of {extent}")


def _largest(array: Any) -> Any:
    """The largest magnitude of all, as an array of one element that goes to every chunk."""
    wide = np.float64 if array.dtype == np.float64 else np.float32
    return abs(array.astype(wide)).max(keepdims=True)


def _quantize(x: NDArray[Any], *largest: NDArray[Any], scheme: Scheme, lead: int, axis: int, **options: Any) -> ScaledArray:
    """One chunk; where the whole array has a scale, a block before it holds the largest magnitude of all."""
    if not largest:
        return quantized(x, scheme, axis=axis, **options)
    before = np.zeros((*x.shape[:axis], lead, *x.shape[axis + 1 :]), x.dtype)
    before.reshape(-1)[:1] = largest[0].reshape(-1).astype(x.dtype)
    found = quantized(np.concatenate([before, x], axis), scheme, axis=axis, **options)
    return found[tuple(slice(lead, None) if place == axis else slice(None) for place in range(x.ndim))]


def _part(array: ScaledArray, name: str) -> Any:
    return getattr(array, name)


def scaled_matmul(
    a: ScaledDaskArray,
    b: ScaledDaskArray,
    *,
    c: Any = None,
    bias: Any = None,
    chunks: Any = None,
    plan: AccumulationPlan | None = None,
    threads: int | None = 1,
    **options: Any,
) -> Any:
    """Multiply block-scaled Dask arrays with the bits of `fastmma.scaled_matmul`. A task computes a block of the result; K is not cut.

    Parameters
    ----------
    a, b : ScaledDaskArray (M, K) and (K, N)
        As `quantize` returns them; weights (N, K) are passed as ``w.T``.
    c : Dask or NumPy array (M, N), optional
    bias : Dask or NumPy array (N,), optional
    chunks : optional
        The chunks of the result, if the scales of a and b have rows and columns of their own; by default those of a and b.
    plan : AccumulationPlan, optional
    threads : int, optional
        The threads of a task.
    **options
        The other arguments of `fastmma.scaled_matmul`, except `out`. A plan is chosen once, for the whole product.

    Returns
    -------
    dask.array.Array (M, N)

    Raises
    ------
    InstructionError, TargetError, OperandError, OperandTypeError

    Examples
    --------
    >>> x = da.random.default_rng(0).standard_normal((64, 128), chunks=(32, 64))
    >>> q = quantize(x, "mxfp8")
    >>> scaled_matmul(q, q.T, target="B200", out_dtype="bf16").compute().shape
    (64, 64)
    """
    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, ScaledDaskArray):
            raise OperandTypeError(f"scaled_matmul: {name} must be a ScaledDaskArray, as fastmma.dask.quantize returns it")
    if len(a.shape) != 2 or len(b.shape) != 2 or a.axis != 1 or b.axis != 0 or a.shape[1] != b.shape[0]:
        raise OperandError(f"scaled_matmul: a {a.shape} along {a.axis} and b {b.shape} along {b.axis} are not (M, K) and (K, N) along K")
    numbers = {name: options.pop(name) for name in ("alpha", "beta") if name in options}
    backend = options.pop("backend", "numba")
    chosen = scaled_plan(a.meta, b.meta, **options) if plan is None else plan
    a, b = _cut(a, b, chunks)
    cuts = {"m": a.elements.chunks[0], "n": b.elements.chunks[1]}
    operands = [a.elements, "mk", a.scales, "mp", b.elements, "ln", b.scales, "qn"]
    for array in (a, b):
        operands += [array.global_scale, ""] if array.global_scale is not None else []
    given = {
        name: (dask_array(value, f"scaled_matmul: {name}"), sides)
        for name, value, sides in (("c", c, "mn"), ("bias", bias, "n"))
        if value is not None
    }
    for value, sides in given.values():
        operands += [value.rechunk({place: cuts[side] for place, side in enumerate(sides)}), sides]
    names = ("a", "b", *given), (a.global_scale is not None, b.global_scale is not None), (a.scheme, b.scheme)
    call = partial(_product, names=names, plan=chosen, threads=threads, backend=backend, **numbers)
    dtype = FORMATS[chosen.out].dtype
    return da.blockwise(call, "mn", *operands, dtype=dtype, meta=np.empty((0, 0), dtype), concatenate=True, align_arrays=False)


def _cut(a: ScaledDaskArray, b: ScaledDaskArray, chunks: Any) -> tuple[ScaledDaskArray, ScaledDaskArray]:
    """Operands with k in one piece, cut into rows and columns as wanted."""
    if chunks is not None:
        if any(array.scales.shape[side] != array.shape[side] for array, side in ((a, 0), (b, 1))):
            raise OperandError("scaled_matmul: chunks can be given where every row of a and column of b has scales of its own")
        (left, right), (left_scales, right_scales) = (
            rows_and_columns(first, second, chunks) for first, second in ((a.elements, b.elements), (a.scales, b.scales))
        )
        a, b = replace(a, elements=left, scales=left_scales), replace(b, elements=right, scales=right_scales)
    return (
        replace(a, elements=whole(a.elements, 1), scales=whole(a.scales, 1)),
        replace(b, elements=whole(b.elements, 0), scales=whole(b.scales, 0)),
    )


def _product(x: Any, s: Any, y: Any, t: Any, *rest: Any, names: Any, plan: AccumulationPlan, **options: Any) -> NDArray[Any]:
    """One block of a result."""
    (_, _, *others), levels, schemes = names
    remaining = list(rest)
    wholes = [remaining.pop(0) if level else None for level in levels]
    left, right = _array(x, s, wholes[0], 1, schemes[0]), _array(y, t, wholes[1], 0, schemes[1])
    return multiplied(left, right, plan=plan, **dict(zip(others, remaining, strict=True)), **options)
