"""Decisions about plans: what is said to be equal is, by proof; what is said to differ does, on operands that are computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference import wide_adder
from reference.agreement import contradicts, own_pair, own_pairs, row_pairs
from reference.cases import cases

import fastmma
from fastmma import AccumulationPlan, GemmPlan, OperandError, StreamK, mma_plan, same_bits
from fastmma.agreement.build import Cell, form_of
from fastmma.agreement.decide import normal_form
from fastmma.agreement.draw import draw
from fastmma.agreement.problem import problem_of
from fastmma.agreement.run import compute
from fastmma.agreement.search import Pair, hints_of
from fastmma.products.lanes import Lanes
from fastmma.products.lanes_plan import LanesPlan

WGMMA = GemmPlan("sm_90a", "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16")
K16, K8 = (f"mma.sync.aligned.m16n8k{k}.row.col.f32.f16.f16.f32" for k in (16, 8))
HOPPER, HOPPER_8, AMPERE, AMPERE_8, B200 = (
    GemmPlan(*each) for each in (("sm_90a", K16), ("sm_90a", K8), ("sm_80", K16), ("sm_80", K8), ("sm_100a", K16))
)
TINY = GemmPlan("sm_120a", "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e2m1.f32")
INTEGERS = GemmPlan("sm_90a", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
CHAIN = LanesPlan("sm_90a", "fma.rn.f32", Lanes(2, tree="ascending"), "bf16")
SCALED = AccumulationPlan(
    "sm_90a",
    "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3",
    ("fp8_1x128", "fp8_128x128"),
    "promotion",
    128,
    "fma",
    1,
    ("round",),
    "bf16",
)
SHORT, SHORT_8 = (
    replace(plan, arithmetic=replace(fastmma.arithmetic(plan.instruction, "sm_80"), align_bits=13)) for plan in (AMPERE, AMPERE_8)
)
IMMA, SATURATING = (GemmPlan("sm_80", f"mma.sync.aligned.m16n8k32.row.col.{how}s32.s8.s8.s32") for how in ("", "satfinite."))
F64 = GemmPlan("sm_90a", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64")
ADDING = replace(WGMMA, epilogue=("alpha", "beta*c", "bias", "round"), out="f16")
ROUNDED = replace(WGMMA, epilogue=("alpha+bias", "round"), out="bf16")


@cases(
    "p, q, given",
    [
        (WGMMA, HOPPER, {}),
        (HOPPER, B200, {}),
        (AMPERE, AMPERE_8, {}),
        (HOPPER, HOPPER_8, {"k": 8}),
        (HOPPER, AMPERE, {"k": 1}),
        (replace(WGMMA, split_k=4), replace(HOPPER, split_k=4), {}),
        (replace(WGMMA, split_k=2, split_unit=64), replace(WGMMA, split_k=((0, 64), (64, 100))), {}),
        (replace(WGMMA, split_k=2, join="pairwise"), replace(WGMMA, split_k=2), {"k": 100}),
        (replace(WGMMA, promote_every=128), WGMMA, {"k": 128}),
        (replace(WGMMA, split_k=StreamK((128, 128, 64), 4)), WGMMA, {"k": 256, "m": 512, "n": 128}),
        (replace(TINY, promote_every=32), replace(TINY, split_k=3), {"k": 4096}),
        (replace(INTEGERS, split_k=5), INTEGERS, {}),
        (replace(SATURATING, split_k=3), IMMA, {"k": 320}),
        (LanesPlan("sm_90a", "fma.rn.f32", Lanes(4, tree="ascending"), "bf16"), CHAIN, {"k": 1}),
        (replace(WGMMA, epilogue=("round",), out="f32"), WGMMA, {}),
        (mma_plan(K16, target="sm_90a"), mma_plan(K16, target="sm_100a"), {}),
        (SCALED, replace(SCALED, split_k=1), {}),
    ],
)
def test_equal_by_proof(p: Any, q: Any, given: dict[str, Any]) -> None:
    verdict = same_bits(p, q, **given, budget=0)
    reported = TINY.target in (p.target, q.target) and p != q
    assert verdict.as_written is True, verdict
    assert verdict.equal is (None if reported else True)
    assert verdict.scope == problem_of(p, False).every_input
    assert ("only reported" in str(verdict)) == reported


@cases(
    "p, q, given, said",
    [
        (WGMMA, AMPERE, {}, "steps of 16 against steps of 8; F = 25 against F = 24"),
        (HOPPER, HOPPER_8, {"k": 16}, "steps of 16 against steps of 8"),
        # steps of zeros take bits where sums have more than alignment leaves
        (SHORT, SHORT_8, {"k": 8}, "takes k in another order"),
        (SHORT, SHORT_8, {}, "takes k in another order"),
        # zeros that fill an instruction make -0 a +0
        (F64, replace(F64, first_tile=64), {"k": 66}, "the remainder"),
        (F64, replace(F64, instruction="mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64"), {}, "m16n8k16"),
        (WGMMA, replace(WGMMA, split_k=2), {"k": 4096}, "k in one part against k in 2 parts"),
        (WGMMA, replace(WGMMA, split_k=2), {}, "k in one part against k in 2 parts"),
        (WGMMA, replace(WGMMA, promote_every=128), {}, "no promotion against promotion every 128 k"),
        (replace(HOPPER_8, first_tile=32), HOPPER_8, {"k": 68}, "the remainder after tiles of 32 k first"),
        (replace(WGMMA, split_k=2, leaves_out=True, split_unit=64), replace(WGMMA, split_k=2), {"k": 257}, "without the last k"),
        (replace(WGMMA, split_k=StreamK((64, 64, 64), 3)), WGMMA, {"k": 256, "m": 128, "n": 64}, "k cut at 192 of 256 k"),
        (replace(ADDING, split_k=StreamK((64, 64, 64), 3)), ADDING, {"k": 256, "m": 128, "n": 64}, "k cut at 192 of 256 k"),
        (replace(SCALED, split_k=StreamK((128, 128, 128), 3)), SCALED, {"k": 512, "m": 256, "n": 128}, "k cut at 384 of 512 k"),
        (SATURATING, IMMA, {"k": 64, "c": True}, "sums that saturate against sums modulo 2^32"),
        (ROUNDED, replace(ROUNDED, epilogue=("alpha", "bias", "round")), {"k": 64}, "epilogue: fma(x, alpha, bias)"),
        (CHAIN, replace(CHAIN, lanes=Lanes(4, tree="ascending")), {"k": 64}, "2 lanes"),
        (mma_plan(K16, target="sm_90a"), mma_plan(K16, target="sm_80"), {}, "F = 25"),
        (SCALED, replace(SCALED, promotion="multiply-add"), {"k": 256}, "by fma against"),
    ],
)
def test_a_witness_differs(p: Any, q: Any, given: dict[str, Any], said: str) -> None:
    verdict = same_bits(p, q, **given)
    assert verdict.equal is False, verdict
    assert said in verdict.reason, verdict
    assert verdict.witness is not None
    assert verdict.at is not None
    assert verdict.results is not None
    a, b = verdict.witness
    results = []
    for plan in (p, q):
        if isinstance(plan, AccumulationPlan):
            found = fastmma.scaled_matmul(a, b, plan=plan, **verdict.others)
        elif isinstance(plan, fastmma.MmaPlan):
            found = fastmma.mma(None, a, b, plan=plan, **verdict.others)
        else:
            found = fastmma.gemm(a, b, plan=plan, **verdict.others)
        results.append(found[verdict.at])
    assert [each.tobytes() for each in results] == [each.tobytes() for each in verdict.results]
    assert results[0].tobytes() != results[1].tobytes()
    assert str(verdict).startswith("other bits")
    assert "p: d[" in str(verdict)


def test_decisions_about_own_arithmetics_and_rows() -> None:
    pairs = [*own_pairs(24, seed=1), *islice(row_pairs(), 0, None, 50)]
    counts: Counter[bool | None] = Counter()
    for decision in pairs:
        verdict = same_bits(decision.p, decision.q, k=decision.k, c=decision.c, budget=1 << 15)
        slow = any(plan.operation.arithmetic.c_joins == "sum" for plan in decision[:2])
        assert not contradicts(decision, verdict, 1 << 8 if slow else 1 << 12), (decision, verdict)
        counts[verdict.as_written] += 1
    assert counts[True] > 5
    assert counts[False] > 15
    assert counts[None] < 0.06 * len(pairs)


def test_every_input_of_tiny_formats() -> None:
    """Of e2m1 and K = 2 all 65,536 products of four elements are computed: equal where it is said, and different where it is."""
    own = fastmma.arithmetic(TINY.instruction, TINY.target)
    numbers = ({"align_bits": each} for each in range(8)), ({"keep_bits": each} for each in range(2, 8)), ({"terms": 1}, {"rounding": "rn"})
    plans = [replace(TINY, arithmetic=replace(own, **each)) for group in numbers for each in group]
    codes = np.arange(256).astype(np.uint8)
    rows = np.stack([codes >> 4, codes & 15], 1).view(ml_dtypes.float4_e2m1fn)
    results = [fastmma.gemm(rows, rows.T, plan=plan).tobytes() for plan in plans]
    for p, one in zip(plans, results, strict=True):
        for q, other in zip(plans, results, strict=True):
            assert same_bits(p, q, k=2).equal is (one == other), (p, q)


ORDERS = [{"split_k": parts, "join": join} for parts in (1, 2, 3, 5) for join in ("ascending", "pairwise", "pairwise from the end")]
ORDERS += [{"split_k": 4, "dealt": 16, "join": "second half"}, {"promote_every": 32}, {"first_tile": 64}, {"split_k": 2, "dealt": 64}]
ORDERS += [{"split_k": 3, "split_unit": 32, "leaves_out": True}, {"split_k": 2, "join_dtype": "bf16"}]


def ordered(bases: Sequence[GemmPlan]) -> Iterator[GemmPlan]:
    """Yield plans with every order that goes with an instruction."""
    for base in bases:
        for order in ORDERS:
            with suppress(OperandError):
                yield replace(base, **order)


@cases(
    "k, bases, others",
    [
        (130, [HOPPER, HOPPER_8, AMPERE], []),
        (33, [GemmPlan("sm_90a", opcode) for opcode in ("mma.m16n8k16.f32.bf16", "mma.m16n8k8.f32.bf16")], [CHAIN]),
        (70, [GemmPlan("sm_90a", opcode) for opcode in ("mma.m16n8k32.f32.e4m3", "wgmma.m64n8k32.f32.e4m3")], []),
        (66, [F64, GemmPlan("sm_90a", "mma.m16n8k16.f64")], []),
        (17, [TINY], []),
        (17, [GemmPlan("sm_90a", "fma.rn.f32")], [LanesPlan("sm_90a", "fma.rn.f32", Lanes(lanes)) for lanes in (1, 2, 32)]),
    ],
)
def test_normal_forms_are_one_only_where_bits_are(k: int, bases: list[GemmPlan], others: list[LanesPlan]) -> None:
    """Cuts, joins and tiles of one k: plans with one normal form have one result, on operands where steps and parts meet."""
    plans = [*ordered(bases), *others]
    problem = problem_of(plans[0], False)
    groups: dict[Any, list[Any]] = {}
    for plan in plans:
        cuts = ((0, k),) if isinstance(plan, LanesPlan) else next(plan.order.blocks(1, 1, k))[2]
        groups.setdefault(normal_form(plan, Cell(k, cuts), problem), []).append(plan)
    first, last = next(iter(groups)), next(reversed(groups))
    rng, hints = np.random.default_rng(0), hints_of(Pair(plans[0], plans[-1], problem, (first, last), k))
    for turn in range(12):
        operands = draw(problem, hints, rng, turn)
        for group in groups.values():
            assert len({compute(plan, problem, operands).tobytes() for plan in group}) == 1, (turn, group)
    assert len(groups) < len(plans)


@pytest.mark.parametrize(
    ("p", "q", "given", "said"),
    [
        (WGMMA, replace(WGMMA, epilogue=("round",), out="bf16"), {}, "result is f32 for p and bf16 for q"),
        (WGMMA, TINY, {}, "a is f16 for p and e2m1 for q"),
        (ROUNDED, replace(ROUNDED, epilogue=("round",)), {}, "takes is alpha, bias for p and none for q"),
        (replace(WGMMA, split_k=StreamK((64, 64, 64), 3)), WGMMA, {}, "give m, n and k"),
        (replace(WGMMA, split_k=((0, 8), (8, 20))), WGMMA, {"k": 21}, "K = 20 and 21"),
        (WGMMA, "H100", {}, "q must be a plan"),
    ],
)
def test_what_cannot_be_compared(p: Any, q: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(OperandError if not isinstance(q, str) else fastmma.OperandTypeError, match=said):
        same_bits(p, q, **given)


def test_a_verdict_is_no_truth_value() -> None:
    with pytest.raises(TypeError, match=r"ask \.equal"):
        bool(same_bits(WGMMA, HOPPER))


def test_what_is_assumed_is_named() -> None:
    a = np.empty((17, 5000), np.float16)
    plan = fastmma.gemm_plan(a, np.empty((5000, 24), np.float16), target="H100 PCIe", preset="cublas", out_dtype="f16")
    assert plan.evidence is not None
    assert not plan.evidence.is_known
    verdict = same_bits(plan, plan, k=5000)
    assert verdict.equal is None
    assert verdict.as_written is True
    assert len(verdict.assumed) == 2
    assert "the library's order for p is not known" in str(verdict)


def test_flushed_results_and_steps_without_products() -> None:
    """A negative result that is flushed is -0, of which a step without products makes +0: steps of 2 and of 8 differ at K = 2."""
    opcode = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    flushing = replace(fastmma.arithmetic(opcode, "sm_90a"), terms=8, align_rounding="rn", rounding="rn", flush_results=True)
    p, q = (GemmPlan("sm_90a", opcode, arithmetic=replace(flushing, terms=terms)) for terms in (8, 2))
    verdict = same_bits(p, q, k=2)
    assert verdict.equal is not True
    assert contradicts((p, q, 2, False), verdict, 1 << 14) == ""


def test_the_wide_adder_computes_what_the_reference_does() -> None:
    """What checks verdicts about arithmetics that no kernel computes: any alignment, rounding, join and flush."""
    for p, q, _, c in (*own_pairs(12, seed=3), own_pair(31124, 1082)):  # the last one adds groups of products
        problem, cell = problem_of(p, c), Cell(24, ((0, 24),), c)
        hints = hints_of(Pair(p, q, problem, (form_of(p, cell), form_of(q, cell)), 24))._replace(size=4)
        rng = np.random.default_rng(1)
        for turn in range(8):
            operands = draw(problem, hints, rng, turn)
            for plan in filter(wide_adder.holds, (p, q)):
                found = wide_adder.multiply(plan, operands.a, operands.b, operands.others.get("c"))
                assert (found == compute(plan, problem, operands, "reference")).all(), (plan, turn)


def test_a_search_ends_where_exact_integers_alone_compute() -> None:
    rounding_down = replace(fastmma.arithmetic(TINY.instruction, TINY.target), align_rounding="rm", emax_floor=-10)
    p, q = (replace(TINY, arithmetic=replace(rounding_down, align_bits=bits)) for bits in (24, 23))
    assert same_bits(p, q, k=3).equal is not False
    assert same_bits(p, q, budget=1 << 10).equal is not True
