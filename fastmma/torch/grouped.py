"""torch's scaled products of groups of rows: a Mixture of Experts in fp8 or MX formats."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fastmma.torch import scaled
from fastmma.torch.checks import check_scaled
from fastmma.torch.emulation import Emulation
from fastmma.torch.plans import UnknownError
from fastmma.torch.recipes import B16, B32, ROW

_ROWS, _COLUMNS = 128, 4  # of a tile of swizzled scales


def scaled_grouped_mm(
    run: Emulation,
    name: str,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """torch._scaled_grouped_mm: scales of rows in float32, or of 32 k in float8_e8m0fnu."""
    if run.settings.check == "cuda":
        given = (a, b, scale_a, scale_b, offs, bias, scale_result, out_dtype, use_fast_accum)
        check_scaled(run.settings.capability, "meta_scaled_grouped_mm", *given)
    recipe = B32 if scale_a.dtype is torch.float8_e8m0fnu else ROW
    scales = [scale_a], [scale_b]
    return _groups(run, name, a, b, *scales, recipe, recipe == B32, offs, out_dtype or torch.bfloat16, use_fast_accum)


def scaled_grouped_mm_v2(
    run: Emulation,
    name: str,
    a: Tensor,
    b: Tensor,
    scale_a: Sequence[Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """Compute torch.nn.functional.scaled_grouped_mm."""
    if list(recipe_a) != list(recipe_b) or recipe_a[0] not in (ROW, B16, B32) or bias is not None:
        raise UnknownError(f"grouped products with recipes {list(recipe_a)} and {list(recipe_b)} are not known")
    swizzled = bool(swizzle_a and swizzle_a[0])
    return _groups(run, name, a, b, scale_a, scale_b, recipe_a[0], swizzled, offs, out_dtype or torch.bfloat16, use_fast_accum)


def _groups(
    run: Emulation,
    name: str,
    a: Tensor,
    b: Tensor,
    scale_a: Sequence[Tensor],
    scale_b: Sequence[Tensor],
    recipe: int,
    swizzled: bool,
    offs: Tensor | None,
    out: torch.dtype,
    fast: bool,
) -> Tensor:
    """a (M, K) in groups of rows times b (G, K, N); each group's swizzled scales begin at a tile of their own."""
    if a.dim() != 2 or b.dim() != 3 or offs is None:
        raise UnknownError("scaled grouped products are known for groups of rows, a of (M, K) and b of (groups, K, N)")
    result = a.new_zeros((a.shape[0], b.shape[2]), dtype=out)
    start, tile = 0, 0
    for group, stop in enumerate(int(end) for end in offs.tolist()):
        rows = stop - start
        if rows > 0:
            first = _scales_of(scale_a, start, rows, tile, a.shape[1], recipe, swizzled)
            x = scaled.operand(a[start:stop], first, recipe, swizzled)
            y = scaled.operand(b[group].t(), [each[group] for each in scale_b], recipe, swizzled)
            result[start:stop] = scaled.product(run, name, x, y, None, out, fast, (recipe, recipe))
        tile += -(-rows // _ROWS)
        start = stop
    return result


def _scales_of(scales: Sequence[Tensor], start: int, rows: int, tile: int, k: int, recipe: int, swizzled: bool) -> list[Tensor]:
    """The scales of a group of rows."""
    if not swizzled:
        return [scales[0][start : start + rows], *scales[1:]]
    blocks = math.ceil(k / (16 if recipe == B16 else 32))
    width = math.ceil(blocks / _COLUMNS) * _COLUMNS
    flat, size = scales[0].reshape(-1), _ROWS * width
    return [flat[tile * size : (tile + -(-rows // _ROWS)) * size], *scales[1:]]
