"""Arithmetics of one's own on compiled kernels against the exact reference: thousands of random ones, in every format and form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from drivers.kernel_cases import check_kernels, small_shape
from drivers.kernels import KERNELS
from drivers.operations import operations

import fastmma
from fastmma.backends import route
from fastmma.backends.call import Operation
from fastmma.backends.gpu.cuda_source import covers
from fastmma.backends.parameters import holds, plain
from fastmma.backends.problem import Extents, Problem, Strides
from fastmma.backends.resolve import operation_of
from fastmma.backends.routes import ROUTES
from fastmma.isa.instruction import Instruction
from fastmma.numerics.arithmetic import Arithmetic

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WHOLE = [kernel for kernel in KERNELS if kernel.name == "whole"]
TIMES = 3  # products by an arithmetic of which a kernel is compiled


def random_arithmetic(rng: np.random.Generator, ins: Instruction, target: str) -> Arithmetic:
    """One that the instruction may be computed by, or not quite."""
    own = fastmma.arithmetic(ins, target)
    products, half = ins.stored_k, ins.accumulator == "f16"
    pick = rng.integers(5)
    align = [own.align_bits, own.align_bits, rng.integers(1, 26), rng.integers(26, 64), rng.integers(64, 600)][pick]
    floor = own.emax_floor if rng.random() < 0.5 else rng.integers(-60, 30) if half else rng.integers(-200, 40)
    keep = rng.integers(11 if half else 24) if rng.random() < 0.25 else own.keep_bits
    terms = min(2 ** rng.integers(0, 6) if rng.random() < 0.5 else rng.integers(1, products + 1), products // own.group)
    own = replace(own, align_bits=int(align), emax_floor=int(floor), keep_bits=int(keep), terms=int(terms))
    if rng.random() < 0.6:
        own = replace(own, align_rounding=str(rng.choice(["rz", "rn", "ro", "exact"])), rounding=str(rng.choice(["rz", "rn", "ro"])))
    form = rng.integers(5)
    if form == 0:
        group = int(rng.choice([2, 4, 8, 16]))
        own = replace(own, split=0, group=group, terms=max(1, min(own.terms, products // group)))
    elif form == 1 and not ins.stype:
        own = replace(own, split=0, interleave=int(2 ** rng.integers(0, 4)))
    elif form == 2 and not ins.stype:
        own = replace(own, split=int(2 ** rng.integers(0, 3)), terms=min(own.terms, products // 2))
    elif form == 3 and ins.formats.a.bits == 8 and not ins.stype:
        own = replace(own, widened="" if own.widened else "f16", split=0)
    return own


def drawn(rng: np.random.Generator, count: int) -> Iterator[tuple[Operation, bool]]:
    """Operations by arithmetics that they may be computed by; whether the kernels for GPUs' arithmetics hold them."""
    given = operations("fused", "grouped")
    while count:
        usual = given[rng.integers(len(given))]
        try:
            operation = operation_of(usual.instruction, usual.target, random_arithmetic(rng, usual.instruction, usual.target))
        except fastmma.OperandError:
            continue
        count -= 1
        yield operation, holds(plain(operation))


@pytest.mark.parametrize("seed", range(3))
def test_products_by_any_arithmetic_are_those_of_the_reference(seed: int) -> None:
    """For each arithmetic that the kernels for GPUs hold one is compiled: a third of them multiply three times."""
    rng, count = np.random.default_rng(seed), {True: 0, False: 0}
    for operation, held in drawn(rng, 120):
        count[held] += 1
        if not (held and count[held] % TIMES):
            for _ in range(TIMES if held else 1):
                check_kernels(rng, operation, small_shape(rng, operation), Counter(), kernels=WHOLE)
    assert min(count.values()) > 10  # both kinds of kernels were met


@pytest.mark.each_path
def test_large_products_and_warps() -> None:
    """Many pieces, threads and parts of k; registers go by way of matrices."""
    rng = np.random.default_rng(2)
    opcode, target = F16, "sm_90"
    a, b = rng.standard_normal((70, 1100)).astype(np.float16), rng.standard_normal((1100, 130)).astype(np.float16)
    a[3, 5], b[7, 99] = np.inf, np.nan
    fused = [{"align_bits": 20}, {"align_bits": 7, "keep_bits": 20, "emax_floor": -20}, {"align_bits": 25, "keep_bits": 9, "terms": 4}]
    for changes in ({"align_bits": 40, "rounding": "rn"}, {"align_rounding": "exact"}, {"group": 2, "terms": 8}, *fused):
        own = replace(fastmma.arithmetic(opcode, target), **changes)
        found = fastmma.gemm(a, b, instruction=opcode, target=target, arithmetic=own, threads=2)
        corner = np.ix_([3, 69, 30], [0, 99, 129])
        rows, columns = a[corner[0][:, 0]], b[:, corner[1][0]]
        expected = fastmma.gemm(rows, columns, instruction=opcode, target=target, arithmetic=own, backend="reference")
        assert np.array_equal(found[corner].view(np.uint32), expected.view(np.uint32))
        ins = fastmma.instruction(opcode)
        registers = [rng.integers(0, 1 << 32, (2, 32, ins.operands[name].registers), np.uint32) & 0xBBFFBBFF for name in "abc"]
        plan = fastmma.mma_plan(opcode, target=target, arithmetic=own)
        d = fastmma.warp.mma(None, *registers, plan=plan)
        assert np.array_equal(d, fastmma.warp.mma(None, *registers, plan=plan, backend="reference"))


