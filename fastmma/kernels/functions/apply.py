"""Apply formulas to arrays: loops of machine code, compiled once for the formats of their operands, kept on the disk, run on all cores."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmma.host.addresses import address_of
from fastmma.host.bounded import Bounded
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.float_mode import in_default_mode
from fastmma.host.threads import parallel_for, thread_count
from fastmma.kernels.functions.bitcode import file_digest
from fastmma.kernels.functions.expression import Code, Value
from fastmma.kernels.functions.machine_code import Form, source
from fastmma.kernels.functions.pointwise import FORMULAS
from fastmma.kernels.llvm.disk_cache import KernelFiles
from fastmma.kernels.llvm.object_code import link_text

DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
_FORMATS = {dtype: fmt for fmt, dtype in DTYPES.items()}
_GRAIN = 1 << 14  # elements that each of several threads takes at a time
_GRAIN_ALONE = 1 << 20  # and one thread, which has only to end soon after Ctrl-C
_SHORT = 32  # elements of a row, below which a loop over each is slow


class _Record(NamedTuple):
    """A formula, its parameters, formats and libdevice, for which a loop is compiled."""

    name: str
    parameters: tuple[str, ...]  # of float.hex, which tells -0 from 0
    form: Form
    libdevice: str  # the digest of the bitcode


_loops: Bounded[_Record, Any] = Bounded()


def _loop(record: _Record) -> Any:
    found = _loops.get(record)
    if found is None:
        formula = partial(FORMULAS[record.name], *map(float.fromhex, record.parameters))
        (loop,) = link_text(_FILES, record, lambda: in_default_mode(source, formula, record.form), ("loop",))
        kinds = [ctypes.c_void_p, ctypes.c_int64] * len(record.form.given) + [ctypes.c_void_p] * len(record.form.made)
        found = ctypes.CFUNCTYPE(None, *kinds, *[ctypes.c_int64] * 5)(loop)
        _loops.keep(record, found)
    return found


@lru_cache(4096)
def called(name: str, parameters: tuple[float, ...], operands: int) -> frozenset[str]:
    """Name libdevice's functions that a formula of so many operands calls, without ``__nv_``.

    Examples
    --------
    >>> sorted(called("gelu", (), 1)), called("power", (2.0, 24.0), 1)
    (['erff'], frozenset())
    """
    code = Code()
    FORMULAS[name](*parameters, *(Value(code, f"%{number}") for number in range(operands)))
    return frozenset(symbol.removeprefix("__nv_") for symbol in code.calls)


class _Rows(NamedTuple):
    """Results of a shape, cut into rows.

    Attributes
    ----------
    shape : tuple of int
    number, width : int
        Of rows, and of elements of one.
    steps : tuple of int
        Elements of an operand from a row to the next.
    along : tuple of bool
        Whether an operand has an element for each one of a row.
    repeated : bool
        Whether operands of more than one element are to have the shape of the results.
    """

    shape: tuple[int, ...]
    number: int
    width: int
    steps: tuple[int, ...]
    along: tuple[bool, ...]
    repeated: bool


def _merge(shapes: Sequence[tuple[int, ...]], shape: tuple[int, ...]) -> list[tuple[int, tuple[bool, ...]]]:
    """Merge dimensions that the same operands have: their sizes, and which operands those are."""
    merged: list[tuple[int, tuple[bool, ...]]] = []
    for axis, size in enumerate(shape, -len(shape)):
        if size != 1:
            have = tuple(len(each) >= -axis and each[axis] != 1 for each in shapes)
            if merged and merged[-1][1] == have:
                merged[-1] = merged[-1][0] * size, have
            else:
                merged.append((size, have))
    return merged


def _rows(shapes: Sequence[tuple[int, ...]], shortest: int) -> _Rows:
    """Cut results into rows, along which an operand is whole or one element; operands are repeated where there are none, or short ones."""
    shape = np.broadcast_shapes(*shapes)
    merged = _merge(shapes, shape)
    repeated = len(merged) > 2 or (len(merged) == 2 and merged[1][0] < shortest)
    if repeated:
        merged = _merge([each if math.prod(each) == 1 else shape for each in shapes], shape)
    none = (False,) * len(shapes)
    (count, across), (width, along) = [*[(1, none)] * (2 - len(merged)), *merged]
    steps = tuple((width if each else 1) if other else 0 for other, each in zip(across, along, strict=True))
    return _Rows(shape, count, width, steps, along, repeated)


class Applied(NamedTuple):
    """A formula for operands of some shapes and dtypes.

    Attributes
    ----------
    rows : _Rows
        How the results are cut.
    loop : callable
        It takes an address and a step for each operand, the address of the results, the width of rows, and what it is to compute: from
        one row to another, and of them from one element to another.
    """

    rows: _Rows
    loop: Callable[..., None]

    def run(self, operands: Sequence[int], out: int, threads: int | None) -> None:
        """Compute the results at an address from contiguous operands at others."""
        _, number, width, steps, _, _ = self.rows
        given: list[int] = []
        for operand, step in zip(operands, steps, strict=True):
            given += operand, step
        loop = self.loop
        if number * width <= _GRAIN:
            in_default_mode(loop, *given, out, width, 0, number, 0, width)
            return
        count = thread_count(threads)
        grain = _GRAIN if count > 1 else _GRAIN_ALONE
        if number == 1:
            parallel_for(lambda start, stop, _: loop(*given, out, width, 0, 1, start, stop), width, count, grain)
        else:
            parallel_for(lambda start, stop, _: loop(*given, out, width, start, stop, 0, width), number, count, max(grain // width, 1))


_applied: Bounded[tuple[Any, ...], Applied] = Bounded()


def applied(
    name: str,
    parameters: Sequence[float],
    kinds: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...],
    dtype: np.dtype[Any],
    shortest: int = _SHORT,
) -> Applied:
    """Return what applies a formula to operands of some dtypes and shapes, as `apply` does.

    Where rows have fewer than `shortest` elements, operands of one element a row are to be repeated.

    Raises
    ------
    OperandError, OperandTypeError
    BackendError
        If the formula calls a function of libdevice, and it is not on this machine.
    """
    digest, numbers = file_digest(), tuple(float(each).hex() for each in parameters)
    key = name, numbers, kinds, dtype, digest, shortest
    found = _applied.get(key)
    if found is None:
        if name not in FORMULAS:
            raise OperandError(f"apply: there is no formula {name!r}")
        for each in (*(kind for kind, _ in kinds), dtype):
            if each not in _FORMATS:
                raise OperandTypeError(f"apply: operands and results are float32, float16 or bfloat16, not {each}")
        rows = _rows([shape for _, shape in kinds], shortest)
        form = Form(tuple(_FORMATS[kind] for kind, _ in kinds), (_FORMATS[dtype],), rows.along)
        found = Applied(rows, _loop(_Record(name, numbers, form, digest)))
        _applied.keep(key, found)
    return found


def apply(
    name: str,
    *operands: ArrayLike,
    parameters: Sequence[float] = (),
    out_dtype: Any = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Apply a formula of `fastmma.kernels.functions.pointwise.FORMULAS` to each element.

    Parameters
    ----------
    name : str
    operands : array
        float32, float16 or bfloat16; their shapes are broadcast.
    parameters : sequence of float
        Numbers that the formula is made for.
    out_dtype : dtype, optional
        Of the result, to which float32 is rounded to nearest even; by default that of the first operand.
    out : array, optional
        Where the result goes: contiguous, of its shape.
    threads : int, optional
        All cores by default; results do not depend on it.

    Raises
    ------
    OperandError, OperandTypeError
    BackendError
        If the formula calls a function of libdevice, and it is not on this machine.

    Examples
    --------
    >>> apply("reciprocal", np.float32([2, 3]))
    array([0.5       , 0.33333334], dtype=float32)
    """
    arrays = [np.asarray(operand) for operand in operands]
    dtype = out.dtype if out is not None else np.dtype(arrays[0].dtype if out_dtype is None else out_dtype)
    found = applied(name, parameters, tuple((array.dtype, array.shape) for array in arrays), dtype)
    shape = found.rows.shape
    result = np.empty(shape, dtype) if out is None else out
    if result.shape != shape or not result.flags.c_contiguous:
        raise OperandError(f"apply: out must be contiguous, and of the shape {shape}, not {result.shape}")
    if found.rows.repeated:
        arrays = [array if array.size == 1 else np.broadcast_to(array, shape) for array in arrays]
    arrays = list(map(np.ascontiguousarray, arrays))
    found.run(list(map(address_of, arrays)), address_of(result), threads)
    return result


_FILES = KernelFiles(apply)
