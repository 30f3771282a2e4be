"""Linear and cubic interpolation: by operator of torch, the function of `fastmma.functions.interpolation`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from fastmma.functions.interpolation import Resizing, interpolate
from fastmma.host.errors import NotEmulatedError
from fastmma.torch.arrays import to_numpy
from fastmma.torch.pools import is_last, lie_like

Arguments = Mapping[str, Any]


_MANY = 16  # channels from which a kernel for channels that lie side by side is taken, whose bits are others


def _row(*scales: str, cubic: bool = False) -> Callable[[Arguments], Tensor]:
    def row(given: Arguments) -> Tensor:
        x, counts = given["self"], given["output_size"]
        if not x.numel() or x.is_neg() or min(counts) < 1:
            raise NotEmulatedError("interpolations of nothing, or of a view of negatives, are torch's")
        if len(scales) == 2 and not cubic and is_last(x) and x.shape[1] >= _MANY:
            raise NotEmulatedError("bilinear interpolation of many channels that lie side by side is not known")
        resizings = [Resizing(int(count), given[scale], given["align_corners"]) for count, scale in zip(counts, scales, strict=True)]
        return lie_like(interpolate(to_numpy(x), resizings, cubic=cubic), x)

    return row


ROWS: dict[str, Callable[[Arguments], Tensor]] = {
    "upsample_linear1d": _row("scales"),
    "upsample_bilinear2d": _row("scales_h", "scales_w"),
    "upsample_trilinear3d": _row("scales_d", "scales_h", "scales_w"),
    "upsample_bicubic2d": _row("scales_h", "scales_w", cubic=True),
}
