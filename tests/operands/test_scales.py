"""Scales of block-scaled instructions: registers, selectors, and the same product at both levels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference import scales as facts
from reference import sparsity
from reference.cases import cases

import fastmma
from fastmma import FORMATS, InstructionError, OperandError, OperandTypeError, sparse, warp
from fastmma.isa.codes import from_codes
from fastmma.isa.scales import scale_selectors
from fastmma.operands import scales

SCALED = [ins for ins in fastmma.instructions(op="mma") if isinstance(ins, fastmma.Instruction) and ins.scale_vec_size]
FORMS = list({(ins.scale_vec_size, ins.stype, bool(ins.sparse)): ins for ins in SCALED}.values())
DTYPES = {"ue8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn}


def selections(ins: fastmma.Instruction, operand: str) -> list[tuple[int, int]]:
    return list(itertools.product(facts.BYTE_IDS[ins.scale_vec_size], facts.THREAD_IDS[operand]))


def test_all_forms_are_there() -> None:
    assert sorted({(ins.scale_vec_size, ins.stype, ins.kind) for ins in SCALED}) == [
        (1, "ue8m0", "mxf8f6f4"),
        (2, "ue8m0", "mxf4"),
        (2, "ue8m0", "mxf4nvf4"),
        (4, "ue4m3", "mxf4nvf4"),
        (4, "ue8m0", "mxf4nvf4"),
    ]
    for ins in SCALED:
        for operand in "ab":
            found = scale_selectors(ins, operand)
            assert (found.byte_id, found.thread_id) == (facts.BYTE_IDS[ins.scale_vec_size], facts.THREAD_IDS[operand])


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("ins", FORMS, ids=str)
def test_scales_in_registers(ins: fastmma.Instruction, operand: str) -> None:
    rng = np.random.default_rng(1)
    lines = ins.m if operand == "a" else ins.n
    top = 256 if ins.stype == "ue8m0" else 128
    for byte_id, thread_id in selections(ins, operand):
        given = rng.integers(0, top, (2, lines, ins.scale_vec_size), dtype=np.uint8)
        packed = scales.pack_scales(ins, given, operand, byte_id, thread_id)
        assert packed.dtype == np.uint32
        assert packed.shape == (2, 32)
        others = np.zeros((2, 32), np.uint32)
        seen = set()
        for lane, byte in itertools.product(range(32), range(4)):
            place = facts.scale_at(operand, lane, byte, ins.scale_vec_size, byte_id, thread_id)
            held = packed[:, lane] >> np.uint32(8 * byte) & np.uint32(255)
            np.testing.assert_array_equal(held, 0 if place is None else given[:, place[0], place[1]])
            if place is None:
                others[:, lane] |= np.uint32(rng.integers(0, 256) << 8 * byte)
            seen |= {place} - {None}
        assert len(seen) == lines * ins.scale_vec_size
        np.testing.assert_array_equal(scales.unpack_scales(ins, packed | others, operand, byte_id, thread_id), given)
        if ins.stype == "ue4m3":  # it has no sign
            np.testing.assert_array_equal(scales.unpack_scales(ins.opcode, packed | 0x80808080, operand, byte_id, thread_id), given)


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("ins", FORMS, ids=str)
def test_selectors_out_of_range(ins: fastmma.Instruction, operand: str) -> None:
    given = np.zeros((ins.m if operand == "a" else ins.n, ins.scale_vec_size), np.uint8)
    registers = np.zeros(32, np.uint32)
    bytes_, threads = facts.BYTE_IDS[ins.scale_vec_size], facts.THREAD_IDS[operand]
    wrong: list[tuple[str, Any, Any]] = [("byte_id", bad, 0) for bad in (*set(range(-1, 6)) - set(bytes_), None, True, "0", 0.0)]
    wrong += [("thread_id", 0, bad) for bad in (*set(range(-1, 6)) - set(threads), None, False, "0", 0.0)]
    for name, byte_id, thread_id in wrong:
        for call in (scales.pack_scales, scales.unpack_scales):
            with pytest.raises(OperandError, match=f"{name}_{operand} must be one of") as caught:
                call(ins, given if call is scales.pack_scales else registers, operand, byte_id, thread_id)
            assert str(caught.value).startswith(ins.opcode)


INS, OPCODE = FORMS[0], "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
REGISTERS, HELD = np.zeros(32, np.uint32), {name: np.zeros((32, count), np.uint32) for name, count in (("a", 4), ("b", 2), ("c", 4))}
GIVEN = np.zeros((INS.m, INS.scale_vec_size), np.uint8)
REFUSALS = [
    (lambda: scales.unpack_scales(OPCODE, REGISTERS, "a"), InstructionError, "is not block-scaled"),
    (lambda: scales.unpack_scales(INS, REGISTERS, "c"), OperandError, "operand must be 'a' or 'b'"),
    (lambda: scales.unpack_scales(INS, REGISTERS.view(np.int32), "a"), OperandTypeError, "must have dtype uint32, not int32"),
    (lambda: scales.unpack_scales(INS, REGISTERS[:31], "a"), OperandError, r"must have shape \(..., 32\), not \(31,\)"),
    (lambda: scales.pack_scales(INS, GIVEN.astype(np.int64), "a"), OperandTypeError, "must be codes of dtype uint8"),
    (lambda: scales.pack_scales(INS, GIVEN[:8], "a"), OperandError, r"must have shape \(..., 16, 1\), not"),
    (lambda: warp.mma(OPCODE, **HELD, target="sm_90a", scale_a=REGISTERS), OperandError, "takes no scale_a"),
    (lambda: warp.mma(OPCODE, **HELD, target="sm_90a", thread_id_b=1), OperandError, "byte and thread ids must be 0"),
    (lambda: warp.mma(INS, **HELD, target="sm_120a", scale_a=REGISTERS), OperandError, "is block-scaled and needs scale_b"),
]


@pytest.mark.parametrize(("call", "error", "says"), REFUSALS)
def test_errors(call: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def operand_codes(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Any codes but those of infinities and NaNs."""
    fmt = FORMATS[name]
    codes = rng.integers(0, 1 << fmt.bits, shape).astype(np.uint8)
    finite = np.isfinite(fastmma.decode(codes, fmt).astype(np.float32))
    return np.where(finite, codes, np.uint8(1))


