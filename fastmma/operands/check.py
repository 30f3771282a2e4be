"""The boundary: users' arrays of elements to arrays of codes, checked, and results back to elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import RawCodes, as_array, whole
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.isa.formats import FORMATS, Format, encode, format_of, from_codes, to_codes
from fastmma.isa.instruction import Instruction
from fastmma.isa.sparsity import pattern_of
from fastmma.operands.sparse import check_metadata

_CASTABLE = ("float16", "float32", "float64")


def codes_of(value: Any, fmt: str | Format, what: str, *, cast: bool = False) -> NDArray[Any]:
    """The codes of an operand's elements.

    Parameters
    ----------
    value : array of the format's dtype, or its codes where they come from CuPy, which lacks that dtype
    fmt : str or Format
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
    fmt = format_of(fmt)
    if type(value) is np.ndarray and value.dtype == fmt.dtype and fmt.kind == "float" and not (cast and fmt.padding):
        return value.view(fmt.code_dtype)
    array = as_array(value, what)
    if isinstance(value, RawCodes) and array.dtype == fmt.code_dtype and fmt.dtype.isbuiltin != 1:
        if fmt.bits < 8 and (array >> fmt.bits).any():
            raise OperandError(f"{what} must hold codes of {fmt}, below {1 << fmt.bits}, not {array.max()}")
        return array
    if array.dtype.newbyteorder("=") == fmt.dtype and not (cast and fmt.padding):
        return to_codes(array, fmt)
    if cast and fmt.kind == "float" and array.dtype.name in _CASTABLE:
        return encode(array, fmt, saturate=fmt.nan is None)
    hint = f"; cast=True rounds it to {fmt}" if fmt.kind == "float" and array.dtype.name in _CASTABLE else ""
    raise OperandTypeError(f"{what} must have dtype {fmt.dtype} ({fmt}), not {array.dtype}{hint}")


def as_elements(value: Any, fmt: str, what: str) -> NDArray[Any]:
    """An array as it is, or as elements of the format where it holds codes from CuPy."""
    if isinstance(value, RawCodes) and value.dtype != format_of(fmt).dtype:
        return elements_of(codes_of(value, fmt, what, cast=True), fmt) if value.dtype.kind == "u" else np.asarray(value)
    return as_array(value, what)


def check_shape(array: NDArray[Any], tail: tuple[int, ...], what: str) -> None:
    """Raise OperandError unless the last dimensions are `tail`."""
    if array.shape[array.ndim - len(tail) :] != tail:
        raise OperandError(f"{what} must have shape (..., {', '.join(map(str, tail))}), not {array.shape}")


def check_output(out: Any, shape: tuple[int, ...], fmt: Format, what: str) -> NDArray[Any]:
    """`out=` as NumPy takes it: an array of exactly this shape and dtype, writeable, without a mask, each element at a place of its own.

    Returns
    -------
    The same memory as a plain array.

    Raises
    ------
    OperandTypeError, OperandError
    """
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
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


def _folded(array: NDArray[Any]) -> bool:
    """Whether two elements of an array may be at one place."""
    reach = array.itemsize
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1):
        if stride < reach:
            return array.size > 0
        reach += stride * (extent - 1)
    return False


class Results:
    """Where the codes of results go, and the elements that a call returns for them.

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
            return from_codes(self.codes, self.format).reshape(self.codes.shape)  # a scalar gains a dimension on the way
        if not self.direct:
            self.out[...] = from_codes(self.codes, self.format)
        found: NDArray[Any] = self.out
        return found


def _same_memory(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Whether matrices lie in the same place, whatever leading dimensions of one they have."""
    return bool(x.ctypes.data == y.ctypes.data and x.strides[-2:] == y.strides[-2:] and x.shape[-2:] == y.shape[-2:])


def tile_codes(value: Any, name: str, fmt: str, tail: tuple[int, int], ins: Instruction) -> NDArray[Any]:
    """Operand `name` of an instruction at matrix level: codes (..., rows, columns)."""
    what = f"{ins}: {name}"
    codes = codes_of(value, fmt, what)
    check_shape(codes, tail, what)
    return codes


