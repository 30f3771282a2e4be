"""Arithmetics of one's own: what they mean, by fractions; what is refused; where they are taken."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastmma
from fastmma.isa.codes import decode, from_codes
from fastmma.numerics.arithmetic import Arithmetic
from fastmma.numerics.reference_steps import round_to

VOLTA = "mma.sync.aligned.m8n8k4.row.row.f32.f16.f16.f16"
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
F64 = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
GROUPED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"


def hopper(**changes: Any) -> Arithmetic:
    return replace(fastmma.arithmetic(F16, "sm_90a"), **changes)


def rounded(value: Fraction, unit: Fraction, mode: str) -> Fraction:
    """A value as a multiple of a unit: the definition, on fractions."""
    whole, rest = divmod(abs(value), unit)
    up = {
        "exact": False,
        "rz": False,
        "rn": rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1),
        "ro": rest > 0 and whole % 2 == 0,
        "rm": value < 0 and rest > 0,
    }[mode]
    return (whole + up) * unit * (1 if value >= 0 else -1)


def binade(value: Fraction) -> int:
    """The power of two of the first bit of a value that is not zero."""
    last = 0
    while abs(value) >= Fraction(2) ** (last + 1):
        last += 1
    while abs(value) < Fraction(2) ** last:
        last -= 1
    return last


@pytest.mark.parametrize("align", ["rz", "rn", "ro", "rm", "exact"])
@pytest.mark.parametrize("mode", ["rz", "rn", "ro", "rm"])
def test_one_step_is_what_the_definition_says(align: str, mode: str) -> None:
    rng = np.random.default_rng(3)
    own = hopper(align_rounding=align, rounding=mode, align_bits=7, keep_bits=9, emax_floor=-3)
    a, b = (rng.integers(0, 0x7C00, shape, np.uint16) | rng.integers(0, 2, shape, np.uint16) << 15 for shape in ((16, 16), (16, 8)))
    a[:8], b[:, :4] = a[:8] & 0x83FF | 0x2C00, b[:, :4] & 0x83FF | 0x3000
    c = np.ldexp(rng.standard_normal((16, 8)), rng.integers(-9, 9, (16, 8))).astype(np.float32)
    c[3] = 0
    d = fastmma.mma(F16, from_codes(a, "f16"), from_codes(b, "f16"), c, target="sm_90a", arithmetic=own, backend="reference")
    field = np.maximum(a >> 10 & 31, 1).astype(int)[:, :, None] + np.maximum(b >> 10 & 31, 1).astype(int)[None] - 30
    values_a, values_b = decode(a, "f16"), decode(b, "f16")
    for i, j in np.ndindex(16, 8):
        terms = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(values_a[i], values_b[:, j], strict=True)] + [
            Fraction(float(c[i, j]))
        ]
        exponents = [*field[i, :, j].tolist(), int(np.frexp(c[i, j])[1]) - 1]
        emax = max([-3, *(exponent for exponent, term in zip(exponents, terms, strict=True) if term)])
        total = sum(term if align == "exact" else rounded(term, Fraction(2) ** (emax - 7), align) for term in terms)
        last = binade(total) - 9 if total else 0
        assert Fraction(float(d[i, j])) == rounded(total, Fraction(2) ** last, mode), (i, j)


@pytest.mark.parametrize(("join_bits", "align_bits", "mode"), [(31, 24, "rn"), (12, 7, "rn"), (5, 7, "rz"), (8, 6, "rm")])
def test_c_that_joins_the_sum_is_what_the_definition_says(join_bits: int, align_bits: int, mode: str) -> None:
    """Two steps, with zeros and subnormals."""
    rng = np.random.default_rng(join_bits)
    own = hopper(terms=8, c_joins="sum", join_bits=join_bits, align_bits=align_bits, keep_bits=4, rounding=mode, emax_floor=-1000)
    a, b = (np.ldexp(rng.integers(-9, 10, shape), rng.integers(-20, 4, shape)).astype(np.float16) for shape in ((16, 16), (16, 8)))
    a[:3, :8], a[2], b[:, 1] = 0, 0, np.ldexp(1.0, -24)
    c = np.ldexp(rng.standard_normal((16, 8)), rng.integers(-40, 9, (16, 8))).astype(np.float32)
    c[5], c[6, :4] = 0, np.ldexp(3.0, -149)
    d = fastmma.mma(F16, a, b, c, target="sm_90a", arithmetic=own, backend="reference")

    def exponent(value: float, emin: int) -> int:
        return max(int(np.frexp(value)[1]) - 1, emin) if value else emin

    for i, j in np.ndindex(16, 8):
        total = Fraction(float(c[i, j]))
        for ks in (range(8), range(8, 16)):
            pairs = [(float(a[i, k]), float(b[k, j])) for k in ks if a[i, k] and b[k, j]]
            emax = max((exponent(x, -14) + exponent(y, -14) for x, y in pairs), default=-1000)
            products = sum((rounded(Fraction(x) * Fraction(y), Fraction(2) ** (emax - align_bits), "rz") for x, y in pairs), Fraction(0))
            emax = max(emax, exponent(float(total), -126))
            joined = rounded(products, Fraction(2) ** (emax - join_bits - 1), "rm") + rounded(
                total, Fraction(2) ** (emax - align_bits), "rm"
            )
            first = max(binade(joined), -126) if joined else 0
            joined = rounded(joined, Fraction(2) ** (first - join_bits), "rm")
            total = rounded(joined, Fraction(2) ** ((max(binade(joined), -126) if joined else 0) - 4), mode)
        assert Fraction(float(d[i, j])) == total, (i, j)


def test_subnormals_that_count_as_zeros() -> None:
    tiny, small = np.float16(2.0**-24 * 3), np.float16(2.0**-14)
    a, b, c = np.full((16, 16), tiny), np.full((16, 8), np.float16(1024)), np.full((16, 8), np.float32(2.0**-130))
    a[1] = -tiny
    a[2, 0] = small
    a[3], c[3] = 0, 1

    def product(**changes: Any) -> Any:
        return fastmma.mma(F16, a, b, c, target="sm_90a", arithmetic=hopper(**changes))

    kept = product()
    assert kept[0, 0] == 3 * 2.0**-24 * 1024 * 16
    flushed = product(flush_inputs=True)
    assert flushed[:, 0].tolist() == [0.0, 0.0, 2.0**-4, 1.0, *[0.0] * 12]
    c[...], b[...] = -(2.0**-130), 0
    assert product()[0, 0] == np.float32(-(2.0**-130))
    found = product(flush_results=True)
    assert found[0, 0] == 0
    assert np.signbit(found).all()
    c[...] = np.inf
    assert np.isposinf(product(flush_results=True, flush_inputs=True)).all()


def test_rounding_to_fewer_bits_than_a_format_has() -> None:
    f32, f16 = fastmma.FORMATS["f32"], fastmma.FORMATS["f16"]
    one = 127 << 23
    assert [round_to(0b1_0110, -4, f32, mode, 2) - one for mode in ("rz", "rn", "ro")] == [1 << 21, 2 << 21, 1 << 21]
    assert [round_to(0b1_1110, -4, f32, mode, 2) - one for mode in ("rz", "rn", "ro")] == [3 << 21, 1 << 23, 3 << 21]
    # subnormals lose bits from the same place; what exceeds the format is an infinity, whatever the mode
    assert [round_to(0b11, -129, f32, mode, 2) for mode in ("rz", "rn", "ro")] == [1 << 21, 2 << 21, 1 << 21]
    assert [round_to(-1, -149, f32, mode, 2) for mode in ("rz", "rn", "ro")] == [0, 0, 1 << 31 | 1 << 21]
    assert {round_to(1, 16, f16, mode, 10) for mode in ("rz", "rn", "ro")} == {0x7C00}


BAD = [
    (F16, "sm_90a", {"align_bits": -1}, "align_bits must be an integer from 0 to 1023, not -1"),
    (F16, "sm_90a", {"align_bits": 2.5}, "align_bits must be an integer"),
    (F16, "sm_90a", {"align_rounding": "up"}, "align_rounding must be one of 'rz', 'rn', 'ro', 'rm', 'exact', not 'up'"),
    (F16, "sm_90a", {"rounding": "exact"}, "rounding must be one of 'rz', 'rn', 'ro', 'rm', not 'exact'"),
    (F16, "sm_90a", {"c_joins": "after"}, "c_joins must be one of 'terms', 'sum', 'halves', not 'after'"),
    (F16, "sm_90a", {"join_bits": 31}, "join_bits must be an integer from 0 to 0, 0 where c is a term, not 31"),
    (F16, "sm_90a", {"c_joins": "sum", "join_bits": 1024}, "join_bits must be an integer from 0 to 1023, not 1024"),
    (F16, "sm_90a", {"flush_inputs": "all"}, "flush_inputs must be one of False, True, not 'all'"),
    (F64, "sm_90", {"flush_results": True}, "flush_results must be False where the method is 'f64-fma', which has none, not True"),
    (F16, "sm_90a", {"keep_bits": 24}, "keep_bits must be an integer from 0 to 23, the fraction bits of f32, not 24"),
    (F16, "sm_90a", {"emax_floor": 128}, "emax_floor must be an integer from -1000 to 127, not 128"),
    (F16, "sm_90a", {"terms": 17}, "terms must be an integer from 0 to 16"),
    (F16, "sm_90a", {"group": 3}, "group must be a divisor of 16, not 3"),
    (F16, "sm_90a", {"group": 2}, "terms must be an integer from 0 to 8"),
    (F16, "sm_90a", {"interleave": 3}, "interleave must be 0 or a divisor of 16, not 3"),
    (F16, "sm_90a", {"split": 3}, "split must be 0 or a multiple of 1 that divides half of the 16 k, not 3"),
    (F16, "sm_90a", {"split": 2, "terms": 8, "interleave": 2}, "interleave must be 0 but for whole steps that are not lowered"),
    (F16, "sm_90a", {"widened": "bf16"}, "widened must be one of '', 'f16', not 'bf16'"),
    (F16, "sm_90a", {"native_c": True}, "native_c must be one of False, not True"),
    (VOLTA, "sm_70", {"terms": 1}, "native_c must be False where products are taken in more than one step, not True"),
    (F16, "sm_90a", {"method": "integer"}, "method must be 'fused', not 'integer'"),
    (F64, "sm_90", {"align_bits": 20}, "align_bits must be 0 where the method is 'f64-fma', which has none, not 20"),
    (F64, "sm_90", {"rounding": "rn"}, "rounding must be 'rz' where the method is 'f64-fma', which has none, not 'rn'"),
    (SPARSE, "sm_90", {"terms": 3}, "terms must be a multiple of 2, as many products as metadata choose at a time, not 3"),
    (SCALED, "sm_120a", {"split": 2}, "split must be 0, not 2"),
    (SCALED, "sm_120a", {"group": 64}, "group must be an integer from 1 to 32"),
    (GROUPED, "sm_120a", {"method": "fused"}, "method must be 'grouped', not 'fused'"),
]


@pytest.mark.parametrize(("opcode", "target", "changes", "message"), BAD)
def test_what_an_instruction_cannot_be_computed_by(opcode: str, target: str, changes: dict[str, Any], message: str) -> None:
    own = replace(fastmma.arithmetic(opcode, target), **changes)
    with pytest.raises(fastmma.OperandError, match="arithmetic's") as caught:
        fastmma.mma_plan(opcode, target=target, arithmetic=own)
    assert message in str(caught.value)
    with pytest.raises(fastmma.OperandTypeError, match="arithmetic must be an Arithmetic, not dict"):
        fastmma.mma_plan(opcode, target=target, arithmetic=changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [[20], np.array([1, 2]), 20.0, True, None, {"a": 1}])
def test_fields_of_wrong_types(value: Any) -> None:
    """Also where a plan of equal numbers is remembered."""
    a = np.ones((16, 16), np.float16)
    fastmma.gemm(a, a, instruction=F16, arithmetic=hopper(align_bits=20))
    for field in ("align_bits", "rounding", "method"):
        with pytest.raises(fastmma.OperandError, match=f"arithmetic's {field} must be"):
            fastmma.gemm(a, a, instruction=F16, arithmetic=hopper(**{field: value}))
    assert fastmma.gemm_plan(a, a, instruction=F16, arithmetic=hopper(align_bits=np.int64(20))).operation.arithmetic.align_bits == 20


def test_a_plan_says_that_the_arithmetic_is_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMMA_STRICT", "1")  # it claims no GPU, so there is nothing to be strict about
    a = np.ones((4, 32), np.float16)
    own = hopper(align_bits=20, terms=0)
    plan = fastmma.gemm_plan(a, a.T, target="sm_90a", instruction=F16, arithmetic=own)
    assert "own fused: L = 16, F = 20, emax >= -133, keep 23" in str(plan)
    assert "own: claims no GPU; sm_90a has align_bits 25" in str(plan)
    assert replace(plan, arithmetic=None) == fastmma.gemm_plan(a, a.T, target="sm_90a", instruction=F16)
    assert "sm_90a computes so, too" in str(fastmma.mma_plan(F16, target="sm_90a", arithmetic=hopper()))
    assert fastmma.gemm(a, a.T, plan=plan).tolist() == [[32.0] * 4] * 4
    for given in ({"plan": plan, "arithmetic": own}, {"preset": "cublas", "arithmetic": own}):
        with pytest.raises(fastmma.OperandError, match="arithmetic"):
            fastmma.gemm(a, a.T, **given)
    with pytest.raises(fastmma.OperandError, match="arithmetic must be left out"):
        fastmma.mma(None, a, a, a, plan=fastmma.mma_plan(F16, target="sm_90a"), arithmetic=own)


def test_a_gpu_computes_by_its_own_arithmetic_only() -> None:
    plan = fastmma.mma_plan(F16, target="sm_90a", arithmetic=hopper(align_bits=20))
    with pytest.raises(fastmma.BackendError, match="a GPU computes by its own arithmetic"):
        plan.operation.of_silicon()
    assert fastmma.mma_plan(F16, target="sm_90a").operation.of_silicon().arithmetic.align_bits == 25
