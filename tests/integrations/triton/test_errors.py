"""Kernels that cannot run: the error names the kernel's line, the operation, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.language.core import _aggregate as aggregate  # noqa: E402

import fastmma.triton  # noqa: E402
from tests.integrations.triton.refused_kernels import REFUSED  # noqa: E402

X, Y = torch.arange(64.0), torch.zeros(64)


@triton.jit
def other_shapes(x, y, N: tl.constexpr):
    long = tl.load(x + tl.arange(0, N))
    short = tl.load(x + tl.arange(0, 32))
    tl.store(y + tl.arange(0, N), long + short)


@triton.jit
def odd_range(x, y, _n: tl.constexpr):
    i = tl.arange(0, 48)
    tl.store(y + i, tl.load(x + i))


@triton.jit
def no_such_function(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.tanhh(tl.load(x + i)))


@triton.jit
def unknown_assembly(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.inline_asm_elementwise("foo.bar.f32 $0, $1;", "=r,r", [tl.load(x + i)], tl.float32, True, 1)
    tl.store(y + i, v)


@triton.jit
def refused_assembly(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.inline_asm_elementwise("vadd4.u32.u32.u32 $0, $1, $1, $1;", "=r,r", [tl.load(x + i)], tl.float32, True, 1)
    tl.store(y + i, v)


@triton.jit
def nested(x, y, N: tl.constexpr):
    def doubled(v):
        return v * 2

    i = tl.arange(0, N)
    tl.store(y + i, doubled(tl.load(x + i)))


@triton.jit
def unmasked_load(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i + (1 << 45)))


@triton.jit
def unmasked_store(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i + 1, tl.load(x + i))


@triton.jit
def waits(_x, y, _n: tl.constexpr):
    tl.atomic_add(y, 1.0)
    while tl.atomic_add(y, 0.0) < 2:
        pass
    tl.store(y + 1, 1.0)


ERRORS: dict[Any, tuple[type[Exception], str]] = {
    other_shapes: (fastmma.NotEmulatedError, r"incompatible dimensions at index 0: 64 and 32 \(.*test_errors\.py:\d+: tl\.store"),
    odd_range: (fastmma.NotEmulatedError, r"range must be a power of 2 \(.*: i = tl\.arange\(0, 48\)"),
    no_such_function: (fastmma.NotEmulatedError, r"no attribute 'tanhh'.*, says Triton's compiler"),
    unknown_assembly: (fastmma.NotEmulatedError, r"foo\.bar\.f32.*test_errors\.py:\d+"),
    refused_assembly: (fastmma.NotEmulatedError, r"nothing here executes vadd4\.u32\.u32\.u32 \(.*test_errors\.py:\d+"),
    unmasked_load: (
        fastmma.NotEmulatedError,
        r"loads from memory .* bytes behind the end of \w+\): is a mask missing\? \(.*test_errors\.py:\d+",
    ),
    unmasked_store: (fastmma.NotEmulatedError, r"stores to memory .* \(0 bytes behind the end of y\): is a mask missing"),
    waits: (fastmma.NotEmulatedError, r"waits for another one, and programs run one after another"),
    nested: (
        fastmma.NotEmulatedError,
        r"nested: .*nested function definitions are not allowed .*: def doubled\(v\):\), says Triton's compiler",
    ),
}


@pytest.mark.parametrize("lowering", ["compile", "ptx"])
@pytest.mark.parametrize("kernel", ERRORS, ids=lambda kernel: kernel.fn.__name__)
def test_errors_name_line_operation_and_reason(kernel: Any, lowering: Any) -> None:
    kind, text = ERRORS[kernel]
    with pytest.raises(kind, match=text), fastmma.triton.interpret("H100", lowering=lowering):
        kernel[(2,)](X, Y.clone(), 64)


@pytest.mark.parametrize(
    ("kernel", "line", "reason", "advice"), REFUSED, ids=lambda value: value.fn.__name__ if hasattr(value, "fn") else ""
)
def test_a_kernel_that_the_compiler_refuses_is_an_error(kernel: Any, line: str, reason: str, advice: str) -> None:
    with pytest.raises(fastmma.NotEmulatedError) as found, fastmma.triton.interpret("H100"):
        kernel[(1,)](X, Y.clone(), 64)
    told, _, rest = str(found.value).partition(", says Triton's compiler, so that no GPU runs it")
    assert told.startswith(f"{kernel.fn.__name__}: ")
    assert reason in told
    assert "refused_kernels.py:" in told
    assert f": {line}" in told
    assert advice in rest


@triton.jit
def takes_two(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


@triton.autotune([triton.Config({"N": 64})], key=[])
@triton.jit
def tuned(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


# a launch that no GPU takes, and parts of what is said of it
LAUNCHES: dict[str, tuple[Callable[[], Any], type[Exception], str, str]] = {
    "an argument is missing": (lambda: takes_two[(1,)](X, Y), TypeError, "missing 1 required .* 'N'", "its parameters are x, y, N"),
    "one is too many": (lambda: takes_two[(1,)](X, Y, 64, 3), TypeError, "takes 3 positional arguments", "its parameters are x, y, N"),
    "no such option": (lambda: takes_two[(1,)](X, Y, 64, warps=4), ValueError, "warps is neither a parameter nor", "leave it out"),
    "three warps": (lambda: takes_two[(1,)](X, Y, 64, num_warps=3), ValueError, "num_warps=3", "take one of 1, 2, 4"),
    "no grid": (lambda: takes_two[None](X, Y, 64), TypeError, "the grid is None", "a tuple of one to three integers"),
    "a number as the grid": (lambda: takes_two[3](X, Y, 64), TypeError, "the grid is 3", "a tuple of one to three integers"),
    "parts of a program": (lambda: takes_two[(1.5,)](X, Y, 64), TypeError, r"the grid is \(1\.5,\)", "a tuple of one to three integers"),
    "too many programs": (lambda: takes_two[(1, 1 << 16)](X, Y, 64), ValueError, r"the grid is \(1, 65536\)", "0 to 65535 programs"),
    "a grid of another kernel": (lambda: takes_two[lambda meta: (meta["M"],)](X, Y, 64), ValueError, "asks for 'M'", "it can have x, y, N"),
    "complex numbers": (lambda: takes_two[(1,)](X.to(torch.complex64), Y, 64), TypeError, "x is a tensor of complex64", "another"),
    "no memory": (lambda: takes_two[(1,)](X.to("meta"), Y, 64), TypeError, "x is a meta tensor", "pass a dense one"),
    "more than 64 bits": (lambda: takes_two[(1,)](X, 1 << 70, 64), ValueError, "y is 1180591620717411303424", "pass its parts"),
    "a configuration's value": (lambda: tuned[(1,)](X, Y, N=64), TypeError, "name N", "leave it out of one"),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_that_no_gpu_takes_names_the_kernel_and_its_line(name: str) -> None:
    call, kind, what, advice = LAUNCHES[name]
    told = rf"(takes_two|tuned): .*{what}.* \(.*test_errors\.py:\d+: def .*\); .*{advice}"
    with pytest.raises(fastmma.FastmmaError, match=told) as found, fastmma.triton.interpret("H100"):
        call()
    assert isinstance(found.value, kind)


@triton.jit
def scans_over_blocks(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.cumsum(tl.load(x + i), 0))


def test_what_the_compilers_passes_do_not_take_is_an_error() -> None:
    told = r"scans_over_blocks: .*PassManager.* \(.*test_errors\.py:\d+: def .*\), says Triton's compiler.*; what it printed above"
    with pytest.raises(fastmma.NotEmulatedError, match=told), fastmma.triton.interpret("H100"):
        scans_over_blocks[(1,)](X, Y.clone(), 64, num_ctas=2)


@triton.jit
def makes_descriptors(x, y, N: tl.constexpr):
    made = tl.make_tensor_descriptor(y, [N], [1], [N])
    made.store([0], tl.make_tensor_descriptor(x, [N], [1], [N]).load([0]))


def test_kernels_whose_ptx_is_not_executed_are_named_with_advice() -> None:
    told = r'tensor descriptors that the kernel makes \(.*test_errors\.py:\d+\); lowering="compile" interprets the kernel'
    with pytest.raises(fastmma.NotEmulatedError, match=told), fastmma.triton.interpret("H100", lowering="ptx"):
        makes_descriptors[(1,)](X, Y.clone(), 64)


@triton.jit
def adds_behind_the_end(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(y + i + (1 << 40), tl.load(x + i))


@triton.jit
def exchanges_behind_the_end(_x, y, _n: tl.constexpr):
    tl.atomic_xchg(y + (1 << 40), 1.0)


@triton.jit
def compares_behind_the_end(x, _y, _n: tl.constexpr):
    tl.atomic_cas(x.to(tl.pointer_type(tl.int32)) + (1 << 40), 0, 1)


@pytest.mark.parametrize("lowering", ["rules", "compile", "ptx"])
@pytest.mark.parametrize("kernel", [adds_behind_the_end, exchanges_behind_the_end, compares_behind_the_end])
def test_atomic_operations_where_no_tensor_lies_are_errors(kernel: Any, lowering: str) -> None:
    told = r"stores to memory .* bytes behind the end of \w+\): is a mask missing\? \(.*test_errors\.py:\d+"
    with pytest.raises(fastmma.NotEmulatedError, match=told), fastmma.triton.interpret("H100", lowering=lowering):
        kernel[(1,)](X.clone(), Y.clone(), 64)


@aggregate
class Squares:
    total: tl.tensor

    @triton.jit
    def add(self, x):
        return Squares(self.total + x * x)


@triton.jit
def of_an_aggregate(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    squares = Squares(tl.zeros((N,), tl.float32))
    squares = squares.add(tl.load(x + i))
    tl.store(y + i, squares.total)


def test_rules_name_the_method_of_an_aggregate_and_say_what_to_do() -> None:
    y = Y.clone()
    with fastmma.triton.interpret("H100"):
        of_an_aggregate[(1,)](X, y, 64)
    assert torch.equal(y, X * X)
    told = r'of_an_aggregate: .*test_errors\.py:\d+: squares = squares\.add.*; take lowering="compile"'
    with pytest.raises(Exception, match=told), fastmma.triton.interpret("H100", lowering="rules"):
        of_an_aggregate[(1,)](X, y, 64)


def test_rules_interpret_what_the_compiler_refuses() -> None:
    kernel = next(one for one, *_ in REFUSED if one.fn.__name__ == "breaks")
    y = Y.clone()
    with fastmma.triton.interpret("H100", lowering="rules"):
        kernel[(1,)](X, y, 64)
    assert y[:4].tolist() == [0.0, 1.0, 0.0, 0.0]
