"""The CUDA emulator: as plain C++ wherever there is a compiler, and on a GPU, the bits are those of the CPU emulator."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from drivers.operations import as_operands, operands
from reference.paths import taking
from reference.plain_machine import COMPILER, PlainMachine, together

import fastmma
from fastmma.backends import resolve
from fastmma.backends.call import Operands, Operation
from fastmma.backends.compiled import Compiled
from fastmma.backends.engine import Backend
from fastmma.backends.gpu import device
from fastmma.backends.gpu.cuda_source import has_tile_kernel, matrix_tile_of, parameters, source, tile_of
from fastmma.backends.gpu.decode_table import NO_EXPONENT, decode_table
from fastmma.backends.gpu.emulator import Emulator
from fastmma.backends.gpu.executed import executed
from fastmma.backends.resolve import operation_of
from fastmma.host.errors import BackendError, OperandError
from fastmma.isa.codes import encode, from_codes
from fastmma.isa.formats import FORMATS, format_of
from fastmma.isa.instruction import Instruction
from fastmma.isa.table import multiplications
from fastmma.isa.tcgen05.instruction import largest, tcgen05_instruction
from fastmma.verification import inputs, replay

TARGETS = ("sm_70", "sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
E4M3 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
MXF8 = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
NVF4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
F64 = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
GROUPS = 16  # of instructions whose kernels are compiled together
TOGETHER = 3  # products that are the diagonal of one: that many lines fit a block of the tile kernel
# macros that say how elements are read; all others say how they are multiplied
_READING = tuple(f"{name}_{what}" for name in "AB" for what in ("CODE", "PADDING", "FRACTION", "NEGATIVE"))

without_gpu = pytest.mark.skipif(device.available(), reason="there is an NVIDIA GPU with CuPy")
with_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")


ON_GPU = [pytest.param(name, marks=pytest.mark.gpu) for name in ("GPU", "GPU without its instructions")]


@pytest.fixture(scope="session", params=["plain C++", *ON_GPU])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    if request.param != "plain C++":
        return Emulator(device, instructions=request.param == "GPU")
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "plain"  # one for all workers of a run
    folder.mkdir(exist_ok=True)
    return Emulator(PlainMachine(folder))


def pair_of(operation: Operation) -> tuple[str, str]:
    """The formats of A and B."""
    return operation.instruction.atype, operation.instruction.btype


@cache
def samples() -> list[Operation]:
    """An instruction for every way of multiplying, and for every pair of formats."""
    ways = defaultdict(list)
    for target in TARGETS:
        for ins in (*multiplications(target), *largest(target)):
            each = operation_of(ins, target)
            ways[frozenset((name, value) for name, value in parameters(each).items() if name not in _READING)].append(each)
    found, pairs = [], set()
    # the ways that serve few pairs of formats choose first, so that others can take the pairs that are left
    for way in sorted(ways.values(), key=lambda way: len({pair_of(each) for each in way})):
        found.append(next((each for each in way if pair_of(each) not in pairs), way[0]))
        pairs.add(pair_of(found[-1]))
    for each in (each for way in ways.values() for each in way):
        if pair_of(each) not in pairs:
            found.append(each)
            pairs.add(pair_of(each))
    found.append(operation_of("fma.rn.f32", "sm_80"))
    return [*found, operation_of(tcgen05_instruction("mxf4nvf4", "f32", "e2m1", "e2m1", k=96), "sm_103a")]


def drawn(ins: Instruction, products: int, size: tuple[int, int, int], pair: tuple[str, str], seed: int) -> Operands:
    """Operands of a pair of distributions."""
    return as_operands(operands(np.random.default_rng(seed), ins, *size, products, pair=pair))


def after_another(given: list[Operands]) -> Operands:
    """The products of several as one batch."""
    return Operands(*(None if parts[0] is None else np.concatenate(parts) for parts in zip(*given, strict=True)))


def side_by_side(given: list[Operands]) -> Operands:
    """One product of all rows and all columns; those of several lie on its diagonal."""
    wide = [each._replace(c=np.tile(each.c, len(given))) for each in given if each.c is not None]
    axes = Operands(a=1, b=2, c=1, metadata=1, scale_a=1, scale_b=2)
    return Operands(*(None if parts[0] is None else np.concatenate(parts, axis) for axis, *parts in zip(axes, *wide, strict=True)))


def assert_same(engine: Backend, operation: Operation, given: Operands, what: object = "") -> None:
    """On the CPU and on the machine; the CPU's portable kernels serve all ways, while of the fast ones each would be compiled for one."""
    dtype = operation.instruction.formats.d.code_dtype
    expected, got = np.empty(given.c.shape, dtype), np.empty(given.c.shape, dtype)
    with taking("portable"):
        Compiled().run(operation, given, expected, 1)
    engine.run(operation, given, got, 1)
    np.testing.assert_array_equal(got, expected, f"{operation.instruction} on {operation.target} {what}")


