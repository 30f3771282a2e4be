"""The boundary: users' arrays of elements to arrays of codes, checked, and results back to elements."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import RawCodes, as_array, is_masked
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.codes import from_codes, view_codes
from fastmma.isa.formats import Format
from fastmma.isa.gpus import keyword_hint
from fastmma.isa.instruction import Instruction
from fastmma.operands.cast import rounded

_WORD = np.dtype(np.uint32)
_CASTABLE = ("float16", "float32", "float64")
_ARRAYS = (np.ndarray, RawCodes)


def operand(value: Any, what: str, *, typed: bool = False) -> NDArray[Any]:
    """Make an array of an operand; an array stays itself, and codes that come from CuPy stay marked as such.

    Parameters
    ----------
    value : array_like
    what : str
        The call or the instruction, and the operand, for messages.
    typed : bool
        Whether something is chosen by its dtype, which Python's floats do not have.

    Raises
    ------
    OperandTypeError
        If it cannot be made an array of numbers.
    """
    if type(value) in _ARRAYS and value.dtype.kind not in "OT":
        found: NDArray[Any] = value
        return found
    array = as_array(value, what)
    if hint := keyword_hint(value):
        raise OperandTypeError(f"{what} must be an array, not {value!r}{hint}")
    if typed and isinstance(value, list | tuple | float) and array.dtype == np.float64:
        raise OperandTypeError(f"{what} is made of Python's floats, which have no format; numpy.asarray(..., numpy.float16) gives them one")
    return array


def codes_of(value: Any, fmt: Format, what: str, *, cast: bool = False) -> NDArray[Any]:
    """The codes of an operand's elements.

    Parameters
    ----------
    value : array of the format's dtype, or its codes where they come from CuPy, which lacks that dtype
    fmt : Format
    what : str
        The instruction and the operand, for messages.
    cast : bool
        Round float16, float32 and float64 arrays to the format (to nearest even; beyond its range: infinity, NaN where it has only that,
        the largest finite value where it has neither).

    Raises
    ------
    OperandTypeError
        If the dtype is another one.
    """
    return codes_of_array(operand(value, what), fmt, what, cast=cast)


def codes_of_array(array: NDArray[Any], fmt: Format, what: str, *, cast: bool = False) -> NDArray[Any]:
    """As `codes_of`, of what `operand` has made."""
    coded = type(array) is RawCodes
    if coded:
        array = array.view(np.ndarray)
    if array.dtype == fmt.dtype and fmt.kind == "float" and not (cast and fmt.padding):
        return array.view(fmt.code_dtype)
    if coded and array.dtype == fmt.code_dtype and fmt.dtype.isbuiltin != 1:
        if fmt.bits < 8 and (array >> fmt.bits).any():
            raise OperandError(f"{what} must hold codes of {fmt}, below {1 << fmt.bits}, not {array.max()}")
        return array
    if array.dtype.newbyteorder("=") == fmt.dtype and not (cast and fmt.padding):
        return view_codes(array, fmt)
    castable = fmt.kind == "float" and array.dtype.name in _CASTABLE
    if cast and castable:
        return rounded(array, fmt)
    hint = f"; cast=True rounds it to {fmt}" if castable else ""
    raise OperandTypeError(f"{what} must have dtype {fmt.dtype} ({fmt}), not {array.dtype}{hint}")


def check_shape(array: NDArray[Any], tail: tuple[int, ...], what: str) -> None:
    """Raise OperandError unless the last dimensions are `tail`."""
    if array.shape[-len(tail) :] != tail:
        raise OperandError(f"{what} must have shape (..., {', '.join(map(str, tail))}), not {array.shape}")


def register_words(value: Any, tail: tuple[int, ...], what: str, dtype: np.dtype[Any] = _WORD, verb: str = "have") -> NDArray[Any]:
    """Registers as an array (..., tail) of the right dtype, in the byte order of this machine.

    Raises
    ------
    OperandTypeError, OperandError
        `what` names the instruction and the operand.
    """
    array = as_array(value, what)
    if array.dtype.newbyteorder("=") != dtype:
        raise OperandTypeError(f"{what} must {verb} dtype {dtype}, not {array.dtype}")
    check_shape(array, tail, what)
    return array.astype(dtype, copy=False)


def check_output(out: Any, shape: tuple[int, ...], fmt: Format, what: str) -> NDArray[Any]:
    """`out=` as NumPy takes it: an array of exactly this shape and dtype, writeable, without a mask, each element at a place of its own.

    Returns
    -------
    The same memory as a plain array.

    Raises
    ------
    OperandTypeError, OperandError
    """
    if not isinstance(out, np.ndarray) or is_masked(out):
        raise OperandTypeError(f"{what}: out must be a NumPy array without a mask, not {type(out).__name__}")
    if out.dtype != fmt.dtype:
        raise OperandTypeError(f"{what}: out must have dtype {fmt.dtype} ({fmt}), not {out.dtype}")
    if out.shape != shape:
        raise OperandError(f"{what}: out must have shape {shape}, not {out.shape}")
    if not out.flags.writeable:
        raise OperandError(f"{what}: out is read-only")
    if _folded(out):
        raise OperandError(f"{what}: elements of out share memory with one another: shape {shape}, strides {out.strides}")
    return np.asarray(out)


def takes_results(out: Any, shape: tuple[int, ...], dtype: Any, operands: Iterable[Any]) -> bool:
    """Tell whether a kernel can write C-contiguous results to `out` at once, which shares no memory with operands; None is no operand."""
    if not (type(out) is np.ndarray and out.dtype == dtype and out.shape == shape and out.flags.carray):
        return False
    for given in operands:  # noqa: SIM110 - a generator takes a part of a small product
        if given is not None and np.may_share_memory(out, given):
            return False
    return True


def _folded(array: NDArray[Any]) -> bool:
    """Tell whether two elements of an array may be at one place."""
    reach = array.itemsize
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1):
        if stride < reach:
            return array.size > 0
        reach += stride * (extent - 1)
    return False


class Results:
    """The codes of results, and the elements that a call returns for them.

    Codes are written straight to `out`, unless it overlaps an operand: c may be the very same memory, all else waits in a copy.

    Raises
    ------
    OperandTypeError, OperandError
        If `out` is not such an array.
    """

    def __init__(self, out: Any, shape: tuple[int, ...], ins: Instruction, operands: Any) -> None:
        self.format, self.out = ins.formats.d, out
        if out is None:
            self.codes: NDArray[Any] = np.empty(shape, self.format.code_dtype)
            return
        codes = check_output(out, shape, self.format, str(ins)).view(self.format.code_dtype)
        overlapping = [name for name, given in operands._asdict().items() if given is not None and np.may_share_memory(codes, given)]
        apart = not overlapping or (overlapping == ["c"] and _same_memory(codes, operands.c))
        self.direct = apart and codes.flags.aligned
        self.codes = codes if self.direct else np.empty(shape, self.format.code_dtype)

    def elements(self) -> NDArray[Any]:
        """The results, in `out` if there is one."""
        if self.out is None:
            elements = from_codes(self.codes, self.format)
            return elements if self.codes.ndim else elements.reshape(())  # a scalar gains a dimension on the way
        if not self.direct:
            self.out[...] = from_codes(self.codes, self.format)
        found: NDArray[Any] = self.out
        return found


def _same_memory(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Tell whether matrices lie in the same place, whatever leading dimensions of one they have."""
    return bool(x.ctypes.data == y.ctypes.data and x.strides[-2:] == y.strides[-2:] and x.shape[-2:] == y.shape[-2:])


