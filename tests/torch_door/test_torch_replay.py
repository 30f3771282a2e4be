"""What torch computed on an H200, again: the scripts that made the recordings run under emulation."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import fastmma.torch as door  # noqa: E402

# what is not known: fused GELU and attention, and f32 functions and sums, which are torch's own
UNKNOWN = {
    "g1": ("sdpa FLASH", "sdpa CUDNN"),
    "g2": ("gelu epi", "tf de", "tf dq", "tf dk", "tf dv"),
}
# products whose parts of k are no part of the plan book: how many they are follows from the bits
PARTS = {"tf32": {(96, 72, 200): 17}, "ieee": {(96, 72, 200): 13}, "f16acc": {(128, 128, 1024): 16}}


def expected_to_differ(script: str, name: str) -> bool:
    return any(each in name for each in UNKNOWN[script]) or (
        name.startswith("op ") and name.endswith("float32") and name != "op mul float32"
    )


@pytest.mark.parametrize(("script", "count"), [("g1", 112), ("g2", 154)])
def test_recordings_of_an_h200(script: str, count: int) -> None:
    folder = Path(os.environ.get("FASTMMA_H200_INTEROP", ""))
    if not (folder / f"{script}.py").is_file():
        pytest.skip("FASTMMA_H200_INTEROP does not name the folder of recordings")
    found = importlib.util.spec_from_file_location(script, folder / f"{script}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    recorded = np.load(folder / f"{script}.npz")
    equal: list[str] = []
    wrong: list[str] = []

    def record(name: str, call: Callable[[], torch.Tensor]) -> None:
        wanted = recorded[name]
        try:
            with door.emulate("H200", plans=PARTS.get(name)):
                result = call().detach().float().numpy()
        except RuntimeError:
            if not expected_to_differ(script, name):
                raise
            return
        rows = (result[None] if result.ndim < wanted.ndim else result)[: len(wanted)]
        if rows.ravel()[: wanted.size].tobytes() == wanted.tobytes():
            equal.append(name)
        elif not expected_to_differ(script, name):
            wrong.append(name)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.run("cpu", record)
    assert wrong == []
    assert len(equal) >= count
