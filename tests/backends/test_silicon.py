"""Experiments on a real GPU of what PTX leaves open. They need an sm_90 part: ``python -m pytest --gpu tests/backends/test_silicon.py``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fastmma
from fastmma.backends.gpu import device
from fastmma.isa.codes import encode, from_codes
from fastmma.isa.instruction import Movement
from fastmma.isa.sparsity import pattern_of
from fastmma.verification import inputs, replay
from fastmma.verification.stream import Stream
from fastmma.verification.trials import draw, variants

pytestmark = pytest.mark.gpu
TARGET = "sm_90a"
MOVES = [move for move in fastmma.instructions(TARGET) if isinstance(move, Movement) and not move.unknown]
MULTIPLIES = [ins for ins in fastmma.instructions(TARGET) if isinstance(ins, fastmma.Instruction)]


@pytest.fixture(autouse=True, scope="module")
def hopper() -> None:
    if device.native_target() != TARGET:
        pytest.skip(f"these experiments are about {TARGET}, and the GPU here is {device.native_target()}")


def both(opcode: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
    """The product on the GPU, after it was found to equal the emulator's bits."""
    real = fastmma.mma(opcode, a, b, c, target="native", backend="cupy")
    emulated = fastmma.mma(opcode, a, b, c, target=TARGET)
    width = f"u{real.dtype.itemsize}"
    np.testing.assert_array_equal(real.view(width), emulated.view(width))
    return real


def element(opcode: str, pairs: list[tuple[float, float]], c: float = 0.0) -> float:
    """The first element of d, which is the sum of the products of these pairs and c."""
    ins = fastmma.instruction(opcode)
    a, b = np.zeros((ins.m, ins.k)), np.zeros((ins.k, ins.n))
    a[0, : len(pairs)], b[: len(pairs), 0] = zip(*pairs, strict=True)
    start = np.zeros((ins.m, ins.n))
    start[0, 0] = c
    inputs = (from_codes(encode(each, fmt), fmt) for each, fmt in ((a, ins.atype), (b, ins.btype), (start, ins.ctype)))
    return float(both(opcode, *inputs)[0, 0])


WIDE = [
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16",
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32",
]


@pytest.mark.parametrize("opcode", WIDE)
def test_nothing_below_2_to_minus_158_survives_in_f32(opcode: str) -> None:
    low = 2.0**-79
    almost = (511 * 2.0**-79, low) if "tf32" in opcode else (255 * 2.0**-78, low)  # 2**-149 - 2**-158, or less 2**-157
    rest = [(low, low)] if "tf32" in opcode else [(2 * low, low)]
    assert element(opcode, [almost, *rest]) == 2.0**-149
    halves = [(each[0] / 2, each[1]) for each in rest]
    if "tf32" in opcode:
        assert element(opcode, [almost, *halves, *halves]) == 0.0  # 2**-159 twice


@pytest.mark.parametrize(
    "opcode", ["mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16"]
)
def test_nothing_below_2_to_minus_46_survives_in_f16(opcode: str) -> None:
    tie = (2.0**-12, 2.0**-13)
    assert element(opcode, [tie]) == 0.0
    assert element(opcode, [tie, (2.0**-23, 2.0**-23)]) == 2.0**-24
    assert element(opcode, [tie, (2.0**-23, 2.0**-24)]) == 0.0


@pytest.mark.parametrize("shape", ["m16n8k16", "m16n8k32"])
def test_fp8_of_mma_is_widened_to_f16_before_it_is_aligned(shape: str) -> None:
    """A subnormal e4m3 aligns by the exponent that it has as an f16."""
    opcode = f"mma.sync.aligned.{shape}.row.col.f32.e5m2.e4m3.f32"
    generator = np.random.default_rng(0)
    ins = fastmma.instruction(opcode)
    for _ in range(20):
        a = from_codes(generator.integers(0x60, 0x7B, (64, 16, ins.k), dtype=np.uint8), "e5m2")
        b = from_codes(generator.choice(np.array([1, 2, 3, 5, 7, 0x78, 0x81], np.uint8), (64, ins.k, 8)), "e4m3")
        both(opcode, a, b, np.zeros((64, 16, 8), np.float32))


