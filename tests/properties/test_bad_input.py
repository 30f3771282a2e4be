"""Bad input: an error that says what is wrong, or a right result; never a crash, a hang or a silent cast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma import (
    FORMATS,
    BackendError,
    FastmmaError,
    InstructionError,
    OperandError,
    OperandTypeError,
    TargetError,
    gemm,
    instruction,
    matmul,
    mma,
    scaled_matmul,
)
from fastmma.operands.check import codes_of
from fastmma.scaling import quantize

MMA = "mma.sync.aligned."
F16 = MMA + "m16n8k16.row.col.f32.f16.f16.f32"
OPCODES = [
    F16,
    MMA + "m16n8k16.row.col.f16.f16.f16.f16",
    MMA + "m16n8k8.row.col.f32.tf32.tf32.f32",
    MMA + "m16n8k32.row.col.f32.e4m3.e5m2.f32",
    MMA + "m8n8k4.row.col.f64.f64.f64.f64",
    MMA + "m16n8k32.row.col.s32.s8.u8.s32",
    MMA + "m16n8k64.row.col.s32.s4.s4.s32",
    MMA + "m16n8k128.row.col.s32.b1.b1.s32.xor.popc",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16",
]
HALF = np.ones((4, 4), np.float16)
# no array of numbers at all
NO_ARRAYS = [None, "text", b"bytes", object(), [[1.0, 2.0], [3.0]], {"a": 1}, {1, 2}, len, 2 + 3j, [["x"]]]
NO_ARRAYS += [np.array([None, 1]), np.ones((4, 4), object)]
# arrays of dtypes that no format has
WRONG_DTYPES = [
    np.ones((4, 4), np.complex64),
    np.ones((4, 4), np.int64),
    np.ones((4, 4), np.uint16),
    np.ones((4, 4), np.longdouble),
    np.zeros((4, 4), "M8[s]"),
    np.zeros((4, 4), "U3"),
    np.zeros((4, 4), "S3"),
    np.zeros((4, 4), [("x", np.float16)]),
    np.zeros((4, 4), "V2"),
]


DTYPES = (np.float16, np.float32, np.float64, np.int8, np.uint8, np.int32, np.bool_)
DTYPES += (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4)


def inputs(opcode: str, m: int = 4, n: int = 4, k: int = 4) -> dict[str, Any]:
    ins = instruction(opcode)
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    formats = {"a": ins.atype, "b": ins.btype, "c": ins.ctype}
    return {name: np.ones(shape).astype(FORMATS[formats[name]].dtype) for name, shape in shapes.items()}


def tile(opcode: str) -> dict[str, Any]:
    ins = instruction(opcode)
    return inputs(opcode, ins.m, ins.n, ins.k)


@pytest.mark.parametrize("bad", [*NO_ARRAYS, *WRONG_DTYPES], ids=lambda bad: f"{type(bad).__name__}-{getattr(bad, 'dtype', '')}")
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_operands_that_are_no_arrays_of_the_format(name: str, bad: Any) -> None:
    for opcode in OPCODES:
        for arguments, call in ((inputs(opcode), gemm), (tile(opcode), mma)):
            if bad is None and name == "c" and call is gemm:
                continue
            arguments[name] = bad
            options = {"instruction": opcode} if call is gemm else {}
            positional = [opcode, *arguments.values()] if call is mma else list(arguments.values())
            with pytest.raises(FastmmaError) as caught:
                call(*positional, target="sm_90a", **options)
            assert opcode in str(caught.value)
            assert f": {name} " in str(caught.value)


@pytest.mark.parametrize(
    "bad",
    [*NO_ARRAYS, *WRONG_DTYPES, np.ones((4, 4), np.float32), np.ones((4, 4), np.int32)],
    ids=lambda bad: f"{type(bad).__name__}-{getattr(bad, 'dtype', '')}",
)
def test_multiplicands_without_a_default_instruction(bad: Any) -> None:
    for arguments in ((bad, HALF), (HALF, bad)):
        with pytest.raises(FastmmaError, match=r"gemm: [ab] "):
            gemm(*arguments)
        with pytest.raises(FastmmaError, match=r"(gemm|matmul): "):
            matmul(*arguments)


@pytest.mark.parametrize("opcode", OPCODES)
def test_nothing_is_cast_silently(opcode: str) -> None:
    ins = instruction(opcode)
    for name, fmt in (("a", ins.atype), ("b", ins.btype), ("c", ins.ctype)):
        for dtype in DTYPES:
            arguments = inputs(opcode)
            arguments[name] = np.ones(arguments[name].shape).astype(dtype)
            if np.dtype(dtype) == FORMATS[fmt].dtype:
                continue
            with pytest.raises(OperandTypeError) as caught:
                gemm(*arguments.values(), instruction=opcode)
            message = str(caught.value)
            assert message.startswith(f"{opcode}: {name} must have dtype {FORMATS[fmt].dtype} ({fmt}), not {np.dtype(dtype)}")
            castable = FORMATS[fmt].kind == "float" and dtype in (np.float16, np.float32, np.float64)
            assert ("cast=True" in message) == castable
            if not castable:
                with pytest.raises(OperandTypeError):
                    gemm(*arguments.values(), instruction=opcode, cast=True)


SHAPES = [
    ((4, 5), (4, 3), None),
    ((4,), (4, 3), None),
    ((4, 5), (5,), None),
    ((), (4, 3), None),
    ((2, 4, 5), (5, 3), None),
    ((4, 5), (2, 5, 3), None),
    ((4, 0), (5, 3), None),
    ((4, 5), (0, 3), None),
    ((4, 5), (5, 3), (3, 4)),
    ((4, 5), (5, 3), (4,)),
    ((4, 5), (5, 3), (1, 4, 3)),
    ((4, 5), (5, 3), (4, 1)),
    ((4, 5), (5, 3), ()),
]


@pytest.mark.parametrize(("left", "right", "start"), SHAPES)
def test_wrong_shapes(left: tuple[int, ...], right: tuple[int, ...], start: tuple[int, ...] | None) -> None:
    a, b = np.ones(left, np.float16), np.ones(right, np.float16)
    c = None if start is None else np.ones(start, np.float32)
    with pytest.raises(OperandError) as caught:
        gemm(a, b, c, instruction=F16)
    message = str(caught.value)
    assert message.startswith(F16)
    assert str(start if start is not None else left) in message


def test_huge_shapes_without_memory() -> None:
    """Broadcast arrays of terabytes: refused, or done without making them."""
    huge, thin, many = (np.broadcast_to(np.float16(1), shape) for shape in ((10**7, 10**7), (10**7, 0), (10**12, 16, 16)))
    for call in (
        lambda: gemm(huge, huge, instruction=F16),
        lambda: gemm(thin, thin.T, instruction=F16),
        lambda: matmul(huge, huge),
        lambda: mma(F16, many, np.ones((16, 8), np.float16), np.ones((16, 8), np.float32), target="sm_90a"),
        lambda: gemm(huge, np.ones((3, 3), np.float16), instruction=F16),
    ):
        with pytest.raises(FastmmaError):
            call()
    assert gemm(thin[:5], np.ones((0, 3), np.float16), instruction=F16).tolist() == [[0.0] * 3] * 5


CALLS: list[Callable[..., Any]] = [
    lambda **options: gemm(HALF, HALF, instruction=options.pop("ins", F16), **options),
    lambda **options: matmul(HALF, HALF, instruction=options.pop("ins", F16), **options),
    lambda **options: mma(options.pop("ins", F16), *tile(F16).values(), **{"target": "sm_90a", **options}),
    lambda **options: fastmma.warp.mma(
        options.pop("ins", F16),
        np.zeros((32, 4), np.uint32),
        np.zeros((32, 2), np.uint32),
        np.zeros((32, 4), np.uint32),
        **{"target": "sm_90a", **options},
    ),
]


@pytest.mark.parametrize("call", CALLS)
def test_options(call: Callable[..., Any]) -> None:
    call()
    for bad in ("cuda", "", None, 3, [], ["numba"]):
        with pytest.raises(BackendError, match="there is no backend"):
            call(backend=bad)
    for bad in ("sm_1", "", None, 90, [], ["sm_90"], b"sm_90", "sm_90a "):
        with pytest.raises(TargetError, match="unknown target"):
            call(target=bad)
    with pytest.raises(TargetError, match="illegal on sm_75"):
        call(target="sm_75")
    for bad in ("", "mma", "nonsense", 3, b"mma", ["mma"], object()):
        with pytest.raises(InstructionError):
            call(ins=bad)


@pytest.mark.parametrize("name", ["split_k", "promote_every"])
def test_accumulation_plans(name: str) -> None:
    for bad in (0, -1, 1.5, True, "2", [2], np.float64(16), 2j):
        with pytest.raises(OperandError, match=f"{name} must be an integer of at least 1, not"):
            gemm(HALF, HALF, instruction=F16, **{name: bad})
        with pytest.raises(OperandError, match=name):
            matmul(HALF, HALF, instruction=F16, **{name: bad})
    assert gemm(HALF, HALF, instruction=F16, split_k=np.int64(2)).tolist() == [[4.0] * 4] * 4
    assert gemm(HALF, HALF, instruction=F16, split_k=10**9).tolist() == [[4.0] * 4] * 4
    with pytest.raises(OperandError, match="promote_every must be a multiple of the instruction's k, 16, not 24"):
        gemm(HALF, HALF, instruction=F16, promote_every=24)
    assert gemm(HALF, HALF, instruction=F16, promote_every=16 * 10**9).tolist() == [[4.0] * 4] * 4


def read_only() -> Any:
    array = np.zeros((4, 4), np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "kind", "message"),
    [
        (np.zeros((4, 3), np.float32), OperandError, r"out must have shape \(4, 4\), not \(4, 3\)"),
        (np.zeros((1, 4, 4), np.float32), OperandError, r"not \(1, 4, 4\)"),
        (np.zeros((4, 4), np.float64), OperandTypeError, r"out must have dtype float32 \(f32\), not float64"),
        (np.zeros((4, 4), ">f4"), OperandTypeError, "not >f4"),
        (np.zeros((4, 4), object), OperandTypeError, "not object"),
        (read_only(), OperandError, "out is read-only"),
        ([[0.0] * 4] * 4, OperandTypeError, "out must be a NumPy array without a mask, not list"),
        ("out", OperandTypeError, "not str"),
        (np.ma.masked_array(np.zeros((4, 4), np.float32)), OperandTypeError, "out"),
        (np.broadcast_to(np.float32(0), (4, 4)), OperandError, "out is read-only"),
        (np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (4, 4), (4, 4)), OperandError, "out"),
        (np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (4, 4), (0, 4)), OperandError, "out"),
    ],
)
def test_out(out: Any, kind: type[Exception], message: str) -> None:
    for call in (gemm, matmul):
        with pytest.raises(kind, match=message) as caught:
            call(HALF, HALF, instruction=F16, out=out)
        assert str(caught.value).startswith(F16)
    scaled = quantize(np.ones((4, 32), np.float32), "mxfp8_e4m3")
    with pytest.raises(kind, match="out"):
        scaled_matmul(scaled, scaled.T, target="sm_120a", out=out)


def test_subclasses_and_lists() -> None:
    matrix = np.arange(16.0).reshape(4, 4)
    double = MMA + "m8n8k4.row.col.f64.f64.f64.f64"
    assert gemm(matrix.tolist(), np.eye(4).tolist(), instruction=double).tolist() == matrix.tolist()
    assert gemm(matrix.view(np.recarray), np.eye(4), instruction=double).tolist() == matrix.tolist()
    out = np.zeros((4, 4)).view(np.matrix)
    assert gemm(matrix, np.eye(4), instruction=double, out=out) is out
    assert out.tolist() == matrix.tolist()
    masked = np.ma.masked_array(np.ones((4, 4), np.float16), mask=np.eye(4, dtype=bool))
    with pytest.raises(OperandTypeError, match="masked"):
        gemm(masked, HALF, instruction=F16)


def test_castable_arrays_that_hold_what_the_format_cannot() -> None:
    opcode = MMA + "m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"
    a = np.array([[1e9, -np.inf, 0.3]])
    assert gemm(a, np.eye(3), instruction=opcode, target="sm_120a", cast=True).tolist() == [[6.0, -6.0, 0.5]]
    with pytest.raises(OperandError, match="e2m1 has neither NaN nor infinity"):
        gemm(np.array([[np.nan]]), np.eye(1), instruction=opcode, target="sm_120a", cast=True)


def test_codes_of_names_what_it_is_told() -> None:
    with pytest.raises(OperandTypeError, match=r"^the left one must have dtype float16 \(f16\), not int64$"):
        codes_of(np.arange(3), FORMATS["f16"], "the left one")
