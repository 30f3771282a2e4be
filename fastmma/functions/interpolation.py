"""Linear and cubic interpolation as torch's CUDA kernels compute it (``UpSample*.cu``, PyTorch 2.11).

A place of the result lies at ``scale * (i + 1/2) - 1/2`` of the input, or at ``scale * i`` where corners are aligned, in float32. Its
neighbours are weighted along the last dimension first, then along the one before. The first product of each sum is fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.functions.arithmetic import Floats, fuse, round_to, widen
from fastmma.host.float_mode import default_floats

_HALF = np.float32(0.5)


class Resizing(NamedTuple):
    """The way in which one dimension is resized.

    Attributes
    ----------
    size : int
        The size of the result.
    scale : float, optional
        How many places of the result there are for one of the input; by default the quotient of the sizes.
    aligned : bool
        The first and the last places of both coincide.
    """

    size: int
    scale: float | None = None
    aligned: bool = False


def _places(size: int, how: Resizing) -> Floats:
    """Find where places of the result lie in the input."""
    index = np.arange(how.size, dtype=np.float32)
    if how.aligned:
        step = np.float32(size - 1) / np.float32(how.size - 1) if how.size > 1 else np.float32(0)
        return np.asarray(step * index)
    step = np.float32(1.0 / how.scale) if how.scale is not None and how.scale > 0 else np.float32(size) / np.float32(how.size)
    return fuse(step, index + _HALF, np.float32(-0.5))


def _along(weights: Floats, axis: int) -> Floats:
    return weights.reshape(-1, *[1] * (-1 - axis))


def _linear(x: Floats, axis: int, how: Resizing) -> Floats:
    places = np.maximum(_places(x.shape[axis], how), np.float32(0))
    low = places.astype(np.int64)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    above = places - low.astype(np.float32)
    below = np.float32(1) - above
    return fuse(_along(below, axis), x.take(low, axis), _along(above, axis) * x.take(high, axis))


def _near(x: Floats) -> Floats:
    """Weigh a neighbour at a distance up to 1."""
    return fuse(fuse(np.float32(1.25), x, np.float32(-2.25)) * x, x, np.float32(1))


def _far(x: Floats) -> Floats:
    """Weigh a neighbour at a distance from 1 to 2."""
    return fuse(fuse(fuse(np.float32(-0.75), x, np.float32(3.75)), x, np.float32(-6)), x, np.float32(3))


def _cubic(x: Floats, axis: int, how: Resizing) -> Floats:
    places = _places(x.shape[axis], how)
    floors = np.floor(places)
    after = places - floors
    before = np.float32(1) - after
    weights = _far(after + np.float32(1)), _near(after), _near(before), _far(before + np.float32(1))
    near = [x.take(np.clip(floors.astype(np.int64) + step, 0, x.shape[axis] - 1), axis) for step in (-1, 0, 1, 2)]
    along = [_along(each, axis) for each in weights]
    total = fuse(near[0], along[0], near[1] * along[1])
    for values, weight in zip(near[2:], along[2:], strict=True):
        total = fuse(values, weight, total)
    return total


@default_floats
def interpolate(x: NDArray[Any], resizings: Sequence[Resizing], *, cubic: bool = False) -> NDArray[Any]:
    """Compute ``aten::upsample_linear1d``, ``upsample_bilinear2d``, ``upsample_trilinear3d`` and, if `cubic`, ``upsample_bicubic2d``.

    Parameters
    ----------
    x : float32, float16 or bfloat16 array (..., sizes)
    resizings : sequence of Resizing
        Of the last dimensions.
    cubic : bool

    Examples
    --------
    >>> interpolate(np.float32([0, 4]), [Resizing(4)]).tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    found = widen(x)
    with np.errstate(all="ignore"):
        for axis in range(-1, -1 - len(resizings), -1):
            found = (_cubic if cubic else _linear)(found, axis, resizings[axis])
        return round_to(found, x.dtype)
