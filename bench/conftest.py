"""An option for small sizes, and what to install; importing the package first keeps OpenBLAS to one thread."""

from importlib.util import find_spec

import pytest

import bench


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--quick``."""
    parser.addoption("--quick", action="store_true", help=f"small sizes: only check that {bench.__name__} runs")


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> bool:
    """Whether small sizes were asked for."""
    return bool(request.config.getoption("--quick"))


if find_spec("pytest_benchmark") is None:

    @pytest.fixture
    def benchmark() -> None:
        """Skip what is measured."""
        pytest.skip("""pytest-benchmark is not installed: pip install '.[bench]'; `fastmma bench` measures without it""")
