"""The special function unit by products of bytes and words, in 16 lanes, beside the code of CPUs that have none."""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import numpy as np
import pytest
from reference.cases import cases

from fastmma.functions import libdevice
from fastmma.kernels.functions import nvvm, unit, unit_lanes
from fastmma.kernels.functions.machine_code import Form, source
from fastmma.kernels.functions.pointwise import FORMULAS
from fastmma.kernels.llvm.disk_cache import KernelFiles
from fastmma.kernels.llvm.object_code import link_text

UNIT = ("ex2", "lg2", "rcp", "rsqrt", "sqrt")
LOOP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 5)


def results(name: str, x: Any, lanes: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Results of a loop that is compiled with or without them."""
    with monkeypatch.context() as patch:
        patch.setattr(unit, "has_lanes", lambda: lanes)
        unit.special_functions.cache_clear()
        nvvm.definitions.cache_clear()
        text = source(FORMULAS[name], Form(("f32",), ("f32",), (True,)))
    unit.special_functions.cache_clear()
    nvvm.definitions.cache_clear()
    (address,) = link_text(KernelFiles(results), (name, lanes, zlib.crc32(text.encode())), lambda: text, ("loop",))
    out = np.empty_like(x)
    LOOP(address)(x.ctypes.data, x.size, out.ctypes.data, x.size, 0, 1, 0, x.size)
    return out.view(np.uint32)


@pytest.mark.skipif(not unit_lanes.has_lanes(), reason="this CPU has no such instructions")
@cases("name", UNIT)
def test_lanes_have_the_bits_of_single_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    formula = f"{name}.approx.ftz.f32"
    every_fraction = np.arange(0x3F800000, 0x40800000, dtype=np.uint32)
    others = np.arange(0, 1 << 32, 4091, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([every_fraction, others]).view(np.float32)
    np.testing.assert_array_equal(results(formula, x, True, monkeypatch), results(formula, x, False, monkeypatch))


@pytest.mark.skipif(not unit_lanes.has_lanes() or libdevice.release() is None, reason="no such instructions, or no libdevice that is known")
def test_exponentials_in_fewer_steps_have_the_bits_of_libdevice(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = np.float32([-104, -103, -88, -87.33655, -87.33654, -1e-7, 1e-7, 87.33654, 87.33655, 88.72283, 88.72284, 128, 176, -0.6931472])
    around = (edges.view(np.int32)[:, None] + np.arange(-5000, 5000)).astype(np.uint32).ravel()
    others = np.arange(0, 1 << 32, 2039, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([around, others, np.uint32([0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0x80000000])]).view(np.float32)
    np.testing.assert_array_equal(results("expf", x, True, monkeypatch), results("expf", x, False, monkeypatch))
