"""Explanations end in the bits of the products that they explain, whatever the method, and every step of them adds up."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from drivers.cases import metadata_words, scale_codes
from numpy.typing import NDArray
from reference.cases import cases
from reference.methods import F16_F32, METHODS, MMA, WGMMA, mixed
from reference.operands import elements_of
from reference.products import bits, elements

import fastmma
from fastmma import Explanation, MmaPlan, explain, gemm, scaled_matmul
from fastmma.explanation.steps import Dyadic, Step
from fastmma.host.errors import OperandError, TargetError
from fastmma.isa.formats import FORMATS
from fastmma.isa.sparsity import pattern_of
from fastmma.scaling import quantize
from fastmma.testing import adversarial

SPARSE = [
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90a"),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_80"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e5m2", "sm_90a"),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32", "sm_80"),
]
SCALED = [
    ("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e2m1.f32.ue8m0", "sm_120a"),
    ("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", "sm_120a"),
    ("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "sm_121a"),
]
MIXES = [("cancel", "near", "cancel"), ("special", "bits", "special"), ("finite", "tiny", "finite")]


def exact(number: Dyadic) -> Fraction:
    return Fraction(number.significand) * Fraction(2) ** number.last


def code_value(step: Step) -> Fraction | None:
    """The value of a step's result, decoded apart from the explanation; None where it is special."""
    value = fastmma.decode(step.code, step.format)[()]
    return Fraction(value.item()) if math.isfinite(value) else None


def check_steps(found: Explanation, ks: range | list[int]) -> None:
    """Every product is in one step; terms are kept or lost; sums are what is kept; results are the sums but for what is dropped."""
    assert sorted(k for step in found.steps for term in step.terms for k in term.k) == list(ks)
    for step in found.steps:
        terms = [exact(term.value) if term.kept is None else exact(term.kept) for term in step.terms]
        for term in step.terms:
            if term.kept is not None:
                assert exact(term.kept) + exact(term.lost) == exact(term.value)
                assert (exact(term.kept) / Fraction(2) ** step.unit).denominator == 1
        if step.total is not None:
            assert exact(step.total) == sum(terms)
            result = code_value(step)
            if step.rounding == "wrap":
                assert (exact(step.total) - result) % 2**32 == 0
            elif result is not None:
                assert exact(step.total) - result == exact(step.dropped)
    if found.steps:
        last, final = found.steps[-1], code_value(replace(found.steps[-1], code=found.code, format=found.format))
        assert last.code == found.code if last.format == found.format else code_value(last) == final


def check_texts(found: Explanation) -> None:
    code = f"0x{found.code & ((1 << FORMATS[found.format].bits) - 1):0{FORMATS[found.format].bits // 4}x}"
    assert code in str(found).splitlines()[0]
    assert code in found.markdown().splitlines()[0]
    assert json.loads(found.json())["code"] == found.code


WMMA = ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "sm_70")


