"""Sparse A: metadata in registers, replays of an H200, zeros that must not multiply, gemm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from reference import sparsity as facts
from reference.cases import cases
from reference.operands import elements_of, matrices, multiplied
from reference.products import bits
from reference.sparse_operands import METADATA, SPARSE, random_words

import fastmma
from fastmma import FORMATS, InstructionError, OperandError, OperandTypeError, sparse
from fastmma.isa.sparsity import selectors

WARP = [ins for ins in SPARSE if ins.op == "mma" and not ins.scale_vec_size]


@cases("ins", METADATA)
def test_metadata_lies_in_registers_as_measured(ins: fastmma.Instruction) -> None:
    name = facts.pattern(ins)
    assert list(selectors(ins)) == list(range(4 // facts.contributors(ins)))
    rng = np.random.default_rng(4)
    chunks = ins.k // facts.GRANULARITIES[name].chunk
    for selector in selectors(ins):
        words = random_words(rng, name, (2, ins.m, chunks), ordered=ins.ordered_metadata)
        packed = sparse.pack_metadata(ins, words, selector=selector)
        places = {(lane, nibble): facts.word_at(ins, lane, selector, nibble) for lane in range(ins.lanes) for nibble in range(8)}
        assert len(set(places.values()) - {None}) == ins.m * chunks
        expected = np.zeros((2, ins.lanes), np.uint32)
        for (lane, nibble), place in places.items():
            if place:
                expected[:, lane] |= words[:, place[0], place[1]].astype(np.uint32) << np.uint32(4 * nibble)
        np.testing.assert_array_equal(packed, expected)
        assert packed.dtype == np.uint32
        # what other lanes hold does not matter
        others = np.array([facts.word_at(ins, lane, selector, 0) is None for lane in range(ins.lanes)])
        packed[:, others] = 0xFFFFFFFF
        np.testing.assert_array_equal(sparse.unpack_metadata(ins, packed, selector=selector), words)
        np.testing.assert_array_equal(sparse.unpack_metadata(ins.opcode, packed.astype(">u4"), selector=selector), words)


@cases("ins", METADATA)
def test_words_that_ptx_leaves_undefined_are_errors(ins: fastmma.Instruction) -> None:
    name = facts.pattern(ins)
    chunks = ins.k // facts.GRANULARITIES[name].chunk
    words = np.full((ins.m, chunks), 4, np.uint8)
    good = sparse.pack_metadata(ins, words)
    lane = next(lane for lane in range(ins.lanes) if facts.word_at(ins, lane, 0, 5) is not None)
    row, chunk = facts.word_at(ins, lane, 0, 5) or (0, 0)
    for word in range(16):
        bad = good.copy()
        bad[lane] = bad[lane] & ~np.uint32(0xF00000) | np.uint32(word << 20)
        words[row, chunk] = word
        if word in facts.words(name, ordered=ins.ordered_metadata):
            np.testing.assert_array_equal(sparse.unpack_metadata(ins, bad), words)
            np.testing.assert_array_equal(sparse.pack_metadata(ins, words), bad)
            continue
        message = rf"metadata: {word} at \({row}, {chunk}\) is no {name} index; valid are 0b0100, .*0b1110"
        with pytest.raises(OperandError, match=message) as caught:
            sparse.unpack_metadata(ins, bad)
        assert str(caught.value).startswith(ins.opcode)
        with pytest.raises(OperandError, match=message):
            sparse.pack_metadata(ins, words)


def test_unordered_words_are_errors_only_for_ordered_metadata() -> None:
    opcode = "mma.{}.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    for word in facts.unordered_words():
        words = np.full((16, 4), word)
        assert sparse.pack_metadata(opcode.format("sp"), words).any()
        with pytest.raises(OperandError, match=f"metadata: {word} at"):
            sparse.pack_metadata(opcode.format("sp::ordered_metadata"), words)


@cases("ins", METADATA)
def test_selectors_out_of_range(ins: fastmma.Instruction) -> None:
    count = 4 // facts.contributors(ins)
    words = np.full((ins.m, ins.k // facts.GRANULARITIES[facts.pattern(ins)].chunk), 4)
    registers = sparse.pack_metadata(ins, words)
    for bad in (count, -1, 4, 1 << 70, None, "0", 0.0, True, np.float32(0)):
        with pytest.raises(OperandError, match="selector must be one of 0") as caught:
            sparse.pack_metadata(ins, words, selector=bad)  # type: ignore[arg-type]
        assert repr(bad) in str(caught.value)
        with pytest.raises(OperandError, match="selector must be one of 0"):
            sparse.unpack_metadata(ins, registers, selector=bad)  # type: ignore[arg-type]
    sparse.unpack_metadata(ins, registers, selector=np.int8(0))  # type: ignore[arg-type]


SPARSE_OPCODE, DENSE_OPCODE = (f"mma{sp}.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" for sp in (".sp", ""))
WORDS = np.full((16, 4), 4)
REFUSALS = [
    (lambda: sparse.pack_metadata(SPARSE_OPCODE, WORDS[:, :3]), OperandError, r"metadata must have shape \(16, 4\), not \(16, 3\)"),
    (lambda: sparse.unpack_metadata(SPARSE_OPCODE, np.zeros(32, np.int64)), OperandTypeError, "metadata must have dtype uint32, not int64"),
    (
        lambda: sparse.unpack_metadata(SPARSE_OPCODE, np.zeros(31, np.uint32)),
        OperandError,
        r"metadata must have shape \(..., 32\), not \(31,\)",
    ),
    (lambda: sparse.unpack_metadata(SPARSE_OPCODE, np.uint32(0)), OperandError, "metadata must have shape"),
    (lambda: sparse.pack_metadata(DENSE_OPCODE, WORDS), InstructionError, "not sparse"),
    (lambda: sparse.pack_metadata("ldmatrix.sync.aligned.m8n8.x1.b16", WORDS), InstructionError, "multiplies nothing"),
]


@pytest.mark.parametrize(("call", "error", "says"), REFUSALS)
def test_errors_of_metadata(call: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


@pytest.mark.best_kernels
def test_recorded_registers(hw_vectors: Path) -> None:
    registers = 0
    seen = set()
    with np.load(hw_vectors / "H200_registers.npz") as archive:
        names = [key for key in archive.files if key.startswith("mma.sp") and key.endswith("|d")]
        for name in names:
            opcode, selector, distribution, _ = name.split("|")
            a, b, c, e, d = (archive[name[:-1] + operand] for operand in "abced")
            result = fastmma.warp.mma(opcode, a, b, c, metadata=e[..., 0], selector=int(selector), target="sm_90a")
            np.testing.assert_array_equal(result, d, err_msg=f"{opcode}, selector {selector}, {distribution}")
            seen.add((opcode, int(selector)))
            registers += d.size
    assert seen == {(ins.opcode, selector) for ins in WARP if "sm_90a" in ins.targets for selector in selectors(ins)}
    assert registers == 74_752


def selected(ins: fastmma.Instruction, metadata: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(rows, k): which places of A are stored."""
    name = facts.pattern(ins)
    ones = [True] * (metadata.shape[1] * facts.GRANULARITIES[name].stored)
    return np.array([facts.dense_row(ones, [int(word) for word in row], name, False) for row in metadata])


