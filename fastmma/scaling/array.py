"""The block-scaled array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.calls import named_fields, public_call
from fastmma.host.errors import FastmmaError, OperandError, OperandTypeError
from fastmma.host.float_mode import default_floats
from fastmma.host.integers import axis_of, whole
from fastmma.host.threads import thread_count
from fastmma.isa.codes import all_codes, decode, encode, from_codes
from fastmma.isa.formats import format_of
from fastmma.scaling.rounding import block_values, round_to
from fastmma.scaling.schemes import SCHEMES, Scheme, scheme_of
from fastmma.scaling.view import view_of

_FLOATS = ("f16", "bf16", "f32", "f64")


@named_fields
@dataclass(frozen=True, eq=False)
class ScaledArray:
    """Elements of a narrow format and the scales of their blocks; a value is element * scale (* global_scale).

    Attributes
    ----------
    elements : array (...)
        One element each, in the dtype of the element format; never padded.
    scales : array (...)
        float8_e8m0fnu, float8_e4m3fn (not negative) or float32, one for each block: every extent is that of `elements` over the block's,
        rounded up.
    block : tuple of int
        The extent of a block in each dimension.
    axis : int
        The dimension that a product contracts; negative ones are counted from the last when the array is made.
    global_scale : float32, or None where the scheme has one level of scales
    scheme : str
        A name of `fastmma.scaling.SCHEMES`. If it is not given, the first with such elements, scales and blocks.

    Raises
    ------
    OperandError, OperandTypeError
        If shapes or dtypes do not fit the scheme or one another, or a scale is negative.

    Examples
    --------
    >>> from fastmma.scaling import quantize
    >>> q = quantize(np.ones((128, 64), np.float32), "nvfp4")
    >>> q.shape, q.scales.shape, q.block, q.nbytes
    ((128, 64), (128, 4), (1, 16), 4612)
    >>> q[64:, 16:].shape, q.T.axis
    ((64, 48), 0)
    """

    elements: NDArray[Any]
    scales: NDArray[Any]
    block: tuple[int, ...]
    axis: int = -1
    global_scale: np.float32 | None = None
    scheme: str = ""

    @public_call
    def __post_init__(self) -> None:
        elements, scales = as_array(self.elements, "elements"), as_array(self.scales, "scales")
        row = self._scheme(elements, scales) if isinstance(self.scheme, str) and not self.scheme else scheme_of(self.scheme)
        for what, array, fmt in (("elements", elements, row.element_format), ("scales", scales, row.scale_format)):
            if array.dtype != fmt.dtype:
                raise OperandTypeError(f"{what} of {row.name} must have dtype {fmt.dtype} ({fmt}), not {array.dtype}")
        if elements.ndim < row.dimensions:
            raise OperandError(f"elements of {row.name} must have at least {row.dimensions} dimension(s), not the shape {elements.shape}")
        axis = self._axis(elements.ndim)
        block = self._block(row, elements.shape, axis)
        if block is None:
            usual = row.block(elements.shape, axis)
            raise OperandError(f"block of {row.name} must be {usual} for shape {elements.shape} and axis {axis}, not {self.block}")
        wanted = tuple(-(-extent // size) for extent, size in zip(elements.shape, block, strict=True))
        if scales.shape != wanted:
            raise OperandError(f"scales must have shape {wanted} for shape {elements.shape} in blocks {block}, not {scales.shape}")
        if row.scale == "ue4m3" and (scales.view(np.uint8) >> 7).any():
            raise OperandError(f"scales of {row.name} must not be negative: {row.scale} has no sign")
        overall = _float32(self.global_scale) if row.two_level else None
        if (overall is None) != (self.global_scale is None) or row.two_level == (overall is None):
            needed = "a float32 that is not negative" if row.two_level else "None"
            raise OperandError(f"global_scale of {row.name} must be {needed}, not {self.global_scale!r}")
        fields = {"elements": elements, "scales": scales, "block": block, "axis": axis, "global_scale": overall, "scheme": row.name}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _axis(self, ndim: int) -> int:
        return axis_of(self.axis, ndim)

    def _block(self, row: Scheme, shape: tuple[int, ...], axis: int) -> tuple[int, ...] | None:
        """The block that was given, if it is one of the scheme's."""
        given = tuple(map(whole, self.block)) if isinstance(self.block, tuple | list) else ()
        return next((each for each in row.blocks(shape, axis) if each == given), None)

    def _scheme(self, elements: NDArray[Any], scales: NDArray[Any]) -> Scheme:
        """The first scheme that fits."""
        for row in SCHEMES.values():
            dtypes = row.element_format.dtype, row.scale_format.dtype
            fits = (elements.dtype, scales.dtype) == dtypes and row.two_level == (self.global_scale is not None)
            if fits and elements.ndim >= row.dimensions and self._block(row, elements.shape, self._axis(elements.ndim)) is not None:
                return row
        levels = "a global scale" if self.global_scale is not None else "no global scale"
        what = f"elements of {elements.dtype} and scales of {scales.dtype} in blocks {self.block}, with {levels}"
        raise OperandError(f"no scheme has {what}, for shape {elements.shape} and axis {self.axis}; name one: {', '.join(SCHEMES)}")

    @property
    def row(self) -> Scheme:
        """The row of the scheme."""
        return scheme_of(self.scheme)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the elements."""
        return self.elements.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.elements.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        return self.elements.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of packed elements (two e2m1 a byte, four 6-bit ones in three), of scales and of the global scale."""
        packed = -(-self.elements.size * self.row.element_format.bits // 8)
        return packed + self.scales.nbytes + (0 if self.global_scale is None else 4)

    @property
    def T(self) -> ScaledArray:  # noqa: N802
        """The transposed array, a view: dimensions are reversed, and `axis` moves along."""
        return replace(self, elements=self.elements.T, scales=self.scales.T, block=self.block[::-1], axis=self.ndim - 1 - self.axis)

    @default_floats
    def __repr__(self) -> str:
        overall = "" if self.global_scale is None else f", global_scale={self.global_scale!s}"
        return f"ScaledArray({self.scheme}, shape={self.shape}, block={self.block}, axis={self.axis}{overall})"

    def __getitem__(self, key: Any) -> ScaledArray:
        """Cut out whole blocks: slices of step 1 that start and stop between blocks; where one block spans a dimension, anywhere.

        An integer drops a dimension other than `axis` in which blocks are one element high or span the whole.

        Raises
        ------
        OperandError
        """
        keys = key if isinstance(key, tuple) else (key,)
        if any(item is Ellipsis for item in keys):
            at = next(i for i, item in enumerate(keys) if item is Ellipsis)
            keys = (*keys[:at], *[slice(None)] * (self.ndim - len(keys) + 1), *keys[at + 1 :])
        if len(keys) > self.ndim or not all(isinstance(item, slice) or whole(item) is not None for item in keys):
            raise OperandError(f"a ScaledArray of {self.ndim} dimensions takes at most that many slices or integers, not {key!r}")
        keys = (*keys, *[slice(None)] * (self.ndim - len(keys)))
        cuts, places = [], []
        dropped = tuple(d for d, item in enumerate(keys) if not isinstance(item, slice))
        for d, (item, extent, size) in enumerate(zip(keys, self.shape, self.block, strict=True)):
            start, stop = self._place(d, item) if d in dropped else _bounds(item, extent)
            if self.scales.shape[d] != 1 and (start % size or (stop % size and stop != extent)):
                allowed = f"start and stop at multiples of it, or end at {extent}"
                raise OperandError(f"dimension {d} is in blocks of {size}: a slice must {allowed}, not be {start}:{stop}")
            cuts.append(slice(start, stop))
            places.append(slice(start // size, -(-stop // size) if stop > start else start // size))
        elements = self.elements[tuple(cuts)]
        scales = self.scales[tuple(places)]
        spanned = [self.row.spans(d, self.axis) for d in range(self.ndim)]
        block = tuple(max(1, extent) if spans else size for size, extent, spans in zip(self.block, elements.shape, spanned, strict=True))
        return replace(
            self,
            elements=elements.squeeze(dropped),
            scales=scales.squeeze(dropped),
            block=tuple(size for d, size in enumerate(block) if d not in dropped),
            axis=self.axis - sum(d < self.axis for d in dropped),
        )

    def __iter__(self) -> Iterator[ScaledArray]:
        """The parts along the first dimension."""
        return (self[i] for i in range(self.shape[0]))

    def _place(self, dimension: int, index: Any) -> tuple[int, int]:
        """Start and stop of an integer index."""
        extent, place = self.shape[dimension], whole(index)
        if dimension == self.axis or (self.block[dimension] != 1 and not self.row.spans(dimension, self.axis)):
            raise OperandError(
                f"dimension {dimension} is in blocks of {self.block[dimension]}: take a slice of it, not the index {index!r}"
            )
        if place is None or not -extent <= place < extent:
            raise OperandError(f"index {index!r} is out of range: dimension {dimension} has the extent {extent}; a slice may be empty")
        return place % extent, place % extent + 1

    @public_call
    def dequantize(self, dtype: Any = np.float32, *, threads: int | None = None) -> NDArray[Any]:
        """The values element * scale (* global_scale), computed exactly and rounded once, to nearest even.

        Parameters
        ----------
        dtype : float16, bfloat16, float32 or float64
            A dtype, or the name of one or of a format (``"bf16"``).
        threads : int, optional
            All cores by default, or ``FASTMMA_NUM_THREADS``.

        Raises
        ------
        OperandError, OperandTypeError
            If it is another dtype, or a bad number of threads.
        """
        try:
            fmt = format_of(dtype)
        except (TypeError, ValueError):
            fmt = None
        if fmt is None or fmt.name not in _FLOATS:
            raise OperandTypeError(f"dtype must be float16, bfloat16, float32 or float64, not {dtype!r}")
        count = thread_count(threads)
        if not self.elements.size:
            return np.empty(self.shape, fmt.dtype)
        # products of significands fit: 8 + 24 bits at most in float64, 2 + 4 before the only rounding in float32
        working = np.dtype(np.float32 if fmt.name == "f32" else np.float64)
        view = view_of(self.elements.view(np.uint8), self.row, self.block, self.axis)
        scales = _widen(view.arrange(self.scales), self.row.scale, working)
        overall = 1.0 if self.global_scale is None else float(self.global_scale)
        values = block_values(view.array, _numbers(self.row.element, working), scales, overall, view.block, count)
        if fmt.name not in ("f32", "f64"):
            values = from_codes(round_to(values, fmt, count, saturate=False), fmt)
        return view.restore(values, self.shape)


def _float32(value: Any) -> np.float32 | None:
    """A number as float32; None for negative ones, for what float32 has not, and for what is no number."""
    if not isinstance(value, Real | np.floating) or isinstance(value, bool) or value < 0:
        return None
    try:
        found = np.float32(encode(np.asarray(value), "f32").view(np.float32)[()])
    except FastmmaError:
        return None
    return None if np.isinf(found) and value != np.inf else found


def _bounds(item: slice, extent: int) -> tuple[int, int]:
    """Start and stop of a slice."""
    try:
        start, stop, step = item.indices(extent)
    except (TypeError, ValueError) as error:
        raise OperandError(f"{item} is no slice: {error}") from None
    if step != 1:
        raise OperandError(f"slices of a ScaledArray must have step 1, not {item}")
    return start, max(start, stop)


def _widen(scales: NDArray[Any], name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Scales as floats: those of one byte by a look-up, which is many times faster than the conversion of their dtypes."""
    if scales.dtype.itemsize == 1:
        return _numbers(name, dtype)[scales.view(np.uint8)]
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes quiet
        return scales.astype(dtype)


@lru_cache(256)
def _numbers(name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers of all bytes that hold a code of a format."""
    fmt = format_of(name)
    table = np.zeros(256, dtype)
    numbers = all_codes(name).view(np.int8) if fmt.kind == "signed" else decode(all_codes(name), fmt)
    table[: len(numbers)] = numbers
    return table
