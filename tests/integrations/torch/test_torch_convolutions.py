"""Convolutions of patches and of 1 x 1: what is called emulated has the bits of cuDNN on an H200, and most of what is assumed, too."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference import convolutions  # noqa: E402
from reference.cases import cases  # noqa: E402
from torch.nn import functional  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.host.errors import NotEmulatedError, TargetError  # noqa: E402

ORDER = ("the result", "the gradient of the input", "the gradient of the weight", "the gradient of the bias")


def statuses(report: ft.Report) -> dict[str, str]:
    """What the report says of each result of a convolution."""
    found = {}
    for line, _ in report.lines("emulated", "assumed", "passed"):
        what = line.how.partition(":")[0]
        found[what if what in ORDER else ORDER[0]] = line.status
    return found


def test_what_is_emulated_has_an_h200s_bits() -> None:
    counts: Counter[tuple[str, str, bool]] = Counter()
    for case, sums, unrepeated in convolutions.recorded():
        tf32 = case.mode.startswith("tf32")
        with ft.emulate("H200", unknown="one", fp32="tf32" if tf32 else "ieee") as gpu:
            found = convolutions.computed(convolutions.drawn(case))
        said = statuses(gpu.report)
        for name, what, tensor in zip(convolutions.NAMES, ORDER, found, strict=False):
            if name not in unrepeated:
                counts[name, said[what], convolutions.checksum(tensor) == sums[name]] += 1
    assert {(name, equal) for name, status, equal in counts if status == "emulated"} == {
        ("y", True),
        ("dx", True),
        ("dw", True),
        ("db", True),
    }
    rates = {}
    for name in ("y", "dx", "dw", "db"):
        for status in ("emulated", "assumed", "passed"):
            right, wrong = counts[name, status, True], counts[name, status, False]
            if right + wrong:
                rates[name, status] = right, right + wrong
    assert rates == RATES


RATES = {
    ("y", "emulated"): (69, 69),
    ("y", "assumed"): (58, 79),
    ("dx", "emulated"): (46, 46),
    ("dx", "assumed"): (69, 82),
    ("dx", "passed"): (3, 20),
    ("dw", "emulated"): (10, 10),
    ("dw", "assumed"): (57, 103),
    ("dw", "passed"): (1, 22),
    ("db", "emulated"): (78, 78),
}


def operands(*shape: int, **options: Any) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), **options)


@cases(
    ("change", "status"),
    [
        ({}, "emulated"),
        ({"target": "H100"}, "emulated"),  # which computed all calls that an H200 repeats as that does
        ({"target": "B200"}, "assumed"),  # whose choices nobody recorded
        ({"stride": 8}, "assumed"),
        ({"weight": operands(64, 3, 16, 16).bfloat16().contiguous(memory_format=torch.channels_last)}, "assumed"),
        ({"groups": 1, "benchmark": True}, "assumed"),
        ({"x": operands(2, 6, 32, 32).bfloat16(), "groups": 2}, "passed"),
        ({"transposed": True}, "passed"),
        ({"dtype": torch.float64}, "passed"),
    ],
)
def test_what_other_convolutions_are_called(change: dict[str, Any], status: str) -> None:
    given = {"x": operands(2, 3, 32, 32).bfloat16(), "weight": operands(64, 3, 16, 16).bfloat16(), "stride": 16, "groups": 1, **change}
    x, weight = (given[name].to(given.get("dtype", torch.bfloat16)) for name in ("x", "weight"))
    if change.get("transposed"):
        call: Any = lambda: functional.conv_transpose2d(x, weight.transpose(0, 1), stride=16)  # noqa: E731
    else:
        call = lambda: functional.conv2d(x, weight, None, given["stride"], groups=given["groups"])  # noqa: E731
    plain = call()
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = bool(change.get("benchmark"))
    try:
        with ft.emulate(given.get("target", "H200"), unknown="one") as gpu:
            found = call()
    finally:
        torch.backends.cudnn.benchmark = before
    assert [line.status for line, _ in gpu.report.lines("emulated", "assumed", "passed")] == [status]
    assert found.stride() == plain.stride()
    torch.testing.assert_close(found, plain, rtol=0.02, atol=0.1)


def test_what_is_not_known_is_refused_on_request() -> None:
    x, weight = operands(2, 3, 32, 32).bfloat16(), operands(64, 3, 3, 3).bfloat16()
    with ft.emulate("H200", unknown="error"), pytest.raises(TargetError, match="channels last"):
        functional.conv2d(x, weight)
    with ft.emulate("H200", other="error"), pytest.raises(NotEmulatedError, match="cuDNN"):
        functional.conv2d(x, weight[:, :1], groups=3)


def test_a_bias_is_added_to_what_is_rounded() -> None:
    x, weight, bias = operands(2, 3, 32, 32).bfloat16(), operands(64, 3, 16, 16).bfloat16(), operands(64).bfloat16()
    with ft.emulate("H200"):
        found, plain = functional.conv2d(x, weight, bias, 16), functional.conv2d(x, weight, None, 16)
    assert torch.equal(found, plain + bias[:, None, None])


def test_convolutions_are_taken_apart_in_inference_mode() -> None:
    x, weight = operands(2, 3, 32, 32).bfloat16(), operands(64, 3, 16, 16).bfloat16()
    with ft.emulate("H200") as gpu, torch.inference_mode():
        functional.conv2d(x, weight, None, 16)
    gpu.report.assert_all_emulated()


def test_gradients_of_patches_have_an_h200s_bits() -> None:
    counts: Counter[tuple[str, str, bool]] = Counter()
    for name, number, shape, checksum in json.loads((Path(convolutions.__file__).parent / "patch_gradients.json").read_text()):
        images, channels, results, side, height, width = shape
        work = images * height * width * results * channels * side * side
        if checksum is None or (name == "rule" and work > LARGEST):  # None: the GPU itself did not repeat it
            continue
        rng = np.random.Generator(np.random.PCG64(zlib.crc32(repr(("numbers", name, number)).encode())))
        x = torch.from_numpy(rng.standard_normal((images, channels, height * side, width * side), np.float32))
        grad = torch.from_numpy(rng.standard_normal((images, results, height, width), np.float32))
        weight = torch.zeros(results, channels, side, side)
        with ft.emulate("H200", unknown="one", fp32="tf32" if name.startswith("tf32") else "ieee") as gpu:
            found = torch.ops.aten.convolution_backward(
                grad, x, weight, None, [side] * 2, [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]
            )[1]
        (status,) = (line.status for line, _ in gpu.report.lines("emulated", "assumed"))
        counts[name, status, zlib.crc32(found.contiguous().numpy().tobytes()) == checksum] += 1
    assert not [key for key in counts if key[1] == "emulated" and not key[2]]
    assert {name: counts[name, "emulated", True] for name in ("rule", "few", "tf32 few")} == {"rule": 69, "few": 29, "tf32 few": 19}


def test_usual_convolutions_have_an_h200s_bits() -> None:
    """Of convolutions of usual models and of drawn sizes, by checksums; kernels were told by their names."""
    counts: Counter[tuple[str, str, bool]] = Counter()
    for key, (*sizes, stride, fill, side_fill), checksums in json.loads(USUAL.read_text()):
        images, channels, height, width, results, rows, columns = sizes
        if images * height * width * results * channels * rows * columns > SMALL * stride**2:
            continue
        steps = [1 if height == 1 else stride, stride]
        rng = np.random.Generator(np.random.PCG64(zlib.crc32(key.encode())))
        x, weight = (torch.from_numpy(rng.standard_normal(each, np.float32)) for each in (sizes[:4], (results, channels, rows, columns)))
        places = functional.conv2d(x[:1, :1], weight[:1, :1], None, steps, [fill, side_fill]).shape[2:]
        grad = torch.from_numpy(rng.standard_normal((images, results, *places), np.float32))
        for variant, checksum in checksums.items():
            mode, *last, what = variant.split()
            given = [each.to(convolutions.DTYPES[mode]) for each in (x, weight, grad)]
            given = [each.contiguous(memory_format=torch.channels_last) for each in given] if last else given
            rest = (steps, [fill, side_fill], [1, 1], False, [0, 0], 1)
            with ft.emulate("H200", unknown="one", fp32="tf32" if mode == "tf32" else "ieee") as gpu:
                if what == "y":
                    found = torch.ops.aten.convolution(given[0], given[1], None, *rest)
                else:
                    found = torch.ops.aten.convolution_backward(given[2], given[0], given[1], None, *rest, [True, False, False])[0]
            (status,) = (line.status for line, _ in gpu.report.lines("emulated", "assumed", "passed"))
            counts[what, status, convolutions.checksum(found) == checksum] += 1
    assert not [key for key in counts if key[1] == "emulated" and not key[2]]
    assert {what: counts[what, "emulated", True] for what in ("y", "dx")} == {"y": 388, "dx": 226}


@cases(
    ("change", "status"),
    [
        ({}, "emulated"),
        ({"target": "H100"}, "assumed"),  # of which nobody recorded the kernels
        ({"deterministic": True}, "assumed"),
        ({"dilation": 2}, "assumed"),
        ({"images": 3}, "assumed"),
        ({"slice": True}, "assumed"),  # whose address is another than those that were recorded
        ({"last": True}, "emulated"),
    ],
)
def test_when_a_usual_convolution_is_known(change: dict[str, Any], status: str) -> None:
    x, weight = operands(change.get("images", 8), 256, 14, 14).bfloat16(), operands(256, 256, 3, 3).bfloat16()
    if change.get("last"):
        x, weight = (each.contiguous(memory_format=torch.channels_last) for each in (x, weight))
    if change.get("slice"):
        x = torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape)
    gap = change.get("dilation", 1)
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = bool(change.get("deterministic"))
    try:
        with ft.emulate(change.get("target", "H200"), unknown="one") as gpu:
            found = functional.conv2d(x, weight, None, 1, gap, gap)
    finally:
        torch.backends.cudnn.deterministic = before
    assert [line.status for line, _ in gpu.report.lines("emulated", "assumed", "passed")] == [status]
    torch.testing.assert_close(found, functional.conv2d(x, weight, None, 1, gap, gap), rtol=0.02, atol=0.5)


USUAL = Path(convolutions.__file__).parent / "usual_convolutions.json"
LARGEST = 1 << 27  # products, of which a test has the time
SMALL = 1 << 26
