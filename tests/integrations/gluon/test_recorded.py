"""What an H100 computed with the machine code of Gluon kernels: every bit is the same here, and every operation emulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from fastmma.triton import interpret  # noqa: E402
from tests.integrations.gluon.launches import launches, tensor  # noqa: E402
from tests.reference.triton_cubins import shortened  # noqa: E402

RECORDING = Path(__file__).parent / "recordings" / "h100.npz"
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def test_h100() -> None:
    different, compared = [], 0
    with np.load(RECORDING) as recorded:
        for launch in launches():
            tensors = {name: tensor(array) for name, array in launch.drawn().items()}
            with interpret("H100", fp_fusion=True) as report:
                launch.kernel[launch.grid](**launch.arguments(tensors), **launch.options)
            assert not {*report.assumed, *report.passed, *report.unseen}
            for name in launch.results:
                bits = tensors[name].view(BITS[tensors[name].element_size()]).numpy()
                same = np.array_equal(shortened(bits.view(f"u{bits.itemsize}")), recorded[f"{launch.name} -> {name}"])
                different += [] if same else [f"{launch.name} -> {name}"]
                compared += 1
    assert not different
    assert compared == 74
