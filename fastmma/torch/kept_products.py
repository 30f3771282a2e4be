"""Products that are chosen once for all emulations with the same settings: a program may enter one for every step."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from fastmma.backends.holds import cpu
from fastmma.host.bounded import Bounded
from fastmma.host.environment import variable
from fastmma.host.threads import thread_count
from fastmma.numerics.lookup import is_strict
from fastmma.products.cublas.book import VARIABLE
from fastmma.torch.settings import Settings

_SETTINGS, _PRODUCTS = 4, 512  # each product keeps the memory of a small one


def kept_products(settings: Settings) -> Bounded[tuple[Any, ...], Any]:
    """Find the products that were chosen by equal settings in an environment like this one; none where files of plans decide."""
    if settings.plans is not None or variable(VARIABLE):
        return Bounded()
    return _kept(settings, settings.other_workspace, thread_count(settings.threads), is_strict(), cpu().usable())


@lru_cache(_SETTINGS)
def _kept(settings: Settings, workspace: str, threads: int, strict: bool, features: frozenset[str]) -> Bounded[tuple[Any, ...], Any]:
    return Bounded(_PRODUCTS)