@cases(("index", "ins"), list(enumerate(SCALED)))
def test_both_levels_agree(index: int, ins: fastmma.Instruction) -> None:
    rng = np.random.default_rng(index)
    target = ins.targets[index % len(ins.targets)]
    a, b = operand_codes(rng, ins.atype, (ins.m, ins.stored_k)), operand_codes(rng, ins.btype, (ins.k, ins.n))
    c = rng.normal(size=(ins.m, ins.n)).astype(np.float32)
    low, top = (120, 135) if ins.stype == "ue8m0" else (0x20, 0x50)
    scale_a = rng.integers(low, top, (ins.m, ins.scale_vec_size), dtype=np.uint8)
    scale_b = rng.integers(low, top, (ins.n, ins.scale_vec_size), dtype=np.uint8)
    ids = {
        f"{name}_{operand}": value
        for operand in "ab"
        for name, value in zip(("byte_id", "thread_id"), selections(ins, operand)[index % len(selections(ins, operand))], strict=True)
    }
    registers = {
        name: scales.pack_scales(ins, given, name[-1], ids[f"byte_id_{name[-1]}"], ids[f"thread_id_{name[-1]}"])
        for name, given in (("scale_a", scale_a), ("scale_b", scale_b))
    }
    metadata: dict[str, Any] = {}
    packed: dict[str, Any] = {}
    if ins.sparse:
        name = sparsity.pattern(ins)
        chunks = ins.k // sparsity.GRANULARITIES[name].chunk
        metadata["metadata"] = rng.choice(np.array(sparsity.words(name, ordered=True)), (ins.m, chunks))
        packed["metadata"] = sparse.pack_metadata(ins, metadata["metadata"])
    expected = fastmma.mma(
        ins,
        from_codes(a, ins.atype),
        from_codes(b, ins.btype),
        c,
        target=target,
        scale_a=scale_a.view(DTYPES[ins.stype]),
        scale_b=np.ascontiguousarray(scale_b.T).view(DTYPES[ins.stype]),
        **metadata,
    )
    operands = ins.operands
    held = (fastmma.scatter(codes, operands[name], kind=ins.kind) for name, codes in (("a", a), ("b", b), ("c", c.view(np.uint32))))
    d = warp.mma(ins, *held, target=target, **registers, **ids, **packed)
    np.testing.assert_array_equal(fastmma.gather(d, operands["d"]), expected.view(np.uint32))
