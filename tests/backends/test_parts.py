"""Large products are computed in parts: these cover everything once, and the bits are those of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference.products import random_codes

import fastmma
from fastmma.backends import fused, parts
from fastmma.backends.call import Operands
from fastmma.isa.codes import from_codes, to_codes
from fastmma.isa.formats import FORMATS
from fastmma.isa.sparsity import pattern_of
from fastmma.kernels.fma import f64, m8n8k4
from fastmma.kernels.fused import portable
from fastmma.kernels.integer import words

MMA = "mma.sync.aligned."
OPCODES = (
    (MMA + "m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    (MMA + "m16n8k8.row.col.f16.f16.f16.f16", "sm_75"),
    (MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90a"),
    ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2", "sm_90a"),
    (MMA + "m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90a"),
    ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_80"),
    (MMA + "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "sm_120a"),
    (MMA + "m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0", "sm_120a"),
    (MMA + "m8n8k4.row.col.f64.f64.f64.f64", "sm_80"),
    (MMA + "m8n8k4.row.col.f64.f64.f64.f64.rm", "sm_80"),
    (MMA + "m8n8k4.row.col.f32.f16.f16.f32", "sm_80"),
    (MMA + "m8n8k4.row.col.f16.f16.f16.f16", "sm_80"),
    (MMA + "m16n8k32.row.col.s32.s8.u8.s32", "sm_80"),
    (MMA + "m16n8k32.row.col.satfinite.s32.s8.u8.s32", "sm_80"),
    (MMA + "m8n8k128.row.col.s32.b1.b1.s32.xor.popc", "sm_80"),
)


@pytest.mark.parametrize("depth", [0, 1, 7, 64, 65, 300])
@pytest.mark.parametrize("codes", [1, 100, 5000, 1 << 24])
def test_parts_cover_everything_once(codes: int, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "DEPTH", 64)
    monkeypatch.setattr(parts, "_CODES", codes)
    monkeypatch.setattr(parts, "_ELEMENTS", 1)
    for shape in ((1, 1, 1), (3, 5, 7), (1, 40, 90), (20, 2, 2), (2, 0, 3), (0, 4, 4)):
        d = np.zeros((*shape, max(depth, 1)), np.int8)
        before = np.zeros(shape, np.int64)
        operands = Operands(np.empty((shape[0], shape[1], depth)), np.empty((shape[0], depth, shape[2])), None)
        for part in parts.parts(operands, d[..., 0], 16):
            assert part.start % 16 == 0
            assert part.stop - part.start <= 64
            assert (before[part.results] == part.start).all()  # in ascending order
            before[part.results] = part.stop
            d[part.results][..., part.start : part.stop] += 1
        assert (d[..., :depth] == 1).all()


def shrink(monkeypatch: pytest.MonkeyPatch, depth: int) -> None:
    """Parts and pieces as small as they come."""
    for module, name, value in (
        (parts, "DEPTH", depth),
        (fused, "DEPTH", depth),
        (parts, "_CODES", 1500),
        (parts, "_ELEMENTS", 1),
        (f64, "STEPS", 1),
        (m8n8k4, "STEPS", 1),
        (f64, "_DIRECTED_STEPS", 1),
        (portable, "STEPS", 1),
        (words, "_PACKED_WORDS", 1),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.each_path
@pytest.mark.parametrize("distribution", ["finite", "bits", "cancel"])
@pytest.mark.parametrize(("opcode", "target"), OPCODES)
def test_bits_are_those_of_the_whole(opcode: str, target: str, distribution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ins = fastmma.instruction(opcode)
    rows, columns, depth = 41, 51, 5 * ins.k + (0 if ins.sparse else ins.k // 2)
    numbers = np.random.default_rng(3)

    def operand(fmt: str, *shape: int) -> Any:
        return from_codes(random_codes(numbers, fmt, shape, distribution), FORMATS[fmt])

    a, b = operand(ins.atype, rows, depth * ins.stored_k // ins.k), operand(ins.btype, depth, columns)
    c = operand(ins.ctype, rows, columns)
    extra: dict[str, Any] = {}
    if ins.sparse:
        pattern = pattern_of(ins)
        extra["metadata"] = numbers.choice([word for word, _ in pattern.words], (rows, depth // pattern.chunk))
    if ins.scale_vec_size:
        blocks = -(-depth * ins.scale_vec_size // ins.k)
        for name, shape in (("scale_a", (rows, blocks)), ("scale_b", (blocks, columns))):
            extra[name] = numbers.choice([0.5, 1.0, 2.0, 4.0], shape).astype(FORMATS[ins.stype].dtype)

    def product(threads: int, **more: Any) -> Any:
        return to_codes(fastmma.gemm(a, b, c, instruction=ins, target=target, threads=threads, **extra, **more), FORMATS[ins.dtype])

    promoted = {"promote_every": 2 * ins.k} if ins.dtype == "f32" and not ins.sparse else {}
    expected, chunked = product(1), product(1, **promoted)
    shrink(monkeypatch, 2 * ins.k)
    for threads in (1, 3):
        np.testing.assert_array_equal(product(threads), expected)
        np.testing.assert_array_equal(product(threads, **promoted), chunked)
        out = c.copy()
        fastmma.gemm(a, b, out, instruction=ins, target=target, threads=threads, out=out, **extra)  # C is D
        np.testing.assert_array_equal(to_codes(out, FORMATS[ins.dtype]), expected)
