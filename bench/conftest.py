"""An option for small sizes; importing the package first keeps OpenBLAS to one thread."""

import pytest

import bench


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--quick``."""
    parser.addoption("--quick", action="store_true", help=f"small sizes: only check that {bench.__name__} runs")


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> bool:
    """Whether small sizes were asked for."""
    return bool(request.config.getoption("--quick"))
