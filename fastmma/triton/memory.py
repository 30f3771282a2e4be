"""bf16 in the interpreter's memory: its C++ code knows NumPy's own types only, so that bf16 passes as 16-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton._C.libtriton import ir

from fastmma.triton.emulation import Emulation, Operation
from fastmma.triton.formats import BF16, is_bf16
from fastmma.triton.handles import LOADED

_BITS = np.dtype(np.uint16)


class Memory:
    """The interpreter's C++ module, which takes bf16 too."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def load(self, pointers: NDArray[Any], mask: NDArray[Any], other: NDArray[Any], dtype: Any) -> NDArray[Any]:
        """Load elements."""
        if dtype != BF16:
            return np.asarray(self._inner.load(pointers, mask, other, dtype))
        return np.asarray(self._inner.load(pointers, mask, np.ascontiguousarray(other).view(_BITS), _BITS)).view(BF16)

    def store(self, pointers: NDArray[Any], values: NDArray[Any], mask: NDArray[Any]) -> Any:
        """Store elements."""
        values = np.ascontiguousarray(values)
        return self._inner.store(pointers, values.view(_BITS) if values.dtype == BF16 else values, mask)


def numpy_dtype(original: Operation, kind: Any) -> Any:
    """The dtype in which the interpreter holds a type: NumPy's operators are right for bf16 as such."""
    return BF16 if is_bf16(kind) else original(kind)


def _load(_run: Emulation, original: Operation, pointers: Any, *rest: Any) -> Any:
    result = original(pointers, *rest)
    if result.dtype.scalar.is_floating() or result.dtype.scalar.is_int():
        result.attr[LOADED] = result.dtype.scalar.primitive_bitwidth
    return result


def _atomic(run: Emulation, original: Operation, operation: Any, pointers: Any, values: Any, *rest: Any) -> Any:
    if operation == ir.ATOMIC_OP.FADD:
        run.report.passes("atomic_add", "floating-point numbers are added in an order that changes from run to run of a GPU")
    return original(operation, pointers, values, *rest)


OPERATIONS: dict[str, Operation] = {"create_masked_load": _load, "create_atomic_rmw": _atomic}
