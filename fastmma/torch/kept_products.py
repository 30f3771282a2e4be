"""Products that are chosen once for all emulations with the same settings: a program may enter one for every step."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from fastmma.backends.holds import cpu
from fastmma.host.bounded import Bounded
from fastmma.host.environment import variable
from fastmma.host.threads import thread_count
from fastmma.numerics.lookup import is_strict
from fastmma.products.cublas.book import VARIABLE
from fastmma.torch.settings import Settings

_SETTINGS, _PRODUCTS = 4, 512  # each product keeps the memory of a small one


class Kept(NamedTuple):
    """What was chosen: products by their operands, and what computes calls, by their keys; None of calls that nothing computes at once."""

    products: Bounded[tuple[Any, ...], Any]
    calls: Bounded[tuple[Any, ...], Any]


def _empty() -> Kept:
    return Kept(Bounded(_PRODUCTS), Bounded(_PRODUCTS))


def kept_by(settings: Settings) -> Kept:
    """Find what was chosen by equal settings in an environment like this one; nothing where files of plans decide."""
    if settings.plans is not None or variable(VARIABLE):
        return _empty()
    return _kept(settings, settings.other_workspace, thread_count(settings.threads), is_strict(), cpu().usable())


@lru_cache(_SETTINGS)
def _kept(settings: Settings, workspace: str, threads: int, strict: bool, features: frozenset[str]) -> Kept:
    return _empty()
