"""Arithmetic of numbers and tensors of numbers, element by element."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime.interpreter import TensorHandle

from fastmma.host.errors import NotEmulatedError
from fastmma.triton import casts, elementwise, extrema, functions
from fastmma.triton.formats import canonicalise_nan
from fastmma.triton.gluon.constants import parse_constant
from fastmma.triton.gluon.kernel import Kernel, Step, make_nothing
from fastmma.triton.gluon.mlir import Operation
from fastmma.triton.gluon.program import Partition, Values
from fastmma.triton.gluon.types import Type
from fastmma.triton.handles import VALUE
from fastmma.triton.methods import METHODS

_KINDS = {
    "f16": tl.float16,
    "bf16": tl.bfloat16,
    "f32": tl.float32,
    "f64": tl.float64,
    "f8E4M3FN": tl.float8e4nv,
    "f8E5M2": tl.float8e5,
    "i1": tl.int1,
    "i8": tl.int8,
    "i16": tl.int16,
    "i32": tl.int32,
    "i64": tl.int64,
}
_UNSIGNED = {"i8": tl.uint8, "i16": tl.uint16, "i32": tl.uint32, "i64": tl.uint64}


def unsigned(x: Any) -> Any:
    """Return the same bits as unsigned integers."""
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


def _divide(x: Any, y: Any) -> Any:
    """Divide integers, toward zero."""
    quotient = np.floor_divide(x, y)
    return quotient + ((quotient < 0) & (quotient * y != x)).astype(quotient.dtype)


def _remain(x: Any, y: Any) -> Any:
    return x - _divide(x, y) * y


def _of_unsigned(function: Callable[..., Any], x: Any, y: Any) -> Any:
    return function(unsigned(x), unsigned(y)).view(x.dtype)


def _multiply_high(x: Any, y: Any) -> Any:
    bits = x.dtype.itemsize * 8
    if bits == 32:
        return ((unsigned(x).astype(np.uint64) * unsigned(y).astype(np.uint64)) >> np.uint64(32)).astype(np.uint32).view(np.int32)
    product = np.asarray(unsigned(x)).astype(object) * np.asarray(unsigned(y)).astype(object)
    return np.asarray(product >> bits).astype(f"u{bits // 8}").view(x.dtype)


_INTEGERS: dict[str, Callable[..., Any]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": _divide,
    "arith.remsi": _remain,
    "arith.divui": partial(_of_unsigned, np.floor_divide),
    "arith.remui": partial(_of_unsigned, np.remainder),
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.shrsi": np.right_shift,
    "arith.shrui": partial(_of_unsigned, np.right_shift),
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.maxui": partial(_of_unsigned, np.maximum),
    "arith.minui": partial(_of_unsigned, np.minimum),
    "tt.mulhiui": _multiply_high,
}
_FLOATS: dict[str, Callable[..., Any]] = {"arith.mulf": np.multiply, "arith.negf": np.negative, "math.absf": np.abs}
_ORDERS: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
# what Triton's language has for these, and how fastmma computes it there
_BORROWED = {
    "arith.divf": "create_fdiv",
    "arith.remf": "create_frem",
    "arith.maxnumf": "create_maxnumf",
    "arith.minnumf": "create_minnumf",
    "arith.maximumf": "create_maximumf",
    "arith.minimumf": "create_minimumf",
    "arith.extf": "create_fp_to_fp",
    "arith.truncf": "create_fp_to_fp",
    "tt.fp_to_fp": "create_fp_to_fp",
    "arith.sitofp": "create_si_to_fp",
    "arith.uitofp": "create_ui_to_fp",
    "arith.fptosi": "create_fp_to_si",
    "arith.fptoui": "create_fp_to_ui",
    "math.exp": "create_exp",
    "math.exp2": "create_exp2",
    "math.log": "create_log",
    "math.log2": "create_log2",
    "math.sin": "create_sin",
    "math.cos": "create_cos",
    "math.erf": "create_erf",
    "math.sqrt": "create_sqrt",
    "math.rsqrt": "create_rsqrt",
    "math.floor": "create_floor",
    "math.ceil": "create_ceil",
    "math.fma": "create_fma",
    "tt.clampf": "create_clampf",
}
_TABLE = casts.OPERATIONS | elementwise.OPERATIONS | extrema.OPERATIONS | functions.OPERATIONS
_ORIGINALS: dict[str, Callable[..., Any]] = {
    "create_fdiv": np.divide,
    "create_sqrt": np.sqrt,
    "create_rsqrt": lambda x: 1 / np.sqrt(x),
    "create_exp": np.exp,
    "create_exp2": np.exp2,
    "create_log": np.log,
    "create_log2": np.log2,
    "create_sin": np.sin,
    "create_cos": np.cos,
    "create_floor": np.floor,
    "create_ceil": np.ceil,
}
_CASTS = ("create_fp_to_fp", "create_si_to_fp", "create_ui_to_fp", "create_fp_to_si", "create_fp_to_ui")


def _set_result(one: Operation, function: Callable[..., Any], count: Callable[[], None]) -> Step:
    result, operands = one.results[0], one.operands
    if len(operands) == 2:
        first, second = operands

        def step_two(_: Partition, values: Values) -> None:
            count()
            values[result] = function(values[first], values[second])

        return step_two

    def step(_: Partition, values: Values) -> None:
        count()
        values[result] = function(*(values[number] for number in operands))

    return step


def _make_integers(one: Operation, kernel: Kernel) -> Step:
    return _set_result(one, _INTEGERS[one.name], kernel.neutral(one, "integers"))


def _make_float(one: Operation, kernel: Kernel) -> Step:
    function, kind = _FLOATS[one.name], one.types[-1]
    _check_wide(one, kernel, kind)
    canonical = one.name == "arith.mulf"
    return _set_result(one, (lambda *given: canonicalise_nan(function(*given))) if canonical else function, kernel.neutral(one, "IEEE 754"))


def _check_wide(one: Operation, kernel: Kernel, kind: Type) -> None:
    if kind.bits == 8 and kind.is_float:
        raise NotEmulatedError(f"{kernel.describe(one)} of 8-bit floats")


def _make_constant(one: Operation, _kernel: Kernel) -> Step:
    value = parse_constant(one.text, one.types[-1] if one.types else Type("scalar", "i1"))
    result, value = one.results[0], value if value.ndim else value[()]

    def step(_: Partition, values: Values) -> None:
        values[result] = value

    return step


def _make_comparison(one: Operation, kernel: Kernel) -> Step:
    found = re.match(r"arith\.cmp[if] (?:contract |fast<\w+> )?(\w+),", one.text)
    assert found is not None
    name, of_floats = found[1], one.name == "arith.cmpf"
    compare = _ORDERS[name if name in _ORDERS else name[1:]] if name not in ("ord", "uno") else None
    if compare is None:
        function: Callable[..., Any] = lambda x, y: (np.isnan(x) | np.isnan(y)) == (name == "uno")  # noqa: E731
    elif of_floats and name.startswith("u"):
        function = lambda x, y: compare(x, y) | np.isnan(x) | np.isnan(y)  # noqa: E731
    elif of_floats and name == "one":
        function = lambda x, y: compare(x, y) & ~(np.isnan(x) | np.isnan(y))  # noqa: E731
    elif not of_floats and name.startswith("u"):
        function = lambda x, y: compare(unsigned(x), unsigned(y))  # noqa: E731
    else:
        function = compare
    return _set_result(one, function, kernel.neutral(one, "IEEE 754" if of_floats else "integers"))


def _make_resize(one: Operation, kernel: Kernel) -> Step:
    source, target = one.types[0], one.types[-1]
    dtype = target.dtype

    def convert(x: Any) -> Any:
        if one.name == "arith.extui" and source.element != "i1":
            return unsigned(x).astype(f"u{dtype.itemsize}").view(dtype)
        if one.name == "arith.extsi" and source.element == "i1":
            return -x.astype(dtype)
        return (x & 1).astype(dtype) if target.element == "i1" else x.astype(dtype)

    return _set_result(one, convert, kernel.neutral(one, "integers"))


def _make_select(one: Operation, kernel: Kernel) -> Step:
    def choose(condition: Any, x: Any, y: Any) -> Any:
        return np.where(condition, x, y) if np.ndim(condition) else x if condition else y

    return _set_result(one, choose, kernel.neutral(one, "moves data"))


def _make_bitcast(one: Operation, kernel: Kernel) -> Step:
    dtype = one.types[-1].dtype
    return _set_result(one, lambda x: x.view(dtype) if x.dtype != np.bool_ else x.astype(dtype), kernel.neutral(one, "moves data"))


def _wrap(data: Any, kind: Type, is_unsigned: bool, constant: float | None) -> TensorHandle:
    """Return what stands for a value in Triton's interpreter, where 8-bit floats are bytes."""
    array = np.asarray(data)
    made = TensorHandle(array.view(np.uint8) if kind.bits == 8 and kind.is_float else array, _KINDS[kind.element])
    if is_unsigned:
        made = TensorHandle(unsigned(array), _UNSIGNED.get(kind.element, tl.int1))
    if constant is not None:
        made.attr[VALUE] = constant
    return made


