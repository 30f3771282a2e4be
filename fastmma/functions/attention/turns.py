"""The order in which blocks of threads add to the gradient of the queries.

Each block of keys is another block of threads, and all run at once. Flash attention adds by atomics, so that from three blocks of keys on
the order is a GPU's whim. Memory-efficient attention takes a lock for each block of queries: the blocks of keys begin at different ones,
and come to the same one in turns, as long as there are as many blocks of queries, and all blocks of threads run at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastmma.functions.attention.blocks import CUDNN_KEYS, FLASH, PROCESSORS, count_key_splits, efficient_sizes, round_dimension
from fastmma.functions.attention.window import place_window

FREE = 2  # so many terms have one sum in either order
_WARPS = {16: 12, 32: 8}  # of the backward kernel that a streaming multiprocessor holds at least, by the bits of an element
_WARP_RESULTS = 32 * 32


def first_query(key: int, queries: int, block: int, *, causal: bool) -> int:
    """Return the first of the queries, in blocks, that see this key."""
    return min(key // block * block, -(-queries // block) * block) if causal else 0


def start_of(index: int, splits: int, queries: int, block: int, *, causal: bool) -> int:
    """Return how far from the first query a block of keys begins: each by one block of queries later than the one before."""
    return 0 if causal or splits == 1 else index % splits * block % (-(-queries // block) * block)


def order_keys(query: int, queries: int, keys: int, splits: int, blocks: tuple[int, int], *, causal: bool) -> list[tuple[int, int, int]]:
    """List the blocks of keys in the order in which memory-efficient attention adds them to a block of queries.

    Parameters
    ----------
    query : int
        The first of the block.
    queries, keys, splits : int
    blocks : tuple of int
        Queries and keys of a block.
    causal : bool

    Returns
    -------
    list of (round, turn, index)
        Blocks of the same round and turn come at the same time.

    Examples
    --------
    >>> order_keys(64, 256, 256, 4, (64, 64), causal=False)
    [(0, 0, 1), (0, 1, 0), (0, 2, 3), (0, 3, 2)]
    """
    size, width = blocks
    end = -(-queries // size) * size
    found = []
    for index in range(-(-keys // width)):
        first = first_query(index * width, queries, size, causal=causal)
        if query >= first:
            turn = (query - first - start_of(index, splits, queries, size, causal=causal)) % end // size
            found.append((index // splits, turn, index))
    return sorted(found)


def flash_repeats(
    query_shape: Sequence[int],
    key_shape: Sequence[int],
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    deterministic: bool = False,
) -> bool:
    """Tell whether flash attention gives the same gradient of the queries each time on a GPU.

    Parameters
    ----------
    query_shape, key_shape : sequence of int
        (batch, heads, length, head dimension).
    causal : bool
    window : tuple of int
        As in `flash`.
    deterministic : bool
        ``torch.use_deterministic_algorithms(True)`` is set.

    Examples
    --------
    >>> flash_repeats((1, 8, 256, 64), (1, 8, 256, 64)), flash_repeats((1, 8, 300, 64), (1, 8, 300, 64))
    (True, False)
    """
    queries, keys = query_shape[2], key_shape[2]
    columns = FLASH[round_dimension(query_shape[3])].backward_keys
    return deterministic or place_window(queries, keys, causal, window).blocks_of(queries, keys, columns) <= FREE


def cudnn_repeats(key_shape: Sequence[int]) -> bool:
    """Tell whether cuDNN's attention gives the same gradient of the queries each time on a GPU.

    Parameters
    ----------
    key_shape : sequence of int
        (batch, heads, length, head dimension).

    Examples
    --------
    >>> cudnn_repeats((1, 8, 256, 64)), cudnn_repeats((1, 8, 300, 64))
    (True, False)
    """
    return -(-key_shape[2] // CUDNN_KEYS) <= FREE


def efficient_repeats(
    query_shape: Sequence[int], key_shape: Sequence[int], bits: int, *, causal: bool = False, wide: int | None = None
) -> bool:
    """Tell whether memory-efficient attention adds up the gradient of the queries in a known order.

    Parameters
    ----------
    query_shape, key_shape : sequence of int
        (batch, heads, length, head dimension).
    bits : int
        Of an element.
    causal : bool
    wide : int, optional
        Head dimension of the values, if it differs.

    Examples
    --------
    >>> efficient_repeats((1, 5, 256, 32), (1, 5, 256, 32), 16), efficient_repeats((3, 1, 70, 64), (3, 1, 300, 64), 16)
    (True, False)
    """
    batch, heads, queries, dimension = query_shape
    keys = key_shape[2]
    sizes = efficient_sizes(bits, max(dimension, wide or 0))
    splits = count_key_splits(keys, batch * heads, sizes)
    blocks = sizes.backward_queries, sizes.backward_keys
    if splits == 1:
        return True
    if batch * heads * splits > PROCESSORS * max(1, _WARPS[bits] // (blocks[0] * blocks[1] // _WARP_RESULTS)):
        return False
    orders = (order_keys(query, queries, keys, splits, blocks, causal=causal) for query in range(0, queries, blocks[0]))
    return all(len({turn[:2] for turn in turns}) == len(turns) for turns in orders)
