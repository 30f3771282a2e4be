"""Apply formulas to arrays: loops of machine code, compiled once for the formats of their operands, kept on the disk, run on all cores."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmma.host.bounded import Bounded
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.float_mode import in_default_mode
from fastmma.host.threads import parallel_for, thread_count
from fastmma.kernels.functions.bitcode import file_digest
from fastmma.kernels.functions.machine_code import Form, source
from fastmma.kernels.functions.pointwise import FORMULAS
from fastmma.kernels.llvm.disk_cache import KernelFiles
from fastmma.kernels.llvm.object_code import link_text

DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
_FORMATS = {dtype: fmt for fmt, dtype in DTYPES.items()}
_GRAIN = 1 << 14  # elements that a thread takes at a time
_SHORT = 32  # elements of a row, below which a loop over each is slow


class _Record(NamedTuple):
    """A formula, its parameters, formats and libdevice, for which a loop is compiled."""

    name: str
    parameters: tuple[float, ...]
    form: Form
    libdevice: str  # the digest of the bitcode


_loops: Bounded[_Record, Any] = Bounded()


def _loop(record: _Record) -> Any:
    found = _loops.get(record)
    if found is None:
        formula = partial(FORMULAS[record.name], *record.parameters)
        (loop,) = link_text(_FILES, record, lambda: in_default_mode(source, formula, record.form), ("loop",))
        kinds = [ctypes.c_void_p, ctypes.c_int64] * len(record.form.given) + [ctypes.c_void_p] * len(record.form.made)
        found = ctypes.CFUNCTYPE(None, *kinds, *[ctypes.c_int64] * 5)(loop)
        _loops.keep(record, found)
    return found


class _Rows(NamedTuple):
    """Operands of results that are cut into rows.

    Attributes
    ----------
    number, width : int
        Of rows, and of elements of one.
    operands : tuple of arrays
    steps : tuple of int
        Elements of an operand from a row to the next.
    along : tuple of bool
        Whether it has an element for each one of a row.
    """

    number: int
    width: int
    operands: tuple[NDArray[Any], ...]
    steps: tuple[int, ...]
    along: tuple[bool, ...]


def _merge(arrays: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> list[tuple[int, tuple[bool, ...]]]:
    """Merge dimensions that the same operands have: their sizes, and which operands those are."""
    merged: list[tuple[int, tuple[bool, ...]]] = []
    for axis, size in enumerate(shape, -len(shape)):
        if size != 1:
            have = tuple(array.ndim >= -axis and array.shape[axis] != 1 for array in arrays)
            if merged and merged[-1][1] == have:
                merged[-1] = merged[-1][0] * size, have
            else:
                merged.append((size, have))
    return merged


def _arrange(arrays: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> _Rows:
    """Cut results into rows, along which an operand is whole or one element; operands are repeated where there are no such rows."""
    merged = _merge(arrays, shape)
    if len(merged) > 2 or (len(merged) == 2 and merged[1][0] < _SHORT):
        arrays = [array if array.size == 1 else np.broadcast_to(array, shape) for array in arrays]
        merged = _merge(arrays, shape)
    none = (False,) * len(arrays)
    (count, across), (width, along) = [*[(1, none)] * (2 - len(merged)), *merged]
    steps = tuple((width if each else 1) if other else 0 for other, each in zip(across, along, strict=True))
    return _Rows(count, width, tuple(map(np.ascontiguousarray, arrays)), steps, along)


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
    if name not in FORMULAS:
        raise OperandError(f"apply: there is no formula {name!r}")
    arrays = [np.asarray(operand) for operand in operands]
    dtype = out.dtype if out is not None else np.dtype(arrays[0].dtype if out_dtype is None else out_dtype)
    for array in (*arrays, np.empty(0, dtype)):
        if array.dtype not in _FORMATS:
            raise OperandTypeError(f"apply: operands and results are float32, float16 or bfloat16, not {array.dtype}")
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    result = np.empty(shape, dtype) if out is None else out
    if result.shape != shape or not result.flags.c_contiguous:
        raise OperandError(f"apply: out must be contiguous, and of the shape {shape}, not {result.shape}")
    rows = _arrange(arrays, shape)
    form = Form(tuple(_FORMATS[array.dtype] for array in arrays), (_FORMATS[dtype],), rows.along)
    loop = _loop(_Record(name, tuple(map(float, parameters)), form, file_digest()))
    given: list[int] = []
    for array, step in zip(rows.operands, rows.steps, strict=True):
        given += [array.ctypes.data, step]
    given += [result.ctypes.data, rows.width]
    if rows.number == 1:
        parallel_for(lambda start, stop, _: loop(*given, 0, 1, start, stop), rows.width, thread_count(threads), _GRAIN)
    else:
        grain = max(_GRAIN // rows.width, 1)
        parallel_for(lambda start, stop, _: loop(*given, start, stop, 0, rows.width), rows.number, thread_count(threads), grain)
    return result


_FILES = KernelFiles(apply)
