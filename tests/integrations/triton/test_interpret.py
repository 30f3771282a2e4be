"""Kernels under fastmma.triton.interpret: products against fastmma.gemm, casts against ml_dtypes, and Triton left as it was found."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fastmma

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

from fastmma.triton import from_environment, interpret, versions  # noqa: E402

RNG = np.random.default_rng(20)


@triton.jit
def product(a, b, c, d, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, IMPRECISE: tl.constexpr, ADD: tl.constexpr):
    rm = tl.arange(0, M)
    rn = tl.arange(0, N)
    rk = tl.arange(0, BK)
    acc = tl.load(c + rm[:, None] * N + rn[None, :])
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        if ADD:
            acc += tl.dot(x, y, max_num_imprecise_acc=IMPRECISE)
        else:
            acc = tl.dot(x, y, acc, max_num_imprecise_acc=IMPRECISE)
    tl.store(d + rm[:, None] * N + rn[None, :], acc)


@triton.jit
def cast(a, b, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(b + i, tl.load(a + i).to(b.dtype.element_ty))


@triton.jit
def elementwise(a, b, c, d, OPERATION: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    x, y, z = tl.load(a + i), tl.load(b + i), tl.load(c + i)
    if OPERATION == "x*y+z":
        r = x * y + z
    elif OPERATION == "z-x*y":
        r = z - x * y
    elif OPERATION == "-(x*y)-z":
        r = -(x * y) - z
    elif OPERATION == "x+y":
        r = x + y
    elif OPERATION == "x*y":
        r = x * y
    elif OPERATION == "carried":
        r = z
        p = x
        for _ in range(2):
            r = r + p
            p = x * y
        r = r + p
    elif OPERATION == "max":
        r = tl.maximum(x, y)
    else:
        r = tl.exp2(x)
    tl.store(d + i, r)


DTYPES = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8")}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def tensor(values: Any, dtype: str) -> Any:
    """A tensor of a dtype with the bits that NumPy has."""
    array = np.asarray(values).astype(getattr(ml_dtypes, dtype, dtype))
    return torch.from_numpy(array.view(f"u{array.itemsize}").astype(f"i{array.itemsize}" if array.itemsize > 1 else "u1")).view(
        DTYPES[dtype]
    )


def array(value: Any) -> np.ndarray:
    name = str(value.dtype).removeprefix("torch.")
    return value.view(BITS[value.element_size()]).numpy().view(getattr(ml_dtypes, name, name))


def ran(a: Any, b: Any, c: Any, *, block: int, imprecise: int | None = None, add: bool = False, **options: Any) -> np.ndarray:
    (m, k), n = a.shape, b.shape[1]
    d = torch.empty_like(c)
    product[(1,)](a, b, c, d, k, m, n, block, imprecise, add, **options)
    return d.numpy()


def operands(dtype: str, m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    scale = 50 if dtype == "int8" else 1
    a, b = (tensor(RNG.standard_normal(shape).clip(-2, 2) * scale, dtype) for shape in ((m, k), (k, n)))
    c = RNG.integers(-99, 99, (m, n)).astype("i4") if dtype == "int8" else RNG.standard_normal((m, n)).astype("f4")
    return a, b, torch.from_numpy(c)


# dtype, target, M, N, block of k, launch -> what gemm is asked for
CASES = [
    ("bfloat16", "H100", 64, 32, 32, {}, {"instruction": "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16"}),
    ("bfloat16", "H100", 16, 32, 32, {}, {"instruction": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"}),
    ("bfloat16", "H100", 64, 32, 32, {"num_warps": 2}, {"instruction": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"}),
    ("float16", "A100", 64, 16, 64, {}, {"instruction": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"}),
    ("float32", "H100", 64, 32, 32, {}, {"instruction": "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32"}),
    ("float8_e4m3fn", "H100", 64, 32, 64, {}, {"instruction": "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3"}),
    (
        *("float8_e5m2", "H100", 64, 32, 64, {"imprecise": 32}),
        {"instruction": "wgmma.mma_async.sync.aligned.m64n32k32.f32.e5m2.e5m2", "promote_every": 32},
    ),
    ("float8_e4m3fn", "RTX 4090", 64, 32, 64, {}, {"instruction": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"}),
    ("int8", "H100", 64, 32, 64, {}, {"instruction": "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8"}),
    ("float16", "B200", 128, 32, 64, {}, {"instruction": str(fastmma.tcgen05.instruction("f16", "f32", "f16", "f16", m=128, n=32))}),
]


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("dtype", "gpu", "m", "n", "block", "launch", "plan"), CASES)
def test_dots(dtype: str, gpu: str, m: int, n: int, block: int, launch: Any, plan: Any, add: bool) -> None:
    a, b, c = operands(dtype, m, n, 128)
    with interpret(gpu, lowering="rules") as report:
        d = ran(a, b, c, block=block, add=add, **launch)
    x, y = array(a), array(b)
    expected = c.numpy()
    folds = dtype in ("bfloat16", "float16", "float32") or gpu == "RTX 4090"
    for k in range(0, 128, block):
        part = fastmma.gemm(x[:, k : k + block], y[k : k + block], expected if folds or not add else None, target=gpu, **plan)
        expected = part if folds or not add else expected + part
    np.testing.assert_array_equal(d, expected)
    assert sum(count for (name, _), count in report.emulated.items() if name == "tl.dot") == 128 // block
    assert dict(report.plans) == {fastmma.gemm_plan(x, y, target=gpu, **plan): 128 // block}
    report.assert_all_emulated()


def test_fp8_without_wgmma_goes_through_f16_and_permutes_k() -> None:
    a, b, c = operands("float8_e4m3fn", 16, 32, 64)
    with interpret("H100", lowering="rules"):
        d = ran(a, b, c, block=64)
    group = [half + 4 * t + 2 * j + i for j in (0, 1) for half in (0, 16) for t in range(4) for i in (0, 1)]
    order = [start + k for start in (0, 32) for k in group]
    x, y = array(a).astype("f2"), array(b).astype("f2")
    opcode = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    np.testing.assert_array_equal(d, fastmma.gemm(x[:, order], y[order], c.numpy(), instruction=opcode, target="H100"))


HALVES = np.arange(1 << 16, dtype=np.uint32).astype("u2")
TIES = np.concatenate([RNG.integers(0, 1 << 32, 1 << 14, dtype="u4"), (RNG.integers(0, 1 << 13, 1 << 15, dtype="u4") << 19)])
SOURCES = {
    "float16": HALVES.view("f2"),
    "bfloat16": HALVES.view(ml_dtypes.bfloat16),
    "float32": np.concatenate([TIES, TIES[-1 << 14 :] ^ 1]).view("f4"),
    "float8_e4m3fn": np.arange(256, dtype="u1").view(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.arange(256, dtype="u1").view(ml_dtypes.float8_e5m2),
}


@pytest.mark.parametrize("source", SOURCES)
def test_casts(source: str) -> None:
    values = SOURCES[source]
    given = tensor(values, source)
    with interpret("H100") as report, np.errstate(all="ignore"):
        for target, dtype in DTYPES.items():
            if target in (source, "int8") or {source, target} == {"float8_e4m3fn", "float8_e5m2"}:  # which the compiler does not take
                continue
            result = torch.empty(len(values), dtype=dtype)
            cast[(1,)](given, result, len(values))
            if (source, target) == ("float8_e5m2", "bfloat16"):
                continue
            limit = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}.get(target, np.inf)
            expected = np.clip(values.astype("f4"), -limit, limit).astype(getattr(ml_dtypes, target, target))
            actual = array(result)
            nan = np.isnan(values.astype("f4"))
            if (source, target) == ("bfloat16", "float32"):  # as they are
                np.testing.assert_array_equal(actual[nan].view("u4") >> 16, values[nan].view("u2"))
            else:  # all bits but the sign, as an H100 has it
                assert set(actual[nan].view(f"u{actual.itemsize}").tolist()) == {(1 << 8 * actual.itemsize - 1) - 1}
            np.testing.assert_array_equal(actual[~nan].view(f"u{actual.itemsize}"), expected[~nan].view(f"u{actual.itemsize}"))
        report.assert_all_emulated()


def test_e5m2_becomes_bf16_without_infinities() -> None:
    """On an H100, e5m2 to bf16 moves bits: the codes of infinities and NaN are numbers from 65536 on."""
    result = torch.empty(8, dtype=torch.bfloat16)
    with interpret("H100"):
        cast[(1,)](torch.tensor([0x7B, 0x7C, 0x7D, 0x7F, 0xFC, 0x01, 0x80, 0x3C], dtype=torch.uint8).view(torch.float8_e5m2), result, 8)
    assert result.tolist() == [57344, 65536, 81920, 114688, -65536, 2.0**-16, 0, 1]


def calculated(operation: str, dtype: str, gpu: str = "H100", **options: Any) -> tuple[list[np.ndarray], np.ndarray, Any]:
    given = [RNG.standard_normal(1024) * np.exp2(RNG.integers(-3, 4, 1024)) for _ in range(3)]
    tensors = [tensor(values, dtype) for values in given]
    result = torch.empty_like(tensors[0])
    with interpret(gpu, **options) as report:
        elementwise[(1,)](*tensors, result, operation, 1024)
    return [array(one).astype("f8") for one in tensors], array(result), report


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_products_and_sums_round_once(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    for operation, exact in (
        ("x*y+z", lambda x, y, z: x.astype(object) * y + z),
        ("z-x*y", lambda x, y, z: z - x.astype(object) * y),
        ("-(x*y)-z", lambda x, y, z: -(x.astype(object) * y) - z),
    ):
        values, actual, report = calculated(operation, dtype)
        # sums of such numbers are exact in longdouble, from which encode rounds once
        exactly = exact(*(value.astype(np.longdouble) for value in values)).astype(np.longdouble)
        fmt = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}[dtype]
        np.testing.assert_array_equal(actual.view(f"u{kind.itemsize}"), fastmma.encode(exactly, fmt))
        assert report.emulated["+" if "+" in operation else "-", "fused multiply-add"] == 1


def test_a_product_that_a_loop_carries_is_not_fused_by_rules() -> None:
    (x, y, z), actual, report = calculated("carried", "float32", lowering="rules")
    x, y, z = (value.astype("f4") for value in (x, y, z))
    np.testing.assert_array_equal(actual, (z + x) + x * y + x * y)
    assert not report.emulated


def test_a_product_of_a_loop_that_the_compiler_unrolls_is_fused() -> None:
    """As the machine code has it: FADD, FFMA, FFMA."""
    (x, y, z), actual, report = calculated("carried", "float32")
    once = ((z.astype("f4") + x.astype("f4")).astype("f8") + x * y).astype("f4")
    np.testing.assert_array_equal(actual, (once + x * y).astype("f4"))
    assert report.emulated["+", "fused multiply-add"] == 2
    report.assert_all_emulated()


@triton.jit
def unrolled(a, b, SIZE: tl.constexpr):
    x = tl.load(a + tl.arange(0, SIZE))
    for _ in tl.static_range(3):
        x = x + 1.0
    tl.store(b + tl.arange(0, SIZE), x)


def test_unrolled_loops_are_noted_by_rules() -> None:
    a = torch.arange(16.0)
    with interpret("H100", lowering="rules") as report:
        unrolled[(2,)](a, a, 16)
    assert a.tolist() == [i + 6 for i in range(16)]
    assert [(note.partition(":")[0], count) for note, count in report.notes.items()] == [("loops of tl.static_range", 2)]


def test_fusion_can_be_off() -> None:
    (x, y, z), actual, _ = calculated("x*y+z", "float32", fp_fusion=False)
    np.testing.assert_array_equal(actual, (x.astype("f4") * y.astype("f4")) + z.astype("f4"))


@pytest.mark.parametrize(("operation", "function"), [("x+y", np.add), ("x*y", np.multiply), ("max", np.maximum)])
def test_arithmetic_of_bf16(operation: str, function: Any) -> None:
    (x, y, _), actual, _ = calculated(operation, "bfloat16")
    np.testing.assert_array_equal(actual.astype("f8"), function(x, y).astype(ml_dtypes.bfloat16).astype("f8"))


def test_what_is_not_known() -> None:
    _, _, report = calculated("exp2", "float32", "A100", lowering="rules")
    with pytest.raises(fastmma.NotEmulatedError, match=r"passed +1  exp2: ex2\.approx.*\(.*test_interpret\.py:\d+\)"):
        report.assert_all_emulated()
    assert "passed" in str(report)
    assert [line["operator"] for line in report.to_dict()["calls"] if line["status"] == "passed"] == ["exp2"]
    with pytest.raises(fastmma.NotEmulatedError, match=r"exp2 on sm_80: ex2\.approx"):
        calculated("exp2", "float32", "A100", lowering="rules", other="error")
    with pytest.warns(UserWarning, match="exp2 has NumPy's bits"):
        calculated("exp2", "float32", "A100", lowering="rules", other="warn")
    with pytest.raises(fastmma.OperandError, match="other must be one of pass, warn, error, not 'none'"), interpret(other="none"):
        pass
    with pytest.raises(fastmma.TargetError), interpret("H900"):
        pass


@triton.jit
def adding(total, count, x, N: tl.constexpr):
    tl.atomic_add(total, tl.sum(tl.load(x + tl.arange(0, N)), 0))
    tl.atomic_add(count, 1)


def test_the_order_of_atomic_sums_is_told() -> None:
    total, count = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    with interpret("H100") as report:
        adding[(3,)](total, count, torch.ones(32), 32)
    assert (total.item(), count.item()) == (96, 3)
    assert [(operation, times) for (operation, _), times in report.assumed.items()] == [("atom.global.gpu.acq_rel.add.f32", 3)]
    with interpret("H100", lowering="rules") as report:
        adding[(3,)](total, count, torch.ones(32), 32)
    assert (total.item(), count.item()) == (192, 6)
    assert ("atomic_add", 3) in [(operation, times) for (operation, _), times in report.passed.items()]


@triton.jit
def of_four_bits(a, scales, b, c, K: tl.constexpr):
    rows, half, k = tl.arange(0, 64), tl.arange(0, K // 2), tl.arange(0, K)
    pairs = tl.load(a + rows[:, None] * (K // 2) + half[None, :])
    low, high = (pairs & 15).to(tl.float16) - 8.0, (pairs >> 4).to(tl.float16) - 8.0
    weights = tl.join(low, high).reshape(64, K) * tl.load(scales + rows)[:, None]
    tl.store(c + rows[:, None] * 64 + rows[None, :], tl.dot(weights, tl.load(b + k[:, None] * 64 + rows[None, :])))


@pytest.mark.parametrize("gpu", ["A100", "RTX 5090"])
def test_the_order_of_joined_operands_is_the_compilers(gpu: str) -> None:
    generator = torch.Generator().manual_seed(6)
    a = torch.randint(0, 256, (64, 32), generator=generator).to(torch.uint8)
    scales, b = (torch.randn(shape, generator=generator).half() for shape in ((64,), (64, 64)))
    found = {}
    for lowering in ("compile", "ptx", "rules"):
        found[lowering] = torch.zeros(64, 64)
        with interpret(gpu, lowering=lowering) as report:
            of_four_bits[(1,)](a, scales, b, found[lowering], 64)
        assert bool(report.lines("assumed")) == (lowering == "rules")
        assert not report.lines("passed")
    assert torch.equal(found["compile"], found["ptx"])
    assert torch.equal(found["compile"], found["rules"])


@triton.jit
def adding_pairs(total, x, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(total + i // 2, tl.load(x + i).to(total.dtype.element_ty))


def test_rules_add_atomically_in_bf16() -> None:
    x, sums = torch.randn(64, generator=torch.Generator().manual_seed(4)), []
    for lowering in ("rules", "ptx"):
        sums.append(torch.ones(32, dtype=torch.bfloat16))
        with interpret("H100", lowering=lowering):
            adding_pairs[(1,)](sums[-1], x, 64)
    first, second = x.to(torch.bfloat16).view(32, 2).unbind(1)
    assert torch.equal(sums[0], (1 + first) + second)
    assert torch.equal(*sums)


def state() -> tuple[Any, ...]:
    builder = interpreter.InterpreterBuilder
    patched = [vars(builder)[name] for name in sorted(vars(builder))]
    language = [value for module in (tl, tl.core, tl.math, tl.standard, tl.tensor) for _, value in sorted(vars(module).items())]
    runtime = [interpreter.InterpretedFunction.run, triton.runtime.jit.JITFunction.run, triton.runtime.driver._active]
    options = [interpreter._interpreter, interpreter._get_np_dtype, interpreter._patch_lang, interpreter.interpreter_builder.options]
    return tuple(id(value) for value in (*patched, *language, *runtime, *options))


def test_triton_is_left_as_it_was() -> None:
    before = state()
    a, b, c = operands("bfloat16", 64, 32, 32)
    with interpret("A100", lowering="rules"):
        first = ran(a, b, c, block=32)
        with interpret("H100", lowering="rules") as inner:
            ran(a, b, c, block=32)
        assert "wgmma" in str(inner)
        np.testing.assert_array_equal(ran(a, b, c, block=32), first)
        with pytest.raises(fastmma.NotEmulatedError):
            calculated("exp2", "float32", "A100", lowering="rules", other="error")
        np.testing.assert_array_equal(ran(a, b, c, block=32), first)
    assert state() == before
    with pytest.raises(ZeroDivisionError), interpret("A100"):
        raise ZeroDivisionError
    assert state() == before


def test_threads_have_their_own() -> None:
    a, b, c = operands("bfloat16", 64, 32, 32)
    names = ("A100", "H100")
    alone, together = {}, {}
    for name in names:
        with interpret(name, lowering="rules"):
            alone[name] = ran(a, b, c, block=32)
    entered = threading.Barrier(3)

    def work(name: str) -> None:
        with interpret(name, lowering="rules"):
            entered.wait()
            together[name] = [ran(a, b, c, block=32) for _ in range(3)]

    before = state()
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    entered.wait()
    for thread in threads:
        thread.join()
    for name in names:
        for one in together[name]:
            np.testing.assert_array_equal(one, alone[name])
    assert state() == before


def test_other_versions_and_other_patches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        context.setattr(triton, "__version__", "9.1.0")
        with pytest.raises(fastmma.BackendError, match=r"tested with the interpreter of Triton 3\.9, not 9\.1\.0"), interpret():
            pass
    with monkeypatch.context() as context:
        context.setattr(triton, "__version__", "3.6.0")
        with pytest.raises(ImportError, match=r"needs Triton 3\.9, not 3\.6\.0"):
            importlib.reload(versions)
    with monkeypatch.context() as context:
        context.setattr(interpreter.InterpreterBuilder, "create_dot", lambda *_: None)
        with pytest.raises(fastmma.BackendError, match=r"changed by .*test_interpret"), interpret():
            pass


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with from_environment() as report:
        assert report is None
    monkeypatch.setenv("FASTMMA_TRITON", "A100")
    with from_environment() as report:
        assert report.target == "sm_80"
