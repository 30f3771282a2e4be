"""Every operation of a kernel has a status, and its line."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import fastmma

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402
from triton.language.extra.cuda import gdc_wait  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

from fastmma.triton import interpret  # noqa: E402
from fastmma.triton.methods import ABSENT, HELPERS, METHODS  # noqa: E402


@triton.jit
def mixed(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i)
    b = tl.exp(a) + 1.0
    c = tl.cumsum(b, 0)
    tl.store(y + i, c)


def ran(kernel: Any, *arguments: Any, gpu: str = "H100", **options: Any) -> Any:
    with interpret(gpu, lowering="rules", **options) as report:
        kernel[(1,)](*arguments)
    return report


def line_of(kernel: Any, text: str) -> str:
    lines, first = inspect.getsourcelines(kernel.fn)
    return f"{__file__}:{first + next(index for index, line in enumerate(lines) if text in line)}"


def test_every_operation_is_told_with_its_line() -> None:
    report = ran(mixed, torch.ones(16), torch.empty(16), 16)
    found = {line.operator: (line.status, line.where) for line, _ in report.lines() if line.operator != "splat"}
    assert found == {
        "make_range": ("neutral", line_of(mixed, "arange")),
        "addptr": ("neutral", line_of(mixed, "store")),
        "masked_load": ("neutral", line_of(mixed, "load(")),
        "exp": ("emulated", line_of(mixed, "tl.exp(")),
        "fadd": ("neutral", line_of(mixed, "tl.exp(")),
        "reduction": ("passed", line_of(mixed, "tl.cumsum(")),
        "masked_store": ("neutral", line_of(mixed, "store")),
    }
    with pytest.raises(AssertionError, match=r"passed +1  reduction: .*\(.*test_closed_report\.py:\d+\)"):
        report.assert_all_emulated(assumed=True)
    counts = report.to_dict()
    assert (counts["emulated"], counts["passed"], counts["unseen"], counts["assumed"]) == (1, 1, 0, 0)
    assert counts["neutral"] == sum(report.neutral.values())


def test_nothing_is_no_proof() -> None:
    with interpret("H100") as report:
        pass
    with pytest.raises(AssertionError, match="nothing was emulated"):
        report.assert_all_emulated()


def test_warnings_and_errors_name_the_line() -> None:
    x = torch.ones(16)
    with pytest.warns(UserWarning, match="reduction has NumPy's bits") as warned:
        ran(mixed, x, torch.empty(16), 16, other="warn")
    assert [f"{one.filename}:{one.lineno}" for one in warned if "reduction" in str(one.message)] == [line_of(mixed, "tl.cumsum(")]
    with pytest.raises(fastmma.NotEmulatedError, match=rf"^reduction on sm_90a: .* \({line_of(mixed, 'tl.cumsum(')}\)$"):
        ran(mixed, x, torch.empty(16), 16, other="error")


def test_all_methods_of_this_builder_are_listed() -> None:
    methods = {
        name for name, value in vars(interpreter.InterpreterBuilder).items() if callable(value) and not name.startswith(("_", "get_"))
    }
    # comparisons that Triton's language has no way to ask for
    never = {"create_fcmpONE", "create_fcmpULT", "create_fcmpUGT", "create_fcmpULE", "create_fcmpUGE", "create_fcmpUEQ"}
    delegating = {"get_cache_policy"}
    assert methods - HELPERS - METHODS.keys() - delegating == never
    assert METHODS.keys() - methods == set(ABSENT)


@triton.jit
def doubled(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, tl.load(x + i) + tl.load(x + i))


def test_what_is_in_no_list_is_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(METHODS, "create_fadd")
    report = ran(doubled, torch.ones(16), torch.empty(16), 16)
    assert report.unseen == {("fadd", "in no list"): 1}
    with pytest.raises(AssertionError, match=r"unseen +1  fadd: in no list"):
        report.assert_all_emulated(assumed=True)
    with pytest.raises(fastmma.NotEmulatedError, match="fadd on sm_90a: in no list"):
        ran(doubled, torch.ones(16), torch.empty(16), 16, other="error")


@triton.jit
def atomics(total, count, seen, OPERATION: tl.constexpr):
    if OPERATION == "add":
        tl.atomic_add(count, 1)
    elif OPERATION == "ticket":
        tl.store(seen + tl.program_id(0), tl.atomic_add(count, 1))
    elif OPERATION == "exchange":
        tl.atomic_xchg(count, tl.program_id(0))
    elif OPERATION == "max":
        tl.atomic_max(total, tl.program_id(0).to(tl.float32))
    elif OPERATION == "swap":
        tl.atomic_cas(count, 0, 1)
    else:
        tl.atomic_add(total, 0.5)


@pytest.mark.parametrize(
    ("operation", "passes"),
    [
        ("add", []),
        ("max", []),
        ("ticket", ["atomic_add"]),
        ("exchange", ["atomic_xchg"]),
        ("swap", ["atomic_cas"]),
        ("f32", ["atomic_add"]),
    ],
)
def test_what_depends_on_the_order_of_programs_is_passed(operation: str, passes: list[str]) -> None:
    count, seen = torch.zeros(1, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    with interpret("H100", lowering="rules") as report:
        atomics[(3,)](torch.zeros(1), count, seen, operation)
    assert sorted({name for name, _ in report.passed}) == passes


@triton.jit
def scanned(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, tl.cumsum(tl.load(x + i), 0))


def test_scans_of_integers_are_neutral_and_those_of_floats_are_not() -> None:
    for dtype, status in ((torch.int32, "neutral"), (torch.float32, "passed")):
        report = ran(scanned, torch.ones(16, dtype=dtype), torch.empty(16, dtype=dtype), 16)
        assert [line.status for line, _ in report.lines() if line.operator in ("scan", "reduction")] == [status]


@triton.jit
def of_libdevice(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i)
    tl.store(y + i, libdevice.tanh(a) + libdevice.rsqrt(a) + libdevice.trunc(a))


def test_libdevice() -> None:
    x = torch.tensor([0.25, 1.0, 4.5, 16.0])
    y = torch.empty(4)
    before = libdevice.tanh
    report = ran(of_libdevice, x, y, 4)
    assert libdevice.tanh is before
    torch.testing.assert_close(y, x.tanh() + x.rsqrt() + x.trunc())
    assert not report.passed
    assert {name for name, _ in report.emulated} == {"__nv_tanhf", "__nv_rsqrtf"}
    assert ("__nv_truncf", "IEEE 754") in report.neutral


@triton.jit
def assembled(x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    y = tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=r,r", [tl.load(x + i)], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(x + i, y)


@triton.jit
def unknown_of_libdevice(x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(x + i, libdevice.add_rd(tl.load(x + i), tl.load(x + i)))


def test_what_nothing_here_runs_is_refused_with_the_reason() -> None:
    with pytest.raises(fastmma.NotEmulatedError, match=r"inline assembly \(ex2\.approx\.f32 \$0, \$1;\): the kernel's PTX executes it"):
        ran(assembled, torch.ones(16), 16)
    with pytest.raises(fastmma.NotEmulatedError, match="__nv_dadd_rd of libdevice: nothing on this machine computes it"):
        ran(unknown_of_libdevice, torch.ones(16, dtype=torch.float64), 16)


@triton.jit
def waiting(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    gdc_wait()
    tile = tl.make_tensor_descriptor(x, [4, SIZE // 4], [SIZE // 4, 1], [4, SIZE // 4]).load([0, 0])
    tl.store(y + i, tl.reshape(tile.T.trans(), (SIZE,)))
    tl.extra.cuda.gdc_launch_dependents()


def test_descriptors_and_waits_are_neutral() -> None:
    x, y = torch.arange(64.0), torch.empty(64)
    report = ran(waiting, x, y, 64)
    assert torch.equal(x, y)
    assert {line.status for line, _ in report.lines()} == {"neutral"}
    assert {"grid_dependency_wait", "grid_dependency_launch_dependents", "descriptor_load", "trans"} <= {name for name, _ in report.neutral}


@triton.jit
def reordered(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i)
    tl.store(y + tl.arange(0, 2 * SIZE), tl.cat(a, a, can_reorder=True))
    tl.store(y + i, tl.reshape(tl.reshape(a, (2, SIZE // 2), can_reorder=True), (SIZE,)))


@pytest.mark.filterwarnings("ignore:.*can_reorder")
def test_what_the_compiler_may_reorder_is_passed() -> None:
    report = ran(reordered, torch.ones(16), torch.empty(32), 16)
    assert sorted(name for name, _ in report.passed) == ["cat", "reshape"]


@triton.jit
def of_many_kinds(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, tl.load(x + i).to(tl.float8e4b15).to(tl.float32))


def test_casts_of_formats_that_are_not_modelled_are_passed() -> None:
    report = ran(of_many_kinds, torch.ones(16, dtype=torch.float16), torch.empty(16), 16)
    assert [text.partition(":")[0] for _, text in report.passed] == ["fp16 to fp8e4b15", "fp8e4b15 to fp32"]


@triton.jit
def randomised(y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, tl.rand(7, i))
    tl.store(y + SIZE + i, tl.sort(tl.rand(7, i)))


def test_random_numbers_and_sorts_are_neutral() -> None:
    y = torch.empty(128)
    report = ran(randomised, y, 64)
    np.testing.assert_array_equal(np.sort(y[:64].numpy()), y[64:].numpy())
    assert not report.passed
    assert not report.unseen
    report.assert_all_emulated()
