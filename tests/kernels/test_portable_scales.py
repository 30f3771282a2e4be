"""Portable kernels with scales of any size, against the general kernel, which knows no panels and no floats."""

from __future__ import annotations

import numpy as np
import pytest

from fastmma import FORMATS
from fastmma.backends.parameters import element_of
from fastmma.kernels.fused import portable
from fastmma.kernels.general import products as general
from fastmma.kernels.params import Fused, General

# elements, scales, k of a scale, products of a term, products of a step, alignment bits, floor of emax
SETTINGS = (
    ("e4m3", "ue8m0", 32, 1, 32, 25, -132),
    ("e5m2", "ue8m0", 32, 1, 32, 13, -1000),
    ("e3m2", "ue8m0", 64, 1, 64, 25, -132),
    ("e2m1", "ue4m3", 16, 16, 64, 35, -139),
    ("e2m1", "ue8m0", 32, 16, 96, 35, -139),
    ("e2m1", "ue4m3", 32, 32, 128, 35, -139),
)
SPREADS = (0, 3, 30, 110, 255)  # of codes of scales


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "-".join(map(str, setting[:5])))
@pytest.mark.parametrize("spread", SPREADS)
def test_scales_of_any_size(setting: tuple[str, str, int, int, int, int, int], spread: int) -> None:
    name, scale_name, block, group, step, align_bits, floor = setting
    element, scale = element_of(FORMATS[name]), element_of(FORMATS[scale_name])
    rng = np.random.default_rng(spread)
    windows = General(step // group, group, step, 0, int(group > 1), align_bits, 0, floor, 23, 0, 0, 23, 127)
    p = Fused(element, element, step, align_bits, floor, 23, 0, 0)
    for trial in range(8):
        tiles, rows, columns, depth = int(rng.integers(1, 4)), int(rng.integers(1, 20)), int(rng.integers(1, 20)), step * (1 + trial % 3)
        a, b = (rng.integers(0, 1 << FORMATS[name].bits, (tiles, *shape)).astype(np.uint8) for shape in ((rows, depth), (depth, columns)))
        if trial % 2:  # finite, and many zeros
            kept = 255 ^ 1 << element.width - 1
            a, b = (np.where(rng.random(codes.shape) < 0.7, 0, codes & kept).astype(np.uint8) for codes in (a, b))
        middle = rng.integers(0, 256)
        scales = [
            np.clip(rng.integers(middle - spread, middle + spread + 1, (tiles, *shape)), 0, 255).astype(np.uint8)
            for shape in ((rows, depth // block), (depth // block, columns))
        ]
        c = None if trial % 3 == 0 else rng.integers(0, 1 << 32, (tiles, rows, columns), np.uint32)
        expected, found, one = np.empty((3, tiles, rows, columns), np.uint32)
        each = scale, np.repeat(scales[0], block, 2), np.repeat(scales[1], block, 1)
        general.multiply(windows, element, element, a, b, c, expected, 1, general.fits_window(windows, element, element), each)
        portable.tiles(p, a, b, c, found, 1, scaling=portable.Scaling(scale, block, group, *scales))
        np.testing.assert_array_equal(found, expected)
        for tile in range(tiles):
            scaling = portable.Scaling(scale, block, group, np.asfortranarray(scales[0][tile]), np.asfortranarray(scales[1][tile]))
            before = None if c is None else c[tile]
            portable.gemm(p, np.asfortranarray(a[tile]), np.asfortranarray(b[tile]), before, one[tile], 2, scaling=scaling)
        np.testing.assert_array_equal(one, expected)


def test_zeros_beside_large_elements_of_a_small_scale() -> None:
    """The power of two that a zero is multiplied by may be none of float32, though all products are in its range."""
    element, scale = element_of(FORMATS["e5m2"]), element_of(FORMATS["ue8m0"])
    a, b = np.zeros((256, 32), np.uint8), np.full((32, 8), 0x3C, np.uint8)
    a[:, 5:8] = 0x78  # 2**15, for an odd number of zeros in each half
    scales = np.arange(256, dtype=np.uint8)[:, None], np.full((1, 8), 127, np.uint8)
    out = np.empty((256, 8), np.uint32)
    for row in range(256):
        scaling = portable.Scaling(scale, 32, 1, scales[0][row : row + 1], scales[1])
        portable.gemm(Fused(element, element, 32, 25, -1000, 23, 0, 0), a[row : row + 1], b, None, out[row : row + 1], 1, scaling=scaling)
    with np.errstate(over="ignore"):
        expected = np.ldexp(np.float32(3), np.arange(256) - 127 + 15)
    expected[255] = np.nan
    np.testing.assert_array_equal(out.view(np.float32), np.repeat(expected[:, None], 8, 1))