FLOATS = [ins for ins in METADATA if FORMATS[ins.btype].specials in ("ieee", "nan") and ins.btype[0] in "fbte" and not ins.scale_vec_size]


@cases(("index", "ins"), list(enumerate(FLOATS)))
@pytest.mark.parametrize("backend", ["numba", "reference"])
def test_b_does_not_matter_where_a_is_zero(backend: str, index: int, ins: fastmma.Instruction) -> None:
    """NaNs and infinities in B, in the positions that one row of A does not select: that row's results are as without them."""
    target = ins.targets[index % len(ins.targets)]
    given = matrices(ins, index)
    plain = multiplied(ins, given, target)
    for row in (3,) if backend == "reference" else (0, ins.m - 1):
        spoilt = {**given, "b": given["b"].copy()}
        spoilt["b"][~selected(ins, given["metadata"])[row]] = (1 << FORMATS[ins.btype].bits - 1) - 1
        result = fastmma.mma(ins, **elements_of(ins, spoilt), target=target, backend=backend)
        np.testing.assert_array_equal(bits(result[row]), plain[row])
        others = (selected(ins, given["metadata"]) != selected(ins, given["metadata"])[row]).any(axis=1)
        assert np.isnan(result[others].astype(np.float64)).all()


def test_b_does_not_matter_where_a_is_zero_at_warp_level() -> None:
    opcode = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    ins = fastmma.instruction(opcode)
    words = np.full((16, 8), 0b0100)  # the first two of every four
    b = np.ones((32, 8), np.float16)
    b[2::4], b[3::4] = np.nan, np.inf
    registers = fastmma.scatter(bits(b), ins.operands["b"])
    ones = np.full((32, 4), 0x3C003C00, np.uint32)
    metadata = sparse.pack_metadata(ins, words)
    for backend in ("numba", "reference"):
        d = fastmma.warp.mma(opcode, ones, registers, np.zeros((32, 4), np.uint32), metadata=metadata, target="sm_90a", backend=backend)
        assert (d.view(np.float32) == 16).all()
    with pytest.raises(OperandError, match="needs metadata"):
        fastmma.warp.mma(opcode, ones, registers, np.zeros((32, 4), np.uint32), target="sm_90a")
    with pytest.raises(OperandError, match="selector must be one of 0, 1, not 2"):
        fastmma.warp.mma(opcode, ones, registers, np.zeros((32, 4), np.uint32), metadata=metadata, selector=2, target="sm_90a")


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8, ml_dtypes.int4])
def test_gemm_is_the_dense_product(dtype: Any, target: str) -> None:
    """Small integers: exact whatever the order, over sizes that fill many tiles."""
    if dtype is ml_dtypes.float8_e4m3fn and target == "sm_80":
        pytest.skip("sm_80 has no fp8")
    if dtype is ml_dtypes.int4 and target == "sm_90a":
        pytest.skip("wgmma has no 4-bit types")
    rng = np.random.default_rng(6)
    dense = rng.integers(-3, 4, (70, 256)).astype(dtype)
    stored, metadata = sparse.compress(dense, prune=True)
    b = rng.integers(-3, 4, (256, 90)).astype(dtype)
    expected = sparse.decompress(stored, metadata).astype(np.float64) @ b.astype(np.float64)
    for threads in (1, 3):
        result = fastmma.gemm(stored, b, metadata=metadata, target=target, threads=threads)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"metadata": np.full((4, 3), 4)}, "metadata must have shape"),
        ({"b": np.ones((8, 3), np.float16)}, r"a of shape \(M, K / 2\)"),
        ({"a": np.ones((4, 7), np.float16), "b": np.ones((14, 3), np.float16)}, "K must be a multiple of 4"),
        ({"metadata": np.zeros((4, 4), int)}, "0 at"),
        ({"b": np.ones((8, 3), np.float16), "instruction": DENSE_OPCODE}, "takes no metadata"),
        ({"metadata": None, "instruction": SPARSE_OPCODE}, "needs metadata"),
    ],
)
def test_errors_of_sparse_gemm(change: dict[str, Any], says: str) -> None:
    good: dict[str, Any] = {"a": np.ones((4, 8), np.float16), "b": np.ones((16, 3), np.float16), "metadata": WORDS[:4]}
    fastmma.gemm(**good)
    with pytest.raises(OperandError, match=says):
        fastmma.gemm(**good | change)