@pytest.mark.parametrize("ins", [ins for ins in MULTIPLIES if ins.op == "mma" and (ins.shape, ins.atype) == ("m8n8k4", "f16")], ids=str)
def test_zeros_and_nans_of_m8n8k4(ins: fastmma.Instruction) -> None:
    agree(ins, ("zero/zero", "zero/special", "special/special", "finite edges/special"))


@pytest.mark.parametrize("ins", [ins for ins in MULTIPLIES if ins.atype == "f64"], ids=str)
def test_nans_zeros_and_roundings_of_f64(ins: fastmma.Instruction) -> None:
    agree(ins, ("zero/zero", "zero/special", "special/special", "cancel/cancel", "wide/wide"))


def agree(ins: fastmma.Instruction, labels: tuple[str, ...], **arguments: int) -> None:
    trial = draw(ins, labels, 256, 11, **arguments)
    outcome = replay.Outcome(trial.opcode, arguments)
    replay.compare(outcome, trial, trial.run(TARGET, "numba"), trial.run("native", "cupy"), TARGET)
    assert outcome.worst == ""


@pytest.mark.parametrize("move", [move for move in MOVES if move.op == "wmma.load" and move.bits >= 8], ids=str)
def test_fragments_of_wmma_element_by_element(move: Movement) -> None:
    """Every element of the matrix names itself, in as many bytes as it takes."""
    dtype = np.dtype(f"u{move.bits // 8}")
    count = move.rows * move.cols
    numbers = np.arange(count).astype(dtype)
    registers = fastmma.warp.wmma_load(move, numbers.view(np.uint8), target="native", backend="cupy")
    held = np.ascontiguousarray(registers).view(dtype)
    layout = move.layout
    offset = layout.rows * move.cols + layout.cols if move.layout_in_memory == "row" else layout.cols * move.rows + layout.rows
    np.testing.assert_array_equal(held, numbers[offset])


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_movements_move_the_same_bits(move: Movement) -> None:
    trial = draw(move, ("bits",), 64, 5)
    np.testing.assert_array_equal(trial.run("native", "cupy"), trial.run(TARGET, "numba"))


@pytest.mark.parametrize(
    "arguments", [{"scale_d": 0}, {"imm_scale_a": -1}, {"imm_scale_b": -1}, {"scale_d": 0, "imm_scale_a": -1}], ids=str
)
@pytest.mark.parametrize("types", ["m64n8k16.f32.f16.f16", "m64n8k8.f32.tf32.tf32", "m64n8k32.f32.e4m3.e5m2", "m64n8k32.f16.e5m2.e4m3"])
def test_scale_d_and_negated_operands_of_wgmma(types: str, arguments: dict[str, int]) -> None:
    ins = fastmma.instruction(f"wgmma.mma_async.sync.aligned.{types}")
    agree(ins, ("mid/mid", "special/special", "zero/zero"), **arguments)


@pytest.mark.parametrize("ins", [ins for ins in MULTIPLIES if ins.op == "wgmma" and ins.n == 8 and ins.sparse], ids=str)
def test_metadata_of_sparse_wgmma(ins: fastmma.Instruction) -> None:
    for chosen in variants(ins):
        agree(ins, ("bits/bits",), **chosen)


def test_all_backends_take_cupy_arrays_and_give_them_back() -> None:
    cupy = pytest.importorskip("cupy")
    a = cupy.asarray(np.random.default_rng(0).standard_normal((100, 64)).astype(np.float16))
    for backend in ("numba", "cupy"):
        d = fastmma.gemm(a, a.T, target="native", backend=backend)
        assert isinstance(d, cupy.ndarray)
        host = fastmma.gemm(cupy.asnumpy(a), cupy.asnumpy(a).T, target=TARGET)
        np.testing.assert_array_equal(cupy.asnumpy(d).view(np.uint32), host.view(np.uint32))
    codes = cupy.asarray(np.arange(64 * 64, dtype=np.uint8).reshape(64, 64) % 120)
    opcode = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    d = fastmma.gemm(codes, codes, instruction=opcode, target="native", backend="cupy")
    expected = fastmma.gemm(*[from_codes(cupy.asnumpy(codes), "e4m3")] * 2, instruction=opcode, target=TARGET)
    np.testing.assert_array_equal(cupy.asnumpy(d).view(np.uint32), expected.view(np.uint32))


