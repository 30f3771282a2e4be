"""Movement, layouts and descriptors are the same whatever kernels multiply: portable ones, which serve all arithmetics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from reference.paths import taking


@pytest.fixture(autouse=True)
def portable(request: pytest.FixtureRequest) -> Iterator[None]:
    """Take portable kernels in tests that do not ask for each path."""
    if request.node.get_closest_marker("each_path"):
        yield
        return
    with taking("portable"):
        yield
