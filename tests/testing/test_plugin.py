"""The plug-in in runs of pytest of its own, found by its entry point."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastmma

pytest_plugins = ["pytester"]
ROOT = Path(fastmma.__file__).parents[1]
# stands for torch, Triton and their integrations, so that what the plug-in asks of them is seen without either
STANDS_IN = """
    import sys
    from contextlib import contextmanager
    from importlib.machinery import ModuleSpec
    from types import ModuleType, SimpleNamespace

    class Module(ModuleType):
        def __init__(self, name, **names):
            super().__init__(name)
            self.__spec__ = ModuleSpec(name, None)
            self.__dict__.update(names)

    log = []

    def integration(name):
        @contextmanager
        def entered(target, **options):
            log.append((name, target, options))
            try:
                yield SimpleNamespace(report=f"report of {name} on {target}") if name == "torch" else f"report of {name} on {target}"
            finally:
                log.append((name, "left"))

        return entered

    sys.modules["torch"] = Module("torch", Tensor=type("Tensor", (), {}))
    sys.modules["fastmma.torch"] = Module("fastmma.torch", emulate=integration("torch"))
    triton = integration("triton")
    whole_run = lambda **options: triton("A100", **options)
    sys.modules["fastmma.triton"] = Module("fastmma.triton", interpret=triton, from_environment=whole_run)
