"""What an H200 computed with this Triton's machine code: all that reports call emulated is equal in every bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from fastmma.triton import Report, interpret  # noqa: E402
from tests.integrations.triton.launches import DTYPES, Launch, launches  # noqa: E402
from tests.reference.triton_cubins import shortened  # noqa: E402

RECORDING = Path(__file__).parent / "recordings" / "machine_code_h200.npz"
TORCH = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "s8": "int8",
    "s32": "int32",
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
# of each kernel, of these for each precision or way, the smallest launch; all if the variable is set
BY = {"one_dot": "P", "matrix_sums": "AXIS"}
ALL = bool(os.environ.get("FASTMMA_TRITON_LAUNCHES"))


def tensor(array: np.ndarray) -> Any:
    name = next(name for name, dtype in DTYPES.items() if dtype == array.dtype)
    return torch.from_numpy(array.copy().view(f"{'u' if array.itemsize == 1 else 'i'}{array.itemsize}")).view(getattr(torch, TORCH[name]))


def replayed(launch: Launch, **options: Any) -> tuple[dict[str, np.ndarray], Report]:
    given = {name: tensor(value) if isinstance(value, np.ndarray) else value for name, value in launch.named.items()}
    with interpret("H200", fp_fusion=True, **options) as report:
        launch.kernel[launch.grid](**given, **launch.options)
    return {name: given[name].view(BITS[given[name].element_size()]).numpy() for name in launch.results}, report


def taken() -> list[Launch]:
    smallest: dict[Any, tuple[int, Launch]] = {}
    for launch in launches():
        name = launch.kernel.fn.__name__
        size = sum(value.nbytes for value in launch.named.values() if isinstance(value, np.ndarray))
        key = launch.name if ALL else (name, launch.named.get(BY.get(name, "")))
        if key not in smallest or size < smallest[key][0]:
            smallest[key] = size, launch
    return [launch for _, launch in smallest.values()]


def test_h200() -> None:
    different, passed, emulated = [], [], 0
    with np.load(RECORDING) as recorded:
        for launch in taken():
            results, report = replayed(launch)
            is_equal = all(
                np.array_equal(shortened(array.view(f"u{array.itemsize}")), recorded[f"{launch.name} -> {name}"])
                for name, array in results.items()
            )
            if report.lines("passed", "assumed", "unseen"):
                passed.append(launch.name)
            elif is_equal:
                emulated += 1
            else:
                different.append(launch.name)
    assert not different
    assert emulated >= 65
    assert passed == []