def tile_codes(value: Any, name: str, tail: tuple[int, int], ins: Instruction, *, cast: bool = False) -> NDArray[Any]:
    """Operand `name` of an instruction at matrix level: codes (..., rows, columns)."""
    what = f"{ins}: {name}"
    codes = codes_of(value, getattr(ins.formats, name), what, cast=cast)
    check_shape(codes, tail, what)
    return codes


def leading_dimensions(what: object, **shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The leading dimensions that operands have in common, by broadcasting.

    Raises
    ------
    OperandError
        If they do not broadcast.
    """
    first, *others = shapes.values()
    if all(shape == first for shape in others):
        return first
    try:
        return np.broadcast_shapes(first, *others)
    except ValueError:
        shown = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise OperandError(f"{what}: the leading dimensions do not broadcast: {shown}") from None


def broadcast(what: object, arrays: dict[str, NDArray[Any]]) -> tuple[int, ...]:
    """The leading dimensions that matrices or registers have in common.

    Raises
    ------
    OperandError
        If they do not broadcast.
    """
    return leading_dimensions(what, **{name: array.shape[:-2] for name, array in arrays.items()})


def flatten(array: NDArray[Any], lead: tuple[int, ...]) -> NDArray[Any]:
    """Matrices or registers with one leading dimension; a view where all share one array, or where the dimensions are already so."""
    if array.ndim == 3 and array.shape[:1] == lead:
        return array
    count, tail = math.prod(lead), array.shape[-2:]
    if count == 1:
        return array.reshape(1, *tail)
    if math.prod(array.shape[:-2]) == 1:
        return np.broadcast_to(array.reshape(1, *tail), (count, *tail))
    return np.broadcast_to(array, lead + tail).reshape(count, *tail)
