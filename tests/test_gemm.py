"""gemm is, bit for bit, the instruction looped over k; whatever the shapes, strides, threads and accumulation plan."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from reference.products import bits, elements, looped, random_codes, special_codes

import fastmma
from fastmma import FORMATS, InstructionError, OperandError, gemm, instruction, matmul
from fastmma.gemm import default_instruction

MMA = "mma.sync.aligned."
WGMMA = "wgmma.mma_async.sync.aligned."
# every method of the numerics table: an opcode and a target
METHODS = [
    (MMA + "m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
    (MMA + "m8n8k4.row.col.f16.f16.f16.f16", "sm_70"),
    (MMA + "m16n8k8.row.col.f32.f16.f16.f32", "sm_75"),
    (MMA + "m16n8k8.row.col.f16.f16.f16.f16", "sm_75"),
    (MMA + "m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    (MMA + "m16n8k16.row.col.f16.f16.f16.f16", "sm_86"),
    (MMA + "m16n8k16.row.col.f32.bf16.bf16.f32", "sm_87"),
    (MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", "sm_89"),
    (MMA + "m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89"),
    (MMA + "m16n8k16.row.col.f16.e5m2.e5m2.f16", "sm_89"),
    (MMA + "m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    (MMA + "m16n8k8.row.col.f32.f16.f16.f32", "sm_90a"),
    (MMA + "m16n8k16.row.col.f16.f16.f16.f16", "sm_90a"),
    (MMA + "m16n8k8.row.col.f32.bf16.bf16.f32", "sm_90a"),
    (MMA + "m16n8k4.row.col.f32.tf32.tf32.f32", "sm_90a"),
    (MMA + "m16n8k8.row.col.f32.tf32.tf32.f32", "sm_100a"),
    (MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90a"),
    (MMA + "m16n8k16.row.col.f16.e5m2.e4m3.f16", "sm_90a"),
    (MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e5m2.f32", "sm_100a"),
    (MMA + "m16n8k16.row.col.f32.bf16.bf16.f32", "sm_110a"),
    (MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", "sm_120a"),
    (MMA + "m16n8k32.row.col.kind::f8f6f4.f16.e2m3.e4m3.f16", "sm_121f"),
    (MMA + "m16n8k32.row.col.f32.e5m2.e5m2.f32", "sm_120"),
    (WGMMA + "m64n8k16.f32.f16.f16", "sm_90a"),
    (WGMMA + "m64n16k16.f16.f16.f16", "sm_90a"),
    (WGMMA + "m64n8k8.f32.tf32.tf32", "sm_90a"),
    (WGMMA + "m64n24k32.f32.e4m3.e4m3", "sm_90a"),
    (WGMMA + "m64n8k32.f16.e5m2.e4m3", "sm_90a"),
    (MMA + "m8n8k4.row.col.f32.f16.f16.f32", "sm_90a"),
    (MMA + "m8n8k4.col.row.f16.f16.f16.f16", "sm_80"),
    (MMA + "m8n8k4.row.col.f64.f64.f64.f64", "sm_80"),
    (MMA + "m16n8k8.row.col.f64.f64.f64.f64.rz", "sm_90a"),
    (MMA + "m16n8k16.row.col.f64.f64.f64.f64.rm", "sm_90a"),
    (MMA + "m16n8k4.row.col.f64.f64.f64.f64.rp", "sm_100"),
    (MMA + "m16n8k32.row.col.s32.s8.s8.s32", "sm_90a"),
    (MMA + "m8n8k16.row.col.satfinite.s32.u8.s8.s32", "sm_75"),
    (MMA + "m16n8k64.row.col.s32.s4.u4.s32", "sm_80"),
    (MMA + "m16n8k32.row.col.satfinite.s32.u4.u4.s32", "sm_90a"),
    (MMA + "m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "sm_80"),
    (MMA + "m8n8k128.row.col.s32.b1.b1.s32.and.popc", "sm_90a"),
    (WGMMA + "m64n8k32.s32.s8.u8", "sm_90a"),
    (WGMMA + "m64n8k32.satfinite.s32.u8.u8", "sm_90a"),
    (WGMMA + "m64n8k256.s32.b1.b1.and.popc", "sm_90a"),
]
DISTRIBUTIONS = ("bits", "special", "finite", "near", "tiny", "huge", "cancel")
SHAPES = [(1, 1, 1), (3, 2, 7), (17, 9, 33), (16, 8, 64), (65, 23, 97)]
F16_F32 = MMA + "m16n8k16.row.col.f32.f16.f16.f32"


def operands(opcode: str, shape: tuple[int, int, int], distribution: str, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    ins = instruction(opcode)
    m, n, k = shape
    generator = np.random.default_rng([seed, *shape, len(distribution)])
    return (
        random_codes(generator, ins.atype, (m, k), distribution),
        random_codes(generator, ins.btype, (k, n), distribution),
        random_codes(generator, ins.ctype, (m, n), distribution),
    )


def mixed(opcode: str, shape: tuple[int, int, int], *distributions: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Operands a, b and c of a distribution each."""
    ins = instruction(opcode)
    m, n, k = shape
    generator = np.random.default_rng([7, *shape])
    forms = ((ins.atype, (m, k)), (ins.btype, (k, n)), (ins.ctype, (m, n)))
    a, b, c = (random_codes(generator, fmt, size, name) for (fmt, size), name in zip(forms, distributions, strict=True))
    return a, b, c


