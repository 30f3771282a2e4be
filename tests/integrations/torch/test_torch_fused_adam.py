"""Fused Adam, whose gradients all but cancel what decays, so that results tell which products the compiler fused: bits of an H200."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from reference.cases import cases  # noqa: E402
from reference.torch_functions import bits  # noqa: E402

import fastmma.torch as ft  # noqa: E402
from fastmma.functions import libdevice  # noqa: E402

pytestmark = pytest.mark.skipif(libdevice.release() is None, reason="no libdevice whose release is known")
PATH = Path(__file__).parent / "h200_fused_adam.json"  # CRC-32 of weights and state after each of two steps, PyTorch 2.11
SEED = 52203  # of which nothing was known before the rule was
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
OPTIONS: list[dict[str, Any]] = [
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "maximize": True},
    {"weight_decay": 0.05, "amsgrad": True},
    {"weight_decay": 0.1, "amsgrad": True, "maximize": True},
    {"amsgrad": True},
    {"weight_decay": 0.3, "decoupled_weight_decay": True},
]
RECORDED: dict[str, list[int]] = json.loads(PATH.read_text())


@cases("name", list(RECORDED))
def test_a_step_has_an_h200s_bits(name: str) -> None:
    fmt, option, size = name.split()
    options = OPTIONS[int(option)]
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(repr(("adam", SEED, fmt, int(option), int(size))).encode())))
    drawn = [torch.from_numpy(rng.standard_normal(int(size), np.float32)).to(DTYPES[fmt]) for _ in range(2)]
    sign = 1.0 if options.get("maximize") else -1.0
    gradients = (drawn[0].float() * np.float32(sign * options.get("weight_decay", 0.1))).to(DTYPES[fmt]), drawn[1]
    weight, found = torch.nn.Parameter(drawn[0].clone()), []
    with ft.emulate("H200") as gpu:
        optimizer = torch.optim.Adam([weight], lr=0.01, fused=True, **options)
        for gradient in gradients:
            weight.grad = gradient.clone()
            optimizer.step()
            state = (value for key, value in optimizer.state[weight].items() if key != "step")
            found += [zlib.crc32(bits(each.detach()).tobytes()) for each in (weight, *state)]
    gpu.report.assert_all_emulated()
    assert found == RECORDED[name]
