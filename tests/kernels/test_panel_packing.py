"""Packing of codes of a byte or two: where they are adjacent, many at once, and eight at a time in any other place, with the same bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.cases import cases

import fastmma
from fastmma.backends.parameters import element_specs, fused_parameters
from fastmma.backends.resolve import operation_of
from fastmma.kernels.fused.batch import block_config
from fastmma.kernels.fused.blocks import ROWS
from fastmma.kernels.tiles import FUSED, fit

E4M3, E5M2, E2M3 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float6_e2m3fn
AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "f16c"})


def draw(rng: np.random.Generator, dtype: Any, shape: tuple[int, int]) -> Any:
    """Codes of all values, few of which are infinite or no numbers."""
    codes = rng.integers(0, 1 << (6 if dtype is E2M3 else 8), shape, dtype=np.uint8)
    finite = np.isfinite(codes.view(dtype).astype(np.float32)) | (rng.random(shape) < 0.002)
    return np.where(finite, codes, 0).astype(np.uint8).view(dtype)


@cases(("dtype", "target"), [(E4M3, "sm_90a"), (E5M2, "sm_90a"), (E4M3, "sm_120a"), (E2M3, "sm_120a"), (E5M2, "sm_89")])
@pytest.mark.parametrize("shape", [(33, 130, 300), (130, 64, 1100)])
def test_adjacent_codes_have_the_bits_of_others(dtype: Any, target: str, shape: tuple[int, int, int]) -> None:
    (m, n, k), rng = shape, np.random.default_rng(shape)
    a, b = draw(rng, dtype, (m, k)), draw(rng, dtype, (k, n))
    adjacent = fastmma.gemm(a, b, target=target, threads=1)
    apart = fastmma.gemm(np.asfortranarray(a), np.asfortranarray(b), target=target, threads=1)
    np.testing.assert_array_equal(adjacent.view(np.uint32), apart.view(np.uint32))


def draw_words(rng: np.random.Generator, dtype: Any, shape: tuple[int, int]) -> Any:
    """Codes of 16 bits around 1, of zeros and subnormals, and few that are infinite or no numbers."""
    codes = rng.standard_normal(shape).astype(dtype).view(np.uint16)
    codes = np.where(rng.random(shape) < 0.1, rng.integers(0, 4, shape) | rng.integers(0, 2, shape) << 15, codes)
    return np.where(rng.random(shape) < 0.0005, rng.choice([0x7F80, 0x7FFF, 0xFC00], shape), codes).astype(np.uint16).view(dtype)


@cases(("dtype", "target"), [(ml_dtypes.bfloat16, "sm_90a"), (np.float16, "sm_90a"), (np.float16, "sm_70"), (ml_dtypes.bfloat16, "sm_80")])
@pytest.mark.parametrize("shape", [(133, 150, 300), (256, 192, 528), (130, 64, 1100)])
@pytest.mark.parametrize("threads", [1, 3])
def test_adjacent_words_have_the_bits_of_others(dtype: Any, target: str, shape: tuple[int, int, int], threads: int) -> None:
    (m, n, k), rng = shape, np.random.default_rng(shape)
    a, b = draw_words(rng, dtype, (m, k)), draw_words(rng, dtype, (k, n))
    apart_a, apart_b = np.repeat(a, 2, 1)[:, ::2], np.repeat(b, 2, 1)[:, ::2]
    apart = fastmma.gemm(apart_a, apart_b, target=target, threads=1)
    for left, right in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        found = fastmma.gemm(left, right, target=target, threads=threads)
        np.testing.assert_array_equal(found.view(np.uint32), apart.view(np.uint32))


@cases("opcode", ["mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "mma.sync.aligned.m16n8k16.row.col.f32.e5m2.e5m2.f32"])
def test_every_value_of_a_pair_of_rows_has_a_place(opcode: str) -> None:
    operation = operation_of(opcode, "sm_89")
    depth = operation.instruction.k
    config = block_config(fused_parameters(operation), element_specs(operation), depth, True, fit(FUSED, AVX512))
    assert config is not None
    assert config.paired
    count = ROWS * config.unit
    assert sorted(map(config.place, range(count))) == list(range(count))
    for row in range(0, ROWS, 2):
        for k in range(config.unit):
            assert config.place((row + 1) * config.unit + k) == config.place(row * config.unit + k) + 1
