"""The compiled kernels' cache, and recordings from real GPUs."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from reference.paths import PATHS, taking

# rooms that are about plans, layouts, movement and explanations: drivers compare the kernels that they take with all others
ROOMS_OF_ANY_KERNELS = ("agreement", "execution", "explanation", "numerics", "operands", "products", "scaling", "study")


def _cache_directory() -> Path:
    """A folder of compiled kernels for all test runs of this user; below it, each state of the kernels' sources has one of its own."""
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    return Path(tempfile.gettempdir()) / f"fastmma-kernels-{user}"


if "numba" in sys.modules:
    raise RuntimeError("numba was imported before its cache directory was set")
os.environ["NUMBA_CACHE_DIR"] = str(_cache_directory())
# an option of the user's shell would change what the tests see
os.environ.pop("FASTMMA_STRICT", None)
os.environ.pop("FASTMMA_PORTABLE", None)
os.environ.pop("FASTMMA_NUM_THREADS", None)
os.environ.pop("COLUMNS", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run the tests that need an NVIDIA GPU and CuPy, and fail where there is none")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU and CuPy; run with --gpu")
    config.addinivalue_line("markers", "each_path: runs on the best kernels for this CPU, and again on those that any CPU runs")
    config.addinivalue_line("markers", "best_kernels: runs on the best kernels for this CPU also in a room that takes any")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("each_path"):
        metafunc.fixturenames.append("kernels_of")
        metafunc.parametrize("kernels_of", PATHS, indirect=True)


@pytest.fixture
def kernels_of(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has a test run on the kernels of a path."""
    with taking(request.param):
        yield


@pytest.fixture(autouse=True)
def portable_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of rooms in which all kernels are alike take those that are compiled soon, and serve all arithmetics."""
    any_kernels = request.path.parent.name in ROOMS_OF_ANY_KERNELS and not request.node.get_closest_marker("best_kernels")
    with taking("portable") if any_kernels else nullcontext():
        yield


def pytest_collection_finish() -> None:
    # tests are many objects and live on: Python need not look through them at each collection, of which compiling causes many
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--gpu"):
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU and CuPy: run with --gpu"))


@pytest.fixture(scope="session")
def hw_vectors() -> Path:
    """The folder of recordings from eight GPUs, named by ``FASTMMA_HW_VECTORS``."""
    value = os.environ.get("FASTMMA_HW_VECTORS", "")
    if not value:
        pytest.skip("FASTMMA_HW_VECTORS does not name the folder of recordings")
    folder = Path(value)
    if not folder.is_dir():
        pytest.fail(f"FASTMMA_HW_VECTORS={value} is no folder")
    return folder
