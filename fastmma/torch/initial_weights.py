"""Functions of `torch.nn.init` that PyTorch 2.11, whose bits are recorded, composes of other operators than later versions do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from fastmma.host.replacing import replace


def truncate_normal(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: torch.Generator | None = None) -> Tensor:
    """Fill a tensor with normal numbers between `a` and `b` by the inverse of their distribution, as PyTorch 2.11 does.

    Parameters
    ----------
    tensor : Tensor
        Filled in place.
    mean, std, a, b : float
    generator : torch.Generator, optional

    Examples
    --------
    >>> _ = torch.manual_seed(1)
    >>> bool((truncate_normal(torch.empty(100), 0.0, 1.0, -0.5, 0.5).abs() <= 0.5).all())
    True
    """
    low, high = (math.erf((bound - mean) / std / math.sqrt(2.0)) for bound in (a, b))
    with torch.no_grad():
        tensor.uniform_(1.0 + low - 1.0, 1.0 + high - 1.0, generator=generator)  # the sums round as those of a distribution function do
        return tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean).clamp_(a, b)


# by the names under which torch.nn.init keeps them
_ROWS: dict[str, Callable[..., Any]] = {"_no_grad_trunc_normal_": truncate_normal}


def _either(recorded: Callable[..., Any], plain: Callable[..., Any], asks: Callable[[], bool]) -> Callable[..., Any]:
    @wraps(plain)
    def fill(*args: Any, **kwargs: Any) -> Any:
        return (recorded if asks() else plain)(*args, **kwargs)

    return fill


@contextmanager
def filled_as_recorded(asks: Callable[[], bool]) -> Iterator[None]:
    """Within the ``with``, threads that `asks` says yes to fill tensors as PyTorch 2.11 does."""
    with ExitStack() as stack:
        for name, recorded in _ROWS.items():
            replace(stack, torch.nn.init, name, _either(recorded, getattr(torch.nn.init, name), asks))
        yield
