"""matmul has NumPy's shapes; operands choose the instruction, and are cast where that is asked for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference.methods import F16_F32, MMA, WGMMA
from reference.products import bits, elements

import fastmma
from fastmma import InstructionError, OperandError, OperandTypeError, gemm, instruction, matmul
from fastmma.isa.formats import format_of
from fastmma.products.choice import default_instruction


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("opcode", [F16_F32, WGMMA + "m64n8k32.f32.e4m3.e5m2", MMA + "m16n8k8.row.col.f32.tf32.tf32.f32"])
def test_cast_rounds_to_nearest_even(opcode: str, dtype: Any) -> None:
    ins = instruction(opcode)
    generator = np.random.default_rng(7)
    a, b, c = (generator.standard_normal(shape).astype(dtype) for shape in ((7, 40), (40, 5), (7, 5)))
    rounded = [elements(fastmma.encode(x, fmt), fmt) for x, fmt in ((a, ins.atype), (b, ins.btype), (c, ins.ctype))]
    expected = gemm(*rounded, instruction=ins)
    np.testing.assert_array_equal(bits(gemm(a, b, c, instruction=ins, cast=True)), bits(expected))
    big_endian = [x.astype(x.dtype.newbyteorder(">")) for x in (a, b, c)]
    np.testing.assert_array_equal(bits(gemm(*big_endian, instruction=ins, cast=True)), bits(expected))


@pytest.mark.parametrize(
    ("dtype", "target", "opcode"),
    [
        (np.float16, "sm_70", MMA + "m8n8k4.row.col.f32.f16.f16.f32"),
        (np.float16, "sm_75", MMA + "m16n8k8.row.col.f32.f16.f16.f32"),
        (np.float16, "sm_80", F16_F32),
        (np.float16, "sm_90a", WGMMA + "m64n256k16.f32.f16.f16"),
        (np.float16, "sm_90", F16_F32),
        (ml_dtypes.bfloat16, "sm_120a", MMA + "m16n8k16.row.col.f32.bf16.bf16.f32"),
        (ml_dtypes.float8_e4m3fn, "sm_89", MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32"),
        (ml_dtypes.float8_e5m2, "sm_90a", WGMMA + "m64n256k32.f32.e5m2.e5m2"),
        (ml_dtypes.float4_e2m1fn, "sm_120a", MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"),
        (np.float64, "sm_90a", MMA + "m16n8k16.row.col.f64.f64.f64.f64"),
        (np.float64, "sm_80", MMA + "m8n8k4.row.col.f64.f64.f64.f64"),
        (np.int8, "sm_90a", WGMMA + "m64n256k32.s32.s8.s8"),
        (np.uint8, "sm_80", MMA + "m16n8k32.row.col.s32.u8.u8.s32"),
        (ml_dtypes.int4, "sm_80", MMA + "m16n8k64.row.col.s32.s4.s4.s32"),
    ],
)
def test_default_instruction(dtype: Any, target: str, opcode: str) -> None:
    x = np.ones((3, 3)).astype(dtype)
    assert default_instruction(*[format_of(dtype).name] * 2, None, target).opcode == opcode
    np.testing.assert_array_equal(bits(gemm(x, x, target=target)), bits(gemm(x, x, instruction=opcode, target=target)))


def test_the_accumulator_chooses_the_instruction() -> None:
    x = np.ones((4, 4), np.float16)
    assert gemm(x, x).dtype == np.float32
    assert gemm(x, x, np.zeros((4, 4), np.float16)).dtype == np.float16
    assert gemm(x, x, out=np.zeros((4, 4), np.float16)).dtype == np.float16
    with pytest.raises(InstructionError, match="no instruction for f16 times f16 with a f64 accumulator"):
        gemm(x, x, np.zeros((4, 4), np.float64))
    with pytest.raises(InstructionError, match="sm_80 has no instruction for e4m3 times e4m3"):
        gemm(x.astype(ml_dtypes.float8_e4m3fn), x.astype(ml_dtypes.float8_e4m3fn), target="sm_80")


def test_types_that_differ_cannot_be_fed_back() -> None:
    with pytest.raises(InstructionError, match="cannot be fed back"):
        gemm(np.ones((8, 4), np.float16), np.ones((4, 8), np.float16), instruction=MMA + "m8n8k4.row.col.f32.f16.f16.f16", target="sm_70")


SHAPE_PAIRS = [
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((5, 1, 2, 3), (3,)),
    ((3,), (5, 1, 3, 4)),
    ((0, 2, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((0,), (0,)),
    ((5, 2, 0), (5, 0, 4)),
    ((1, 2, 3), (7, 3, 1)),
]


@pytest.mark.parametrize(("left", "right"), SHAPE_PAIRS)
def test_matmul_has_numpys_shapes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    generator = np.random.default_rng(8)
    a, b = (generator.integers(-8, 9, shape).astype(np.float16) for shape in (left, right))
    expected = np.asarray(np.matmul(a.astype(np.float32), b.astype(np.float32)))  # exact: small integers
    result = matmul(a, b)
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float32
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result, expected)
    out = np.empty(expected.shape, np.float32)
    assert matmul(a, b, out=out) is out
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("left", "right"), [((), (3,)), ((3,), ()), ((3,), (4,)), ((2, 3), (2, 3)), ((5, 2, 3), (4, 3, 2)), ((2, 3), (4, 2))]
)
def test_matmul_refuses_what_numpy_does(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = np.ones(left, np.float16), np.ones(right, np.float16)
    with pytest.raises(ValueError, match=r"matmul|broadcast"):
        np.matmul(a, b)
    with pytest.raises(OperandError, match="matmul"):
        matmul(a, b)


def test_the_third_argument_needs_a_name() -> None:
    """That of `numpy.matmul` is `out`, and that of `gemm` is `c`: neither is guessed, and nothing is written."""
    a, buffer = np.ones((4, 4), np.float16), np.full((4, 4), 7, np.float32)
    with pytest.raises(OperandTypeError, match=r"^matmul takes 2 arguments by position \(a, b\), not 3; write out=.*, c="):
        matmul(a, a, buffer)  # type: ignore[misc]
    assert (buffer == 7).all()
    np.testing.assert_array_equal(matmul(a, a, c=buffer), np.full((4, 4), 11))
    assert matmul(a, a, out=buffer) is buffer
    np.testing.assert_array_equal(buffer, np.full((4, 4), 4))


def test_matmul_is_gemm() -> None:
    generator = np.random.default_rng(9)
    a, b = (generator.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((3, 20, 100), (3, 100, 7)))
    for options in ({}, {"promote_every": 32}, {"split_k": 2}, {"target": "sm_89"}):
        expected = np.stack([gemm(x, y, **options) for x, y in zip(a, b, strict=True)])
        np.testing.assert_array_equal(bits(matmul(a, b, **options)), bits(expected))