BEYOND = (
    {"align_rounding": "rm"},
    {"rounding": "rm"},
    {"c_joins": "sum", "join_bits": 31, "align_bits": 24, "rounding": "rn"},
    {"flush_inputs": True},
    {"flush_results": True},
)


@pytest.mark.parametrize("changes", BEYOND)
def test_what_no_kernel_knows_is_left_to_the_reference(changes: dict[str, Any]) -> None:
    """Dense, sparse and scaled, promoted, in parts, in registers; no row of kernels takes it, and no CUDA source is made."""
    rng = np.random.default_rng(8)
    for usual in operations("fused", "grouped"):
        try:
            operation = operation_of(usual.instruction, usual.target, replace(usual.arithmetic, **changes))
        except fastmma.OperandError:
            assert usual.arithmetic.native_c
            continue
        ins = operation.instruction
        for extents in (Extents(1, ins.m, ins.n, ins.k), Extents(3, 1, 512, 4 * ins.k), Extents(1, 1024, 1024, 4096)):
            strides = Strides((0, ins.formats.a.code_dtype.itemsize, 1), (0, 1, ins.formats.b.code_dtype.itemsize))
            problem = Problem(operation, extents, strides, False, bool(ins.stype), bool(ins.sparse))
            rows = [row for row in ROUTES if row.call != "registers" or ins.op in ("mma", "wmma")]
            assert {row.name for row in rows if not route.refusal(row, problem, 1, row.call)} == {"reference"}
        assert not covers(operation)
        check_kernels(rng, operation, (1, 3, 2, ins.k), Counter(), kernels=WHOLE)
    own = replace(fastmma.arithmetic(F16, "sm_90"), **changes)
    a, b = (np.ldexp(rng.standard_normal(shape), -9).astype(np.float16) for shape in ((3, 80), (80, 2)))
    for options in ({"promote_every": 32}, {"split_k": 2}, {"out_dtype": "bf16", "bias": np.ones(2, np.float32)}):
        found, expected = (
            fastmma.gemm(a, b, instruction=F16, target="sm_90", arithmetic=own, backend=name, **options) for name in ("numba", "reference")
        )
        assert found.tobytes() == expected.tobytes()
    assert str(fastmma.explain(a, b, 0, 0, instruction=F16, target="sm_90", arithmetic=own))


@pytest.mark.parametrize(
    "changes",
    [
        {"align_rounding": "exact", "terms": 2},
        {"align_bits": 70, "rounding": "ro"},
        {"align_bits": 120, "align_rounding": "rn", "rounding": "rn", "group": 2, "terms": 4},
        {"align_bits": 20, "align_rounding": "ro", "group": 4, "terms": 2},
        {"align_bits": 24, "group": 2, "terms": 4},
    ],
)
def test_terms_of_very_different_sizes(changes: dict[str, Any]) -> None:
    """Sums of two limbs do not hold them all: what is lost is finish_empty, or computed in digits."""
    rng = np.random.default_rng(5)
    opcode, target = "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_90"
    own = replace(fastmma.arithmetic(opcode, target), **changes)
    for spread in (12, 25, 60):
        values = rng.integers(-3, 4, (2, 24, 24)) * 2.0 ** rng.integers(-spread, spread + 1, (2, 24, 24))
        a, b = values.astype(ml_dtypes.bfloat16)
        found, expected = (
            fastmma.gemm(a, b, instruction=opcode, target=target, arithmetic=own, backend=name) for name in ("numba", "reference")
        )
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32)), spread


@pytest.mark.each_path
def test_scaled_products_take_it() -> None:
    from fastmma.scaling import quantize

    rng = np.random.default_rng(4)
    a, b = quantize(rng.standard_normal((5, 128)), "nvfp4"), quantize(rng.standard_normal((128, 6)), "nvfp4", axis=0)
    usual = fastmma.scaled_plan(a, b, target="sm_120a")
    own = replace(usual.operation.arithmetic, align_bits=6, rounding="rn")
    plan = fastmma.scaled_plan(a, b, target="sm_120a", arithmetic=own)
    assert plan == replace(usual, arithmetic=own)
    assert "own grouped: L = 4, F = 6, emax >= -139, keep 23 rn" in str(plan)
    found = fastmma.scaled_matmul(a, b, plan=plan)
    assert np.array_equal(found, fastmma.scaled_matmul(a, b, target="sm_120a", arithmetic=own, backend="reference"))
    assert not np.array_equal(found, fastmma.scaled_matmul(a, b, plan=usual))


@pytest.mark.best_kernels
def test_an_accumulator_has_more_bits_than_sums_keep() -> None:
    """All of them are aligned with the products, also where a subnormal beside it changes the kernel."""
    opcode = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    a, b, c = np.zeros((8, 16), np.float16), np.zeros((16, 5), np.float16), np.zeros((8, 5), np.float32)
    a[2, 15], b[15, 4] = 1.5 * 2.0**-11, 1.5 * 2.0**-21
    c[2, 4], c[0, 4] = -(1 - 2.0**-24) * 2.0**-16, 2.0**-136
    arithmetic = replace(fastmma.arithmetic(opcode, "sm_90a"), keep_bits=12)
    fast, exact = (
        fastmma.gemm(a, b, c, instruction=opcode, target="sm_90a", arithmetic=arithmetic, backend=each) for each in ("numba", "reference")
    )
    assert fast.tobytes() == exact.tobytes()