def drawn(rng: np.random.Generator, opcode: str, depth: int, mix: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Codes of (3, K) and (K, 5) elements, with the metadata and the scales that the instruction takes."""
    ins = fastmma.instruction(opcode)
    a, b, c = mixed(opcode, (3, 5, depth), *mix)
    found = {"a": a[:, :: ins.k // ins.stored_k], "b": b, "c": c}
    if ins.sparse:
        found["metadata"] = metadata_words(rng, ins, (3, depth // pattern_of(ins).chunk))
    if ins.stype:
        blocks = depth // ins.k * ins.scale_vec_size
        found |= {name: scale_codes(rng, ins.stype, shape) for name, shape in (("scale_a", (3, blocks)), ("scale_b", (blocks, 5)))}
    return found


@pytest.mark.parametrize(("opcode", "target"), [*METHODS, WMMA, *SPARSE, *SCALED], ids=str)
def test_every_method(opcode: str, target: str) -> None:
    """K of two and a half instructions, if it may be: D is fed back as C, and the last instruction is filled with zeros."""
    ins, rng = fastmma.instruction(opcode), np.random.default_rng(3)
    depth = 2 * ins.k + (0 if ins.sparse or ins.stype else ins.k // 2)
    for mix in MIXES:
        codes = drawn(rng, opcode, depth, mix)
        given: dict[str, Any] = {**elements_of(ins, codes), "instruction": ins, "target": target}
        d = bits(gemm(**given))
        for i, j in ((0, 0), (2, 4)):
            found = explain(**given, row=i, col=j)
            assert found.code == d[i, j]
            terms = [term for step in found.steps for term in step.terms if term.k]
            ks = sorted(k for term in terms for k in term.k)
            assert len(ks) == len(codes["a"][i])
            check_steps(found, ks if ins.sparse else range(depth))
            assert ins.sparse or {term.a for term in terms if term.k == (1,)} <= {(int(codes["a"][i, 1]),)}
            for term in terms if ins.stype else ():
                block = term.k[0] * ins.scale_vec_size // ins.k
                assert (term.scale_a, term.scale_b) == (codes["scale_a"][i, block], codes["scale_b"][block, j])
    check_texts(found)


PLANS: list[dict[str, Any]] = [
    {"promote_every": 32},
    {"split_k": 3},
    {"split_k": 2, "promote_every": 64},
    {"instruction": MMA + "m16n8k16.row.col.f16.f16.f16.f16", "promote_every": 32, "split_k": 2},
    {"split_k": ((0, 40), (40, 41), (41, 180), (180, 200)), "join": "pairwise", "join_dtype": "bf16"},
    {"split_k": fastmma.StreamK((2, 3, 16), 7)},
    {"split_k": fastmma.StreamK((2, 4, 32), 7, 3, "n"), "promote_every": 32, "join_dtype": "f16", "out_dtype": "f16"},
    {"target": "sm_80", "accumulator": "f16", "out_dtype": "f32"},
    {"preset": "cublas", "split_k": 2},
    {"target": "sm_80", "split_k": 4},
    {"target": "sm_100a"},
]


@pytest.mark.parametrize("choices", PLANS, ids=str)
def test_plans_of_gemm(choices: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((5, 200), (200, 8)))
    d = bits(gemm(a, b, **choices))
    stages = set()
    for i, j in ((0, 0), (4, 7), (2, 3), (3, 1), (1, 4)):
        found = explain(a, b, i, j, **choices)
        assert found.code == d[i, j]
        check_steps(found, range(200))
        assert explain(a, b, i, j, plan=found.plan).steps == found.steps
        stages |= {step.stage for step in found.steps}
    assert ("promotion" in stages) == ("promote_every" in choices)
    assert ("split-k" in stages) == ("split_k" in choices)


OWN: list[dict[str, Any]] = [
    {"align_bits": 8, "align_rounding": "rn"},
    {"align_bits": 10, "align_rounding": "ro", "rounding": "rn", "keep_bits": 12},
    {"align_rounding": "exact", "rounding": "ro"},
    {"terms": 4, "interleave": 1},
    {"terms": 2, "group": 4},
]


@pytest.mark.parametrize("changes", OWN, ids=str)
def test_arithmetics_of_ones_own(changes: dict[str, Any]) -> None:
    own = replace(fastmma.arithmetic(F16_F32, "sm_90a"), **changes)
    rng = np.random.default_rng(9)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((3, 32), (32, 5)))
    d = bits(gemm(a, b, instruction=F16_F32, arithmetic=own, backend="reference"))
    for i, j in ((0, 0), (2, 4)):
        found = explain(a, b, i, j, instruction=F16_F32, arithmetic=own, against="sm_80")
        assert found.code == d[i, j]
        check_steps(found, range(32))
        assert explain(a, b, i, j, instruction=F16_F32, against=own).against == replace(found, against=None)
    assert "own fused" in found.label


EPILOGUES: list[tuple[tuple[str, ...], list[str]]] = [
    (("alpha+bias", "beta*c", "relu", "round"), ["fma", "fma", "relu", "convert"]),
    (("alpha+c", "bias", "round"), ["multiply", "fma", "add", "convert"]),
    (("round", "alpha", "bias", "c"), ["multiply", *["convert"] * 4, "multiply", "convert", "add", "convert", "add", "convert"]),
]


@pytest.mark.parametrize(("steps", "operations"), EPILOGUES, ids=str)
def test_epilogues_of_gemm(steps: tuple[str, ...], operations: list[str]) -> None:
    rng = np.random.default_rng(10)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((5, 40), (40, 8)))
    c, bias = rng.standard_normal((5, 8)).astype(np.float32), rng.standard_normal(8).astype(np.float32)
    plan = replace(fastmma.gemm_plan(a, b, target="sm_80", out_dtype="bf16"), epilogue=steps)
    given: dict[str, Any] = {"c": c, "bias": bias, "alpha": 0.3, "beta": -1.7, "plan": plan}
    d = bits(gemm(a, b, **given))
    for i, j in np.ndindex(5, 8):
        found = explain(a, b, i, j, **given)
        assert found.code == d[i, j]
        check_steps(found, range(40))
    last = [step for step in found.steps if step.stage == "epilogue"]
    assert [step.operation for step in last][: len(operations)] == operations
    names = " ".join(term.name for step in last for term in step.terms)
    assert {"alpha", "bias", "c"} <= set(names.split())
    check_texts(found)


def test_integers_wrap_where_parts_join() -> None:
    a, b = np.full((1, 64), -128, np.int8), np.full((64, 1), -128, np.int8)
    c = np.full((1, 1), 2**31 - 64 * 2**14, np.int32)
    found = explain(a, b, 0, 0, c=c, target="sm_80", split_k=2, instruction=MMA + "m16n8k32.row.col.s32.s8.s8.s32")
    assert found.value == -(2**31) == gemm(a, b, c, target="sm_80", split_k=2)[0, 0]
    assert [step.stage for step in found.steps] == ["instruction", "instruction", "split-k"]
    check_steps(found, range(64))


ACCUMULATIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("fp8_1x128", "fp8_128x128", {"target": "sm_90a", "preset": "deepgemm", "out_dtype": "bfloat16"}),
    ("fp8_1x128", "fp8_1x128", {"target": "sm_90a", "promotion": "fma-each", "split_k": 2}),
    ("fp8_1x128", "fp8_1x128", {"target": "sm_90a", "promotion": "multiply-add-each"}),
    ("fp8_1x128", "fp8_1x128", {"target": "sm_90a", "promotion": "multiply-add"}),
    ("fp8_row", "fp8_row", {"target": "sm_90a", "preset": "cublas", "out_dtype": "float16"}),
    ("fp8_tensor", "fp8_tensor", {"target": "sm_89"}),
    ("mxfp8_e4m3", "mxfp4", {"target": "sm_120a", "out_dtype": "bfloat16"}),
    ("nvfp4", "nvfp4", {"target": "sm_120a", "epilogue": ("round", "alpha", "bias"), "out_dtype": "bfloat16"}),
    ("nvfp4", "nvfp4", {"target": "sm_90a", "epilogue": ("alpha+c", "bias", "round")}),
    ("int8_row", "int8_row", {"target": "sm_80", "out_dtype": "bfloat16"}),
    ("nvfp4", "nvfp4", {"target": "sm_100a", "out_dtype": "float16", "split_k": fastmma.StreamK((64, 32, 128), 9)}),
    ("mxfp8_e4m3", "mxfp4", {"target": "sm_103a"}),
]


@pytest.mark.parametrize(("left", "right", "choices"), ACCUMULATIONS, ids=str)
def test_plans_of_scaled_products(left: str, right: str, choices: dict[str, Any]) -> None:
    rng = np.random.default_rng(6)
    x, w = (rng.standard_normal(shape) * np.exp2(rng.integers(-8, 9, shape)) for shape in ((130, 256), (135, 256)))
    a, b = quantize(x, left), quantize(w, right).T
    plan = fastmma.scaled_plan(a, b, **choices)
    steps = [part for step in plan.epilogue for part in step.split("+")]
    given: dict[str, Any] = {"alpha": 0.3} if "alpha" in steps else {}
    given |= {"c": rng.standard_normal((130, 135)).astype(np.float32)} if "c" in steps else {}
    given |= {"bias": rng.standard_normal(135).astype(ml_dtypes.bfloat16)} if "bias" in steps else {}
    d = bits(scaled_matmul(a, b, **choices, **given))
    for i, j in ((0, 0), (129, 134), (5, 128)):
        found = explain(a, b, i, j, **choices, **given)
        assert found.code == d[i, j]
        check_steps(found, range(256))
        assert found.plan == plan
    assert {step.stage for step in found.steps} >= {"instruction", "epilogue"} if given else True
    check_texts(found)


def test_single_instructions() -> None:
    """Where D is not C, and with the plan of an instruction, the operands are those of one instruction."""
    for opcode, target in (
        (MMA + "m8n8k4.row.col.f32.f16.f16.f16", "sm_70"),
        (F16_F32, "sm_90"),
        (WGMMA + "m64n8k16.f16.f16.f16", "sm_90a"),
    ):
        ins = fastmma.instruction(opcode)
        codes = mixed(opcode, (ins.m, ins.n, ins.k), "finite", "near", "cancel")
        a, b, c = (elements(each, fmt) for each, fmt in zip(codes, (ins.atype, ins.btype, ins.ctype), strict=True))
        d = bits(fastmma.mma(opcode, a, b, c, target=target))
        found = explain(a, b, 3, 5, c=c, plan=MmaPlan(target, opcode))
        assert found.code == d[3, 5]
        check_steps(found, range(ins.k))
        if ins.ctype != ins.dtype:
            assert explain(a, b, 3, 5, c=c, instruction=opcode, target=target) == found


def test_numbers_of_one_step() -> None:
    """4096 + 2^-14 - 4096 by hand: F = 25 keeps multiples of 2^-13."""
    a, b = np.zeros((1, 16), np.float16), np.ones((16, 1), np.float16)
    a[0, :3] = 4096, 2**-14, -4096
    (step,) = explain(a, b, 0, 0, target="sm_90a").steps
    assert (step.operation, step.k, step.emax, step.unit, step.total) == ("fused", (0, 16), 12, -13, Dyadic(0, 0))
    assert [term.lost for term in step.terms[:3]] == [Dyadic(0, 0), Dyadic(1, -14), Dyadic(0, 0)]
    assert (step.terms[1].a, step.terms[1].b, step.terms[1].exponent) == ((0x0400,), (0x3C00,), -14)
    lines = str(explain(a, b, 0, 0, target="sm_90a")).splitlines()
    assert "  1            0x0400 6.1035e-05  0x3c00 1  1048576 * 2^-34  -14       0 u          6.10351562e-05 = 1 * 2^-14" in lines


def test_two_targets() -> None:
    """The first difference is where 8 products a step give way to 16, or F = 24 to F = 25."""
    a, b = np.zeros((1, 32), np.float16), np.ones((32, 1), np.float16)
    a[0, 16:19] = 4096, 2**-13, -4096
    found = explain(a, b, 0, 0, target="sm_90a", against="sm_80")
    difference = found.difference
    assert (difference.k, difference.terms) == ((16, 32), (17,))
    assert (found.value, found.against and found.against.value) == (2**-13, 0.0)
    assert "17 <" in str(found)
    assert "17 <" in found.markdown()
    assert json.loads(found.json())["difference"]["terms"] == [17]
    same = explain(a, b, 0, 0, target="sm_80", against="sm_86")
    assert same.difference is None
    assert "no sum differs" in str(same)
    assert "No sum differs" in same.markdown()
    assert explain(a, b, 0, 0, target="sm_80", against=found).difference is not None
    parts = explain(a, b, 0, 0, target="sm_90a", against={"split_k": 2})
    assert parts.against.plan == fastmma.gemm_plan(a, b, split_k=2)
    # the other has no sum of the first parts, and its joins come in another order
    pairs = explain(
        a, b, 0, 0, target="sm_80", split_k=((0, 8), (8, 16), (16, 24), (24, 32)), join="pairwise", against={"join": "ascending"}
    )
    assert pairs.difference is None or pairs.difference.steps
    assert "the other" in str(pairs)
    plan = fastmma.gemm_plan(a, b, target="sm_80", split_k=2)
    assert explain(a, b, 0, 0, plan=plan, against="sm_86").against == explain(
        a, b, 0, 0, plan=fastmma.gemm_plan(a, b, target="sm_86", split_k=2)
    )


def test_many_steps(tmp_path: Path) -> None:
    """Of many steps each has a line, with what it loses; those of some k are shown in full."""
    rng = np.random.default_rng(11)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((1, 4096), (4096, 1)))
    found = explain(a, b, 0, 0, target="sm_90a", promote_every=1024)
    lines = str(found).splitlines()
    assert len(lines) == str(found.plan).count("\n") + 3 + 256 + 4
    for step, line in zip(found.steps, lines[-260:], strict=True):
        assert f"0x{step.code:08x} = " in line
        lost = sum(exact(term.lost) for term in step.terms)
        assert line.count("e-") >= (lost != 0) + (step.dropped.significand != 0)
    full = found.text((1000, 1040)).splitlines()
    assert [line.split(":")[0] for line in full if line.startswith("step")] == [
        "step 62, k 992..1007",
        "step 63, k 1008..1023",
        "step 64, promotion",
        "step 65, k 1024..1039",
    ]
    assert found.markdown((0, 16)).count("### step") == 1
    other = str(explain(a, b, 0, 0, target="sm_90a", against="sm_80")).splitlines()
    assert sum(line.startswith("...") for line in other) in (1, 2)
    assert any(line.startswith("to k 4096") for line in other)
    found.picture(tmp_path / "some.svg", (0, 32))
    assert (tmp_path / "some.svg").read_text().count("fused sum") == 2
    for k in (3, (1,), (-1, 2), (0, 1.5)):
        with pytest.raises(OperandError):
            found.text(k)  # type: ignore[arg-type]
    pytest.importorskip("matplotlib")
    with pytest.raises(OperandError, match="choose some by k"):
        found.picture(tmp_path / "all.png")


def test_pictures(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 64), (64, 2)))
    a[0, 0] = np.inf
    for number, options in enumerate(({}, {"against": "sm_80"}, {"promote_every": 32})):
        for i in (0, 1):
            explain(a, b, i, 1, **options).picture(tmp_path / f"{number}{i}.svg")
            assert (tmp_path / f"{number}{i}.svg").read_text().startswith("<svg")
    explain(a, b, 0, 1).picture(tmp_path / "d.tex")
    assert r"\begin{tikzpicture}" in (tmp_path / "d.tex").read_text()
    pytest.importorskip("matplotlib")
    explain(a, b, 1, 1).picture(str(tmp_path / "d.png"))
    assert (tmp_path / "d.png").read_bytes()[1:4] == b"PNG"
    with pytest.raises(OperandError, match="a picture is"):
        explain(a, b, 1, 1).picture(tmp_path / "d.gif")


@cases(("target", "k"), [(target, k) for target in ("MI100", "MI250X", "MI300X") for k in (1, 3, 5, 33)])
def test_products_of_amd_in_words(target: str, k: int) -> None:
    """K that fill no instruction, too: steps end with the element that gemm computes."""
    a, b = adversarial((2, k), "f16"), adversarial((k, 3), "f16", seed=1)
    found = explain(a, b, 1, 2, target=target, instruction="v_mfma_f32_4x4x4_16b_f16")
    assert found.value == gemm(a, b, target=target, instruction="v_mfma_f32_4x4x4_16b_f16")[1, 2]
    assert all(text.splitlines()[0].startswith("d[1, 2]") for text in (str(found), found.text()))


def test_nothing_to_sum() -> None:
    empty: NDArray[Any] = np.empty((2, 0), np.float16)
    found = explain(empty, empty.T, 1, 1)
    assert (found.steps, found.value) == ((), 0.0)
    assert found.markdown()


def test_bad_places_and_targets() -> None:
    a = np.ones((4, 16), np.float16)
    for row in (-1, 4, 1.5):
        with pytest.raises(OperandError, match="row must be an integer from 0 to 3"):
            explain(a, a.T, row, 0)
    with pytest.raises(OperandError, match="col must be"):
        explain(a, a.T, 0, 4)
    with pytest.raises(OperandError, match="do not multiply"):
        explain(a, a, 0, 0)
    with pytest.raises(OperandError, match=r"c must have shape \(4, 4\), not \(1, 1\)"):
        explain(a, a.T, 0, 0, c=np.zeros((1, 1), np.float32))
    with pytest.raises(OperandError, match="must be matrices"):
        explain(a[0], a.T, 0, 0)
    with pytest.raises(TargetError):
        explain(a, a.T, 0, 0, target="sm_90a", against="sm_1")
