"""Every parameter of every public call, given what nobody should pass: a FastmmaError or a result, and nothing else."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma import FastmmaError, scaling, shared, sparse, study, warp, warpgroup
from fastmma.operands.scales import pack_scales, unpack_scales

ROOT = Path(__file__).parents[2]
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
BLOCKS = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
SCALED = "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3"
HALF, SINGLE = np.ones((16, 16), np.float16), np.ones((16, 16), np.float32)
TALL = np.ones((32, 16), np.float16)
NARROW = np.ones((16, 64), ml_dtypes.float4_e2m1fn)
SCALES = np.ones((16, 4), ml_dtypes.float8_e4m3fn)
WORDS = np.full((16, 8), 4, np.uint8)
MEMORY, ADDRESSES = np.zeros(4096, np.uint8), np.arange(32) * 16
INSTRUCTION = fastmma.instruction(MMA)
OPERAND = INSTRUCTION.operands["a"]  # type: ignore[union-attr]
PLACED = fastmma.placement(MMA, "a")
NESTED: list[Any] = []
for _ in range(200):
    NESTED = [NESTED]


class Array(np.ndarray[Any, Any]):
    """A subclass."""


class Text(str):
    """A subclass."""

    __slots__ = ()


VALUES: dict[str, Any] = {
    **{
        repr(each): each
        for each in (None, "", "abc", "a\0b", b"x", "\ud800", "f16", 0, 1, -1, 2, 16, 1 << 31, 1 << 63, 1 << 80, -(1 << 80))
    },
    **{
        repr(each): each
        for each in (1.5, 1.0, float("nan"), float("inf"), True, False, 3 + 4j, [], (), {}, [[1], [1, 2]], {1}, ..., int, len)
    },
    **{repr(each): each for each in (np.bool_(True), np.int64(1), np.uint8(16), np.float32(2), np.float64("nan"), slice(1), range(3))},
    "long text": "a" * 5000,
    "subclass of str": Text("e4m3"),
    "object": object(),
    "NotImplemented": NotImplemented,
    "error": ValueError("x"),
    "nested": NESTED,
    "bytearray": bytearray(4),
    "memoryview": memoryview(b"abcd"),
    "dtype": np.dtype("f2"),
    "type": np.float32,
    "no dimensions": np.array(1),
    "no dimensions, f16": np.array(1, np.float16),
    "one": np.array([1]),
    "two": np.array([1, 2]),
    "none": np.array([]),
    "no rows": np.zeros((0, 16), np.float16),
    "no columns": np.zeros((16, 0), np.float16),
    "objects": np.array([None, 1]),
    "texts": np.array(["a"]),
    "StringDType": np.array(["a", "b"], np.dtypes.StringDType()),
    "bytes": np.array([b"a"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "records": np.zeros((16, 16), [("x", "f2")]),
    "voids": np.zeros((16, 16), "V2"),
    "a subclass": HALF.view(Array),
    "matrix": SINGLE.view(np.matrix),
    "masked": np.ma.masked_array(HALF, mask=HALF > 2),
    "masked f32": np.ma.masked_array(SINGLE.copy()),
    "read-only": np.broadcast_to(np.float32(1), (16, 16)),
    "huge f16": np.broadcast_to(np.float16(1), (1 << 31, 1 << 30)),
    "huge f32": np.broadcast_to(np.float32(1), (1 << 30, 1 << 30)),
    "f64": np.ones((16, 16)),
    "s8": np.ones((16, 16), np.int8),
    "bool": np.ones((16, 16), bool),
    "c64": np.ones((16, 16), np.complex64),
    "longdouble": np.ones((16, 16), np.longdouble),
    "big-endian": HALF.astype(">f2"),
    "three dimensions": np.ones((2, 16, 16), np.float16),
    "backwards": HALF[::-1, ::-1],
    "an Instruction": INSTRUCTION,
    "a Layout": OPERAND.layout,
    "an Operand": OPERAND,
    "a ScaledArray": scaling.quantize(np.ones((16, 64), np.float32), "nvfp4"),
}


def registers(count: int) -> np.ndarray[Any, Any]:
    return np.zeros((32, count), np.uint32)


def calls() -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """Calls with arguments that are good, all of which a hostile value takes the place of."""
    gemm = {"a": HALF, "b": HALF, "c": SINGLE, "out": SINGLE.copy(), "promote_every": 16, "split_k": 1, "cast": False, "preset": None}
    where = {"target": "sm_90a", "threads": 1, "backend": "numba"}
    ids = {"selector": 0, "byte_id_a": 0, "thread_id_a": 0, "byte_id_b": 0, "thread_id_b": 0}
    nothing = {"metadata": None, "scale_a": None, "scale_b": None}
    yield "gemm", fastmma.gemm, {**gemm, **where, **nothing, "instruction": MMA, "plan": None}
    yield "gemm, chosen", fastmma.gemm, {"a": HALF, "b": HALF, "instruction": None, "cast": True, "out": None}
    yield "gemm, exact", fastmma.gemm, {**gemm, "backend": "reference"}
    yield "gemm, sparse", fastmma.gemm, {"a": HALF, "b": TALL, "metadata": WORDS}
    yield (
        "gemm, blocks",
        fastmma.gemm,
        {"a": NARROW, "b": NARROW.T, "scale_a": SCALES, "scale_b": SCALES.T, "target": "sm_120a", "out": None},
    )
    yield "gemm, preset", fastmma.gemm, {"a": HALF, "b": HALF, "preset": "cublas"}
    plan = fastmma.gemm_plan(HALF, HALF)
    yield (
        "gemm, plan",
        fastmma.gemm,
        {"a": HALF, "b": HALF, "plan": plan, "split_k": 1, "cast": False, "promote_every": None, "preset": None},
    )
    yield "gemm_plan", fastmma.gemm_plan, {**gemm, **nothing, "instruction": None, "target": "sm_90a"}
    yield "GemmPlan", type(plan), {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    yield "matmul", fastmma.matmul, {**{key: each for key, each in gemm.items() if key != "c"}, **where, "instruction": None, "plan": None}
    tile = {"a": HALF, "b": HALF[:, :8], "c": SINGLE[:, :8]}
    yield "mma", fastmma.mma, {"ins": MMA, **tile, **nothing, **where}
    one = fastmma.mma_plan(MMA, target="sm_90a")
    yield "mma, plan", fastmma.mma, {**tile, "ins": MMA, "target": None, "plan": one}
    yield "mma_plan", fastmma.mma_plan, {"ins": MMA, "target": "sm_90a"}
    yield "MmaPlan", type(one), {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
    yield "mma, sparse", fastmma.mma, {"ins": SPARSE, **tile, "b": TALL[:, :8], "metadata": WORDS, "target": "sm_90a"}
    narrow = {"a": NARROW, "b": NARROW[:8].T, "c": SINGLE[:, :8], "scale_a": SCALES, "scale_b": SCALES[:8].T}
    yield "mma, blocks", fastmma.mma, {"ins": BLOCKS, **narrow, "target": "sm_120a"}
    element = {"a": HALF, "b": HALF, "row": 1, "col": 2, "c": SINGLE, "target": "sm_90a", "against": "sm_80"}
    yield "explain", fastmma.explain, {**element, **nothing, "instruction": None, "plan": None, "promote_every": None, "split_k": 1}
    yield "explain, one", fastmma.explain, {"a": HALF, "b": HALF[:, :8], "row": 1, "col": 2, "c": SINGLE[:, :8], "plan": one}
    yield "compare", fastmma.compare, {"d": SINGLE, "other": SINGLE + 1, "tile": (8, 8)}
    held = {"a": registers(4), "b": registers(2), "c": registers(4)}
    yield "warp.mma", warp.mma, {"ins": MMA, **held, **nothing, **ids, **where}
    scales = np.full(32, 0x38383838, np.uint32)
    yield "warp.mma, blocks", warp.mma, {"ins": BLOCKS, **held, "scale_a": scales, "scale_b": scales, **ids, "target": "sm_120a"}
    moved = {"memory": MEMORY, "addresses": ADDRESSES, "backend": "numba"}
    yield "ldmatrix", warp.ldmatrix, {"opcode": "ldmatrix.sync.aligned.m8n8.x4.shared.b16", **moved}
    yield "stmatrix", warp.stmatrix, {"opcode": "stmatrix.sync.aligned.m8n8.x4.shared.b16", **moved, "registers": registers(4)}
    yield "movmatrix", warp.movmatrix, {"opcode": "movmatrix.sync.aligned.m8n8.trans.b16", "registers": registers(1)[:, 0]}
    placed = {"memory": MEMORY, "stride": None, "target": "sm_90a", "backend": "numba"}
    yield "wmma_load", warp.wmma_load, {"opcode": "wmma.load.a.sync.aligned.row.m16n16k16.f16", **placed}
    yield "wmma_store", warp.wmma_store, {"opcode": "wmma.store.d.sync.aligned.row.m16n16k16.f32", **placed, "registers": registers(8)}
    tile = shared.Tile(8, 8, "f16", swizzle=0)
    yield "Swizzle", shared.Swizzle, {"b": 3, "m": 4, "s": 3}
    yield "Swizzle()", shared.Swizzle.mode(128), {"address": ADDRESSES}
    yield "Swizzle.recast", shared.Swizzle.mode(128).recast, {"old_bits": 8, "new_bits": 16}
    about = {"rows": 8, "columns": 8, "format": "f16", "address": 0, "pitch": 16, "swizzle": 0, "padded": False}
    yield "Tile", shared.Tile, about
    yield "Tile.addresses", tile.addresses, {"row": 1, "column": 2}
    yield "Tile.store", tile.store, {"memory": MEMORY, "elements": HALF[:8, :8]}
    yield "Tile.load", tile.load, {"memory": MEMORY}
    yield "Tile.descriptor", tile.descriptor, {"row": 0, "column": 0, "mn_major": False, "beside": 16, "instruction": "wgmma"}
    yield "Box", shared.Box, {"shape": (8, 8), "format": "f16", "swizzle": 0}
    copied = {"memory": MEMORY, "tensor": HALF, "start": (0, 0), "address": 0}
    yield "Box.load", shared.Box((8, 8), "f16").load, copied
    yield "Box.store", shared.Box((8, 8), "f16").store, copied
    yield "bank_conflicts", shared.bank_conflicts, {"addresses": ADDRESSES, "width": 16, "active": None}
    group = {"d": np.zeros((128, 4), np.uint32), "a": np.zeros((128, 4), np.uint32), "b": warpgroup.Descriptor(0, 128, 128)}
    flags = {"scale_d": 1, "imm_scale_a": 1, "imm_scale_b": 1, "imm_trans_a": 0, "imm_trans_b": 0}
    yield "warpgroup.mma", warpgroup.mma, {"ins": WGMMA, **group, "memory": MEMORY, "metadata": None, "selector": 0, **flags, **where}
    yield "Descriptor", warpgroup.Descriptor, {"address": 0, "leading": 128, "stride": 128, "swizzle": 0, "base_offset": 0}
    for name in ("e4m3", "e2m1", "s8", "f64"):
        yield f"encode {name}", fastmma.encode, {"values": SINGLE, "fmt": name, "rounding": "rz", "saturate": True}
    yield "decode", fastmma.decode, {"codes": MEMORY, "fmt": "e4m3"}
    yield "gather", fastmma.gather, {"registers": registers(4), "operand": OPERAND, "kind": "", "threads": 1}
    yield "scatter", fastmma.scatter, {"matrices": HALF.view(np.uint16), "operand": OPERAND, "kind": "", "threads": 1}
    yield "instruction", fastmma.instruction, {"text": MMA}
    yield "instructions", fastmma.instructions, {"target": "sm_80", "op": "mma"}
    yield "fidelity", fastmma.fidelity, {"ins": MMA, "target": "sm_80"}
    yield "arithmetic", fastmma.arithmetic, {"ins": MMA, "target": "sm_80", "strict": False}
    yield "placement", fastmma.placement, {"ins": MMA, "operand": "a", "selector": None, "byte_id": None, "thread_id": None}
    yield "trace", fastmma.trace, {"ins": MMA, "row": 0, "col": 0, "computation": 0, **ids}
    yield "Layout.find", OPERAND.layout.find, {"row": 0, "col": 0, "tile": 0}
    yield "Placement.at", PLACED.at, {"row": 0, "col": 0, "computation": 0}
    yield "Placement.copies_of", PLACED.copies_of, {"row": 0, "col": 0, "computation": 0}
    yield "Placement.of_lane", PLACED.of_lane, {"lane": 0}
    yield "Placement.of_register", PLACED.of_register, {"register": 0}
    yield "Placement.formulas", PLACED.formulas, {"dialect": "c"}
    yield "compress", sparse.compress, {"a": HALF, "pattern": None, "prune": True}
    yield "decompress", sparse.decompress, {"stored": HALF, "metadata": WORDS, "pattern": None}
    yield "pack_metadata", sparse.pack_metadata, {"ins": SPARSE, "metadata": WORDS, "selector": 0}
    yield "unpack_metadata", sparse.unpack_metadata, {"ins": SPARSE, "registers": sparse.pack_metadata(SPARSE, WORDS), "selector": 0}
    block = {"ins": BLOCKS, "operand": "a", "byte_id": 0, "thread_id": 0}
    yield "pack_scales", pack_scales, {**block, "scales": SCALES.view(np.uint8)}
    yield "unpack_scales", unpack_scales, {**block, "registers": scales}
    x = {"x": SINGLE, "axis": -1, "rule": None, "pad": True, "threads": 1}
    yield "quantize", scaling.quantize, {**x, "scheme": "mxfp8", "rounding": "nearest", "seed": None}
    yield "quantize at random", scaling.quantize, {**x, "scheme": "nvfp4", "rounding": "stochastic", "seed": 1}
    q = scaling.quantize(np.ones((16, 64), np.float32), "nvfp4")
    yield "dequantize", q.dequantize, {"dtype": np.float32, "threads": 1}
    yield "ScaledArray[]", lambda first, second: q[first, second], {"first": slice(None), "second": slice(16)}
    parts = {"elements": q.elements, "scales": q.scales, "block": (1, 16), "axis": 1, "global_scale": np.float32(1), "scheme": "nvfp4"}
    yield "ScaledArray", fastmma.ScaledArray, parts
    yield "to_blocked", scaling.to_blocked, {"scales": SCALES}
    yield "from_blocked", scaling.from_blocked, {"blocked": scaling.to_blocked(SCALES), "rows": 16, "columns": 4}
    yield "pack_e2m1", scaling.pack_e2m1, {"elements": NARROW, "axis": -1}
    yield "unpack_e2m1", scaling.unpack_e2m1, {"packed": np.zeros((16, 32), np.uint8), "axis": -1}
    m = scaling.quantize(np.ones((16, 64), np.float32), "mxfp8")
    choices = {"target": "sm_120a", "preset": None, "instruction": None, "promote_every": None, "promotion": None, "split_k": 1}
    product = {"a": m, "b": m.T, **choices, "epilogue": ("alpha", "c", "bias", "round"), "out_dtype": "float32"}
    yield "scaled_plan", fastmma.scaled_plan, product
    more = {"c": SINGLE, "bias": SINGLE[0], "alpha": 1.0, "plan": None, "out": SINGLE.copy(), "threads": 1, "backend": "numba"}
    yield "scaled_matmul", fastmma.scaled_matmul, {**product, **more}
    yield "explain, scaled", fastmma.explain, {**product, "row": 1, "col": 2, "c": SINGLE, "bias": SINGLE[0], "alpha": 0.5, "plan": None}
    deep = fastmma.AccumulationPlan("sm_90a", SCALED, ("fp8_1x128", "fp8_128x128"), "promotion", 128, "fma", 1, ("alpha", "round"), "bf16")
    yield "AccumulationPlan", fastmma.AccumulationPlan, {field.name: getattr(deep, field.name) for field in dataclasses.fields(deep)}
    grid = {"formats": ("e4m3",), "targets": ("sm_90a",), "shapes": ((8, 8, 32),), "distributions": ("normal",)}
    yield "Grid", study.Grid, {**grid, "promote_every": (None,), "split_k": (1,), "seeds": (0,), "sample": 4}
    few = study.Grid(formats=("e4m3",), targets=("sm_90a",), shapes=((8, 8, 32),), sample=4)
    yield "study.run", study.run, {"study": few, "threads": 1, "tensors": (), "progress": None}
    yield "study.read", study.read, {"source": "nothing.npy"}


CALLS = list(calls())


@pytest.mark.parametrize(("name", "call", "arguments"), CALLS, ids=[name for name, _, _ in CALLS])
def test_hostile_arguments(name: str, call: Callable[..., Any], arguments: dict[str, Any]) -> None:
    if name != "study.read":
        call(**arguments)
    for parameter in arguments:
        for what, value in VALUES.items():
            if name == "study.run" and parameter == "progress" and callable(value):
                continue  # it is called, and what it raises is the caller's
            try:
                call(**{**arguments, parameter: value})
            except FastmmaError:
                continue
            except BaseException as error:
                raise AssertionError(f"{name}: {parameter} = {what} raises {type(error).__name__}: {error}") from error


SCRIPT = """
import numpy as np, fastmma
h = np.ones((16, 16), np.float16)
for call in (fastmma.gemm, fastmma.matmul):
    assert (call(h, h, backend="reference") == 16).all()
