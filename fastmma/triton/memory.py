"""bf16 in the interpreter's memory: its C++ code knows NumPy's own types only, so that bf16 passes as 16-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from fastmma.products.report import NEUTRAL
from fastmma.triton.addresses import check_addresses
from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import BF16, is_bf16
from fastmma.triton.handles import LOADED
from fastmma.triton.report import Report

_BITS = np.dtype(np.uint16)
_DTYPES: dict[str, np.dtype[Any]] = {}  # of Triton's types, which are few: the interpreter asks at every operation


class Memory:
    """The interpreter's C++ module, which takes bf16 too."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def load(
        self, pointers: NDArray[Any], mask: NDArray[Any], other: NDArray[Any], dtype: Any, line: tuple[str, int] | None = None
    ) -> NDArray[Any]:
        """Load elements, at a line of the kernel; by default the one that runs.

        Raises
        ------
        NotEmulatedError
            If an address is no tensor's.
        """
        check_addresses(pointers, mask, line=line)
        if dtype != BF16:
            return np.asarray(self._inner.load(pointers, mask, other, dtype))
        return np.asarray(self._inner.load(pointers, mask, np.ascontiguousarray(other).view(_BITS), _BITS)).view(BF16)

    def store(self, pointers: NDArray[Any], values: NDArray[Any], mask: NDArray[Any], line: tuple[str, int] | None = None) -> Any:
        """Store elements.

        Raises
        ------
        NotEmulatedError
            If an address is no tensor's.
        """
        check_addresses(pointers, mask, stores=True, line=line)
        values = np.ascontiguousarray(values)
        return self._inner.store(pointers, values.view(_BITS) if values.dtype == BF16 else values, mask)

    def atomic_rmw(self, operation: Any, pointers: NDArray[Any], values: NDArray[Any], mask: NDArray[Any], order: Any) -> NDArray[Any]:
        """Join elements with what lies in memory, one after another, and return what lay there.

        Raises
        ------
        NotEmulatedError
            If an address is no tensor's.
        """
        check_addresses(pointers, mask, stores=True)
        if values.dtype != BF16:
            return np.asarray(self._inner.atomic_rmw(operation, pointers, values, mask, order))
        given, places, taken = (np.ascontiguousarray(one).reshape(-1) for one in (values, pointers, mask))
        found = np.zeros_like(given)
        for one in np.flatnonzero(taken):
            each = slice(one, one + 1)
            found[each] = self.load(places[each], taken[each], found[each], BF16)
            joined = found[each] + given[each] if operation == self._inner.RMW_OP.FADD else given[each]
            self.store(places[each], joined, taken[each])
        return found.reshape(values.shape)

    def atomic_cas(self, pointers: NDArray[Any], *rest: Any) -> NDArray[Any]:
        """Exchange elements that are as they should be, and return what lay there.

        Raises
        ------
        NotEmulatedError
            If an address is no tensor's.
        """
        check_addresses(pointers, np.ones(pointers.shape, np.bool_), stores=True)
        return np.asarray(self._inner.atomic_cas(pointers, *rest))


def numpy_dtype(original: Operation, kind: Any) -> Any:
    """The dtype in which the interpreter holds a type: NumPy's operators are right for bf16 as such."""
    name = kind.scalar.name
    if name not in _DTYPES:
        _DTYPES[name] = BF16 if is_bf16(kind) else original(kind)
    return _DTYPES[name]


def _load(_run: Emulation, original: Operation, pointers: Any, *rest: Any) -> Any:
    result = original(pointers, *rest)
    if result.dtype.scalar.is_floating() or result.dtype.scalar.is_int():
        result.attr[LOADED] = result.dtype.scalar.primitive_bitwidth
    return result


class Found(TensorHandle):
    """The values that an atomic operation found in memory: which program came before is counted where a kernel reads it."""

    def __init__(self, data: NDArray[Any], dtype: Any, report: Report, operation: str) -> None:
        self.dtype = dtype
        self.attr: dict[str, Any] = {}
        self.unread, self._report, self._operation = data, report, operation

    def moved(self, result: Any) -> Found:
        """Make the same of a result that this was moved to."""
        return Found(result.data, result.dtype, self._report, self._operation)

    @property
    def data(self) -> NDArray[Any]:
        """Read the value that was found."""
        self._report.passes(self._operation, "the value that it found: which program comes first changes from run to run of a GPU")
        return self.unread


def _carry(_run: Emulation, original: Operation, *operands: Any) -> Any:
    """Move what was found, unread: Triton makes extrema of floats of two operations on integers."""
    for found in operands:
        if isinstance(found, Found):
            break
    else:
        return original(*operands)
    result = original(*(TensorHandle(one.unread, one.dtype) if isinstance(one, Found) else one for one in operands))
    return found.moved(result)


_FLOATS_ADDED = "floating-point numbers are added in an order that changes from run to run of a GPU"
_LAST = "which program comes last changes from run to run of a GPU"


def _is_alone(builder: Any, pointers: NDArray[Any]) -> bool:
    """Tell whether nothing else reaches the same places of memory."""
    return all(size == 1 for size in builder.grid_dim) and np.unique(pointers).size == pointers.size


def _atomic(run: Emulation, original: Operation, operation: Any, pointers: Any, values: Any, *rest: Any) -> Any:
    run.launch.count_atomics(tuple(interpreter.interpreter_builder.grid_idx))
    result = original(operation, pointers, values, *rest)
    name = "atomic_add" if operation == ir.ATOMIC_OP.FADD else f"atomic_{str(operation).rpartition('.')[2].lower()}"
    alone = _is_alone(interpreter.interpreter_builder, pointers.data)
    if operation == ir.ATOMIC_OP.FADD:
        run.report.passes(name, _FLOATS_ADDED)
    elif operation == ir.ATOMIC_OP.XCHG and not alone:
        run.report.passes(name, _LAST)
    else:
        run.report.tell(NEUTRAL, name, "integers, in whichever order")
    return result if alone else Found(result.data, result.dtype, run.report, name)


def _compare_and_swap(run: Emulation, original: Operation, *operands: Any) -> Any:
    run.launch.count_atomics(tuple(interpreter.interpreter_builder.grid_idx))
    return original(*operands)


def _reshape(run: Emulation, original: Operation, value: Any, shape: Any, reorders: bool) -> Any:
    """Reshape, which may leave the order of elements to the compiler."""
    if reorders and tuple(shape) != value.data.shape:
        run.report.passes("reshape", "can_reorder=True: the order of its elements depends on the layout of the threads")
    return original(value, shape, reorders)


def _load_of_descriptor(run: Emulation, original: Operation, descriptor: Any, *rest: Any) -> Any:
    if getattr(descriptor, "round_f32_to_tf32", False):
        run.report.assumes("descriptor_load", "f32 rounded to tf32, to nearest even, as Triton's interpreter says that the hardware does")
    else:
        run.report.tell(NEUTRAL, "descriptor_load", "moves data")
    return original(descriptor, *rest)


OPERATIONS: dict[str, Operation] = {
    "create_masked_load": _load,
    "create_atomic_rmw": _atomic,
    "create_atomic_cas": _compare_and_swap,
    **dict.fromkeys(("create_select", "create_bitcast", "create_int_cast"), _carry),
    "create_descriptor_load": _load_of_descriptor,
    "create_reshape": _reshape,
}