GEMMS = [
    *("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2"),
    *("wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.u8", "wgmma.mma_async.sp.sync.aligned.m64n24k32.f32.bf16.bf16"),
    *("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
    *("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rz"),
    *("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16", "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"),
    *("mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32.satfinite", "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"),
    *("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.u8.s8.s32", "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"),
]
SIZES = [(1, 1, 1), (33, 70, 100), (16, 8, 512), (129, 65, 300)]


def same_on_both(call: Any, *operands: Any, **options: Any) -> None:
    real = call(*operands, target="native", backend="cupy", **options)
    emulated = call(*operands, target=TARGET, **options)
    np.testing.assert_array_equal(np.ascontiguousarray(real).view(np.uint8), np.ascontiguousarray(emulated).view(np.uint8))


def matrices(ins: fastmma.Instruction, lead: tuple[int, ...], m: int, n: int, k: int) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    """a (stored), b and c of moderate numbers, and the metadata if A is sparse."""
    stream = Stream("matrices", str(ins), *lead, m, n, k)
    multiplicands, accumulators = ("mid", "cancel") if fastmma.FORMATS[ins.atype].kind == "float" else ("bits", "bits")
    stored = k * ins.stored_k // ins.k
    rows = ((ins.atype, multiplicands, m, stored), (ins.btype, multiplicands, k, n), (ins.ctype, accumulators, m, n))
    found = []
    for fmt, name, *shape in rows:
        drawn = inputs.codes(fmt, name, math.prod((*lead, *shape)), stream)
        found.append(from_codes(drawn.reshape(*lead, *shape), fmt))
    if not ins.sparse:
        return found, {}
    rule = pattern_of(ins)
    words = np.array([word for word, _ in rule.words[: rule.ordered]], np.uint8)
    return found, {"metadata": stream.choice(words, (*lead, m, k // rule.chunk))}


@pytest.mark.parametrize("opcode", GEMMS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_of_any_size(opcode: str, size: tuple[int, int, int]) -> None:
    ins = fastmma.instruction(opcode)
    chunk = pattern_of(ins).chunk if ins.sparse else 1
    (a, b, c), options = matrices(ins, (), size[0], size[1], -(-size[2] // chunk) * chunk)
    options["instruction"] = ins
    same_on_both(fastmma.gemm, a, b, c, **options)
    same_on_both(fastmma.gemm, a, b, **options, split_k=2)
    if ins.dtype == "f32":
        same_on_both(fastmma.gemm, a, b, **options, promote_every=2 * ins.k)
    if not ins.sparse:
        same_on_both(fastmma.matmul, np.stack([a, a]), b, **options)


SCHEMES = [("fp8_1x128", "fp8_128x128"), ("fp8_row", "fp8_row"), ("mxfp8", "mxfp8"), ("int8_row", "int8_row")]


@pytest.mark.parametrize("schemes", SCHEMES, ids=str)
def test_scaled_products(schemes: tuple[str, str]) -> None:
    drawn = np.random.default_rng(0).standard_normal((2, 100, 300)).astype(np.float32)
    a, b = (fastmma.scaling.quantize(each, scheme) for each, scheme in zip(drawn, schemes, strict=True))
    same_on_both(fastmma.scaled_matmul, a, b.T)


@pytest.mark.parametrize("ins", [ins for ins in MULTIPLIES if ins.op != "wgmma" or ins.n in (8, 64, 256)][::7], ids=str)
def test_tiles(ins: fastmma.Instruction) -> None:
    """Matrix level, a number of tiles that fills no warp where a warp holds several."""
    found, options = matrices(ins, (5,), ins.m, ins.n, ins.k)
    same_on_both(fastmma.mma, ins, *found, **options)
