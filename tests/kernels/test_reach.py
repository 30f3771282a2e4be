"""What fast kernels are exact for: parameters, exponents, and the shapes that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from drivers.kernel_cases import computed
from drivers.kernels import KERNELS
from drivers.operations import operands

from fastmma import instruction
from fastmma.backends.call import Operands, Operation
from fastmma.backends.parameters import element_specs, fused_parameters, scaled_parameters
from fastmma.backends.problem import problem_of
from fastmma.backends.resolve import operation_of
from fastmma.backends.route import choose
from fastmma.kernels.fused import batch, packed
from fastmma.kernels.fused.magnitudes import spread_of_matrix
from fastmma.kernels.llvm import cpu
from fastmma.kernels.matrices.addresses import matrix
from fastmma.kernels.scaled.group_tiles import group_tiles
from fastmma.kernels.scaled.tiles import scaled_tiles

ABLE = {"avx2", "fma", "f16c"} <= cpu.features() or "neon" in cpu.features()
MMA, WGMMA = "mma.sync.aligned.", "wgmma.mma_async.sync.aligned."
F16 = operation_of(WGMMA + "m64n8k16.f32.f16.f16", "sm_90a")
BF16 = operation_of(WGMMA + "m64n8k16.f32.bf16.bf16", "sm_90a")
TF32 = operation_of(MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80")
E4M3 = operation_of(WGMMA + "m64n8k32.f32.e4m3.e4m3", "sm_90a")
LOWERED = operation_of(MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90a")
SCALED = MMA + "m16n8k{}.row.col.kind::{}.block_scale.scale_vec::{}.f32.{}.f32.{}"


@pytest.mark.parametrize("operation", [BF16, TF32], ids=["bf16", "tf32"])
def test_exponents_as_far_apart_as_sums_of_bytes_allow(operation: Operation) -> None:
    p, rng = fused_parameters(operation), np.random.default_rng(9)
    (panels,) = (kernel for kernel in KERNELS if kernel.name == "panels")
    depth, width, sign = 4 * p.terms, 23 - p.a.mantissa_bits, 1 << 31
    for highest, added in ((33, True), (34, False)):
        spreads = (-30, highest), (-31, 33)
        found = [packed.Spread(*each) for each in spreads]
        assert packed.exponent_bytes(p, *found).added == added
        codes = []
        for (low, high), shape in zip(spreads, ((8, depth), (depth, 8)), strict=True):
            field = 127 + rng.choice([low, low + 1, high], shape)
            mantissa = rng.integers(0, 1 << p.a.mantissa_bits, shape) << width
            bits = ((field << 23) + mantissa + rng.integers(0, 2, shape) * sign) * (rng.random(shape) < 0.4)
            codes.append((bits >> (16 if p.a.shift == 0 else 0)).astype(np.uint16 if p.a.shift == 0 else np.uint32))
        a, b = codes
        a[0, :], a[:, : p.terms] = 0, 0  # whole steps without products
        assert [spread_of_matrix(p.a, matrix(each), *each.shape, 2) for each in codes] == found
        lowest = 127 + spreads[0][0] + spreads[1][0]
        c = ((rng.integers(lowest - 8, lowest + 8, (8, 8)) << 23) + rng.integers(0, 1 << 23, (8, 8))).astype(np.uint32)
        given = {"a": a[None], "b": b[None], "c": c[None]}
        np.testing.assert_array_equal(computed(operation, panels, **given), computed(operation, None, **given))


def test_what_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    for operation in (F16, BF16, TF32, E4M3):
        p, specs = fused_parameters(operation), element_specs(operation)
        for change, held in (({}, True), ({"terms": 3}, False), ({"align_bits": 35}, False), ({"emax_floor": 61}, False)):
            changed = p._replace(**change)
            assert packed.supported(changed) == (held and ABLE)
            assert "emax_floor" in change or (batch.blocks(changed, specs, 16, 8, operation.instruction.k) is not None) == (held and ABLE)
        assert not packed.supported(p._replace(split=1))
    assert batch.blocks(fused_parameters(F16), element_specs(F16), 16, 8, 1 << 20) is None
    assert batch.blocks(fused_parameters(LOWERED), element_specs(LOWERED), 16, 8, 33) is None  # c joins after every 32 k
    monkeypatch.setenv("FASTMMA_PORTABLE", "1")
    assert not packed.supported(fused_parameters(F16))
    assert batch.blocks(fused_parameters(F16), element_specs(F16), 16, 8, 16) is None


def kernel(operation: Operation, a: Any, b: Any) -> str:
    """The kernel that multiplies these codes."""
    given = Operands(a[None], b[None], None)
    return choose(problem_of(operation, given, np.empty((1, len(a), b.shape[1]), np.uint32))).row.kernel


@pytest.mark.skipif(not ABLE, reason="needs a CPU that micro-kernels are emitted for")
def test_which_products_are_thin() -> None:
    large, bytes_ = np.zeros((1024, 1024), np.uint16), np.zeros((2048, 2048), np.uint8)
    spread = np.zeros((2048, 1024), large.dtype)[::2], np.zeros((1024, 2048), large.dtype)[:, ::2]
    few = (large[:1], large), (large[:8], large.T), (large, large[:, :3]), (large[:2], spread[0])
    others = (large[:9], large), (large[:2], large[:, ::-1]), (large[:2], spread[1]), (large[:2, :64], large[:64])
    assert [kernel(F16, a, b) for a, b in few] == ["fused/thin.py"] * 4
    assert "fused/thin.py" not in [kernel(F16, a, b) for a, b in others]
    assert kernel(E4M3, bytes_[:2], bytes_) == "fused/thin.py"
    assert kernel(E4M3, bytes_[:9], bytes_) != "fused/thin.py"
    assert kernel(E4M3, bytes_[:2, :1024], bytes_[:1024, :1024]) != "fused/thin.py"


@pytest.mark.parametrize(
    ("form", "tiles"),
    [((64, "mxf4nvf4", "4X", "e2m1.e2m1", "ue4m3"), group_tiles), ((32, "mxf8f6f4", "1X", "e4m3.e5m2", "ue8m0"), scaled_tiles)],
)
def test_what_is_out_of_reach_of_scaled_tiles(form: tuple[Any, ...], tiles: Callable[..., Any]) -> None:
    """Tiles of ordinary numbers are not; a special c, or a scale that is NaN, costs its own tile."""
    operation = operation_of(instruction(SCALED.format(*form)), "sm_120a")
    p, rng = scaled_parameters(operation), np.random.default_rng(5)
    fast = tiles(p, 16, 8, p.step)
    assert (fast is not None) == ABLE
    if fast is None:
        return
    given = operands(rng, operation.instruction, 16, 8, p.step, 9)
    a, b, c, scale_a, scale_b = (given[name] for name in ("a", "b", "c", "scale_a", "scale_b"))
    near = 0x38 if p.scale.mantissa_bits else 127
    a[...], b[...] = (rng.integers(1, 1 << 4 if p.a.width < 7 else 0x78, each.shape) for each in (a, b))
    c[...], scale_a[...], scale_b[...] = 0x3F800000, near, near
    c[3, 2, 1] = 0x80000000
    assert not fast.run(a, b, c, np.empty_like(c), scale_a, scale_b, 1).any()
    c[2, 15, 7] = 0x7F800000
    scale_a[5, 3, 0] = scale_b[7, -1, 2] = 0x7F if p.scale.mantissa_bits else 0xFF
    assert np.flatnonzero(fast.run(a, b, c, np.empty_like(c), scale_a, scale_b, 1)).tolist() == [2, 5, 7]
