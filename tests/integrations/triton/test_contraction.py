"""What is read of a kernel's PTX: which additions are fused multiply-adds, and with which operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from fastmma.triton import interpret  # noqa: E402
from fastmma.triton.contraction import OTHER, PRODUCT, QUOTIENT, SUM, Contractions, Origin  # noqa: E402
from fastmma.triton.ptx import EXCHANGED, Program  # noqa: E402

HEAD = """
.visible .entry kernel(
)
{
	.file	1 "/k" "kernel.py"
	.loc	1 1 1
	// begin inline asm
	.loc	1 1 1
	mov.u32 %r1, 0x0;
	.loc	1 2 1
	@%p1 ld.global.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];
	// end inline asm
	.loc	1 2 1
	ld.global.v2.b32 { %r3, %r4 }, [ %rd2 + 0 ];
	.loc	1 3 1
	ld.global.v2.b32 { %r5, %r6 }, [ %rd3 + 0 ];
	.loc	1 9 5
"""
A, B, C = (frozenset({(("/k/kernel.py", line, 1),)}) for line in (1, 2, 3))
PLACE = (("/k/kernel.py", 9, 5),)


def read(*instructions: str) -> Contractions:
    return Contractions(Program.read_from(HEAD + "\n".join(f"\t{one};" for one in instructions) + "\n\tret;\n}\n"))


def chosen(first: Origin, second: Origin, *instructions: str) -> int | None:
    return read(*instructions).find_fused_operand(PLACE, first, second)


AB, BC = Origin(PRODUCT, A | B), Origin(PRODUCT, B | C)


@pytest.mark.parametrize(
    ("first", "second", "instructions", "fused"),
    [
        (AB, Origin(OTHER, C), ("fma.rn.f32 %r9, %r1, %r3, %r5",), 0),
        (Origin(OTHER, C), AB, ("fma.rn.f32 %r9, %r1, %r3, %r5",), 1),
        (AB, BC, ("mul.f32 %r8, %r1, %r3", "fma.rn.f32 %r9, %r3, %r5, %r8"), 1),
        (AB, BC, ("mul.f32 %r8, %r3, %r5", "fma.rn.f32 %r9, %r1, %r3, %r8"), 0),
        # of two registers, each fuses another: it depends on the element
        (
            AB,
            BC,
            ("mul.f32 %r7, %r1, %r3", "fma.rn.f32 %r9, %r3, %r5, %r7", "mul.f32 %r8, %r3, %r5", "fma.rn.f32 %r10, %r1, %r3, %r8"),
            None,
        ),
        # an addition of the same place that has other operands
        (Origin(SUM, A | B | C), BC, ("mul.f32 %r7, %r1, %r3", "fma.rn.f32 %r8, %r3, %r5, %r7", "fma.rn.f32 %r9, %r3, %r5, %r8"), 1),
        # the product is stored as well: nothing is fused
        (AB, Origin(OTHER, C), ("mul.f32 %r8, %r1, %r3", "st.global.b32 [ %rd4 + 0 ], { %r8 }", "add.f32 %r9, %r8, %r5"), -1),
        # the last multiplication of a division is fused by ptxas where it is only added
        (Origin(QUOTIENT, A | B), Origin(OTHER, C), ("div.full.f32 %r8, %r1, %r3", "add.f32 %r9, %r8, %r5"), 0),
        (Origin(QUOTIENT, A | B), Origin(OTHER, C), ("div.full.f32 %r8, %r1, %r3", "mul.f32 %r7, %r8, %r8", "sub.f32 %r9, %r8, %r5"), -1),
        (
            Origin(QUOTIENT, A),
            Origin(QUOTIENT, B),
            ("div.full.f32 %r7, %r1, %r1", "div.full.f32 %r8, %r3, %r3", "add.f32 %r9, %r7, %r8"),
            None,
        ),
        # constants and squares tell products of the same loads apart
        (
            Origin(PRODUCT, A, factor=0.5),
            Origin(PRODUCT, A, factor=2.0),
            ("mul.f32 %r8, %r1, 0f40000000", "fma.rn.f32 %r9, %r1, 0f3F000000, %r8"),
            0,
        ),
        (
            Origin(PRODUCT, A, is_square=True),
            Origin(PRODUCT, A),
            ("neg.f32 %r7, %r1", "mul.f32 %r8, %r1, %r2", "fma.rn.f32 %r9, %r7, %r1, %r8"),
            0,
        ),
        # a value that went through other threads may be anything that has its loads
        (AB, Origin(OTHER, C), ("ld.shared.b32 %r8, [ %r20 ]", "fma.rn.f32 %r9, %r1, %r3, %r8"), 0),
        (
            Origin(PRODUCT, A | {EXCHANGED}),
            AB,
            ("shfl.sync.bfly.b32 %r7, %r2, 1, 31, -1", "mul.f32 %r8, %r1, %r3", "fma.rn.f32 %r9, %r7, %r1, %r8"),
            0,
        ),
        # nothing of the kind is there
        (AB, Origin(OTHER, C), ("fma.rn.f32 %r9, %r1, %r1, %r3",), None),
        (Origin(OTHER, A), Origin(OTHER, B), (), -1),
        (Origin(OTHER, A), Origin(OTHER, B), ("fma.rn.f32 %r9, %r1, %r5, %r3",), None),
    ],
)
def test_operands_are_found_by_their_loads(first: Origin, second: Origin, instructions: tuple[str, ...], fused: int | None) -> None:
    assert chosen(first, second, *instructions) == fused


def test_products_of_other_iterations_are_not_clear() -> None:
    """ptxas unrolls loops, and fuses what one iteration leaves to the next where it does."""
    loop = ("mov.b32 %r8, %r1", "add.f32 %r9, %r8, %r3", "mul.f32 %r7, %r9, %r5", "mov.b32 %r8, %r7", "@%p2 bra $L__BB0_1")
    text = HEAD + "$L__BB0_1:\n" + "\n".join(f"\t{one};" for one in loop) + "\n\tret;\n}\n"
    found = Contractions(Program.read_from(text))
    assert found.find_fused_operand(PLACE, Origin(PRODUCT, A | B | C), Origin(OTHER, B)) is None
    before = HEAD + "\tmul.f32 %r8, %r1, %r3;\n$L__BB0_1:\n\tadd.f32 %r9, %r8, %r5;\n\t@%p2 bra $L__BB0_1;\n\tret;\n}\n"
    assert Contractions(Program.read_from(before)).find_fused_operand(PLACE, AB, Origin(OTHER, C)) == -1


def test_of_several_functions_nothing_is_read() -> None:
    """Each has registers of its own."""
    text = ".func other(\n)\n{\n\tret;\n}\n" + HEAD + "\tfma.rn.f32 %r9, %r1, %r3, %r5;\n\tret;\n}\n"
    assert Contractions(Program.read_from(text)).find_fused_operand(PLACE, AB, Origin(OTHER, C)) is None


SUM_PLACE = (("/k/kernel.py", 9, 5), ("/k/sum.py", 4, 1))
OUTSIDE = "\t.loc\t2 4 1, function_name $L__info_string0, inlined_at 1 9 5\n"
INNER = f'\t.file\t2 "/k" "sum.py"\n{OUTSIDE}\t.loc\t2 7 1, function_name $L__info_string0, inlined_at 2 4 1\n'
SHUFFLE = f"{OUTSIDE}\tshfl.sync.bfly.b32 %r40, %r30, 16, 31, -1;\n\tret;\n}}\n"


@pytest.mark.parametrize(
    ("instructions", "fused"),
    [
        (("add.f32 %r30, %r3, %r4",), (False, False)),
        (("mul.f32 %r20, %r4, %r4", "fma.rn.f32 %r30, %r3, %r3, %r20"), (True, False)),
        (("mul.f32 %r20, %r3, %r3", "fma.rn.f32 %r30, %r4, %r4, %r20"), (False, True)),
        (("mul.f32 %r20, %r4, %r3", "fma.rn.f32 %r30, %r3, %r4, %r20"), None),
    ],
)
def test_products_enter_a_sum_by_register(instructions: tuple[str, ...], fused: tuple[bool, ...] | None) -> None:
    text = HEAD + INNER + "\n".join(f"\t{one};" for one in instructions) + "\n" + SHUFFLE
    assert Contractions(Program.read_from(text)).find_fused_registers(SUM_PLACE, 1, (0,), has_lanes=True) == fused


@triton.jit
def chosen_product(x, y, z, d, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    tl.store(d + i, tl.where(a > 0, a * b, b * c) + c)


@triton.jit
def divided_by(x, d, N: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(d + i, tl.load(x + i) / C)


def ran(kernel: Any, number: int, *constants: Any, gpu: str = "H100") -> tuple[list[np.ndarray], np.ndarray, Any]:
    rng = np.random.default_rng(11)
    given = [rng.standard_normal(256).astype("f4") for _ in range(number)]
    d = torch.empty(256)
    with interpret(gpu) as report:
        kernel[(1,)](*(torch.from_numpy(one.copy()) for one in given), d, 256, *constants)
    return given, d.numpy(), report


def test_where_the_interpreter_cannot_tell_the_ptx_is_executed() -> None:
    """LLVM makes of it the product of b and of what is chosen, and fuses that with c."""
    (a, b, c), actual, report = ran(chosen_product, 3)
    np.testing.assert_array_equal(actual, (np.where(a > 0, a, c).astype("f8") * b + c).astype("f4"))
    report.assert_all_emulated()
    assert [line.operator for line, _ in report.lines("emulated")] == ["fma.rn.f32"]
    assert any("chosen_product: its PTX is executed" in note for note in report.notes)


@pytest.mark.parametrize("constant", [37.0, 255])
def test_a_division_by_a_constant_is_a_product_with_its_reciprocal(constant: float) -> None:
    """It is correctly rounded, which that of the special function unit is not: the machine code has FMUL."""
    (x,), actual, report = ran(divided_by, 1, constant)
    np.testing.assert_array_equal(actual, x * np.float32(1 / np.float64(constant)))
    report.assert_all_emulated()


@triton.jit
def fused(x, y, z, d, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(d + i, tl.load(x + i) * tl.load(y + i) + tl.load(z + i))


@pytest.mark.parametrize("gpu", ["H100", "A100", "B200", "RTX 5090"])
def test_what_the_ptx_fuses_is_known(gpu: str) -> None:
    (x, y, z), actual, report = ran(fused, 3, gpu=gpu)
    np.testing.assert_array_equal(actual, (x.astype("f8") * y + z).astype("f4"))
    assert {line.status for line, _ in report.lines() if line.operator in ("+", "fma.rn.f32")} == {"emulated"}
