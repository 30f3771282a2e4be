"""Floats to block-scaled arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import axis_of, flag
from fastmma.host.threads import parallel_for, thread_count
from fastmma.scaling.array import ScaledArray
from fastmma.scaling.rounding import block_maxima, round_blocks, rounding_of
from fastmma.scaling.rules import Rule, Scaling, rule_of
from fastmma.scaling.schemes import Scheme, scheme_of
from fastmma.scaling.view import c_order, view_of

_PIECE = 1 << 17  # elements that a thread converts at a time
# exact in the dtype that they are scaled in
_WORKING = {"float16": np.float32, "bfloat16": np.float32, "float32": np.float32, "float64": np.float64}


@public_call
def quantize(
    x: Any,
    scheme: str | Scheme,
    *,
    axis: int = -1,
    rule: str | None = None,
    rounding: str = "nearest",
    seed: int | None = None,
    pad: bool = True,
    threads: int | None = None,
) -> ScaledArray:
    """Round an array of floats to a block-scaled format.

    Parameters
    ----------
    x : array (..., k, ...), float16, bfloat16, float32 or float64
        Of any strides; at least one dimension, two for blocks that have extents in two.
    scheme : str
        A name or an alias of `fastmma.scaling.SCHEMES`, for example ``"mxfp8_e4m3"``, ``"nvfp4"`` or ``"fp8_1x128"``. In this name and
        the next two, case does not matter, nor a hyphen for an underscore; aliases are columns of the tables.
    axis : int
        The dimension that a product contracts, along which blocks run. Blocks of two dimensions extend also in the last other dimension.
    rule : str, optional
        How scales follow from the largest magnitudes: see `fastmma.scaling.RULES`. The scheme's first rule by default.
    rounding : {"nearest", "zero", "stochastic"}
        Of elements: to nearest, ties to even; toward zero; or up with the probability of the discarded fraction.
    seed : int, only for ``"stochastic"``, which needs it
        Element i in C order takes the i-th output of the generator SplitMix64 with this seed, whatever the threads.
    pad : bool
        Whether the last block of a dimension may be shorter, as if zeros followed; if not, extents must be multiples of the block's.
    threads : int, optional
        All cores by default, or ``FASTMMA_NUM_THREADS``.

    Returns
    -------
    ScaledArray

    Raises
    ------
    OperandError, OperandTypeError

    Notes
    -----
    Elements beyond the largest finite one become that one, with their sign. NaNs become the format's positive quiet NaN (torch writes 0x7f
    in e5m2 for 0x7e), 0 where it has none.

    - *e8m0 scales.* A NaN in a block makes its scale NaN, an infinity too, but under ``"rceil"`` the latter makes it 2**127 (PTX:
      ``cvt.rp.satfinite.ue8m0x2.f32``). Elements of a NaN scale are NaN, or 0. Exponents below -127 and above 127 become those: a block
      of zeros has the scale 2**-127.
    - *float32 scales.* A block of zeros has the scale 1 (``"deepgemm"``: 1e-4 / max). Infinities and NaNs of a block go through the rule's
      operations into its scale; ``"te"`` then takes the scale 1, so that infinite elements saturate.
    - *NVFP4.* The tensor of zeros has the global scale 1, a block of zeros the scale 0. A NaN makes the global scale NaN.

    References
    ----------
    OCP Microscaling Formats (MX) Specification 1.0, 6.3; NVIDIA, Pretraining Large Language Models with NVFP4, appendix C; DeepSeek-V3
    Technical Report, 3.3.2. The rules ``"deepgemm"``, ``"te"`` and ``"torchao"`` do the operations of DeepGEMM, TransformerEngine and
    torchao 0.18.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    >>> q = quantize(x, "mxfp4")
    >>> q.scales.astype(np.float32).tolist(), q.elements[1, -4:].tolist()
    ([[0.25], [0.25]], [4.0, 4.0, 4.0, 4.0])
    >>> bool(abs(q.dequantize() - x).max() < 0.15)
    True
    """
    row = scheme_of(scheme)
    law = rule_of(rule, row)
    mode = rounding_of(rounding, seed)
    array = as_array(x, "x")
    if array.dtype.name not in _WORKING:
        raise OperandTypeError(f"x must have dtype {', '.join(_WORKING)}, not {array.dtype}: convert it first")
    if array.ndim < row.dimensions:
        raise OperandError(f"x must have at least {row.dimensions} dimension(s) for {row.name}, not the shape {array.shape}")
    place = axis_of(axis, array.ndim, f" for the shape {array.shape}")
    block = row.block(array.shape, place)
    if not flag(pad, "pad") and any(extent % size for extent, size in zip(array.shape, block, strict=True)):
        raise OperandError(f"x of shape {array.shape} does not divide into blocks {block} of {row.name}: pass pad=True, or pad it")
    count = thread_count(threads)
    return _quantize(_widen(array, np.dtype(_WORKING[array.dtype.name]), count), row, law, place, block, mode, count)


def _widen(array: NDArray[Any], dtype: np.dtype[Any], threads: int) -> NDArray[Any]:
    """The array in the dtype that it is scaled in: itself, or a copy that threads share the work of where its memory has no gaps."""
    if array.dtype == dtype:
        return array
    out = np.empty_like(array, dtype)
    dense = array.flags.forc and out.flags.c_contiguous == array.flags.c_contiguous
    target, source = (each.ravel("A") if dense else each for each in (out, array))

    def convert(start: int, stop: int, worker: int) -> None:
        del worker
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
            target[start:stop] = source[start:stop]

    parallel_for(convert, len(target), threads, _PIECE if dense else max(1, len(target)))
    return out


def _quantize(x: NDArray[Any], scheme: Scheme, rule: Rule, axis: int, block: tuple[int, ...], rounding: Any, threads: int) -> ScaledArray:
    """Quantise a float32 or float64 array; everything is checked."""
    shape = tuple(-(-extent // size) for extent, size in zip(x.shape, block, strict=True))
    fmt = scheme.element_format
    if not x.size:
        scaling = Scaling(np.empty(shape, scheme.scale_format.dtype), x, global_scale=np.float32(1) if scheme.two_level else None)
        return ScaledArray(np.empty(x.shape, fmt.dtype), scaling.scales, block, axis, scaling.global_scale, scheme.name)
    view = view_of(x, scheme, block, axis, any_order=not rounding.stochastic)
    numbers = (c_order(view, x.shape),) if rounding.stochastic else ()

    def run() -> tuple[Scaling, NDArray[np.uint8]]:
        with np.errstate(all="ignore"):
            scaling = rule.compute(block_maxima(view.array, view.block, threads), fmt, threads)
        return scaling, round_blocks(view.array, scaling.factors, scaling.divide, view.block, fmt, rounding, threads, True, *numbers)

    scaling, codes = run()
    elements, scales = view.restore(codes, x.shape), view.restore(scaling.scales, shape)
    return ScaledArray(elements.view(fmt.dtype), scales, block, axis, scaling.global_scale, scheme.name)
