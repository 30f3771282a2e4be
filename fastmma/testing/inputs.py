"""Inputs on which GPUs differ: products whose terms lie far apart, cancel and tie."""

from __future__ import annotations

import math
import sys
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError
from fastmma.isa.formats import Format, format_of

_SPREAD = 6  # exponents above and below 2^0: sums of some thousand products stay below the largest f16


@public_call
def adversarial(shape: int | tuple[int, ...], dtype: Any = "f16", *, seed: int = 0) -> Any:
    """Draw finite operands of a product on which GPUs with different arithmetic give different bits.

    Magnitudes lie up to twelve powers of two apart, so that alignment drops bits of small terms; half of the mantissas are zero, one, the
    half or all ones, so that terms cancel and tie. Ordinary random numbers rarely do either, and their small products are often equal on
    several GPUs.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : format or dtype
        The operand's, for example ``"bf16"`` or ``np.float16``. For integers all values are drawn, the extremes more often. With a dtype of
        torch the result is a tensor.
    seed : int
        The same arguments give the same array, everywhere. Give the two operands of a product different ones.

    Returns
    -------
    array or torch.Tensor

    Raises
    ------
    InstructionError, OperandError

    Examples
    --------
    >>> import fastmma
    >>> a, b = adversarial((16, 64), "bf16"), adversarial((64, 16), "bf16", seed=1)
    >>> len({fastmma.gemm(a, b, target=gpu).tobytes() for gpu in ("V100", "A100", "H100") if gpu != "V100"})
    2
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, getattr(torch, "dtype", ())):
        array = adversarial(shape, str(dtype).removeprefix("torch."), seed=seed)
        return torch.from_numpy(array.view(f"u{array.itemsize}")).view(dtype)  # torch takes no array of ml_dtypes
    fmt = format_of(dtype)
    try:
        extents = (index(shape),) if not isinstance(shape, tuple) else tuple(map(index, shape))
    except TypeError:
        extents = (-1,)
    if any(extent < 0 for extent in extents):
        raise OperandError(f"adversarial: shape must be a tuple of sizes, not {shape!r}")
    generator = np.random.default_rng([index(seed), *extents])
    drawn = _floats(fmt, math.prod(extents), generator) if fmt.kind == "float" else _integers(fmt, math.prod(extents), generator)
    return drawn.astype(fmt.code_dtype).view(fmt.dtype).reshape(extents)


def _floats(fmt: Format, count: int, generator: np.random.Generator) -> NDArray[np.uint64]:
    """Codes of floats."""
    low, high = max(fmt.emin, -_SPREAD), min(fmt.emax, _SPREAD)
    ones = (1 << fmt.mantissa_bits) - 1
    edges = np.array([0, 1, ones, ones + 1 >> 1]) & ones
    mantissa = np.where(generator.random(count) < 0.5, generator.choice(edges, count), generator.integers(0, ones + 1, count))
    # the highest exponent of a narrow format may hold NaN
    magnitude = np.minimum((generator.integers(low, high + 1, count) + fmt.bias << fmt.mantissa_bits) | mantissa, fmt.first_special - 1)
    sign = generator.integers(0, 2, count) * int(fmt.signed)
    return np.asarray((sign << fmt.magnitude_bits | magnitude) << fmt.padding, np.uint64)


def _integers(fmt: Format, count: int, generator: np.random.Generator) -> NDArray[np.uint64]:
    """Codes of integers and bits, as their dtypes hold them."""
    top = 1 << fmt.bits
    edges = generator.choice(np.array([0, 1, top // 2 - 1, top // 2, top - 1]), count)
    codes = np.where(generator.random(count) < 0.25, edges, generator.integers(0, top, count)) % top
    if fmt.kind == "signed" and fmt.bits < 8:  # ml_dtypes extends the sign
        codes = np.where(codes >= top // 2, codes - top + 256, codes)
    return codes.astype(np.uint64)
