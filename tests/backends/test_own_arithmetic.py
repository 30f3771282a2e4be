"""Arithmetics of one's own on compiled kernels against the exact reference: thousands of random ones, in every format and form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference.paths import PATHS, taking

import fastmma
from fastmma.backends.parameters import holds, plain
from fastmma.backends.resolve import operation_of
from fastmma.isa.codes import encode, from_codes
from fastmma.isa.formats import Format
from fastmma.isa.instruction import Instruction
from fastmma.numerics.arithmetic import Arithmetic

BF16 = ml_dtypes.bfloat16
MMA = "mma.sync.aligned"
SP = "mma.sp::ordered_metadata.sync.aligned"
DENSE = (
    (f"{MMA}.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    (f"{MMA}.m16n8k16.row.col.f16.f16.f16.f16", "sm_90"),
    (f"{MMA}.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_90"),
    (f"{MMA}.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90"),
    (f"{MMA}.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90"),
    (f"{MMA}.m16n8k32.row.col.f16.e4m3.e4m3.f16", "sm_90"),
    (f"{MMA}.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", "sm_120a"),
)
OTHERS = (
    (f"{SP}.m16n8k32.row.col.f32.f16.f16.f32", "sm_90"),
    (f"{SP}.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32", "sm_120a"),
    (f"{MMA}.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0", "sm_120a"),
    (f"{MMA}.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", "sm_120a"),
    (f"{MMA}.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "sm_120a"),
    (f"{SP}.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "sm_120a"),
    (f"{MMA}.m8n8k4.row.col.f32.f16.f16.f16", "sm_70"),
)
TIMES = 3  # products by an arithmetic of which a kernel is compiled


def random_codes(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...]) -> NDArray[Any]:
    """Any codes, specials among them, or values that cancel, some of them zero."""
    width = int(rng.choice([0, 1, 3, 8]))
    if width:
        values = rng.standard_normal(shape) * 2.0 ** rng.integers(-width, width + 1, shape)
        codes = encode(np.clip(values if fmt.signed else abs(values), -fmt.max / 2, fmt.max / 2), fmt)
        codes = np.where(fmt.has_zero & (rng.random(shape) < 0.1), 0, codes)
    else:
        codes = rng.integers(0, 1 << fmt.bits, shape, np.uint64)
    return from_codes((codes & 0x7F if fmt.name == "ue4m3" else codes).astype(fmt.code_dtype), fmt)


def random_arithmetic(rng: np.random.Generator, ins: Instruction, target: str) -> Arithmetic:
    """One that the instruction may be computed by, or not quite."""
    own = fastmma.arithmetic(ins, target)
    products, half = ins.stored_k, ins.accumulator == "f16"
    pick = rng.integers(4)
    align = [own.align_bits, rng.integers(1, 26), rng.integers(26, 64), rng.integers(64, 600)][pick]
    floor = own.emax_floor if rng.random() < 0.5 else rng.integers(-60, 30) if half else rng.integers(-200, 40)
    keep = rng.integers(11 if half else 24) if rng.random() < 0.5 else own.keep_bits
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


def drawn(rng: np.random.Generator, instructions: tuple[tuple[str, str], ...], count: int) -> Any:
    """Instructions, their targets, and arithmetics that they may be computed by; whether the kernels for GPUs' arithmetics hold them."""
    while count:
        opcode, target = instructions[rng.integers(len(instructions))]
        ins = fastmma.instruction(opcode)
        own = random_arithmetic(rng, ins, target)
        try:
            operation = operation_of(ins, target, own)
        except fastmma.OperandError:
            continue
        count -= 1
        yield ins, target, own, holds(plain(operation))


def check(run: Any, own: Arithmetic, what: Any) -> None:
    expected = run("reference")
    words = f"u{expected.itemsize}"
    for path in PATHS:
        with taking(path):
            assert np.array_equal(run("numba").view(words), expected.view(words)), (own, what, path)


@pytest.mark.parametrize("seed", range(4))
def test_products_by_any_arithmetic_are_those_of_the_reference(seed: int) -> None:
    """For each arithmetic that the kernels for GPUs hold one is compiled: a third of them multiply three times."""
    rng = np.random.default_rng(seed)
    count = {True: 0, False: 0}
    for ins, target, own, held in drawn(rng, DENSE, 500):
        count[held] += 1
        if held and count[held] % TIMES:
            continue
        rows, columns, depth = (int(rng.integers(1, last)) for last in (5, 5, 40))
        more = [{}, {"promote_every": ins.k}, {"split_k": 2}][rng.choice(3, p=[0.8, 0.1, 0.1])]
        for _ in range(TIMES if held else 1):
            a, b = random_codes(rng, ins.formats.a, (rows, depth)), random_codes(rng, ins.formats.b, (depth, columns))
            c = random_codes(rng, ins.formats.c, (rows, columns)) if rng.random() < 0.7 else None

            def run(backend: str) -> NDArray[Any]:
                return fastmma.gemm(a, b, c, instruction=ins, target=target, arithmetic=own, backend=backend, threads=1, **more)  # noqa: B023

            check(run, own, (str(ins), rows, columns, depth, more))
    assert min(count.values()) > 25  # both kinds of kernels were met


def test_tiles_by_any_arithmetic_with_scales_and_sparse() -> None:
    rng = np.random.default_rng(9)
    legal = {"f16": (4, 8, 9, 12, 13, 14), "e4m3": (4, 8, 9, 12, 13, 14), "e2m1": (4, 8, 9, 12, 13, 14)}
    for ins, target, own, _held in drawn(rng, OTHERS, 100):
        formats, tiles = ins.formats, int(rng.integers(1, 3))
        a = random_codes(rng, formats.a, (tiles, ins.m, ins.stored_k))
        b, c = random_codes(rng, formats.b, (tiles, ins.k, ins.n)), random_codes(rng, formats.c, (tiles, ins.m, ins.n))
        more: dict[str, Any] = {}
        if ins.sparse:
            chunk = 8 if ins.atype == "e2m1" else 4
            more["metadata"] = rng.choice(legal[ins.atype], (tiles, ins.m, ins.k // chunk)).astype(np.uint8)
        if formats.scale:
            more["scale_a"] = random_codes(rng, formats.scale, (tiles, ins.m, ins.scale_vec_size))
            more["scale_b"] = random_codes(rng, formats.scale, (tiles, ins.scale_vec_size, ins.n))

        def run(backend: str) -> NDArray[Any]:
            return fastmma.mma(ins, a, b, c, target=target, arithmetic=own, backend=backend, **more)  # noqa: B023

        check(run, own, str(ins))


@pytest.mark.each_path
def test_large_products_and_warps() -> None:
    """Many pieces, threads and parts of k; registers go by way of matrices."""
    rng = np.random.default_rng(2)
    opcode, target = DENSE[0]
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
    """Sums of two limbs do not hold them all: what is lost is settled, or computed in digits."""
    rng = np.random.default_rng(5)
    opcode, target = DENSE[2]
    own = replace(fastmma.arithmetic(opcode, target), **changes)
    for spread in (12, 25, 60):
        values = rng.integers(-3, 4, (2, 24, 24)) * 2.0 ** rng.integers(-spread, spread + 1, (2, 24, 24))
        a, b = values.astype(BF16)
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
