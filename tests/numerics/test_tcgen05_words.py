"""tcgen05.mma against words recorded on a B200, against mma.sync, and by what its rows say of themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.cases import cases

import fastmma
from fastmma import FORMATS, Instruction, TargetError, arithmetic, fidelity, mma, tcgen05

FILE = json.loads(Path(__file__).with_name("tcgen05_goldens.json").read_text())
GOLDEN, PROBES = FILE["golden"], [probe for probe in FILE["probes"] if not probe["name"].startswith("scale-input-d")]
ONE = {"ue8m0": 0x7F, "ue4m3": 0x38}


def codes(text: str, name: str) -> Any:
    values = np.array([int(word, 16) for word in text.split()], np.uint64)
    return (values >> np.uint64(16) if name == "bf16" else values).astype(FORMATS[name].code_dtype)


def word(case: dict[str, Any], target: str, backend: str, at: tuple[int, int] = (5, 3)) -> int:
    """The result of a recorded dot product, somewhere in a matrix of zeros."""
    k96 = case["k"] == 96
    ins = tcgen05.instruction(
        case["kind"],
        case["d_format"],
        case["a_format"],
        case["b_format"],
        n=16 if k96 else 8,
        scale=case.get("scale_format"),
        block=case.get("k_per_scale"),
        saturate=case.get("saturate", False),
        k=96 if k96 else None,
    )
    row, column = at
    d = ins.formats.d
    a, b = np.zeros((ins.m, ins.k), ins.formats.a.code_dtype), np.zeros((ins.k, ins.n), ins.formats.b.code_dtype)
    c = np.zeros((ins.m, ins.n), d.code_dtype)
    a[row], b[:, column], c[row, column] = codes(case["a"], ins.atype), codes(case["b"], ins.btype), int(case["c"], 16)
    scales = {}
    if ins.stype:
        scale_a, scale_b = (
            np.full((ins.m, ins.scale_vec_size), ONE[ins.stype], np.uint8),
            np.full((ins.scale_vec_size, ins.n), ONE[ins.stype], np.uint8),
        )
        scale_a[row], scale_b[:, column] = codes(case["scale_a"], "e4m3"), codes(case["scale_b"], "e4m3")
        scales = {name: each.view(FORMATS[ins.stype].dtype) for name, each in (("scale_a", scale_a), ("scale_b", scale_b))}
    operands = a.view(ins.formats.a.dtype), b.view(ins.formats.b.dtype), c.view(d.dtype)
    return int(mma(ins, *operands, target=target, backend=backend, **scales).view(d.code_dtype)[at])


@cases("case", GOLDEN)
def test_recorded_words(case: dict[str, Any]) -> None:
    assert word(case, "sm_100a", "numba") == int(case["expected"], 16)


@pytest.mark.parametrize("case", GOLDEN[::5], ids=lambda case: str(case["name"]))
def test_recorded_words_by_the_reference(case: dict[str, Any]) -> None:
    assert word(case, "sm_100a", "reference", (0, 0)) == int(case["expected"], 16)


@pytest.mark.parametrize("case", PROBES, ids=lambda case: str(case["name"]))
def test_open_questions_are_answered_as_assumed(case: dict[str, Any]) -> None:
    """What is believed, or the first where nothing is."""
    predictions = case["predictions"]
    assumed = next((each for each in predictions if "believed" in each), next(iter(predictions)))
    assert word(case, "sm_103a", "numba") == int(predictions[assumed], 16)


def random(ins: Instruction, rng: np.random.Generator) -> list[Any]:
    formats = ins.formats
    shapes = ((ins.m, ins.k), formats.a), ((ins.k, ins.n), formats.b), ((ins.m, ins.n), formats.c)
    return [rng.integers(0, 1 << fmt.bits, shape, np.uint64).astype(fmt.code_dtype).view(fmt.dtype) for shape, fmt in shapes]


@pytest.mark.parametrize("types", ["f32.f16.f16.f32", "f32.bf16.bf16.f32", "f16.f16.f16.f16"])
def test_16_bit_operands_are_those_of_mma_sync(types: str) -> None:
    """cuBLAS on a GB200 has the same bits with either."""
    d, a, _, _ = types.split(".")
    ins = tcgen05.instruction("f16", d, a, a, m=64, n=8)
    plain = fastmma.instruction(f"mma.sync.aligned.m16n8k16.row.col.{types}")
    x, y, z = random(ins, np.random.default_rng(1))
    got = mma(ins, x, y, z, target="sm_100a")
    want = mma(plain, x.reshape(4, 16, 16), y, z.reshape(4, 16, 8), target="sm_100a").reshape(64, 8)
    assert got.tobytes() == want.tobytes()


def test_8_bit_floats_are_not_those_of_mma_sync() -> None:
    """mma.sync converts them to f16 and takes two steps."""
    a, b, c = np.zeros((64, 32), np.float32), np.zeros((32, 8), np.float32), np.zeros((64, 8), np.float32)
    a[0, :3], b[:3, 0] = (256.0, 2.0**-8, -256.0), (256.0, 2.0**-2, 256.0)
    e4m3 = FORMATS["e4m3"].dtype
    ins = tcgen05.instruction("f8f6f4", "f32", "e4m3", "e4m3", m=64, n=8)
    assert mma(ins, a.astype(e4m3), b.astype(e4m3), c, target="sm_100a")[0, 0] == 0
    plain = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    assert mma(plain, a[:16].astype(e4m3), b.astype(e4m3), c[:16], target="sm_100a")[0, 0] == 0
    c[0, 0] = 2.0**-12
    assert mma(ins, a.astype(e4m3), b.astype(e4m3), c, target="sm_100a")[0, 0] == 0
    assert mma(plain, a[:16].astype(e4m3), b.astype(e4m3), c[:16], target="sm_100a")[0, 0] == 2.0**-12


@pytest.mark.parametrize("kind", ["f16", "f8f6f4", "i8", "mxf8f6f4", "mxf4nvf4"])
def test_gemm_is_a_chain_of_instructions(kind: str) -> None:
    types = {"f16": ("f32", "bf16", "bf16"), "i8": ("s32", "s8", "u8"), "mxf4nvf4": ("f32", "e2m1", "e2m1")}.get(
        kind, ("f32", "e5m2", "e2m3")
    )
    for sparse in (False, True):
        ins = tcgen05.instruction(kind, *types, n=64, m=128, sparse=sparse)
        rng = np.random.default_rng(2)
        depth = 3 * ins.k
        a = rng.integers(0, 1 << ins.formats.a.bits, (128, depth // (2 if sparse else 1)), np.uint64).astype(ins.formats.a.code_dtype)
        b = rng.integers(0, 1 << ins.formats.b.bits, (depth, 64), np.uint64).astype(ins.formats.b.code_dtype)
        a, b = a.view(ins.formats.a.dtype), b.view(ins.formats.b.dtype)
        extra: dict[str, Any] = {}
        if sparse:
            chunk = {"mxf4nvf4": 8}.get(kind, 4)
            extra["metadata"] = rng.choice(np.array([4, 8, 12, 9, 13, 14], np.uint8), (128, depth // chunk))
        if ins.stype:
            dtype = FORMATS[ins.stype].dtype
            blocks = 3 * ins.scale_vec_size
            low, high = (0x30, 0x40) if ins.stype == "ue4m3" else (120, 134)
            extra["scale_a"] = rng.integers(low, high, (128, blocks)).astype(np.uint8).view(dtype)
            extra["scale_b"] = rng.integers(low, high, (blocks, 64)).astype(np.uint8).view(dtype)
        total = np.zeros((128, 64), ins.formats.d.dtype)
        step = {"metadata": ins.k // (8 if kind == "mxf4nvf4" else 4), "scale_a": ins.scale_vec_size, "scale_b": ins.scale_vec_size}
        for part in range(3):
            stored = slice(part * ins.stored_k, (part + 1) * ins.stored_k)
            now = {
                name: each[part * step[name] : (part + 1) * step[name]]
                if name == "scale_b"
                else each[:, part * step[name] : (part + 1) * step[name]]
                for name, each in extra.items()
            }
            total = mma(ins, a[:, stored], b[part * ins.k : (part + 1) * ins.k], total, target="sm_100a", **now)
        assert fastmma.gemm(a, b, instruction=ins, target="sm_100a", **extra).tobytes() == total.tobytes()
        # by the exact reference as well, a corner of it
        corner = {name: each[:, :3] if name == "scale_b" else each[:4] for name, each in extra.items()}
        exact = fastmma.gemm(a[:4], b[:, :3], instruction=ins, target="sm_100a", backend="reference", **corner)
        assert exact.tobytes() == total[:4, :3].tobytes()


@pytest.mark.parametrize(
    ("call", "target", "level", "about"),
    [
        (("f16", "f32", "f16", "f16", {}), "sm_100a", "recorded", "B200, 36 words"),
        (("mxf4nvf4", "f32", "e2m1", "e2m1", {}), "sm_100f", "recorded", "B200"),
        (("f16", "f16", "f16", "f16", {}), "sm_100a", "reported", "MMA-Sim on a B200"),
        (("f16", "f32", "f16", "f16", {"cta_group": 2}), "sm_100a", "reported", "sf-tensor"),
        (("f16", "f32", "f16", "f16", {"ws": True, "m": 32}), "sm_100a", "reported", "sf-tensor"),
        (("tf32", "f32", "tf32", "tf32", {"sparse": True}), "sm_100a", "reported", "sf-tensor"),
        (("f16", "f16", "f16", "f16", {"sparse": True}), "sm_100a", "reported", "assumed"),
        (("f8f6f4", "f16", "e4m3", "e4m3", {"ws": True}), "sm_100a", "reported", "assumed"),
        (("f8f6f4", "f32", "e4m3", "e4m3", {}), "sm_103a", "reported", "GB300"),
        (("f8f6f4", "f32", "e4m3", "e4m3", {}), "sm_107f", "reported", "GB300"),
        (("mxf4", "f32", "e2m1", "e2m1", {"k": 96}), "sm_103a", "reported", "nobody has published k of 96"),
    ],
)
def test_what_is_known(call: Any, target: str, level: str, about: str) -> None:
    *types, form = call
    ins = tcgen05.instruction(*types, **form)
    assert fidelity(ins, target).level == level
    assert about in fidelity(ins, target).source
    if level == "reported":
        with pytest.raises(TargetError, match="strict mode refuses"):
            arithmetic(ins, target, strict=True)


def test_every_instruction_has_an_arithmetic_on_each_of_its_targets() -> None:
    for ins in tcgen05.instructions():
        for target in ins.targets:
            row = arithmetic(ins, target)
            method = {"i8": "integer", "mxf4": "grouped", "mxf4nvf4": "grouped"}.get(ins.kind, "fused")
            assert row.method == method
            if method == "fused":
                assert (row.terms, row.align_bits, row.emax_floor) == (ins.stored_k, 25, -21 if ins.dtype == "f16" else -133)
            if method == "grouped":
                assert (row.terms, row.align_bits, row.emax_floor, row.group) == (4, 35, -139, 16)


def test_descriptors_that_negate_are_for_the_memory_level() -> None:
    with pytest.raises(fastmma.InstructionError, match="negate_a and negate_b are for"):
        fastmma.instruction("tcgen05.mma.cta_group::1.kind::f16", idesc=0x08200010 | 1 << 13)
