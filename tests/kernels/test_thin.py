"""The kernel for few rows, which reads B where it is, against the exact reference and the portable path."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.fused import reference
from test_fused_x86 import SETTINGS, accumulator, code_dtype, operand, portably, result_dtype

import fastmma
from fastmma.backends import fused
from fastmma.kernels.fused import portable, thin, x86
from fastmma.kernels.params import Fused
from fastmma.kernels.tiles import THIN, first_fit

Codes = NDArray[Any]
pytestmark = pytest.mark.skipif(first_fit(THIN) is None, reason="no register tile for this CPU")
KINDS = ("near", "any", "zeros", "small", "large", "cancelling")
NAMES = list(SETTINGS)


def product(p: Fused, a: Codes, b: Codes, c: Codes | None, threads: int = 1) -> tuple[Codes, int]:
    """What the kernel makes, and how many results it left to the portable path."""
    out, redone = np.full((len(a), b.shape[1]), 0xABCD, result_dtype(p)), 0

    def again(rows: Any, columns: Any, results: Codes) -> None:
        nonlocal redone
        redone += results.size
        portable.gemm(p, a[rows], b[:, columns], None if c is None else c[rows][:, columns], results, 1)

    thin.multiply(p, a, b, c, out, threads).redo(out, again)
    return out, redone


def laid_out(b: Codes, along: bool) -> Codes:
    """B with adjacent k, or adjacent columns, and more of both beyond its end."""
    wide = np.full((b.shape[0] + 3, b.shape[1] + 5), np.iinfo(b.dtype).max, b.dtype, "F" if along else "C")
    wide[:-3, :-5] = b
    return wide[:-3, :-5]


@pytest.mark.parametrize("name", NAMES)
def test_against_the_reference(name: str) -> None:
    p, number = SETTINGS[name], NAMES.index(name)
    rng = np.random.default_rng(number)
    for kind in KINDS:
        a, b = operand(rng, p.a, (3, 53), kind), operand(rng, p.b, (53, 19), kind)
        if kind == "cancelling":
            b[1::2] = b[:-1:2]
            a[:, 1::2] = a[:, :-1:2] ^ np.array(1 << (p.a.exponent_bits + p.a.mantissa_bits + p.a.shift), a.dtype)
        for start in ("none", "any"):
            c = accumulator(rng, p, (3, 19), start)
            np.testing.assert_array_equal(product(p, a, laid_out(b, number % 2 == 1), c)[0], reference(p, a, b, c), (name, kind, start))


@pytest.mark.parametrize("name", NAMES)
def test_against_the_portable_path(name: str) -> None:
    p, number = SETTINGS[name], NAMES.index(name)
    rng = np.random.default_rng(100 + number)
    for rows, columns, depth in ((4, 131, 67), (3, 64, 64), (4, 5, 300), (4, 600, 1)):
        for kind in KINDS:
            a, b = operand(rng, p.a, (rows, depth), kind), operand(rng, p.b, (depth, columns), kind)
            c = accumulator(rng, p, (rows, columns), "near")
            np.testing.assert_array_equal(product(p, a, laid_out(b, number % 2 == 1), c, 2)[0], portably(p, a, b, c), (name, kind))


@pytest.mark.parametrize("along", [False, True])
def test_rows_layouts_and_specials(along: bool) -> None:
    p, rng = SETTINGS["f16 sm_90"], np.random.default_rng(3)
    for rows in (1, 2, 5, 8, 17):
        a, b = operand(rng, p.a, (rows, 100), "near"), operand(rng, p.b, (100, 150), "near")
        c = accumulator(rng, p, (rows, 150), "near")
        out, redone = product(p, a, laid_out(b, along), c)
        np.testing.assert_array_equal(out, portably(p, a, b, c))
        assert redone == 0
        a[0, 3], b[7, 149], b[99, 20], b[8, 20] = 0x7C00, 0x7E01, 0xFC00, 0
        b.flags.writeable = False
        out, redone = product(p, a[:, ::-1], laid_out(b[::-1], along), c)
        np.testing.assert_array_equal(out, portably(p, a[:, ::-1], b[::-1], c))
        assert redone == 150 + 2 * rows


@pytest.mark.parametrize("name", ["bf16 sm_90", "tf32 sm_80"])
def test_sums_out_of_reach(name: str) -> None:
    """Products below the smallest f32, and sums above the largest, go another way; steps of zeros do not."""
    p, rng = SETTINGS[name], np.random.default_rng(4)
    for power, expected in ((-66, True), (-50, False), (61, True), (40, False)):
        a, b = (operand(rng, element, shape, "small") for element, shape in ((p.a, (2, 48)), (p.b, (48, 80))))
        for element, codes in ((p.a, a), (p.b, b)):
            codes += np.array((element.bias + power) << element.mantissa_bits + element.shift, codes.dtype)
        b[16:32] = 0
        out, redone = product(p, a, b, None)
        np.testing.assert_array_equal(out, portably(p, a, b, None))
        assert (redone > 0) == expected


@pytest.mark.parametrize("along", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_nothing_beside_b_is_read(along: bool, before: bool) -> None:
    """B at one end of its pages, the next one of which nobody may touch."""
    library = ctypes.CDLL(None)
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    page, rng = mmap.PAGESIZE, np.random.default_rng(5)
    for name in ("f16 sm_90", "e4m3 wgmma", "tf32 sm_80"):
        p = SETTINGS[name]
        for depth, columns in ((1, 1), (37, 67), (64, 128), (33, 64)):
            codes = operand(rng, p.b, (columns, depth) if along else (depth, columns), "near")
            pages = -(-codes.nbytes // page)
            memory = mmap.mmap(-1, (pages + 2) * page)
            whole = np.frombuffer(memory, np.uint8)
            start = page if before else (pages + 1) * page - codes.nbytes
            guarded = whole[start : start + codes.nbytes].view(codes.dtype).reshape(codes.shape)
            guarded[...] = codes
            for guard in (0, pages + 1):
                assert library.mprotect(whole.ctypes.data + guard * page, page, mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0) == 0
            a = operand(rng, p.a, (3, depth), "near")
            b = guarded.T if along else guarded
            np.testing.assert_array_equal(product(p, a, b, None)[0], portably(p, a, codes.T if along else codes, None))


def test_which_products_are_thin() -> None:
    p, narrow = SETTINGS["f16 sm_90"], SETTINGS["e4m3 wgmma"]
    large = np.zeros((1024, 1024), code_dtype(p.b))
    assert x86.is_thin(p, large[:1], large)
    assert x86.is_thin(p, large[:8], large.T)
    assert x86.is_thin(p, large, large[:, :3])
    assert x86.is_thin(p, large[:2], np.zeros((2048, 1024), large.dtype)[::2])
    assert not x86.is_thin(p, large[:9], large)
    assert not x86.is_thin(p, large[:2], large[:, ::-1])
    assert not x86.is_thin(p, large[:2], np.zeros((1024, 2048), large.dtype)[:, ::2])
    assert not x86.is_thin(p, large[:2, :64], large[:64])
    bytes_ = np.zeros((2048, 2048), np.uint8)
    assert x86.is_thin(narrow, bytes_[:2], bytes_)
    assert not x86.is_thin(narrow, bytes_[:9], bytes_)
    assert not x86.is_thin(narrow, bytes_[:2, :1024], bytes_[:1024, :1024])


@pytest.mark.parametrize(
    "opcode", ["wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2"]
)
def test_gemm_takes_it(opcode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turned or not, in one part of k or several, a batch too: the bits of the portable kernels."""
    monkeypatch.setattr(thin, "_LEAST", {1: 1, 2: 1})
    monkeypatch.setattr(fused, "_THIN", 1)
    ins, rng = fastmma.instruction(opcode), np.random.default_rng(6)
    a, b = (rng.standard_normal(shape, np.float32).astype(ins.formats.a.dtype) for shape in ((3, 700), (700, 300)))
    b = b.astype(ins.formats.b.dtype)
    c = rng.standard_normal((3, 300), np.float32).astype(ins.formats.c.dtype)
    expected = fastmma.gemm(a, b, c, instruction=ins, target="sm_90a", backend="reference")
    for right in (b, np.asfortranarray(b)):
        found = fastmma.gemm(a, right, c, instruction=ins, target="sm_90a")
        assert found.tobytes() == expected.tobytes()
    many = fastmma.matmul(np.stack([a, a]), np.stack([b, b]), instruction=ins, target="sm_90a")
    assert many[0].tobytes() == many[1].tobytes() == fastmma.gemm(a, b, instruction=ins, target="sm_90a").tobytes()
