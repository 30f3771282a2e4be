"""The plug-in of pytest: tests that run with the bits of a GPU's tensor cores, on a CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# fastmma and all libraries are imported where they are used: pytest imports this module whatever the tests are about

_DEFAULT = "sm_90a"
_INTERPRET, _WHOLE_RUN = "TRITON_INTERPRET", "FASTMMA_TRITON"
_written = pytest.StashKey[dict[str, dict[str, Any]]]()
_WORKER_OUTPUT = "fastmma_golden_bits"


@dataclass
class TensorCore:
    """The value of the fixture ``tensor_core``.

    Attributes
    ----------
    target : str
        The GPU, as `fastmma.gemm` takes it.
    device : str
        Where tensors are to be: "cpu", or "cuda" where the GPU in the machine computes.
    report : fastmma.torch.Report or None
        What became of torch's products so far; None where torch is not installed. Where a real GPU computes, it holds nothing.
    triton_report : fastmma.triton.Report or None
        The same of Triton's kernels, with ``--tensor-core-triton``.
    """

    target: str
    device: str = "cpu"
    report: Any = None
    triton_report: Any = None


@dataclass(frozen=True)
class OnTheGpu:
    """The report of a test that a real GPU computed: nothing was emulated, and nothing was passed."""

    target: str
    emulated: int = 0
    assumed: int = 0
    passed: int = 0
    neutral: int = 0
    unseen: int = 0

    def assert_all_emulated(self, *, assumed: bool = False) -> None:
        """All bits are the GPU's own."""

    def __str__(self) -> str:
        return f"computed by the GPU in the machine, {self.target}"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fastmma", "bits of tensor cores (fastmma)")
    add = group.addoption
    add(
        "--tensor-core",
        action="append",
        default=[],
        metavar="GPU",
        help="run tests marked tensor_core as on this GPU, whatever their marks say",
    )
    add("--tensor-core-triton", action="store_true", help="run Triton's kernels in its interpreter, with the GPU's bits")
    add("--tensor-core-cuda", action="store_true", help="pretend to be the GPU, for tests that ask for device='cuda' (experimental)")
    add(
        "--tensor-core-native",
        action="store_true",
        help="emulate nothing: the GPU in the machine computes, and tests for others are skipped",
    )
    add("--golden-bits", choices=("check", "write"), default="check", help="compare with golden bits, or write them")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    # Triton asks when kernels are decorated, which is when tests or their conftest are imported
    if early_config.known_args_namespace.tensor_core_triton:
        before = os.environ.get(_INTERPRET)
        os.environ[_INTERPRET] = "1"
        early_config.add_cleanup(partial(_restore, before))


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(_INTERPRET, None)
    else:
        os.environ[_INTERPRET] = before


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "tensor_core(*GPUs, **options): run once as on each of these GPUs; options are those of fastmma.torch.emulate"
    )
    config.stash[_written] = {}
    for name in config.getoption("--tensor-core"):
        _target(name, "--tensor-core")
    if os.environ.get(_WHOLE_RUN):
        stack = ExitStack()
        _target(os.environ[_WHOLE_RUN], _WHOLE_RUN)
        stack.enter_context(import_module("fastmma.triton").from_environment(as_cuda=config.getoption("--tensor-core-cuda")))
        config.add_cleanup(stack.close)


def _target(name: str, what: str) -> str:
    """The target that a name means.

    Raises
    ------
    pytest.UsageError
    """
    from fastmma.host.errors import TargetError
    from fastmma.isa.gpus import target_named

    try:
        return target_named(name)
    except TargetError as error:
        raise pytest.UsageError(f"{what}: {error}") from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tensor_core" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("tensor_core")
        metafunc.parametrize("tensor_core", _targets(metafunc.config, mark), indirect=True)


