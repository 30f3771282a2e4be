"""What torch computed on an H200, again: the scripts that made the recordings run under emulation."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from reference.scripts import loaded

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402

# what is not known: attention, and f32 functions and sums, which are torch's own
UNKNOWN = {
    "g1": ("sdpa FLASH", "sdpa CUDNN"),
    "g2": ("tf de", "tf dq", "tf dk", "tf dv"),
}
# products whose parts of k are no part of the plan book: how many they are follows from the bits
PARTS = {"tf32": {(96, 72, 200): 17}, "ieee": {(96, 72, 200): 13}, "f16acc": {(128, 128, 1024): 16}}
# what does not differ where torch's functions are replaced by those of a GPU
FUNCTIONS = ("exp", "rsqrt", "sigmoid", "silu", "div", "softmax", "softmax32", "sum", "mean", "rms_manual")


def expected_to_differ(script: str, name: str) -> bool:
    return any(each in name for each in UNKNOWN[script]) or (
        name.startswith("op ") and name.endswith("float32") and name != "op mul float32"
    )


def replayed(
    script: str, wanted: set[str] | None, within: Callable[[], AbstractContextManager[object]], claimed: set[str] | None = None
) -> dict[str, bool]:
    """Whether the results of a script, all or those that are wanted, have the bits of an H200; what a CPU cannot compute has not.

    Names whose operations are all emulated or neutral, as their reports say, are added to `claimed`.
    """
    folder = Path(os.environ.get("FASTMMA_H200_INTEROP", ""))
    if not (folder / f"{script}.py").is_file():
        pytest.skip("FASTMMA_H200_INTEROP does not name the folder of recordings")
    module = loaded(folder / f"{script}.py")
    recorded = np.load(folder / f"{script}.npz")
    equal: dict[str, bool] = {}

    def record(name: str, call: Callable[[], torch.Tensor]) -> None:
        if wanted is not None and name not in wanted:
            return
        try:
            with ft.emulate("H200", plans=PARTS.get(name)) as gpu, within():
                result = call().detach().float().numpy()
            if claimed is not None and not gpu.report.lines("assumed", "passed", "unseen"):
                claimed.add(name)
        except RuntimeError:
            if not expected_to_differ(script, name):
                raise
            equal[name] = False
            return
        rows = (result[None] if result.ndim < recorded[name].ndim else result)[: len(recorded[name])]
        equal[name] = rows.ravel()[: recorded[name].size].tobytes() == recorded[name].tobytes()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.run("cpu", record)
    return equal


@pytest.mark.parametrize(("script", "count", "functions", "least"), [("g1", 114, 0, 70), ("g2", 163, 24, 50)])
def test_recordings_of_an_h200(script: str, count: int, functions: int, least: int) -> None:
    claimed: set[str] = set()
    equal = replayed(script, None, nullcontext, claimed)
    assert [name for name in claimed if not equal[name]] == []
    assert len(claimed) > least
    assert [name for name, same in equal.items() if not same and not expected_to_differ(script, name)] == []
    assert sum(equal.values()) == count + (functions if libdevice.release() is not None else 0)


def test_gradients_are_equal_where_functions_are_the_gpus() -> None:
    pytest.importorskip("triton", reason="the extra 'triton' is not installed")
    within = loaded(Path(__file__).with_name("gpu_functions.py")).GpuFunctions

    known = {f"op {name} float32" for name in FUNCTIONS} | {f"tf d{name}" for name in "eqkv"}
    equal = replayed("g2", known, within)
    assert equal == dict.fromkeys(known, True)
