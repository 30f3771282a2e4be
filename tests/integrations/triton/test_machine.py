"""The PTX of compiled kernels, executed: against what an H200 left, against formulas of PTX, and against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.runtime.errors import OutOfResources  # noqa: E402

import fastmma.torch  # noqa: E402
from fastmma.functions import special  # noqa: E402
from fastmma.triton import interpret  # noqa: E402
from fastmma.triton.machine import integers  # noqa: E402
from fastmma.triton.machine.kernel import Machine  # noqa: E402
from tests.integrations.triton.test_machine_code import RECORDING, replayed, shortened, taken  # noqa: E402
from tests.reference.ptx_forms import execute, ptx  # noqa: E402

RNG = np.random.default_rng(7)
U32 = np.uint32
# a body that computes %r9 of %r2 to %r5, and the same by Python's numbers
BODIES: dict[str, tuple[str, Callable[..., int]]] = {
    "bfe.u32": ("bfe.u32 %r9, %r2, 5, 9;", lambda a, *_: a >> 5 & 511),
    "bfe.s32": ("bfe.s32 %r9, %r2, 5, 9;", lambda a, *_: (a >> 5 & 511) - 2 * (a >> 5 & 256)),
    "bfi": ("bfi.b32 %r9, %r2, %r3, 4, 8;", lambda a, b, *_: b & ~0xFF0 | (a & 0xFF) << 4),
    "prmt": ("prmt.b32 %r9, %r2, %r3, 0x9024;", lambda a, b, *_: b & 255 | (a >> 8 & 0xFF00) | (a & 255) << 16 | 255 * (a >> 15 & 1) << 24),
    "lop3": ("lop3.b32 %r9, %r2, %r3, %r4, 0x96;", lambda a, b, c, _: a ^ b ^ c),
    "shf": ("shf.l.wrap.b32 %r9, %r2, %r3, 35;", lambda a, b, *_: (b << 32 | a) << 3 >> 32),
    "shr beyond": ("and.b32 %r10, %r3, 63; shr.u32 %r9, %r2, %r10;", lambda a, b, *_: a >> (b & 63)),
    "add.cc": ("add.cc.u32 %r10, %r2, %r3; addc.u32 %r9, %r4, %r5;", lambda a, b, c, d: (a + b >> 32) + c + d),
    "addc.cc": (
        "add.cc.u32 %r9, %r2, %r2; addc.cc.u32 %r9, %r3, %r3; addc.u32 %r9, %r4, 0;",
        lambda a, b, c, _: (a + (b << 32)) * 2 + (c << 64) >> 64,
    ),
    "sub.cc": ("sub.cc.u32 %r10, %r2, %r3; subc.u32 %r9, %r4, %r5;", lambda a, b, c, d: (a - b >> 32) + c - d),
    "madc": ("mad.lo.cc.u32 %r10, %r2, %r3, %r4; madc.hi.u32 %r9, %r2, %r3, %r5;", lambda a, b, c, d: a * b + c + (d << 32) >> 32),
    "madc.s32": (
        "mad.lo.cc.s32 %r10, %r2, %r3, %r4; madc.hi.s32 %r9, %r2, %r3, %r5;",
        lambda a, b, c, d: (((signed(a) * signed(b) & 0xFFFFFFFF) + c) >> 32) + (signed(a) * signed(b) >> 32) + d,
    ),
    "mul.hi.s32": ("mul.hi.s32 %r9, %r2, %r3;", lambda a, b, *_: signed(a) * signed(b) >> 32),
    "mul.hi.u64": (
        "mov.b64 %rd5, {%r2, %r3}; mov.b64 %rd6, {%r4, %r5}; mul.hi.u64 %rd7, %rd5, %rd6; cvt.u32.u64 %r9, %rd7;",
        lambda a, b, c, d: (b << 32 | a) * (d << 32 | c) >> 64,
    ),
    "div.s32": ("div.s32 %r9, %r2, %r3;", lambda a, b, *_: int(signed(a) / signed(b))),
    "popc, clz": ("popc.b32 %r10, %r2; clz.b32 %r11, %r3; add.s32 %r9, %r10, %r11;", lambda a, b, *_: a.bit_count() + 32 - b.bit_length()),
    "branches": (
        "setp.gt.u32 %p1, %r2, %r3; @%p1 bra $A; mov.b32 %r9, %r4; bra.uni $B;\n$A:\n mov.b32 %r9, %r5;\n$B:\n add.s32 %r9, %r9, 1;",
        lambda a, b, c, d: (d if a > b else c) + 1,
    ),
    "loop": (
        "and.b32 %r10, %r2, 7; mov.b32 %r9, 0;\n$C:\n add.s32 %r9, %r9, %r3; sub.s32 %r10, %r10, 1; setp.ge.s32 %p2, %r10, 0; @%p2 bra $C;",
        lambda a, b, *_: b * ((a & 7) + 1),
    ),
    "scope": ("{ .reg .b32 t; xor.b32 t, %r2, %r3; not.b32 %r9, t; }", lambda a, b, *_: ~(a ^ b)),
    "bfind.shiftamt": ("bfind.shiftamt.u32 %r9, %r2;", lambda a, *_: 32 - a.bit_length()),
    "prmt.b4e": (
        "prmt.b32.b4e %r9, %r2, %r3, 1;",
        lambda a, b, *_: sum(((b << 32 | a) >> 8 * byte & 255) << 8 * index for index, byte in enumerate((1, 0, 7, 6))),
    ),
    "add.sat": ("add.sat.s32 %r9, %r2, %r3;", lambda a, b, *_: max(-(1 << 31), min((1 << 31) - 1, signed(a) + signed(b)))),
    "slct": ("slct.b32.s32 %r9, %r2, %r3, %r4;", lambda a, b, c, _: b if c >> 31 else a),
    "bytes": ("dp4a.u32.u32 %r9, %r2, %r3, %r4;", lambda a, b, c, _: c + sum((a >> i & 255) * (b >> i & 255) for i in (0, 8, 16, 24))),
}


def signed(value: int) -> int:
    return value - (value >> 31 << 32)


@pytest.mark.parametrize("name", BODIES)
def test_instructions(name: str) -> None:
    body, formula = BODIES[name]
    given = RNG.integers(0, 1 << 32, (64, 4), dtype=np.uint64).astype(U32)
    assert execute(body, given).tolist() == [formula(*map(int, row)) & 0xFFFFFFFF for row in given]


@pytest.mark.parametrize(
    ("fmt", "opcode", "function"),
    [
        (np.float16, "ex2.approx.f16x2", special.ex2_of_halves),
        (ml_dtypes.bfloat16, "ex2.approx.ftz.bf16x2", special.ex2_of_halves),
        (np.float16, "tanh.approx.f16x2", special.tanh_of_halves),
        (ml_dtypes.bfloat16, "tanh.approx.bf16x2", special.tanh_of_halves),
    ],
)
def test_approximations_of_pairs(fmt: Any, opcode: str, function: Any) -> None:
    given = RNG.integers(0, 1 << 32, (32, 4), dtype=np.uint64).astype(U32)
    out = execute(f"{opcode} %r9, %r2;", given)
    halves = np.ascontiguousarray(given[:, 0]).view(fmt)
    assert out.view(np.uint16).tolist() == function(halves).view(np.uint16).tolist()


@pytest.mark.parametrize("modes", ["", ".NaN", ".abs", ".abs.NaN"])
def test_extrema_of_a_warp(modes: str) -> None:
    given = drawn(9)
    for value in (given[3, 0], np.nan):
        given[3] = value
        values = np.abs(given[:, 0]) if "abs" in modes else given[:, 0]
        expected = [np.nan if "NaN" in modes and np.isnan(values).any() else getattr(np, f"nan{name}")(values) for name in ("max", "min")]
        found = [execute(f"redux.sync.{name}{modes}.f32 %r9, %r2, 0xffffffff;", given.view(U32)).view("f4") for name in ("max", "min")]
        np.testing.assert_array_equal(found, np.float32(np.repeat(np.reshape(expected, (2, 1)), 32, 1)))
    zeros = np.repeat(np.float32([[0], [-0.0]] * 16), 4, 1).view(U32)
    assert set(execute("redux.sync.max.f32 %r9, %r2, 0xffffffff;", zeros).tolist()) == {0}
    assert set(execute("redux.sync.min.f32 %r9, %r2, 0xffffffff;", zeros).tolist()) == {1 << 31}


def drawn(spread: int) -> Any:
    """Numbers of f32 of many magnitudes, in rows of four."""
    return (RNG.standard_normal((32, 4)) * np.exp2(RNG.integers(-spread, spread, (32, 4)))).astype("f4")


DIRECTED: dict[str, tuple[str, Callable[..., Fraction]]] = {
    "add": ("%r2, %r3", lambda a, b, *_: a + b),
    "sub": ("%r2, %r3", lambda a, b, *_: a - b),
    "mul": ("%r2, %r3", lambda a, b, *_: a * b),
    "fma": ("%r2, %r3, %r4", lambda a, b, c, _: a * b + c),
    "div": ("%r2, %r3", lambda a, b, *_: a / b),
    "rcp": ("%r2", lambda a, *_: 1 / a),
}


@pytest.mark.parametrize("name", DIRECTED)
@pytest.mark.parametrize("direction", ["rz", "rm", "rp"])
def test_directed_rounding(name: str, direction: str) -> None:
    operands, formula = DIRECTED[name]
    for spread in (2, 40, 62):  # results below the normal numbers, too
        given = drawn(spread)
        found = execute(f"{name}.{direction}.f32 %r9, {operands};", given.view(U32)).view("f4")
        for row, result in zip(given, found, strict=True):
            exact = formula(*(Fraction(float(value)) for value in row))
            up = {"rz": exact < 0, "rm": False, "rp": True}[direction]
            near = np.nextafter(result, np.float32(-np.inf if up else np.inf))
            assert (
                (Fraction(float(near)) < exact <= Fraction(float(result)))
                if up
                else (Fraction(float(result)) <= exact < Fraction(float(near)))
            )


def test_conversions_in_a_direction() -> None:
    given = drawn(12)
    whole = RNG.integers(-(1 << 31), 1 << 31, (32, 4)).astype(np.int32)
    for direction, towards in (("rm", -np.inf), ("rp", np.inf)):
        found = execute(f"cvt.{direction}.f16.f32 %rs1, %r2; cvt.u32.u16 %r9, %rs1;", given.view(U32)).astype(np.uint16).view(np.float16)
        beyond = np.nextafter(found, np.float16(-towards)).astype("f4")
        assert (found >= given[:, 0]).all() if direction == "rp" else (found <= given[:, 0]).all()
        assert (beyond < given[:, 0]).all() if direction == "rp" else (beyond > given[:, 0]).all()
        of_integers = execute(f"cvt.{direction}.f32.s32 %r9, %r2;", whole.view(U32)).view("f4").astype("f8")
        assert (of_integers >= whole[:, 0]).all() if direction == "rp" else (of_integers <= whole[:, 0]).all()
        assert (np.abs(of_integers - whole[:, 0]) < 256).all()


def test_narrow_conversions_of_blackwell() -> None:
    given = np.abs(drawn(4))
    pair = execute("cvt.rp.satfinite.ue8m0x2.f32 %rs1, %r2, %r3; cvt.u32.u16 %r9, %rs1;", given.view(U32))
    exponents = np.ceil(np.log2(given[:, :2].astype("f8"))).astype(int) + 127
    assert (pair == exponents[:, 0] << 8 | exponents[:, 1]).all()
    body = "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, %r2, %r3; mov.b32 %r9, {t, t, t, t}; }"
    codes = given[:, :2].astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert (execute(body, given.view(U32)) & 255 == codes[:, 0].astype(U32) << 4 | codes[:, 1]).all()


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("flush", ["", ".ftz"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_pairs_of_f32(name: str, flush: str, half: int) -> None:
    """Each half is what the same instruction of one f32 gives."""
    given = drawn(100)
    given[:5, :] = np.float32([[0.0], [-0.0], [np.inf], [np.nan], [float.fromhex("0x1p-149")]])
    joined = "mov.b64 %rd5, {%r2, %r3}; mov.b64 %rd6, {%r4, %r5}; mov.b64 %rd7, {%r3, %r4};"
    taken_apart = f"mov.b64 {{%r10, %r11}}, %rd8; mov.b32 %r9, %r{10 + half};"
    pairs, single = "%rd5, %rd6", f"%r{2 + half}, %r{4 + half}"
    if name == "fma":
        pairs, single = f"{pairs}, %rd7", f"{single}, %r{3 + half}"
    with np.errstate(all="ignore"):
        found = execute(f"{joined} {name}.rn{flush}.f32x2 %rd8, {pairs}; {taken_apart}", given.view(U32))
        expected = execute(f"{name}.rn{flush}.f32 %r9, {single};", given.view(U32))
    np.testing.assert_array_equal(found, expected)


@triton.jit
def softmax_of_rows(x, y, M: tl.constexpr, N: tl.constexpr):
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    values = tl.load(x + places)
    raised = tl.exp(values - tl.max(values, 1)[:, None])
    tl.store(y + places, raised / tl.sum(raised, 1)[:, None])


def test_blackwells_pairs_are_executed_and_assumed() -> None:
    """The interpreter does not know the order of sums of Blackwell; nobody reads what ptxas fuses with pairs."""
    x = torch.randn(16, 512, generator=torch.Generator().manual_seed(3))
    y = torch.empty_like(x)
    with interpret("B200") as report:
        softmax_of_rows[(1,)](x, y, 16, 512)
    torch.testing.assert_close(y, torch.softmax(x, 1), rtol=1e-5, atol=0)
    assert not report.passed
    assert any("f32x2" in str(line) for line in report.lines("assumed"))


def test_tangents_are_the_special_function_units() -> None:
    given = drawn(3)
    assert execute("tanh.approx.f32 %r9, %r2;", given.view(U32)).view("f4") == pytest.approx(np.tanh(given[:, 0]), rel=2.0**-10)


@pytest.mark.parametrize(
    "opcode",
    ["fma.rn.oob.f16", "rcp.approx.ftz.f64", "cvt.rs.f16x2.f32", "max.relu.f32", "vadd4.u32.u32.u32", "tcgen05.shift.cta_group::1.down"],
)
def test_what_nothing_executes_is_named(opcode: str) -> None:
    with pytest.raises(fastmma.NotEmulatedError, match=opcode.split(".")[0]):
        Machine(ptx(f"{opcode} %r9, %r2, %r3, %r4;"), 0, "sm_90a")
    assert integers.divide(np.int32([-7, 7]), np.int32([2, 0])).tolist() == [-3, -1]


def test_h200() -> None:
    """All results, also those that the interpreter passes: each is equal, and each is claimed."""
    different = []
    with np.load(RECORDING) as recorded:
        for launch in taken():
            results, report = replayed(launch, lowering="ptx")
            is_equal = all(
                np.array_equal(shortened(array.view(f"u{array.itemsize}")), recorded[f"{launch.name} -> {name}"])
                for name, array in results.items()
            )
            if not is_equal or report.lines("passed", "assumed", "unseen"):
                different.append(launch.name)
    assert not different


@triton.jit
def add_one(x):
    return x + 1.0


@triton.jit
def combine(a, b):
    return a * 0.5 + b


@triton.jit
def of_everything(x, y, z, count, N: tl.constexpr, F: tl.constexpr):
    i = tl.arange(0, N)
    p = tl.program_id(0)
    v = F(tl.load(x + p * N + i))
    scanned = tl.associative_scan(v, 0, combine) + tl.cumsum(v, 0) + tl.reduce(v, 0, combine)
    packed = tl.inline_asm_elementwise("fma.rn.f32 $0, $1, $1, 0f3F800000;", "=r,r", [scanned], tl.float32, True, 1)
    for k in tl.static_range(2):
        packed += k
    tl.store(y + p * N + i, tl.sort(packed))
    tl.store(z + i, tl.histogram((v * 4).to(tl.int32) & 15, N), mask=p == 0)
    tl.atomic_add(count, 1)


def test_scans_assembly_sorts_and_functions() -> None:
    x = torch.from_numpy(RNG.standard_normal((3, 64)).astype("f4"))
    y, z, count = torch.zeros(3, 64), torch.zeros(64, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with interpret("H100") as report:
        of_everything[(3,)](x, y, z, count, 64, add_one)
    report.assert_all_emulated()
    assert count.item() == 3
    assert (y.sort(-1).values == y).all()
    assert z.sum() == 64
    assert torch.isfinite(y).all()


@triton.jit
def may_load(x, y, N: tl.constexpr, HAS: tl.constexpr):
    dead = tl.load(x)
    tl.store(y + tl.arange(0, N), tl.zeros((N,), tl.float32) + (dead if HAS else 1.0))


@triton.jit
def waves(x, y, SUMS: tl.constexpr, N: tl.constexpr):
    values = tl.sin(tl.load(x + tl.arange(0, N)))
    tl.store(y + tl.arange(0, N), tl.cumsum(values, 0) if SUMS else values)


def test_local_memory_and_tables_of_functions() -> None:
    """The sine of large numbers multiplies by a table of digits, and keeps the product in local memory."""
    x = torch.from_numpy((RNG.standard_normal(256) * 10.0 ** RNG.integers(-3, 30, 256)).astype(np.float32))
    interpreted, executed, sums = (torch.empty(256) for _ in range(3))
    with interpret("H100") as report:
        waves[(1,)](x, interpreted, False, 256)
        waves[(1,)](x, sums, True, 256)
    with interpret("H100", lowering="ptx") as of_ptx:
        waves[(1,)](x, executed, False, 256)
    assert torch.equal(interpreted, executed)
    torch.testing.assert_close(sums, torch.cumsum(executed.double(), 0).float(), rtol=1e-4, atol=1e-4)
    for one in (report, of_ptx):
        one.assert_all_emulated()
        assert not any("not executed" in note or "no tensor" in note for note in one.notes)


def test_a_load_that_the_compiler_leaves_out_is_none() -> None:
    y = torch.zeros(32)
    with interpret("H100") as report:
        may_load[(1,)](torch.empty(0), y, 32, False)
    assert (y == 1).all()
    assert any("where no tensor lies" in note for note in report.notes)


@triton.autotune([triton.Config({"N": size}) for size in (256, 64)], key=[])
@triton.jit
def large(a, c, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a + i[:, None] * N + i[None, :])
    tl.store(c + i[:, None] * N + i[None, :], tl.dot(x, x))


def test_configurations_that_do_not_fit_are_left_out() -> None:
    a = torch.ones(256 * 256)
    c = torch.zeros_like(a)
    with interpret("H100") as report:
        large[(1,)](a, c)
    assert (c[: 64 * 64] == 64).all()
    assert any("leaves out N: 256" in note for note in report.notes)
    with interpret("H100"), pytest.raises(OutOfResources):
        large.fn[(1,)](a, c, 256)


def test_a_pretended_gpu_is_one_for_torch_and_triton() -> None:
    before = torch.cuda.is_available(), torch.cuda.device, torch.accelerator.current_accelerator()
    with interpret("RTX 5090", as_cuda=True):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (12, 0)
        assert torch.cuda.get_device_properties(0).multi_processor_count == 170
        assert torch.utils._triton.has_triton()
        assert torch.accelerator.current_accelerator().type == "cuda"
        active = triton.runtime.driver.active
        assert active.get_current_target().arch == 120
        assert active.utils.get_device_properties(0)["multiprocessor_count"] == 170
        x = torch.ones(64, device="cuda")
        with torch.cuda.device(x.device.index), torch.cuda.stream(torch.cuda.current_stream()):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            may_load[(1,)](x, x, 32, True)
        torch.cuda.synchronize()
        assert x.is_cuda
        assert event.elapsed_time(event) == 0 < event.elapsed_time(torch.cuda.current_stream().record_event())
        with torch.autocast("cuda", torch.bfloat16):
            assert torch.nn.functional.linear(x, x[None]).dtype is torch.bfloat16
        with pytest.raises(fastmma.NotEmulatedError, match="CUDAGraph: no graph"):
            torch.cuda.CUDAGraph()
        with fastmma.torch.emulate("H100", as_cuda=True):
            assert torch.cuda.get_device_capability() == (9, 0)
        assert torch.cuda.get_device_capability() == (12, 0)
    assert (torch.cuda.is_available(), torch.cuda.device, torch.accelerator.current_accelerator()) == before


@pytest.mark.parametrize("as_cuda", [False, True])
def test_what_a_benchmark_measures_is_noted(as_cuda: bool) -> None:
    x = torch.ones(64)
    with interpret("H100", as_cuda=as_cuda) as report:
        assert triton.testing.do_bench(lambda: may_load[(1,)](x, x, 32, True), warmup=1, rep=1) > 0
    assert "triton.testing.do_bench measures this machine, not the GPU" in report.notes