def sources(engine: Emulator, operation: Operation) -> list[str]:
    """The CUDA C++ of all kernels that an operation may run."""
    found = [source(operation, "element")]
    if has_tile_kernel(operation):
        found.append(source(operation, "matrices" if matrix_tile_of(operation) else "tile"))
    own = engine.executed(operation)
    return [*found, source(operation, "instruction", own)] if own else found


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_way_of_multiplying_has_the_bits_of_the_cpu(engine: Emulator, group: int) -> None:
    chosen = samples()[group::GROUPS]
    if isinstance(engine.machine, PlainMachine):
        engine.machine.compile(text for operation in chosen for text in sources(engine, operation))
    for operation in chosen:
        ins = operation.instruction
        pairs = list(enumerate(inputs.PAIRS if format_of(ins.atype).kind == "float" else inputs.INTEGER_PAIRS))
        size = ins.m, min(ins.n, 16), ins.k
        assert_same(engine, operation, after_another([drawn(ins, 2, size, pair, seed) for seed, pair in pairs]), f"two each of {pairs}")
        if ins.ctype == ins.dtype:
            # lines with infinities and NaNs are computed again, and so would be all that cross them
            pairs.sort(key=lambda each: each[1][0] not in ("bits", "special"))
            for first in range(0, len(pairs), TOGETHER):
                chosen_pairs = pairs[first : first + TOGETHER]
                given = [drawn(ins, 1, (19, 21, ins.k + ins.k // 2), pair, seed) for seed, pair in chosen_pairs]
                assert_same(engine, operation, side_by_side(given), f"19 rows and 21 columns each of {chosen_pairs}")


BLOCKS = [
    (F16, "sm_80"),
    (F16, "sm_100a"),
    (E4M3, "sm_90a"),
    (MXF8, "sm_120a"),
    (NVF4, "sm_120a"),
    (SPARSE, "sm_90a"),
    (S8, "sm_80"),
    (F64, "sm_80"),
]


@pytest.mark.parametrize(("opcode", "target"), BLOCKS)
@pytest.mark.parametrize("size", [(1, 1, 0), (1, 1, 32), (131, 67, 160), (64, 200, 32), (257, 3, 480)])
def test_sizes_around_blocks(engine: Backend, opcode: str, target: str, size: tuple[int, int, int]) -> None:
    operation = operation_of(opcode, target)
    assert_same(engine, operation, drawn(operation.instruction, 1, size, ("bits", "bits") if opcode == S8 else ("mid", "mid"), 1))


@pytest.mark.parametrize(("opcode", "target"), [(F16, "sm_80"), (NVF4, "sm_120a"), (S8, "sm_80"), (F64, "sm_80")])
def test_many_products_take_one_launch_and_may_share_an_operand(engine: Emulator, opcode: str, target: str) -> None:
    operation = operation_of(opcode, target)
    ins = operation.instruction
    given = drawn(ins, 3, (9, 70, 2 * ins.k), inputs.INTEGER_PAIRS[0] if opcode == S8 else inputs.PAIRS[0], 1)
    shared = given._replace(b=np.broadcast_to(given.b[:1], given.b.shape))
    assert engine.sent(operation, shared).b.shape == (1, 2 * ins.k, 70)
    for each in (given, shared):
        assert_same(engine, operation, each)


@pytest.mark.parametrize(("opcode", "target"), [(F16, "sm_90a"), (E4M3, "sm_90a"), (MXF8, "sm_120a"), (SPARSE, "sm_80")])
def test_single_specials_among_finite_elements(engine: Backend, opcode: str, target: str) -> None:
    operation = operation_of(opcode, target)
    given = drawn(operation.instruction, 1, (70, 70, 64), ("mid", "mid"), 1)
    nan = encode(np.nan, operation.instruction.atype)
    given.a[0, 5, 7] = nan
    given.a[0, 66, 0] = given.b[0, 3, 68] = nan if operation.instruction.atype == "e4m3" else encode(-np.inf, operation.instruction.atype)
    given.c[0, 11, 13], given.c[0, 12, 14], given.c[0, 13, 15] = encode([np.inf, -np.inf, np.nan], "f32")
    assert_same(engine, operation, given)


def test_no_c_is_zero_and_strided_results_are_written(engine: Backend) -> None:
    operation = operation_of(F16, "sm_90a")
    given = drawn(operation.instruction, 1, (9, 10, 16), ("mid", "zero"), 1)._replace(c=None)
    memory = np.zeros((20, 10), np.uint32)
    expected = np.empty((9, 10), np.uint32)
    engine.run(operation, given, memory[None, 1:19:2], 1)
    Compiled().run(operation, given, expected[None], 1)
    np.testing.assert_array_equal(memory[1:19:2], expected)
    assert not memory[::2].any()


def test_the_tables_say_what_an_instruction_of_the_machine_may_compute() -> None:
    def own(opcode: str, target: str, machine: str) -> str | None:
        found = executed(operation_of(opcode, target), machine)
        return found.opcode if found else None

    # 25 bits aligned on sm_90 and later, 24 on sm_80
    assert own(F16, "sm_120a", "sm_90a") == own(F16, "sm_90a", "sm_100a") == F16
    assert own(F16, "sm_80", "sm_90a") is own(F16, "sm_90a", "sm_80") is own(SPARSE, "sm_90a", "sm_90a") is None
    assert own(F16, "sm_86", "sm_80") == F16
    # sixteen products a step, on sm_80 eight
    assert own("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "sm_86", "sm_80") == "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
    # the sums of integers are the same in any order, unless they are clamped on the way
    assert own("mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32", "sm_75", "sm_90a") == "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32"
    assert own("mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.s4.s32", "sm_80", "sm_90a") is None
    # the short sums of 8-bit floats are those of a warpgroup, of one architecture
    wgmma = "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2"
    assert own(wgmma.replace("n128", "n8"), "sm_90a", "sm_90a") == wgmma
    assert own(wgmma, "sm_90a", "sm_100a") is None
    # zeros up to k = 4 are added to a chain of fma, and no more
    assert own(F64, "sm_80", "sm_90a") == "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64"


def test_decode_tables_hold_what_the_formats_define() -> None:
    # columns: exponent, significand, special
    e4m3 = decode_table(FORMATS["e4m3"])[:, 1:]
    assert e4m3[[0x00, 0x01, 0x38, 0xB9, 0x7E, 0x7F]].tolist() == [
        [NO_EXPONENT, 0, 0],
        [-6, 1, 0],
        [0, 8, 0],
        [0, -9, 0],
        [8, 14, 0],
        [NO_EXPONENT, 0, 2],
    ]
    # as f16, which has ten fraction bits, 2**-9 is a normal number
    assert decode_table(FORMATS["e4m3"], FORMATS["f16"])[0x01, 1:].tolist() == [-9, 1024, 0]
    f16 = decode_table(FORMATS["f16"])[:, 1:]
    assert f16[[0x7C00, 0xFC00, 0x7C01, 0x0001]].tolist() == [[NO_EXPONENT, 0, 1], [NO_EXPONENT, 0, 1], [NO_EXPONENT, 0, 2], [-14, 1, 0]]
    assert decode_table(FORMATS["ue8m0"])[[0, 127, 254, 255], 1:].tolist() == [[-127, 1, 0], [0, 1, 0], [127, 1, 0], [NO_EXPONENT, 0, 2]]
    assert decode_table(FORMATS["s4"])[[0x7, 0x8, 0xF8], 2].tolist() == [7, -8, -8]
    assert len(decode_table(FORMATS["tf32"])) == 1 << 19


@with_nvcc
@pytest.mark.parametrize(
    ("machine", "given"),
    [("sm_75", ((F16, "sm_80"), (NVF4, "sm_120a"))), ("sm_90", ((E4M3, "sm_90a"), (MXF8, "sm_120a"), (SPARSE, "sm_90a")))],
)
def test_nvcc_compiles_kernels_that_fit_the_machine(machine: str, given: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    texts = []
    for opcode, target in given:
        operation = operation_of(opcode, target)
        assert has_tile_kernel(operation)
        assert tile_of(operation).shared_bytes <= 64 * 1024
        own = executed(operation, machine)
        texts += [
            source(operation, main, ins) for main, ins in (("element", None), ("tile", None), *((("instruction", own),) if own else ()))
        ]
    path = tmp_path / "kernels.cu"
    path.write_text(together(texts))
    command = ["nvcc", "-std=c++17", f"-arch={machine}", "-cubin", "-o", str(tmp_path / "out"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@without_gpu
def test_without_a_gpu_the_backend_says_so_after_checking_operands() -> None:
    a = np.ones((4, 4), ml_dtypes.float8_e4m3fn)
    with pytest.raises(BackendError, match=r"CuPy|GPU"):
        fastmma.gemm(a, a, target="sm_120a", backend="cupy-emulate")
    with pytest.raises(OperandError, match="shape"):
        fastmma.gemm(a, a[:3], target="sm_120a", backend="cupy-emulate")


@pytest.fixture
def backend(engine: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The backend by its name, on either machine."""
    monkeypatch.setitem(resolve._BACKENDS, "cupy-emulate", lambda: engine)
    resolve._made.cache_clear()
    yield "cupy-emulate"
    resolve._made.cache_clear()


@pytest.mark.parametrize("engine", ON_GPU, indirect=True)
def test_recordings_of_silicon_are_replayed(backend: str) -> None:
    report = replay.replay(backend=backend)
    assert report.elements > 1_000_000
    assert [outcome.worst for outcome in report.outcomes if outcome.wrong] == []


OWN = [
    (F16, {"align_bits": 9, "keep_bits": 14, "emax_floor": -5}),
    (F16, {"align_bits": 20, "terms": 4}),
    (E4M3, {"align_bits": 20, "keep_bits": 20}),
    (MXF8, {"align_bits": 12}),
    (NVF4, {"align_bits": 7, "terms": 2}),
]


@pytest.mark.parametrize(("opcode", "changes"), OWN)
def test_arithmetics_of_ones_own(backend: str, opcode: str, changes: dict[str, int]) -> None:
    generator = np.random.default_rng(1)
    target = "sm_90a" if opcode in (F16, E4M3) else "sm_120a"
    ins, own = fastmma.instruction(opcode), replace(fastmma.arithmetic(opcode, target), **changes)
    formats, depth = ins.formats, ins.k + 8
    numbers = ((formats.a, (3, depth)), (formats.b, (depth, 2)))
    a, b = (from_codes(encode(generator.standard_normal(shape), fmt), fmt) for fmt, shape in numbers)
    given: dict[str, Any] = {"instruction": opcode, "target": target, "arithmetic": own}
    if formats.scale:
        blocks = -(-depth * ins.scale_vec_size // ins.k)
        for name, shape in (("scale_a", (3, blocks)), ("scale_b", (blocks, 2))):
            given[name] = from_codes(encode(2.0 ** generator.integers(-3, 4, shape), formats.scale), formats.scale)
    expected = fastmma.gemm(a, b, backend="reference", **given)
    np.testing.assert_array_equal(fastmma.gemm(a, b, backend=backend, **given), expected)
    with pytest.raises(BackendError, match="no CUDA kernel computes"):
        fastmma.gemm(a, b, backend=backend, **(given | {"arithmetic": replace(own, rounding="ro")}))


@pytest.mark.parametrize("options", [{}, {"promote_every": 64}, {"split_k": 2}])
def test_public_calls_take_the_backend(backend: str, options: dict[str, int]) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((2, 70, 160), (160, 40)))
    expected = fastmma.matmul(a, b, target="sm_120a", **options)
    np.testing.assert_array_equal(fastmma.matmul(a, b, target="sm_120a", backend=backend, **options), expected)
