"""The order in which kernels of XLA add the parts of k: one after another in a loop, or in pairs in Triton's reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastmma.jax.hlo import Computation, Instruction, match_dimensions, read_numbers

UNKNOWN = ("", 1)
_SIDE_BY_SIDE, _LANES = 4, 32  # f32 that a thread loads at once, and threads of a warp


def find_join(fusion: Instruction, body: Computation, reduction: Instruction, shape: Sequence[int]) -> tuple[str, int]:
    """Find how the parts of k are added, and to how many groups of warps they are dealt in turn, each adding its own first.

    Parameters
    ----------
    fusion, body, reduction : Instruction and Computation
        What adds them.
    shape : sequence of int
        Of the parts.

    Returns
    -------
    (str, int)
        ``"ascending"`` or ``"pairwise"``, as a `GemmPlan` has it; empty if it is not known.
    """
    kind, by_triton = fusion.word(r"\bkind=(\w+)"), fusion.word(r'"kind":"(\w+)"')
    if kind == "kLoop" and not by_triton:
        return "ascending", 1
    axes, tiles = reduction.numbers("dimensions"), find_tiles(fusion, body.root, reduction)
    if by_triton != "__triton" or tiles is None or len(axes) != 1:
        return UNKNOWN
    kept = iter(tiles)
    tile = [shape[each] if each in axes else next(kept) for each in range(len(shape))]
    lanes, warps = _deal_threads(tile, int(fusion.word(r'"num_warps":"?(\d+)') or 0), axes[0])
    return ("pairwise", warps) if lanes == 1 and warps <= 2 else UNKNOWN


def find_tiles(fusion: Instruction, root: Instruction, instruction: Instruction) -> list[int] | None:
    """Return the tile of an instruction of a fusion that a program of Triton computes, from that of the fusion's result."""
    sizes = read_numbers(fusion.word(r'"output_tiles":\[\{"sizes":\[([\d",]*)\]').replace('"', ""))
    if not sizes or len(sizes) != len(root.shape):
        return None
    found = [1] * len(instruction.shape)
    for of_root, of_instruction in match_dimensions(root, instruction):
        if len(of_instruction) != 1:
            return None
        found[of_instruction[0]] = math.prod(sizes[each] for each in of_root)
    return found


def _deal_threads(tile: Sequence[int], warps: int, axis: int) -> tuple[int, int]:
    """Return how many threads of a warp, and how many warps, share an axis of a tile that Triton loads, the last axis first.

    Examples
    --------
    >>> _deal_threads((8, 16, 16), 4, 0), _deal_threads((4, 2, 256), 4, 0)
    ((1, 2), (1, 1))
    """
    beside = max(1, min(_SIDE_BY_SIDE, math.prod(tile) // (_LANES * max(warps, 1))))
    lanes_left, warps_left, found = _LANES, warps, {}
    for each in reversed(range(len(tile))):
        held = beside if each == len(tile) - 1 else 1
        lanes = max(1, min(lanes_left, tile[each] // held))
        shared = max(1, min(warps_left, tile[each] // (held * lanes)))
        lanes_left, warps_left = lanes_left // lanes, warps_left // shared
        found[each] = lanes, shared
    return found[axis]
