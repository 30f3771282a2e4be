"""Random numbers of attention's dropout: Philox 4x32, whose key is a seed and whose counters are places in the probabilities."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
_MASK, _HALF = np.uint64(_LOW), np.uint64(32)
_FLASH_ROUNDS, _ROUNDS = 7, 10
WARP = 32
_BAND, _STRIP = 16, 32  # rows and columns for which a warp draws at once
_TILE = 16  # rows and columns of cuDNN's tiles
_UNIT = np.float32(float.fromhex("0x1.0000000000000p-32"))  # 2^-32


class Dropout(NamedTuple):
    """Dropout of probabilities, drawn as CUDA's generator does.

    Attributes
    ----------
    probability : float
        The probability that an element becomes zero.
    seed : int
        The generator's seed, as ``torch.manual_seed`` sets it.
    offset : int
        How many numbers the generator drew before, a multiple of 4.
    """

    probability: float
    seed: int
    offset: int = 0

    @property
    def kept(self) -> np.float32:
        """The probability that an element is kept."""
        return np.float32(1) - np.float32(self.probability)


def _philox(seed: int, counter: list[Words], rounds: int) -> NDArray[np.uint32]:
    """Draw four numbers of 32 bits for each counter of four words."""
    x, y, z, w = counter
    first, second = seed & _LOW, seed >> 32 & _LOW
    for _ in range(rounds):
        low, high = x * _MULTIPLIERS[0], z * _MULTIPLIERS[1]
        x, y = (high >> _HALF) ^ y ^ np.uint64(first), high & _MASK
        z, w = (low >> _HALF) ^ w ^ np.uint64(second), low & _MASK
        first, second = first + _STEPS[0] & _LOW, second + _STEPS[1] & _LOW
    return np.stack([x, y, z, w], -1).astype("<u4")


def keep_by_warps(dropout: Dropout, heads: int, queries: int, keys: int) -> NDArray[np.bool_]:
    """Return which probabilities (head, query, key) flash attention keeps.

    A warp draws 16 bytes a thread for 16 queries and 32 keys; the counter is the thread, the band of queries and the strip of keys.

    Examples
    --------
    >>> int(keep_by_warps(Dropout(0.5, 1), 1, 2, 8).sum())
    8
    """
    lanes = np.arange(heads * WARP, dtype=np.uint64).reshape(heads, 1, 1, WARP) + np.uint64(dropout.offset)
    bands = np.arange(-(-queries // _BAND), dtype=np.uint64).reshape(1, -1, 1, 1)
    strips = np.arange(-(-keys // _STRIP), dtype=np.uint64).reshape(1, 1, -1, 1)
    shape = np.broadcast_shapes(lanes.shape, bands.shape, strips.shape)
    low, high, band, strip = (np.broadcast_to(each, shape) for each in (lanes & _MASK, lanes >> _HALF, bands, strips))
    threshold = int(np.floor(float(dropout.kept) * 255))
    drawn: Any = _philox(dropout.seed, [low, high, band, strip], _FLASH_ROUNDS).view(np.uint8) <= threshold
    # head, band, strip, lane // 4, lane % 4, 16 columns of 32, 8 of these, 8 rows of 16, one of two columns
    drawn = drawn.reshape(*shape[:3], 8, 4, 2, 2, 2, 2).transpose(0, 1, 7, 3, 2, 5, 6, 4, 8)
    return np.ascontiguousarray(drawn.reshape(heads, shape[1] * _BAND, shape[2] * _STRIP)[:, :queries, :keys])


def keep_by_tiles(dropout: Dropout, heads: int, queries: int, keys: int) -> NDArray[np.bool_]:
    """Return which probabilities (head, query, key) cuDNN's attention keeps.

    Four words serve 16 queries and keys that are one modulo 8: a word for each quarter, with its upper half for odd queries.

    Examples
    --------
    >>> int(keep_by_tiles(Dropout(0.5, 1), 1, 2, 8).sum())
    7
    """
    bands, strips = -(-queries // _TILE), -(-keys // _TILE)
    tiles = np.arange(strips, dtype=np.uint64) * np.uint64(bands) + np.arange(bands, dtype=np.uint64)[:, None]
    columns = np.arange(8, dtype=np.uint64) + np.uint64(8) * np.arange(heads, dtype=np.uint64)[:, None] + np.uint64(dropout.offset // 4)
    shape = (heads, bands, strips, 8)
    counters = (columns & _MASK)[:, None, None], (columns >> _HALF)[:, None, None], tiles[..., None]
    low, high, tile = (np.broadcast_to(each, shape) for each in counters)
    words = _philox(dropout.seed, [low, high, tile, np.zeros(shape, np.uint64)], _FLASH_ROUNDS)
    # head, band, strip, column, half of the rows, half of the columns, parity of the row
    drawn = words.view("<u2").reshape(*shape, 2, 2, 2) <= np.float32(dropout.kept * np.float32(1 << 16))
    rows = np.broadcast_to(drawn[:, :, :, :, :, :, None], (*shape, 2, 2, 4, 2))
    return np.ascontiguousarray(rows.transpose(0, 1, 4, 6, 7, 2, 5, 3).reshape(heads, bands * _TILE, strips * _TILE)[:, :queries, :keys])


def keep_by_places(dropout: Dropout, heads: int, queries: int, keys: int) -> NDArray[np.bool_]:
    """Return which probabilities (head, query, key) memory-efficient attention keeps: each has the next number of one sequence.

    Examples
    --------
    >>> int(keep_by_places(Dropout(0.5, 1), 1, 2, 8).sum())
    11
    """
    count = heads * queries * keys
    first = dropout.offset // 4
    counters = np.arange(first, -(-(dropout.offset + count) // 4), dtype=np.uint64)
    zero = np.zeros_like(counters)
    words = _philox(dropout.seed, [counters & _MASK, counters >> _HALF, zero, zero], _ROUNDS).ravel()[dropout.offset % 4 :][:count]
    # one fused multiply-add: the product of two float32 numbers is exact in float64
    uniform = (words.astype(np.float32).astype(np.float64) * float(_UNIT) + float(_UNIT / np.float32(2))).astype(np.float32)
    return (uniform > np.float32(dropout.probability)).reshape(heads, queries, keys)
