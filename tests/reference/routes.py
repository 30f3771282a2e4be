"""Rows of the table of kernels, taken for products of any size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from unittest.mock import patch

from fastmma.backends import quantities, route, routes

ANY_SIZE = {"work": (1, quantities.ANY)}


@contextmanager
def widened(*names: str, bounds: Mapping[str, tuple[int, int]] = ANY_SIZE) -> Iterator[None]:
    """Let the named rows take products within these bounds instead of their own."""
    assert set(names) <= {row.name for row in routes.ROUTES}
    rows = tuple(row._replace(ranges=(bounds,)) if row.name in names else row for row in routes.ROUTES)
    fresh = lru_cache(1024)(route._chosen.__wrapped__)
    with patch.object(routes, "ROUTES", rows), patch.object(route, "_chosen", fresh):
        yield
