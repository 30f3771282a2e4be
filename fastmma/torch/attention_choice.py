"""Which kernel attention takes on a GPU of compute capability 9.0: the choice of PyTorch 2.11, with cuDNN 9.15.1 or newer.

Kernels are asked in order, cuDNN's first, and the first whose conditions all hold is taken. What torch's settings forbid is not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

CUDNN, FLASH, EFFICIENT, MATH = "cudnn", "flash", "efficient", "math"
NUMBERS = {MATH: 0, FLASH: 1, EFFICIENT: 2, CUDNN: 3}  # torch's own
_USUAL = [1, 2, 0, 3, 4]  # torch's order where nobody has set one, and no GPU has been asked
_PREFERRED = [3, 1, 2, 0]
_HALVES = (torch.float16, torch.bfloat16)
_FORMATS = (*_HALVES, torch.float32)
_WIDEST = 256
_ALIGNED = 8
_LOADED = 16  # bytes that memory-efficient attention loads at once


class Call(NamedTuple):
    """Arguments of ``scaled_dot_product_attention``."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout: float
    causal: bool
    grouped: bool

    @property
    def operands(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values."""
        return self.query, self.key, self.value


def _have_four_dimensions(call: Call) -> bool:
    return all(each.dim() == len("bhld") for each in call.operands)


def _are_halves(call: Call) -> bool:
    return call.query.dtype in _HALVES


def _are_floats(call: Call) -> bool:
    return call.query.dtype in _FORMATS


def _are_not_empty(call: Call) -> bool:
    return bool(call.query.shape[2] and call.key.shape[2])


def _have_elements_side_by_side(call: Call) -> bool:
    return all(each.stride(-1) == 1 for each in (*call.operands, call.mask) if each is not None)


def _have_rows_side_by_side(call: Call) -> bool:
    return bool(call.query.shape[3] == 1) or _have_elements_side_by_side(call)


def _have_one_batch(call: Call) -> bool:
    return len({each.shape[0] for each in call.operands}) == 1


def _have_equal_heads(call: Call) -> bool:
    return len({each.shape[1] for each in call.operands}) == 1


def _share_heads(call: Call) -> bool:
    if not call.grouped:
        return _have_equal_heads(call)
    return bool(call.key.shape[1] == call.value.shape[1] and call.query.shape[1] % call.key.shape[1] == 0)


def _have_no_mask(call: Call) -> bool:
    return call.mask is None


def _have_a_square_of_scores(call: Call) -> bool:
    return not call.causal or bool(call.query.shape[2] == call.key.shape[2])


def _have_one_dimension(call: Call) -> bool:
    return bool(call.query.shape[3] == call.key.shape[3] == call.value.shape[3] <= _WIDEST)


def _have_aligned_rows(call: Call) -> bool:
    step = _LOADED // call.query.dtype.itemsize
    sizes = call.query.shape[3], call.value.shape[3]
    return call.query.shape[3] == call.key.shape[3] and all(size and size % step == 0 for size in sizes)


def _need_not_repeat(call: Call) -> bool:
    return not repeats()


def _mask_fits_cudnn(call: Call) -> bool:
    if call.mask is None:
        return True
    *outer, rows, columns = call.mask.shape
    wanted = [(call.query.shape[0], 1), (call.query.shape[1], 1)]
    fits = rows in (call.query.shape[2], 1) and columns in (call.key.shape[2], 1) and len(outer) in (0, len(wanted))
    return fits and not call.mask.requires_grad and all(size in sizes for size, sizes in zip(outer, wanted, strict=False))


def _sizes_fit_cudnn(call: Call) -> bool:
    sizes = call.query.shape[3], call.value.shape[3]
    few = call.key.shape[2] == 1 or (call.query.shape[2] == 1 and call.dropout > 0)
    return not few and all(size <= _WIDEST and size % _ALIGNED == 0 for size in sizes)


Condition = Callable[[Call], bool]
CONDITIONS: dict[str, tuple[Condition, ...]] = {
    CUDNN: (
        _have_four_dimensions,
        _need_not_repeat,
        _are_halves,
        _mask_fits_cudnn,
        _are_not_empty,
        _have_rows_side_by_side,
        _have_one_batch,
        _share_heads,
        _sizes_fit_cudnn,
    ),
    FLASH: (
        _have_four_dimensions,
        _have_no_mask,
        _have_one_dimension,
        _have_a_square_of_scores,
        _are_halves,
        _have_one_batch,
        _share_heads,
        _are_not_empty,
        _have_rows_side_by_side,
    ),
    EFFICIENT: (
        _have_four_dimensions,
        _have_aligned_rows,
        _are_not_empty,
        _have_elements_side_by_side,
        _have_one_batch,
        _have_equal_heads,
        _are_floats,
    ),
    MATH: (),
}
_ENABLED: dict[str, Callable[[], bool]] = {
    CUDNN: torch.backends.cuda.cudnn_sdp_enabled,
    FLASH: torch.backends.cuda.flash_sdp_enabled,
    EFFICIENT: torch.backends.cuda.mem_efficient_sdp_enabled,
    MATH: torch.backends.cuda.math_sdp_enabled,
}


def repeats() -> bool:
    """Tell whether torch's settings want results that a GPU computes again."""
    return torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()


def choose(call: Call) -> str | None:
    """Return the kernel that a GPU takes; None where torch finds none, and raises.

    Examples
    --------
    >>> q = torch.ones(1, 2, 16, 64, dtype=torch.bfloat16)
    >>> choose(Call(q, q, q, None, 0.0, False, False)), choose(Call(q[..., :12], q[..., :12], q[..., :12], None, 0.0, False, False))
    ('cudnn', 'flash')
    """
    order = torch._C._get_sdp_priority_order()
    names = {number: name for name, number in NUMBERS.items()}
    asked = [names[number] for number in (_PREFERRED if order == _USUAL else order) if number in names]
    return next((name for name in asked if _ENABLED[name]() and all(holds(call) for holds in CONDITIONS[name])), None)