def _targets(config: pytest.Config, mark: pytest.Mark | None) -> list[str]:
    """The GPUs that a test runs as: those of the options, else of its mark."""
    return config.getoption("--tensor-core") or list(mark.args if mark else ()) or [_DEFAULT]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the fixture come before all others of a test, in whose bodies products may be, but for those that several tests share."""
    for item in items:
        names, info = getattr(item, "fixturenames", []), getattr(item, "_fixtureinfo", None)
        if info is None or "tensor_core" not in names:
            continue
        definitions = info.name2fixturedefs
        own = [name for name in names if definitions.get(name) and definitions[name][-1].scope == "function"]
        first = names.index(own[0])
        names.remove("tensor_core")
        names.insert(first, "tensor_core")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function) and item.get_closest_marker("tensor_core") and "tensor_core" not in item.fixturenames:
        pytest.fail(f"{item.name} is marked tensor_core, but does not take the fixture tensor_core, which does the work", pytrace=False)


@pytest.fixture
def tensor_core(request: pytest.FixtureRequest) -> Iterator[TensorCore]:
    """torch's products, and Triton's kernels if asked for, have the bits of a GPU while the test runs."""
    mark = request.node.get_closest_marker("tensor_core")
    target = _target(getattr(request, "param", _targets(request.config, mark)[0]), "tensor_core")
    if request.config.getoption("--tensor-core-native"):
        _skip_unless_here(target)
        yield TensorCore(target, "cuda", OnTheGpu(target))
        return
    options = dict(mark.kwargs) if mark else {}
    if request.config.getoption("--tensor-core-cuda"):
        options["as_cuda"] = True
    found = TensorCore(target)
    with ExitStack() as stack:
        if find_spec("torch") is not None:
            found.report = stack.enter_context(import_module("fastmma.torch").emulate(target, **options)).report
        if request.config.getoption("--tensor-core-triton"):
            interpret = import_module("fastmma.triton").interpret
            found.triton_report = stack.enter_context(interpret(target, as_cuda=bool(options.get("as_cuda"))))
        yield found


def _skip_unless_here(target: str) -> None:
    """Skip a test unless the GPU in the machine is the one that it is for."""
    from fastmma.isa.targets import architecture

    torch = pytest.importorskip("torch", reason="--tensor-core-native finds the GPU through torch, which is not installed")
    if not torch.cuda.is_available():
        pytest.skip("--tensor-core-native: there is no GPU in the machine")
    here = _target(".".join(map(str, torch.cuda.get_device_capability())), "the GPU in the machine")
    if architecture(here) != architecture(target):
        pytest.skip(f"--tensor-core-native: the GPU in the machine is {here}, not {target}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except Exception:
        found = getattr(item, "funcargs", {}).get("tensor_core")
        if isinstance(found, TensorCore):
            for report in filter(None, (found.report, found.triton_report)):
                item.add_report_section("call", "tensor cores", str(report))
        raise


@pytest.fixture
def golden_bits(request: pytest.FixtureRequest) -> Callable[[str, Any], None]:
    """``golden_bits(name, array)``: the array has the bits that are kept beside the test, under the test's name and this one."""
    from fastmma.testing import golden

    path = golden.file_of(Path(request.path))
    test = request.node.nodeid.partition("::")[2]
    seen: set[str] = set()

    def check(name: str, array: Any) -> None:
        __tracebackhide__ = True
        if name in seen:
            raise pytest.UsageError(f"{test}: golden_bits was called twice with the name {name!r}")
        seen.add(name)
        found, key = golden.record(array, name), f"{test}::{name}"
        if request.config.getoption("--golden-bits") == "write":
            request.config.stash[_written].setdefault(str(path), {})[key] = found
            return
        text = golden.difference(found, golden.read(path).get(key), name)
        if text:
            pytest.fail(text, pytrace=True)

    return check


@pytest.fixture
def adversarial() -> Callable[..., Any]:
    """`fastmma.testing.adversarial`: inputs on which GPUs differ."""
    from fastmma.testing.inputs import adversarial

    return adversarial


def pytest_sessionfinish(session: pytest.Session) -> None:
    records = session.config.stash[_written]
    if hasattr(session.config, "workeroutput"):  # one process writes the files: that which started the workers
        session.config.workeroutput[_WORKER_OUTPUT] = records
    else:
        _write(records)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist has finished."""
    _write(getattr(node, "workeroutput", {}).get(_WORKER_OUTPUT, {}))


def _write(written: dict[str, dict[str, Any]]) -> None:
    if written:
        from fastmma.testing import golden

        for path, records in written.items():
            golden.write(Path(path), records)
