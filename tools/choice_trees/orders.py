"""What of a choice decides the bits of a product to which nothing is added."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
_STAGES = {16: (3, 4, 5, 6, 27), 32: (7, 8, 9, 10, 11, 12, 25), 64: (13, 14, 15, 16, 17, 18), 128: (19, 20, 21, 22)}
# k of a tile by the number of the stages
_TILE = np.array([next((tile for tile, stages in _STAGES.items() if number in stages), 0) for number in range(64)])
_NVJET, _CUTLASS, _BY_8 = 66, (12, 21, 23, 24), 24
_SIZES = {"bf16": 2, "f16": 2, "f16acc": 2, "tf32": 4, "f32": 4, "e4m3": 1}


def _parted(name: str, products: NDArray[Any], choices: NDArray[Any]) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the family, k of a tile (0 where nothing is left over of one), the length of a part (0: all), and the parts."""
    layout, k, size = products[:, 0], products[:, 3].astype(np.int64), _SIZES[name.partition("_")[0]]
    algo, parts = choices[:, 0].astype(np.int64), np.maximum(choices[:, 2], 1).astype(np.int64)
    by_8, cut, nvjet = (algo == _BY_8) & (choices[:, 6] == 0), np.isin(algo, _CUTLASS), algo == _NVJET
    tile = np.where(by_8, 32, np.where(cut, _TILE[np.clip(choices[:, 6], 0, 63)], 0))
    tile = np.where(k % np.maximum(tile, 1) == 0, 0, tile)
    family = np.where(cut & ~by_8 & (size == 2) & (choices[:, 6] != 0), _NVJET, algo)
    family = np.where((size == 4) & np.isin(algo, (21, 23)), 21, family)
    unit = np.where(cut | (algo == 20), 16 // size, 0)
    unit = np.where((unit > 0) & (k % (128 // size) == 0) & (layout != 2), 128 // size, unit)
    unit = np.where(nvjet, 128 // size, unit)
    each, whole = np.where(nvjet, k // parts, -(-k // parts)), np.maximum(unit, 1)
    length = np.where(unit > 0, np.maximum(-(-each // whole) * whole, 1), -parts)
    return family, tile, np.where((parts == 1) | ((unit > 0) & (length >= k)), 0, length), parts


def orders(name: str, products: NDArray[Any], choices: NDArray[Any]) -> Integers:
    """Return rows that are equal where the bits of a product by two choices are."""
    family, tile, length, parts = _parted(name, products, choices)
    k, nvjet, one = products[:, 3].astype(np.int64), choices[:, 0] == _NVJET, length == 0
    left_out = np.where(nvjet & ~one, np.maximum(k - parts * length, 0), 0)
    each = np.where(length > 0, length, k)
    last, step = (k - 1) % np.maximum(each, 1) + 1, np.where((choices[:, 6] == 0) | (_SIZES[name.partition("_")[0]] == 4), 8, 16)
    # what comes before whole tiles, of all parts and of the last one, unless it is of whole instructions
    rest = [np.where((tile == 0) | (part % step == 0), 0, part % np.maximum(tile, 1)) for part in (each, last)]
    return np.stack([family, *rest, length, *_others(choices, one), left_out, nvjet & ~one], 1)


def classes(name: str, products: NDArray[Any], choices: NDArray[Any]) -> Integers:
    """Return rows that a tree tells from one another: as `orders`, but the parts, not their length."""
    family, tile, length, parts = _parted(name, products, choices)
    one = length == 0
    return np.stack([family, tile, np.where(one, 1, parts), *_others(choices, one), (choices[:, 0] == _NVJET) & ~one], 1)


def _others(choices: NDArray[Any], one: NDArray[np.bool_]) -> tuple[Integers, Integers, Integers]:
    """Return how parts are joined, the custom option, and the tile and cluster, of algorithms where they count."""
    algo, rows = choices[:, 0], choices.astype(np.int64)
    custom = np.where(np.isin(algo, (11, 13, 55)), rows[:, 5], 0)
    return np.where(one, 0, rows[:, 3]), custom, np.where(algo == 43, (rows[:, 1] * 64 + rows[:, 8]) * 2 + rows[:, 9], 0)