"""
NO_TORCH = "import sys\nsys.modules['torch'] = None\n"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """A run of pytest in a process of its own, in which fastmma is installed with its entry point, as pip installs it."""
    info = pytester.mkdir("site") / "fastmma-0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: fastmma\nVersion: 0\n")
    info.joinpath("entry_points.txt").write_text(entry_points())
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{info.parent}")
    monkeypatch.delenv("FASTMMA_TRITON", raising=False)
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = --strict-markers -p no:cacheprovider")
    return lambda *options: pytester.runpytest_subprocess("-q", *options, timeout=100)


def entry_points() -> str:
    text = (ROOT / "pyproject.toml").read_text()
    (line,) = re.search(r"\[project\.entry-points\.pytest11\]\n(.*)\n", text).groups()
    return "[pytest11]\n" + line.replace('"', "") + "\n"


def test_targets_of_marks_and_options(run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(NO_TORCH)
    pytester.makepyfile(
        """
    import fastmma, numpy as np, pytest
    from fastmma.testing import assert_product

    pytestmark = pytest.mark.tensor_core("A100", "sm_90a")

    def test_product(tensor_core):
        assert tensor_core.target in ("sm_80", "sm_90a", "sm_120a") and tensor_core.report is None
        a = np.full((16, 32), 0.5, np.float16)
        assert_product(fastmma.gemm(a, a.T, target=tensor_core.target), a, a.T, target=tensor_core.target)

    @pytest.mark.tensor_core("H200")
    @pytest.mark.parametrize("n", [1, 2])
    def test_nearest_mark(tensor_core, n):
        pass

    class Test:
        def test_forgets_the_fixture(self):
            pass

    @pytest.mark.usefixtures("tensor_core")
    def test_uses(adversarial):
        assert adversarial((3, 4), "e4m3").shape == (3, 4)
    """
    )
    result = run("-vv")
    result.assert_outcomes(passed=6, errors=1)
    names = re.findall(r"::(\S+) PASSED", result.stdout.str())
    assert names == [
        "test_product[A100]",
        "test_product[sm_90a]",
        "test_nearest_mark[H200-1]",
        "test_nearest_mark[H200-2]",
        "test_uses[A100]",
        "test_uses[sm_90a]",
    ]
    result.stdout.fnmatch_lines(["test_forgets_the_fixture is marked tensor_core, but does not take the fixture tensor_core*"])
    result = run("-vv", "--tensor-core", "RTX 5090")
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["*test_product?RTX 5090? PASSED*"])
    result = run("--tensor-core", "H1000")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --tensor-core: unknown target 'H1000'*"])


def test_integrations_are_entered_and_left(run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeconftest(STANDS_IN)
    pytester.makepyfile(
        """
    import os, unittest, pytest
    from conftest import log

    @pytest.mark.tensor_core("H100", other="error")
    def test_entered(tensor_core):
        torch_options = {"other": "error", "as_cuda": True}
        assert log == [("triton", "A100", {"as_cuda": True}), ("torch", "sm_90a", torch_options), ("triton", "sm_90a", {"as_cuda": True})]
        assert tensor_core.report == "report of torch on sm_90a" and tensor_core.triton_report == "report of triton on sm_90a"
        assert os.environ["TRITON_INTERPRET"] == "1"

    def test_left_and_default(tensor_core):
        assert log[3:5] == [("triton", "left"), ("torch", "left")]
        assert tensor_core.target == "sm_90a"

    def test_fails(tensor_core):
        assert False

    @pytest.mark.usefixtures("tensor_core")
    class TestCase(unittest.TestCase):
        def test(self):
            assert log[-1] == ("triton", "sm_90a", {"as_cuda": True})

    def test_is_not_emulated():
        assert log[-1] == ("torch", "left")
    """
    )
    monkeypatch.setenv("FASTMMA_TRITON", "A100")
    result = run("--tensor-core-triton", "--tensor-core-cuda")
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*Captured tensor cores call*", "report of torch on sm_90a", "report of triton on sm_90a"])


def test_torch_and_triton(run, pytester: pytest.Pytester) -> None:
    """The integrations themselves: a layer with its gradient, and a kernel."""
    pytest.importorskip("triton")
    pytester.makepyfile(
        """
    import numpy as np, pytest, torch, triton, triton.language as tl
    from fastmma.testing import assert_product

    @triton.jit
    def kernel(a, b, d, N: tl.constexpr):
        i = tl.arange(0, N)
        at = i[:, None] * N + i[None, :]
        tl.store(d + at, tl.dot(tl.load(a + at), tl.load(b + at)))

    @pytest.mark.tensor_core("A100", "H100")
    def test_layer(tensor_core, adversarial, golden_bits):
        x, w = (torch.from_numpy(adversarial((32, 256), "f16", seed=seed)) for seed in (0, 1))
        y = torch.nn.functional.linear(x, w.requires_grad_())
        assert_product(y, x, w.T, target=tensor_core.target)
        y.backward(torch.ones_like(y))
        assert_product(w.grad, torch.ones(32, 32, dtype=torch.float16), x, target=tensor_core.target)
        tensor_core.report.assert_all_emulated(assumed=tensor_core.target == "sm_80")  # whose cuBLAS nobody has recorded
        golden_bits("y", y)

    @pytest.mark.tensor_core("A100")
    def test_kernel(tensor_core, adversarial):
        a, b = (torch.from_numpy(adversarial((32, 32), "f16", seed=seed)) for seed in (0, 1))
        d = torch.empty(32, 32)
        kernel[(1,)](a, b, d, 32)
        assert_product(d, a, b, target="A100")
        assert "dot" in str(tensor_core.triton_report)
    """
    )
    pytester.makeini("[pytest]\naddopts = --strict-markers -p no:cacheprovider")  # triton warns
    run("--tensor-core-triton", "--golden-bits=write").assert_outcomes(passed=3)
    records = json.loads(next(pytester.path.glob("*.bits.json")).read_text())
    assert len({record["sha256"] for record in records.values()}) == 2


def test_native_needs_a_gpu(run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        STANDS_IN
        + """
    sys.modules["torch"].cuda = SimpleNamespace(is_available=lambda: True, get_device_capability=lambda: (9, 0))
    """
    )
    pytester.makepyfile(
        """
    import pytest
    from conftest import log

    @pytest.mark.tensor_core("H100", "sm_90", "A100")
    def test(tensor_core):
        assert tensor_core.device == "cuda" and not log
        tensor_core.report.assert_all_emulated()
    """
    )
    result = run("--tensor-core-native", "-rs")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["*the GPU in the machine is sm_90a, not sm_80"])


def test_golden_bits(run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(NO_TORCH)
    path = pytester.makepyfile(
        """
    import numpy as np, pytest

    @pytest.mark.tensor_core("A100", "H100")
    def test_kept(tensor_core, golden_bits):
        golden_bits("d", np.full((5, 7), int(tensor_core.target[3:5]), np.float32))
        golden_bits("range", np.arange(6, dtype=np.float16).reshape(2, 3))

    def test_twice(golden_bits):
        golden_bits("x", np.ones(3))
        with pytest.raises(pytest.UsageError, match="twice with the name 'x'"):
            golden_bits("x", np.ones(3))
    """
    )
    run("-n2", "--golden-bits=write").assert_outcomes(passed=3)
    kept = path.with_suffix(".bits.json")
    records = json.loads(kept.read_text())
    key = "test_kept[H100]::range"
    assert sorted(records) == sorted(
        [f"test_kept[{gpu}]::{name}" for gpu in ("A100", "H100") for name in ("d", "range")] + ["test_twice::x"]
    )
    assert records[key]["elements"] == ["0x0", "0x3c00", "0x4000", "0x4200", "0x4400", "0x4500"]
    kept.write_text(json.dumps({name: record for name, record in records.items() if name != "test_kept[A100]::d"}))
    path.write_text(
        path.read_text()
        .replace("np.arange(6, dtype=np.float16)", "np.array([0, 1, 2, 3, -4, 5], np.float16)")
        .replace("np.ones(3)", "np.ones(4)")
    )
    result = run()
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*no golden bits of d are kept: write them with --golden-bits=write"])
    result.stdout.fnmatch_lines(["*golden bits of range changed: sha256 *, and was *", "*[[]1, 1]  actual 0xc400; kept 0x4400"])
    result.stdout.fnmatch_lines(["*golden bits of x: the shape is [[]4], and was [[]3]"])
    kept.write_text("[")
    result = run("-k", "twice")
    result.assert_outcomes(failed=1, deselected=2)
    result.stdout.fnmatch_lines(["*test_golden_bits.bits.json holds no golden bits*"])


def test_without_the_plugin(run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test(): pass\ndef test_asks(tensor_core): pass")
    result = run("-p", "no:fastmma")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*fixture 'tensor_core' not found"])


def test_the_plugin_imports_nothing_heavy() -> None:
    program = "import pytest, sys; import fastmma.testing.plugin; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert not {"numpy", "numba", "torch", "triton", "jax", "ml_dtypes"} & set(json.loads(found.replace("'", '"')))


def test_fixtures_before_the_fixture_are_emulated_too(pytester: pytest.Pytester, run) -> None:
    pytester.makeconftest(STANDS_IN)
    pytester.makepyfile(
        """
        import pytest
        from conftest import log

        @pytest.fixture(scope="module")
        def shared():
            return len(log)

        @pytest.fixture
        def product():
            return [name for name, *_ in log]

        @pytest.mark.tensor_core("A100")
        def test_product(shared, product, tensor_core):
            assert shared == 0
            assert product == ["torch"]
        """
    )
    run().assert_outcomes(passed=1)
