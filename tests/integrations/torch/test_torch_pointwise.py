"""Functions of each element, forward and backward, with the bits that PyTorch 2.11 has on an H200."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from reference import torch_functions  # noqa: E402
from reference.cases import cases  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402

CALLS = list(torch_functions.recorded())
RELEASE = libdevice.release()
NAMES = sorted({call.name for call in CALLS})
pytestmark = pytest.mark.skipif(RELEASE is None, reason="no libdevice whose release is known")


@cases("name", NAMES)
def test_what_is_called_emulated_has_an_h200s_bits(name: str) -> None:
    compared = 0
    for call in CALLS:
        if call.name != name:
            continue
        with ft.emulate("H200") as gpu:
            found = torch_functions.run(call.kind, name, call.fmt)
        if gpu.report.lines("passed", "assumed", "unseen"):
            continue
        for result, recorded in zip(found, call.results, strict=True):
            codes = torch_functions.bits(result)[:: torch_functions.KEPT]
            np.testing.assert_array_equal(codes, recorded, err_msg=f"{call.kind} {name} {call.fmt}")
        compared += 1
    assert compared or (RELEASE is not None and f"{name}f" in RELEASE[1]), name


def test_most_calls_are_emulated() -> None:
    claimed = 0
    for call in CALLS:
        with ft.emulate("H200") as gpu:
            torch_functions.run(call.kind, call.name, call.fmt)
        claimed += not gpu.report.lines("passed", "assumed", "unseen")
    assert claimed > 0.9 * len(CALLS)


@cases("function", ["expf", "logf", "tanhf", "sinf", "erff", "rsqrtf"])
@cases("first", [0x00, 0x3F, 0xC2])
def test_all_codes_with_a_first_byte_have_an_h200s_bits(function: str, first: int) -> None:
    found = libdevice.call(function, torch_functions.chunk(first))
    assert torch_functions.checksum(found) == int(torch_functions.checksums()[function][first])


@cases("target", ["A100", "B200", "H100 PCIe", "H20", "GH200"])
def test_functions_of_other_gpus_are_torchs(target: str) -> None:
    x = torch.linspace(-3, 3, 100)
    with ft.emulate(target) as gpu:
        assert torch.equal(torch.exp(x), x.exp())
    assert [line.status for line, _ in gpu.report.lines("passed")] == ["passed"]


def test_functions_can_be_left_to_torch() -> None:
    x = torch.linspace(-3, 3, 1000)
    with ft.emulate("H200", functions="torch") as gpu:
        plain = torch.tanh(x)
    assert torch.equal(plain, x.tanh())
    assert gpu.report.lines("passed")


@cases("layout", ["contiguous", "transposed", "strided", "expanded", "empty", "scalar"])
def test_results_are_alike_in_any_memory(layout: str) -> None:
    base = torch.linspace(-4, 4, 60).reshape(6, 10)
    x = {
        "contiguous": base,
        "transposed": base.t(),
        "strided": base[::2, 1::3],
        "expanded": base[:1].expand(4, 10),
        "empty": base[:0],
        "scalar": base[2, 3],
    }[layout]
    with ft.emulate("H200"):
        found, plain = torch.exp(x), torch.exp(x.clone(memory_format=torch.contiguous_format))
        out = torch.empty(0)
        torch.exp(x, out=out)
        place = x.clone()
        place.exp_()
    assert torch.equal(found, plain)
    assert torch.equal(out, plain)
    assert torch.equal(place, plain)
    assert found.shape == x.shape
    if layout in ("contiguous", "transposed"):
        assert found.stride() == x.stride()


@cases("first", ["transposed", "contiguous", "strided", "broadcast"])
@cases("second", ["transposed", "contiguous", "lone"])
def test_results_lie_in_memory_as_torchs(first: str, second: str) -> None:
    base = torch.linspace(-4, 4, 120).reshape(5, 4, 6)
    forms = {
        "transposed": base.permute(2, 0, 1),
        "contiguous": base.permute(2, 0, 1).contiguous(),
        "strided": base.repeat(1, 2, 1).permute(2, 0, 1)[..., ::2],
        "broadcast": base[:1].permute(2, 0, 1),
        "lone": base[0, 0, 0],
    }
    x, y = forms[first], forms[second]
    with ft.emulate("H200") as gpu:
        found = torch.hypot(x, y)
    assert gpu.report.emulated
    assert found.stride() == torch.hypot(x, y).stride()
    torch.testing.assert_close(found, torch.hypot(x, y))


def test_gradients_at_the_ends_of_hardswish_are_those_of_an_h200() -> None:
    x = torch.tensor([-3.0, 3.0], requires_grad=True)
    with ft.emulate("H200"):
        torch.nn.functional.hardswish(x).backward(torch.tensor([-1.125, -1.125]))
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, -1.125]


def test_gradients_reach_leaves() -> None:
    x = torch.linspace(-2, 2, 33, requires_grad=True)
    with ft.emulate("H200") as gpu:
        torch.nn.functional.gelu(x).sum().backward()
    assert x.grad is not None
    assert "aten.gelu_backward.default" in {line.operator for line, _ in gpu.report.lines("emulated")}