def product(opcode: str, target: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, **options: Any) -> NDArray[Any]:
    """gemm on codes."""
    ins = instruction(opcode)
    start = None if c is None else elements(c, ins.ctype)
    return bits(gemm(elements(a, ins.atype), elements(b, ins.btype), start, instruction=ins, target=target, **options))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(("opcode", "target"), METHODS)
def test_gemm_is_the_instruction_looped_over_k(opcode: str, target: str, distribution: str) -> None:
    ins = instruction(opcode)
    for shape in SHAPES:
        a, b, c = operands(opcode, shape, distribution)
        np.testing.assert_array_equal(product(opcode, target, a, b, c), looped(ins, target, a, b, c))
    np.testing.assert_array_equal(product(opcode, target, a, b, None), looped(ins, target, a, b, None))


MIXTURES = [
    ("zero", "special", "zero"),
    ("special", "zero", "near"),
    ("zero", "huge", "special"),
    ("tiny", "huge", "near"),
    ("near", "tiny", "huge"),
    ("zero", "zero", "special"),
    ("tiny", "tiny", "zero"),
    ("finite", "near", "tiny"),
]


@pytest.mark.parametrize("distributions", MIXTURES, ids="-".join)
@pytest.mark.parametrize(("opcode", "target"), METHODS)
def test_operands_of_different_kinds(opcode: str, target: str, distributions: tuple[str, str, str]) -> None:
    ins = instruction(opcode)
    for shape in ((3, 2, 9), (33, 40, 70)):
        a, b, c = mixed(opcode, shape, *distributions)
        np.testing.assert_array_equal(product(opcode, target, a, b, c), looped(ins, target, a, b, c))
    a, b, c = mixed(opcode, (2, 2, min(ins.k + 1, 33)), *distributions)
    np.testing.assert_array_equal(product(opcode, target, a, b, c), product(opcode, target, a, b, c, backend="reference"))


