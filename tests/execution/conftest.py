"""Movement, layouts and descriptors are the same whatever kernels multiply: portable ones, which serve all arithmetics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from reference.paths import taking


@pytest.fixture(autouse=True)
def portable() -> Iterator[None]:
    """Take portable kernels."""
    with taking("portable"):
        yield
