"""Which order cuDNN's choice of a kernel gives a convolution: rows that say for which calls, and how many fresh ones of an H200 had it."""

from __future__ import annotations

from typing import NamedTuple

from fastmma.functions.convolution import Order

RESULT, INPUT, WEIGHT = "the result", "the gradient of the input", "the gradient of the weight"
POINT, PATCH, OTHER = "1 x 1", "patches", "others"
_ANY = (1, 1 << 62)
_FMA, _MMA, _FILLED = Order("crs", False), Order("rsc", True), Order("rsc", True, padded=True)
_NEAREST = Order("rsc", True, padded=True, nearest=True)
_APART = Order("crs", False, apart=True)
_ROUNDED = Order("crs", True, nearest=True)
_IN_64, _IN_32 = (Order("rsc", True, padded=True, chunk=chunk) for chunk in (64, 32))
_IN_PARTS = Order("crs", True, nearest=True, parts=32)


class Call(NamedTuple):
    """What a choice depends on.

    Attributes
    ----------
    of : str
        What is computed: `RESULT`, `INPUT` or `WEIGHT`.
    fmt : {"bf16", "f16", "tf32", "f32"}
    kind : str
        `POINT` of stride 1, `PATCH` (the stride is the kernel's size, and nothing is filled up), or `OTHER`.
    images, channels, results, side, depth, places : int
        `side` is the height of the kernel, `depth` counts the products of what is computed, `places` the results of an image and a channel.
    """

    of: str
    fmt: str
    kind: str
    images: int
    channels: int
    results: int
    side: int
    depth: int
    places: int


class Row(NamedTuple):
    """Calls within limits, and the order of the kernel that cuDNN took for them.

    Attributes
    ----------
    rate : (int, int), optional
        How many fresh calls of an H200 had this order, of how many; without it, calls are only assumed to have it.
    """

    of: str
    formats: str
    kind: str
    order: Order
    rate: tuple[int, int] | None = None
    images: tuple[int, int] = _ANY
    channels: tuple[int, int] = _ANY
    results: tuple[int, int] = _ANY
    side: tuple[int, int] = _ANY
    depth: tuple[int, int] = _ANY
    size: tuple[int, int] = _ANY  # of all results
    step: int = 1  # of places
    group: int = 1  # of results

    def takes(self, call: Call) -> bool:
        """Tell whether a call is within the limits."""
        if self.of != call.of or call.fmt not in self.formats.split() or self.kind not in (call.kind, ""):
            return False
        sizes = (call.images, call.channels, call.results, call.side, call.depth, call.images * call.places * call.results)
        limits = (self.images, self.channels, self.results, self.side, self.depth, self.size)
        whole = call.places % self.step == 0 and call.results % self.group == 0
        return whole and all(low <= size <= high for size, (low, high) in zip(sizes, limits, strict=True))


ROWS = (
    Row(RESULT, "f32", PATCH, _FMA, (221, 221)),
    Row(RESULT, "f32", POINT, _FMA, (93, 93)),
    Row(RESULT, "bf16", PATCH, _FMA, (84, 84), channels=(3, 3), results=(64, 448), depth=(1, 784)),
    Row(RESULT, "bf16", PATCH, _FMA, (15, 15), channels=(1, 1), results=(64, 448), side=(8, 32)),
    Row(RESULT, "bf16", PATCH, _FILLED, (43, 43), channels=(4, 4), side=(8, 32)),
    Row(RESULT, "bf16", PATCH, _FILLED, (16, 17), channels=(3, 3), results=(512, 1408), side=(14, 16), size=(1, 400_000)),
    Row(RESULT, "f16", PATCH, _MMA, (40, 40), channels=(4, 4), side=(8, 32)),
    Row(RESULT, "tf32", PATCH, _FMA, (30, 31), channels=(3, 3), results=(449, 1408), side=(14, 16), size=(1, 900_000)),
    Row(RESULT, "bf16 f16", POINT, _MMA, (195, 195), images=(1, 8), step=8),
    Row(RESULT, "bf16 f16", PATCH, _FMA, channels=(1, 3), results=(1, 448)),
    Row(RESULT, "bf16 f16", PATCH, _FILLED, channels=(1, 4)),
    Row(RESULT, "bf16 f16", OTHER, _IN_64),
    Row(RESULT, "bf16 f16", "", _MMA),
    Row(RESULT, "tf32", PATCH, _FMA, channels=(1, 3)),
    Row(RESULT, "tf32", PATCH, _NEAREST),
    Row(RESULT, "tf32", POINT, _MMA),
    Row(RESULT, "tf32", OTHER, _IN_32),
    Row(RESULT, "f32", OTHER, _FMA),
    Row(INPUT, "f32", PATCH, _FMA, (10, 10)),
    Row(INPUT, "f32", POINT, _FMA, (45, 45)),
    Row(INPUT, "bf16 f16", POINT, _MMA, (45, 45), images=(1, 8), step=8),
    Row(INPUT, "bf16 f16 tf32", POINT, _MMA),
    Row(INPUT, "bf16 f16", PATCH, _MMA),
    Row(WEIGHT, "f32 tf32", PATCH, _FMA, (38, 38), images=(1, 1), results=(65, 448), depth=(1, 256)),
    Row(WEIGHT, "f32 tf32", PATCH, _APART, (38, 38), images=(2, 2), results=(65, 448), depth=(1, 224)),
    Row(WEIGHT, "f32", PATCH, _FMA, (84, 84), results=(72, 384), group=8, side=(8, 20), depth=(256, 1792)),
    Row(WEIGHT, "tf32", PATCH, _IN_PARTS, (10, 10), (16, 16), (3, 3), (128, 128), (16, 16), (256, 256)),
    Row(WEIGHT, "tf32", PATCH, _ROUNDED, results=(192, 4096), depth=(1568, 1 << 62)),
    Row(WEIGHT, "tf32", PATCH, _IN_PARTS, depth=(225, 1 << 62)),
    Row(WEIGHT, "f32 tf32", PATCH, _FMA),
    Row(WEIGHT, "bf16 f16", "", _MMA),
)


def row_of(call: Call) -> Row | None:
    """Find the first row that takes a call; None where nobody knows an order."""
    return next((row for row in ROWS if row.takes(call)), None)