@pytest.mark.parametrize(("opcode", "target"), METHODS)
def test_the_reference_agrees(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    for distribution in DISTRIBUTIONS:
        a, b, c = operands(opcode, (5, 3, min(2 * ins.k + 3, 70)), distribution, seed=1)
        expected = product(opcode, target, a, b, c, backend="reference")
        np.testing.assert_array_equal(product(opcode, target, a, b, c), expected, err_msg=distribution)


def test_a_sum_that_rounded_to_zero_from_below_does_not_raise_the_next_steps_exponent() -> None:
    opcode = MMA + "m16n8k16.row.col.f16.f16.f16.f16"
    a, b = np.zeros((3, 32), np.float16), np.zeros((32, 40), np.float16)
    a[:, 0], b[0] = -(2.0**-14), 2.0**-14
    a[:, 16], b[16] = 2.0**-12, 2.0**-13  # a tie in the second instruction ...
    a[:, 17], b[17] = 2.0**-23, 2.0**-23  # ... and what breaks it
    assert (gemm(a, b, instruction=opcode) == 2.0**-24).all()
    assert (bits(gemm(a[:, :16], b[:16], instruction=opcode)) == 0).all()


@pytest.mark.parametrize(("opcode", "target"), METHODS)
def test_empty_products(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    for m, n, k in ((0, 5, 7), (4, 0, 7), (0, 0, 0), (0, 3, 0)):
        a, b, c = operands(opcode, (m, n, k), "bits")
        assert product(opcode, target, a, b, c).shape == (m, n)
        assert product(opcode, target, a, b, None).shape == (m, n)
    a, b, c = operands(opcode, (4, 5, 0), "near")
    np.testing.assert_array_equal(product(opcode, target, a, b, c), c)
    assert not product(opcode, target, a, b, None).any()
    assert product(opcode, target, a, b, None).dtype == FORMATS[ins.dtype].code_dtype


MEDIUM = [METHODS[index] for index in (4, 9, 14, 16, 20, 23, 26, 28, 31, 34, 36, 38)]


@pytest.mark.parametrize(("opcode", "target"), MEDIUM)
def test_larger_matrices_and_threads(opcode: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several panels, blocks of k and tails, with one specimen of what the fast path cannot do by itself."""
    ins = instruction(opcode)
    for m, n, k in ((131, 150, 519), (300, 40, 1030)):
        a, b, c = operands(opcode, (m, n, k), "near", seed=2)
        a[m // 2, k // 3] = special_codes(ins.atype)[-1]
        b[k // 2, n // 2] = special_codes(ins.btype)[len(special_codes(ins.btype)) // 2]
        expected = looped(ins, target, a, b, c)
        for threads in (1, 2, 5):
            np.testing.assert_array_equal(product(opcode, target, a, b, c, threads=threads), expected)
        monkeypatch.setenv("FASTMMA_NUM_THREADS", "3")
        np.testing.assert_array_equal(product(opcode, target, a, b, c), expected)


@pytest.mark.parametrize(("opcode", "target"), MEDIUM)
def test_strides_and_byte_orders(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    codes = operands(opcode, (21, 14, 70), "finite", seed=3)
    a, b, c = (elements(x, fmt) for x, fmt in zip(codes, (ins.atype, ins.btype, ins.ctype), strict=True))
    expected = bits(gemm(a, b, c, instruction=ins, target=target))

    def spread(x: NDArray[Any]) -> NDArray[Any]:
        wide = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
        wide[::2, ::3] = x
        return wide[::2, ::3]

    def backward(x: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]

    def frozen(x: NDArray[Any]) -> NDArray[Any]:
        copy = x.copy()
        copy.flags.writeable = False
        return copy

    def swapped(x: NDArray[Any]) -> NDArray[Any]:
        return x.astype(x.dtype.newbyteorder(">")) if x.dtype.isbuiltin == 1 else x

    for change in (np.asfortranarray, spread, backward, frozen, swapped):
        inputs = [change(x) for x in (a, b, c)]
        before = [x.tobytes() for x in inputs]
        np.testing.assert_array_equal(bits(gemm(*inputs, instruction=ins, target=target)), expected)
        assert [x.tobytes() for x in inputs] == before
    np.testing.assert_array_equal(bits(gemm(a, b, np.broadcast_to(c[:1], c.shape), instruction=ins, target=target)[:1]), expected[:1])


@pytest.mark.parametrize(("opcode", "target"), MEDIUM)
def test_out(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    codes = operands(opcode, (19, 12, 45), "near", seed=4)
    a, b, c = (elements(x, fmt) for x, fmt in zip(codes, (ins.atype, ins.btype, ins.ctype), strict=True))
    expected = gemm(a, b, c, instruction=ins, target=target)
    for out in (np.empty_like(expected), np.asfortranarray(np.empty_like(expected)), np.zeros((38, 36), expected.dtype)[::2, ::-3]):
        assert gemm(a, b, c, instruction=ins, target=target, out=out) is out
        np.testing.assert_array_equal(bits(out), bits(expected))
    fed_back = c.copy()
    assert gemm(a, b, fed_back, instruction=ins, target=target, out=fed_back) is fed_back
    np.testing.assert_array_equal(bits(fed_back), bits(expected))
    shifted = np.zeros((20, 12), c.dtype)
    shifted[:-1] = c
    gemm(a, b, shifted[:-1], instruction=ins, target=target, out=shifted[1:])
    np.testing.assert_array_equal(bits(shifted[1:]), bits(expected))


def test_out_may_overlap_an_input() -> None:
    opcode = MMA + "m16n8k16.row.col.f16.f16.f16.f16"
    a, b, _ = (elements(x, "f16") for x in operands(opcode, (24, 24, 24), "near"))
    expected = gemm(a, b, instruction=opcode)
    memory = a.copy()
    np.testing.assert_array_equal(bits(gemm(memory, b, instruction=opcode, out=memory)), bits(expected))
    memory = b.copy()
    np.testing.assert_array_equal(bits(gemm(a, memory, instruction=opcode, out=memory.T)), bits(expected))
    square = a.copy()
    np.testing.assert_array_equal(
        bits(gemm(square, square, square, instruction=opcode, out=square)), bits(gemm(a, a, a, instruction=opcode))
    )


def ieee_sum(x: NDArray[Any], y: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Codes of the IEEE sums; a NaN is the canonical one."""
    with np.errstate(all="ignore"):
        total = elements(x, dtype) + elements(y, dtype)
    codes = bits(total)
    if FORMATS[dtype].kind == "float":
        codes[np.isnan(total)] = {"f16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}[dtype]
    return codes


PLANS = [METHODS[index] for index in (4, 11, 16, 26, 30, 34, 38)]


@pytest.mark.parametrize("with_c", [True, False])
@pytest.mark.parametrize(("opcode", "target"), PLANS)
def test_promotion(opcode: str, target: str, with_c: bool) -> None:
    """Partial sums from zero, each added by one IEEE add."""
    ins = instruction(opcode)
    for distribution in ("near", "special"):
        a, b, c = operands(opcode, (9, 11, 3 * ins.k + 5), distribution, seed=5)
        start = c if with_c else None
        for every in (ins.k, 2 * ins.k, 8 * ins.k):
            expected = start
            for k in range(0, a.shape[1], every):
                part = looped(ins, target, a[:, k : k + every], b[k : k + every], None)
                expected = part if expected is None else ieee_sum(expected, part, ins.dtype)
            np.testing.assert_array_equal(product(opcode, target, a, b, start, promote_every=every), expected)


@pytest.mark.parametrize("with_c", [True, False])
@pytest.mark.parametrize(("opcode", "target"), PLANS)
def test_split_k(opcode: str, target: str, with_c: bool) -> None:
    """Parts of K of equal length, the first from c, added in ascending order."""
    ins = instruction(opcode)
    for distribution, parts in (("near", 2), ("special", 3), ("near", 50)):
        a, b, c = operands(opcode, (9, 11, 5 * ins.k + 3), distribution, seed=6)
        start = c if with_c else None
        length = -(-a.shape[1] // (parts * ins.k)) * ins.k
        expected = None
        for k in range(0, a.shape[1], length):
            part = looped(ins, target, a[:, k : k + length], b[k : k + length], start if k == 0 else None)
            expected = part if expected is None else ieee_sum(expected, part, ins.dtype)
        np.testing.assert_array_equal(product(opcode, target, a, b, start, split_k=parts), expected)


@pytest.mark.parametrize(("opcode", "target"), PLANS)
def test_plans_of_nothing(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    a, b, c = operands(opcode, (4, 5, 0), "near")
    for options in ({"split_k": 3}, {"promote_every": ins.k}, {"split_k": 2, "promote_every": 2 * ins.k}):
        np.testing.assert_array_equal(product(opcode, target, a, b, c, **options), c)
        assert not product(opcode, target, a, b, None, **options).any()


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


def test_tf32_ignores_low_bits_unless_cast() -> None:
    opcode = MMA + "m16n8k8.row.col.f32.tf32.tf32.f32"
    a = np.full((1, 1), np.float32(1 + 2.0**-11 + 2.0**-12))
    one = np.ones((1, 1), np.float32)
    assert gemm(a, one, instruction=opcode) == 1
    assert gemm(a, one, instruction=opcode, cast=True) == np.float32(1 + 2.0**-10)


def code_arrays(fmt: str, shape: tuple[int, int]) -> st.SearchStrategy[NDArray[Any]]:
    row = FORMATS[fmt]
    codes = st.one_of(st.sampled_from([int(code) for code in special_codes(fmt)]), st.integers(0, (1 << row.bits) - 1))
    return arrays(row.code_dtype, shape, elements=codes)


HYPOTHESIS_METHODS = [METHODS[index] for index in (1, 4, 7, 8, 10, 12, 16, 17, 20, 24, 26, 27, 29, 31, 33, 37)]


@pytest.mark.parametrize(("opcode", "target"), HYPOTHESIS_METHODS)
def test_adversarial_inputs(opcode: str, target: str) -> None:
    ins = instruction(opcode)
    depth = min(ins.k, 32) + 1

    @settings(max_examples=25, deadline=None, derandomize=True, database=None)
    @given(code_arrays(ins.atype, (2, depth)), code_arrays(ins.btype, (depth, 2)), code_arrays(ins.ctype, (2, 2)))
    def check(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> None:
        expected = product(opcode, target, a, b, c, backend="reference")
        np.testing.assert_array_equal(product(opcode, target, a, b, c), expected)

    check()


# default instructions


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
    assert default_instruction(*[fastmma.formats.format_of(dtype).name] * 2, None, target).opcode == opcode
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


# matmul


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


def test_matmul_is_gemm() -> None:
    generator = np.random.default_rng(9)
    a, b = (generator.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((3, 20, 100), (3, 100, 7)))
    for options in ({}, {"promote_every": 32}, {"split_k": 2}, {"target": "sm_89"}):
        expected = np.stack([gemm(x, y, **options) for x, y in zip(a, b, strict=True)])
        np.testing.assert_array_equal(bits(matmul(a, b, **options)), bits(expected))