def scale_codes(value: Any, name: str, ins: Instruction) -> NDArray[Any]:
    """Codes of scales given as elements (float8_e8m0fnu, or float8_e4m3fn for ue4m3, which has no sign)."""
    what = f"{ins}: {name}"
    fmt = FORMATS[ins.stype]
    codes = codes_of(value, fmt, what)
    if not fmt.signed and fmt.exponent_bits + fmt.mantissa_bits < fmt.bits and (codes >> 7).any():
        raise OperandError(f"{what} must not be negative: {fmt} has no sign")
    return codes


def extra_operands(ins: Instruction, metadata: Any, scale_a: Any, scale_b: Any, m: int, n: int, k: int) -> dict[str, NDArray[Any]]:
    """Metadata words and scales at matrix level, checked, for a product of these sizes; leading dimensions are free.

    Raises
    ------
    OperandError, OperandTypeError
    """
    check_extra(ins, metadata=metadata, scale_a=scale_a, scale_b=scale_b)
    extra: dict[str, NDArray[Any]] = {}
    if ins.sparse:
        rule, words = pattern_of(ins), as_array(metadata, f"{ins}: metadata")
        shape = (*words.shape[:-2], m, k // rule.chunk)
        extra["metadata"] = check_metadata(words, shape, rule, ordered=ins.ordered_metadata, what=f"{ins}: metadata")
    if ins.scale_vec_size:
        scales = -(-k * ins.scale_vec_size // ins.k)
        for name, value, tail in (("scale_a", scale_a, (m, scales)), ("scale_b", scale_b, (scales, n))):
            extra[name] = scale_codes(value, name, ins)
            check_shape(extra[name], tail, f"{ins}: {name}")
    return extra


def broadcast(ins: Instruction, arrays: dict[str, NDArray[Any]]) -> tuple[int, ...]:
    """The common leading dimensions of matrices or registers.

    Raises
    ------
    OperandError
        If they do not broadcast.
    """
    try:
        return np.broadcast_shapes(*(array.shape[:-2] for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape[:-2]}" for name, array in arrays.items())
        raise OperandError(f"{ins}: the leading dimensions do not broadcast: {shapes}") from None


def flatten(array: NDArray[Any], lead: tuple[int, ...]) -> NDArray[Any]:
    """Matrices or registers with one leading dimension; a view where all share one array, or where the dimensions are already so."""
    count, tail = math.prod(lead), array.shape[-2:]
    if math.prod(array.shape[:-2]) == 1:
        return np.broadcast_to(array.reshape(1, *tail), (count, *tail))
    return np.broadcast_to(array, lead + tail).reshape(count, *tail)


def elements_of(codes: NDArray[Any], fmt: str) -> NDArray[Any]:
    """Result codes as an array of the format's dtype."""
    return from_codes(codes, fmt)


def check_unused(ins: Instruction, selector: Any, *ids: Any) -> None:
    """Raise OperandError unless the selectors of what an instruction has not, metadata or scales, are 0."""
    if not ins.sparse and whole(selector) != 0:
        raise OperandError(f"{ins}: selector must be 0 where A is dense, not {selector!r}")
    if not ins.scale_vec_size and any(whole(each) != 0 for each in ids):
        raise OperandError(f"{ins}: there is no block scaling, so byte and thread ids must be 0")


def check_extra(ins: Instruction, **extra: Any) -> None:
    """Raise OperandError unless metadata and scales are given exactly where the instruction has them."""
    wanted = {"metadata": bool(ins.sparse), "scale_a": bool(ins.scale_vec_size), "scale_b": bool(ins.scale_vec_size)}
    reason = {"metadata": "sparse", "scale_a": "block-scaled", "scale_b": "block-scaled"}
    for name, value in extra.items():
        if wanted[name] and value is None:
            raise OperandError(f"{ins}: the instruction is {reason[name]} and needs {name}")
        if not wanted[name] and value is not None:
            raise OperandError(f"{ins}: the instruction is not {reason[name]} and takes no {name}")