def _unwrap(handle: Any, kind: Type) -> Any:
    data = np.asarray(handle.data)
    data = data.view(kind.dtype) if data.dtype.itemsize == kind.dtype.itemsize else data.astype(kind.dtype)
    return data if kind.kind == "tensor" else data.reshape(())[()]


def _make_borrowed(one: Operation, kernel: Kernel) -> Step:
    method, target = _BORROWED[one.name], one.types[-1]
    source = one.types[0] if method in _CASTS else target
    compute, (run, recorder) = _TABLE[method], kernel.borrow(one)
    original, result, operands = _ORIGINALS.get(method), one.results[0], one.operands
    is_unsigned = one.name == "arith.uitofp"
    constants = [kernel.find_constant(number) for number in operands]
    extra: tuple[Any, ...] = ()
    if method in _CASTS:
        kind = _UNSIGNED[target.element] if one.name == "arith.fptoui" else _KINDS[target.element]
        extra = (kind, "RTZ") if "rtz" in one.text else (kind,)
    elif method == "create_clampf":
        extra = (ir.PROPAGATE_NAN.ALL if "all" in one.attributes.get("propagateNan", "") else ir.PROPAGATE_NAN.NONE,)
    default = METHODS[method]

    def plain(*handles: Any) -> TensorHandle:
        if original is None:
            raise NotEmulatedError(f"{kernel.describe(one)} of {source.element}")
        return TensorHandle(np.asarray(original(*(handle.data for handle in handles))), handles[0].dtype)

    def step(_: Partition, values: Values) -> None:
        given = [_wrap(values[number], source, is_unsigned, constant) for number, constant in zip(operands, constants, strict=True)]
        told = recorder.counts.total()
        found = compute(run, plain, *given, *extra)
        if recorder.counts.total() == told:
            recorder.tell(default.status, default.operation, default.why)
        value = _unwrap(found, target)
        values[result] = canonicalise_nan(value) if default.canonical else value

    return step


