"""The least time of products of bfloat16 on the core at hand: that of their micro-kernels, if no instruction ever waits."""

from __future__ import annotations

from collections.abc import Sequence

from bench.cores import bound, this_core
from bench.instructions import KERNELS
from bench.loops import NAME, Loops

_IN_PANELS, _IN_BLOCKS = "f16, bf16 with f32 sums, sm_90", "f16, sm_90, tiles and small products"
_SIDE, _DEPTH = 128, 256  # from these on a product of a form is multiplied in panels
BY = "pipes of products, torch's own time of all else"


def seconds_at_least(shapes: Sequence[tuple[int, int, int]], rounds: int) -> float | None:
    """Seconds of all products of shapes (M, N, K) on one thread, without packing; None where the core is not known."""
    core = this_core(NAME)
    if core is None:
        return None
    loops, kernels = Loops(), {kernel.name: kernel for kernel in KERNELS}
    panels, blocks = (bound(kernels[name], core).cycles / 64 for name in (_IN_PANELS, _IN_BLOCKS))
    cycles = sum(m * n * k * (panels if min(m, n) >= _SIDE and k >= _DEPTH else blocks) for m, n, k in shapes)
    return cycles * min(loops.cycle() for _ in range(10 * rounds))