assert fastmma.encode(h, "e4m3").shape == (16, 16)
for call in (lambda: fastmma.gemm(h, h), lambda: fastmma.gemm(h, h), lambda: fastmma.scaling.quantize(h, "mxfp8")):
    try:
        call()
    except fastmma.BackendError as error:
        assert "NUMBA_DISABLE_JIT" in str(error)
    else:
        raise AssertionError
"""


def test_without_a_compiler_the_reference_still_works() -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("opcode", [
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
])  # fmt: skip
def test_any_byte_but_zero_is_true(opcode: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.choice(np.array([0, 1, 2, 3, 128, 255], np.uint8), shape).view(bool) for shape in ((9, 300), (300, 7)))
    clean = fastmma.gemm(a.view(np.uint8) != 0, b.view(np.uint8) != 0, instruction=opcode, target="sm_80")
    for backend in ("numba", "reference"):
        np.testing.assert_array_equal(fastmma.gemm(a, b, instruction=opcode, target="sm_80", backend=backend), clean)


def test_global_scales_that_float32_has_not() -> None:
    q = scaling.quantize(np.ones((16, 64), np.float32), "nvfp4")
    for bad in (10**400, 1e300, np.longdouble(1e300), -1.0, True, "1", None):
        with pytest.raises(fastmma.OperandError):
            dataclasses.replace(q, global_scale=bad)
    kept = dataclasses.replace(q, global_scale=np.longdouble(1) + np.longdouble(2) ** -24 + np.longdouble(2) ** -60)
    assert kept.global_scale == np.float32(1 + 2.0**-23)


def test_selectors_of_what_is_not_there() -> None:
    for name in ("selector", "byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b"):
        for bad in (1, "0", None, 0.0, np.array([0, 0])):
            with pytest.raises(fastmma.OperandError):
                fastmma.trace(MMA, 0, 0, **{name: bad})
            with pytest.raises(fastmma.OperandError):
                warp.mma(MMA, registers(4), registers(2), registers(4), target="sm_80", **{name: bad})


def test_sizes_that_no_memory_has() -> None:
    tall, wide = np.broadcast_to(np.float16(1), (1 << 33, 16)), np.broadcast_to(np.float16(1), (16, 1 << 33))
    for call in (fastmma.gemm, fastmma.matmul):
        with pytest.raises(fastmma.OutOfMemoryError):
            call(tall, wide, target="sm_80")
    for call in (
        lambda x: fastmma.encode(x, "e4m3"),
        lambda x: scaling.quantize(x, "mxfp8"),
        lambda x: fastmma.decode(x.view(np.uint16), "f16"),
    ):
        with pytest.raises(fastmma.OutOfMemoryError):
            call(np.broadcast_to(np.float16(1), (1 << 31, 1 << 30)))