def _make_precise(one: Operation, kernel: Kernel) -> Step:
    function = np.divide if one.name == "tt.precise_divf" else np.sqrt
    return _set_result(one, lambda *given: canonicalise_nan(function(*given)), kernel.neutral(one, "IEEE 754"))


def _make_cast_of_pointers(one: Operation, kernel: Kernel) -> Step:
    return _set_result(one, lambda x: x.astype(np.int64), kernel.neutral(one, "moves data"))


MAKERS = {
    "arith.constant": _make_constant,
    **dict.fromkeys(_INTEGERS, _make_integers),
    **dict.fromkeys(_FLOATS, _make_float),
    **dict.fromkeys(_BORROWED, _make_borrowed),
    **dict.fromkeys(("arith.cmpi", "arith.cmpf"), _make_comparison),
    **dict.fromkeys(("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"), _make_resize),
    **dict.fromkeys(("arith.bitcast", "tt.bitcast"), _make_bitcast),
    **dict.fromkeys(("tt.ptr_to_int", "tt.int_to_ptr"), _make_cast_of_pointers),
    **dict.fromkeys(("tt.precise_divf", "tt.precise_sqrt"), _make_precise),
    **dict.fromkeys(("tt.assert", "tt.print", "llvm.intr.assume"), make_nothing),
    "arith.select": _make_select,
}
